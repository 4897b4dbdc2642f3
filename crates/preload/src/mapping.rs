//! Files mapped into memory: by copy.
//!
//! A private mapping, or one that is only read through a descriptor that cannot write, is
//! anonymous memory into which the file was read. A shared one that is written to is memory that
//! all processes of this user on this host share who map the same file so, and what has changed
//! in it goes into the file at `msync`, `munmap`, exit, and before this process reads the file.
//!
//! Invariants: shared memory of a file is filled from the file by the first who maps it, and is
//! gone with the last; what nobody has changed is not written; there is no such memory of a file
//! on two hosts at once, nor of two users or under two names of the server
//! ([`dafs_posix::locks::shared_memory`]).

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use dafs_client::{LockKind, LockOptions, ShareAccess};
use dafs_posix::locks;
use dafs_types::FileHandle;
use libc::c_void;
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};

use crate::config;
use crate::data::Piece;
use crate::errors::{self, Failure, Mapped, Outcome, fail};
use crate::page::Kind;
use crate::report::{Miss, missed};
use crate::state::{Description, State};
use crate::waiting::settle;

/// Whether this process has mapped files, so that ends of mappings are looked at.
static TRACKED: AtomicBool = AtomicBool::new(false);

/// Whether there may be such memory.
pub fn is_tracked() -> bool {
    TRACKED.load(Ordering::Relaxed)
}

/// A call of `mmap`.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// Where.
    pub address: *mut c_void,
    /// Octets.
    pub length: usize,
    /// How it may be used.
    pub protection: i32,
    /// Flags.
    pub flags: i32,
    /// Of which descriptor.
    pub number: RawFd,
    /// Where in the file.
    pub offset: i64,
}

/// All shared mappings of this process.
#[derive(Default)]
pub struct Mappings {
    regions: Vec<Region>,
    /// Copies: where they begin, and octets.
    copies: Vec<(usize, usize)>,
    objects: HashMap<FileHandle, Rc<SharedObject>>,
}

/// One of them.
struct Region {
    start: usize,
    length: usize,
    of: Rc<Description>,
    offset: u64,
    object: Rc<SharedObject>,
    /// What it held when it was last in the file.
    kept: Vec<u8>,
}

/// Memory that the processes of this user on this host share for a file.
struct SharedObject {
    file: File,
    path: String,
    /// The process that opened it: a child has the same lock on it, and does not remove it.
    process: u32,
    /// The open that the right to share it stands on.
    claim: RefCell<Option<Rc<dafs_client::File>>>,
}

impl Mappings {
    /// A file was cut or extended: behind its end is nothing any more.
    pub fn note_length(&mut self, handle: &FileHandle, length: u64) {
        let Some(object) = self.objects.get(handle) else { return };
        let Ok(held) = object.file.metadata().map(|metadata| metadata.size()) else { return };
        // Its pages stay, or whoever looks at them would be killed.
        let zeros = vec![0; held.saturating_sub(length) as usize];
        let _ = object.file.write_all_at(&zeros, length);
    }

    /// This process has written to a file: whoever has it mapped sees it.
    pub fn note_written(&mut self, of: &Description, offset: u64, bytes: &[u8]) {
        let Some(object) = self.objects.get(&of.identity.handle) else { return };
        let Ok(held) = object.file.metadata().map(|metadata| metadata.size()) else { return };
        let length = held.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let _ = object.file.write_all_at(&bytes[..length], offset);
        let end = offset + length as u64;
        for region in &mut self.regions {
            let (start, behind) = (region.offset, region.offset + region.length as u64);
            if region.of.identity.handle != of.identity.handle || start >= end || offset >= behind {
                continue;
            }
            let (from, to) = (offset.max(start), end.min(behind));
            let kept = &mut region.kept[(from - start) as usize..(to - start) as usize];
            kept.copy_from_slice(&bytes[(from - offset) as usize..(to - offset) as usize]);
        }
    }

    /// Whether any of the memory of a range stands for a file.
    pub fn has(&self, start: usize, length: usize) -> bool {
        let end = start.saturating_add(length);
        let meets = |at: usize, length: usize| at < end && start < at + length;
        self.regions.iter().any(|region| meets(region.start, region.length))
            || self.copies.iter().any(|(at, length)| meets(*at, *length))
    }

