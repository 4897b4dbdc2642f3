//! The table of all fencing lists and pending changes.
//!
//! Invariants:
//! - An object is in the table exactly while it has a list or a pending change.
//! - `bytes` is the total size of the identities in all lists and pending changes.
//! - `changing` contains the objects with a pending change. `draining` is the number of pending
//!   changes that wait for operations to end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dafs_ops::Fault;
use dafs_types::FileHandle;

use super::list::FenceList;
use super::{
    FenceAction, FenceAuthority, FenceChange, FenceId, FenceLimits, FenceRecord, FenceRequest,
    FenceRestoreError, FenceStoreId, FencedObject, OperationId, RunningOperation,
};

/// The fencing lists of one server, and the pending changes of these lists.
#[derive(Debug)]
pub struct FenceTable {
    limits: FenceLimits,
    objects: BTreeMap<FencedObject, Fence>,
    changing: Vec<FencedObject>,
    draining: u32,
    bytes: usize,
    actions: VecDeque<FenceAction>,
    next_store: u64,
    counters: FenceCounters,
}

/// The counters of fencing lists, for the operator. [`FenceTable::counters`] sets the gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FenceCounters {
    /// Gauge: the number of objects with a fencing list or a pending change.
    pub objects: u32,
    /// Gauge: the number of bytes of identities, in lists and in pending changes.
    pub bytes: u64,
    /// Gauge: the number of pending changes of fencing lists.
    pub changing: u32,
    /// Gauge: the number of pending changes that wait for operations to end. While it is zero,
    /// `leave` returns immediately.
    pub draining: u32,
    /// The number of changes that were completed.
    pub completed: u64,
    /// The number of changes that failed after they had started.
    pub failed: u64,
    /// The number of changes that were refused with a status.
    pub refused: u64,
    /// The number of operations that changes of fencing lists had to wait for.
    pub drained: u64,
    /// The number of operations refused because their session was fenced out.
    pub fenced_out: u64,
}

/// A description of one fencing list for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceInformation<'a> {
    /// The object that is fenced.
    pub object: FencedObject,
    /// The fence identities that may access the object. Empty if every session may access it.
    pub fence_ids: &'a [FenceId],
    /// The new list of the pending change, and the number of operations that the change still waits
    /// for. `None` if no change is pending.
    pub change: Option<(&'a [FenceId], usize)>,
}

#[derive(Debug, Default)]
struct Fence {
    list: FenceList,
    change: Option<Change>,
}

#[derive(Debug)]
struct Change {
    request: FenceRequest,
    next: FenceList,
    /// The id of the record that must be on stable storage before the change is complete. `None` if
    /// the record is already there.
    store: Option<FenceStoreId>,
    /// The operations that must end before the change is complete.
    waits_for: BTreeSet<OperationId>,
}

impl Fence {
    /// Returns true if a session with this identity may access the object. During a change, both
    /// the old and the new list must allow the access: a session that only the old list admits is
    /// refused immediately, and a session that only the new list admits is refused until the change
    /// is complete.
    fn allows(&self, fence_id: &FenceId) -> bool {
        let next = self.change.as_ref().map(|change| &change.next);
        self.list.allows(fence_id) && next.is_none_or(|next| next.allows(fence_id))
    }
}

impl FenceTable {
    /// Creates an empty table.
    #[must_use]
    pub fn new(limits: FenceLimits) -> Self {
        Self {
            limits,
            objects: BTreeMap::new(),
            changing: Vec::new(),
            draining: 0,
            bytes: 0,
            actions: VecDeque::new(),
            next_store: 0,
            counters: FenceCounters::default(),
        }
    }

