//! Handles the results of jobs, the work from other reactors, and timers.
//!
//! Invariant: the reactor's thread itself executes no job of a kind that has recently waited for a
//! disk.

use std::time::Duration;

use dafs_files::defect::Defect;
use dafs_store::StoreError;
use dafs_store::cache::Progress;
use dafs_types::Status;

use crate::handoff::Handoff;
use crate::moving::stalls::hurry::Transfers;
use crate::moving::stalls::in_turns;
use crate::moving::sums::{SumDone, SumJob, Summed};
use crate::pool::jobs::{Done, Job};
use crate::reactor::{BUSY_PAUSE, Reactor};
use crate::reply_to::TaskId;
use crate::task::{Task, Wait, Work, WriteSource};
use crate::waiting::fencing::draining::UnderWay;

impl Reactor<'_> {
    /// Handles the results of finished jobs. Results of jobs that are submitted meanwhile wait for
    /// the next turn, so that a turn ends. Each result wakes the reactor, so there is a next turn.
    pub(crate) fn take_done(&mut self) {
        for _ in 0..self.shared.pool.results_max() {
            let Some(done) = self.shared.pool.take() else { return };
            self.on_done(done);
        }
    }

    /// Handles the work that other reactors have left in this reactor's mailbox.
    #[inline]
    pub(crate) fn take_handoffs(&mut self) {
        if !self.own.is_alone {
            self.take_all_handoffs();
        }
    }

    /// Sends the messages that other reactors have left for this reactor's connections. Called
    /// before this reactor sends new replies, because replies must be sent in the order in which
    /// their credits were granted.
    pub(crate) fn send_for_others(&mut self) {
        let reactor = self.own.number;
        // The receives for the credits of a reply must be posted before the reply is sent.
        while let Some(endpoint) = self.shared.handoffs.next_owed(reactor) {
            self.owe_receives(endpoint);
        }
        self.shared.channels.pay_receives(&mut self.own.interface);
        while let Some((endpoint, message)) = self.shared.handoffs.next_message(reactor) {
            self.send(endpoint, &message);
        }
    }

    fn take_all_handoffs(&mut self) {
        self.send_for_others();
        let reactor = self.own.number;
        while let Some(work) = self.shared.handoffs.next_work(reactor) {
            self.follow_up();
            self.settle();
            match work {
                Handoff::Resume(tasks, error) => self.resume_in_order(tasks, error),
                Handoff::TakeUp { to, kept, told, may_search } => {
                    self.resume_request_in(to, kept, told, may_search);
                }
                Handoff::Chain(chain) => self.shared.waiting.chains().note_ready(chain),
                Handoff::LockReady => self.report_lock_ready(),
                Handoff::Guest(to, result) => self.report_to_guest(to, result),
                Handoff::Done(done) => self.on_done(*done),
            }
        }
        while let Some(endpoint) = self.shared.handoffs.next_broken(reactor) {
            self.give_up(endpoint);
        }
    }

    fn on_done(&mut self, done: Done) {
        if let Done::Login { endpoint, .. } | Done::Token { endpoint, .. } = &done
            && !self.own.has(*endpoint)
        {
            let reactor = endpoint.owner();
            return self.shared.handoffs.leave(reactor, Handoff::Done(Box::new(done)));
        }
        let progress = match done {
            Done::Filled(done) => self.shared.cache.on_filled(done),
            Done::Flushed(done) => self.shared.cache.on_flushed(done),
            Done::Synced(done) => self.shared.cache.on_synced(done),
            Done::Sized(done) => self.shared.cache.on_sized(done),
            Done::Ranged(task, done) => return self.on_ranged(task, *done),
            Done::Cleared(done) => {
                self.shared.cache.on_cleared(done);
                return self.clear_ahead();
            }
            Done::Ledger(done) => return self.on_ledger_done(done),
            Done::Undo(done) => return self.files().on_undo_done(done),
            Done::Login { endpoint, outcome } => return self.on_login(endpoint, outcome),
            Done::Token { endpoint, outcome } => return self.on_token(endpoint, *outcome),
            Done::LookedUp(done) => return self.on_looked_up(*done),
            Done::Summed(done) => return self.on_summed(done),
            Done::RemovedClosed => return self.shared.afterwards.on_removed_closed(),
            Done::Searched => return self.on_searched(),
        };
        self.on_progress(progress);
    }

    /// Retries all tasks that wait for this file or for cache space, and starts the flushes that
    /// are due.
    #[inline]
    pub(crate) fn on_progress(&mut self, progress: Progress) {
        if self.shared.tasks.await_progress() {
            self.pass_on(progress);
        }
        if self.shared.cache.wants_jobs() {
            if self.shared.cache.wants_flush() {
                self.flush_due();
            }
            self.clear_ahead();
        }
    }

    fn pass_on(&mut self, progress: Progress) {
        let [for_file, for_room] = self.shared.tasks.woken_by(progress.file);
        let for_file = self.clients_in_turns(for_file);
        self.resume_in_order(for_file, progress.error);
        // These tasks may belong to other files, so they do not get this file's error.
        let for_room = self.clients_in_turns(for_room);
        self.resume_in_order(for_room, None);
    }

    /// Executes the next steps of the tasks that waited for the same event, in order, although
    /// perhaps only the first can continue. At the first task whose connection belongs to another
    /// reactor, hands this task and all later tasks over to that reactor, so that the order is
    /// kept.
    fn resume_in_order(&mut self, mut waiting: Vec<TaskId>, error: Option<StoreError>) {
        for place in 0..waiting.len() {
            let task = self.shared.tasks.get(waiting[place]);
            let over = task.map(Task::moves_over).filter(|over| !self.own.has(*over));
            if let Some(over) = over
                && self.own.defect != Some(Defect::StepOthersTasks)
            {
                if error.is_none() && self.still_awaits_end(waiting[place]) {
                    continue;
                }
                let rest = waiting.split_off(place);
                return self.shared.handoffs.leave(over.owner(), Handoff::Resume(rest, error));
            }
            self.resume(waiting[place], error);
        }
    }

    /// Handles an append that is the next to run but whose connection belongs to another reactor.
    /// Reserves the end of the file for the append if that is possible, or else keeps the append's
    /// position in the queue. Otherwise appends that arrive at this reactor could overtake the
    /// append every time. Returns true if the append still waits for the end of the file.
    fn still_awaits_end(&mut self, id: TaskId) -> bool {
        let is_before_its_end = |task: &Task| match &task.work {
            Work::Write(task) => {
                let is_looked_at = !matches!(
                    task.source,
                    WriteSource::Sealed { .. } | WriteSource::Fetched { .. }
                );
                task.writing.is_append && !task.writing.has_place && is_looked_at
            }
            _ => false,
        };
        if !self.shared.tasks.get(id).is_some_and(is_before_its_end) {
            return false;
        }
        let Some(mut task) = self.shared.tasks.take(id) else { return false };
        let has_end = match &mut task.work {
            Work::Write(write) => self.files().claim_end(&mut write.writing),
            _ => true,
        };
        let wait = match task.work.file().filter(|_| !has_end) {
            Some(file) => Wait::File(file),
            None => Wait::Reactor,
        };
        self.shared.tasks.park(id, task, wait);
        !has_end
    }

    /// Orders tasks that wait for the same event, so that many requests of one client do not delay
    /// the few of another client. Sessions take turns, and so do the holders of limits (local users
    /// or addresses).
    fn clients_in_turns(&self, waiting: Vec<TaskId>) -> Vec<TaskId> {
        let endpoint_of = |id| self.shared.tasks.get(id).map(|task| task.reply_to.endpoint);
        let first = waiting.first().and_then(|id| endpoint_of(*id));
        if waiting.iter().all(|id| endpoint_of(*id) == first) {
            return waiting;
        }
        let sessions = in_turns(waiting, endpoint_of);
        in_turns(sessions, |id| {
            endpoint_of(id).map(|endpoint| self.shared.channels.holder_of(endpoint))
        })
    }

    /// Executes a job on this thread if it is likely to be quick, otherwise submits it to the pool.
    /// Returns true if the job was executed here.
    pub(crate) fn run_or_submit(&mut self, job: Job) -> bool {
        let done = self.shared.pool.do_or_submit(job, self.shared.life.now());
        let is_done = done.is_some();
        if let Some(done) = done {
            self.on_done(done);
        }
        is_done
    }

    /// Runs the timers that are checked every tenth of a second.
    pub(crate) fn tick(&mut self) {
        self.shared.meter.note_turned_away(self.own.interface.turned_away());
        self.shared.cache.on_tick(self.shared.life.now());
        self.flush_due();
        for handle in self
            .shared
            .afterwards
            .release_removed(&*self.shared.whole_store, self.shared.life.now())
        {
            self.files().note_unnamed(&handle);
        }
        self.shared.afterwards.close_small(&mut self.shared.pool, &self.shared.whole_store);
        for endpoint in self
            .shared
            .channels
            .leaving(|since| since.after(LEAVE_PATIENCE) <= self.shared.life.now())
        {
            self.give_up(endpoint);
        }
        let actions = self.shared.sessions.on_tick(&mut self.shared.filer, self.shared.life.now());
        self.shared.channels.know_all(&self.shared.sessions);
        for (id, reason) in actions.close {
            tracing::info!(?reason, "a connection is closed");
            self.give_up_channel(id);
        }
        for closed in actions.released {
            self.files().release_open(&closed);
        }
        self.apply_succession();
        self.note_forgotten();
        self.hurry_fences();
        let transfers = Transfers {
            tasks: &self.shared.tasks,
            loans: &self.shared.loans,
            cache: &self.shared.cache,
            keeps_undo: self.shared.ledger.as_ref().is_some_and(|ledger| ledger.undo.is_at_work()),
            is_crowded: self.shared.batches.is_crowded(),
        };
        let late = self.shared.channels.stalls().late(&transfers, self.shared.life.now());
        self.shared.channels.break_off(late);
        self.tick_delegations();
        self.shared.entrance.logins().tick(self.shared.life.now());
        self.shared.entrance.logins().give(&mut self.shared.pool, self.shared.life.now());
        self.shared.meter.on_tick();
        self.shared.show_itself();
    }

    /// Submits a job that fills memory with zeroes before the cache needs it.
    fn clear_ahead(&mut self) {
        if let Some(job) = self.shared.cache.poll_clear() {
            self.shared.pool.submit(Job::Clear(job));
        }
    }

    /// Starts the flushes that are due, up to the number that the pool can execute at one time.
    pub(crate) fn flush_due(&mut self) {
        while self.shared.pool.under_way() < POOL_QUEUE_MAX {
            let Some(job) = self.shared.cache.poll_flush() else { break };
            self.shared.pool.submit(Job::Flush(job));
        }
    }

    /// Writes all dirty data to the files before the server ends.
    pub(crate) fn write_everything_back(&mut self) {
        // A client that has disconnected will reclaim no state from the next server, so its state
        // is released.
        for endpoint in self.shared.channels.leaving(|_| true) {
            self.on_broken(endpoint);
        }
        self.shared.pool.begin_turn(self.own.number);
        self.shared.cache.flush_all();
        while let Some(job) = self.shared.cache.poll_flush() {
            let done = self.shared.pool.run_here(Job::Flush(job));
            self.on_done(done);
            self.take_done();
        }
        self.push_ledger();
        while self.shared.pool.under_way() > 0 {
            self.own.interface.wait(1, Some(BUSY_PAUSE));
            self.take_done();
            self.push_ledger();
        }
    }

    /// Submits a job that computes checksums for a task, which waits for them.
    pub(crate) fn submit_sum(&mut self, job: SumJob) {
        self.shared.pool.submit(Job::Sum(Box::new(job)));
    }

    /// Passes the computed checksums to the task that waits for them.
    pub(crate) fn on_summed(&mut self, done: SumDone) {
        let SumDone { task: id, result } = done;
        match self.shared.tasks.get_mut(id).map(|task| &mut task.work) {
            Some(Work::Write(write)) => {
                if let WriteSource::Fetched { sum, .. } = &mut write.source {
                    let first = |summed: Vec<Summed>| summed.first().map(|summed| summed.sum);
                    *sum = Some(result.and_then(|all| first(all).ok_or(Status::ServerFault)));
                }
            }
            Some(Work::SealedBatch(sealed)) => sealed.note_summed(result),
            _ => return,
        }
        self.resume(id, None);
    }

    // ---- fences -----------------------------------------------------------------------

    pub(crate) fn under_way(&self) -> UnderWay<'_> {
        UnderWay {
            channels: &self.shared.channels,
            cache: &self.shared.cache,
            tasks: &self.shared.tasks,
            loans: &self.shared.loans,
            journaled: self.shared.waiting.on_record(),
            direct_reads: self.shared.loans.files_given(),
        }
    }

    /// Wakes every task that waits for a file or for cache space and was fenced out.
    pub(crate) fn wake_barred(&mut self) {
        let parked: Vec<TaskId> = self.shared.tasks.iter().map(|(id, _)| id).collect();
        for id in parked {
            // Resuming the previous task may have ended other tasks or started new ones.
            let Some(task) = self.shared.tasks.get(id) else { continue };
            let (answer, mut files) = (task.reply_to, task.work.files());
            if files.any(|file| self.is_barred(answer, file)) && self.shared.tasks.unlist(id) {
                self.resume(id, None);
            }
        }
    }

    /// Does the work on fencing lists that the filer has requested.
    #[inline]
    pub(crate) fn pump_fences(&mut self) {
        while let Some(action) = self.shared.filer.poll_fence_action() {
            let ended = self.shared.waiting.act_on_fence(
                &mut self.shared.filer,
                &mut self.shared.ledger,
                action,
            );
            if let Some((ticket, outcome)) = ended {
                self.report(ticket, outcome);
            }
        }
    }

    /// Breaks the connections that have delayed a change of a fencing list for too long.
    pub(crate) fn hurry_fences(&mut self) {
        let (under_way, now) = (self.under_way(), self.shared.life.now());
        for endpoint in
            self.shared.waiting.changes_of_fences().overdue(&self.shared.filer, &under_way, now)
        {
            tracing::warn!(
                ?endpoint,
                "a fenced client does not finish its transfers; its connection is broken"
            );
            self.give_up(endpoint);
        }
    }
}

/// How long after DISCONNECT the server waits before it breaks a connection that the client has not
/// closed.
const LEAVE_PATIENCE: Duration = Duration::from_secs(2);
/// The maximum number of flushes that the pool executes at one time.
const POOL_QUEUE_MAX: usize = 32;
