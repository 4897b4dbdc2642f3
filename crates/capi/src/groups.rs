//! Completion groups as they are inside: what is under way, and what has ended and was not told.
//!
//! Invariant: an operation is in its group from its submission until its end is taken; until its
//! end it keeps the memory that it uses.

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dafs_client::{Batched, Client, Group};
use dafs_share::{Entered, Held};

use crate::client::ClientObject;
use crate::failure::{Failure, Result};
use crate::operations::{Ended, Operation, Way};

/// A completion group.
pub(crate) struct GroupObject {
    pub client: Arc<ClientObject>,
    state: Held<RefCell<GroupState>>,
    /// Operations whose ends were not taken.
    count: AtomicUsize,
}

/// What is in a group.
pub(crate) struct GroupState {
    client: Client,
    /// Where the client itself collects transfers.
    pub group: Group,
    operations: BTreeMap<u64, Operation>,
    batches: Vec<BatchUnderWay>,
    ready: VecDeque<Ended>,
}

/// A submitted batch.
struct BatchUnderWay {
    batched: Batched,
    /// The operations that its requests are; `None` once they have ended.
    numbers: Vec<Option<u64>>,
    /// How many had not ended when it was last looked at.
    left: usize,
}

impl GroupObject {
    pub fn new(client: Arc<ClientObject>) -> Result<Self> {
        // SAFETY: what there is of the client is held.
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

    /// What is in it, for whoever is inside.
    pub fn state<'a>(&'a self, entered: &'a Entered<'_>) -> RefMut<'a, GroupState> {
        self.state.get(entered).borrow_mut()
    }

    /// Whether nothing is in it.
    pub fn is_idle(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// So many operations were added.
    pub fn note_added(&self, count: usize) {
        self.count.fetch_add(count, Ordering::AcqRel);
    }

    /// The ends of so many were taken.
    pub fn note_taken(&self, count: usize) {
        self.count.fetch_sub(count, Ordering::AcqRel);
    }

    /// Refuses what belongs to another client.
    pub fn check_client(&self, client: &Arc<ClientObject>) -> Result<()> {
        match Arc::ptr_eq(&self.client, client) {
            true => Ok(()),
            false => Err(Failure::invalid("the group is of another client")),
        }
    }
}

impl Drop for GroupState {
    fn drop(&mut self) {
        self.client.release_group(self.group);
    }
}

impl GroupState {
    /// Takes an operation in; one that has nothing to wait for has ended.
    pub fn add(&mut self, number: u64, operation: Operation) {
        match operation.is_over() {
            true => self.ready.push_back(operation.end(number)),
            false => drop(self.operations.insert(number, operation)),
        }
    }

    /// Takes a batch in, whose operations were added.
    pub fn add_batch(&mut self, batched: Batched, numbers: Vec<u64>) {
        let left = numbers.len();
        let numbers = numbers.into_iter().map(Some).collect();
        self.batches.push(BatchUnderWay { batched, numbers, left });
    }

    /// Takes note of whatever has ended.
    pub fn collect(&mut self) {
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
        if operation.is_over()
            && let Some(operation) = self.operations.remove(&number)
        {
            self.ready.push_back(operation.end(number));
        }
    }

    /// Whether `count` ends are there, or all that can come.
    pub fn has(&self, count: usize) -> bool {
        self.ready.len() >= count || self.operations.is_empty()
    }

    /// The next end.
    pub fn take(&mut self) -> Option<Ended> {
        self.ready.pop_front()
    }

    /// Gives an operation up. False if it has ended.
    pub fn cancel(&self, number: u64) -> bool {
        let Some(operation) = self.operations.get(&number) else { return false };
        match &operation.way {
            Way::Transfers(ids) => ids.iter().filter(|id| self.client.cancel(**id)).count() > 0,
            Way::Batch => self.in_batch(number).is_some_and(|(batch, place)| batch.cancel(place)),
        }
    }

    /// Has a request of a batch done at once. False if it has ended.
    pub fn expedite(&self, number: u64) -> Result<bool> {
        let Some(operation) = self.operations.get(&number) else { return Ok(false) };
        match (&operation.way, self.in_batch(number)) {
            // Nothing holds it up.
            (Way::Transfers(_), _) => Ok(true),
            (Way::Batch, Some((batch, place))) => Ok(batch.hurry_up(place)?),
            (Way::Batch, None) => Ok(false),
        }
    }

    fn in_batch(&self, number: u64) -> Option<(&Batched, usize)> {
        self.batches.iter().find_map(|batch| {
            let place = batch.numbers.iter().position(|known| *known == Some(number))?;
            Some((&batch.batched, place))
        })
    }
}
