//! Opens, downgrades and closes files.
//!
//! Invariant: each state id has one record, which keeps the file open in the cache. The record ends
//! with the state id.

use std::sync::Arc;

use dafs_filer::{
    Closed, DelegationKind, FileOperation, GrantedDelegation, IoKind, OpenArguments, Party,
};
use dafs_journal::RecordNumber;
use dafs_ops::{
    AttributeSet, Claim, Close, Creation, Delegated, Delegation, Downgrade, Fault, Open, Opened,
    Partial, Walked,
};
use dafs_store::cache::{CachedFile, Listener};
use dafs_store::{AttributeChanges, ExtraChanges, File, FileVersion, StoreError};
use dafs_types::{
    AccessMask, ChangeInfo, CreateMode, FileHandle, ObjectType, SetAttributes, SpaceLimit,
    Stability, StateId, limits,
};
use smallvec::SmallVec;

use crate::Files;
use crate::caller::Caller;
use crate::delegations::FreshOpen;
use crate::left::{CommitTask, Ending, RemainingWork, SizeReply, SizeTask, Then};
use crate::opened::OpenRecord;
use crate::outcome::{Ended, NotDone, Now, Outcome};
use crate::settings::changes_in;

/// A file that was found or created. It is open in the store but not in the filer yet.
struct Found {
    file: Arc<dyn File>,
    directory: ChangeInfo,
    component_count: u32,
    /// True if the existing file must be truncated after the open is granted.
    truncate: bool,
    unlinked: bool,
    /// True if the request reclaims an open from before a restart.
    is_reclaim: bool,
    /// The version of the file when the store found or created it. `None` if it is not known.
    version: Option<FileVersion>,
}

impl Found {
    /// Creates the value for a file that existed already.
    fn existing(file: Arc<dyn File>, component_count: u32) -> Self {
        Self {
            file,
            directory: ChangeInfo::default(),
            component_count,
            truncate: false,
            unlinked: false,
            is_reclaim: false,
            version: None,
        }
    }
}

