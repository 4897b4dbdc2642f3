//! Resumes chains that were interrupted by a lost connection or delayed by the server (draft
//! 5.2.5).
//!
//! Invariants:
//!
//! - The members without a reply are sent again in their original order, as one chain. Each works
//!   on the same object and open as it would have without the interruption.
//! - Members after one that failed are not executed.
//!
//! In an interrupted chain, some members were executed and the server has kept their results;
//! others only read, and their results were not kept. After a read whose result was not kept, CLOSE
//! and locks are the only changes that may follow, so the reads can be repeated later. If the file
//! that they need has been closed, it is opened again for them.

use std::rc::Rc;

use dafs_types::{FileHandle, Stability, StateId, Status};
use dafs_wire::messages::{Open, OpenCreation};
use dafs_wire::{
    ByteOrder, ChainFlags, HEADER_BYTES, Procedure, Request, Response, decode_request,
    decode_response, encode_request,
};

use crate::chain::work::{ChainMember, ChainWork, SharedChain};
use crate::core::Core;
use crate::ids::SessionKey;
use crate::opens::Opens;
use crate::recovery::delay::means_delay;
use crate::recovery::interrupted::answer;
use crate::work::{Delayed, Work};

impl Core {
    /// Schedules a retry for a chain if its first failed member failed because the server delayed
    /// it. Returns false if no member was delayed, or if the time limit has passed.
    pub(crate) fn defer_chain(&mut self, key: SessionKey, shared: &SharedChain) -> bool {
        let mut chain = shared.borrow_mut();
        let is_done = |member: &ChainMember| member.status == Some(Status::Ok);
        let Some(first) = chain.members.iter().position(|member| !is_done(member)) else {
            return false;
        };
        if !chain.members[first].status.is_some_and(means_delay) {
            return false;
        }
        let Some(due) = self.next_try(key, &mut chain.delay) else { return false };
        for number in (first..chain.members.len()).rev() {
            chain.forget_answer(number);
        }
        if let Some(machine) = &mut self.sessions[key].recovery {
            chain.note(&mut machine.opens);
        }
        drop(chain);
        self.defer(key, Delayed { due, work: Work::Chain(shared.clone()) });
        true
    }

    /// Records the opens that interrupted chains have created, so that they are reclaimed.
    pub(super) fn note_chains(&mut self, key: SessionKey) {
        let Some(machine) = &mut self.sessions[key].recovery else { return };
        let Some(progress) = &machine.progress else { return };
        for chain in &progress.chains {
            chain.borrow_mut().note(&mut machine.opens);
        }
    }

    /// Queues interrupted chains before the chains that already wait. Returns the number of
    /// requests that are sent again.
    pub(super) fn resume_chains(
        &mut self,
        key: SessionKey,
        chains: Vec<SharedChain>,
        server_restarted: bool,
    ) -> u32 {
        if server_restarted {
            self.prepare_waiting_chains(key);
        }
        let mut count = 0;
        let is_made_again = server_restarted && self.sessions[key].role.first().is_some();
        for shared in chains.into_iter().rev() {
            if is_made_again {
                shared.borrow_mut().begin_again();
            } else if let Some(machine) = &mut self.sessions[key].recovery {
                let mut chain = shared.borrow_mut();
                chain.note(&mut machine.opens);
                chain.resume(server_restarted, &mut machine.opens);
            }
            let missing = shared.borrow().missing();
            if missing == 0 {
                self.end_chain(key, &shared);
                continue;
            }
            count += u32::try_from(missing).unwrap_or(u32::MAX);
            self.sessions[key].in_flight.chains.push_front(shared);
        }
        count
    }

