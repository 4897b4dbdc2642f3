//! Maps files into memory, as copies or as the local file itself.
//!
//! Three kinds of mappings exist:
//! - The local file itself, if the server is on this host and passes a descriptor. This is used for
//!   a private mapping, and for a mapping that is only read through a descriptor that cannot write.
//! - Anonymous memory that is filled from the file. This is used for the same mappings if the
//!   server passes no descriptor.
//! - Shared memory, for a shared and writable mapping. All processes of this user on this host that
//!   map the same file in this way share the memory. Changes in it are written to the file at
//!   `msync`, `munmap` and exit, and before this process reads the file.
//!
//! Invariants:
//! - The shared memory of a file ([`crate::shared`]) is filled from the file by the first process
//!   that maps it, and is removed by the last process that uses it.
//! - Unchanged memory is not written.
//! - Changes by killed programs are written to the file when a process next maps a file of the same
//!   server, unless another client has written there since.
//! - At any time, shared memory of a file exists on only one host, for one user and under one name
//!   of the server ([`dafs_posix::locks::shared_memory`]).

use std::collections::HashMap;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use dafs_client::{File, LockKind, LockOptions, OpenOptions, ShareAccess, shown_path};
use dafs_posix::locks;
use dafs_types::FileHandle;
use libc::c_void;

use crate::data::Piece;
use crate::errors::{self, Failure, Mapped, Outcome, fail};
use crate::page::Kind;
use crate::report::{Miss, missed};
use crate::shared::{PAGE, SharedObject, host_of, server_of};
use crate::state::{Description, State};
use crate::waiting::wait_result;
use crate::working_directory::shown;

/// True if this process may have mapped files, so that `munmap` calls must be tracked.
static TRACKED: AtomicBool = AtomicBool::new(false);

/// True if this process may have mapped files.
pub(crate) fn is_tracked() -> bool {
    TRACKED.load(Ordering::Relaxed)
}

/// The arguments of an `mmap` call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MmapRequest {
    /// The address that the program requests.
    pub address: *mut c_void,
    /// The length in bytes.
    pub length: usize,
    /// The protection that the program requests.
    pub protection: i32,
    /// The flags of the `mmap` call (`MAP_SHARED` and others).
    pub flags: i32,
    /// The descriptor to map.
    pub number: RawFd,
    /// The offset in the file.
    pub offset: i64,
}

/// All mappings of DAFS files in this process.
#[derive(Default)]
pub(crate) struct Mappings {
    regions: Vec<Region>,
    /// The start and length of each mapping that is a copy.
    copies: Vec<(usize, usize)>,
    objects: HashMap<FileHandle, Rc<SharedObject>>,
}

/// A shared mapping of a file.
struct Region {
    start: usize,
    length: usize,
    of: Rc<Description>,
    offset: u64,
    object: Rc<SharedObject>,
}

impl Mappings {
    /// Updates the shared memory after a write by this process, so that all processes that map the
    /// file see it.
    pub(crate) fn note_written(&mut self, of: &Description, offset: u64, bytes: &[u8]) {
        if let Some(object) = self.objects.get(&of.identity.handle) {
            object.note_written(offset, bytes);
        }
    }

    /// Returns the descriptions of the files with shared mappings.
    pub(crate) fn descriptions(&self) -> impl Iterator<Item = &Rc<Description>> {
        self.regions.iter().map(|region| &region.of)
    }

    /// True if any part of a range is a mapping of a file.
    pub(crate) fn has(&self, start: usize, length: usize) -> bool {
        let end = start.saturating_add(length);
        let meets = |at: usize, length: usize| at < end && start < at + length;
        self.regions.iter().any(|region| meets(region.start, region.length))
            || self.copies.iter().any(|(at, length)| meets(*at, *length))
    }

    /// Drops the claims to shared memory in a child process, because the claims belong to the
    /// parent's connection.
    pub(crate) fn forget_claims(&mut self) {
        for object in self.objects.values() {
            std::mem::forget(object.claim.take());
        }
    }
}

