//! One connection that carries records.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;

use super::inbox::Inbox;
use super::input::{Input, Sink};
use super::outgoing::Outgoing;
use super::{LinkId, RecordEvent, SCRATCH_BYTES};

/// An open connection.
pub(super) struct Link {
    pub id: LinkId,
    pub address: IpAddr,
    socket: OwnedFd,
    input: Input,
    pub inbox: Inbox,
    /// True if the connection is in the list of connections that take turns with their records.
    pub is_ready: bool,
    /// The reason why the connection ends when all records are handled.
    ending: Option<&'static str>,
    /// The time since which a record is incomplete; `None` if no part of a record has arrived, or
    /// if the connection was not read all the time.
    pub incomplete_since: Option<Instant>,
    pub outgoing: Outgoing,
    /// True if the connection is in the list of connections with pending replies.
    pub is_unflushed: bool,
    pub is_paused: bool,
    /// The time at which replies have become pending, moved on by the time that the bytes sent
    /// since then take at [`BYTES_PER_SECOND_MIN`]; `None` if no reply is pending.
    pub stalled_since: Option<Instant>,
    /// The events that the epoll instance reports for the socket.
    interest: epoll::EventFlags,
}

impl Link {
    pub(super) fn new(id: LinkId, socket: OwnedFd, address: IpAddr) -> Self {
        Self {
            id,
            address,
            socket,
            input: Input::default(),
            inbox: Inbox::default(),
            is_ready: false,
            ending: None,
            incomplete_since: None,
            outgoing: Outgoing::default(),
            is_unflushed: false,
            is_paused: false,
            stalled_since: None,
            interest: epoll::EventFlags::IN,
        }
    }

    /// Receives bytes that have arrived, up to a limit. If more bytes have arrived, epoll reports
    /// the socket again.
    pub(super) fn receive(
        &mut self,
        scratch: &mut [u8],
        buffers: &mut Vec<Vec<u8>>,
        bytes_max: usize,
    ) -> Result<(), &'static str> {
        for _ in 0..READS_IN_TURN {
            if !self.is_read() {
                return Ok(());
            }
            let mut sink = Sink { inbox: &mut self.inbox, buffers: &mut *buffers, bytes_max };
            let (count, room) = if let Some((record, room)) = self.input.direct(SCRATCH_BYTES / 2) {
                let before = record.len();
                let spare = &mut record.spare_capacity_mut()[..room];
                let read = rustix::io::read(&self.socket, spare).map(|(read, _)| read.len());
                let Some(count) = received(read)? else { return Ok(()) };
                // SAFETY: the kernel has written `count` bytes from `before` on, which lie within
                // the capacity.
                unsafe { record.set_len(before + count) };
                self.input.took(count, &mut sink);
                (count, room)
            } else {
                let read = rustix::io::read(&self.socket, &mut *scratch);
                let Some(count) = received(read)? else { return Ok(()) };
                self.input.take(&scratch[..count], &mut sink)?;
                (count, scratch.len())
            };
            if count < room {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Writes pending replies to the socket until the kernel accepts no more bytes.
    pub(super) fn transmit(
        &mut self,
        events: &mut VecDeque<RecordEvent>,
    ) -> Result<(), &'static str> {
        let before = self.outgoing.unsent();
        self.outgoing.write(self.socket.as_fd(), events)?;
        let left = self.outgoing.unsent();
        if left == 0 {
            self.stalled_since = None;
            return Ok(());
        }
        let now = Instant::now();
        let since = self.stalled_since.unwrap_or(now);
        let credit = Duration::from_secs(before.saturating_sub(left)) / BYTES_PER_SECOND_MIN;
        self.stalled_since = Some(now.min(since + credit));
        Ok(())
    }

    /// Returns true if the socket is read.
    fn is_read(&self) -> bool {
        !self.is_paused && !self.inbox.is_full() && self.ending.is_none()
    }

    /// Adds the connection to the list of connections that take turns, if it has records.
    pub(super) fn list_if_ready(&mut self, ready: &mut VecDeque<LinkId>) {
        if !self.is_ready && !self.is_paused && !self.inbox.is_empty() {
            self.is_ready = true;
            ready.push_back(self.id);
        }
    }

    /// Records that the connection has ended. It is closed when all of its records are handled.
    pub(super) fn end(&mut self, epoll: &OwnedFd, reason: &'static str) {
        self.ending = Some(reason);
        // Epoll would report the end again and again. If this call fails, the reports cost time
        // until the connection is closed, but nothing else.
        let _ = epoll::delete(epoll, &self.socket);
    }

    /// Returns true if the connection has ended.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Returns the reason why the connection must be closed now.
    pub(super) fn ending(&self) -> Option<&'static str> {
        self.ending.filter(|_| self.inbox.is_empty())
    }

    /// Updates the events that the epoll instance reports for the socket, and the time since which
    /// a record is incomplete. Must be called when the connection was read, written or paused.
    pub(super) fn update_interest(&mut self, epoll: &OwnedFd) {
        self.incomplete_since = match self.is_read() && self.input.is_incomplete() {
            true => self.incomplete_since.or_else(|| Some(Instant::now())),
            false => None,
        };
        if self.ending.is_some() {
            return;
        }
        let mut wanted = epoll::EventFlags::empty();
        wanted.set(epoll::EventFlags::IN, self.is_read());
        wanted.set(epoll::EventFlags::OUT, self.outgoing.unsent() > 0);
        if wanted != self.interest {
            let data = epoll::EventData::new_u64(self.id.to_bits());
            // `epoll_ctl` fails only if the kernel has no memory. The next call of this function
            // tries again.
            if epoll::modify(epoll, &self.socket, data, wanted).is_ok() {
                self.interest = wanted;
            }
        }
    }
}

/// Returns the number of bytes that a read returned; `None` if no bytes have arrived.
fn received(read: rustix::io::Result<usize>) -> Result<Option<usize>, &'static str> {
    match read {
        Ok(0) => Err("the peer closed the connection"),
        Ok(count) => Ok(Some(count)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(_) => Err("the connection broke"),
    }
}

/// The maximum number of reads from a connection before other connections are served again.
const READS_IN_TURN: usize = 16;
/// The rate in bytes per second at which a peer must read pending replies.
const BYTES_PER_SECOND_MIN: u32 = 64 << 10;
