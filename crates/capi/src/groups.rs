//! The state of completion groups: operations in flight, and completions that were not returned
//! yet.
//!
//! Invariant: an operation is in its group from its submission until its completion is returned.
//! The operation keeps the memory that it uses until it has ended.

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dafs_client::{Batched, Client, Group};
use dafs_share::{Entered, Held};

use crate::client::ClientObject;
use crate::failure::{Failure, Result};
use crate::operations::{Ended, Operation, Submission};

/// A completion group with its client.
pub(crate) struct GroupObject {
    pub client: Arc<ClientObject>,
    state: Held<RefCell<GroupState>>,
    /// The number of operations whose completions were not returned yet.
    count: AtomicUsize,
}

/// The contents of a completion group, which only a thread with the client's lock can access.
pub(crate) struct GroupState {
    client: Client,
    /// The client's own group for transfers.
    pub group: Group,
    operations: BTreeMap<u64, Operation>,
    batches: Vec<BatchUnderWay>,
    ready: VecDeque<Ended>,
}

/// A submitted batch.
struct BatchUnderWay {
    batched: Batched,
    /// The operation number of each request; `None` if the request has ended.
    numbers: Vec<Option<u64>>,
    /// The number of requests that had not ended at the most recent check.
    left: usize,
}

impl GroupObject {
    pub(crate) fn new(client: Arc<ClientObject>) -> Result<Self> {
        // SAFETY: the client objects are held.
        let state = unsafe {
            client.within(|entered| {
                Ok(entered.hold(RefCell::new(GroupState {
                    client: Client::clone(entered),
                    group: entered.group(),
                    operations: BTreeMap::new(),
                    batches: Vec::new(),
                    ready: VecDeque::new(),
                })))
            })?
        };
        Ok(Self { client, state, count: AtomicUsize::new(0) })
    }

    /// Returns the contents of the group. The caller holds the client's lock.
    pub(crate) fn state<'a>(&'a self, entered: &'a Entered<'_>) -> RefMut<'a, GroupState> {
        self.state.get(entered).borrow_mut()
    }

    /// True if the completions of all operations were returned.
    pub(crate) fn is_idle(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Adds to the number of operations.
    pub(crate) fn note_added(&self, count: usize) {
        self.count.fetch_add(count, Ordering::AcqRel);
    }

    /// Subtracts returned completions from the number of operations.
    pub(crate) fn note_taken(&self, count: usize) {
        self.count.fetch_sub(count, Ordering::AcqRel);
    }

    /// Fails if an object belongs to another client.
    pub(crate) fn check_client(&self, client: &Arc<ClientObject>) -> Result<()> {
        match Arc::ptr_eq(&self.client, client) {
            true => Ok(()),
            false => Err(Failure::invalid("the group belongs to another client")),
        }
    }
}

impl Drop for GroupState {
    fn drop(&mut self) {
        self.client.release_group(self.group);
    }
}

impl GroupState {
    /// Adds an operation. An operation that has nothing to wait for counts as ended.
    pub(crate) fn add(&mut self, number: u64, operation: Operation) {
        match operation.is_finished() {
            true => self.ready.push_back(operation.end(number)),
            false => drop(self.operations.insert(number, operation)),
        }
    }

    /// Adds a batch whose operations were added before.
    pub(crate) fn add_batch(&mut self, batched: Batched, numbers: Vec<u64>) {
        let left = numbers.len();
        let numbers = numbers.into_iter().map(Some).collect();
        self.batches.push(BatchUnderWay { batched, numbers, left });
    }

    /// Processes all events of the client, and moves ended operations to the ready completions.
    pub(crate) fn collect(&mut self) {
        while let Some(completion) = self.client.next(self.group) {
            let (number, part) = Operation::place_of(completion.context);
            self.note(number, |operation| operation.note_part(part, completion.result));
        }
        let mut ended = Vec::new();
        for batch in &mut self.batches {
            let left = batch.batched.left();
            if left == batch.left {
                continue;
            }
            batch.left = left;
            for (place, number) in batch.numbers.iter_mut().enumerate() {
                if let Some(known) = *number
                    && let Some(outcome) = batch.batched.outcome(place)
                {
                    *number = None;
                    ended.push((known, outcome));
                }
            }
        }
        self.batches.retain(|batch| batch.numbers.iter().any(Option::is_some));
        for (number, outcome) in ended {
            self.note(number, |operation| operation.note_whole(outcome));
        }
    }

    fn note(&mut self, number: u64, how: impl FnOnce(&mut Operation)) {
        let Some(operation) = self.operations.get_mut(&number) else { return };
        how(operation);
        if operation.is_finished()
            && let Some(operation) = self.operations.remove(&number)
        {
            self.ready.push_back(operation.end(number));
        }
    }

    /// True if `count` completions are available, or no operation is in flight.
    pub(crate) fn has(&self, count: usize) -> bool {
        self.ready.len() >= count || self.operations.is_empty()
    }

    /// Removes and returns the next ready completion.
    pub(crate) fn take(&mut self) -> Option<Ended> {
        self.ready.pop_front()
    }

    /// Cancels an operation. Returns false if the operation has ended.
    pub(crate) fn cancel(&self, number: u64) -> bool {
        let Some(operation) = self.operations.get(&number) else { return false };
        match &operation.submission {
            Submission::Transfers(ids) => {
                ids.iter().filter(|id| self.client.cancel(**id)).count() > 0
            }
            Submission::Batch => {
                self.in_batch(number).is_some_and(|(batch, place)| batch.cancel(place))
            }
        }
    }

    /// Makes the server immediately execute a request of a batch. Returns false if the request has
    /// ended.
    pub(crate) fn expedite(&self, number: u64) -> Result<bool> {
        let Some(operation) = self.operations.get(&number) else { return Ok(false) };
        match (&operation.submission, self.in_batch(number)) {
            // Transfers are never delayed.
            (Submission::Transfers(_), _) => Ok(true),
            (Submission::Batch, Some((batch, place))) => Ok(batch.expedite(place)?),
            (Submission::Batch, None) => Ok(false),
        }
    }

    fn in_batch(&self, number: u64) -> Option<(&Batched, usize)> {
        self.batches.iter().find_map(|batch| {
            let place = batch.numbers.iter().position(|known| *known == Some(number))?;
            Some((&batch.batched, place))
        })
    }
}