    /// Prepares waiting chains, which may have been executed in part, for a restarted server.
    fn prepare_waiting_chains(&mut self, key: SessionKey) {
        let session = &mut self.sessions[key];
        let Some(machine) = &mut session.recovery else { return };
        let is_made_again = session.role.first().is_some();
        for chain in session.in_flight.chains.iter() {
            let mut chain = chain.borrow_mut();
            if is_made_again {
                chain.begin_again();
            } else {
                chain.resume(true, &mut machine.opens);
            }
        }
        for delayed in &machine.delayed {
            if let Work::Chain(chain) = &delayed.work {
                let mut chain = chain.borrow_mut();
                if is_made_again { chain.begin_again() } else { chain.repeat_unstable_writes() }
            }
        }
    }

    /// Moves a chain to the first channel, because the chain's own channel cannot reconnect.
    pub(super) fn move_chain(&mut self, first: SessionKey, chain: &SharedChain, is_lost: bool) {
        let Some(machine) = &mut self.sessions[first].recovery else { return };
        let mut work = chain.borrow_mut();
        if is_lost {
            work.begin_again();
        } else {
            work.members.iter_mut().for_each(|member| member.is_noted = false);
            work.note(&mut machine.opens);
            work.resume(false, &mut machine.opens);
        }
        let is_over = work.missing() == 0;
        drop(work);
        if is_over {
            self.end_chain(first, chain);
        } else {
            self.sessions[first].in_flight.chains.push_back(chain.clone());
        }
    }
}

impl ChainWork {
    /// Prepares a whole chain to be run again from its start. Only for chains that only read and
    /// that close the files they open. Replies of the previous server incarnation are discarded.
    fn begin_again(&mut self) {
        if self.missing() == 0 {
            return;
        }
        for number in (0..self.members.len()).rev() {
            self.forget_answer(number);
            let member = &mut self.members[number];
            (member.flags, member.is_noted) = (member.planned, false);
        }
        self.restart_sending();
    }

    /// Prepares the members without a reply to be sent again.
    pub(crate) fn resume(&mut self, server_restarted: bool, opens: &mut Opens) {
        self.break_off();
        if self.missing() == 0 {
            return;
        }
        if server_restarted {
            self.repeat_unstable_writes();
        }
        self.reopen_closed(opens);
        self.fill_in();
        let missing: Vec<usize> = self.members_where(|member| member.answer.is_none()).collect();
        let (first, last) = (missing.first().copied(), missing.last().copied());
        for number in missing {
            let member = &mut self.members[number];
            if Some(number) != first {
                member.flags = member.flags.with(ChainFlags::BACK);
            }
            if Some(number) != last {
                member.flags = member.flags.with(ChainFlags::FORWARD);
            } else {
                member.flags = without(member.flags, ChainFlags::SAVE);
            }
        }
        self.restart_sending();
    }

    fn members_where(&self, is: impl Fn(&ChainMember) -> bool) -> impl Iterator<Item = usize> {
        (0..self.members.len()).filter(move |&number| is(&self.members[number]))
    }

    /// Ends the members after one that failed.
    fn break_off(&mut self) {
        let has_failed =
            |member: &ChainMember| member.answer.is_some() && member.status != Some(Status::Ok);
        let Some(failed) = self.members.iter().position(has_failed) else { return };
        // If the outcome of the failed member is unknown, the outcomes of the later members are
        // unknown too.
        let unknown = match &self.members[failed].answer {
            Some(Err(error)) => Some(error.clone()),
            Some(Ok(_)) | None => None,
        };
        for number in failed + 1..self.members.len() {
            let broken = answer(&Response::Failed, Status::ChainBroken).1;
            let broken = unknown.clone().map_or(Ok(&broken[..]), Err);
            self.note_answer(number, Some(Status::ChainBroken), broken);
        }
    }

    /// Marks unstable writes to be repeated, because a restarted server may have lost them. The
    /// chain has not ended, so it still has the data.
    fn repeat_unstable_writes(&mut self) {
        let lasts = |member: &ChainMember| {
            matches!(member.procedure, Procedure::Commit | Procedure::Close)
                && member.answer.is_some()
        };
        let behind = self.members.iter().rposition(lasts).map_or(0, |number| number + 1);
        for number in behind..self.members.len() {
            if self.is_unstable_write(number) {
                self.forget_answer(number);
            }
        }
    }

