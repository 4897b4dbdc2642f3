//! Changes of fencing lists, and passing fences.

use dafs_filer::{FenceChange, FenceId, FencedObject, Principal};
use dafs_ops::Fence;
use dafs_store::cache::CachedFile;
use dafs_types::{FileHandle, Status};
use dafs_wire::Request;

use super::draining::UnderWay;
use super::touched;
use crate::caller::Caller;
use crate::files::writing::Writing;
use crate::outcome::{Ended, Outcome};
use crate::reactor::Reactor;
use crate::reply_to::{ReplyTo, TaskId};
use crate::task::{WriteSource, WriteTask};

impl Reactor {
    /// Begins a change of a list; whoever asked is told under `ticket` when it holds.
    pub(crate) fn set_fencing_list(
        &mut self,
        ticket: ReplyTo,
        by: &Caller,
        is_trusted: bool,
        ask: &Fence<'_>,
    ) -> Result<(), Status> {
        let object = FencedObject::named(&ask.file, ask.object);
        let authority = self.files().fence_authority(by, is_trusted, &ask.file)?;
        let text = |id| std::str::from_utf8(id).map_err(|_| Status::Inval);
        let fence_ids = ask.fence_ids.iter().map(|id| FenceId::new(text(id)?));
        let fence_ids = fence_ids.collect::<Result<Vec<_>, _>>()?;
        let (access, update) = (ask.access, ask.update);
        let change = FenceChange { object, access, update, fence_ids: &fence_ids };
        // What came before this request is where it will be looked for.
        self.settle();
        let name = self.waiting.fencing().next_name();
        let running = self.under_way().requests();
        let waits = self.filer.set_fencing_list(name, &change, authority, &running)?;
        tracing::info!(?object, ?access, ?update, ids = fence_ids.len(), waits, "fence changes");
        if let Some(told) = self.waiting.fencing().begin(ticket, self.life.now()) {
            self.report(told, Outcome::done(Ended::Fenced));
        }
        self.loans.files_given().recall(&mut self.filer, &object, self.life.now());
        // Whoever hears that the list holds finds them called back.
        self.pump_delegations();
        self.wake_barred();
        self.pump_fences();
        Ok(())
    }

    /// Whether a client is trusted as far as fences go: by the rules, or as the superuser, by
    /// the kernel's word or by proof. Whoever is taken for the superuser without any is not.
    ///
    /// What it asks for somebody else, it asks with that one's authority: a gateway that passes
    /// its users' requests on shall not lend them its own.
    pub(crate) fn may_fence_file_system(&self, answer: ReplyTo) -> bool {
        let Some(channel) = self.channels.get(answer.endpoint) else { return false };
        let is_proven = match self.sessions.principal(channel.id) {
            Some(Principal::LocalUser(_) | Principal::User(_) | Principal::Gss(_)) => true,
            Some(Principal::Anonymous) | None => false,
        };
        let is_superuser = is_proven && channel.who.is_superuser();
        !answer.is_acting && (is_superuser || self.sessions.is_trusted(channel.id))
    }

    // ---- passing --------------------------------------------------------------------

    /// Whether a request may touch what it names.
    ///
    /// # Errors
    /// ACCES if its session is fenced out.
    #[cold]
    pub(crate) fn pass(&mut self, answer: ReplyTo, request: &Request<'_>) -> Result<(), Status> {
        self.pass_all(answer, touched(request))
    }

    /// The same for a request that touches these objects.
    ///
    /// # Errors
    /// As [`Reactor::pass`].
    pub(crate) fn pass_all(
        &mut self,
        answer: ReplyTo,
        touched: [Option<&FileHandle>; 2],
    ) -> Result<(), Status> {
        touched.into_iter().flatten().try_for_each(|file| self.pass_file(answer, file))
    }

    /// Whether a request may touch an object that it has found.
    ///
    /// # Errors
    /// As [`Reactor::pass`].
    pub(crate) fn pass_file(&mut self, answer: ReplyTo, file: &FileHandle) -> Result<(), Status> {
        if !self.filer.has_fences() {
            return Ok(());
        }
        let party = self.party_of(answer).unwrap_or_default();
        Ok(self.filer.pass_fence(party.fence, file)?)
    }

    /// Whether a request that waited may not go on.
    pub(crate) fn is_barred(&mut self, answer: ReplyTo, file: CachedFile) -> bool {
        self.filer.has_fences() && {
            let by = self.party_of(answer).ok();
            self.files().is_barred(by, file)
        }
    }

    /// The same for a write. One that is all there has happened, and an append of which a
    /// part is there goes on: it is all or nothing. Of one that may not go on nothing is
    /// held back but what every write holds.
    pub(crate) fn is_write_barred(&mut self, answer: ReplyTo, task: &WriteTask) -> bool {
        let Writing { file, length, done, is_append, .. } = task.writing;
        let (is_whole, is_begun_append) = (done == length, is_append && done > 0);
        if is_whole || is_begun_append || !self.is_barred(answer, file) {
            return false;
        }
        if let WriteSource::Sealed { staging: Some(staging), .. } = &task.source {
            self.interface.deregister(staging.region.key);
        }
        true
    }

    // ---- draining -------------------------------------------------------------------

    fn under_way(&self) -> UnderWay<'_> {
        UnderWay {
            channels: &self.channels,
            cache: &self.cache,
            tasks: &self.tasks,
            loans: &self.loans,
            journaled: self.waiting.on_record(),
            direct_reads: self.loans.files_given(),
        }
    }

    /// Has everything that waits for a file or for room, and may not go on, find that out.
    fn wake_barred(&mut self) {
        let parked: Vec<TaskId> = self.tasks.iter().map(|(id, _)| id).collect();
        for id in parked {
            // Others may have ended, or begun, with the one before.
            let Some(task) = self.tasks.get(id) else { continue };
            let (answer, Some(file)) = (task.reply_to, task.work.file()) else { continue };
            if self.is_barred(answer, file) && self.tasks.unlist(id) {
                self.resume(id, None);
            }
        }
    }

    /// Does what the filer wants done about fences.
    #[inline]
    pub(crate) fn pump_fences(&mut self) {
        while let Some(action) = self.filer.poll_fence_action() {
            let ended = self.waiting.act_on_fence(&mut self.filer, &mut self.ledger, action);
            if let Some((ticket, outcome)) = ended {
                self.report(ticket, outcome);
            }
        }
    }

    /// Breaks the connections of those who keep a change waiting for too long.
    pub(crate) fn hurry_fences(&mut self) {
        let (under_way, now) = (self.under_way(), self.life.now());
        for endpoint in self.waiting.changes_of_fences().overdue(&self.filer, &under_way, now) {
            tracing::warn!(?endpoint, "fenced out with a transfer that does not end: parted");
            self.give_up(endpoint);
        }
    }
}
