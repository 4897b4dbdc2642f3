//! Connects and accepts in progress: their deadlines, their number, and the memory they occupy.
//!
//! Invariant: the queue is in the order of the deadlines, because all have the same timeout. A
//! connection accepted by another interface is inserted at the position of its deadline.
//!
//! The peers of these connections are not authenticated yet. If there is not enough room for all
//! connections, the interface closes the oldest connection of the user or host that has most
//! connections. Users and hosts with fewer connections can still connect.

use std::collections::BTreeMap;
use std::time::Instant;

use super::{Interface, Listener};
use crate::connection::{Interest, Token};
use crate::{BreakReason, Cause, EndpointId, Holder, disposal};

impl<E> Interface<E> {
    /// Releases one connection that has not sent a request, so that a peer that opens connections
    /// and sends nothing cannot exclude other peers.
    pub(super) fn make_room(&mut self) {
        if let Some(idle) = self.first_of_most(|connection| usize::from(!connection.has_asked())) {
            self.release(idle);
        }
    }

    /// Finds the user or host whose unfinished connections have the largest total weight, and
    /// returns the oldest of these connections. Returns `None` if all weights are zero.
    fn first_of_most(
        &mut self,
        weight: impl Fn(&dyn crate::connection::Connection) -> usize,
    ) -> Option<EndpointId> {
        // Closed connections stay in the queue until the connection at the front reaches its
        // deadline. A peer that connects and closes quickly would leave very many, and each call
        // would have to scan all of them.
        if self.unfinished.len() > 2 * self.live {
            let unfinished = std::mem::take(&mut self.unfinished);
            self.unfinished = unfinished.into_iter().filter(|it| self.is_unfinished(*it)).collect();
        }
        let mut holders: BTreeMap<Holder, (usize, EndpointId)> = BTreeMap::new();
        let mut most: Option<(usize, Holder)> = None;
        for endpoint in &self.unfinished {
            let Some(connection) = self.connection_of(*endpoint) else { continue };
            let weight = weight(connection);
            if weight == 0 {
                continue;
            }
            let holder = connection.holder();
            let (sum, _) = holders.entry(holder).or_insert((0, *endpoint));
            *sum += weight;
            let sum = *sum;
            if most.is_none_or(|(most, _)| sum > most) {
                most = Some((sum, holder));
            }
        }
        most.and_then(|(_, holder)| holders.get(&holder)).map(|(_, first)| *first)
    }

    /// Records the number of bytes that a connection occupies before it is established.
    pub(super) fn note_held(&mut self, index: u32, bytes: usize) {
        let slot = &mut self.slots[index as usize];
        let before = std::mem::replace(&mut slot.held_bytes, bytes);
        self.unfinished_bytes = self.unfinished_bytes - before + bytes;
    }

    /// Breaks connections until the unestablished ones occupy no more memory than the limit.
    pub(super) fn bound_unfinished(&mut self) {
        while self.unfinished_bytes > self.config.unfinished_bytes_max
            && let Some(first) =
                self.first_of_most(|connection| match connection.is_established() {
                    true => 0,
                    false => connection.held_bytes(),
                })
        {
            let what = "connections that are not established occupy too much memory";
            self.break_endpoint(first, BreakReason::System(what.into()));
        }
    }

    /// Returns true if a listener must not accept now, because too many values from peers still
    /// wait to be closed. In that case, also stops watching the listener.
    pub(super) fn must_pause(&mut self, index: u32) -> bool {
        let Some(Some(listener @ Listener::Shm(_))) = self.listeners.get(index as usize) else {
            return false;
        };
        if !disposal::is_behind() {
            return false;
        }
        if let Some(fd) = listener.fd()
            && self.poller.remove(fd).is_ok()
        {
            self.resting.push(index);
        }
        true
    }

    /// Watches the paused listeners again, if enough of the values from peers have been closed.
    pub(super) fn end_rest(&mut self) {
        if self.resting.is_empty() || disposal::is_behind() {
            return;
        }
        for index in std::mem::take(&mut self.resting) {
            if let Some(Some(listener)) = self.listeners.get(index as usize)
                && let Some(fd) = listener.fd()
                && self.poller.add(fd, Token::Listener(index), Interest::Read).is_err()
            {
                self.resting.push(index);
            }
        }
    }

    pub(super) fn first_deadline(&self) -> Option<Instant> {
        let waiting = |endpoint: &EndpointId| self.connection_of(*endpoint)?.deadline();
        let first = self.unfinished.iter().find_map(waiting);
        first.into_iter().chain(self.given_until).min()
    }

    /// Inserts a connection into the queue after all connections with earlier deadlines. That is
    /// the end of the queue, unless another interface accepted the connection before later ones
    /// were added.
    pub(super) fn note_unfinished(&mut self, endpoint: EndpointId) {
        let deadline = |endpoint| self.connection_of(endpoint).and_then(|it| it.deadline());
        let (own, others) = (deadline(endpoint), self.unfinished.iter().rev());
        let later = others.take_while(|other| own.is_some() && deadline(**other) > own).count();
        self.unfinished.insert(self.unfinished.len() - later, endpoint);
    }

    /// Removes finished connections from the front of the queue. Finished connections after an
    /// unfinished one stay until its deadline, at no cost.
    pub(super) fn forget_finished(&mut self) {
        while let Some(front) = self.unfinished.front()
            && !self.is_unfinished(*front)
        {
            self.unfinished.pop_front();
        }
    }

    /// Returns true if a connect or an accept is in progress. Always false for connections on a
    /// simulated network, which has its own clock, because they have no deadline.
    pub(super) fn is_unfinished(&self, endpoint: EndpointId) -> bool {
        self.connection_of(endpoint).is_some_and(|connection| {
            connection.deadline().is_some()
                || (self.config.sim.is_some() && !connection.is_established())
        })
    }

    pub(super) fn expire(&mut self) {
        if self.unfinished.is_empty() && self.given_until.is_none() {
            return;
        }
        let now = Instant::now();
        self.take_back_given(now);
        loop {
            self.forget_finished();
            let Some(front) = self.unfinished.front().copied() else { return };
            let deadline = self.connection_of(front).and_then(|c| c.deadline());
            if deadline.is_none_or(|deadline| now < deadline) {
                return;
            }
            let error = rustix::io::Errno::TIMEDOUT.into();
            let reason = BreakReason::Unreachable(Cause::new("timed out while connecting", error));
            self.break_endpoint(front, reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr, TcpStream};

    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

    use crate::{Address, Interface, InterfaceConfig};

    fn connect_from(last: u8, to: SocketAddr) -> TcpStream {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0))).unwrap();
        connect(&socket, &to).unwrap();
        TcpStream::from(socket)
    }

    #[test]
    fn connections_that_are_gone_are_not_looked_through_behind_an_idle_one() {
        const ROOM: usize = 4;
        let config = InterfaceConfig { endpoints_max: ROOM, ..InterfaceConfig::default() };
        let mut interface = Interface::new(config).unwrap();
        let listener = interface.listen(&Address::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let Some(Address::Tcp(to)) = interface.listener_address(listener) else { panic!() };
        let _idle = connect_from(2, to);
        interface.poll();
        let mut silent = Vec::new();
        for _ in 0..20 * ROOM {
            silent.push(connect_from(3, to));
            interface.poll();
        }
        assert_eq!(interface.endpoint_count(), ROOM);
        assert!(interface.unfinished.len() <= 2 * ROOM + 2, "{}", interface.unfinished.len());
    }
}
