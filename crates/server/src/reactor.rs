//! The one thread that owns the server: events in, answers out.
//!
//! Invariant: nothing here blocks but the wait for events and name-space calls of the
//! store, which a local file system answers from its caches.

use std::sync::Arc;
use std::time::Duration;

use dafs_dat::{Completion, CompletionStatus, EndpointId, Event, Operation, ServingInterface};
use dafs_filer::Filer;
use dafs_files::holdings::Holdings;
use dafs_files::ledger::Ledger;
use dafs_sessions::Sessions;
use dafs_store::Store;
use dafs_store::cache::Cache;
use dafs_types::Moment;
use dafs_wire::ByteOrder;

use crate::access::accept::{Coming, Ways};
use crate::access::entrance::Entrance;
use crate::afterwards::{Afterwards, Closing, keep_begun};
use crate::batch::Batches;
use crate::channel::Channels;
use crate::life::Life;
use crate::meter::Meter;
use crate::meter::inspect::copy::Shown;
use crate::meter::stats::ServerStats;
use crate::moving::hits::Hits;
use crate::moving::stalls::Direction;
use crate::moving::transfer::{Cookie, Lent, Loan, Loans};
use crate::pool::jobs::Pool;
use crate::reply_to::ReplyTo;
use crate::task::Tasks;
use crate::waiting::Waiting;
use crate::waiting::fencing::operation_of_loan;

pub(crate) struct Reactor {
    pub(crate) interface: ServingInterface,
    pub(crate) filer: Filer,
    pub(crate) sessions: Sessions,
    pub(crate) cache: Cache,
    /// The store as it is. Clients enter it by their views ([`dafs_files::caller::Asker`]).
    pub(crate) whole_store: Arc<dyn Store>,
    pub(crate) pool: Pool,
    pub(crate) channels: Channels,
    pub(crate) tasks: Tasks,
    pub(crate) batches: Batches,
    pub(crate) loans: Loans,
    /// What clients hold of files.
    pub(crate) holdings: Holdings,
    /// Direct reads and writes under way; empty between turns.
    pub(crate) hits: Hits,
    /// Who is let in, and to what.
    pub(crate) entrance: Entrance,
    /// The way of requests through the journal, if there is one.
    pub(crate) ledger: Option<Ledger>,
    /// What time it is, and whether the server ends.
    pub(crate) life: Life,
    /// Requests that wait for others than the disk.
    pub(crate) waiting: Waiting,
    /// What requests come to.
    pub(crate) meter: Meter,
    /// What is done before anything else is looked at.
    pub(crate) afterwards: Afterwards,
}

impl Reactor {
    pub(crate) fn run(&mut self) {
        self.show_itself();
        while !self.life.is_over() {
            self.pool.note_owner();
            let idle = self.tasks.count() == 0
                && self.cache.stats().dirty_bytes == 0
                && !self.afterwards.has_removed();
            let pause = if idle { IDLE_PAUSE } else { BUSY_PAUSE };
            if self.batches.has_more() {
                self.interface.poll();
            } else {
                let due = self.batches.pause(self.life.now()).unwrap_or(pause);
                self.interface.wait(1, Some(pause.min(due)));
            }
            // Otherwise no time worth a look at the clock has passed since the last turn.
            if self.interface.has_slept() {
                self.life.pass_to(self.present());
            }
            self.turn();
            self.pass_time(self.present());
        }
    }

    /// The present moment, to the microsecond while there are batches, whose windows are that
    /// short.
    #[inline]
    pub(crate) fn present(&self) -> Moment {
        self.life.present(!self.batches.is_idle())
    }

    /// A turn, and what is due by time, at one moment.
    pub(crate) fn turn_at(&mut self, now: Moment) {
        self.life.pass_to(now);
        self.turn();
        self.pass_time(now);
    }

    /// Everything that has happened since the last wait.
    fn turn(&mut self) {
        self.batches.begin_turn();
        self.pool.begin_turn();
        loop {
            // Not as an event: it is built once and taken from where it is.
            if let Some(&Completion { endpoint, context, operation, status, length, .. }) =
                self.interface.first_completion()
            {
                let is_good = status == CompletionStatus::Success;
                if operation == Operation::Receive {
                    self.on_received(endpoint, length, is_good);
                    continue;
                }
                self.interface.pass_completion();
                self.follow_up();
                self.on_completion(context, is_good);
            } else if let Some(event) = self.interface.next_event() {
                self.on_event(event);
            } else {
                break;
            }
        }
        self.settle_hits();
        if self.afterwards.is_any() {
            self.interface.flush();
            self.follow_up();
        }
        self.take_done();
        // Who asks gets the answer first: most turns have nothing to do behind this.
        self.interface.flush();
        self.channels.pay_receives(&mut self.interface);
        self.push_on();
        while let Some(endpoint) = self.channels.next_given_up() {
            self.interface.disconnect(endpoint);
        }
        let Self { afterwards, interface, pool, whole_store, .. } = self;
        afterwards.close_removed_by(interface, pool, whole_store);
    }

    /// Does what is due by time. Behind a turn: who asks gets the answer first.
    fn pass_time(&mut self, now: Moment) {
        self.life.pass_to(now);
        if self.life.ticks() {
            self.tick();
            self.push_on();
        }
        self.pass_batch_time();
        if !self.afterwards.has_no_notices() {
            self.push_on();
        }
    }

    /// Goes on with everything that waits for nothing any more.
    #[inline]
    fn push_on(&mut self) {
        loop {
            self.act_on_notices();
            self.push_undo();
            self.pump_fences();
            self.pump_delegations();
            self.push_chains();
            self.push_batches();
            self.push_ledger();
            // Operations among them may have asked for more.
            if self.afterwards.has_no_notices() {
                return;
            }
        }
    }

