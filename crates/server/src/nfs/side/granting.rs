//! Asks again for the locks that requests of NLM wait for, and calls the clients that get them.
//!
//! Invariant: if a client does not take a granted lock, the lock is released.

use dafs_files::outcome::{NotDone, Now};
use dafs_nfs_wire::nlm::v4::{NLM4, Procedure};
use dafs_nfs_wire::xdr::Writer;
use dafs_ops::{Fault, Lock, LockMode, LockSpan};

use super::blocked::{Phase, Waiting};
use super::callbacks::Callback;
use super::hosts::owner_of;
use super::messages::{self, Range};
use super::opens::close_if_unused;
use super::state::Side;
use crate::reactor::Reactor;

/// Asks again for the locks that requests wait for, and calls the clients whose requests are
/// granted.
pub(in crate::nfs) fn poll(side: &mut Side, reactor: &mut Reactor<'_>) {
    take_replies(side, reactor);
    let mut failed = Vec::new();
    for mut waiting in std::mem::take(&mut side.blocked.requests) {
        match waiting.phase == Phase::Waits && !ask_again(side, reactor, &mut waiting) {
            true => failed.push((waiting.client(), waiting.lock.file)),
            false => side.blocked.requests.push(waiting),
        }
    }
    // Another request of the same host may wait for a lock on the same file.
    for (client, file) in failed {
        close_if_unused(side, reactor, client, &file);
    }
}

/// Asks again for a lock. Returns false if the request cannot be granted at all.
fn ask_again(side: &mut Side, reactor: &mut Reactor<'_>, waiting: &mut Waiting) -> bool {
    let owner = owner_of(waiting.process);
    let asked = reactor.files().lock_for(&waiting.by, &waiting.lock, Some(&owner));
    match asked {
        Ok(Now::Done(outcome)) => {
            waiting.after = waiting.after.max(outcome.after);
            if outcome.result.is_err() {
                return true;
            }
        }
        // The lock is held, but a read or write of another client in its range has not ended.
        Ok(Now::Later(_)) => return true,
        Err(NotDone::Failed(Fault::Busy | Fault::Grace | Fault::WouldWait)) => return true,
        Err(why @ (NotDone::AwaitsRecall(_) | NotDone::AwaitsHolder(_))) => {
            reactor.without_waiting(why);
            return true;
        }
        Err(_) => return false,
    }
    let Some(host) = side.hosts.get_mut(waiting.client()) else { return false };
    if let Some(locked) = host.files.get_mut(&waiting.lock.file) {
        locked.owners.insert(waiting.process, waiting.owner.clone());
    }
    let durable = reactor.shared.ledger.as_ref().map(|ledger| ledger.durable());
    if durable.is_none_or(|durable| waiting.after <= durable) {
        tell(side, waiting, 1);
    }
    true
}

/// Calls a client to grant it a lock.
fn tell(side: &mut Side, waiting: &mut Waiting, tries: u32) {
    let Some(host) = side.hosts.get(waiting.client()) else { return };
    let address = host.address;
    side.blocked.last += 1;
    let number = side.blocked.last;
    let Waiting { lock, process, version, caller, file, owner, .. } = &*waiting;
    let range = Range {
        caller,
        file,
        owner,
        process: *process,
        is_exclusive: lock.mode == LockMode::Write,
        offset: lock.offset,
        length: lock.length,
    };
    let mut writer = Writer::new();
    messages::encode_granted(*version, &number.to_be_bytes(), &range, &mut writer);
    side.callbacks.send(Callback {
        number,
        address,
        program: NLM4.number,
        version: *version,
        procedure: Procedure::Granted.number(),
        arguments: writer.bytes().to_vec(),
    });
    waiting.phase = Phase::Told { number, tries };
}

/// Handles the replies of clients to calls that granted locks.
fn take_replies(side: &mut Side, reactor: &mut Reactor<'_>) {
    for (number, results) in side.callbacks.take_ended() {
        let is_it = |waiting: &Waiting| waiting.call() == Some(number);
        let Some(at) = side.blocked.requests.iter().position(is_it) else { continue };
        let mut waiting = side.blocked.requests.remove(at);
        let Phase::Told { tries, .. } = waiting.phase else { continue };
        match results {
            Some(results) if messages::is_taken(&results) => {}
            None if tries < TRIES => {
                tell(side, &mut waiting, tries + 1);
                side.blocked.requests.push(waiting);
            }
            _ => give_up(side, reactor, &waiting),
        }
    }
}

/// Releases the lock of a request whose client does not want it any more, or takes the request out
/// of the queue.
pub(super) fn give_up(side: &mut Side, reactor: &mut Reactor<'_>, waiting: &Waiting) {
    let Waiting { by, lock, process, .. } = waiting;
    let owner = owner_of(*process);
    match waiting.phase {
        Phase::Waits => reactor.files().cancel_lock(by, lock, &owner),
        Phase::Told { .. } => {
            let Lock { file, state, offset, length, .. } = *lock;
            let span = LockSpan { file, state, offset, length };
            // If the lock no longer exists, there is nothing to release.
            let _ = reactor.files().unlock_for(by.party, &span, &owner);
        }
    }
    close_if_unused(side, reactor, waiting.client(), &lock.file);
}

/// The number of times that a client is told of its lock.
const TRIES: u32 = 3;