    /// Marks files to be opened again that were closed before all members that need them were
    /// executed.
    fn reopen_closed(&mut self, opens: &mut Opens) {
        let closes = self.members_where(|member| {
            member.procedure == Procedure::Close && member.status == Some(Status::Ok)
        });
        for close in closes.collect::<Vec<_>>() {
            let is_open = |member: &ChainMember| member.procedure == Procedure::Open;
            let Some(open) = self.members[..close].iter().rposition(is_open) else { continue };
            let Some(Response::Open(opened)) = self.response(open) else { continue };
            let state = opened.state;
            let needs_it = |member: &ChainMember| {
                member.answer.is_none() && member.planned.contains(ChainFlags::STATE_ID)
            };
            if self.members[open..close].iter().any(needs_it) && self.drop_creation(open) {
                opens.forget(state);
                self.members[open].is_noted = false;
                self.members[close].is_noted = false;
                self.forget_answer(open);
                self.forget_answer(close);
            }
        }
    }

    /// Changes an OPEN so that it neither creates nor truncates the file, which exists already.
    /// Returns false for a file without a name, which no longer exists.
    fn drop_creation(&mut self, number: usize) -> bool {
        let place = self.members[number].message.clone();
        let message = self.bytes[place.clone()].to_vec();
        let Ok((header, Request::Open(open))) = decode_request(ByteOrder::NATIVE, &message) else {
            return false;
        };
        if matches!(open.target, dafs_wire::messages::OpenTarget::CreateUnlinked { .. }) {
            return false;
        }
        let open = Request::Open(Open { creation: OpenCreation::NoCreate, ..open });
        // The new message is no longer than the old one.
        match encode_request(ByteOrder::NATIVE, &header, &open, &mut self.bytes[place.clone()]) {
            Ok(length) => {
                self.members[number].message.end = place.start + length;
                true
            }
            Err(_) => {
                self.bytes[place].copy_from_slice(&message);
                false
            }
        }
    }

    /// Copies known handles and state ids into the messages of later members; members whose handle
    /// or state id is not known still take them from the chain.
    fn fill_in(&mut self) {
        let (mut file, mut state): (Option<FileHandle>, Option<StateId>) = (None, None);
        for number in 0..self.members.len() {
            let member = &mut self.members[number];
            let message = &mut self.bytes[member.message.clone()];
            member.flags = without(member.planned, ChainFlags::FORWARD.with(ChainFlags::BACK));
            let at = member.procedure.chained_handle_at();
            if let Some(place) = place_of::<64>(message, at) {
                if !member.planned.contains(ChainFlags::FILE_HANDLE) {
                    file = Some(FileHandle(*place));
                } else if let Some(file) = file {
                    *place = file.0;
                    member.flags = without(member.flags, ChainFlags::FILE_HANDLE);
                }
            }
            let at = member.procedure.chained_state_at();
            if let Some(place) = place_of::<8>(message, at) {
                let named = StateId(u64::from_ne_bytes(*place));
                if member.planned.contains(ChainFlags::STATE_ID) {
                    if let Some(state) = state {
                        *place = state.0.to_ne_bytes();
                        member.flags = without(member.flags, ChainFlags::STATE_ID);
                    }
                } else if named != StateId::ANONYMOUS {
                    state = Some(named);
                }
            }
            let procedure = member.procedure;
            if procedure.finds() {
                // The current object changes at this member; the new one may not be known yet.
                file = self.response(number).and_then(|response| response.found());
            }
            if procedure == Procedure::Open {
                state = match self.response(number) {
                    Some(Response::Open(opened)) => Some(opened.state),
                    _ => None,
                };
            }
        }
    }

