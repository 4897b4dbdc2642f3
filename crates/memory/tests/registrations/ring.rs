//! A device for tests: the kernel's io_uring. The pages of its fixed buffers are pinned when they
//! are registered, as with an RDMA device.
//!
//! Invariant: only one request is in flight at a time, and it is complete when its call returns.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// The device.
pub(crate) struct Device(Arc<Mutex<Ring>>);

/// Memory registered with the device.
pub(crate) struct Registered {
    ring: Arc<Mutex<Ring>>,
    index: u16,
}

struct Ring {
    file: OwnedFd,
    rings: *mut u8,
    requests: *mut Request,
    offsets: Parameters,
    free: Vec<u16>,
}

// SAFETY: the pointers refer to memory shared with the kernel, and are used under a lock.
unsafe impl Send for Ring {}

impl Device {
    /// Creates a device, or returns why the kernel has none.
    pub(crate) fn new() -> io::Result<Self> {
        let mut offsets = Parameters::default();
        // SAFETY: io_uring_setup accesses one `struct io_uring_params`.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 8, &raw mut offsets) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just created this descriptor, so it has no other owner.
        let file = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let map = |at: i64| {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let (null, fd) = (std::ptr::null_mut(), file.as_raw_fd());
            // SAFETY: this maps new memory at an address that the kernel chooses.
            let mapped = unsafe { libc::mmap(null, MAPPED, rights, libc::MAP_SHARED, fd, at) };
            if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(mapped) }
        };
        let (rings, requests) = (map(0)?.cast(), map(0x1000_0000)?.cast());
        let table = Table { count: SLOTS.into(), flags: 1, ..Table::default() };
        let ring = Ring { file, rings, requests, offsets, free: (0..SLOTS).collect() };
        ring.register(15, &table)?;
        Ok(Self(Arc::new(Mutex::new(ring))))
    }

    /// Registers memory.
    pub(crate) fn register(&self, address: usize, length: usize) -> io::Result<Registered> {
        let mut ring = self.0.lock().unwrap();
        let index = ring.free.pop().ok_or(io::Error::from_raw_os_error(libc::ENOMEM))?;
        if let Err(error) = ring.place(index, address, length) {
            ring.free.push(index);
            return Err(error);
        }
        Ok(Registered { ring: Arc::clone(&self.0), index })
    }
}

impl Registered {
    /// Makes the device read the start of a file into the memory, or write the memory to it.
    pub(crate) fn transfer(&self, file: &File, address: usize, length: usize, is_read: bool) {
        let opcode = if is_read { 4 } else { 5 };
        let moved = self.ring.lock().unwrap().request(opcode, file, address, length, self.index);
        assert_eq!(moved, length as i32, "the device moved something else");
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut ring = self.ring.lock().unwrap();
        ring.place(self.index, 0, 0).unwrap();
        ring.free.push(self.index);
    }
}

impl Ring {
    fn register<T>(&self, what: u32, argument: &T) -> io::Result<()> {
        let (fd, size) = (self.file.as_raw_fd(), size_of::<T>());
        // SAFETY: the callers' operations read one `T` and the live memory that it points to.
        let result = unsafe {
            libc::syscall(libc::SYS_io_uring_register, fd, what, std::ptr::from_ref(argument), size)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn place(&self, index: u16, address: usize, length: usize) -> io::Result<()> {
        let range = [address as u64, length as u64];
        let data = range.as_ptr() as u64;
        self.register(16, &Update { offset: index.into(), data, count: 1, ..Update::default() })
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: the kernel has given these offsets of words inside the mapping.
        unsafe { &*self.rings.add(offset as usize).cast() }
    }

    fn request(&mut self, opcode: u8, file: &File, address: usize, length: usize, at: u16) -> i32 {
        let fd = file.as_raw_fd();
        let (address, length) = (address as u64, length as u32);
        let request = Request { opcode, fd, address, length, buffer: at, ..Request::default() };
        let (submission, completion) = (&self.offsets.submission, &self.offsets.completion);
        let tail = self.word(submission[1]).load(Ordering::Relaxed);
        let slot = tail & self.word(submission[2]).load(Ordering::Relaxed);
        // SAFETY: the slot is inside the mapping, and the kernel reads it only when told to.
        unsafe { self.requests.add(slot as usize).write(request) };
        self.word(submission[6] + 4 * slot).store(slot, Ordering::Relaxed);
        self.word(submission[1]).store(tail + 1, Ordering::Release);
        loop {
            let head = self.word(completion[0]).load(Ordering::Relaxed);
            if head != self.word(completion[1]).load(Ordering::Acquire) {
                let slot = head & self.word(completion[2]).load(Ordering::Relaxed);
                let result = self.word(completion[5] + 16 * slot + 8).load(Ordering::Relaxed);
                self.word(completion[0]).store(head + 1, Ordering::Release);
                return result as i32;
            }
            let (fd, nothing) = (self.file.as_raw_fd(), std::ptr::null_mut::<u8>());
            // SAFETY: the arguments are numbers. The kernel reads the request written above.
            unsafe { libc::syscall(libc::SYS_io_uring_enter, fd, 1, 1, 1, nothing, 0) };
        }
    }
}

/// The layout of the C `struct io_uring_params`, of whose offsets the first eight words are used.
#[repr(C)]
#[derive(Default)]
struct Parameters {
    numbers: [u32; 10],
    submission: [u32; 10],
    completion: [u32; 10],
}

/// The layout of the C `struct io_uring_rsrc_register`.
#[repr(C)]
#[derive(Default)]
struct Table {
    count: u32,
    flags: u32,
    rest: [u64; 3],
}

/// The layout of the C `struct io_uring_rsrc_update2`.
#[repr(C)]
#[derive(Default)]
struct Update {
    offset: u32,
    reserved: u32,
    data: u64,
    tags: u64,
    count: u32,
    reserved_too: u32,
}

/// The layout of the C `struct io_uring_sqe`.
#[repr(C)]
#[derive(Default)]
struct Request {
    opcode: u8,
    flags: u8,
    priority: u16,
    fd: i32,
    offset: u64,
    address: u64,
    length: u32,
    options: u32,
    context: u64,
    buffer: u16,
    rest: [u16; 11],
}

const _: () = assert!(size_of::<Request>() == 64 && size_of::<Parameters>() == 120);

/// The number of bytes mapped of each ring.
const MAPPED: usize = 4096;
const SLOTS: u16 = 64;
