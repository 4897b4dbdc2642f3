//! Memory lent to the transport (cache blocks and staging memory), identified by cookies.
//!
//! Invariant: the cookie of every signalled post identifies one existing entry. The entry is
//! released at the completion of the post, whether the post succeeded or failed.

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

/// The value that the transport returns with a completion. It says what to do at the completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cookie {
    /// No action is needed at the completion.
    Silent,
    /// The loan ends, so its memory is released.
    Loan(LoanId),
    /// One transfer of a task has completed.
    Task(TaskId),
}

impl Cookie {
    /// Encodes the cookie as an integer for the transport. The integer is below 2^63, because
    /// inboxes use the others.
    #[inline]
    pub(crate) fn pack(self) -> u64 {
        match self {
            Cookie::Silent => 0,
            Cookie::Loan(loan) => LOAN | loan.to_bits(),
            Cookie::Task(task) => TASK | u64::from(task.0),
        }
    }

    /// Decodes a cookie that the transport returned. The transport returns only cookies of this
    /// server.
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

/// The key of a loan. It is never used again, even after the loan has ended.
pub(crate) type LoanId = Key<Loan>;

/// Memory that the transport may read until a completion.
#[derive(Debug)]
pub(crate) enum Loan {
    /// A single cached piece, which is the usual case.
    Pin(Pin),
    /// Several cached pieces of one file.
    Pins(Vec<Pin>),
    /// Memory that was registered for this transfer only.
    Staging(LocalKey),
}

impl Loan {
    /// Takes the pins out of `pieces` and returns them as a loan. `None` if there are no pins.
    #[inline]
    pub(crate) fn of(pieces: &mut Pieces) -> Option<Self> {
        if pieces.len() <= 1 {
            return pieces.pop().map(|piece| Loan::Pin(piece.pin));
        }
        Some(Loan::Pins(pieces.drain(..).map(|piece| piece.pin).collect()))
    }

    /// Returns one of the pins. All pins of a loan belong to one file. `None` for staging memory.
    pub(crate) fn first_pin(&self) -> Option<&Pin> {
        match self {
            Loan::Pin(pin) => Some(pin),
            Loan::Pins(pins) => pins.first(),
            Loan::Staging(_) => None,
        }
    }
}

/// A loan of memory to a connection.
#[derive(Debug)]
pub(crate) struct Lent {
    pub endpoint: EndpointId,
    pub loan: Loan,
    /// The number of bytes lent.
    pub length: u32,
    /// The serial number of the loan, higher than the serial numbers of all earlier loans.
    pub number: u64,
}

/// The table of all current loans.
#[derive(Debug)]
pub(crate) struct Loans {
    all: Slab<Lent, Loan>,
    /// The number of loans since the start, from which serial numbers are assigned.
    count: u64,
    /// The table of files that were handed over to clients for direct reads.
    files: DirectReads,
}

impl Loans {
    pub(crate) fn new(config: &ServerConfig) -> Self {
        Self { all: Slab::default(), count: 0, files: DirectReads::new(config) }
    }

    /// Returns mutable access to the files that were handed over to clients.
    #[inline]
    pub(crate) fn files(&mut self) -> &mut DirectReads {
        &mut self.files
    }

    /// Returns the files that were handed over to clients.
    pub(crate) fn files_given(&self) -> &DirectReads {
        &self.files
    }

    /// Adds a loan of `length` bytes to a connection. Returns the loan's cookie.
    #[inline]
    pub(crate) fn insert(&mut self, endpoint: EndpointId, loan: Loan, length: u32) -> Cookie {
        self.count += 1;
        Cookie::Loan(self.all.insert(Lent { endpoint, loan, length, number: self.count }))
    }

    /// Returns the number of current loans.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Iterates over all current loans and their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (LoanId, &Lent)> {
        self.all.iter()
    }

    /// Returns the connection that holds the loan. `None` if the loan has ended.
    pub(crate) fn holder(&self, id: LoanId) -> Option<EndpointId> {
        self.all.get(id).map(|lent| lent.endpoint)
    }

    /// Removes and returns a loan. `None` if the loan has already ended.
    #[inline]
    pub(crate) fn take(&mut self, id: LoanId) -> Option<Lent> {
        self.all.remove(id)
    }
}

/// Memory that is registered for one transfer.
#[derive(Clone, Debug)]
pub(crate) struct Staging {
    pub memory: Memory,
    pub region: dafs_dat::Region,
}

impl Staging {
    /// Registers memory that contains these bytes.
    ///
    /// # Errors
    /// RESOURCE if the memory cannot be registered.
    pub(crate) fn of(interface: &mut ServingInterface, bytes: Box<[u8]>) -> Result<Self, Status> {
        let memory = Memory::from_heap(bytes);
        let region = interface.register_local(&memory, Domain(0)).ok_or(Status::Resource)?;
        Ok(Self { memory, region })
    }
}

/// Returns a descriptor, for the transport, of the first `length` bytes of a client's buffer.
pub(crate) fn remote_of(buffer: &DirectBuffer, length: u32) -> RemoteSegment {
    RemoteSegment { stag: Stag(buffer.context.0), address: buffer.target.0, length }
}

/// Splits a transfer between ranges of cache memory and a client's buffers into transfers that are
/// each contiguous in the client's memory.
pub(crate) struct Cut<'a> {
    spans: &'a [Span],
    span_done: u32,
    buffers: &'a [DirectBuffer],
    buffer_done: u32,
    left: u32,
}

impl<'a> Cut<'a> {
    /// Creates a splitter for the bytes after the first `start` bytes of the buffers, which are
    /// already transferred.
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

    /// Returns true if all bytes have been split into transfers.
    pub(crate) fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Returns the next contiguous transfer. `None` if there are no bytes left.
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

/// The bit that marks the cookie of a loan. Keys of loans do not use this bit.
const LOAN: u64 = 1 << 62;
/// The bit that marks the cookie of a task, unless the bit [`LOAN`] is set too.
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
