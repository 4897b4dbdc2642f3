//! Attributes and access: GETATTR, SETATTR, GET_FSATTR, ACCESS, VERIFY, NVERIFY.
//!
//! Invariant: the attributes of a cached file describe its cached content, including dirty data.

use std::sync::Arc;

use dafs_filer::{FileOperation, IoKind};
use dafs_ops::{AttributeSet, Fault, Partial, Set, SetAttributes};
use dafs_store::cache::{CachedFile, Listener};
use dafs_store::{
    Altered, AttributeChanges, Attributes, ExtraChanges, Extras, ExtrasWanted, FileVersion,
    StoreError,
};
use dafs_types::{
    AccessMask, FileAttributes, FileHandle, SetTime, ShareAccess, Stability, StateId, limits,
};

use crate::Files;
use crate::caller::{Caller, Identity};
use crate::delegations::Told;
use crate::left::{RemainingWork, SizeReply, SizeTask, TimesTask};
use crate::outcome::{Ended, NotDone, Now, Outcome};
use crate::settings::changes_in;

impl Files<'_> {
    /// Returns the attributes of an object, including the effects of dirty data in the cache.
    pub fn attributes_of(
        &mut self,
        by: &Caller,
        handle: &FileHandle,
    ) -> Result<Attributes, StoreError> {
        self.attributes_and_space(by, handle).map(|(attributes, _)| attributes)
    }

    /// Returns the attributes of an object like [`Files::attributes_of`], and the number of bytes
    /// that it occupies in the file system without the dirty data in the cache.
    pub fn attributes_and_space(
        &mut self,
        by: &Caller,
        handle: &FileHandle,
    ) -> Result<(Attributes, u64), StoreError> {
        let mut attributes = match self.opened.file(handle) {
            // An open file is used even if it has no names any more.
            Some(file) if by.store().shows(handle) => file.attributes()?,
            Some(_) | None => by.store().attributes(by, handle)?,
        };
        let space_used = attributes.space_used;
        if let Some(file) = self.cache.find(handle) {
            self.cache.revalidate(file, FileVersion::from(&attributes));
            self.cache.overlay(file, &mut attributes);
        }
        Ok((attributes, space_used))
    }

    /// Returns the attributes of an object, including requested attributes that need separate calls
    /// of the store. `told` contains the attributes that the holder of a delegation has reported
    /// since the request arrived.
    pub fn attributes(
        &mut self,
        by: &Caller,
        handle: &FileHandle,
        extras: ExtrasWanted,
        told: Option<Told>,
    ) -> Result<FileAttributes, NotDone> {
        if let Some(touch) = Told::touch(told) {
            self.check_delegations(by, handle, touch)?;
        }
        let mut full = self.attributes_of(by, handle)?.to_file_attributes(*handle);
        Told::overlay(told, &mut full);
        if extras.is_any() {
            add_extras(&mut full, by.store().extras(by, handle, extras)?);
        }
        Ok(full)
    }

    // ---- setting --------------------------------------------------------------------

    /// Sets attributes of an object (SETATTR).
    pub fn set_attributes(
        &mut self,
        by: &Caller,
        ask: &SetAttributes,
    ) -> Result<Now<Outcome>, NotDone> {
        // The request may have waited, so the fences are checked again.
        self.check_fence(by, &ask.file)?;
        let (changes, extras) = changes_in(&ask.attributes)?;
        let truncate = changes.size == Some(0);
        self.check_delegations(by, &ask.file, FileOperation::SetAttributes { truncate })?;
        let set = AttributeSet::of(&ask.attributes);
        match changes.size {
            Some(size) => self.set_with_size(by, ask, size, (changes, extras), set),
            None => self.set_without_size(by, &ask.file, (changes, extras), set),
        }
    }

    fn set_without_size(
        &mut self,
        by: &Caller,
        handle: &FileHandle,
        (mut changes, extras): (AttributeChanges, ExtraChanges),
        set: AttributeSet,
    ) -> Result<Now<Outcome>, NotDone> {
        let times = self.times_behind_data(handle, &mut changes);
        if !changes.is_empty() || extras.is_empty() && times.is_none() {
            let altered = by.store().set_attributes(by, handle, &changes);
            self.note_set(handle, altered, changes.time_modify)?;
        }
        let mut added = Ok(());
        if !extras.is_empty() {
            added = by.store().set_extras(by, handle, &extras);
            self.revalidate(handle);
        }
        Ok(match (added, times) {
            (Ok(()), Some((file, times))) => {
                Now::later(self.set_times(by.who.clone(), (*handle, file, false), times, set))
            }
            (Ok(()), None) => Now::Done(all_set(set)),
            (Err(error), _) => Now::Done(set_in_part(error, set.without(EXTRAS))),
        })
    }

    fn set_with_size(
        &mut self,
        by: &Caller,
        ask: &SetAttributes,
        size: u64,
        (mut changes, extras): (AttributeChanges, ExtraChanges),
        set: AttributeSet,
    ) -> Result<Now<Outcome>, NotDone> {
        let (state, handle) = (ask.state, &ask.file);
        if size > limits::FILE_OFFSET_MAX {
            return Err(Fault::TooBig.into());
        }
        self.check_locks(state, handle, (size, limits::FILE_OFFSET_MAX - size), IoKind::Write)?;
        if state == StateId::ANONYMOUS {
            let granted = by.store().access(by, handle, AccessMask::MODIFY)?;
            if granted != AccessMask::MODIFY {
                return Err(Fault::Access.into());
            }
            self.check_unopened(by, handle, IoKind::Write)?;
        } else {
            self.check_state(by, state, handle, IoKind::Write)?;
        }
        if !extras.is_empty() {
            // The order matters. The list is set after the mode, because setting the mode changes
            // the list. Both are set before the size, because a write clears set-id bits. The times
            // are set last.
            let (mode, uid, gid) = (changes.mode.take(), changes.uid.take(), changes.gid.take());
            let first = AttributeChanges { mode, uid, gid, ..AttributeChanges::default() };
            if !first.is_empty() {
                by.store().set_attributes(by, handle, &first)?;
            }
            by.store().set_extras(by, handle, &extras)?;
        }
        let Some(file) = self.cache.find(handle) else {
            // The file is not cached, so the store sets the other attributes, including the size.
            by.store().set_attributes(by, handle, &changes)?;
            return Ok(Now::Done(all_set(set)));
        };
        changes.size = None;
        // A cached file that no client has open has no descriptor to set a size with, so it is
        // opened here. The holder of a delegation may have closed it.
        let borrowed = self.opened.record(state).is_none();
        let file = match borrowed {
            true => self.borrow_file(by, handle, ShareAccess::Write)?.file,
            false => file,
        };
        Ok(Now::later(RemainingWork::Size(SizeTask {
            who: by.who.clone(),
            file,
            borrowed,
            handle: *handle,
            size,
            undo_seen: self.undo_seen(),
            rest: changes,
            set,
            reply: SizeReply::SetAttributes,
        })))
    }

    /// Removes from `changes` the times, and a mode with set-id bits, if dirty data of the file
    /// must still be written, because writing the data changes these attributes. The caller sets
    /// the removed attributes when the data is in the file.
    fn times_behind_data(
        &self,
        handle: &FileHandle,
        changes: &mut AttributeChanges,
    ) -> Option<(CachedFile, AttributeChanges)> {
        let sets_id = changes.mode.is_some_and(|mode| mode & SET_ID_BITS != 0);
        if changes.time_modify.is_none() && !sets_id {
            return None;
        }
        let file = self.cache.find(handle).filter(|file| !self.cache.is_written(*file))?;
        let mode = if sets_id { changes.mode.take() } else { None };
        let (time_access, time_modify) = (changes.time_access.take(), changes.time_modify.take());
        let behind =
            AttributeChanges { mode, time_access, time_modify, ..AttributeChanges::default() };
        Some((file, behind))
    }

    fn set_times(
        &mut self,
        who: Arc<Identity>,
        (handle, file, borrowed): (FileHandle, CachedFile, bool),
        times: AttributeChanges,
        set: AttributeSet,
    ) -> RemainingWork {
        // This request does not depend on the data, so it does not report lost data.
        let listener = Listener::Nobody;
        let ticket = self.cache.commit_begin(file, 0, 0, Stability::Unstable, listener);
        RemainingWork::Times(TimesTask { who, file, borrowed, handle, ticket, times, set })
    }

    /// Calls `set`, which changes attributes on behalf of a client, and records the new version of
    /// the file. Without the record, the cache would attribute the change to another program and
    /// discard the cached data.
    pub fn note_set(
        &mut self,
        handle: &FileHandle,
        altered: Result<Altered, StoreError>,
        set: Option<SetTime>,
    ) -> Result<(), StoreError> {
        let Altered { before, after } = match altered {
            Ok(altered) => altered,
            Err(error) => {
                // Some of the attributes may have been set.
                self.revalidate(handle);
                return Err(error);
            }
        };
        if let Some(file) = self.cache.find(handle) {
            self.cache.note_altered(file, ((&before).into(), (&after).into()), set);
        }
        Ok(())
    }

    /// Discards the cached data of a file if the present version of the file shows that another
    /// program has changed it.
    pub fn revalidate(&mut self, handle: &FileHandle) {
        if let (Some(file), Some(open)) = (self.cache.find(handle), self.opened.file(handle))
            && let Ok(version) = open.version()
        {
            self.cache.revalidate(file, version);
        }
    }

    /// Sets the attributes of a SETATTR other than the size. Returns the remaining work, which then
    /// owns the reference to the file, or `None` if no work remains.
    pub fn set_rest(&mut self, task: &SizeTask) -> Result<Option<RemainingWork>, StoreError> {
        let who = &task.who;
        let mut rest = task.rest;
        let times = self.times_behind_data(&task.handle, &mut rest);
        if !rest.is_empty() {
            let altered = who.store().set_attributes(who, &task.handle, &rest);
            self.note_set(&task.handle, altered, rest.time_modify)?;
        }
        Ok(times.map(|(file, times)| {
            let place = (task.handle, file, task.borrowed);
            self.set_times(who.clone(), place, times, task.set)
        }))
    }
}

/// Returns the outcome of a SETATTR that has set all these attributes.
pub fn all_set(set: AttributeSet) -> Outcome {
    Outcome::done(Ended::Set(Set { set }))
}

/// Returns the outcome of a SETATTR that has failed after setting these attributes.
pub fn set_in_part(error: StoreError, set: AttributeSet) -> Outcome {
    Outcome::refused(error, Partial::Set { set })
}

/// Copies the extra attributes into `full`.
pub fn add_extras(full: &mut FileAttributes, extras: Extras) {
    full.named_attributes = extras.named_attributes;
    full.acl = extras.acl;
    full.mime_type = extras.mime_type;
}

/// The set that contains only attribute 9, the size.
pub const SIZE: AttributeSet = AttributeSet::one(9);
/// The access control list and the MIME type. The store sets them with a separate call.
const EXTRAS: AttributeSet = AttributeSet::one(22).with(AttributeSet::one(23));
/// The two times and the mode, which may have to be set after dirty data is written.
pub const BEHIND_DATA: AttributeSet =
    AttributeSet::one(13).with(AttributeSet::one(19)).with(AttributeSet::one(6));
/// The set-user-id and set-group-id bits of a mode.
const SET_ID_BITS: u32 = 0o6000;