impl Files<'_> {
    /// Opens a file, and creates it if the request says so (OPEN). `can_recall` is true if the
    /// server can ask the client to return a delegation. Returns the results, and the number of the
    /// record that must be durable before the reply.
    pub fn open(
        &mut self,
        by: &Caller,
        can_recall: bool,
        ask: &Open<'_>,
    ) -> Result<Now<(Opened, RecordNumber)>, NotDone> {
        if ask.claim != Claim::Previous {
            // The check comes before a file is created that the client could not open.
            self.filer.check_grace(by.party.client, self.now)?;
        }
        let found = self.find_to_open(by, ask)?;
        let (access, deny, handle) = (ask.access, ask.deny, found.file.handle());
        let truncate = found.truncate;
        self.check_delegations(by, &handle, FileOperation::Open { access, deny, truncate })?;
        let key = dafs_filer::FileKey(found.file.key().0);
        if let Claim::DelegateCurrent { state, .. } = ask.claim {
            self.filer.covers_open(by.party.client, state, key, access, deny)?;
        }
        let version = match found.version {
            Some(version) => version,
            None => found.file.version()?,
        };
        let cached = self.cache.open(found.file.clone(), version)?;
        let opened = match self.filer.open(by.party.client, &arguments(ask, key, &found), self.now)
        {
            Ok(opened) => opened,
            Err(fault) => {
                if found.is_reclaim {
                    tracing::info!(%fault, "an open could not be reclaimed");
                }
                self.cache.close(cached);
                return Err(fault.into());
            }
        };
        let after = self.record_client(by.party.client);
        let fresh = FreshOpen { file: &found.file, cached, handle, access };
        let delegation = match ask.claim {
            // An NFS client reclaims its delegation together with its open.
            Claim::Null { .. } | Claim::Previous => Ok(self.delegate(by, can_recall, &fresh)),
            Claim::DelegatePrevious { .. } => {
                self.claim_delegation(by, can_recall, &fresh).map(Some)
            }
            Claim::DelegateCurrent { .. } | Claim::CreateUnlinked => Ok(None),
        };
        if opened.reopened {
            // The filer has merged this open with an older open of the same owner. One CLOSE ends
            // both, so the cache must count only one.
            self.cache.close(cached);
        } else {
            let heard = self.losses_known_at_open(by.party, cached);
            let record = OpenRecord { handle, key: found.file.key(), file: cached, heard };
            self.opened.enter(opened.state_id, record, &found.file);
        }
        let delegation = match delegation {
            Ok(delegation) => delegation,
            Err(fault) => {
                if !opened.reopened {
                    self.undo_open(by.party, opened.state_id, None);
                }
                return Err(fault.into());
            }
        };
        let state = opened.state_id;
        let opened = Opened {
            file: handle,
            state,
            directory: found.directory,
            component_count: found.component_count,
            mandatory_locks: self.filer.config().locks.mandatory,
            delegation: delegation.as_ref().map(shown),
        };
        if !found.truncate {
            return Ok(Now::Done((opened, after)));
        }
        // The check uses the new open, so that locks of the same owner do not conflict.
        let reach = (0, limits::FILE_OFFSET_MAX);
        if let Err(fault) = self.check_locks(state, &handle, reach, IoKind::Write) {
            self.undo_open(by.party, state, opened.delegation.as_ref());
            return Err(fault.into());
        }
        Ok(Now::later(RemainingWork::Size(SizeTask {
            who: by.who.clone(),
            file: cached,
            borrowed: false,
            handle,
            size: 0,
            undo_seen: self.undo_seen(),
            rest: AttributeChanges::default(),
            set: AttributeSet::NONE,
            reply: SizeReply::Open(Box::new((opened, after))),
        })))
    }

    /// Finishes an open after its file was truncated. If the truncation has failed, the open ends.
    /// The client may have disconnected, which has ended the open.
    pub fn finish_open(
        &mut self,
        by: Option<Party>,
        (opened, after): &(Opened, RecordNumber),
        result: Result<(), StoreError>,
    ) -> Outcome {
        let Err(error) = result else {
            return Outcome { result: Ok(Ended::Opened(Box::new(*opened))), after: *after };
        };
        if let Some(by) = by {
            self.undo_open(by, opened.state, opened.delegation.as_ref());
        }
        Outcome::failed(error)
    }

    /// Ends an open of a client that waits for nothing. No client gets errors of writing.
    pub fn end_open(&mut self, by: Party, state: StateId) {
        self.undo_open(by, state, None);
        self.act_on_locks();
    }

    /// Ends an open that was granted, because a later step of the request has failed.
    fn undo_open(&mut self, by: Party, state: StateId, delegation: Option<&Delegation>) {
        if let Some(delegation) = delegation {
            // The delegation was granted just now and is in no reply yet.
            let _ = self.filer.return_delegation(by.client, delegation.state, self.now);
        }
        let Some(record) = self.opened.record(state) else { return };
        if let Ok(closed) =
            self.filer.close(by.client, state, dafs_filer::FileKey(record.key.0), self.now)
        {
            self.release_open(&closed);
        }
    }

    fn find_to_open(&mut self, by: &Caller, ask: &Open<'_>) -> Result<Found, NotDone> {
        match &ask.claim {
            Claim::DelegateCurrent { .. } | Claim::DelegatePrevious { .. }
                if ask.creation.is_any() =>
            {
                Err(Fault::Invalid.into())
            }
            Claim::Null { path }
            | Claim::DelegateCurrent { path, .. }
            | Claim::DelegatePrevious { path } => {
                // The list is built in place, because moving it would copy it.
                let mut names = SmallVec::<[&[u8]; 8]>::new();
                names.extend(path.iter());
                self.find(by, &names, ask).map_err(NotDone::from)
            }
            Claim::CreateUnlinked => Ok(make_unlinked(by, ask)?),
            Claim::Previous => {
                let file = by.store().open(by, &ask.from, ask.access)?;
                Ok(Found { is_reclaim: true, ..Found::existing(file, 0) })
            }
        }
    }

    /// Looks up the path, and opens or creates the file in the store.
    fn find(&mut self, by: &Caller, names: &[&[u8]], ask: &Open<'_>) -> Result<Found, OpenFailure> {
        let Some((last, way)) = names.split_last() else {
            return Err(missed(ask.from, 0, Fault::Invalid));
        };
        if names == [b"."] && !ask.creation.is_any() {
            return self.find_itself(by, ask);
        }
        let walked = self.walk(by, &ask.from, way);
        let reached = (walked.handle, walked.component_count);
        if let Some(error) = walked.error {
            return Err(missed(reached.0, reached.1, error));
        }
        match ask.creation.is_any() {
            true => self.make(by, reached, last, ask),
            false => self.find_existing(by, reached, last, ask),
        }
    }

    fn find_existing(
        &mut self,
        by: &Caller,
        (directory, count): (FileHandle, usize),
        name: &[u8],
        ask: &Open<'_>,
    ) -> Result<Found, OpenFailure> {
        let failed = |error: StoreError| missed(directory, count, error);
        let component_count = u32::try_from(count + 1).unwrap_or(u32::MAX);
        if let Ok((file, version)) = by.store().open_entry(by, &directory, name, ask.access) {
            let denied = |_| failed(StoreError::Access);
            self.check_fence(by, &file.handle()).map_err(denied)?;
            // Using the version that the store has just returned saves a call of the store.
            let version = Some(version);
            return Ok(Found { version, ..Found::existing(file, component_count) });
        }
        // The path is looked up step by step, because the reply contains the number of components
        // found.
        let object = by.store().lookup(by, &directory, name).map_err(failed)?;
        self.check_fence(by, &object.handle).map_err(|_| failed(StoreError::Access))?;
        if object.attributes.kind == ObjectType::SymbolicLink {
            // The client reads the symbolic link and continues the lookup itself.
            return Err(missed(object.handle, count + 1, Fault::IsSymlink));
        }
        let file = by.store().open(by, &object.handle, ask.access).map_err(failed)?;
        Ok(Found::existing(file, component_count))
    }

    fn make(
        &mut self,
        by: &Caller,
        (directory, count): (FileHandle, usize),
        name: &[u8],
        ask: &Open<'_>,
    ) -> Result<Found, OpenFailure> {
        let failed = |error: StoreError| missed(directory, count, error);
        let refused = |fault: Fault| missed(directory, count, fault);
        let settings = ask.creation.attributes();
        let (mut changes, extras) = wanted(settings).map_err(failed)?;
        // An existing file is truncated through the cache, after the open is granted.
        let truncates = changes.size == Some(0);
        if truncates {
            changes.size = None;
        }
        let mode = mode_of(&ask.creation);
        let (created, file) = by
            .store()
            .create_file(by, &directory, name, mode, &changes, ask.access)
            .map_err(failed)?;
        // An existing file has not been changed yet, so the fence can be checked after the call.
        self.check_fence(by, &created.object.handle).map_err(|_| failed(StoreError::Access))?;
        if created.is_new && created.object.attributes.kind == ObjectType::NamedAttribute {
            // The handle of the new attribute may be that of a removed attribute that is still
            // open.
            self.note_name(&created.object.handle);
        }
        let is_changed = self
            .apply_creation_attributes(by, (&directory, name), &created, &extras)
            .map_err(refused)?;
        let truncate = truncates && !created.is_new;
        if truncate && !ask.access.writes() {
            let granted = by.store().access(by, &created.object.handle, AccessMask::MODIFY);
            if granted.map_err(failed)? != AccessMask::MODIFY {
                return Err(failed(StoreError::Access));
            }
        }
        let is_as_made = created.is_new && !is_changed;
        let version = is_as_made.then(|| FileVersion::from(&created.object.attributes));
        let component_count = u32::try_from(count + 1).unwrap_or(u32::MAX);
        let directory = created.change;
        Ok(Found { directory, truncate, version, ..Found::existing(file, component_count) })
    }

    /// Opens the object that the handle of the request names, without looking up a path
    /// (`docs/spec/gaps.md`, "Opens").
    fn find_itself(&mut self, by: &Caller, ask: &Open<'_>) -> Result<Found, OpenFailure> {
        self.check_fence(by, &ask.from).map_err(|_| missed(ask.from, 0, Fault::Access))?;
        let file = by.store().open(by, &ask.from, ask.access);
        let file = file.map_err(|error| missed(ask.from, 0, error))?;
        Ok(Found::existing(file, 1))
    }

    /// Reduces the access or deny mode of an open (OPEN_DOWNGRADE).
    pub fn open_downgrade(&mut self, by: Party, ask: &Downgrade) -> Result<(), Fault> {
        let Downgrade { file, state, access, deny, key } = *ask;
        let file = self.opened.key_of(state, &file);
        self.filer.open_downgrade(by.client, state, file, access, deny, key)
    }

    /// Ends an open (CLOSE). If auto-recovery locks end with the open, the changes under them are
    /// made stable first.
    pub fn close(&mut self, by: Party, ask: &Close) -> Result<Now<Outcome>, Fault> {
        if self.keeps_undo_of(&ask.file) {
            return self.end_undo(by, &ask.file, Ending::Close(*ask));
        }
        self.close_now(by, ask)
    }

    /// Returns the key of an open's file if a CLOSE has nothing to do except to end the open. The
    /// open may then end after the reply is sent. Returns `None` otherwise.
    pub fn is_plain_close(
        &mut self,
        by: Party,
        ask: &Close,
    ) -> Result<Option<dafs_filer::FileKey>, Fault> {
        if self.keeps_undo_of(&ask.file) {
            return Ok(None);
        }
        let Some(record) = self.opened.record(ask.state) else { return Ok(None) };
        let key = dafs_filer::FileKey(record.key.0);
        let is_plain = record.handle == ask.file && self.has_nothing_to_tell(record);
        Ok((is_plain && self.filer.closes_alone(by.client, ask.state, key)?).then_some(key))
    }

    /// Ends an open. The data written under it is flushed to the file.
    pub fn close_now(&mut self, by: Party, ask: &Close) -> Result<Now<Outcome>, Fault> {
        let key = self.opened.key_of(ask.state, &ask.file);
        let closed = self.filer.close(by.client, ask.state, key, self.now)?;
        let after = self.act_on_locks();
        let Some(record) = self.forget_open(&closed) else {
            return Err(Fault::BadState);
        };
        // When the reply to CLOSE is sent, local processes can see the written data, and the client
        // knows about errors. The data of a deleted file is not needed.
        let unlinked = closed.delete;
        if unlinked || self.has_nothing_to_tell(&record) {
            return Ok(Now::Done(self.finish_close(record.file, after, Ok(()))));
        }
        let listener = Listener::Who(record.heard);
        let ticket = self.cache.commit_begin(record.file, 0, 0, Stability::Unstable, listener);
        let (file, then) = (record.file, Then::Closed { after });
        Ok(Now::later(RemainingWork::Commit(CommitTask { ticket, file, borrowed: false, then })))
    }

    /// Returns true if all written data is in the file and all losses were reported to the open.
    fn has_nothing_to_tell(&self, record: &OpenRecord) -> bool {
        self.cache.is_written(record.file) && self.cache.losses(record.file) == record.heard
    }

    /// Finishes a CLOSE after the data that was written under the open was flushed to the file or
    /// lost.
    pub fn finish_close(
        &mut self,
        file: CachedFile,
        after: RecordNumber,
        result: Result<(), StoreError>,
    ) -> Outcome {
        self.cache.close(file);
        match result {
            Ok(()) => Outcome { result: Ok(Ended::Closed), after },
            Err(error) => Outcome::failed(error),
        }
    }

    /// Releases the file of an open that has ended, unless a request waits for the file's data to
    /// be written.
    pub fn release_open(&mut self, closed: &Closed) {
        if let Some(record) = self.forget_open(closed) {
            self.cache.close(record.file);
        }
    }

    /// Removes the record of a state id from the table of open files.
    fn forget_open(&mut self, closed: &Closed) -> Option<OpenRecord> {
        let record = self.opened.forget(closed.state_id)?;
        if closed.delete {
            self.filer.fenced_file_removed(&record.handle);
        }
        Some(record)
    }
}

