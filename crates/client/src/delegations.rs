//! Reads files under delegations, caches them, and returns delegations.
//!
//! Invariant: a delegation that is not kept is returned immediately. When the server recalls a
//! delegation, the cached data is discarded before the delegation is returned
//! ([`crate::delegation_cache`]).

use std::rc::Rc;
use std::time::Duration;

use dafs_types::{CacheHint, FileHandle, ShareAccess, StateId, limits};
use dafs_wire::messages::{DelegReturn, GetAttributes};
use dafs_wire::{ByteOrder, Request, Response, decode_request};

use crate::buffer::Slice;
use crate::core::Core;
use crate::delegation_cache::{BLOCK, CacheFill, GrantOutcome};
use crate::error::Result;
use crate::file::File;
use crate::ids::SessionKey;
use crate::metadata::Metadata;
use crate::opens::Opened;
use crate::operation::Transferred;
use crate::requests::{Changed, changed_by};
use crate::result_sinks::Destination;
use crate::session::Session;
use crate::state::SessionState;
use crate::transfer::{TransferJob, TransferKind};
use crate::work::Pending;

impl Session {
    /// Returns the number of reads served at least partly from the delegation cache.
    #[must_use]
    pub fn delegated_reads(&self) -> u64 {
        let core = self.shared.borrow();
        core.sessions[self.key].delegated.as_ref().map_or(0, |delegated| delegated.hits())
    }

    /// Returns the number of delegated reads that this process made through its own file descriptor
    /// of a file on this host.
    #[must_use]
    pub fn direct_reads(&self) -> u64 {
        let core = self.shared.borrow();
        let delegated = core.sessions[self.key].delegated.as_ref();
        delegated.map_or(0, |delegated| delegated.direct_reads().get())
    }

    /// Opens the back-control channel so that the server can recall delegations, if the session
    /// uses delegations ([`SessionOptions::delegations`](crate::SessionOptions::delegations)). The
    /// blocking opens call this themselves; [`Session::open_async`] does not.
    pub fn prepare_delegations(&self) {
        let window = {
            let core = self.shared.borrow();
            match &core.sessions[self.key].delegated {
                Some(delegated) => delegated.window(),
                None => return,
            }
        };
        if self.listen().is_err() {
            // The channel could not be opened, so the session continues without delegations.
            self.shared.borrow_mut().sessions[self.key].delegated = None;
            return;
        }
        if window.is_zero() {
            let file = self.root;
            let wanted = dafs_wire::attributes::file_system::bits::ALL;
            let request = Request::GetFsAttr(GetAttributes { file, wanted });
            let lease = self.call(&request, |_, response| match response {
                Response::GetFsAttr(result) => Ok(result.attributes.file_system().lease_time),
                _ => Ok(None),
            });
            let lease = lease.ok().flatten().unwrap_or(0);
            let window = Duration::from_secs(u64::from(lease)) / 2;
            if let Some(delegated) = &mut self.shared.borrow_mut().sessions[self.key].delegated {
                delegated.set_window(window);
            }
        }
    }

    /// Records a delegation that the reply to an OPEN has granted. Returns true if the delegation
    /// is kept.
    pub(crate) fn take_delegation(
        &self,
        file: FileHandle,
        access: ShareAccess,
        granted: Option<(StateId, bool)>,
    ) -> Option<StateId> {
        let (delegation, is_recalled) = granted?;
        let mut core = self.shared.borrow_mut();
        core.take_delegation(self.key, file, access, delegation, is_recalled)
    }
}

impl File {
    /// Reads from the cache under the file's delegation, and fetches missing blocks. Returns `None`
    /// if the caller must send an ordinary READ.
    pub(crate) fn read_delegated(&self, bytes: &mut [u8], offset: u64) -> Option<Result<usize>> {
        let delegation = self.delegation()?;
        if offset > limits::FILE_OFFSET_MAX - bytes.len() as u64 {
            return None;
        }
        if let Some(read) = self.read_directly(bytes, offset) {
            return Some(Ok(read));
        }
        let mut done = 0;
        loop {
            let (copied, is_end) = self.copy_kept(&mut bytes[done..], offset + done as u64)?;
            done += copied;
            if is_end || done == bytes.len() {
                return Some(Ok(done));
            }
            let place = offset + done as u64;
            let from = place - place % BLOCK;
            let wanted = (place - from) as usize + bytes.len() - done;
            let wanted = wanted.next_multiple_of(BLOCK as usize).min(FETCH_MAX);
            let fetched = self.fetch(delegation, from, wanted)?;
            let behind = fetched.get((place - from) as usize..).unwrap_or(&[]);
            let there = behind.len().min(bytes.len() - done);
            bytes[done..done + there].copy_from_slice(&behind[..there]);
            done += there;
            if fetched.len() < wanted || done == bytes.len() {
                return Some(Ok(done));
            }
        }
    }

