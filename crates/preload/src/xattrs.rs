//! Extended attributes of files in DAFS. Attributes of `user.*` are the named attributes of DAFS.
//!
//! Invariants: attributes of other kinds do not exist, because the server stores none. If a new
//! value does not fit, the old value stays.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use dafs_client::{ChainFailure, ObjectType, OpenOptions, Outcome as Brought, SetAttributes};
use dafs_client::{Session, ShareAccess, Status};
use dafs_types::FileHandle;

use crate::errors::{Failure, Outcome, fail};
use crate::route::Place;
use crate::state::{Description, State};
use crate::waiting::{wait, wait_result};

/// An object that can have extended attributes.
pub(crate) struct XattrOwner {
    session: Session,
    handle: FileHandle,
    /// False for symbolic links and special files, which have no `user.*` attributes.
    has_any: bool,
}

impl State {
    /// Returns the object at a place.
    pub(crate) fn xattr_owner(&mut self, place: &Place, follow: bool) -> Outcome<XattrOwner> {
        let object = self.object(place, follow)?;
        let kind = object.metadata.kind;
        let has_any = matches!(kind, ObjectType::Regular | ObjectType::Directory);
        Ok(XattrOwner { session: object.session, handle: object.metadata.handle, has_any })
    }

    /// Returns the object of an open descriptor.
    pub(crate) fn xattr_owner_of(&mut self, of: &Description) -> Outcome<XattrOwner> {
        of.must_be_open()?;
        let (session, _) = self.connection.mount(of.identity.mount)?;
        Ok(XattrOwner { session, handle: of.identity.handle, has_any: true })
    }
}

impl XattrOwner {
    /// Returns the handle of the object's attribute directory.
    fn directory(&self) -> Outcome<FileHandle> {
        wait_result(&self.session.client(), self.session.attributes_of_async(self.handle, ""))
    }

    /// Returns the value of an attribute.
    pub(crate) fn get(&self, name: &[u8]) -> Outcome<Vec<u8>> {
        let name = known(name)?;
        if !self.has_any {
            return fail(libc::ENODATA);
        }
        let (client, directory) = (self.session.client(), self.directory()?);
        let buffer = client.allocate(VALUE_BYTES_MAX)?;
        let value = buffer.slice(0, VALUE_BYTES_MAX)?;
        let chain = self.session.chain().at(directory).open(name, &OpenOptions::read());
        let brought = wait(&client, chain.read_into(0, value).close().run_async());
        let brought = brought.map_err(|failure| self.failed(failure))?;
        let moved = brought.iter().find_map(Brought::transferred);
        let Some(moved) = moved else { return fail(libc::EIO) };
        let mut value = vec![0; moved.length as usize];
        buffer.read(0, &mut value);
        Ok(value)
    }

    /// Sets an extended attribute of the object.
    pub(crate) fn set(&self, name: &[u8], value: &[u8], flags: i32) -> Outcome<i32> {
        if flags & !(libc::XATTR_CREATE | libc::XATTR_REPLACE) != 0 {
            return fail(libc::EINVAL);
        }
        let name = known(name)?;
        if value.len() > VALUE_BYTES_MAX {
            return fail(libc::E2BIG);
        }
        if !self.has_any {
            return fail(libc::EPERM);
        }
        let directory = self.directory()?;
        // Request either to create or to replace the attribute, so that an attribute that was
        // created here can be removed if the value does not fit.
        loop {
            if flags & libc::XATTR_CREATE == 0 {
                match self.put(directory, name, value, false) {
                    Err(Failure::Errno(libc::ENODATA)) if flags & libc::XATTR_REPLACE == 0 => {}
                    done => return done.map(|()| 0),
                }
            }
            match self.put(directory, name, value, true) {
                Err(Failure::Errno(libc::EEXIST)) if flags & libc::XATTR_CREATE == 0 => {}
                done => return done.map(|()| 0),
            }
        }
    }

    fn put(&self, directory: FileHandle, name: &OsStr, value: &[u8], is_new: bool) -> Outcome<()> {
        let client = self.session.client();
        let buffer = client.allocate(value.len().max(1))?;
        buffer.write(0, value);
        let options =
            OpenOptions::read().access(ShareAccess::Write).create(is_new).create_new(is_new);
        let size = SetAttributes { size: Some(value.len() as u64), ..SetAttributes::default() };
        let mut chain = self.session.chain().at(directory).open(name, &options);
        if !value.is_empty() {
            chain = chain.write_from(0, buffer.slice(0, value.len())?);
        }
        let put = wait(&client, chain.setattr(&size).close().run_async());
        let Err(failure) = put else { return Ok(()) };
        let was_made = is_new && failure.member > 0;
        let failed = self.failed(failure);
        if was_made {
            let removing = self.session.chain().at(directory).remove(name).run_async();
            let _ = wait(&client, removing);
        }
        Err(failed)
    }

    /// Returns the names of all attributes, each followed by a zero byte.
    pub(crate) fn list(&self) -> Outcome<Vec<u8>> {
        let mut names = Vec::new();
        let directory = match self.directory() {
            Ok(directory) if self.has_any => directory,
            // An object that cannot have attributes has none.
            Ok(_) | Err(Failure::Errno(libc::EOPNOTSUPP)) => return Ok(names),
            Err(failure) => return Err(failure),
        };
        let listing = self.session.list_async(directory, "");
        for entry in wait_result(&self.session.client(), listing)? {
            names.extend_from_slice(USER_PREFIX);
            names.extend_from_slice(entry.name.as_bytes());
            names.push(0);
        }
        Ok(names)
    }

    /// Removes an extended attribute of the object.
    pub(crate) fn remove(&self, name: &[u8]) -> Outcome<i32> {
        let name = known(name)?;
        if !self.has_any {
            return fail(libc::EPERM);
        }
        let removing = self.session.chain().at(self.directory()?).remove(name).run_async();
        let removed = wait(&self.session.client(), removing);
        removed.map(|_| 0).map_err(|failure| self.failed(failure))
    }

    /// Converts the failure of a chain on an attribute. Closes the attribute if the chain left it
    /// open.
    fn failed(&self, failure: ChainFailure) -> Failure {
        if let Some(&Brought::Opened { file, state }) = failure.done.first() {
            // Dropping the file closes it.
            drop(self.session.opened(file, state, ""));
        }
        match failure.error.status() {
            Some(Status::NoEnt) => Failure::Errno(libc::ENODATA),
            Some(Status::FBig) => Failure::Errno(libc::E2BIG),
            _ => failure.into(),
        }
    }
}

/// Returns the server's name for an attribute. Fails if the server does not store this kind.
fn known(name: &[u8]) -> Outcome<&OsStr> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return fail(libc::ERANGE);
    }
    let Some(name) = name.strip_prefix(USER_PREFIX) else { return fail(libc::EOPNOTSUPP) };
    if name.is_empty() || name.contains(&b'/') || matches!(name, b"." | b"..") {
        return fail(libc::EINVAL);
    }
    Ok(OsStr::from_bytes(name))
}

const USER_PREFIX: &[u8] = b"user.";
/// The maximum length in bytes of the name of an attribute in Linux.
const NAME_BYTES_MAX: usize = 255;
/// The maximum length in bytes of the value of an attribute in Linux.
const VALUE_BYTES_MAX: usize = 65_536;
