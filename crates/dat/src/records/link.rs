//! One connection that carries records.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::event::epoll;
use rustix::io::Errno;

use super::input::{Input, Sink};
use super::outgoing::Outgoing;
use super::{LinkId, RecordEvent, SCRATCH_BYTES};

/// An open connection.
pub(super) struct Link {
    pub id: LinkId,
    socket: OwnedFd,
    input: Input,
    pub outgoing: Outgoing,
    /// True if the connection is in the list of connections with pending replies.
    pub is_unflushed: bool,
    pub is_paused: bool,
    /// The time since which the kernel has accepted no bytes of a pending reply; `None` if no reply
    /// is pending.
    pub stalled_since: Option<Instant>,
    /// The events that the epoll instance reports for the socket.
    interest: epoll::EventFlags,
}

impl Link {
    pub(super) fn new(id: LinkId, socket: OwnedFd) -> Self {
        Self {
            id,
            socket,
            input: Input::default(),
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
        sink: &mut Sink<'_>,
    ) -> Result<(), &'static str> {
        for _ in 0..READS_IN_TURN {
            if self.is_paused {
                return Ok(());
            }
            let (count, room) = if let Some((record, room)) = self.input.direct(SCRATCH_BYTES / 2) {
                let before = record.len();
                let spare = &mut record.spare_capacity_mut()[..room];
                let read = rustix::io::read(&self.socket, spare).map(|(read, _)| read.len());
                let Some(count) = received(read)? else { return Ok(()) };
                // SAFETY: the kernel has written `count` bytes from `before` on, which lie within
                // the capacity.
                unsafe { record.set_len(before + count) };
                self.input.took(count, sink);
                (count, room)
            } else {
                let read = rustix::io::read(&self.socket, &mut *scratch);
                let Some(count) = received(read)? else { return Ok(()) };
                self.input.take(&scratch[..count], sink)?;
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
        } else if left < before || self.stalled_since.is_none() {
            self.stalled_since = Some(Instant::now());
        }
        Ok(())
    }

    /// Updates the events that the epoll instance reports for the socket.
    pub(super) fn update_interest(&mut self, epoll: &OwnedFd) {
        let mut wanted = epoll::EventFlags::empty();
        wanted.set(epoll::EventFlags::IN, !self.is_paused);
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
