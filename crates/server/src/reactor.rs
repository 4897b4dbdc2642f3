//! A reactor's turn: events in, answers out.
//!
//! A server has one reactor or several, each a thread with connections of its own ([`Own`]). All
//! else is shared ([`Shared`]), and one of them at a time works with it.
//!
//! Invariant: nothing here blocks but the wait for events, which is no part of a turn, and
//! name-space calls of the store, which a local file system answers from its caches. What a client
//! is told is true for whoever has the next turn.

use std::sync::Arc;
use std::time::Duration;

use dafs_dat::{
    Completion, CompletionStatus, EndpointId, Event, Operation, Region, ServingInterface,
};
use dafs_filer::Filer;
use dafs_files::defect::Defect;
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
use crate::handoff::Handoffs;
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

/// What a turn works with: what all reactors share, and what is this reactor's own.
pub(crate) struct Reactor<'a> {
    pub(crate) shared: &'a mut Shared,
    pub(crate) own: &'a mut Own,
}

/// What all reactors share. One of them at a time works with it ([`crate::hold`]).
pub(crate) struct Shared {
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
    /// What reactors leave to each other.
    pub(crate) handoffs: Handoffs,
}

/// What one reactor has for itself: its connections, and what is under way on them in this turn.
pub(crate) struct Own {
    /// Which of the reactors it is: the owner of its endpoints.
    pub(crate) number: usize,
    pub(crate) interface: ServingInterface,
    /// The cache's memory, as this interface knows it.
    pub(crate) arena: Region,
    /// Direct reads and writes under way; empty between turns.
    pub(crate) hits: Hits,
    /// Whether there is no other reactor.
    pub(crate) is_alone: bool,
    /// A defect on purpose.
    pub(crate) defect: Option<Defect>,
}

/// As [`Own::may_move`].
#[inline]
pub(crate) fn may_move(is_alone: bool, length: u32) -> bool {
    is_alone || length <= MOVED_IN_TURN_MAX
}

/// What a reactor waits for between turns.
pub(crate) struct Rest {
    /// Events, for so long; `None` if there is something to do without any.
    pub pause: Option<Duration>,
}

impl Own {
    /// Whether a connection is on its interface.
    #[inline]
    pub fn has(&self, endpoint: EndpointId) -> bool {
        endpoint.owner() == self.number
    }

    /// Whether so many bytes may be moved within a turn. Others wait for its end.
    #[inline]
    pub fn may_move(&self, length: u32) -> bool {
        may_move(self.is_alone, length)
    }

    /// Waits for events.
    #[inline]
    pub fn wait(&mut self, rest: &Rest) {
        match rest.pause {
            Some(pause) => self.interface.wait(1, Some(pause)),
            None => self.interface.poll(),
        };
    }
}

