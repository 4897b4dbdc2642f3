//! A connection's queue pair, and the completion queue of both its directions.
//!
//! Invariant: posted requests name memory that stays registered until the work has ended or the
//! queue pair is destroyed. The ledgers of [`super::Connection`] ensure this. Once a [`Queues`] is
//! stopped or dropped, the device no longer accesses the memory of posted work.

use std::ffi::c_int;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use super::link::{Link, checked, unblock};
use super::protection::ProtectionDomain;
use super::raw;

/// A queue pair with its completion queue.
pub(super) struct Queues {
    qp: NonNull<raw::Qp>,
    id: *mut raw::CmId,
    completions: Completions,
    post_send: raw::PostSend,
    post_receive: raw::PostReceive,
    /// The maximum number of sends, writes and reads in the queue.
    pub send_depth: usize,
    /// The maximum number of receives in the queue.
    pub receive_depth: usize,
    /// The maximum number of memory segments in one request.
    pub sge_max: usize,
    /// The maximum number of bytes that a request itself can contain.
    pub inline_bytes_max: u32,
    batch: Box<Batch>,
    pub protection: Arc<ProtectionDomain>,
}

// SAFETY: any thread may make the library's calls. The queue pair belongs to this value and to its
// link, which moves to the same thread.
unsafe impl Send for Queues {}

/// The completion queue and the channel that wakes this side.
struct Completions {
    protection: Arc<ProtectionDomain>,
    library: Arc<super::library::Library>,
    cq: NonNull<raw::Cq>,
    channel: NonNull<raw::CompletionChannel>,
    poll: raw::PollCq,
    request_notify: raw::RequestNotifyCq,
    /// The number of completion events that were taken and not acknowledged.
    unacknowledged: u32,
}

/// The requests that are about to be posted, and the segments that they name.
struct Batch {
    requests: [raw::SendRequest; BATCH],
    sges: [[raw::Sge; SGE_MAX]; BATCH],
}

/// One request for the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub opcode: c_int,
    pub flags: u32,
    pub immediate: u32,
    pub remote_address: u64,
    pub rkey: u32,
    pub sge_count: u8,
    pub sges: [raw::Sge; SGE_MAX],
}

/// The depths that the queues of a connection need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depths {
    pub sends: u32,
    pub receives: u32,
}

impl Queues {
    /// Creates the queue pair of a link whose device is known.
    pub(super) fn new(
        link: &Link,
        protection: &Arc<ProtectionDomain>,
        depths: Depths,
    ) -> io::Result<Self> {
        let device = &protection.device;
        let sends = depths.sends.min(SEND_DEPTH_MAX).min(device.requests_max).max(1);
        let receives = depths.receives.min(device.requests_max).max(1);
        let entries = (sends + receives).min(device.entries_max);
        let completions = Completions::new(link, protection, entries)?;
        let sge_max = device.sge_max.clamp(1, SGE_MAX as u32);
        let mut attributes = raw::QpAttributes {
            context: std::ptr::null_mut(),
            send_cq: completions.cq.as_ptr(),
            receive_cq: completions.cq.as_ptr(),
            srq: std::ptr::null_mut(),
            capacity: raw::QpCapacity {
                send_requests_max: sends,
                receive_requests_max: receives,
                send_sge_max: sge_max,
                receive_sge_max: sge_max,
                inline_bytes_max: 0,
            },
            kind: raw::QP_RELIABLE,
            signals_all: 0,
        };
        let inline_bytes_max = create(link, protection, &mut attributes)?;
        let context = protection.context();
        // SAFETY: the link has just got its queue pair, and an open context has its operations.
        let (qp, operations) = unsafe { ((*link.id()).qp, &context.as_ref().operations) };
        let qp = NonNull::new(qp).ok_or(io::ErrorKind::NotConnected)?;
        Ok(Self {
            qp,
            id: link.id(),
            completions,
            post_send: operations.post_send,
            post_receive: operations.post_receive,
            send_depth: sends as usize,
            receive_depth: receives as usize,
            sge_max: sge_max as usize,
            inline_bytes_max,
            batch: Box::new(Batch::new()),
            protection: Arc::clone(protection),
        })
    }