    /// Does what waited for the replies to be out.
    #[inline]
    pub(crate) fn follow_up(&mut self) {
        if self.afterwards.is_any() {
            self.close_up();
            self.afterwards.keep_up(&mut self.sessions);
        }
    }

    fn close_up(&mut self) {
        if let Some(Closing { client, state, key }) = self.afterwards.take_closing()
            && let Ok(closed) = self.filer.close(client, state, key, self.life.now())
        {
            self.files().release_open(&closed);
        }
    }

    /// A request to write that is not over at once is under way from here on.
    #[inline]
    pub(crate) fn keep_begun(&mut self, to: ReplyTo) -> ReplyTo {
        keep_begun(&mut self.sessions, to)
    }

    fn on_event(&mut self, event: Event) {
        self.follow_up();
        self.settle();
        match event {
            // Those are taken first.
            Event::Completion(_) => {}
            Event::ConnectionRequest { pending, peer, private_data, .. } => {
                let Self { entrance, interface, filer, sessions, channels, life, .. } = self;
                let coming = Coming { pending, peer: &peer, private_data: &private_data };
                entrance.admit(
                    &mut Ways { interface, filer, sessions, channels },
                    &coming,
                    life.now(),
                );
            }
            Event::Established { .. } => {}
            Event::Rejected { endpoint, .. } => self.interface.release(endpoint),
            Event::Broken { endpoint, reason } => {
                tracing::debug!(?endpoint, %reason, "connection ended");
                self.on_broken(endpoint);
            }
        }
    }

    /// The first completion is a receive's.
    #[inline(always)]
    fn on_received(&mut self, endpoint: EndpointId, length: u32, is_good: bool) {
        let channel = self.channels.get_mut(endpoint);
        let Some(slot) =
            channel.and_then(|channel| self.interface.pass_message(&mut channel.inbox))
        else {
            // The channel has ended.
            return self.interface.pass_completion();
        };
        self.follow_up();
        if is_good {
            self.on_message(endpoint, slot, length);
        }
    }

    #[inline(always)]
    fn on_completion(&mut self, context: u64, is_good: bool) {
        match Cookie::unpack(context) {
            Cookie::Silent => {}
            cookie @ Cookie::Loan(_) => self.on_loan_done(cookie),
            Cookie::Task(task) => self.on_transfer_done(task, !is_good),
        }
    }

    /// The transport has read what was lent to it.
    #[inline]
    pub(crate) fn on_loan_done(&mut self, cookie: Cookie) {
        let Cookie::Loan(index) = cookie else { return };
        if let Some(Lent { endpoint, loan, length, .. }) = self.loans.take(index) {
            if self.channels.stalls().is_watching() {
                self.channels.stalls().note_moved((endpoint, Direction::Out), length);
            }
            match loan {
                Loan::Pin(pin) => self.cache.unpin(pin),
                Loan::Pins(pins) => {
                    for pin in pins {
                        self.cache.unpin(pin);
                    }
                }
                Loan::Staging(key) => self.interface.deregister(key),
            }
        }
        self.filer.leave_fence(operation_of_loan(index));
    }

    /// Makes a copy of the server for whoever waits for one.
    pub(crate) fn show_itself(&mut self) {
        if self.meter.is_looked_at() {
            let shown = Shown {
                filer: &self.filer,
                sessions: &self.sessions,
                channels: &self.channels,
                opened: self.holdings.opened(),
                ledger: self.ledger.as_ref(),
                meter: &self.meter,
                cache: &self.cache,
                stats: self.stats(),
                now: self.life.now(),
            };
            self.meter.window().show(|| shown.copy());
        }
    }

    pub(crate) fn stats(&self) -> ServerStats {
        ServerStats {
            channels: self.channels.count(),
            parked_requests: self.tasks.count(),
            chains: self.waiting.chain_count(),
            batched_requests: self.batches.request_count(),
            journaled_requests: self.waiting.on_record().under_way(),
            journal_records: self.ledger.as_ref().map_or(0, |ledger| ledger.last().0),
            undone_files: self.ledger.as_ref().map_or(0, |ledger| ledger.undo.file_count()),
            cloned_bytes: self.ledger.as_ref().map_or(0, |ledger| ledger.undo.cloned_bytes()),
            // One serves everything, and has nobody to tell.
            reactors: 1,
            reactor_messages: 0,
            requests: self.meter.request_count(),
            regions: self.interface.region_count(),
            loans: self.loans.count(),
            open_files: self.holdings.opened().file_count(),
            filer: self.filer.counters(),
            sessions: self.sessions.counters(),
            delegations: self.filer.delegation_counters(),
            held_requests: self.waiting.held_count(),
            cache: self.cache.stats(),
        }
    }

    #[inline]
    pub(crate) fn order_of(&self, endpoint: EndpointId) -> Option<ByteOrder> {
        self.channels.get(endpoint)?.order
    }

    #[inline]
    pub(crate) fn has_checksums(&self, endpoint: EndpointId) -> bool {
        self.channels.get(endpoint).is_some_and(|channel| channel.checksums)
    }

    pub(crate) fn response_bytes_max(&self, endpoint: EndpointId) -> usize {
        self.channels.get(endpoint).map_or(0, |channel| channel.response_bytes_max)
    }
}

pub(crate) const BUSY_PAUSE: Duration = Duration::from_millis(100);
const IDLE_PAUSE: Duration = Duration::from_secs(1);
