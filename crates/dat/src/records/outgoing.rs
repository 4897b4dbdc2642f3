//! The replies of a connection that the kernel has not accepted yet.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use super::{Part, RecordEvent};
use crate::sim::Stream;
use crate::stream::StreamQueue;

/// The queue of replies of one connection.
#[derive(Default)]
pub(super) struct Outgoing {
    stream: StreamQueue,
    /// The cookies that were not reported yet. Each comes with the number of sent bytes, counted
    /// from the start of the connection, at which it is reported.
    cookies: VecDeque<(u64, u64)>,
}

impl Outgoing {
    /// Returns the number of bytes that the kernel has not accepted yet.
    pub(super) fn unsent(&self) -> u64 {
        self.stream.queued_total() - self.stream.sent_total()
    }

    /// Appends a reply, preceded by its mark (the record's length).
    pub(super) fn put<'a>(
        &mut self,
        parts: impl IntoIterator<Item = Part<'a>>,
        cookies: impl Iterator<Item = u64>,
    ) {
        let mark = self.stream.put(&[0; 4]);
        let begin = self.stream.queued_total();
        for part in parts {
            match part {
                Part::Bytes(bytes) => {
                    self.stream.put(bytes);
                }
                Part::Memory { memory, offset, length } => {
                    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
                    self.stream.name(memory, offset, length as usize);
                }
            }
        }
        let end = self.stream.queued_total();
        // The length does not reach the bit that marks the last fragment, because replies are
        // limited to a few MiB.
        self.stream.overwrite(mark, &(LAST | (end - begin) as u32).to_be_bytes());
        self.cookies.extend(cookies.map(|cookie| (end, cookie)));
    }

    /// Writes to the socket until the kernel has accepted all bytes or accepts no more.
    pub(super) fn write(
        &mut self,
        socket: BorrowedFd<'_>,
        events: &mut VecDeque<RecordEvent>,
    ) -> Result<(), &'static str> {
        let written = self.stream.write(socket);
        self.report(events);
        written.map(drop).map_err(|_| "the connection broke")
    }

    /// Writes to a simulated network until it has accepted all bytes or accepts no more.
    pub(super) fn write_simulated(
        &mut self,
        stream: &mut Stream,
        events: &mut VecDeque<RecordEvent>,
    ) {
        while let Some(count) = stream.cut(self.unsent()) {
            let mut piece = vec![0; count];
            let count = self.take(&mut piece, events);
            stream.push(&piece[..count]);
        }
    }

    /// Copies the next bytes into `room` and returns their number. The caller must send them before
    /// anything else.
    pub(super) fn take(&mut self, room: &mut [u8], events: &mut VecDeque<RecordEvent>) -> usize {
        let count = self.stream.take(room);
        self.report(events);
        count
    }

    /// Reports the replies whose memory is no longer in use.
    #[inline]
    fn report(&mut self, events: &mut VecDeque<RecordEvent>) {
        let sent = self.stream.sent_total();
        while let Some((total, cookie)) = self.cookies.front().copied()
            && total <= sent
        {
            events.push_back(RecordEvent::Sent { cookie });
            self.cookies.pop_front();
        }
    }

    /// Drops all replies and reports their cookies.
    pub(super) fn abandon(&mut self, events: &mut VecDeque<RecordEvent>) {
        let cookies = self.cookies.drain(..);
        events.extend(cookies.map(|(_, cookie)| RecordEvent::Sent { cookie }));
        *self = Self::default();
    }
}

/// The bit of a mark that is set if the fragment is the last of its record.
const LAST: u32 = 1 << 31;
