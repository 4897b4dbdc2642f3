//! Identifiers for connections of other transports, so that their owner can keep all connections in
//! one table.

use std::net::IpAddr;

use super::{LinkId, Records, count_down, network_of};

impl Records {
    /// Returns an identifier for a connection that this value does not serve, which counts like one
    /// of its own. Returns `None` if the peer's address may have no more connections. The caller
    /// must give it back by [`Records::release`].
    pub fn reserve(&mut self, peer: IpAddr) -> Option<LinkId> {
        if !self.has_room_for(peer) {
            return None;
        }
        self.count += 1;
        *self.addresses.entry(network_of(peer)).or_default() += 1;
        Some(self.new_link())
    }

    /// Takes back an identifier that [`Records::reserve`] has returned for this address.
    pub fn release(&mut self, link: LinkId, peer: IpAddr) {
        count_down(&mut self.addresses, network_of(peer));
        self.free.push(link.index() as u32);
        self.count -= 1;
    }
}
