//! Memory lent to the transport: cache pieces and staging memory, by cookie.
//!
//! Invariant: the cookie of every signalled post names one live entry. The entry is released with
//! the post's completion, successful or not.

use arrayvec::ArrayVec;
use dafs_base::{Key, Slab};
use dafs_dat::{Domain, EndpointId, LocalKey, LocalSegment, RemoteSegment, ServingInterface, Stag};
use dafs_memory::Memory;
use dafs_store::cache::{PIECE_COUNT_MAX, Pieces, Pin, Span};
use dafs_types::Status;
use dafs_wire::DirectBuffer;

use crate::config::ServerConfig;
use crate::direct_reads::DirectReads;
use crate::reply_to::TaskId;

/// The meaning of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cookie {
    /// Nothing needs to know about this completion.
    Silent,
    /// A loan has ended: its memory is free again.
    Loan(LoanId),
    /// Part of a task's transfer is done.
    Task(TaskId),
}

impl Cookie {
    /// The cookie as the transport carries it: below 2^63, because inboxes use the rest.
    #[inline]
    pub(crate) fn pack(self) -> u64 {
        match self {
            Cookie::Silent => 0,
            Cookie::Loan(loan) => LOAN | loan.to_bits(),
            Cookie::Task(task) => TASK | u64::from(task.0),
        }
    }

    /// Decodes a cookie that the transport returned. Only the server's own cookies come back.
    #[inline]
    pub(crate) fn unpack(word: u64) -> Self {
        if word & LOAN != 0 {
            Cookie::Loan(LoanId::from_bits(word & !LOAN))
        } else if word & TASK != 0 {
            Cookie::Task(TaskId(word as u32))
        } else {
            Cookie::Silent
        }
    }
}

/// The key of a loan, which may have ended already.
pub(crate) type LoanId = Key<Loan>;

/// Memory that the transport reads from until a completion.
#[derive(Debug)]
pub(crate) enum Loan {
    /// One cached piece, which is the usual case.
    Pin(Pin),
    /// Several cached pieces.
    Pins(Vec<Pin>),
    /// Memory registered for one transfer.
    Staging(LocalKey),
}

impl Loan {
    /// Takes the pins out of `pieces`.
    #[inline]
    pub(crate) fn of(pieces: &mut Pieces) -> Option<Self> {
        if pieces.len() <= 1 {
            return pieces.pop().map(|piece| Loan::Pin(piece.pin));
        }
        Some(Loan::Pins(pieces.drain(..).map(|piece| piece.pin).collect()))
    }

    /// One of the pins, if there are any. All pins of a loan are of one file.
    pub(crate) fn first_pin(&self) -> Option<&Pin> {
        match self {
            Loan::Pin(pin) => Some(pin),
            Loan::Pins(pins) => pins.first(),
            Loan::Staging(_) => None,
        }
    }
}

/// A loan to a connection.
#[derive(Debug)]
pub(crate) struct Lent {
    pub endpoint: EndpointId,
    pub loan: Loan,
    /// The number of bytes lent.
    pub length: u32,
    /// A serial number: higher than those of all earlier loans.
    pub number: u64,
}

/// The table of all loans.
#[derive(Debug)]
pub(crate) struct Loans {
    all: Slab<Lent, Loan>,
    /// The number of loans so far, which gives the next serial number.
    count: u64,
    /// Files that clients read directly.
    files: DirectReads,
}

impl Loans {
    pub(crate) fn new(config: &ServerConfig) -> Self {
        Self { all: Slab::default(), count: 0, files: DirectReads::new(config) }
    }

    /// The files that clients read directly.
    #[inline]
    pub(crate) fn files(&mut self) -> &mut DirectReads {
        &mut self.files
    }

    /// The same without the right to change them.
    pub(crate) fn files_given(&self) -> &DirectReads {
        &self.files
    }

    /// Adds a loan of `length` bytes to a connection, and returns its cookie.
    #[inline]
    pub(crate) fn insert(&mut self, endpoint: EndpointId, loan: Loan, length: u32) -> Cookie {
        self.count += 1;
        Cookie::Loan(self.all.insert(Lent { endpoint, loan, length, number: self.count }))
    }

