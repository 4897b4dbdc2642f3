//! The reaction of a member to replies and to the end of a connection.
//!
//! Invariant: an operation whose reply was lost ends when the server has reported its outcome. A
//! member sends no new requests before it has reclaimed all its opens and locks.

use dafs_types::{StateId, Status};
use dafs_wire::messages::ClientConnectAuthResult;
use dafs_wire::{ByteOrder, Procedure, Response, ResponseHeader, decode_response};

use super::cells::Tick;
use super::holdings::{Held, Holding};
use super::member::{Flight, Phase};
use super::requests::{File, LockRange, MemberRequest, Reply, RequestRef, Share, decode_reply};
use super::servers::CREDITS_MAX;
use super::world::{MADE_OWNER, World, share_owner};
use crate::operation::NameOperation;

impl World {
    /// Handles the end of a connection.
    pub(super) fn on_down(&mut self, index: usize) -> Result<(), String> {
        let stops_reconnecting = self.stops_reconnecting;
        let member = &mut self.members[index];
        if member.phase == Phase::Gone {
            return Ok(());
        }
        let was_leaving = member.phase == Phase::Leaving;
        if member.is_in() {
            member.discards.push(member.session);
        }
        member.phase = if was_leaving && stops_reconnecting { Phase::Gone } else { Phase::Away };
        let mut over = Vec::new();
        for (_, flight) in std::mem::take(&mut member.flights) {
            match (&flight.ask, flight.about) {
                (_, Some(about)) => member.limbo.push(*about),
                (MemberRequest::Discard { session }, None) => member.discards.push(*session),
                (ask, None) if ask.changes() => {
                    member.limbo.push(Flight { about: None, ..flight });
                }
                _ => over.push(flight.number),
            }
        }
        member.discards.dedup();
        for number in over {
            self.judge.cancel(number)?;
        }
        self.note(|| format!("member {index} has lost its connection"));
        Ok(())
    }

    pub(super) fn on_message(&mut self, index: usize, message: &[u8]) -> Result<(), String> {
        let was_fresh = self.status_of(index).is_fresh;
        self.members[index].heard_ns = self.network.now_ns();
        if self.members[index].phase == Phase::LoggingIn {
            return self.on_login(index, message, was_fresh);
        }
        let header = ResponseHeader::decode(ByteOrder::NATIVE, message)
            .map_err(|error| error.to_string())?;
        let member = &mut self.members[index];
        let (stream, sequence) = (header.stream.0, header.sequence.0);
        let flight = member.flights.remove(&stream).filter(|f| f.sequence == sequence);
        let Some(flight) = flight else {
            return Err(format!("member {index} has sent no request {stream}.{sequence}"));
        };
        if !(1..=CREDITS_MAX).contains(&header.target_credits) {
            return Err(format!(
                "invalid credit target {} for member {index}",
                header.target_credits
            ));
        }
        member.credits = (member.credits - 1).max(header.target_credits);
        let directory = match &flight.ask {
            MemberRequest::Names { operation: NameOperation::List { directory }, .. } => *directory,
            _ => 0,
        };
        let (_, reply) = decode_reply(flight.procedure, directory, message)
            .map_err(|what| format!("{:?}: {what}", flight.ask))?;
        let (number, credits) = (flight.number, self.members[index].credits);
        self.note(|| format!("{number} is answered, {credits} credits: {}", brief(&reply)));
        match flight.about {
            Some(about) => self.on_fate(index, *about, reply),
            None => self.on_reply(index, flight, reply),
        }
    }

    fn on_login(&mut self, index: usize, message: &[u8], was_fresh: bool) -> Result<(), String> {
        let (header, response) =
            decode_response(ByteOrder::NATIVE, Procedure::ClientConnectAuth, message)
                .map_err(|error| error.to_string())?;
        let result = match (header.status, response) {
            (Status::Ok, Response::ClientConnectAuth(result)) => result,
            // Another session of the same member was made before or after this one.
            (Status::StaleClientId, _) => {
                self.members[index].line.hang_up();
                self.members[index].phase = Phase::Away;
                return Ok(());
            }
            (status, _) => return Err(format!("member {index} cannot log in: {status:?}")),
        };
        let ClientConnectAuthResult { session, client, options, .. } = result;
        if !options.response_cache {
            return Err(format!("member {index} has no response cache"));
        }
        let is_known = self.members[index].client == Some(client);
        let member = &mut self.members[index];
        (member.session, member.client) = (session, Some(client));
        member.credits = header.target_credits.max(1);
        member.phase = Phase::Recovering;
        self.report.sessions += 1;
        self.note(|| format!("member {index} has {session:?}, known: {is_known}"));
        if !is_known {
            self.forget_state(index, was_fresh)?;
        }
        Ok(())
    }