impl State {
    /// Maps a file into the memory of the program.
    pub(crate) fn map(&mut self, request: MmapRequest) -> Outcome<Mapped> {
        let of = self.get(request.number)?;
        match of.identity.kind {
            Kind::File => {}
            Kind::Directory => return fail(libc::ENODEV),
            Kind::Object => return fail(libc::EBADF),
        }
        if request.length == 0 || request.offset < 0 || request.offset % PAGE as i64 != 0 {
            return fail(libc::EINVAL);
        }
        if of.identity.access == libc::O_WRONLY {
            return fail(libc::EACCES);
        }
        let is_private = request.flags & MAP_TYPE == libc::MAP_PRIVATE;
        let is_written = request.protection & libc::PROT_WRITE != 0;
        match (is_private, is_written, of.identity.access) {
            (true, ..) => self.map_copy(&of, request),
            (false, true, libc::O_RDONLY) => fail(libc::EACCES),
            (false, false, libc::O_RDONLY) => self.map_copy(&of, request),
            (false, true, _) => self.map_shared(of, request),
            // A process that can write to the file expects its mapping to show later writes, which
            // a copy would not show. So refuse the mapping: programs handle that, because some file
            // systems have no mappings.
            (false, false, _) => {
                missed(Miss::Mapping);
                fail(libc::ENODEV)
            }
        }
    }

    fn map_copy(&mut self, of: &Description, request: MmapRequest) -> Outcome<Mapped> {
        if let Some(mapped) = self.map_itself(of, request) {
            return Ok(mapped);
        }
        let flags = request.flags & !(MAP_TYPE | libc::MAP_POPULATE)
            | libc::MAP_PRIVATE
            | libc::MAP_ANONYMOUS;
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        let mapped =
            map(MmapRequest { protection: writable, flags, number: -1, offset: 0, ..request });
        if mapped.0 == libc::MAP_FAILED {
            return fail(errors::get());
        }
        let piece = Piece { start: mapped.0.cast(), length: request.length };
        if let Err(failure) = self.read_at(of, &[piece], request.offset) {
            // SAFETY: the program does not use this memory yet. With MAP_FIXED it knows the
            // address, but what it had there has been replaced.
            unsafe { unmap(mapped.0, request.length) };
            return Err(failure);
        }
        if request.protection != writable {
            // SAFETY: as above.
            unsafe { libc::mprotect(mapped.0, request.length, request.protection) };
        }
        self.mappings.copies.push((mapped.0 as usize, request.length));
        TRACKED.store(true, Ordering::Relaxed);
        Ok(mapped)
    }

    /// Maps the local file itself, so that the mapping shows the writes of local processes. Returns
    /// `None` if the process can write through the descriptor or shares the file's memory with
    /// others, because then programs expect to see writes immediately.
    fn map_itself(&mut self, of: &Description, request: MmapRequest) -> Option<Mapped> {
        let handle = of.identity.handle;
        let is_read = of.identity.access == libc::O_RDONLY;
        if !is_read || request.length < ITSELF_MIN || self.mappings.objects.contains_key(&handle) {
            return None;
        }
        let named = (handle, of.identity.path.as_os_str());
        let file = self.connection.descriptor_of(of.identity.mount, named)?;
        let mapped = map(MmapRequest { number: file.as_raw_fd(), ..request });
        drop(file);
        (mapped.0 != libc::MAP_FAILED).then_some(mapped)
    }

    fn map_shared(&mut self, of: Rc<Description>, request: MmapRequest) -> Outcome<Mapped> {
        let (mount, handle) = (of.identity.mount, of.identity.handle);
        let _guard = SharedObject::guard()?;
        if self.mappings.objects.is_empty() {
            self.sweep(mount, &handle);
        }
        let object = match self.mappings.objects.get(&handle) {
            Some(object) => object.clone(),
            None => Rc::new(SharedObject::open(mount, &handle)?),
        };
        let claimed = self.claim(&of, &object)?;
        if object.is_abandoned() {
            let name = shown(mount, &of.identity.path);
            self.write_back_abandoned(&claimed, &shown_path(&name), &object)?;
            object.empty()?;
        }
        let needed = (request.offset as u64 + request.length as u64).next_multiple_of(PAGE as u64);
        self.fill(&of, &object, needed)?;
        let mapped = map(MmapRequest { number: object.number(), ..request });
        if mapped.0 == libc::MAP_FAILED {
            return fail(errors::get());
        }
        TRACKED.store(true, Ordering::Relaxed);
        self.mappings.objects.insert(handle, object.clone());
        let (start, length, offset) = (mapped.0 as usize, request.length, request.offset as u64);
        self.mappings.regions.push(Region { start, length, of, offset, object });
        Ok(mapped)
    }