    /// The number of current loans.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Iterates over all loans and their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (LoanId, &Lent)> {
        self.all.iter()
    }

    /// The connection that has the loan.
    pub(crate) fn holder(&self, id: LoanId) -> Option<EndpointId> {
        self.all.get(id).map(|lent| lent.endpoint)
    }

    /// Ends a loan and returns it.
    #[inline]
    pub(crate) fn take(&mut self, id: LoanId) -> Option<Lent> {
        self.all.remove(id)
    }
}

/// Memory registered for one transfer.
#[derive(Clone, Debug)]
pub(crate) struct Staging {
    pub memory: Memory,
    pub region: dafs_dat::Region,
}

impl Staging {
    /// Registers memory with these bytes for a transfer.
    ///
    /// # Errors
    /// RESOURCE if the memory cannot be registered.
    pub(crate) fn of(interface: &mut ServingInterface, bytes: Box<[u8]>) -> Result<Self, Status> {
        let memory = Memory::from_heap(bytes);
        let region = interface.register_local(&memory, Domain(0)).ok_or(Status::Resource)?;
        Ok(Self { memory, region })
    }
}

/// The first `length` bytes of a client's buffer, as a segment for the transport.
pub(crate) fn remote_of(buffer: &DirectBuffer, length: u32) -> RemoteSegment {
    RemoteSegment { stag: Stag(buffer.context.0), address: buffer.target.0, length }
}

/// Splits ranges of cache memory and the client's buffers into transfers, each of which is
/// contiguous in the client's memory.
pub(crate) struct Cut<'a> {
    spans: &'a [Span],
    span_done: u32,
    buffers: &'a [DirectBuffer],
    buffer_done: u32,
    left: u32,
}

impl<'a> Cut<'a> {
    /// Starts after the first `start` bytes of the buffers, which are already done.
    pub(crate) fn new(
        spans: &'a [Span],
        buffers: &'a [DirectBuffer],
        start: u32,
        length: u32,
    ) -> Self {
        let (mut buffers, mut skip) = (buffers, start);
        while let Some(first) = buffers.first()
            && skip >= first.length
        {
            skip -= first.length;
            buffers = &buffers[1..];
        }
        Self { spans, span_done: 0, buffers, buffer_done: skip, left: length }
    }

    /// Returns true if nothing is left to split.
    pub(crate) fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Returns the next transfer.
    #[inline]
    pub(crate) fn next(
        &mut self,
        arena: &dafs_dat::Region,
    ) -> Option<(ArrayVec<LocalSegment, PIECE_COUNT_MAX>, RemoteSegment)> {
        let buffer = self.buffers.first().filter(|_| self.left > 0)?;
        let length = (buffer.length - self.buffer_done).min(self.left);
        let remote = RemoteSegment {
            stag: Stag(buffer.context.0),
            address: buffer.target.0.wrapping_add(u64::from(self.buffer_done)),
            length,
        };
        let mut local = ArrayVec::new();
        let mut missing = length;
        while missing > 0 {
            let span = self.spans.first()?;
            let take = (span.length - self.span_done).min(missing);
            local.push(arena.local(span.offset + u64::from(self.span_done), take));
            missing -= take;
            self.span_done += take;
            if self.span_done == span.length {
                self.spans = &self.spans[1..];
                self.span_done = 0;
            }
        }
        self.left -= length;
        self.buffer_done += length;
        if self.buffer_done == buffer.length {
            self.buffers = &self.buffers[1..];
            self.buffer_done = 0;
        }
        Some((local, remote))
    }
}

/// Marks the cookie of a loan. A key leaves this bit free.
const LOAN: u64 = 1 << 62;
/// Marks the cookie of a task, if it is not that of a loan.
const TASK: u64 = 1 << 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_survive_the_transport() {
        let loan = LoanId::from_bits((1 << 61) + 7);
        let cookies = [Cookie::Silent, Cookie::Loan(loan), Cookie::Task(TaskId(9))];
        for cookie in cookies {
            assert_eq!(Cookie::unpack(cookie.pack()), cookie);
        }
    }
}
