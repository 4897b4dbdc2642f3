//! Opens files and directories, and objects with O_PATH.
//!
//! Invariant: a descriptor is entered into the table before its number is returned.

use std::ffi::{OsStr, OsString};
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use dafs_client::{
    AccessMask, File, Metadata, ObjectType, OpenOptions, Outcome as Brought, Session, ShareAccess,
    Status, split_last,
};
use dafs_types::FileHandle;

use crate::errors::{Failure, Outcome, fail};
use crate::page::{Identity, Kind, Page};
use crate::route::{LINKS_MAX, Place, Route, route_absolute};
use crate::shared::SharedObject;
use crate::sockets;
use crate::state::{Description, State};
use crate::waiting::{wait, wait_result};
use crate::walk::{Slot, attributes};
use crate::working_directory::shown;

/// The program's umask: the mode bits that new objects do not get.
static UMASK: AtomicU32 = AtomicU32::new(0o022);

/// Records the program's new umask.
pub(crate) fn note_umask(mask: u32) {
    UMASK.store(mask & 0o777, Ordering::Relaxed);
}

/// Applies the umask to the mode of a new object.
pub(crate) fn new_mode(mode: u32) -> u32 {
    mode & 0o7777 & !UMASK.load(Ordering::Relaxed)
}

impl State {
    /// Opens the object at a place. Returns its descriptor.
    pub(crate) fn open(&mut self, place: &Place, flags: i32, mode: u32) -> Outcome<RawFd> {
        if flags & libc::O_TMPFILE == libc::O_TMPFILE {
            return fail(libc::EOPNOTSUPP);
        }
        if flags & libc::O_PATH != 0 || place.descriptor.is_some() {
            return self.open_object(place, flags);
        }
        if place.is_directory || (flags & (libc::O_DIRECTORY | libc::O_CREAT) == libc::O_DIRECTORY)
        {
            return self.open_directory(place, flags);
        }
        self.open_name(place, flags, mode, 0)
    }

    fn open_object(&mut self, place: &Place, flags: i32) -> Outcome<RawFd> {
        let object = self.object(place, flags & libc::O_NOFOLLOW == 0)?;
        let is_directory = object.metadata.kind == ObjectType::Directory;
        if flags & libc::O_DIRECTORY != 0 && !is_directory {
            return fail(libc::ENOTDIR);
        }
        let path = object.path;
        let identity =
            Identity::of(place.mount, Kind::Object, &object.metadata, path, libc::O_RDONLY);
        self.place_descriptor(identity, flags, None)
    }

    fn open_directory(&mut self, place: &Place, flags: i32) -> Outcome<RawFd> {
        if flags & libc::O_CREAT != 0 {
            self.slot(place)?;
            return fail(libc::EISDIR);
        }
        let object = self.object(place, flags & libc::O_NOFOLLOW == 0)?;
        if object.metadata.kind != ObjectType::Directory {
            return fail(libc::ENOTDIR);
        }
        let session = object.session;
        self.enter_directory(&session, &object.metadata, place.mount, object.path, flags)
    }

    fn enter_directory(
        &mut self,
        session: &Session,
        metadata: &Metadata,
        mount: usize,
        path: OsString,
        flags: i32,
    ) -> Outcome<RawFd> {
        if flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0 {
            return fail(libc::EISDIR);
        }
        must_have(session, metadata.handle, AccessMask::READ)?;
        let identity = Identity::of(mount, Kind::Directory, metadata, path, libc::O_RDONLY);
        self.place_descriptor(identity, flags, None)
    }