    /// Marks each OPEN and the CLOSE that has ended it as recorded, because their effects cancel
    /// each other out.
    fn note_closed_opens(&mut self) {
        for open in 0..self.members.len() {
            if let Some(close) = close_of(&self.members, open) {
                self.members[open].is_noted = true;
                self.members[close].is_noted = true;
            }
        }
    }

    /// Records the effects that the members with replies had on the session's opens.
    pub(crate) fn note(&mut self, opens: &mut Opens) {
        let concerns = |member: &ChainMember| !member.is_noted && member.changes_opens();
        // Most chains are complete and have closed what they opened.
        if self.missing() == 0 {
            self.note_closed_opens();
        }
        if !self.members.iter().any(concerns) {
            return;
        }
        self.note_closed_opens();
        let flags: Vec<ChainFlags> = self.members.iter().map(|member| member.flags).collect();
        self.fill_in();
        for (number, flags) in flags.into_iter().enumerate() {
            let member = &mut self.members[number];
            member.flags = flags;
            if !concerns(member) {
                continue;
            }
            member.is_noted = true;
            let (message, status) = (member.message.clone(), member.status);
            if let (Some(answer), Some(status)) = (self.answer(number), status) {
                opens.note_answer(&self.bytes[message], answer, status);
            }
        }
    }

    /// Returns the decoded reply of a member that was executed.
    pub(crate) fn response(&self, number: usize) -> Option<Response<'_>> {
        let member = &self.members[number];
        if member.status != Some(Status::Ok) {
            return None;
        }
        let answer = self.answer(number)?;
        let decoded = decode_response(ByteOrder::NATIVE, member.procedure, answer);
        decoded.ok().map(|(_, response)| response)
    }

    fn is_unstable_write(&self, number: usize) -> bool {
        match self.response(number) {
            Some(Response::WriteInline(written) | Response::WriteDirect(written)) => {
                written.committed == Stability::Unstable
            }
            _ => false,
        }
    }
}

impl ChainMember {
    fn changes_opens(&self) -> bool {
        let does = matches!(
            self.procedure,
            Procedure::Open
                | Procedure::OpenDowngrade
                | Procedure::Close
                | Procedure::Lock
                | Procedure::LockU
        );
        does && self.status.is_some()
    }
}

/// Returns the index of the CLOSE that has closed a member's open.
fn close_of(members: &[ChainMember], open: usize) -> Option<usize> {
    let is_done = |member: &ChainMember| !member.is_noted && member.status == Some(Status::Ok);
    if members[open].procedure != Procedure::Open || !is_done(&members[open]) {
        return None;
    }
    let behind = &members[open + 1..];
    let next = behind
        .iter()
        .position(|member| matches!(member.procedure, Procedure::Open | Procedure::Close))?;
    let close = &behind[next];
    let ends_it = close.procedure == Procedure::Close
        && close.planned.contains(ChainFlags::STATE_ID)
        && is_done(close);
    // If there is another OPEN between the two, the CLOSE closes that open instead.
    let is_plain = behind[..next].iter().all(|member| {
        member.procedure.chained_state_at().is_none()
            || member.planned.contains(ChainFlags::STATE_ID)
    });
    (ends_it && is_plain).then_some(open + 1 + next)
}

/// Returns the bytes of the handle or state id at offset `at` in a message.
fn place_of<const N: usize>(message: &mut [u8], at: Option<usize>) -> Option<&mut [u8; N]> {
    let at = HEADER_BYTES + at?;
    message.get_mut(at..at + N)?.try_into().ok()
}

fn without(flags: ChainFlags, others: ChainFlags) -> ChainFlags {
    ChainFlags(flags.0 & !others.0)
}

pub(super) fn includes(chains: &[SharedChain], chain: &SharedChain) -> bool {
    chains.iter().any(|other| Rc::ptr_eq(other, chain))
}