    /// Returns the descriptor that becomes readable for a completion after [`Queues::arm`].
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives as long as `self`, and its descriptor as long as the channel.
        unsafe { BorrowedFd::borrow_raw(self.completions.channel.as_ref().fd) }
    }

    /// Posts requests with their numbers, up to the end of the iterator, the batch size, or the
    /// first request that the device refuses. Returns the number of requests posted.
    pub(super) fn post<'r>(
        &mut self,
        requests: impl Iterator<Item = (u64, &'r Request)>,
    ) -> io::Result<usize> {
        let batch = &mut *self.batch;
        let mut count = 0;
        for ((id, request), (place, sges)) in
            requests.zip(batch.requests.iter_mut().zip(&mut batch.sges))
        {
            *sges = request.sges;
            place.id = id;
            place.sges = sges.as_mut_ptr();
            place.sge_count = c_int::from(request.sge_count);
            place.opcode = request.opcode;
            place.flags = request.flags;
            place.immediate = request.immediate;
            place.remote_address = request.remote_address;
            place.rkey = request.rkey;
            count += 1;
        }
        if count == 0 {
            return Ok(0);
        }
        let first = batch.requests.as_mut_ptr();
        for index in 0..count {
            let is_last = index + 1 == count;
            // Inside the array: `index + 1 < count <= BATCH`.
            let next = if is_last { std::ptr::null_mut() } else { first.wrapping_add(index + 1) };
            batch.requests[index].next = next;
        }
        let mut refused = std::ptr::null_mut();
        // SAFETY: the queue pair is alive. The requests and their lists live during the call, and
        // the memory they name as long as this module's invariant requires.
        checked(unsafe { (self.post_send)(self.qp.as_ptr(), first, &raw mut refused) })?;
        Ok(count)
    }

    /// Posts one receive with its number.
    #[inline]
    pub(super) fn post_receive(&mut self, id: u64, sges: &mut [raw::Sge]) -> io::Result<()> {
        let mut request = raw::ReceiveRequest {
            id,
            next: std::ptr::null_mut(),
            sges: sges.as_mut_ptr(),
            sge_count: sges.len().min(SGE_MAX) as c_int,
        };
        let mut refused = std::ptr::null_mut();
        // SAFETY: as in `post`.
        checked(unsafe {
            (self.post_receive)(self.qp.as_ptr(), &raw mut request, &raw mut refused)
        })
    }

    /// Removes completions from the queue into `into`. Returns their number.
    #[inline]
    pub(super) fn poll(&mut self, into: &mut [raw::WorkCompletion]) -> io::Result<usize> {
        let (cq, room) = (self.completions.cq.as_ptr(), into.len() as c_int);
        // SAFETY: the completion queue is alive, and `into` has room for this many.
        let count = unsafe { (self.completions.poll)(cq, room, into.as_mut_ptr()) };
        usize::try_from(count).map_err(|_| io::Error::other("the completion queue is broken"))
    }

    /// Requests a wakeup for the next completion.
    pub(super) fn arm(&mut self) -> io::Result<()> {
        let cq = self.completions.cq.as_ptr();
        // SAFETY: the completion queue is alive. The zero asks for every completion, not only for
        // solicited ones.
        checked(unsafe { (self.completions.request_notify)(cq, 0) })
    }

    /// Stops the queue pair: the device executes no more posted work and receives no more messages.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        let attributes = raw::QpState { state: raw::QP_ERROR, unused: [0; 63] };
        let modify = self.completions.library.verbs.ibv_modify_qp;
        // SAFETY: the queue pair is alive. The attributes are larger than the library's, and the
        // mask says that only the state is used.
        checked(unsafe { modify(self.qp.as_ptr(), &raw const attributes, raw::QP_STATE) })
    }

    /// Clears the wakeup that has arrived. A wakeup must be cleared before the next one is
    /// requested, because some providers distinguish wakeups by the number taken. There is no check
    /// for a second wakeup, which would cost another system call: the descriptor stays readable if
    /// there is one.
    pub(super) fn take_wake(&mut self) {
        let completions = &mut self.completions;
        let (mut cq, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        let get = completions.library.verbs.ibv_get_cq_event;
        let channel = completions.channel.as_ptr();
        // SAFETY: the channel is alive and non-blocking. Both variables live during the call.
        if unsafe { get(channel, &raw mut cq, &raw mut context) } == 0 {
            completions.unacknowledged += 1;
        }
        if completions.unacknowledged >= UNACKNOWLEDGED_MAX {
            completions.acknowledge();
        }
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        // SAFETY: the link, which outlives its queues, has this queue pair, which is destroyed
        // once.
        unsafe { (self.completions.library.manager.rdma_destroy_qp)(self.id) };
    }
}

