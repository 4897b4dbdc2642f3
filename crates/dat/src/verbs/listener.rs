//! The identifier that listens for connection requests.
//!
//! Invariant: a request leaves the listener with its own channel, or is rejected.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use super::Connection;
use super::library::Library;
use super::link::Link;
use super::raw;
use crate::{Address, AddressError, ListenerId};

/// A listener for an address, on all devices that have the address.
pub(crate) struct Listener {
    /// The listening identifier; `None` once its device was removed, if the address belonged to
    /// that device only.
    link: Option<Link>,
    address: SocketAddr,
    turned_away: u64,
}

impl Listener {
    pub(crate) fn bind(address: SocketAddr) -> Result<Self, AddressError> {
        let failed = |source| AddressError::System { address: Address::Verbs(address), source };
        let link = Link::new(&Library::load()?)?;
        link.bind(&address).and_then(|()| link.listen(BACKLOG)).map_err(failed)?;
        let mut bound = address;
        bound.set_port(link.port());
        Ok(Self { link: Some(link), address: bound, turned_away: 0 })
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.link.as_ref().map(Link::fd)
    }

    pub(crate) fn address(&self) -> Address {
        Address::Verbs(self.address)
    }

    /// Returns the number of peers that were turned away because no descriptors were free.
    pub(crate) fn turned_away(&self) -> u64 {
        self.turned_away
    }

    pub(crate) fn accept(&mut self, id: ListenerId, deadline: Instant) -> Option<Connection> {
        for _ in 0..EVENTS_PER_TURN {
            let mut event = self.link.as_ref()?.event().ok()??;
            if event.event == raw::event::DEVICE_REMOVAL {
                // The kernel cannot remove a device until all identifiers on it are destroyed.
                self.link = None;
                return None;
            }
            let Some(request) = event.request.take() else { continue };
            match Link::of_request(request) {
                Ok(link) => {
                    return Some(Connection::inbound(link, id, &event, self.address, deadline));
                }
                Err(_) => self.turned_away += 1,
            }
        }
        None
    }
}

/// The maximum number of events processed per accepted connection, because peers may send any
/// number of requests that cannot be accepted.
const EVENTS_PER_TURN: usize = 16;
/// The number of connections that may wait to be accepted, which is the kernel's default limit
/// (`ucma`'s `max_backlog`).
const BACKLOG: i32 = 1024;