    fn copy_kept(&self, bytes: &mut [u8], offset: u64) -> Option<(usize, bool)> {
        let mut core = self.session().shared.borrow_mut();
        let delegated = core.sessions[self.session().key].delegated.as_mut()?;
        let is_held = |delegation| delegated.holds(&self.handle(), delegation);
        if !self.delegation().is_some_and(is_held) {
            // The delegation was recalled.
            self.note_delegation(None);
            return None;
        }
        Some(delegated.copy(&self.handle(), offset, bytes))
    }

    /// Reads whole blocks under the delegation's state id. Returns `None` if the server refuses the
    /// READ; the caller's ordinary READ then reports the reason.
    fn fetch(&self, delegation: StateId, offset: u64, wanted: usize) -> Option<Vec<u8>> {
        let (shared, key) = (&self.session().shared, self.session().key);
        let (slice, buffer) = self.stage_exactly(wanted).ok()?;
        let fill = shared.borrow().begin_fill(key, delegation)?;
        let opened = Rc::new(Opened::plain(self.handle(), delegation));
        let mut done = 0;
        let mut is_end = false;
        while done < slice.length && !is_end {
            let rest = slice.behind(done);
            let moved = match self.fetch_once(&opened, offset + u64::from(done), rest) {
                Ok(moved) => moved,
                Err(_) => {
                    let mut core = shared.borrow_mut();
                    core.give_back(key, &self.handle(), delegation);
                    return None;
                }
            };
            done += moved.length;
            is_end = moved.end_of_file;
            if moved.length == 0 && !is_end {
                return None;
            }
        }
        let mut bytes = vec![0; done as usize];
        buffer.read(0, &mut bytes);
        if let Some(delegated) = &mut shared.borrow_mut().sessions[key].delegated {
            delegated.keep(&self.handle(), fill, offset, &bytes, is_end);
        }
        Some(bytes)
    }

    fn fetch_once(&self, opened: &Rc<Opened>, offset: u64, slice: Slice) -> Result<Transferred> {
        let (shared, key) = (&self.session().shared, self.session().key);
        let job = TransferJob {
            file: opened.clone(),
            offset,
            kind: TransferKind::Read,
            length: slice.length,
            hint: CacheHint::default(),
        };
        let ticket = {
            let mut core = shared.borrow_mut();
            core.sessions.open(key)?;
            let ticket = core.sinks.transfers.make();
            core.submit(key, job, Some(slice), Destination::Waiter(ticket), 0)?;
            ticket
        };
        shared.turn_until(key, |core| core.sinks.transfers.take(ticket))
    }

    /// Returns the attributes cached under the file's delegation, if they are valid.
    pub(crate) fn kept_metadata(&self) -> Option<Metadata> {
        self.delegation()?;
        let mut core = self.session().shared.borrow_mut();
        let delegated = core.sessions[self.session().key].delegated.as_mut()?;
        delegated.metadata(&self.handle())
    }

    /// Fetches the file's attributes from the server, and caches them if possible.
    pub(crate) fn fetch_metadata(&self) -> Result<Metadata> {
        let (shared, key) = (&self.session().shared, self.session().key);
        let asked = self.delegation().and_then(|delegation| {
            let core = shared.borrow();
            core.begin_fill(key, delegation)
        });
        let found =
            self.session().run(self.session().metadata_async(self.handle(), self.path()))?;
        let mut core = shared.borrow_mut();
        if let (Some(fill), Some(delegated)) = (asked, core.sessions[key].delegated.as_mut()) {
            delegated.keep_metadata(&self.handle(), fill, &found);
        }
        Ok(found)
    }

    /// Discards the cached data of a file that is being closed.
    pub(crate) fn let_go(&self) {
        if let Some(delegation) = self.delegation() {
            let mut core = self.session().shared.borrow_mut();
            core.give_back(self.session().key, &self.handle(), delegation);
        }
    }
}

