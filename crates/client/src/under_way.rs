//! The requests of one session: those that wait for their answers, and those that wait for
//! credits.
//!
//! Invariant: a stream that has a request outstanding has a [`Pending`], and no other has one;
//! what waits for credits goes out in the order it was taken in, calls before transfers, and
//! nothing between the members of a chain.

use std::collections::VecDeque;

use dafs_types::{SequenceNumber, StreamId};

use crate::chain::work::{ChainQueue, SharedChain};
use crate::credits::{Credits, Holder};
use crate::operation::OperationId;
use crate::transfer::Transfer;
use crate::work::{Pending, QueuedCall, Work};

/// What one session has under way, and what is to follow.
pub(crate) struct UnderWay {
    pub credits: Credits,
    /// By stream.
    pending: Vec<Option<Pending>>,
    transfers: VecDeque<Transfer>,
    calls: VecDeque<QueuedCall>,
    pub chains: ChainQueue,
}

/// A request whose connection was lost before its answer came: where it was, and what it was.
pub(crate) type CutOff = (StreamId, SequenceNumber, Pending);

impl UnderWay {
    /// Nothing, with one credit, in time up to `limit`.
    pub fn new(limit: u16) -> Self {
        Self {
            credits: Credits::new(limit),
            pending: Vec::new(),
            transfers: VecDeque::new(),
            calls: VecDeque::new(),
            chains: ChainQueue::default(),
        }
    }

    /// Whether anything waits for credits.
    #[inline]
    pub fn has_waiting(&self) -> bool {
        !self.calls.is_empty() || !self.transfers.is_empty() || !self.chains.is_empty()
    }

    /// Whether a chain is what must be sent next.
    #[inline]
    pub fn owes_a_chain(&self) -> bool {
        !self.chains.is_empty() && (self.calls.is_empty() || self.chains.is_open())
    }

    // ---- answers --------------------------------------------------------------------

    /// A request was sent on a stream.
    #[inline]
    pub fn set_pending(&mut self, stream: StreamId, pending: Pending) {
        let place = usize::from(stream.0);
        if self.pending.len() <= place {
            self.pending.resize_with(place + 1, || None);
        }
        self.pending[place] = Some(pending);
    }

    /// What waits for the answer on a stream.
    #[inline]
    pub fn take_pending(&mut self, stream: StreamId) -> Option<Pending> {
        self.pending.get_mut(usize::from(stream.0))?.take()
    }

    /// Everything that waits for its answer.
    pub fn pending(&self) -> impl Iterator<Item = &Pending> {
        self.pending.iter().flatten()
    }

    /// The transfers that wait for their answers.
    pub fn pending_transfers_mut(&mut self) -> impl Iterator<Item = &mut Transfer> {
        self.pending.iter_mut().flatten().filter_map(|pending| match pending {
            Pending::Transfer(transfer) => Some(transfer),
            Pending::Call(_) | Pending::Member(_) | Pending::Rescue(_) | Pending::Silent => None,
        })
    }

    // ---- waiting for credits --------------------------------------------------------

    /// Takes a credit for a new transfer. Later requests must not overtake those that wait.
    #[inline]
    pub fn take_for_transfer(&mut self) -> Option<(StreamId, SequenceNumber)> {
        if self.transfers.is_empty() { self.credits.take() } else { None }
    }

    #[inline]
    pub fn next_call(&mut self) -> Option<QueuedCall> {
        self.calls.pop_front()
    }

    #[inline]
    pub fn next_transfer(&mut self) -> Option<Transfer> {
        self.transfers.pop_front()
    }

    pub fn push_call(&mut self, call: QueuedCall) {
        self.calls.push_back(call);
    }

    pub fn push_call_first(&mut self, call: QueuedCall) {
        self.calls.push_front(call);
    }

    #[inline]
    pub fn push_transfer(&mut self, transfer: Transfer) {
        self.transfers.push_back(transfer);
    }

    pub fn push_transfer_first(&mut self, transfer: Transfer) {
        self.transfers.push_front(transfer);
    }

    /// Calls that wait.
    pub fn waiting_calls(&self) -> impl Iterator<Item = &QueuedCall> {
        self.calls.iter()
    }

    /// As [`UnderWay::waiting_calls`], to be changed.
    pub fn waiting_calls_mut(&mut self) -> impl Iterator<Item = &mut QueuedCall> {
        self.calls.iter_mut()
    }

    /// Takes out the calls that wait, to be put back in another form.
    pub fn take_calls(&mut self) -> VecDeque<QueuedCall> {
        std::mem::take(&mut self.calls)
    }

    /// Keeps some of the calls that wait.
    pub fn retain_calls(&mut self, is_kept: impl FnMut(&QueuedCall) -> bool) {
        self.calls.retain(is_kept);
    }

    /// Transfers that wait.
    pub fn waiting_transfers(&self) -> impl Iterator<Item = &Transfer> {
        self.transfers.iter()
    }

    /// Takes out the transfers that wait and are like this, the last first.
    pub fn extract_transfers(&mut self, is_meant: impl Fn(&Transfer) -> bool) -> Vec<Transfer> {
        let mut taken = Vec::new();
        for place in (0..self.transfers.len()).rev() {
            if is_meant(&self.transfers[place]) {
                taken.extend(self.transfers.remove(place));
            }
        }
        taken
    }

    /// Takes out a transfer that waits.
    pub fn take_transfer(&mut self, operation: OperationId) -> Option<Transfer> {
        let place = self.transfers.iter().position(|transfer| transfer.id == operation)?;
        self.transfers.remove(place)
    }

    // ---- losses ---------------------------------------------------------------------

    /// The connection is gone: takes out what waited for answers, and the chain that was sent in
    /// part. Whoever recovers the session has all credits of the next.
    pub fn cut_off(&mut self, wish: u16) -> (Vec<CutOff>, Option<SharedChain>) {
        let pending = (0..).map(StreamId).zip(std::mem::take(&mut self.pending));
        let cut_off = pending
            .filter_map(|(stream, pending)| Some((stream, self.credits.newest(stream), pending?)));
        let cut_off: Vec<CutOff> = cut_off.collect();
        self.begin_again(wish);
        (cut_off, self.chains.take_open())
    }

    /// An attempt to come back has failed: what it had asked is not answered.
    pub fn begin_again(&mut self, wish: u16) {
        self.pending.clear();
        self.credits = Credits::new(wish);
        self.credits.hold(Holder::Recovery);
    }

    /// The session has ended: what waited for answers, and what waited for credits.
    pub fn end(&mut self) -> (Vec<Work>, Vec<Work>) {
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