    /// Forgets a member's opens and locks after a server restart or the expiry of its lease.
    fn forget_state(&mut self, index: usize, was_fresh: bool) -> Result<(), String> {
        let epoch = self.epoch;
        let lost = self.holdings.of(index).find(|holding| holding.epoch == epoch);
        if let Some(lost) = lost.filter(|_| was_fresh) {
            return Err(format!("member {index} has lost {lost:?} before its lease ended"));
        }
        let gone = self.holdings.of(index).filter(|holding| holding.epoch == epoch);
        let gone: Vec<u64> = gone.map(|holding| holding.number).collect();
        for number in gone {
            self.note_loss(number);
            self.holdings.remove(number);
        }
        self.members[index].settled = None;
        Ok(())
    }

    // ---- recovery -------------------------------------------------------------------

    /// Starts the next step of a member's recovery.
    pub(super) fn recover(&mut self, index: usize) -> Result<(), String> {
        if let Some(flight) = self.members[index].limbo.pop() {
            let about = RequestRef {
                stream: flight.stream,
                sequence: flight.sequence,
                procedure: flight.procedure,
            };
            let ask = MemberRequest::Fetch { session: flight.session, about };
            let asked = self.ask(index, ask, Some(Box::new(flight)))?;
            debug_assert!(asked, "a session has a credit");
            return Ok(());
        }
        if let Some(session) = self.members[index].discards.pop() {
            return self.ask(index, MemberRequest::Discard { session }, None).map(drop);
        }
        let epoch = self.epoch;
        if self.members[index].epoch == epoch {
            let old = |holding: &&Holding| holding.epoch < epoch && holding.held != Held::Made;
            let is_lock = |holding: &&Holding| matches!(holding.held, Held::Lock(_));
            let holding = self.holdings.of(index).filter(old).min_by_key(is_lock);
            if let Some(number) = holding.map(|holding| holding.number) {
                let is_ending = self.holdings.find(number).is_some_and(|h| h.is_ending);
                if is_ending {
                    // A member does not reclaim an open or lock that it was releasing.
                    self.note_loss(number);
                    self.holdings.remove(number);
                    return Ok(());
                }
                return self.ask(index, MemberRequest::Reclaim { holding: number }, None).map(drop);
            }
            let missing =
                File::OPEN.iter().find(|file| self.holdings.base(index, **file).is_none());
            if let Some(file) = missing {
                return self.ask(index, MemberRequest::OpenBase { file: *file }, None).map(drop);
            }
            self.members[index].phase = Phase::Here;
            self.note(|| format!("member {index} is back"));
        }
        Ok(())
    }

    /// Handles the server's report of the outcome of a request of an earlier session.
    fn on_fate(&mut self, index: usize, flight: Flight, reply: Reply) -> Result<(), String> {
        self.report.recovered += 1;
        let was_lost = match reply {
            Reply::Status(Status::NoXidMatch) => true,
            Reply::Status(Status::UnknownSession) if flight.epoch < self.epoch => true,
            Reply::Status(status @ (Status::UnknownSession | Status::BadSession)) => {
                return Err(format!("the outcome of {flight:?} is unknown: {status:?}"));
            }
            _ => false,
        };
        if !was_lost {
            return self.on_reply(index, flight, reply);
        }
        self.judge.cancel(flight.number)?;
        let repeats = match &flight.ask {
            MemberRequest::Fence { .. } => true,
            MemberRequest::Names { .. }
            | MemberRequest::Append { .. }
            | MemberRequest::Write { .. }
            | MemberRequest::SetSize { .. } => self.random.percent(70),
            // The state of the member's opens and locks is determined when they are reclaimed.
            MemberRequest::Unlock { holding, .. }
            | MemberRequest::CloseShare { holding }
            | MemberRequest::Abort { holding, .. } => {
                let is_present = flight.epoch == self.epoch;
                if !is_present {
                    self.note_loss(*holding);
                    self.holdings.remove(*holding);
                }
                is_present
            }
            _ => false,
        };
        if repeats {
            self.members[index].again.push(flight.ask);
        }
        Ok(())
    }

