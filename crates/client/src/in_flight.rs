//! The requests of one session that wait for replies or for credits.
//!
//! Invariants:
//!
//! - A stream has a [`Pending`] exactly while a request on it is in flight.
//! - Requests that wait for credits are sent in order of submission, calls before transfers, and no
//!   other request is sent between the members of a chain.

use std::collections::VecDeque;

use dafs_types::{SequenceNumber, StreamId};

use crate::chain::work::{ChainQueue, SharedChain};
use crate::credits::{Credits, ReservedFor};
use crate::operation::OperationId;
use crate::transfer::Transfer;
use crate::work::{Pending, QueuedCall, Work};

/// The requests of one session that are in flight or queued.
pub(crate) struct InFlight {
    pub credits: Credits,
    /// The operations that wait for a reply, indexed by stream.
    pending: Vec<Option<Pending>>,
    transfers: VecDeque<Transfer>,
    calls: VecDeque<QueuedCall>,
    pub chains: ChainQueue,
}

/// A request whose connection was lost before its reply arrived, with its stream and sequence
/// number.
pub(crate) type CutOff = (StreamId, SequenceNumber, Pending);

impl InFlight {
    /// Creates an empty set with one credit; the number of credits may grow up to `limit`.
    pub(crate) fn new(limit: u16) -> Self {
        Self {
            credits: Credits::new(limit),
            pending: Vec::new(),
            transfers: VecDeque::new(),
            calls: VecDeque::new(),
            chains: ChainQueue::default(),
        }
    }

    /// Returns true if any request waits for credits.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.calls.is_empty() || !self.transfers.is_empty() || !self.chains.is_empty()
    }

    /// Returns true if a member of a chain must be sent next.
    #[inline]
    pub(crate) fn owes_a_chain(&self) -> bool {
        !self.chains.is_empty() && (self.calls.is_empty() || self.chains.is_open())
    }

    // ---- replies --------------------------------------------------------------------

    /// Records a request that was sent on a stream.
    #[inline]
    pub(crate) fn set_pending(&mut self, stream: StreamId, pending: Pending) {
        let place = usize::from(stream.0);
        if self.pending.len() <= place {
            self.pending.resize_with(place + 1, || None);
        }
        self.pending[place] = Some(pending);
    }

    /// Removes and returns the operation that waits for the reply on a stream.
    #[inline]
    pub(crate) fn take_pending(&mut self, stream: StreamId) -> Option<Pending> {
        self.pending.get_mut(usize::from(stream.0))?.take()
    }

    /// Iterates over the operations that wait for a reply.
    pub(crate) fn pending(&self) -> impl Iterator<Item = &Pending> {
        self.pending.iter().flatten()
    }

    /// Returns the transfers that wait for replies, mutably.
    pub(crate) fn pending_transfers_mut(&mut self) -> impl Iterator<Item = &mut Transfer> {
        self.pending.iter_mut().flatten().filter_map(|pending| match pending {
            Pending::Transfer(transfer) => Some(transfer),
            Pending::Call(_) | Pending::Member(_) | Pending::Recovery(_) | Pending::Ignored => None,
        })
    }

    // ---- waiting for credits --------------------------------------------------------

    /// Takes a credit for a new transfer, unless other requests already wait for credits, because
    /// the transfer must not overtake them.
    #[inline]
    pub(crate) fn take_for_transfer(&mut self) -> Option<(StreamId, SequenceNumber)> {
        if self.transfers.is_empty() { self.credits.take() } else { None }
    }

    #[inline]
    pub(crate) fn next_call(&mut self) -> Option<QueuedCall> {
        self.calls.pop_front()
    }

    #[inline]
    pub(crate) fn next_transfer(&mut self) -> Option<Transfer> {
        self.transfers.pop_front()
    }

    pub(crate) fn push_call(&mut self, call: QueuedCall) {
        self.calls.push_back(call);
    }

    pub(crate) fn push_call_first(&mut self, call: QueuedCall) {
        self.calls.push_front(call);
    }

    #[inline]
    pub(crate) fn push_transfer(&mut self, transfer: Transfer) {
        self.transfers.push_back(transfer);
    }

    pub(crate) fn push_transfer_first(&mut self, transfer: Transfer) {
        self.transfers.push_front(transfer);
    }

    /// Returns the calls that wait for credits.
    pub(crate) fn waiting_calls(&self) -> impl Iterator<Item = &QueuedCall> {
        self.calls.iter()
    }

    /// Returns the calls that wait for credits, mutably.
    pub(crate) fn waiting_calls_mut(&mut self) -> impl Iterator<Item = &mut QueuedCall> {
        self.calls.iter_mut()
    }

    /// Removes and returns the calls that wait for credits, so that they can be encoded again.
    pub(crate) fn take_calls(&mut self) -> VecDeque<QueuedCall> {
        std::mem::take(&mut self.calls)
    }

    /// Keeps only the waiting calls for which `is_kept` is true.
    pub(crate) fn retain_calls(&mut self, is_kept: impl FnMut(&QueuedCall) -> bool) {
        self.calls.retain(is_kept);
    }

    /// Returns the transfers that wait for credits.
    pub(crate) fn waiting_transfers(&self) -> impl Iterator<Item = &Transfer> {
        self.transfers.iter()
    }

    /// Removes and returns the waiting transfers for which `is_meant` is true, the most recently
    /// submitted first.
    pub(crate) fn extract_transfers(
        &mut self,
        is_meant: impl Fn(&Transfer) -> bool,
    ) -> Vec<Transfer> {
        let mut taken = Vec::new();
        for place in (0..self.transfers.len()).rev() {
            if is_meant(&self.transfers[place]) {
                taken.extend(self.transfers.remove(place));
            }
        }
        taken
    }

    /// Removes and returns one transfer that waits for credits.
    pub(crate) fn take_transfer(&mut self, operation: OperationId) -> Option<Transfer> {
        let place = self.transfers.iter().position(|transfer| transfer.id == operation)?;
        self.transfers.remove(place)
    }

    // ---- lost connections -----------------------------------------------------------

    /// Removes and returns the open chain and all operations that waited for replies, after the
    /// connection was lost. All credits of the next connection are reserved for recovery.
    pub(crate) fn cut_off(&mut self, wanted_credits: u16) -> (Vec<CutOff>, Option<SharedChain>) {
        let pending = (0..).map(StreamId).zip(std::mem::take(&mut self.pending));
        let cut_off = pending
            .filter_map(|(stream, pending)| Some((stream, self.credits.newest(stream), pending?)));
        let cut_off: Vec<CutOff> = cut_off.collect();
        self.begin_again(wanted_credits);
        (cut_off, self.chains.take_open())
    }

    /// Discards the requests of a failed attempt to reconnect, before the next attempt.
    pub(crate) fn begin_again(&mut self, wanted_credits: u16) {
        self.pending.clear();
        self.credits = Credits::new(wanted_credits);
        self.credits.hold(ReservedFor::Recovery);
    }

    /// Empties the set when the session ends. Returns the operations that waited for replies, and
    /// those that waited for credits.
    pub(crate) fn end(&mut self) -> (Vec<Work>, Vec<Work>) {
        let pending = std::mem::take(&mut self.pending).into_iter().flatten();
        let transfers = std::mem::take(&mut self.transfers).into_iter().map(Work::Transfer);
        let calls = std::mem::take(&mut self.calls).into_iter().map(Work::Call);
        let chains = std::mem::take(&mut self.chains).into_iter().map(Work::Chain);
        (
            pending.filter_map(Pending::into_work).collect(),
            transfers.chain(calls).chain(chains).collect(),
        )
    }
}
