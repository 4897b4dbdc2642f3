//! Gives operations on files access to the reactor's components, and handles the notices that
//! operations put into the queue.

use std::sync::Arc;

use dafs_dat::{EndpointId, ServingInterface};
use dafs_filer::Party;
use dafs_files::caller::{Caller, Identity};
use dafs_files::outcome::{Ended, Outcome};
use dafs_files::undo::gate::{keeps_undo, undo_seen};
use dafs_files::undo::seen::UndoSeen;
use dafs_files::writing::Writing;
use dafs_files::{FileJob, Files, Notice};
use dafs_ops::LockSpan;
use dafs_sessions::{ChannelEnd, ChannelId};
use dafs_store::cache::CachedFile;
use dafs_types::{Credentials, FileHandle, Status};
use dafs_wire::Request;

use crate::direct_reads::DirectReads;
use crate::guests::table::GuestNotice;
use crate::pool::jobs::Job;
use crate::reactor::Reactor;
use crate::reply_to::ReplyTo;
use crate::session::back::BackRequest;
use crate::task::{WriteSource, WriteTask};
use crate::waiting::fencing::touched;

impl Reactor<'_> {
    /// Borrows the components that operations on files need.
    #[inline]
    pub(crate) fn files(&mut self) -> Files<'_> {
        self.files_and_givers().0
    }

    /// Borrows the components that operations on files need, and the table of files that are handed
    /// over to clients.
    #[inline]
    pub(crate) fn files_and_givers(
        &mut self,
    ) -> (Files<'_>, (&mut DirectReads, &mut ServingInterface)) {
        let (opened, delegations, lock_waits, ends) = self.shared.holdings.parts();
        let files = Files {
            filer: &mut self.shared.filer,
            cache: &mut self.shared.cache,
            opened,
            delegations,
            lock_waits,
            ledger: &mut self.shared.ledger,
            ends,
            under_way: self.shared.tasks.under_way(),
            notices: self.shared.afterwards.notices(),
            boot: self.shared.life.boot(),
            now: self.shared.life.now(),
        };
        (files, (self.shared.loans.files(), &mut self.own.interface))
    }

    /// Returns the identity of the sender of a request.
    #[inline]
    pub(crate) fn identity_of(&self, answer: ReplyTo) -> Arc<Identity> {
        match self.shared.channels.get(answer.endpoint) {
            Some(channel) if !answer.is_acting => channel.who.clone(),
            Some(channel) => match self.shared.sessions.acting_for(channel.id, answer.stream) {
                Some(other) => Arc::new(channel.who.acting_for(other)),
                None => Arc::new(channel.who.acting_for(&Credentials::nobody())),
            },
            None => match self.shared.channels.guests().get(answer.endpoint) {
                Some(guest) => guest.who.clone(),
                None => Arc::new(self.shared.entrance.unauthenticated()),
            },
        }
    }

    /// Returns the caller of a request: its identity and its client.
    ///
    /// # Errors
    /// BAD_SESSION if the connection has ended.
    #[inline]
    pub(crate) fn caller(&self, to: ReplyTo) -> Result<Caller, Status> {
        let party = self.party_of(to)?;
        Ok(Caller { who: self.identity_of(to), party })
    }

    /// Returns the identity under which the filer handles a request.
    ///
    /// # Errors
    /// BAD_SESSION if the connection has ended.
    #[inline]
    pub(crate) fn party_of(&self, to: ReplyTo) -> Result<Party, Status> {
        self.shared.channels.party_of(to.endpoint).ok_or(Status::BadSession)
    }

    /// Returns true if undo data must be kept for at least one file. The check costs a load and a
    /// comparison.
    #[inline]
    pub(crate) fn keeps_undo(&self) -> bool {
        keeps_undo(&self.shared.ledger)
    }

    /// Returns the current state of undo data, so that a caller can find out later whether it has
    /// changed.
    #[inline]
    pub(crate) fn undo_seen(&self) -> UndoSeen {
        undo_seen(&self.shared.ledger)
    }

    /// Advances every rollback and every clone as far as possible. Called between events, because
    /// each rollback or clone waits for an event.
    #[inline]
    pub(crate) fn push_undo(&mut self) {
        if self.shared.ledger.as_ref().is_some_and(|ledger| ledger.undo.is_at_work())
            && self.files().push_undo()
        {
            self.flush_due();
        }
    }

    /// Handles the notices that operations on files have left.
    #[inline]
    pub(crate) fn act_on_notices(&mut self) {
        while let Some(notice) = self.shared.afterwards.next_notice() {
            self.act_on_notice(notice);
        }
    }

    #[cold]
    fn act_on_notice(&mut self, notice: Notice) {
        match notice {
            Notice::LockReady(waiter) if waiter.is_of_locker() => self.report_lock_ready(),
            Notice::LockFree { client, owner, handle: file, word } => {
                self.notify_guest(client, GuestNotice::LockFree { owner, file, word });
            }
            Notice::LockReady(waiter) => {
                let endpoint =
                    waiter.fence().and_then(|fence| self.shared.channels.endpoint_under(fence));
                let Some(endpoint) = endpoint else { return };
                let LockSpan { file, state, offset, length } = waiter.span();
                // The message is only a hint. A client that does not receive it requests the lock
                // again anyway.
                let _ = self.tell(endpoint, BackRequest::LockReady { file, state, offset, length });
            }
            Notice::Resume(task) => self.resume(task, None),
            Notice::Do(job) => match *job {
                FileJob::Undo(task) => self.shared.pool.submit(Job::Undo(task)),
                // A fill is always given to the pool: if it failed here, the request would submit
                // it again, in an endless loop.
                FileJob::Fill(job) => self.shared.pool.submit(Job::Fill(job)),
                FileJob::Flush(job) => drop(self.run_or_submit(Job::Flush(job))),
                FileJob::Sync(job) => drop(self.run_or_submit(Job::Sync(job))),
            },
            Notice::Moved(progress) => self.on_progress(progress),
            Notice::RolledBack { id, after } => {
                for to in self.shared.waiting.journaled().end_rollback(id) {
                    self.report(to, Outcome { result: Ok(Ended::Locked), after });
                }
            }
        }
    }

    // ---- ends of connections ----------------------------------------------------------

    /// Cleans up after a connection that has ended. The filer decides whether the session's state
    /// is released too.
    pub(crate) fn on_broken(&mut self, endpoint: EndpointId) {
        if let Some(channel) = self.shared.channels.remove(endpoint) {
            let end =
                if channel.closing.is_some() { ChannelEnd::Orderly } else { ChannelEnd::Lost };
            for closed in self.shared.sessions.channel_closed(
                &mut self.shared.filer,
                channel.id,
                end,
                self.shared.life.now(),
            ) {
                self.files().release_open(&closed);
            }
            if self.own.has(endpoint) {
                self.own.interface.deregister(channel.inbox.key());
            }
            self.shared.meter.add_departed(channel.peer.transport, channel.traffic);
            if let Some(session) = channel.batch_session {
                for to in self.shared.batches.end_session(session, self.shared.life.now()) {
                    self.abandon(to);
                }
            }
            self.end_back(&channel);
            self.shared.entrance.logins().forget(endpoint);
            self.drop_waiting(endpoint, channel.party.fence);
            self.shared.loans.files().end_of(&mut self.shared.filer, endpoint);
            self.files().act_on_locks();
            for orphan in self.shared.sessions.take_orphaned_channels() {
                self.give_up_channel(orphan);
            }
        }
        if self.own.has(endpoint) {
            self.own.interface.release(endpoint);
        }
        self.note_forgotten();
        self.retry_queries();
    }

    /// Schedules a connection to be broken after the current event.
    pub(crate) fn give_up(&mut self, endpoint: EndpointId) {
        self.shared.channels.give_up(endpoint);
    }

    /// Schedules the connection of a filer's channel to be broken after the current event.
    pub(crate) fn give_up_channel(&mut self, id: ChannelId) {
        if let Some(endpoint) = self.shared.channels.endpoint_of(id) {
            self.give_up(endpoint);
        }
    }

    // ---- incarnations of clients ------------------------------------------------------

    /// Releases the state that the previous incarnations of restarted clients still hold.
    #[cold]
    pub(crate) fn apply_succession(&mut self) {
        let released = self.shared.filer.take_released();
        self.files().act_on_locks();
        for closed in &released {
            self.files().release_open(closed);
        }
        for channel in self.shared.sessions.take_condemned() {
            if let Some(endpoint) = self.shared.channels.endpoint_of(channel) {
                self.know(endpoint);
                self.give_up(endpoint);
            }
        }
    }

    /// Updates the server's copy of a connection's identity from its session.
    pub(crate) fn know(&mut self, endpoint: EndpointId) {
        if let Some(channel) = self.shared.channels.get_mut(endpoint) {
            channel.know(&self.shared.sessions);
        }
    }

    // ---- checking fences --------------------------------------------------------------

    /// Checks whether the fencing lists allow a request to access the objects that it names.
    ///
    /// # Errors
    /// ACCES if the request's session is fenced out.
    #[cold]
    pub(crate) fn check_fences(
        &mut self,
        answer: ReplyTo,
        request: &Request<'_>,
    ) -> Result<(), Status> {
        self.check_fences_of(answer, touched(request))
    }

    /// Checks whether the fencing lists allow a request to access these objects.
    ///
    /// # Errors
    /// See [`Reactor::check_fences`].
    pub(crate) fn check_fences_of(
        &mut self,
        answer: ReplyTo,
        touched: [Option<&FileHandle>; 2],
    ) -> Result<(), Status> {
        touched.into_iter().flatten().try_for_each(|file| self.check_fence(answer, file))
    }

    /// Checks whether the fencing lists allow a request to access an object that the request has
    /// found by name.
    ///
    /// # Errors
    /// See [`Reactor::check_fences`].
    pub(crate) fn check_fence(&mut self, answer: ReplyTo, file: &FileHandle) -> Result<(), Status> {
        if !self.shared.filer.has_fences() {
            return Ok(());
        }
        let party = self.party_of(answer).unwrap_or_default();
        Ok(self.shared.filer.check_fence(party.fence, file)?)
    }

    /// Returns true if a request was fenced out of a file while it waited.
    pub(crate) fn is_barred(&mut self, answer: ReplyTo, file: CachedFile) -> bool {
        self.shared.filer.has_fences() && {
            let by = self.party_of(answer).ok();
            self.files().is_barred(by, file)
        }
    }

    /// Returns true if a write was fenced out while it waited. A write whose bytes have all arrived
    /// counts as executed. An append of which some bytes have arrived continues, because appends
    /// are atomic. If the result is true, the write's staging memory is released here; the caller
    /// releases the rest.
    pub(crate) fn is_write_barred(&mut self, answer: ReplyTo, task: &WriteTask) -> bool {
        let Writing { file, length, done, is_append, .. } = task.writing;
        let (is_whole, is_begun_append) = (done == length, is_append && done > 0);
        if is_whole || is_begun_append || !self.is_barred(answer, file) {
            return false;
        }
        if let WriteSource::Sealed { staging: Some(staging), .. } = &task.source {
            self.own.interface.deregister(staging.region.key);
        }
        true
    }
}