    /// Claims the right to share memory of this file, so that no other host or user shares its
    /// memory, now or later.
    fn claim(&mut self, of: &Description, object: &SharedObject) -> Outcome<Rc<File>> {
        if let Some(claimed) = &*object.claim.borrow() {
            return Ok(claimed.clone());
        }
        let file = self.open_again(of, ShareAccess::Both)?;
        if self.announce(of.identity.mount, &file)? {
            let file = Rc::new(file);
            *object.claim.borrow_mut() = Some(file.clone());
            return Ok(file);
        }
        missed(Miss::Elsewhere);
        let path = shown(of.identity.mount, &of.identity.path);
        let path = shown_path(&path);
        eprintln!(
            "dafs: {path}: another host or user, or a mount with another name of the \
             server, shares the memory of this file"
        );
        fail(libc::EAGAIN)
    }

    /// Takes a lock on an open of the file, which announces that this host shares the file's
    /// memory. Returns false if another host or user has the lock.
    fn announce(&mut self, mount: usize, file: &File) -> Outcome<bool> {
        let host = host_of(mount);
        let client = file.session().client();
        let own = locks::shared_memory(host);
        let options = LockOptions::default();
        let locking = file.try_lock_async(LockKind::Shared, own.offset, own.length, options);
        let mut is_free = wait_result(&client, locking)?.is_none();
        for other in locks::elsewhere(host) {
            let testing = file.test_lock_async(LockKind::Exclusive, other.offset, other.length);
            is_free = is_free && wait_result(&client, testing)?.is_none();
        }
        Ok(is_free)
    }

    /// Removes shared memory that killed programs have left, except that of the file `but`, which
    /// is to be mapped. Changes in the memory are written first, if the file is on the same server
    /// as `but`. Memory of other servers' files stays, and so does memory whose changes cannot be
    /// written. The caller holds the guard.
    fn sweep(&mut self, mount: usize, but: &FileHandle) {
        let here = server_of(mount);
        for (server, handle, object) in SharedObject::abandoned() {
            if (server, &handle) == (here, but) {
                continue;
            }
            let is_changed = object.changes(0, u64::MAX).next().is_some();
            let is_here = server == here;
            if !is_changed || is_here && self.rescue(mount, handle, &object) == Ok(true) {
                object.remove_if_last();
            }
        }
    }

    /// Writes changes that killed programs left in shared memory to the file. Returns true if the
    /// memory may be removed.
    fn rescue(&mut self, mount: usize, handle: FileHandle, object: &SharedObject) -> Outcome<bool> {
        let (session, _) = self.connection.mount(mount)?;
        let options = OpenOptions::read().access(ShareAccess::Both);
        let opening = session.open_handle_async(handle, object.name(), &options);
        let file = match wait_result(&session.client(), opening) {
            Ok(file) => file,
            // The file was removed.
            Err(Failure::Errno(libc::ENOENT | libc::ESTALE)) => return Ok(true),
            Err(failure) => return Err(failure),
        };
        if !self.announce(mount, &file)? {
            return Ok(false);
        }
        self.write_back_abandoned(&file, object.name(), object)?;
        Ok(true)
    }

    /// Writes the changes that killed programs left in the shared memory of a file. Writes all of
    /// them, or none if another client has written to these ranges since.
    fn write_back_abandoned(&mut self, file: &File, name: &str, of: &SharedObject) -> Outcome<()> {
        let mut end = u64::MAX;
        for change in of.changes(0, end) {
            let held = self.read_aside(file, change.offset, change.now.len())?;
            let length = held.len();
            if held != change.base[..length] && held != change.now[..length] {
                eprintln!(
                    "dafs: {name}: changes that a killed program made in mapped memory are \
                     dropped: the file was written since, at byte {}",
                    change.offset
                );
                return Ok(());
            }
            // Ignore memory beyond the end of the file.
            if length < change.now.len() {
                end = change.offset + length as u64;
                break;
            }
        }
        for change in of.changes(0, end) {
            self.write_aside(file, change.offset, &change.now, None)?;
        }
        Ok(())
    }

