//! Registered memory, and the descriptors that refer to it.
//!
//! Invariant: a region is not released while a call or an operation uses it. Memory allocated by
//! the library exists until its region is released.

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

/// A region of registered memory.
pub(crate) struct RegionObject {
    client: Arc<ClientObject>,
    buffer: Held<Buffer>,
    /// The address of the first byte of the region.
    address: usize,
    length: usize,
    /// Set to true when no server or transport can access the program's own memory any more.
    is_gone: Option<Arc<AtomicBool>>,
}

/// A token that the client owns as long as the client, or a transport, may use the program's
/// memory. Dropping the token sets the region's flag `is_gone`.
struct Use(Arc<AtomicBool>);

impl Drop for Use {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A piece of memory to transfer to or from.
pub(crate) struct Target {
    /// The address of the first byte.
    pub pointer: *mut u8,
    pub length: usize,
    /// The region, and the offset of the first byte in it.
    pub region: Option<(Arc<RegionObject>, usize)>,
}

/// Registers memory of the program. The program must not free the memory until the region is
/// released. If a device or the kernel can access the memory, transfers do not copy the data.
/// `client` may be NULL.
///
/// Returns 0, or a negative error number: -EINVAL for an impossible `length`, such as 0;
/// -ENOBUFS for too many regions.
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
        let is_possible = length > 0 && length <= isize::MAX as usize;
        if !is_possible || base.addr().get().checked_add(length).is_none() {
            return Err(Failure::invalid(format!(
                "there cannot be {length} bytes of memory at this address"
            )));
        }
        let client = handles::client(client)?;
        let is_gone = Arc::new(AtomicBool::new(false));
        let owner = Box::new(Use(is_gone.clone()));
        // SAFETY: the program keeps the memory until `dap_deregister` has returned, which waits
        // until nothing uses the memory. The C program has no Rust references to the memory.
        let memory = unsafe { Memory::of_owner(base, length, owner) };
        // SAFETY: the buffer is held.
        let buffer =
            unsafe { client.within(|entered| Ok(entered.hold(entered.register_memory(memory)?)))? };
        let address = base.addr().get();
        let object = RegionObject { client, buffer, address, length, is_gone: Some(is_gone) };
        let handle = handles::insert(Arc::new(object))?;
        // SAFETY: the caller guarantees that its pointers are valid.
        unsafe { check::put(region, handle, "region") }
    })
}

/// Allocates `length` bytes of registered memory. A server on this host can map the memory, so that
/// transfers copy nothing. The memory may contain data of earlier uses. It is freed when its region
/// is released. `client` may be NULL.
///
/// Returns 0, or a negative error number: -EINVAL if `length` is 0, -ENOMEM if there is no
/// memory.
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
            return Err(Failure::invalid(format!("cannot allocate {length} bytes of memory")));
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
        // SAFETY: the caller guarantees that its pointers are valid.
        unsafe {
            check::put(pointer, first.cast(), "pointer")?;
            check::put(region, handle, "region")
        }
    })
}

/// Releases a region. Registered memory then belongs to the program alone again, and memory that
/// the library allocated is freed.
///
/// Returns 0, or a negative error number: -EBUSY while a call uses the region, or an operation
/// whose completion was not returned; -ETIMEDOUT if a server that was lost during a transfer might
/// still access registered memory. After -ETIMEDOUT the handle is invalid, and the memory must not
/// be reused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_deregister(region: *mut dap_region) -> c_int {
    done(|| {
        let is_free = |object: &Arc<RegionObject>| match Arc::strong_count(object) {
            1 => Ok(()),
            _ => Err(Failure::new(libc::EBUSY, "operations in flight use the region")),
        };
        let object = handles::remove_if::<RegionObject, _>(region, is_free)?;
        let (client, is_gone) = (object.client.clone(), object.is_gone.clone());
        drop(object);
        let Some(is_gone) = is_gone else { return Ok(()) };
        let look = || is_gone.load(Ordering::Acquire).then_some(());
        // SAFETY: no client object leaves the closure.
        let left = look().or(unsafe { client.shared.wait_until(Some(GOING_MAX), |_| look())? });
        left.ok_or_else(|| {
            let text = "a server that was lost might still access the memory: do not reuse it";
            Failure::new(libc::ETIMEDOUT, text)
        })
    })
}

impl RegionObject {
    /// Returns the region's buffer. The caller holds the client's lock.
    pub(crate) fn buffer(&self, entered: &Entered<'_>) -> Buffer {
        self.buffer.get(entered).clone()
    }
}

/// Checks and converts memory descriptors.
///
/// # Safety
/// `memory` is NULL or points to `count` descriptors.
pub(crate) unsafe fn targets(
    client: &Arc<ClientObject>,
    memory: *const dap_memory,
    count: usize,
    count_max: usize,
) -> Result<Vec<Target>> {
    // SAFETY: the caller guarantees that its pointers are valid.
    let described = unsafe { check::array(memory, count, count_max, "memory")? };
    let numbered = described.iter().enumerate();
    numbered.map(|(place, memory)| target(client, memory, place)).collect()
}

/// Checks and converts one memory descriptor.
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
        return Err(wrong(libc::EINVAL, "the range exceeds the address space"));
    }
    if memory.region.is_null() {
        return Ok(Target { pointer, length, region: None });
    }
    let region: Arc<RegionObject> = handles::get(memory.region)?;
    if !Arc::ptr_eq(&region.client, client) {
        return Err(wrong(libc::EINVAL, "the region belongs to another client"));
    }
    let start = pointer.addr().checked_sub(region.address);
    match start.filter(|start| *start <= region.length && length <= region.length - start) {
        Some(start) => Ok(Target { pointer, length, region: Some((region, start)) }),
        None => Err(wrong(libc::EINVAL, "the range is not within its region")),
    }
}

/// The memory for one request: registered memory, and the program's own memory to copy from or to,
/// if that is not registered.
pub(crate) struct Piece {
    pub buffer: Buffer,
    /// The offset in the buffer of the first byte to transfer.
    pub start: usize,
    pub length: usize,
    /// The program's memory, if the buffer is a copy of it.
    pub own: Option<*mut u8>,
}

impl Piece {
    /// Returns the part of a target with `length` bytes from `start`. The caller holds the client's
    /// lock.
    pub(crate) fn of(
        target: &Target,
        start: usize,
        length: usize,
        entered: &Entered<'_>,
    ) -> Result<Self> {
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

    /// Copies the data to be written into the buffer.
    pub(crate) fn fill(&self) {
        if let Some(own) = self.own {
            let to = self.buffer.memory().pointer(self.start, self.length);
            // SAFETY: the C caller guarantees this many bytes at `own`. `to` points to the
            // library's memory, which does not overlap them.
            unsafe { std::ptr::copy_nonoverlapping(own, to, self.length) };
        }
    }

    /// Copies the data that was read out of the buffer.
    pub(crate) fn copy_out(&self, length: usize) {
        if let Some(own) = self.own {
            let length = length.min(self.length);
            let from = self.buffer.memory().pointer(self.start, length);
            // SAFETY: the C caller guarantees this many bytes at `own` until the call returns or
            // the completion is returned, which happens later.
            unsafe { std::ptr::copy_nonoverlapping(from, own, length) };
        }
    }
}

/// The maximum time that the release of a region may take.
const GOING_MAX: Duration = Duration::from_secs(10);