impl Reactor<'_> {
    /// Everything that has happened since the last wait, and what is due by time. What is to be
    /// waited for next.
    pub(crate) fn take_turn(&mut self) -> Rest {
        self.note_sleep();
        self.begin_turn();
        self.settle_hits();
        self.finish_turn()
    }

    /// It is later, if the last wait slept. Otherwise no time worth a look at the clock has passed
    /// since the last turn.
    #[inline]
    fn note_sleep(&mut self) {
        if self.own.interface.has_slept() {
            self.shared.life.pass_to(self.present());
        }
    }

    /// The present moment, to the microsecond while there are batches, whose windows are that
    /// short.
    #[inline]
    pub(crate) fn present(&self) -> Moment {
        self.shared.life.present(!self.shared.batches.is_idle())
    }

    /// A turn, and what is due by time, at one moment.
    pub(crate) fn turn_at(&mut self, now: Moment) {
        self.shared.life.pass_to(now);
        self.begin_turn();
        self.end_turn_at(now);
    }

    /// The part of a turn behind the moving of bytes, and what is due by time.
    pub(crate) fn end_turn_at(&mut self, now: Moment) {
        self.shared.life.pass_to(now);
        self.settle_moves();
        self.end_turn();
        self.pass_time(now);
    }

    /// What is to be waited for.
    #[inline]
    pub(crate) fn rest(&mut self) -> Rest {
        let shared = &mut *self.shared;
        shared.pool.note_owner();
        if shared.batches.has_more() {
            return Rest { pause: None };
        }
        let idle = shared.tasks.count() == 0
            && shared.cache.stats().dirty_bytes == 0
            && !shared.afterwards.has_removed();
        let pause = if idle { IDLE_PAUSE } else { BUSY_PAUSE };
        let due = shared.batches.pause(shared.life.now()).unwrap_or(pause);
        Rest { pause: Some(pause.min(due)) }
    }

    /// As [`Reactor::take_turn`], up to where bytes are to be moved ([`Own::move_hits`]); `None`
    /// then, and [`Reactor::end_moves`] does the rest. What is looked up is kept until then.
    pub(crate) fn take_turn_but_moves(&mut self) -> Option<Rest> {
        self.note_sleep();
        let has_moves = self.begin_shared_turn();
        (!has_moves).then(|| self.finish_turn())
    }

    /// The part of a turn before bytes are moved. Whether there are any to move.
    pub(crate) fn begin_shared_turn(&mut self) -> bool {
        self.begin_turn();
        self.look_up();
        if self.own.defect.is_some() {
            self.spoil_moves();
        }
        let has_moves = self.own.hits.has_kept();
        if has_moves {
            self.shared.channels.pay_receives(&mut self.own.interface);
            self.shared.handoffs.wake_others();
        }
        has_moves
    }

    /// The rest of a turn, behind [`Own::move_hits`].
    pub(crate) fn end_moves(&mut self) -> Rest {
        self.settle_moves();
        self.finish_turn()
    }

    /// What was moved is answered, behind what others have made to be sent.
    fn settle_moves(&mut self) {
        self.send_for_others();
        self.settle_hits();
    }

    fn finish_turn(&mut self) -> Rest {
        self.end_turn();
        self.pass_time(self.present());
        self.rest()
    }

    /// The first part of a turn: what has come is looked at. Direct reads and writes that need
    /// one copy are left to be moved.
    pub(crate) fn begin_turn(&mut self) {
        self.shared.batches.begin_turn();
        self.shared.pool.begin_turn(self.own.number);
        self.take_handoffs();
        loop {
            // Not as an event: it is built once and taken from where it is.
            if let Some(&Completion { endpoint, context, operation, status, length, .. }) =
                self.own.interface.first_completion()
            {
                let is_good = status == CompletionStatus::Success;
                if operation == Operation::Receive {
                    self.on_received(endpoint, length, is_good);
                    continue;
                }
                self.own.interface.pass_completion();
                self.follow_up();
                self.on_completion(context, is_good);
            } else if let Some(event) = self.own.interface.next_event() {
                self.on_event(event);
            } else {
                break;
            }
        }
    }

    /// The rest of a turn: answers go out, and what can go on does.
    fn end_turn(&mut self) {
        if self.shared.afterwards.is_any() {
            self.show_answers();
            self.follow_up();
        }
        self.take_done();
        // Who asks gets the answer first: most turns have nothing to do behind this.
        self.show_answers();
        self.shared.channels.pay_receives(&mut self.own.interface);
        self.push_on();
        self.break_given_up();
        let Shared { afterwards, pool, whole_store, .. } = &mut *self.shared;
        afterwards.close_removed_by(&mut self.own.interface, pool, whole_store);
    }

    /// Makes what is posted visible to clients; where others wait for their turn, that is done
    /// behind it.
    #[inline]
    pub(crate) fn show_answers(&mut self) {
        if self.own.is_alone {
            self.own.interface.flush();
        }
    }

    fn break_given_up(&mut self) {
        while let Some(endpoint) = self.shared.channels.next_given_up() {
            if self.own.has(endpoint) {
                self.own.interface.disconnect(endpoint);
            } else {
                self.shared.handoffs.give_up(endpoint);
            }
        }
    }

    /// Does what is due by time. Behind a turn: who asks gets the answer first.
    fn pass_time(&mut self, now: Moment) {
        self.shared.life.pass_to(now);
        if self.shared.life.ticks() {
            self.tick();
            self.push_on();
        }
        self.pass_batch_time();
        if !self.shared.afterwards.has_no_notices() {
            self.push_on();
        }
        let regions = self.own.interface.region_count();
        self.shared.handoffs.end_turn(self.own.number, regions);
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
            if self.shared.afterwards.has_no_notices() {
                return;
            }
        }
    }

    /// Does what waited for the replies to be out.
    #[inline]
    pub(crate) fn follow_up(&mut self) {
        if self.shared.afterwards.is_any() {
            self.close_up();
            self.shared.afterwards.keep_up(&mut self.shared.sessions);
        }
    }

    fn close_up(&mut self) {
        if let Some(Closing { client, state, key }) = self.shared.afterwards.take_closing()
            && let Ok(closed) = self.shared.filer.close(client, state, key, self.shared.life.now())
        {
            self.files().release_open(&closed);
        }
    }

    /// A request to write that is not over at once is under way from here on.
    #[inline]
    pub(crate) fn keep_begun(&mut self, to: ReplyTo) -> ReplyTo {
        keep_begun(&mut self.shared.sessions, to)
    }

    fn on_event(&mut self, event: Event) {
        self.follow_up();
        self.settle();
        match event {
            // Those are taken first.
            Event::Completion(_) => {}
            Event::ConnectionRequest { pending, peer, private_data, .. } => {
                let Shared { entrance, filer, sessions, channels, life, .. } = &mut *self.shared;
                let interface = &mut self.own.interface;
                let coming = Coming { pending, peer: &peer, private_data: &private_data };
                entrance.admit(
                    &mut Ways { interface, filer, sessions, channels },
                    &coming,
                    life.now(),
                );
            }
            Event::Established { .. } => {}
            Event::Rejected { endpoint, .. } => self.own.interface.release(endpoint),
            Event::Broken { endpoint, reason } => {
                tracing::debug!(?endpoint, %reason, "connection ended");
                self.on_broken(endpoint);
            }
        }
    }

    /// The first completion is a receive's.
    #[inline(always)]
    fn on_received(&mut self, endpoint: EndpointId, length: u32, is_good: bool) {
        let channel = self.shared.channels.get_mut(endpoint);
        let Some(slot) =
            channel.and_then(|channel| self.own.interface.pass_message(&mut channel.inbox))
        else {
            // The channel has ended.
            return self.own.interface.pass_completion();
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
        if let Some(Lent { endpoint, loan, length, .. }) = self.shared.loans.take(index) {
            if self.shared.channels.stalls().is_watching() {
                self.shared.channels.stalls().note_moved((endpoint, Direction::Out), length);
            }
            match loan {
                Loan::Pin(pin) => self.shared.cache.unpin(pin),
                Loan::Pins(pins) => {
                    for pin in pins {
                        self.shared.cache.unpin(pin);
                    }
                }
                Loan::Staging(key) => self.own.interface.deregister(key),
            }
        }
        self.shared.filer.leave_fence(operation_of_loan(index));
    }

    #[inline]
    pub(crate) fn order_of(&self, endpoint: EndpointId) -> Option<ByteOrder> {
        self.shared.channels.get(endpoint)?.order
    }

    #[inline]
    pub(crate) fn has_checksums(&self, endpoint: EndpointId) -> bool {
        self.shared.channels.get(endpoint).is_some_and(|channel| channel.checksums)
    }

    pub(crate) fn response_bytes_max(&self, endpoint: EndpointId) -> usize {
        self.shared.channels.get(endpoint).map_or(0, |channel| channel.response_bytes_max)
    }
}

impl Shared {
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
            reactors: self.handoffs.reactors(),
            reactor_messages: self.handoffs.count(),
            requests: self.meter.request_count(),
            regions: self.handoffs.regions(),
            loans: self.loans.count(),
            open_files: self.holdings.opened().file_count(),
            filer: self.filer.counters(),
            sessions: self.sessions.counters(),
            delegations: self.filer.delegation_counters(),
            held_requests: self.waiting.held_count(),
            cache: self.cache.stats(),
        }
    }
}

/// Bytes of a transfer that are moved within a turn though others wait for its end: some
/// microseconds.
const MOVED_IN_TURN_MAX: u32 = 16 << 10;
pub(crate) const BUSY_PAUSE: Duration = Duration::from_millis(100);
const IDLE_PAUSE: Duration = Duration::from_secs(1);