    /// Handles the reply to a request. The reply was received now or fetched from the response
    /// cache.
    fn on_reply(&mut self, index: usize, flight: Flight, reply: Reply) -> Result<(), String> {
        let begin = self.judge.begun_at(flight.number);
        if matches!(flight.ask, MemberRequest::Read { .. }) {
            self.note_absence();
        }
        self.judge.end(flight.number, &reply)?;
        // The grant is void if the lease has expired since the request was sent.
        let is_known = flight.client == self.members[index].client;
        let is_present = flight.epoch == self.epoch && is_known;
        let is_refused = matches!(reply, Reply::Status(_));
        if is_present && flight.ask.settles(&reply) {
            self.members[index].settled = Some(self.epoch);
        }
        match &flight.ask {
            MemberRequest::Lock { lock, repairs } if !is_refused && is_present => {
                let state = self.holdings.base(index, File::Locked).map(|base| base.state);
                let state = state.unwrap_or(StateId::ANONYMOUS);
                self.hold(index, flight.number, Held::Lock(*lock), state, *repairs)?;
            }
            MemberRequest::Lock { lock, repairs } if is_refused => {
                self.on_lock_refused(index, *lock, *repairs, &reply)?
            }
            MemberRequest::Unlock { holding, .. } | MemberRequest::CloseShare { holding } => {
                if is_refused && is_present {
                    return Err(format!("member {index} cannot give up {holding}: {reply:?}"));
                }
                self.on_given_up(*holding, is_refused);
            }
            MemberRequest::Abort { holding, .. } => {
                self.on_aborted(index, *holding, is_present, &reply)?
            }
            MemberRequest::OpenShare { share } => {
                self.on_share(index, *share, (flight.number, is_present), &reply)?;
            }
            MemberRequest::OpenBase { file } => {
                self.on_base(index, (*file, begin), (flight.number, is_present), &reply)?;
            }
            MemberRequest::Fence { .. } if reply == Reply::Status(Status::Delay) => {
                self.members[index].again.push(flight.ask);
            }
            MemberRequest::Reclaim { holding } => {
                self.on_reclaimed(index, *holding, is_present, &reply)?
            }
            MemberRequest::Names { operation: NameOperation::Create { .. }, .. } => {
                if let Reply::File(file, state) = reply
                    && state != StateId::ANONYMOUS
                    && is_present
                {
                    self.hold(index, flight.number, Held::Made, state, false)?;
                    self.set_open(flight.number, file, MADE_OWNER);
                }
            }
            MemberRequest::Write { run, .. } | MemberRequest::Read { run }
                if !is_refused && is_present =>
            {
                let (writes, era) = (matches!(flight.ask, MemberRequest::Write { .. }), self.era());
                let lives = self.statuses();
                self.holdings
                    .judge_transfer(index, run, writes, begin, era, |member| lives[member])?;
            }
            MemberRequest::Leave => {
                self.members[index].phase = Phase::Gone;
                self.members[index].line.hang_up();
            }
            _ => {}
        }
        Ok(())
    }

    /// Handles the end of a request that releases an open or lock. `is_refused` is true if the
    /// server did not execute the request.
    fn on_given_up(&mut self, number: u64, is_refused: bool) {
        if is_refused {
            self.note_loss(number);
        } else {
            let now = self.tick();
            self.judge.cells.make_final(number, now);
        }
        self.holdings.remove(number);
    }

    fn on_share(
        &mut self,
        index: usize,
        share: Share,
        (number, is_present): (u64, bool),
        reply: &Reply,
    ) -> Result<(), String> {
        match reply {
            Reply::File(file, state) if is_present && *state != StateId::ANONYMOUS => {
                self.hold(index, number, Held::Share(share), *state, false)?;
                self.set_open(number, *file, share_owner(number));
                Ok(())
            }
            Reply::Status(Status::ShareDenied | Status::KeyMismatch | Status::Grace)
            | Reply::File(..) => Ok(()),
            other => Err(format!("an open of member {index} got {other:?}")),
        }
    }

    fn on_lock_refused(
        &mut self,
        index: usize,
        lock: LockRange,
        repairs: bool,
        reply: &Reply,
    ) -> Result<(), String> {
        match reply {
            Reply::Status(Status::Denied | Status::Grace | Status::Deadlock) => Ok(()),
            Reply::Status(Status::LockBroken) => {
                self.report.broken_locks += 1;
                if !repairs {
                    let lock = LockRange { persists: false, writes: true, recovers: false, ..lock };
                    self.members[index].again.push(MemberRequest::Lock { lock, repairs: true });
                }
                Ok(())
            }
            // The member has a lock there, but has not received the reply with the grant.
            Reply::Status(Status::LockRange) => Ok(()),
            // Another member has repaired the broken lock.
            Reply::Status(Status::Inval) if repairs => Ok(()),
            other => Err(format!("a lock of member {index} got {other:?}")),
        }
    }