    /// In a child: the rights stand on the parent's connection.
    pub fn forget_claims(&mut self) {
        for object in self.objects.values() {
            std::mem::forget(object.claim.take());
        }
    }
}

impl State {
    /// Maps a file.
    pub fn map(&mut self, wish: Wish) -> Outcome<Mapped> {
        let of = self.get(wish.number)?;
        match of.identity.kind {
            Kind::File => {}
            Kind::Directory => return fail(libc::ENODEV),
            Kind::Object => return fail(libc::EBADF),
        }
        if wish.length == 0 || wish.offset < 0 || wish.offset % PAGE as i64 != 0 {
            return fail(libc::EINVAL);
        }
        if of.identity.access == libc::O_WRONLY {
            return fail(libc::EACCES);
        }
        let is_private = wish.flags & MAP_TYPE == libc::MAP_PRIVATE;
        let is_written = wish.protection & libc::PROT_WRITE != 0;
        match (is_private, is_written, of.identity.access) {
            (true, ..) => self.map_copy(&of, wish),
            (false, true, libc::O_RDONLY) => fail(libc::EACCES),
            (false, false, libc::O_RDONLY) => self.map_copy(&of, wish),
            (false, true, _) => self.map_shared(of, wish),
            // Whoever can write expects to see what is written, which a copy would not show;
            // programs do without such a mapping where a file system has none.
            (false, false, _) => {
                missed(Miss::Mapping);
                fail(libc::ENODEV)
            }
        }
    }

    fn map_copy(&mut self, of: &Description, wish: Wish) -> Outcome<Mapped> {
        let flags = wish.flags & !(MAP_TYPE | libc::MAP_POPULATE)
            | libc::MAP_PRIVATE
            | libc::MAP_ANONYMOUS;
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        let mapped = map(Wish { protection: writable, flags, number: -1, offset: 0, ..wish });
        if mapped.0 == libc::MAP_FAILED {
            return fail(errors::get());
        }
        let piece = Piece { start: mapped.0.cast(), length: wish.length };
        if let Err(failure) = self.read_at(of, &[piece], wish.offset) {
            // SAFETY: nobody knows of this memory yet.
            unsafe { unmap(mapped.0, wish.length) };
            return Err(failure);
        }
        if wish.protection != writable {
            // SAFETY: the same.
            unsafe { libc::mprotect(mapped.0, wish.length, wish.protection) };
        }
        self.mappings.copies.push((mapped.0 as usize, wish.length));
        TRACKED.store(true, Ordering::Relaxed);
        Ok(mapped)
    }

    fn map_shared(&mut self, of: Rc<Description>, wish: Wish) -> Outcome<Mapped> {
        let handle = of.identity.handle;
        let _guard = SharedObject::guard()?;
        if self.mappings.objects.is_empty() {
            SharedObject::sweep();
        }
        let object = match self.mappings.objects.get(&handle) {
            Some(object) => object.clone(),
            None => Rc::new(SharedObject::open(of.identity.mount, &handle)?),
        };
        self.claim(&of, &object)?;
        let needed = (wish.offset as u64 + wish.length as u64).next_multiple_of(PAGE as u64);
        self.fill(&of, &object, needed)?;
        let number = object.file.as_raw_fd();
        let mapped = map(Wish { number, ..wish });
        if mapped.0 == libc::MAP_FAILED {
            return fail(errors::get());
        }
        TRACKED.store(true, Ordering::Relaxed);
        self.mappings.objects.insert(handle, object.clone());
        let mut kept = vec![0; wish.length];
        let _ = object.file.read_exact_at(&mut kept, wish.offset as u64);
        let (start, length, offset) = (mapped.0 as usize, wish.length, wish.offset as u64);
        self.mappings.regions.push(Region { start, length, of, offset, object, kept });
        Ok(mapped)
    }

