//! A connection manager's identifier and the channel that its events come by.
//!
//! Invariant: an identifier has its channel for itself, and both live as long as the [`Link`];
//! an event is copied out and acknowledged before anything else is done, so that destroying an
//! identifier never waits. What has the identifier's queue pair must be gone before the link.

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use super::VerbsUnavailable;
use super::library::Library;
use super::raw;

/// An identifier with its channel.
pub struct Link {
    pub library: Arc<Library>,
    id: NonNull<raw::CmId>,
    channel: Channel,
}

// SAFETY: the library's calls may be made from any thread; the identifier and its channel are
// this value's alone, so that no two threads are in them at once.
unsafe impl Send for Link {}

/// A channel of events.
struct Channel {
    library: Arc<Library>,
    channel: NonNull<raw::EventChannel>,
}

// SAFETY: as for `Link`.
unsafe impl Send for Channel {}

/// What happened to an identifier, copied out of the library's event.
pub struct CmEvent {
    pub event: c_int,
    pub status: c_int,
    pub private_data: Box<[u8]>,
    /// As this side may use them.
    pub responder_resources: u8,
    pub initiator_depth: u8,
    /// Of a connection request: the new identifier.
    pub request: Option<Request>,
}

/// The identifier of a connection request, which still has its listener's channel. Dropped, it
/// turns the peer away.
pub struct Request {
    library: Arc<Library>,
    id: NonNull<raw::CmId>,
}

/// What both sides are told when a connection is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// RDMA reads by the peer at once.
    pub responder_resources: u8,
    /// RDMA reads of ours at once.
    pub initiator_depth: u8,
}

impl Channel {
    fn new(library: &Arc<Library>) -> Result<Self, VerbsUnavailable> {
        // SAFETY: takes nothing.
        let channel = unsafe { (library.manager.rdma_create_event_channel)() };
        let unavailable = || VerbsUnavailable::NoDevice { source: io::Error::last_os_error() };
        let channel = NonNull::new(channel).ok_or_else(unavailable)?;
        let channel = Self { library: Arc::clone(library), channel };
        unblock(channel.fd()).map_err(|source| VerbsUnavailable::NoDevice { source })?;
        Ok(channel)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives as long as `self`, and its descriptor as long as it.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ref().fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: made by the library, destroyed once; whoever has identifiers on it destroys
        // them before (`Link::drop`).
        unsafe { (self.library.manager.rdma_destroy_event_channel)(self.channel.as_ptr()) }
    }
}