/// Creates a file without a name.
fn make_unlinked(by: &Caller, ask: &Open<'_>) -> Result<Found, StoreError> {
    let (changes, extras) = wanted(ask.creation.attributes())?;
    let (object, file) = by.store().create_unlinked(by, &ask.from, &changes)?;
    by.store().set_extras(by, &object.handle, &extras)?;
    let version = extras.is_empty().then(|| FileVersion::from(&object.attributes));
    Ok(Found { unlinked: true, version, ..Found::existing(file, 0) })
}

/// Converts a new file's attributes to the form that the store takes.
fn wanted(
    settings: Option<&SetAttributes>,
) -> Result<(AttributeChanges, ExtraChanges), StoreError> {
    match settings {
        Some(settings) => changes_in(settings),
        None => Ok(Default::default()),
    }
}

fn mode_of(creation: &Creation) -> CreateMode {
    match *creation {
        Creation::NoCreate => CreateMode::NoCreate,
        Creation::Unchecked { .. } => CreateMode::Unchecked,
        Creation::Guarded { .. } => CreateMode::Guarded,
        Creation::Exclusive { verifier } | Creation::ExclusiveWithAttributes { verifier, .. } => {
            CreateMode::Exclusive(verifier)
        }
    }
}

fn arguments<'a>(ask: &Open<'a>, file: dafs_filer::FileKey, found: &Found) -> OpenArguments<'a> {
    OpenArguments {
        file,
        owner: ask.owner,
        access: ask.access,
        deny: ask.deny,
        key: ask.key,
        disposition: ask.disposition,
        unlinked: found.unlinked,
        is_reclaim: found.is_reclaim,
    }
}

/// Converts a delegation to the form in the results of OPEN.
fn shown(granted: &GrantedDelegation) -> Delegation {
    let GrantedDelegation { state_id: state, kind, recall, limit } = *granted;
    let delegated = match kind {
        DelegationKind::Read => Delegated::Read,
        DelegationKind::Write => Delegated::Write { limit: limit.unwrap_or(SpaceLimit::Size(0)) },
    };
    Delegation { state, recall, delegated }
}

/// The failure of an OPEN, with the progress of its path lookup.
struct OpenFailure {
    reached: Walked,
    fault: Fault,
}

fn missed(file: FileHandle, count: usize, why: impl Into<Fault>) -> OpenFailure {
    let component_count = u32::try_from(count).unwrap_or(u32::MAX);
    OpenFailure { reached: Walked { file, component_count }, fault: why.into() }
}

impl From<OpenFailure> for NotDone {
    fn from(missed: OpenFailure) -> Self {
        let OpenFailure { reached, fault } = missed;
        Self::partly(fault, Partial::Walked { reached })
    }
}