    /// Sees to it that nobody elsewhere has memory of this file, nor gets any.
    fn claim(&mut self, of: &Description, object: &SharedObject) -> Outcome<()> {
        if object.claim.borrow().is_some() {
            return Ok(());
        }
        let host = host_of(of.identity.mount);
        let file = self.open_again(of, ShareAccess::Both)?;
        let client = file.session().client();
        let own = locks::shared_memory(host);
        let options = LockOptions::default();
        let locking = file.try_lock_async(LockKind::Shared, own.offset, own.length, options);
        let mut is_free = settle(&client, locking)?.is_none();
        for other in locks::elsewhere(host) {
            let testing = file.test_lock_async(LockKind::Exclusive, other.offset, other.length);
            is_free = is_free && settle(&client, testing)?.is_none();
        }
        if is_free {
            *object.claim.borrow_mut() = Some(Rc::new(file));
            return Ok(());
        }
        missed(Miss::Elsewhere);
        let path = crate::places::shown(of.identity.mount, &of.identity.path);
        eprintln!("dafs: {path}: another host, user or name of the server shares its memory");
        fail(libc::EAGAIN)
    }

    /// Makes an object as long as it is needed; what is new of it is what the file holds.
    fn fill(&mut self, of: &Description, object: &SharedObject, needed: u64) -> Outcome<()> {
        let io = |_| Failure::Errno(libc::ENOMEM);
        let held = object.file.metadata().map_err(io)?.size();
        if needed <= held {
            return Ok(());
        }
        let mut bytes = vec![0; (needed - held) as usize];
        let piece = Piece { start: bytes.as_mut_ptr(), length: bytes.len() };
        let read = self.read_at(of, &[piece], held as i64)? as usize;
        // Memory that is not there when it is touched would be the program's end.
        let room = FallocateFlags::empty();
        rustix::fs::fallocate(&object.file, room, held, needed - held)
            .map_err(|error| Failure::Errno(error.raw_os_error()))?;
        object.file.write_all_at(&bytes[..read], held).map_err(io)
    }

    /// Writes what has changed in the shared mappings that overlap a range.
    pub fn write_back(&mut self, start: usize, length: usize, is_sync: bool) -> Outcome<i32> {
        let end = start.saturating_add(length);
        let mut regions = std::mem::take(&mut self.mappings.regions);
        let mut done = Ok(0);
        for region in &mut regions {
            if region.start < end && start < region.start + region.length {
                let written = self.write_region(region, is_sync);
                done = done.and(written.map(|()| 0));
            }
        }
        self.mappings.regions = regions;
        done
    }

    /// The same for one file.
    pub fn write_back_of(&mut self, handle: &FileHandle) -> Outcome<()> {
        if !self.mappings.objects.contains_key(handle) {
            return Ok(());
        }
        let mut regions = std::mem::take(&mut self.mappings.regions);
        let mut concerned = regions.iter_mut().filter(|it| it.of.identity.handle == *handle);
        let done = concerned.try_for_each(|region| self.write_region(region, false));
        self.mappings.regions = regions;
        done
    }

    fn write_region(&mut self, region: &mut Region, is_sync: bool) -> Outcome<()> {
        self.claim(&region.of, &region.object)?;
        let size = self.metadata_of(&region.of)?.size;
        let end = size.saturating_sub(region.offset).min(region.length as u64) as usize;
        let mut now = vec![0; region.length];
        let _ = region.object.file.read_exact_at(&mut now, region.offset);
        for at in (0..end).step_by(PAGE) {
            let behind = (at + PAGE).min(end);
            let Some((from, to)) = changed(&now[at..behind], &region.kept[at..behind]) else {
                continue;
            };
            let piece = Piece { start: now[at + from..].as_mut_ptr(), length: to - from };
            self.put(&region.of, &[piece], region.offset + (at + from) as u64)?;
        }
        region.kept = now;
        if is_sync { self.sync(&region.of).map(drop) } else { Ok(()) }
    }

    /// Lets the shared mappings go that lie in a range whole.
    pub fn let_go_of_mappings(&mut self, start: usize, length: usize) {
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
            // The table has it, and nobody else: no region is left.
            let is_used = Rc::strong_count(object) > 1;
            if !is_used {
                object.remove_if_last();
            }
            is_used
        });
    }
}