impl Link {
    pub fn new(library: &Arc<Library>) -> Result<Self, VerbsUnavailable> {
        let channel = Channel::new(library)?;
        let mut id = std::ptr::null_mut();
        // SAFETY: the channel is alive, and the place for the identifier lives for the call.
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

    /// Gives a request a channel of its own.
    pub fn of_request(request: Request) -> Result<Self, VerbsUnavailable> {
        let channel = Channel::new(&request.library)?;
        // SAFETY: both are alive, and no event of the identifier's is unacknowledged.
        let result = unsafe {
            let manager = &request.library.manager;
            (manager.rdma_migrate_id)(request.id.as_ptr(), channel.channel.as_ptr())
        };
        if result != 0 {
            return Err(VerbsUnavailable::NoDevice { source: io::Error::last_os_error() });
        }
        let library = Arc::clone(&request.library);
        let id = request.id;
        // It is the link's from here on.
        std::mem::forget(request);
        Ok(Self { library, id, channel })
    }

    /// What becomes readable when there is an event.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }

    pub fn id(&self) -> *mut raw::CmId {
        self.id.as_ptr()
    }

    /// The device's context, once an address has been resolved.
    pub fn context(&self) -> Option<NonNull<raw::Context>> {
        // SAFETY: the identifier lives as long as `self`; the library sets the field in calls
        // that this value's owner makes.
        NonNull::new(unsafe { self.id.as_ref().context })
    }

    /// Whether the device is of iWARP. False before it is known.
    pub fn is_iwarp(&self) -> bool {
        let Some(context) = self.context() else { return false };
        // SAFETY: the identifier keeps its device's context open; an open context has its
        // device.
        unsafe { (*context.as_ref().device).transport_type == raw::TRANSPORT_IWARP }
    }

    /// The next event, if there is one.
    pub fn event(&self) -> io::Result<Option<CmEvent>> {
        let mut event = std::ptr::null_mut();
        let manager = &self.library.manager;
        // SAFETY: the channel is alive, and the place for the event lives for the call.
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
        // SAFETY: the library has made the event, which lives until it is acknowledged.
        let copied = unsafe { self.copy(event.as_ref()) };
        // SAFETY: acknowledged once, and not used afterwards.
        unsafe { (manager.rdma_ack_cm_event)(event.as_ptr()) };
        Ok(Some(copied))
    }

    /// # Safety
    /// The event must be the library's, and not acknowledged.
    unsafe fn copy(&self, event: &raw::CmEvent) -> CmEvent {
        let parameters = &event.parameters;
        let length = usize::from(parameters.private_length);
        let has_data = matches!(
            event.event,
            raw::event::CONNECT_REQUEST | raw::event::ESTABLISHED | raw::event::REJECTED
        ) && !parameters.private_data.is_null();
        let private_data = if has_data {
            // SAFETY: of these events the library says where their private data is, and how
            // long; it lives as long as the event.
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

    pub fn bind(&self, address: &SocketAddr) -> io::Result<()> {
        let address = RawAddress::from(address);
        // SAFETY: the identifier is alive, and the address lives for the call.
        checked(unsafe { (self.library.manager.rdma_bind_addr)(self.id(), address.pointer()) })
    }

    pub fn listen(&self, backlog: c_int) -> io::Result<()> {
        // SAFETY: the identifier is alive.
        checked(unsafe { (self.library.manager.rdma_listen)(self.id(), backlog) })
    }

    /// The port that it is bound to.
    pub fn port(&self) -> u16 {
        // SAFETY: the identifier is alive.
        u16::from_be(unsafe { (self.library.manager.rdma_get_src_port)(self.id()) })
    }

    /// Where the other side is.
    pub fn peer(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier is alive; the library has filled the address in.
        address_of(unsafe { &self.id.as_ref().destination })
    }

    pub fn resolve_address(&self, address: &SocketAddr, timeout_ms: c_int) -> io::Result<()> {
        let to = RawAddress::from(address);
        let resolve = self.library.manager.rdma_resolve_addr;
        // SAFETY: the identifier is alive, and the address lives for the call; no source is
        // asked for.
        checked(unsafe { resolve(self.id(), std::ptr::null(), to.pointer(), timeout_ms) })
    }

    pub fn resolve_route(&self, timeout_ms: c_int) -> io::Result<()> {
        // SAFETY: the identifier is alive.
        checked(unsafe { (self.library.manager.rdma_resolve_route)(self.id(), timeout_ms) })
    }

    pub fn connect(&self, terms: Terms, private_data: &[u8]) -> io::Result<()> {
        let mut parameters = parameters(terms, private_data);
        // SAFETY: the identifier is alive and has a queue pair; the private data lives for the
        // call.
        checked(unsafe { (self.library.manager.rdma_connect)(self.id(), &raw mut parameters) })
    }

    pub fn accept(&self, terms: Terms, private_data: &[u8]) -> io::Result<()> {
        let mut parameters = parameters(terms, private_data);
        // SAFETY: as in `connect`.
        checked(unsafe { (self.library.manager.rdma_accept)(self.id(), &raw mut parameters) })
    }

    pub fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        let length = private_data.len().min(usize::from(u8::MAX)) as u8;
        let data = private_data.as_ptr().cast();
        // SAFETY: the identifier is alive; the private data lives for the call.
        checked(unsafe { (self.library.manager.rdma_reject)(self.id(), data, length) })
    }

    /// Tells the connection manager that the peer has been heard.
    pub fn note_established(&self) {
        let event = raw::COMMUNICATION_ESTABLISHED;
        // SAFETY: the identifier is alive. It fails where the peer's word came before.
        unsafe { (self.library.manager.rdma_notify)(self.id(), event) };
    }

    /// Ends the connection. What fails has ended already.
    pub fn disconnect(&self) {
        // SAFETY: the identifier is alive.
        unsafe { (self.library.manager.rdma_disconnect)(self.id()) };
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // SAFETY: destroyed once, before its channel; all its events are acknowledged, and its
        // queue pair is gone (this module's invariant).
        unsafe { (self.library.manager.rdma_destroy_id)(self.id.as_ptr()) };
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // SAFETY: destroyed once, while the listener's channel is alive: a request is held only
        // while its listener is served.
        unsafe { (self.library.manager.rdma_destroy_id)(self.id.as_ptr()) };
    }
}

/// A socket address as C has it.
struct RawAddress(libc::sockaddr_storage);

impl RawAddress {
    fn pointer(&self) -> *const libc::sockaddr {
        (&raw const self.0).cast()
    }
}

impl From<&SocketAddr> for RawAddress {
    fn from(address: &SocketAddr) -> Self {
        // SAFETY: integers alone, for which zeros are values.
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
                // SAFETY: the storage is larger than every address, and aligned for all.
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
            // SAFETY: the family says what the storage holds; it is large and aligned enough.
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

/// A message that finds no receive is not sent again: no peer that keeps to its credits sends
/// one, and another is to hear of it at once.
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

pub fn checked(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        // The libraries return -1 and set `errno`, or return the number itself.
        -1 => Err(io::Error::last_os_error()),
        number => Err(io::Error::from_raw_os_error(number.abs())),
    }
}

pub fn unblock(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)? | rustix::fs::OFlags::NONBLOCK;
    Ok(rustix::fs::fcntl_setfl(fd, flags)?)
}

/// Sendings of a packet that is not acknowledged: the most there is.
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