    fn on_base(
        &mut self,
        index: usize,
        (file, begin): (File, Tick),
        (number, is_present): (u64, bool),
        reply: &Reply,
    ) -> Result<(), String> {
        match reply {
            Reply::File(handle, state) if is_present => {
                if self.holdings.base(index, file).is_none() {
                    self.hold(index, number, Held::Base(file), *state, false)?;
                    self.set_open(number, *handle, file as u64);
                }
                Ok(())
            }
            Reply::File(..) => Ok(()),
            Reply::Status(Status::Grace) => {
                self.members[index].patient_ns = self.network.now_ns() + PATIENCE_NS;
                Ok(())
            }
            // The member is fenced out, and retries until it is admitted again.
            Reply::Status(Status::Access) => {
                self.judge.fences.judge(file, index, begin, false)?;
                self.members[index].patient_ns = self.network.now_ns() + PATIENCE_NS;
                Ok(())
            }
            other => Err(format!("member {index} cannot open {file:?}: {other:?}")),
        }
    }

    fn on_reclaimed(
        &mut self,
        index: usize,
        number: u64,
        is_present: bool,
        reply: &Reply,
    ) -> Result<(), String> {
        if !is_present {
            return Ok(());
        }
        let (era, lives) = (self.era(), self.statuses());
        let Some(holding) = self.holdings.find(number).cloned() else { return Ok(()) };
        if let Reply::Status(status) = reply {
            // The member is fenced out, or has a lock but has not received the reply with its
            // grant.
            let is_excused = matches!(status, Status::Access | Status::LockRange);
            if holding.has_right && era.may_reclaim && !is_excused {
                return Err(format!("member {index} cannot reclaim {holding:?}: {status:?}"));
            }
            self.note_loss(number);
            self.holdings.remove(number);
            return Ok(());
        }
        self.holdings.judge_grant(index, &holding.held, false, era, |member| lives[member])?;
        self.report.reclaimed += 1;
        let (epoch, now) = (self.epoch, self.tick());
        if let Some(holding) = self.holdings.find_mut(number) {
            (holding.epoch, holding.since) = (epoch, now);
            if let Reply::File(_, state) = reply {
                holding.state = *state;
            }
        }
        Ok(())
    }

    /// Handles the rollback of the changes under a lock, which stays held.
    fn on_aborted(
        &mut self,
        index: usize,
        number: u64,
        is_present: bool,
        reply: &Reply,
    ) -> Result<(), String> {
        match reply {
            Reply::Done => {
                self.report.taken_back += 1;
                self.judge.cells.undo(number, self.tick());
            }
            // An earlier rollback is still running.
            Reply::Status(Status::Locked | Status::Delay) => {}
            other if is_present => {
                return Err(format!("member {index} cannot roll back under {number}: {other:?}"));
            }
            _ => {}
        }
        if let Some(holding) = self.holdings.find_mut(number).filter(|_| is_present) {
            (holding.is_ending, holding.aborts) = (false, false);
        }
        Ok(())
    }

    /// Records an open or lock that was granted.
    fn hold(
        &mut self,
        member: usize,
        number: u64,
        held: Held,
        state: StateId,
        repairs: bool,
    ) -> Result<(), String> {
        let (era, lives) = (self.era(), self.statuses());
        self.holdings.judge_grant(member, &held, repairs, era, |member| lives[member])?;
        let file = self.files[File::Locked as usize];
        let (since, epoch) = (self.tick(), self.epoch);
        let (owner, has_right, is_ending, aborts) = (0, false, false, false);
        self.holdings.all.push(Holding {
            number,
            member,
            held,
            state,
            file,
            owner,
            since,
            epoch,
            has_right,
            is_ending,
            aborts,
        });
        Ok(())
    }

    fn set_open(&mut self, number: u64, file: dafs_types::FileHandle, owner: u64) {
        if let Some(holding) = self.holdings.find_mut(number) {
            (holding.file, holding.owner) = (file, owner);
        }
    }
}

/// Returns a description of a reply without its data.
fn brief(reply: &Reply) -> String {
    match reply {
        Reply::Bytes(bytes) | Reply::FirstBytes(bytes) => {
            let stamps: Vec<_> = bytes.chunks(64).map(super::log::stamp_of).collect();
            format!("{} bytes: {stamps:?}", bytes.len())
        }
        other => format!("{other:?}"),
    }
}

/// The time in nanoseconds that a member waits before it repeats a request that was refused.
const PATIENCE_NS: u64 = 3_000_000;