    fn open_name(&mut self, place: &Place, flags: i32, mode: u32, links: u32) -> Outcome<RawFd> {
        if links > LINKS_MAX {
            return fail(libc::ELOOP);
        }
        let slot = self.slot(place)?;
        if slot.name.is_empty() {
            let metadata = attributes(&slot.session, slot.directory)?;
            if flags & libc::O_CREAT != 0 {
                return fail(if is_exclusive(flags) { libc::EEXIST } else { libc::EISDIR });
            }
            let session = slot.session.clone();
            return self.enter_directory(&session, &metadata, slot.mount, slot.path, flags);
        }
        let (session, options) = (&slot.session, options(flags, mode));
        let opening = session.open_in_async(slot.directory, &slot.name, &slot.path, &options);
        match wait(&session.client(), opening) {
            Ok(file) => {
                if flags & libc::O_TRUNC != 0 {
                    self.unstable.truncate((slot.mount, file.handle()), 0);
                    SharedObject::note_length(slot.mount, &file.handle(), 0);
                }
                self.enter_file(&slot, file, flags)
            }
            Err(error) => match error.status() {
                Some(Status::Symlink) => self.open_link(&slot, flags, mode, links),
                Some(Status::IsDir | Status::BadType | Status::Inval) => {
                    self.open_other(&slot, flags, error.into())
                }
                _ => Err(error.into()),
            },
        }
    }

    fn enter_file(&mut self, slot: &Slot, file: File, flags: i32) -> Outcome<RawFd> {
        // The server lets a user with only execute permission read a file, so check read permission
        // here. The superuser needs no check.
        let reads = flags & libc::O_ACCMODE != libc::O_WRONLY;
        let is_asked = flags & (libc::O_CREAT | TO_RUN) == 0;
        if reads && is_asked && !rustix::process::geteuid().is_root() {
            must_have(&slot.session, file.handle(), AccessMask::READ)?;
        }
        let identity = Identity {
            mount: slot.mount,
            kind: Kind::File,
            handle: file.handle(),
            path: slot.path.clone(),
            access: flags & libc::O_ACCMODE,
        };
        self.place_descriptor(identity, flags, Some(file))
    }

    /// Opens the target of a symbolic link.
    fn open_link(&mut self, slot: &Slot, flags: i32, mode: u32, links: u32) -> Outcome<RawFd> {
        if is_exclusive(flags) {
            return fail(libc::EEXIST);
        }
        if flags & libc::O_NOFOLLOW != 0 {
            return fail(libc::ELOOP);
        }
        let text = read_link(slot)?;
        let path = if text.starts_with(b"/") {
            OsString::from_vec(text)
        } else {
            let mut path = shown(slot.mount, split_last(&slot.path).0);
            path.push("/");
            path.push(OsStr::from_bytes(&text));
            path
        };
        match route_absolute(path.as_bytes()) {
            Route::Dafs(place) if place.is_directory => self.open_directory(&place, flags),
            Route::Dafs(place) => self.open_name(&place, flags, mode, links + 1),
            Route::Refused(errno) => fail(errno),
            Route::Kernel | Route::KernelAt(_) => Err(Failure::Elsewhere(path)),
        }
    }

    /// Opens an object that is not a regular file.
    fn open_other(&mut self, slot: &Slot, flags: i32, failure: Failure) -> Outcome<RawFd> {
        let Some(metadata) = slot.look()? else { return Err(failure) };
        match metadata.kind {
            ObjectType::Directory if flags & libc::O_CREAT != 0 => {
                fail(if is_exclusive(flags) { libc::EEXIST } else { libc::EISDIR })
            }
            ObjectType::Directory => {
                let session = slot.session.clone();
                self.enter_directory(&session, &metadata, slot.mount, slot.path.clone(), flags)
            }
            ObjectType::Regular => Err(failure),
            ObjectType::Fifo => {
                must_have(&slot.session, metadata.handle, rights_of(flags))?;
                Err(Failure::Elsewhere(sockets::pipe(slot.mount, &metadata)?.into()))
            }
            // Devices cannot be opened, as with the mount option `nodev`. A socket in DAFS cannot
            // be opened either.
            ObjectType::BlockDevice | ObjectType::CharacterDevice => fail(libc::EACCES),
            _ => fail(libc::ENXIO),
        }
    }

