//! A connection manager's identifier and the channel that delivers its events.
//!
//! Invariant: each identifier has its own channel, and both exist as long as the [`Link`]. An event
//! is copied and acknowledged before any other call, so that destroying an identifier never waits.
//! Users of the identifier's queue pair must be dropped before the link.

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use super::VerbsUnavailable;
use super::library::Library;
use super::raw;

/// An identifier of the RDMA connection manager, with the channel that delivers its events.
pub(crate) struct Link {
    pub library: Arc<Library>,
    id: NonNull<raw::CmId>,
    channel: Channel,
}

// SAFETY: any thread may make the library's calls. The identifier and its channel belong to this
// value alone, so no two threads use them at the same time.
unsafe impl Send for Link {}

/// A channel that delivers events.
struct Channel {
    library: Arc<Library>,
    channel: NonNull<raw::EventChannel>,
}

// SAFETY: as for `Link`.
unsafe impl Send for Channel {}

/// An event of an identifier, copied from the library's event.
pub(crate) struct CmEvent {
    pub event: c_int,
    pub status: c_int,
    pub private_data: Box<[u8]>,
    /// The maximum number of RDMA reads by the peer in flight, from this side's point of view.
    pub responder_resources: u8,
    /// The maximum number of RDMA reads by this side in flight.
    pub initiator_depth: u8,
    /// For a connection request: the new identifier.
    pub request: Option<Request>,
}

/// The identifier of a connection request, which still uses its listener's channel. Dropping it
/// rejects the peer.
pub(crate) struct Request {
    library: Arc<Library>,
    id: NonNull<raw::CmId>,
}

/// The terms of a connection that the two sides exchange when it is established.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The maximum number of RDMA reads by the peer in flight.
    pub responder_resources: u8,
    /// The maximum number of RDMA reads by this side in flight.
    pub initiator_depth: u8,
}

impl Channel {
    fn new(library: &Arc<Library>) -> Result<Self, VerbsUnavailable> {
        // SAFETY: the call takes no arguments.
        let channel = unsafe { (library.manager.rdma_create_event_channel)() };
        let unavailable = || VerbsUnavailable::NoDevice { source: io::Error::last_os_error() };
        let channel = NonNull::new(channel).ok_or_else(unavailable)?;
        let channel = Self { library: Arc::clone(library), channel };
        unblock(channel.fd()).map_err(|source| VerbsUnavailable::NoDevice { source })?;
        Ok(channel)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives as long as `self`, and its descriptor as long as the channel.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ref().fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: the library created the channel, and it is destroyed once. Its identifiers are
        // destroyed before (`Link::drop`).
        unsafe { (self.library.manager.rdma_destroy_event_channel)(self.channel.as_ptr()) }
    }
}

impl Link {
    pub(crate) fn new(library: &Arc<Library>) -> Result<Self, VerbsUnavailable> {
        let channel = Channel::new(library)?;
        let mut id = std::ptr::null_mut();
        // SAFETY: the channel is alive, and the variable for the identifier lives during the call.
        let result = unsafe {
            let space = raw::PORT_SPACE_TCP;
            let user = std::ptr::null_mut();
            (library.manager.rdma_create_id)(channel.channel.as_ptr(), &raw mut id, user, space)
        };
        let id = NonNull::new(id)
            .filter(|_| result == 0)
            .ok_or_else(|| VerbsUnavailable::NoDevice { source: io::Error::last_os_error() })?;
        Ok(Self { library: Arc::clone(library), id, channel })
    }

    /// Creates a link from a request: gives the identifier its own channel.
    pub(crate) fn of_request(request: Request) -> Result<Self, VerbsUnavailable> {
        let channel = Channel::new(&request.library)?;
        // SAFETY: both are alive, and every event of the identifier has been acknowledged.
        let result = unsafe {
            let manager = &request.library.manager;
            (manager.rdma_migrate_id)(request.id.as_ptr(), channel.channel.as_ptr())
        };
        if result != 0 {
            return Err(VerbsUnavailable::NoDevice { source: io::Error::last_os_error() });
        }
        let library = Arc::clone(&request.library);
        let id = request.id;
        // From now on the link owns the identifier.
        std::mem::forget(request);
        Ok(Self { library, id, channel })
    }

    /// Returns the descriptor that becomes readable when there is an event.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }

    pub(crate) fn id(&self) -> *mut raw::CmId {
        self.id.as_ptr()
    }

    /// Returns the device's context, once an address has been resolved.
    pub(crate) fn context(&self) -> Option<NonNull<raw::Context>> {
        // SAFETY: the identifier lives as long as `self`. The library sets the field only in calls
        // by the owner of this value.
        NonNull::new(unsafe { self.id.as_ref().context })
    }