    /// Restores the lists that were stored before a restart. It must be called before the first
    /// session starts.
    ///
    /// # Errors
    /// [`FenceRestoreError`] if not all records can be kept. The server must not start then.
    pub fn restore(
        &mut self,
        records: impl IntoIterator<Item = FenceRecord>,
    ) -> Result<(), FenceRestoreError> {
        for FenceRecord { object, fence_ids } in records {
            let list = match FenceList::new(&fence_ids) {
                Ok(list) if !list.is_open() => list,
                _ => return Err(FenceRestoreError::Empty(object)),
            };
            if self.objects.contains_key(&object) {
                return Err(FenceRestoreError::Twice(object));
            }
            self.check_room(&object, &list).map_err(|_| FenceRestoreError::TooMany(object))?;
            self.bytes += list.bytes();
            self.objects.insert(object, Fence { list, change: None });
        }
        Ok(())
    }

    /// Returns true if no object has a fencing list or a pending change. This costs one load and
    /// one comparison.
    #[inline]
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.objects.is_empty()
    }

    /// Returns true if the file or its file system has a fencing list or a pending change of the
    /// list.
    #[must_use]
    pub fn covers(&self, file: &FileHandle) -> bool {
        let around = [FencedObject::File(*file), FencedObject::FileSystem(file.fs())];
        around.iter().any(|object| self.objects.contains_key(object))
    }

    /// Checks whether a session may start an operation on a file.
    ///
    /// # Errors
    /// ACCES if the file or its file system is fenced and the list does not admit the session's
    /// fence identity.
    #[inline]
    pub fn enter(&mut self, fence_id: &FenceId, file: &FileHandle) -> Result<(), Fault> {
        if self.is_idle() { Ok(()) } else { self.judge(fence_id, file) }
    }

    fn judge(&mut self, fence_id: &FenceId, file: &FileHandle) -> Result<(), Fault> {
        let around = [FencedObject::File(*file), FencedObject::FileSystem(file.fs())];
        let mut fences = around.iter().filter_map(|object| self.objects.get(object));
        if fences.all(|fence| fence.allows(fence_id)) {
            Ok(())
        } else {
            self.counters.fenced_out += 1;
            Err(Fault::Fenced)
        }
    }

    /// Reports that an operation has ended, was aborted, or has lost its session. A call without a
    /// preceding `enter` has no effect.
    #[inline]
    pub fn leave(&mut self, operation: OperationId) {
        if self.draining != 0 {
            self.note_departure(operation);
        }
    }

    #[cold]
    fn note_departure(&mut self, operation: OperationId) {
        for index in (0..self.changing.len()).rev() {
            let object = self.changing[index];
            let change = self.change_mut(&object);
            if change.waits_for.remove(&operation) && change.waits_for.is_empty() {
                self.draining -= 1;
                self.settle(object);
            }
        }
    }

    /// Reports that an operation continues under another id. Changes that wait for `from` now wait
    /// for `to` instead.
    #[inline]
    pub fn pass_on(&mut self, from: OperationId, to: OperationId) {
        if self.draining != 0 {
            self.rename(from, to);
        }
    }

    #[cold]
    fn rename(&mut self, from: OperationId, to: OperationId) {
        for index in 0..self.changing.len() {
            let object = self.changing[index];
            let change = self.change_mut(&object);
            if change.waits_for.remove(&from) {
                change.waits_for.insert(to);
            }
        }
    }

    /// Returns the list of an object (GET_FENCING_LIST). It is empty if every session may access
    /// the object. While a change is pending, this is the list before the change.
    ///
    /// # Errors
    /// NOT_AUTHORIZED if the caller may not read the list (draft 6.4.1).
    pub fn list(
        &self,
        object: &FencedObject,
        authority: FenceAuthority,
    ) -> Result<&[FenceId], Fault> {
        if !authority.extends_to(object) {
            return Err(Fault::NotAuthorized);
        }
        Ok(self.objects.get(object).map_or(&[], |fence| fence.list.ids()))
    }

    /// Starts a change of a list (SET_FENCING_LIST). `running` must iterate over every operation
    /// between its `enter` and its `leave`, fenced or not, except this request. Sessions that the
    /// new list leaves out cannot start operations from now on. [`FenceTable::poll_action`] reports
    /// when the change is complete. Returns the number of operations that must end first; see
    /// [`FenceTable::waits_for`].
    ///
    /// # Errors
    /// NOT_AUTHORIZED; INVAL (see the table in `fences/mod.rs`); DELAY while a change of the
    /// object's list, or too many changes, are pending; RESOURCE if a limit is reached. On an error
    /// nothing is changed.
    pub fn set<'a>(
        &mut self,
        request: FenceRequest,
        change: &FenceChange<'_>,
        authority: FenceAuthority,
        running: impl IntoIterator<Item = RunningOperation<'a>>,
    ) -> Result<usize, Fault> {
        let next = match self.check_change(change, authority) {
            Ok(next) => next,
            Err(status) => {
                self.counters.refused += 1;
                return Err(status);
            }
        };
        let object = change.object;
        let waits_for: BTreeSet<_> = running
            .into_iter()
            .filter(|running| object.covers(running.file) && !next.allows(running.fence_id))
            .map(|running| running.operation)
            .collect();
        let waits = waits_for.len();
        self.draining += u32::from(waits != 0);
        self.counters.drained += waits as u64;
        self.bytes += next.bytes();
        self.changing.push(object);
        // The list is stored even if it equals the old list, because after a failed change it is
        // not certain what stable storage contains.
        let store = Some(self.store(object, next.ids()));
        self.objects.entry(object).or_default().change =
            Some(Change { request, next, store, waits_for });
        Ok(waits)
    }

    fn check_change(
        &self,
        change: &FenceChange<'_>,
        authority: FenceAuthority,
    ) -> Result<FenceList, Fault> {
        if !authority.extends_to(&change.object) {
            return Err(Fault::NotAuthorized);
        }
        if change.fence_ids.len() > self.limits.ids_per_list_max as usize {
            return Err(Fault::Limit);
        }
        let fence = self.objects.get(&change.object);
        if fence.is_some_and(|fence| fence.change.is_some())
            || self.changing.len() >= self.limits.changes_max as usize
        {
            return Err(Fault::WouldWait);
        }
        let open = FenceList::default();
        let list = fence.map_or(&open, |fence| &fence.list);
        let next = list.after(change.access, change.update, change.fence_ids)?;
        self.check_room(&change.object, &next)?;
        Ok(next)
    }

    /// Checks that the limits allow one more fencing list. An object's old list is counted until
    /// the new list is in force.
    fn check_room(&self, object: &FencedObject, list: &FenceList) -> Result<(), Fault> {
        let objects = self.objects.len() + usize::from(!self.objects.contains_key(object));
        let fits = objects <= self.limits.lists_max as usize
            && list.ids().len() <= self.limits.ids_per_list_max as usize
            && self.bytes + list.bytes() <= self.limits.bytes_max as usize;
        // A fence can be removed even if the table is full.
        if fits || list.is_open() { Ok(()) } else { Err(Fault::Limit) }
    }

    /// Returns the operations that a change waits for. The server may abort operations that are
    /// only parked; for each of them it must still call `leave`.
    pub fn waits_for(&self, request: FenceRequest) -> impl Iterator<Item = OperationId> + '_ {
        self.changing
            .iter()
            .filter_map(|object| self.objects[object].change.as_ref())
            .filter(move |change| change.request == request)
            .flat_map(|change| change.waits_for.iter().copied())
    }

    /// Reports that a record is on stable storage, or that storing it has failed. After a failure
    /// the change fails with IO, and the previous list is in force again. The server must make sure
    /// that it finds the previous record at its next start.
    pub fn stored(&mut self, id: FenceStoreId, is_stable: bool) {
        let found = self.changing.iter().copied().find(|object| {
            self.objects[object].change.as_ref().is_some_and(|change| change.store == Some(id))
        });
        let Some(object) = found else { return };
        if is_stable {
            self.change_mut(&object).store = None;
            self.settle(object);
        } else {
            self.withdraw(object, Fault::Io);
            self.tidy(object);
        }
    }

    /// Reports that a file was deleted. Its fencing list is removed, and a pending change of the
    /// list fails with STALE.
    pub fn file_removed(&mut self, file: &FileHandle) {
        let object = FencedObject::File(*file);
        if self.is_idle() || !self.objects.contains_key(&object) {
            return;
        }
        if self.changing.contains(&object) {
            self.withdraw(object, Fault::Stale);
        }
        let fence = self.objects.remove(&object).unwrap_or_default();
        self.bytes -= fence.list.bytes();
        // The record is erased even if there was only a pending change, whose record may already be
        // on stable storage.
        self.store(object, &[]);
    }

    /// Removes and returns the next action. The server must call this after every other call, until
    /// the result is `None`.
    pub fn poll_action(&mut self) -> Option<FenceAction> {
        self.actions.pop_front()
    }

    /// Iterates over all fencing lists, for the operator.
    pub fn iter(&self) -> impl Iterator<Item = FenceInformation<'_>> {
        self.objects.iter().map(|(&object, fence)| FenceInformation {
            object,
            fence_ids: fence.list.ids(),
            change: fence.change.as_ref().map(|c| (c.next.ids(), c.waits_for.len())),
        })
    }

    /// Returns the present values of the counters and gauges.
    #[must_use]
    pub fn counters(&self) -> FenceCounters {
        FenceCounters {
            objects: self.objects.len() as u32,
            bytes: self.bytes as u64,
            changing: self.changing.len() as u32,
            draining: self.draining,
            ..self.counters
        }
    }

    fn store(&mut self, object: FencedObject, fence_ids: &[FenceId]) -> FenceStoreId {
        let id = FenceStoreId(self.next_store);
        self.next_store += 1;
        let record = FenceRecord { object, fence_ids: fence_ids.into() };
        self.actions.push_back(FenceAction::Store { id, record });
        id
    }

    fn change_mut(&mut self, object: &FencedObject) -> &mut Change {
        let fence = self.objects.get_mut(object);
        fence.and_then(|fence| fence.change.as_mut()).expect("a changing object has a change")
    }

    /// Completes a change of a fencing list if the change no longer waits for anything.
    fn settle(&mut self, object: FencedObject) {
        let change = self.change_mut(&object);
        if change.store.is_some() || !change.waits_for.is_empty() {
            return;
        }
        if let Some(change) = self.end_change(object) {
            let fence = self.objects.entry(object).or_default();
            self.bytes -= fence.list.bytes();
            fence.list = change.next;
            self.counters.completed += 1;
            self.actions.push_back(FenceAction::Completed { request: change.request });
        }
        self.tidy(object);
    }

    /// Cancels a pending change, which fails with this fault. Afterwards the object's entry may
    /// contain neither a list nor a change.
    fn withdraw(&mut self, object: FencedObject, fault: Fault) {
        if let Some(change) = self.end_change(object) {
            self.bytes -= change.next.bytes();
            self.draining -= u32::from(!change.waits_for.is_empty());
            self.counters.failed += 1;
            self.actions.push_back(FenceAction::Failed { request: change.request, fault });
        }
    }

    fn end_change(&mut self, object: FencedObject) -> Option<Change> {
        self.changing.retain(|&other| other != object);
        self.objects.get_mut(&object)?.change.take()
    }

    /// Removes the entry of an object that has neither a fencing list nor a pending change.
    fn tidy(&mut self, object: FencedObject) {
        let is_over = |fence: &Fence| fence.list.is_open() && fence.change.is_none();
        if self.objects.get(&object).is_some_and(is_over) {
            self.objects.remove(&object);
        }
    }
}
