//! The main loop of the reactor that serves NFS clients.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dafs_types::Moment;

use super::front::Front;
use crate::hold::Hold;
use crate::reactor::{Own, Reactor, Rest};

/// Serves NFS clients until the server is stopped.
pub(crate) fn serve_nfs(own: &mut Own, mut front: Front, hold: &mut impl Hold, stop: &AtomicBool) {
    let mut rest = Rest { pause: Some(Duration::ZERO) };
    let mut is_armed = false;
    let mut ticked = front.now();
    while !stop.load(Ordering::Acquire) {
        // This reactor does not hold the lock here, so it sends replies and receives calls while
        // other reactors take turns.
        // The interface stays armed until it wakes this reactor, which saves system calls.
        is_armed = is_armed || own.interface.arm();
        let pause = if is_armed { rest.pause.unwrap_or(Duration::ZERO) } else { Duration::ZERO };
        if front.receive(pause) || !is_armed {
            own.interface.poll();
            is_armed = false;
        }
        let now = front.now();
        let is_tick = now.saturating_sub(ticked) >= TICK;
        if is_tick {
            ticked = now;
            front.tick();
        }
        rest = hold.with(|shared| {
            let mut reactor = Reactor { shared, own };
            if is_tick {
                front.end_leases(&mut reactor);
            }
            take_turn(&mut reactor, &mut front, None)
        });
    }
}

/// Handles the calls that have arrived, and finishes the calls whose operations have ended. `now`
/// is the time of a simulation; `None` if the clock of the machine counts.
fn take_turn(reactor: &mut Reactor<'_>, front: &mut Front, now: Option<Moment>) -> Rest {
    let begin = now.unwrap_or_else(|| reactor.present());
    reactor.shared.life.pass_to(begin);
    reactor.begin_turn();
    let has_more = front.serve(reactor);
    let mut rest = reactor.end_guest_turn(now);
    // The end of the turn may have completed jobs, so that calls can be finished. They may begin
    // other jobs or write journal records, which the end of the next turn hands to the pool.
    let has_continued = front.take_results(reactor);
    front.call_back(reactor);
    if has_more
        || has_continued
        || reactor.own.guest_results.as_ref().is_some_and(|results| results.is_any())
    {
        rest.pause = None;
    }
    rest
}

/// The service for NFS clients of a server that its owner drives step by step.
pub(crate) struct SteppedFront {
    front: Front,
    /// The time at which the service was last checked for clients that do not read their replies.
    ticked: Moment,
}

impl SteppedFront {
    pub(crate) fn new(front: Front) -> Self {
        Self { front, ticked: Moment(0) }
    }

    /// Returns true if there are calls or connections to handle, or replies to send.
    pub(crate) fn is_busy(&mut self) -> bool {
        self.front.is_busy()
    }

    /// Runs one turn. Returns the wait that follows.
    pub(crate) fn step(&mut self, reactor: &mut Reactor<'_>, now: Moment) -> Rest {
        self.front.receive_at(now);
        if now.since(self.ticked) >= TICK {
            self.ticked = now;
            reactor.shared.life.pass_to(now);
            self.front.tick();
            self.front.end_leases(reactor);
        }
        let rest = take_turn(reactor, &mut self.front, Some(now));
        self.front.receive_at(now);
        rest
    }
}

/// The interval between two checks for clients that do not read their replies.
const TICK: Duration = Duration::from_secs(1);