impl Core {
    fn take_delegation(
        &mut self,
        key: SessionKey,
        file: FileHandle,
        access: ShareAccess,
        delegation: StateId,
        is_recalled: bool,
    ) -> Option<StateId> {
        let taken = match &mut self.sessions[key].delegated {
            Some(delegated) => delegated.take(file, access, delegation, is_recalled),
            None => GrantOutcome::Unwanted,
        };
        match taken {
            GrantOutcome::Kept => return Some(delegation),
            GrantOutcome::GivenBack => {}
            GrantOutcome::Unwanted => self.return_delegation(key, delegation),
        }
        None
    }

    pub(crate) fn begin_fill(&self, key: SessionKey, delegation: StateId) -> Option<CacheFill> {
        let session = &self.sessions[key];
        let submits = !self.batches.submitted(key).is_empty();
        let mut channels =
            session.role.additional().into_iter().filter_map(|key| self.sessions.get(key));
        let is_quiet = !submits
            && !session.has_changes_under_way()
            && !channels.any(SessionState::has_changes_under_way);
        Some(session.delegated.as_ref()?.begin_fill(delegation, is_quiet))
    }

    fn give_back(&mut self, key: SessionKey, file: &FileHandle, delegation: StateId) {
        let Some(delegated) = &mut self.sessions[key].delegated else { return };
        if delegated.holds(file, delegation) {
            delegated.forget(file);
            self.return_delegation(key, delegation);
        }
    }

    pub(crate) fn return_delegation(&mut self, key: SessionKey, state: StateId) {
        // The reply is ignored. An error means that the session has ended, and with it its
        // delegations.
        let _ = self.send_ignoring_reply(key, &Request::DelegReturn(DelegReturn { state }));
    }

    /// Returns all delegations to the server, because the server can no longer recall them.
    pub(crate) fn return_all(&mut self, key: SessionKey) {
        let Some(delegated) = &mut self.sessions[key].delegated else { return };
        for delegation in delegated.forget_all() {
            self.return_delegation(key, delegation);
        }
    }

    /// Returns the delegations of the lost connection after the session has reconnected.
    pub(crate) fn return_owed(&mut self, key: SessionKey) {
        let Some(delegated) = &mut self.sessions[key].delegated else { return };
        for state in delegated.take_owed() {
            self.return_delegation(key, state);
        }
    }

    /// Handles BC_RECALL: discards cached data and then returns the delegation. A delegation that
    /// this client does not hold is returned too, because its grant may not have arrived yet.
    pub(crate) fn on_recall(&mut self, key: SessionKey, file: &FileHandle, delegation: StateId) {
        if let Some(delegated) = &mut self.sessions[key].delegated {
            delegated.recalled(file, delegation);
        }
        self.return_delegation(key, delegation);
    }
}

impl SessionState {
    /// Invalidates the cached data that a request may change, before the request is sent.
    #[inline]
    pub(crate) fn note_request(&mut self, request: &Request<'_>) {
        if let Some(delegated) = &mut self.delegated {
            match changed_by(request) {
                Changed::Nothing => {
                    if let Request::Lock(lock) = request {
                        delegated.note_lock(&lock.file);
                    }
                }
                Changed::File(file) => delegated.note_change(Some(file)),
                Changed::Anything => delegated.note_change(None),
            }
        }
    }

    /// Invalidates all cached data, before several requests are sent that may change files.
    #[inline]
    pub(crate) fn note_changes(&mut self) {
        if let Some(delegated) = &mut self.delegated {
            delegated.note_change(None);
        }
    }

    /// Returns true if a request in flight may change a file.
    fn has_changes_under_way(&self) -> bool {
        let writes = |kind: TransferKind| matches!(kind, TransferKind::Write(_));
        let changes = |message: &[u8]| match decode_request(ByteOrder::NATIVE, message) {
            Ok((_, request)) => !matches!(changed_by(&request), Changed::Nothing),
            Err(_) => true,
        };
        let in_flight = &self.in_flight;
        let is_pending = in_flight.pending().any(|pending| match pending {
            Pending::Transfer(transfer) => writes(transfer.job.kind),
            Pending::Call(call) => changes(&call.message),
            Pending::Member(_) | Pending::Recovery(_) => true,
            Pending::Ignored => false,
        });
        is_pending
            || in_flight.waiting_transfers().any(|transfer| writes(transfer.job.kind))
            || in_flight.waiting_calls().any(|call| changes(&call.message))
            || !in_flight.chains.is_empty()
            || self.role.holds_any()
            || self.recovery.as_ref().is_some_and(|machine| machine.has_work())
    }
}

/// The limit for the number of bytes fetched by one READ.
const FETCH_MAX: usize = 1 << 20;