    /// Returns true if the device uses iWARP. Returns false until the device is known.
    pub(crate) fn is_iwarp(&self) -> bool {
        let Some(context) = self.context() else { return false };
        // SAFETY: the identifier keeps its device's context open, and an open context has a
        // device.
        unsafe { (*context.as_ref().device).transport_type == raw::TRANSPORT_IWARP }
    }

    /// Returns the next event, if there is one.
    pub(crate) fn event(&self) -> io::Result<Option<CmEvent>> {
        let mut event = std::ptr::null_mut();
        let manager = &self.library.manager;
        // SAFETY: the channel is alive, and the variable for the event lives during the call.
        let result =
            unsafe { (manager.rdma_get_cm_event)(self.channel.channel.as_ptr(), &raw mut event) };
        if result != 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        let Some(event) = NonNull::<raw::CmEvent>::new(event) else { return Ok(None) };
        // SAFETY: the library created the event, which lives until it is acknowledged.
        let copied = unsafe { self.copy(event.as_ref()) };
        // SAFETY: the event is acknowledged once and not used afterwards.
        unsafe { (manager.rdma_ack_cm_event)(event.as_ptr()) };
        Ok(Some(copied))
    }

    /// Copies the parts of an event that this side uses.
    ///
    /// # Safety
    /// The event must come from the library and must not be acknowledged yet.
    unsafe fn copy(&self, event: &raw::CmEvent) -> CmEvent {
        let parameters = &event.parameters;
        let length = usize::from(parameters.private_length);
        let has_data = matches!(
            event.event,
            raw::event::CONNECT_REQUEST | raw::event::ESTABLISHED | raw::event::REJECTED
        ) && !parameters.private_data.is_null();
        let private_data = if has_data {
            // SAFETY: for these events the library states position and length of the private data,
            // which lives as long as the event.
            let data =
                unsafe { std::slice::from_raw_parts(parameters.private_data.cast::<u8>(), length) };
            data.into()
        } else {
            Box::default()
        };
        let is_request = event.event == raw::event::CONNECT_REQUEST;
        let id = NonNull::new(event.id).filter(|_| is_request);
        CmEvent {
            event: event.event,
            status: event.status,
            private_data,
            responder_resources: parameters.responder_resources,
            initiator_depth: parameters.initiator_depth,
            request: id.map(|id| Request { library: Arc::clone(&self.library), id }),
        }
    }

    pub(crate) fn bind(&self, address: &SocketAddr) -> io::Result<()> {
        let address = RawAddress::from(address);
        // SAFETY: the identifier is alive, and the address lives during the call.
        checked(unsafe { (self.library.manager.rdma_bind_addr)(self.id(), address.pointer()) })
    }

    pub(crate) fn listen(&self, backlog: c_int) -> io::Result<()> {
        // SAFETY: the identifier is alive.
        checked(unsafe { (self.library.manager.rdma_listen)(self.id(), backlog) })
    }

    /// Returns the port to which the identifier is bound.
    pub(crate) fn port(&self) -> u16 {
        // SAFETY: the identifier is alive.
        u16::from_be(unsafe { (self.library.manager.rdma_get_src_port)(self.id()) })
    }