/// Creates the queue pair with as much inline data as the device allows. Returns the number of
/// inline bytes.
fn create(
    link: &Link,
    protection: &ProtectionDomain,
    attributes: &mut raw::QpAttributes,
) -> io::Result<u32> {
    let wished = attributes.capacity;
    let mut failed = io::Error::from(io::ErrorKind::Unsupported);
    for inline_bytes_max in INLINE_BYTES {
        attributes.capacity = raw::QpCapacity { inline_bytes_max, ..wished };
        let pd = protection.raw();
        // SAFETY: the link is alive and has found the device of the protection domain. The
        // attributes live during the call.
        let result = unsafe {
            (link.library.manager.rdma_create_qp)(link.id(), pd, std::ptr::from_mut(attributes))
        };
        match checked(result) {
            Ok(()) => return Ok(inline_bytes_max),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

impl Completions {
    fn new(link: &Link, protection: &Arc<ProtectionDomain>, entries: u32) -> io::Result<Self> {
        let (verbs, context) = (&link.library.verbs, protection.context());
        // SAFETY: the context is open.
        let channel = unsafe { (verbs.ibv_create_comp_channel)(context.as_ptr()) };
        let channel = NonNull::new(channel).ok_or_else(io::Error::last_os_error)?;
        let user = std::ptr::null_mut();
        let entries = c_int::try_from(entries).unwrap_or(c_int::MAX);
        // SAFETY: the context is open, and the channel alive.
        let cq =
            unsafe { (verbs.ibv_create_cq)(context.as_ptr(), entries, user, channel.as_ptr(), 0) };
        let Some(cq) = NonNull::new(cq) else {
            let error = io::Error::last_os_error();
            // SAFETY: the channel is destroyed once, and nothing uses it.
            unsafe { (verbs.ibv_destroy_comp_channel)(channel.as_ptr()) };
            return Err(error);
        };
        // SAFETY: an open context has its operations.
        let operations = unsafe { &context.as_ref().operations };
        let made = Self {
            protection: Arc::clone(protection),
            library: Arc::clone(&link.library),
            cq,
            channel,
            poll: operations.poll_cq,
            request_notify: operations.request_notify_cq,
            unacknowledged: 0,
        };
        // SAFETY: the channel lives longer than this borrow.
        unblock(unsafe { BorrowedFd::borrow_raw(channel.as_ref().fd) })?;
        Ok(made)
    }

    fn acknowledge(&mut self) {
        let count = std::mem::take(&mut self.unacknowledged);
        // SAFETY: the completion queue is alive, and this many events of it were taken.
        unsafe { (self.library.verbs.ibv_ack_cq_events)(self.cq.as_ptr(), count) };
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        self.acknowledge();
        let verbs = &self.library.verbs;
        // SAFETY: each is destroyed once, the queue before its channel. The queue pair that reports
        // to the queue is gone. The protection domain, which keeps the device open, is alive.
        unsafe {
            (verbs.ibv_destroy_cq)(self.cq.as_ptr());
            (verbs.ibv_destroy_comp_channel)(self.channel.as_ptr());
        }
        let _ = &self.protection;
    }
}

impl Batch {
    const fn new() -> Self {
        let request = raw::SendRequest {
            id: 0,
            next: std::ptr::null_mut(),
            sges: std::ptr::null_mut(),
            sge_count: 0,
            opcode: 0,
            flags: 0,
            immediate: 0,
            remote_address: 0,
            rkey: 0,
            unused: [0; 5],
            unused_xrc: 0,
            unused_bind: [0; 6],
        };
        let sge = raw::Sge { address: 0, length: 0, lkey: 0 };
        Self { requests: [request; BATCH], sges: [[sge; SGE_MAX]; BATCH] }
    }
}

/// The maximum number of memory segments in one request.
pub(super) const SGE_MAX: usize = 6;
/// The maximum number of requests posted with one call, which rings the doorbell once.
pub(super) const BATCH: usize = 16;
/// The maximum number of requests that the device has at a time. Further requests wait in this
/// provider.
const SEND_DEPTH_MAX: u32 = 512;
/// The sizes in bytes of inline data in requests, tried in this order.
const INLINE_BYTES: [u32; 4] = [256, 128, 64, 0];
/// The number of wakeups that are acknowledged together, because each acknowledgement takes a lock.
const UNACKNOWLEDGED_MAX: u32 = 64;
