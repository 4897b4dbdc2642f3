//! Registered memory, and the descriptors that name it.
//!
//! Invariant: a region is not given back while a call or an operation uses it, and memory that the
//! library has given out is there until its region is given back.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dafs_client::{Buffer, Memory};
use dafs_share::{Entered, Held};

use crate::check;
use crate::client::ClientObject;
use crate::failure::{Failure, Result, done};
use crate::handles;
use crate::types::{dap_client, dap_memory, dap_region};

/// Registered memory.
pub(crate) struct RegionObject {
    client: Arc<ClientObject>,
    buffer: Held<Buffer>,
    /// Its first byte.
    address: usize,
    length: usize,
    /// Set when nobody can reach the program's own memory any more.
    is_gone: Option<Arc<AtomicBool>>,
}

/// What the client holds for as long as it, or a transport, may use the program's memory.
struct Use(Arc<AtomicBool>);

impl Drop for Use {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Where bytes go to or come from.
pub(crate) struct Target {
    /// The first byte.
    pub pointer: *mut u8,
    pub length: usize,
    /// The region, and the first byte's place in it.
    pub region: Option<(Arc<RegionObject>, usize)>,
}

/// Registers memory of the program's own, which must stay as it is until the region is given
/// back: no transfer copies it then where a device can reach it, or the kernel. `client` may be
/// NULL.
///
/// Returns 0, or a negative error number: -EINVAL for no memory, -EIO for too many regions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_register(
    client: *mut dap_client,
    pointer: *mut c_void,
    length: usize,
    region: *mut *mut dap_region,
) -> c_int {
    done(|| {
        check::place(region, "region")?;
        let base = NonNull::new(pointer.cast::<u8>());
        let base = base.ok_or_else(|| Failure::new(libc::EFAULT, "pointer is NULL"))?;
        if length == 0 || base.addr().get().checked_add(length).is_none() {
            return Err(Failure::invalid(format!("no memory has {length} bytes there")));
        }
        let client = handles::client(client)?;
        let is_gone = Arc::new(AtomicBool::new(false));
        let owner = Box::new(Use(is_gone.clone()));
        // SAFETY: the program keeps the memory until the region is given back, which ends when
        // nothing uses it (`dap_deregister`). C has no references.
        let memory = unsafe { Memory::of_owner(base, length, owner) };
        // SAFETY: the buffer is held.
        let buffer =
            unsafe { client.within(|entered| Ok(entered.hold(entered.register_memory(memory)?)))? };
        let address = base.addr().get();
        let object = RegionObject { client, buffer, address, length, is_gone: Some(is_gone) };
        let handle = handles::insert(Arc::new(object))?;
        // SAFETY: the caller's promise.
        unsafe { check::put(region, handle, "region") }
    })
}

/// Gives out registered memory of `length` bytes, which a server on this host can map: nothing
/// is copied on the way. What is in it at first is left over from earlier use. It is gone when
/// its region is given back. `client` may be NULL.
///
/// Returns 0, or a negative error number: -EINVAL for no bytes, -EIO if there is no memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_allocate(
    client: *mut dap_client,
    length: usize,
    pointer: *mut *mut c_void,
    region: *mut *mut dap_region,
) -> c_int {
    done(|| {
        check::place(pointer, "pointer")?;
        check::place(region, "region")?;
        if length == 0 || length > isize::MAX as usize {
            return Err(Failure::invalid(format!("there is no memory of {length} bytes")));
        }
        let client = handles::client(client)?;
        // SAFETY: the buffer is held, and its address is a number.
        let (buffer, first) = unsafe {
            client.within(|entered| {
                let buffer = entered.allocate(length)?;
                let first = buffer.memory().pointer(0, length);
                Ok((entered.hold(buffer), first))
            })?
        };
        let address = first.expose_provenance();
        let object = RegionObject { client, buffer, address, length, is_gone: None };
        let handle = handles::insert(Arc::new(object))?;
        // SAFETY: the caller's promise.
        unsafe {
            check::put(pointer, first.cast(), "pointer")?;
            check::put(region, handle, "region")
        }
    })
}