impl SharedObject {
    /// Makes or finds the memory of a file. Whoever finds that nobody uses it begins it anew.
    fn open(mount: usize, handle: &FileHandle) -> Outcome<Self> {
        let path = format!("{}-{:016x}-{}", stem(), server_of(mount), name_of(handle));
        let file = open_own(&path)?;
        let alone = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        if alone.is_ok() {
            file.set_len(0).map_err(|_| Failure::Errno(libc::ENOMEM))?;
        }
        let shared = rustix::fs::flock(&file, FlockOperation::LockShared);
        shared.map_err(|error| Failure::Errno(error.raw_os_error()))?;
        let (process, claim) = (std::process::id(), RefCell::new(None));
        Ok(Self { file, path, process, claim })
    }

    /// Held while somebody decides whether an object is used.
    fn guard() -> Outcome<File> {
        let file = open_own(&format!("{}.lock", stem()))?;
        let locked = rustix::fs::flock(&file, FlockOperation::LockExclusive);
        locked.map_err(|error| Failure::Errno(error.raw_os_error()))?;
        Ok(file)
    }

    /// Removes what this user's programs have left that were killed: nobody has a lock on it. The
    /// guard is held.
    fn sweep() {
        let own = format!("{}-", stem());
        for entry in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            let path = entry.path();
            let Some(text) = path.to_str().filter(|path| path.starts_with(&own)) else { continue };
            // A pipe is what its name in DAFS stands for, as long as that is there.
            if text.ends_with(".pipe") {
                continue;
            }
            let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let Ok(file) = rustix::fs::open(text, flags, Mode::empty()) else { continue };
            if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                let _ = rustix::fs::unlink(text);
            }
        }
    }

    fn remove_if_last(&self) {
        if self.process != std::process::id() {
            return;
        }
        let alone = rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive);
        if alone.is_ok() {
            let _ = rustix::fs::unlink(&*self.path);
        }
    }
}

/// A file of this user's alone; one that somebody else has put there is refused.
fn open_own(path: &str) -> Outcome<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let opened = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR);
    let opened = opened.map_err(|error| Failure::Errno(error.raw_os_error()))?;
    let number = rustix::io::fcntl_dupfd_cloexec(&opened, HIGH).unwrap_or(opened);
    let file = File::from(number);
    let own = rustix::process::geteuid().as_raw();
    match file.metadata() {
        Ok(metadata) if metadata.uid() == own => Ok(file),
        _ => fail(libc::EACCES),
    }
}

/// The first octet that differs, and the one behind the last that does.
fn changed(now: &[u8], kept: &[u8]) -> Option<(usize, usize)> {
    let differs = |(one, other): (&u8, &u8)| one != other;
    let first = now.iter().zip(kept).position(differs)?;
    let last = now.iter().zip(kept).rposition(differs)?;
    Some((first, last + 1))
}

/// A server by its name: who knows it by another shares no memory.
pub fn server_of(mount: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    config::get().mounts[mount].location.server.to_string().hash(&mut hasher);
    hasher.finish()
}

/// Those who share memory: this host (this `/dev/shm`, where there are several), this user, this
/// name of the server.
fn host_of(mount: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let memory = std::fs::metadata("/dev/shm").map(|it| (it.dev(), it.ino())).ok();
    (boot, memory, rustix::process::geteuid().as_raw(), server_of(mount)).hash(&mut hasher);
    hasher.finish()
}

/// What everything of this user's in memory begins with.
pub fn stem() -> String {
    format!("/dev/shm/dafs-{}", rustix::process::geteuid().as_raw())
}

/// A handle as text.
pub fn name_of(handle: &FileHandle) -> String {
    handle.0.iter().map(|octet| format!("{octet:02x}")).collect()
}

fn map(wish: Wish) -> Mapped {
    real!(mmap(
        wish.address => *mut c_void,
        wish.length => usize,
        wish.protection => i32,
        wish.flags => i32,
        wish.number => RawFd,
        wish.offset => i64,
    ) -> Mapped)
}

/// # Safety
/// Nothing refers to this memory any more.
unsafe fn unmap(address: *mut c_void, length: usize) {
    real!(munmap(address => *mut c_void, length => usize) -> i32);
}

const PAGE: usize = 4096;
const MAP_TYPE: i32 = 0xf;
/// Descriptors of shared memory are above those that programs look at.
const HIGH: RawFd = 512;
