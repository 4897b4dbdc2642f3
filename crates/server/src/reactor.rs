//! A reactor's turn: it handles events and sends replies.
//!
//! A server has one or more reactors. Each reactor is a thread with its own connections ([`Own`]).
//! All other state is shared ([`Shared`]); one reactor at a time works with it.
//!
//! Invariants:
//! - Nothing in a turn blocks, except name-space calls of the store, which a local file system
//!   serves from its caches. The wait for events is not part of a turn.
//! - The changes that a reply reports are visible to every reactor that takes a turn after the
//!   reply.

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
use crate::guests::GuestResults;
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

/// The state that a turn works with: the shared state and the state of this reactor.
pub(crate) struct Reactor<'a> {
    pub(crate) shared: &'a mut Shared,
    pub(crate) own: &'a mut Own,
}

/// The state that all reactors share. One reactor at a time works with it ([`crate::hold`]).
pub(crate) struct Shared {
    pub(crate) filer: Filer,
    pub(crate) sessions: Sessions,
    pub(crate) cache: Cache,
    /// The store of files, without access checks. Each client uses it through a view that checks
    /// its access ([`dafs_files::caller::Identity`]).
    pub(crate) whole_store: Arc<dyn Store>,
    pub(crate) pool: Pool,
    pub(crate) channels: Channels,
    pub(crate) tasks: Tasks,
    pub(crate) batches: Batches,
    pub(crate) loans: Loans,
    /// The files, opens and locks that clients hold.
    pub(crate) holdings: Holdings,
    /// Authenticates and authorizes clients.
    pub(crate) entrance: Entrance,
    /// The journal of requests. `None` if the server keeps no journal.
    pub(crate) ledger: Option<Ledger>,
    /// The current time, and the shutdown flag.
    pub(crate) life: Life,
    /// The requests that wait for an event other than the end of a disk access.
    pub(crate) waiting: Waiting,
    /// The statistics of requests.
    pub(crate) meter: Meter,
    /// Work that must be done before the next event is handled.
    pub(crate) afterwards: Afterwards,
    /// The mailboxes through which reactors hand work over to each other.
    pub(crate) handoffs: Handoffs,
}

/// The state of one reactor: its connections, and the transfers of the current turn.
pub(crate) struct Own {
    /// The number of this reactor, which is also the owner number in the endpoint ids of its
    /// connections.
    pub(crate) number: usize,
    pub(crate) interface: ServingInterface,
    /// The cache's memory, registered with this reactor's interface.
    pub(crate) arena: Region,
    /// The direct reads and writes that this turn is executing. Empty between turns.
    pub(crate) hits: Hits,
    /// The results of requests of guests. `None` for a reactor that serves DAFS connections.
    pub(crate) guest_results: Option<GuestResults>,
    /// True if the server has no other reactor.
    pub(crate) is_alone: bool,
    /// A defect that a test injects.
    pub(crate) defect: Option<Defect>,
}

/// Returns true if `length` bytes may be copied within a turn. See [`Own::may_move`].
#[inline]
pub(crate) fn may_move(is_alone: bool, length: u32) -> bool {
    is_alone || length <= MOVED_IN_TURN_MAX
}

/// The wait that follows a turn.
pub(crate) struct Rest {
    /// The longest time to wait for events. `None` if there is work to do immediately, so that the
    /// reactor only polls.
    pub pause: Option<Duration>,
}

impl Own {
    /// Returns true if the connection belongs to this reactor's interface.
    #[inline]
    pub(crate) fn has(&self, endpoint: EndpointId) -> bool {
        endpoint.owner() == self.number
    }

    /// Returns true if `length` bytes may be copied within a turn. A long copy would delay the
    /// other reactors, which wait for the end of the turn.
    #[inline]
    pub(crate) fn may_move(&self, length: u32) -> bool {
        may_move(self.is_alone, length)
    }

    /// Waits for events, or only polls for events if there is work to do.
    #[inline]
    pub(crate) fn wait(&mut self, rest: &Rest) {
        match rest.pause {
            Some(pause) => self.interface.wait(1, Some(pause)),
            None => self.interface.poll(),
        };
    }
}