    /// Assigns a new descriptor to an open file, and enters it into the table.
    fn place_descriptor(
        &mut self,
        identity: Identity,
        flags: i32,
        file: Option<File>,
    ) -> Outcome<RawFd> {
        let once = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_CLOEXEC;
        let kept = flags & !(TO_RUN | once);
        let number = self.new_descriptor(flags & libc::O_CLOEXEC != 0)?;
        drop(self.enter(number, Description::new(identity, Page::new(kept), file)));
        Ok(number)
    }

    /// Returns this process's open of a description on the server. Makes an open if there is none.
    pub(crate) fn file(&mut self, description: &Description) -> Outcome<Rc<File>> {
        if let Some(file) = &*description.file.borrow() {
            return Ok(file.clone());
        }
        let file = Rc::new(self.open_again(description, access_of(description.identity.access))?);
        *description.file.borrow_mut() = Some(file.clone());
        Ok(file)
    }

    /// Makes another open of the same file.
    pub(crate) fn open_again(&mut self, of: &Description, access: ShareAccess) -> Outcome<File> {
        match of.identity.kind {
            Kind::File => {}
            Kind::Directory => return fail(libc::EISDIR),
            Kind::Object => return fail(libc::EBADF),
        }
        let (session, _) = self.connection.mount(of.identity.mount)?;
        let options = OpenOptions::read().access(access);
        let opening = session.open_handle_async(of.identity.handle, &of.identity.path, &options);
        wait_result(&session.client(), opening)
    }
}

/// Fails with EACCES if the user lacks any of these rights to the object.
pub(crate) fn must_have(session: &Session, handle: FileHandle, rights: AccessMask) -> Outcome<()> {
    let asking = session.chain().at(handle).access(rights).run_async();
    let brought = wait_result(&session.client(), asking)?;
    match brought.last() {
        Some(Brought::Access(given)) if given.0 & rights.0 == rights.0 => Ok(()),
        Some(Brought::Access(_)) => fail(libc::EACCES),
        _ => fail(libc::EIO),
    }
}

/// Returns the text of the symbolic link in a slot.
pub(crate) fn read_link(slot: &Slot) -> Outcome<Vec<u8>> {
    let chain = slot.session.chain().at(slot.directory);
    let asking = chain.lookup(&slot.name).read_link().run_async();
    match wait_result(&slot.session.client(), asking)?.into_iter().last() {
        Some(Brought::LinkText(text)) => Ok(text),
        _ => fail(libc::EIO),
    }
}

/// An internal flag for opens, which programs cannot pass. With this flag a file is opened to be
/// executed, which needs no read permission.
pub(crate) const TO_RUN: i32 = i32::MIN;

fn is_exclusive(flags: i32) -> bool {
    flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL
}

/// Returns the share access for an access mode.
pub(crate) fn access_of(flags: i32) -> ShareAccess {
    match flags & libc::O_ACCMODE {
        libc::O_RDONLY => ShareAccess::Read,
        libc::O_WRONLY => ShareAccess::Write,
        _ => ShareAccess::Both,
    }
}

/// Returns the rights that an open with these flags requires.
fn rights_of(flags: i32) -> AccessMask {
    let written = AccessMask::MODIFY | AccessMask::EXTEND;
    match access_of(flags) {
        ShareAccess::Read => AccessMask::READ,
        ShareAccess::Write => written,
        _ => AccessMask::READ | written,
    }
}

fn options(flags: i32, mode: u32) -> OpenOptions {
    let truncate = flags & libc::O_TRUNC != 0;
    // Truncation requires write access, as in the kernel.
    let is_reader = flags & libc::O_ACCMODE == libc::O_RDONLY && truncate;
    OpenOptions::read()
        .access(if is_reader { ShareAccess::Both } else { access_of(flags) })
        .create(flags & libc::O_CREAT != 0)
        .create_new(is_exclusive(flags))
        .truncate(truncate)
        .mode(new_mode(mode))
}