    /// Extends the shared memory to the needed length with the contents of the file.
    fn fill(&mut self, of: &Description, object: &SharedObject, needed: u64) -> Outcome<()> {
        let held = object.length();
        if needed <= held {
            return Ok(());
        }
        // The program chooses the length, which must not end the program.
        let (mut bytes, length) = (Vec::new(), (needed - held) as usize);
        bytes.try_reserve_exact(length).map_err(|_| Failure::Errno(libc::ENOMEM))?;
        bytes.resize(length, 0);
        let piece = Piece { start: bytes.as_mut_ptr(), length: bytes.len() };
        self.read_at(of, &[piece], held as i64)?;
        object.extend(&bytes)
    }

    /// Writes back the changes in the shared mappings that overlap a range.
    pub(crate) fn write_back(
        &mut self,
        start: usize,
        length: usize,
        is_sync: bool,
    ) -> Outcome<i32> {
        let end = start.saturating_add(length);
        let regions = std::mem::take(&mut self.mappings.regions);
        let mut done = Ok(0);
        for region in &regions {
            if region.start < end && start < region.start + region.length {
                let written = self.write_region(region, is_sync);
                done = done.and(written.map(|()| 0));
            }
        }
        self.mappings.regions = regions;
        done
    }

    /// Writes back the changes in the shared mappings of one file.
    pub(crate) fn write_back_of(&mut self, handle: &FileHandle) -> Outcome<()> {
        if !self.mappings.objects.contains_key(handle) {
            return Ok(());
        }
        let regions = std::mem::take(&mut self.mappings.regions);
        let mut concerned = regions.iter().filter(|it| it.of.identity.handle == *handle);
        let done = concerned.try_for_each(|region| self.write_region(region, false));
        self.mappings.regions = regions;
        done
    }

    fn write_region(&mut self, region: &Region, is_sync: bool) -> Outcome<()> {
        self.claim(&region.of, &region.object)?;
        let size = self.metadata_of(&region.of)?.size;
        let end = size.min(region.offset + region.length as u64);
        let writing = region.object.writing()?;
        let file = self.file(&region.of)?;
        for change in region.object.changes(region.offset, end) {
            region.of.times.take();
            self.write_aside(&file, change.offset, &change.now, Some(&region.of))?;
            region.object.note_base(change.offset, &change.now);
        }
        drop(writing);
        if is_sync { self.sync(&region.of).map(drop) } else { Ok(()) }
    }

    /// Releases the shared mappings that are entirely within a range.
    pub(crate) fn release_mappings(&mut self, start: usize, length: usize) {
        let end = start.saturating_add(length);
        let is_gone =
            |region: &Region| start <= region.start && region.start + region.length <= end;
        self.mappings.regions.retain(|region| !is_gone(region));
        let outside = |(at, length): (usize, usize)| {
            let before = (at, start.saturating_sub(at).min(length));
            let behind = (at + length).saturating_sub(end).min(length);
            [before, (at + length - behind, behind)].into_iter().filter(|(_, length)| *length > 0)
        };
        let copies = std::mem::take(&mut self.mappings.copies);
        self.mappings.copies = copies
            .into_iter()
            .flat_map(|copy| match copy.0 >= end || copy.0 + copy.1 <= start {
                true => vec![copy],
                false => outside(copy).collect(),
            })
            .collect();
        if self.mappings.objects.is_empty() {
            return;
        }
        let Ok(_guard) = SharedObject::guard() else { return };
        self.mappings.objects.retain(|_, object| {
            // The table holds one reference. If it is the only one, no region uses the object.
            let is_used = Rc::strong_count(object) > 1;
            if !is_used {
                object.remove_if_last();
            }
            is_used
        });
    }
}

fn map(request: MmapRequest) -> Mapped {
    real!(mmap(
        request.address => *mut c_void,
        request.length => usize,
        request.protection => i32,
        request.flags => i32,
        request.number => RawFd,
        request.offset => i64,
    ) -> Mapped)
}

/// Unmaps memory.
///
/// # Safety
/// There are no references to this memory any more.
unsafe fn unmap(address: *mut c_void, length: usize) {
    real!(munmap(address => *mut c_void, length => usize) -> i32);
}

const MAP_TYPE: i32 = 0xf;
/// The minimum size in bytes of a mapping of the local file itself, which costs extra messages.
const ITSELF_MIN: usize = 256 << 10;