impl Reactor<'_> {
    /// Handles all events since the last wait, and the timers that are due. Returns the wait that
    /// must follow.
    pub(crate) fn take_turn(&mut self) -> Rest {
        self.note_sleep();
        self.begin_turn();
        self.settle_hits();
        self.finish_turn()
    }

    /// Reads the clock if the reactor slept in the last wait. If it did not sleep, the time since
    /// the last turn is too short to matter.
    #[inline]
    fn note_sleep(&mut self) {
        if self.own.interface.has_slept() {
            self.shared.life.pass_to(self.present());
        }
    }

    /// Returns the current time. It is precise to the microsecond while there are batches, because
    /// the time windows of batches are that short.
    #[inline]
    pub(crate) fn present(&self) -> Moment {
        self.shared.life.present(!self.shared.batches.is_idle())
    }

    /// Runs a whole turn, including timers, at the given time.
    pub(crate) fn turn_at(&mut self, now: Moment) {
        self.shared.life.pass_to(now);
        self.begin_turn();
        self.end_turn_at(now);
    }

    /// Runs the second part of a turn, which follows the moves of bytes and includes the timers.
    pub(crate) fn end_turn_at(&mut self, now: Moment) {
        self.shared.life.pass_to(now);
        self.settle_moves();
        self.end_turn();
        self.pass_time(now);
    }

    /// Returns the wait that must follow this turn.
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

    /// Runs a turn like [`Reactor::take_turn`], but stops before bytes are moved. Returns `None` if
    /// there are bytes to move; the caller must then call [`Own::move_hits`] and
    /// [`Reactor::end_moves`]. Otherwise returns the wait that must follow.
    pub(crate) fn take_turn_but_moves(&mut self) -> Option<Rest> {
        self.note_sleep();
        let has_moves = self.begin_shared_turn();
        (!has_moves).then(|| self.finish_turn())
    }

    /// Runs the first part of a turn, before bytes are moved. Returns true if there are bytes to
    /// move.
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

    /// Runs the second part of a turn, after [`Own::move_hits`]. Returns the wait that must follow.
    pub(crate) fn end_moves(&mut self) -> Rest {
        self.settle_moves();
        self.finish_turn()
    }

    /// Sends the messages that other reactors have left for this reactor, then replies to the
    /// requests whose bytes were moved.
    fn settle_moves(&mut self) {
        self.send_for_others();
        self.settle_hits();
    }

    /// Runs the last part of a turn in which calls of guests were served. `now` is the time of a
    /// simulation; `None` if the clock of the machine counts.
    pub(crate) fn end_guest_turn(&mut self, now: Option<Moment>) -> Rest {
        self.settle_moves();
        self.end_turn();
        self.pass_time(now.unwrap_or_else(|| self.present()));
        self.rest()
    }

    fn finish_turn(&mut self) -> Rest {
        self.end_turn();
        self.pass_time(self.present());
        self.rest()
    }

    /// Runs the first part of a turn: handles all events. Direct reads and writes that only need
    /// one copy of their bytes are collected, and their bytes are moved later.
    pub(crate) fn begin_turn(&mut self) {
        self.shared.batches.begin_turn();
        self.shared.pool.begin_turn(self.own.number);
        self.take_handoffs();
        loop {
            // A completion is read in place, because building an event from it would cost a copy.
            if let Some(&Completion { endpoint, cookie, operation, status, length, .. }) =
                self.own.interface.first_completion()
            {
                let is_good = status == CompletionStatus::Success;
                if operation == Operation::Receive {
                    self.on_received(endpoint, length, is_good);
                    continue;
                }
                self.own.interface.pass_completion();
                self.follow_up();
                self.on_completion(cookie, is_good);
            } else if let Some(event) = self.own.interface.next_event() {
                self.on_event(event);
            } else {
                break;
            }
        }
    }

    /// Runs the last part of a turn: sends replies, and resumes the requests that can continue.
    fn end_turn(&mut self) {
        if self.shared.afterwards.is_any() {
            self.show_answers();
            self.follow_up();
        }
        self.take_done();
        // Replies are flushed before the housekeeping. In most turns there is no further work.
        self.show_answers();
        self.shared.channels.pay_receives(&mut self.own.interface);
        self.push_on();
        self.break_given_up();
        let Shared { afterwards, pool, whole_store, .. } = &mut *self.shared;
        afterwards.close_removed_by(&mut self.own.interface, pool, whole_store);
    }

    /// Flushes the posted replies to the network. With several reactors this happens only after the
    /// turn, because the other reactors wait for the end of the turn.
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

    /// Runs the timers that are due. They run after the turn, so that replies are sent first.
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

    /// Resumes every request for which the event that it waited for has occurred.
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
            // The operations of this round may have left new notices.
            if self.shared.afterwards.has_no_notices() {
                return;
            }
        }
    }

    /// Does the work that was deferred until the replies were sent.
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

    /// Registers a write in its session as a request in flight. Called when a write turns out not
    /// to finish in one step.
    #[inline]
    pub(crate) fn keep_begun(&mut self, to: ReplyTo) -> ReplyTo {
        keep_begun(&mut self.shared.sessions, to)
    }

    fn on_event(&mut self, event: Event) {
        self.follow_up();
        self.settle();
        match event {
            // Completions were handled before other events.
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

    /// Handles a completion that is known to be the next one and to belong to a receive buffer.
    #[inline(always)]
    fn on_received(&mut self, endpoint: EndpointId, length: u32, is_good: bool) {
        let channel = self.shared.channels.get_mut(endpoint);
        let Some(slot) =
            channel.and_then(|channel| self.own.interface.pass_message(&mut channel.inbox))
        else {
            // The channel is already closed.
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

    /// Ends the loan of memory to the transport, which has finished reading the memory.
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
    /// Publishes a copy of the server's state for threads that inspect the server.
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

/// The maximum number of bytes of a transfer that are copied within a turn while other reactors
/// wait for the end of the turn. A copy of this size takes a few microseconds.
const MOVED_IN_TURN_MAX: u32 = 16 << 10;
pub(crate) const BUSY_PAUSE: Duration = Duration::from_millis(100);
const IDLE_PAUSE: Duration = Duration::from_secs(1);