    /// Returns the address of the peer.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier is alive, and the library has set the address.
        address_of(unsafe { &self.id.as_ref().destination })
    }

    pub(crate) fn resolve_address(
        &self,
        address: &SocketAddr,
        timeout_ms: c_int,
    ) -> io::Result<()> {
        let to = RawAddress::from(address);
        let resolve = self.library.manager.rdma_resolve_addr;
        // SAFETY: the identifier is alive, and the address lives during the call. No source address
        // is given.
        checked(unsafe { resolve(self.id(), std::ptr::null(), to.pointer(), timeout_ms) })
    }

    pub(crate) fn resolve_route(&self, timeout_ms: c_int) -> io::Result<()> {
        // SAFETY: the identifier is alive.
        checked(unsafe { (self.library.manager.rdma_resolve_route)(self.id(), timeout_ms) })
    }

    pub(crate) fn connect(&self, terms: Terms, private_data: &[u8]) -> io::Result<()> {
        let mut parameters = parameters(terms, private_data);
        // SAFETY: the identifier is alive and has a queue pair. The private data lives during the
        // call.
        checked(unsafe { (self.library.manager.rdma_connect)(self.id(), &raw mut parameters) })
    }

    pub(crate) fn accept(&self, terms: Terms, private_data: &[u8]) -> io::Result<()> {
        let mut parameters = parameters(terms, private_data);
        // SAFETY: as in `connect`.
        checked(unsafe { (self.library.manager.rdma_accept)(self.id(), &raw mut parameters) })
    }

    pub(crate) fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        let length = private_data.len().min(usize::from(u8::MAX)) as u8;
        let data = private_data.as_ptr().cast();
        // SAFETY: the identifier is alive, and the private data lives during the call.
        checked(unsafe { (self.library.manager.rdma_reject)(self.id(), data, length) })
    }

    /// Informs the connection manager that a message of the peer has arrived.
    pub(crate) fn note_established(&self) {
        let event = raw::COMMUNICATION_ESTABLISHED;
        // SAFETY: the identifier is alive. The call fails if the event has been reported already.
        unsafe { (self.library.manager.rdma_notify)(self.id(), event) };
    }

    /// Ends the connection. An error means that it has already ended.
    pub(crate) fn disconnect(&self) {
        // SAFETY: the identifier is alive.
        unsafe { (self.library.manager.rdma_disconnect)(self.id()) };
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // SAFETY: the identifier is destroyed once, before its channel. All its events are
        // acknowledged, and its queue pair is gone (this module's invariant).
        unsafe { (self.library.manager.rdma_destroy_id)(self.id.as_ptr()) };
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // SAFETY: the identifier is destroyed once, while the listener's channel is alive: a
        // request is held only while its listener is being served.
        unsafe { (self.library.manager.rdma_destroy_id)(self.id.as_ptr()) };
    }
}

/// A socket address in the representation of C.
struct RawAddress(libc::sockaddr_storage);

impl RawAddress {
    fn pointer(&self) -> *const libc::sockaddr {
        (&raw const self.0).cast()
    }
}

impl From<&SocketAddr> for RawAddress {
    fn from(address: &SocketAddr) -> Self {
        // SAFETY: the structure has only integers, for which zeros are valid.
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let place = &raw mut storage;
        match address {
            SocketAddr::V4(v4) => {
                let raw = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                };
                // SAFETY: the storage is larger than every address, and aligned for all of them.
                unsafe { place.cast::<libc::sockaddr_in>().write(raw) };
            }
            SocketAddr::V6(v6) => {
                let raw = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: as above.
                unsafe { place.cast::<libc::sockaddr_in6>().write(raw) };
            }
        }
        Self(storage)
    }
}

fn address_of(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let place = std::ptr::from_ref(storage);
    match c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says what the storage contains. Its size and alignment suffice.
            let raw = unsafe { place.cast::<libc::sockaddr_in>().read() };
            let ip = IpAddr::from(raw.sin_addr.s_addr.to_ne_bytes());
            let IpAddr::V4(ip) = ip else { return None };
            Some(SocketAddrV4::new(ip, u16::from_be(raw.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let raw = unsafe { place.cast::<libc::sockaddr_in6>().read() };
            let (ip, port) = (raw.sin6_addr.s6_addr.into(), u16::from_be(raw.sin6_port));
            Some(SocketAddrV6::new(ip, port, raw.sin6_flowinfo, raw.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Returns the connection parameters. A message that finds no posted receive is not retried: a peer
/// that respects its credits never sends one, and any other peer must get the error immediately.
fn parameters(terms: Terms, private_data: &[u8]) -> raw::ConnectionParameters {
    raw::ConnectionParameters {
        private_data: private_data.as_ptr().cast(),
        private_length: private_data.len().min(usize::from(u8::MAX)) as u8,
        responder_resources: terms.responder_resources,
        initiator_depth: terms.initiator_depth,
        flow_control: 1,
        retry_count: RETRIES,
        receiver_retry_count: 0,
        srq: 0,
        qp_number: 0,
    }
}

pub(super) fn checked(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        // The libraries return -1 and set `errno`, or return the error number itself.
        -1 => Err(io::Error::last_os_error()),
        number => Err(io::Error::from_raw_os_error(number.abs())),
    }
}

pub(super) fn unblock(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)? | rustix::fs::OFlags::NONBLOCK;
    Ok(rustix::fs::fcntl_setfl(fd, flags)?)
}

/// The number of times that an unacknowledged packet is sent again: the maximum that can be set.
const RETRIES: u8 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_their_raw_form() {
        let addresses = ["192.0.2.7:2050", "[2001:db8::1]:1", "[::]:0", "[fe80::1%3]:65535"];
        for text in addresses {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(address_of(&RawAddress::from(&address).0), Some(address));
        }
        assert_eq!(address_of(&RawAddress::from(&"[::1]:0".parse().unwrap()).0).unwrap().port(), 0);
    }
}