/// Gives a region back: registered memory is the program's own again, and memory that the library
/// gave out is gone.
///
/// Returns 0, or a negative error number: -EBUSY while a call or an operation uses it, up to when
/// its completion is taken; -ETIMEDOUT if a server that was lost over a transfer might still reach
/// registered memory: the handle is gone then, and the memory must be left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_deregister(region: *mut dap_region) -> c_int {
    done(|| {
        let is_free = |object: &Arc<RegionObject>| match Arc::strong_count(object) {
            1 => Ok(()),
            _ => Err(Failure::new(libc::EBUSY, "operations under way use the region")),
        };
        let object = handles::remove_if::<RegionObject, _>(region, is_free)?;
        let (client, is_gone) = (object.client.clone(), object.is_gone.clone());
        drop(object);
        let Some(is_gone) = is_gone else { return Ok(()) };
        let look = || is_gone.load(Ordering::Acquire).then_some(());
        // SAFETY: nothing comes of it.
        let left = look().or(unsafe { client.shared.wait_until(Some(GOING_MAX), |_| look())? });
        left.ok_or_else(|| {
            let text = "a server that was lost might still reach the memory: leave it alone";
            Failure::new(libc::ETIMEDOUT, text)
        })
    })
}

impl RegionObject {
    /// The whole of it, for whoever is inside.
    pub fn buffer(&self, entered: &Entered<'_>) -> Buffer {
        self.buffer.get(entered).clone()
    }
}

/// Reads descriptors.
///
/// # Safety
/// There are `count` of them at `memory`, unless that is NULL.
pub(crate) unsafe fn targets(
    client: &Arc<ClientObject>,
    memory: *const dap_memory,
    count: usize,
    count_max: usize,
) -> Result<Vec<Target>> {
    // SAFETY: the caller's promise.
    let described = unsafe { check::array(memory, count, count_max, "memory")? };
    let numbered = described.iter().enumerate();
    numbered.map(|(place, memory)| target(client, memory, place)).collect()
}

/// Reads one descriptor.
pub(crate) fn target(
    client: &Arc<ClientObject>,
    memory: &dap_memory,
    place: usize,
) -> Result<Target> {
    let (pointer, length) = (memory.pointer.cast::<u8>(), memory.length);
    let wrong = |errno, what: &str| Failure::new(errno, format!("memory {place}: {what}"));
    if pointer.is_null() && length > 0 {
        return Err(wrong(libc::EFAULT, "the pointer is NULL"));
    }
    if length > isize::MAX as usize || pointer.addr().checked_add(length).is_none() {
        return Err(wrong(libc::EINVAL, "it does not end within memory"));
    }
    if memory.region.is_null() {
        return Ok(Target { pointer, length, region: None });
    }
    let region: Arc<RegionObject> = handles::get(memory.region)?;
    if !Arc::ptr_eq(&region.client, client) {
        return Err(wrong(libc::EINVAL, "the region is of another client"));
    }
    let start = pointer.addr().checked_sub(region.address);
    match start.filter(|start| *start <= region.length && length <= region.length - start) {
        Some(start) => Ok(Target { pointer, length, region: Some((region, start)) }),
        None => Err(wrong(libc::EINVAL, "it lies outside its region")),
    }
}

/// Part of a target for one request: registered memory, and where its bytes are to end up or
/// come from if that is somewhere else.
pub(crate) struct Piece {
    pub buffer: Buffer,
    /// Its first byte in the buffer.
    pub start: usize,
    pub length: usize,
    /// The program's memory that the buffer stands in for.
    pub own: Option<*mut u8>,
}

impl Piece {
    /// The part of `length` bytes at `start`, for whoever is inside.
    pub fn of(target: &Target, start: usize, length: usize, entered: &Entered<'_>) -> Result<Self> {
        match &target.region {
            Some((region, first)) => {
                Ok(Self { buffer: region.buffer(entered), start: first + start, length, own: None })
            }
            None => Ok(Self {
                buffer: entered.allocate(length)?,
                start: 0,
                length,
                own: Some(target.pointer.wrapping_add(start)),
            }),
        }
    }

    /// Takes over what is to be written.
    pub fn fill(&self) {
        if let Some(own) = self.own {
            let to = self.buffer.memory().pointer(self.start, self.length);
            // SAFETY: the caller of the function from C has promised so many bytes there, and
            // they are not the library's own, which `to` points to.
            unsafe { std::ptr::copy_nonoverlapping(own, to, self.length) };
        }
    }

    /// Gives out what was read.
    pub fn spill(&self, length: usize) {
        if let Some(own) = self.own {
            let length = length.min(self.length);
            let from = self.buffer.memory().pointer(self.start, length);
            // SAFETY: the caller of the function from C has promised so many bytes there, until
            // the call returns or the completion is taken, which is not before this.
            unsafe { std::ptr::copy_nonoverlapping(from, own, length) };
        }
    }
}

/// How long a region's end may take.
const GOING_MAX: Duration = Duration::from_secs(10);
