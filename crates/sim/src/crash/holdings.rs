//! The opens (with their share reservations) and the locks that members have. Each open or lock is
//! called a holding, and the member that has it is its holder.
//!
//! A holding is certain from its grant until its holder sends the request to release it, as long as
//! the holder lives and its lease has not expired. It stays certain across restarts of the server
//! as long as the holder can reclaim it. Two certain holdings must never conflict.
//!
//! Invariant: a holding is not certain if any possible order of messages may have ended it.

use dafs_types::{FileHandle, ShareAccess, ShareDeny, StateId};

use super::cells::{CellRange, Tick};
use super::requests::{File, LockRange, MemberIndex, Share};

/// The kind of an open or lock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Held {
    /// An open of one of the files that every member keeps open.
    Base(File),
    /// An open of the file of reservations.
    Share(Share),
    /// An open that was made when the file was created. No member reclaims such an open.
    Made,
    Lock(LockRange),
}

/// One open or lock of a member.
#[derive(Clone, Debug)]
pub(super) struct Holding {
    pub number: u64,
    pub member: MemberIndex,
    pub held: Held,
    pub state: StateId,
    pub file: FileHandle,
    /// The lock owner for which the open was made.
    pub owner: u64,
    /// The moment at which the reply that granted the holding arrived.
    pub since: Tick,
    /// The number of the server that most recently granted or restored the holding, counted by
    /// restarts.
    pub epoch: u64,
    /// True if the member certainly had the open or lock when the previous server ended, so that it
    /// may reclaim it.
    pub has_right: bool,
    /// True if the holder is releasing the open or lock, or is rolling back the changes under it.
    pub is_ending: bool,
    /// True if the holder is rolling back the changes under the lock.
    pub aborts: bool,
}

/// A persistent lock whose holder has died, and which stays in effect until it is repaired.
#[derive(Clone, Copy, Debug)]
struct Remnant {
    lock: LockRange,
    since: Tick,
}

/// The current state of a member, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemberStatus {
    /// True if a message of the member arrived at the server so recently that its lease cannot have
    /// expired.
    pub is_fresh: bool,
    /// True if the current server knows that the member has finished reclaiming, and has recorded
    /// this durably for the next server.
    pub is_settled: bool,
}

/// The current state of the server, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerStatus {
    pub epoch: u64,
    /// True if opens and locks from before the restart can still be reclaimed.
    pub may_reclaim: bool,
}

#[derive(Debug, Default)]
pub(super) struct Holdings {
    pub all: Vec<Holding>,
    remnants: Vec<Remnant>,
}

impl Holding {
    /// Returns true if changes under the lock are rolled back when its holder fails.
    pub(super) fn recovers(&self) -> bool {
        matches!(self.held, Held::Lock(lock) if lock.recovers)
    }

    /// Returns true if the open or lock is certain.
    pub(super) fn is_certain(&self, life: MemberStatus, era: ServerStatus) -> bool {
        !self.is_ending && self.is_left(life, era)
    }

    /// Returns true if the holder still has the open or lock, provided that the holder has not
    /// released it.
    pub(super) fn is_left(&self, life: MemberStatus, era: ServerStatus) -> bool {
        if self.epoch == era.epoch { life.is_fresh } else { self.has_right && era.may_reclaim }
    }
}

impl Holdings {
    pub(super) fn find(&self, number: u64) -> Option<&Holding> {
        self.all.iter().find(|holding| holding.number == number)
    }

    pub(super) fn find_mut(&mut self, number: u64) -> Option<&mut Holding> {
        self.all.iter_mut().find(|holding| holding.number == number)
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.all.retain(|holding| holding.number != number);
    }

    pub(super) fn of(&self, member: MemberIndex) -> impl Iterator<Item = &Holding> {
        self.all.iter().filter(move |holding| holding.member == member)
    }

    /// Returns the open through which a member uses a file.
    pub(super) fn base(&self, member: MemberIndex, file: File) -> Option<&Holding> {
        self.of(member).find(|holding| holding.held == Held::Base(file))
    }

    /// Records that the server has ended. `status_of` returns the state of a member at that time.
    ///
    /// The grace period may have ended before a member had reclaimed everything. The server cannot
    /// distinguish such a member from a member that has reclaimed everything and has sent nothing
    /// since. So the next server lets neither member reclaim.
    pub(super) fn crash(
        &mut self,
        era: ServerStatus,
        status_of: impl Fn(MemberIndex) -> MemberStatus,
    ) {
        for holding in &mut self.all {
            let life = status_of(holding.member);
            let is_expected = era.may_reclaim || life.is_settled;
            holding.has_right = is_expected && holding.is_certain(life, era);
        }
        self.all.retain(|holding| holding.held != Held::Made);
    }

    /// Records that a member has died. Its certain persistent locks stay in effect.
    pub(super) fn die(
        &mut self,
        member: MemberIndex,
        life: MemberStatus,
        era: ServerStatus,
        now: Tick,
    ) {
        for holding in self.all.iter().filter(|holding| holding.member == member) {
            if let Held::Lock(lock) = holding.held
                && lock.persists
                && holding.is_certain(life, era)
            {
                self.remnants.push(Remnant { lock, since: now });
            }
        }
        self.all.retain(|holding| holding.member != member);
    }

    /// Records that a member is about to repair the locks of dead members that overlap a range.
    pub(super) fn repair(&mut self, run: &CellRange) {
        self.remnants.retain(|remnant| !remnant.lock.run.overlaps(run));
    }

    /// Checks that the current server may grant an open or lock to a member, given all certain
    /// holdings.
    pub(super) fn judge_grant(
        &self,
        member: MemberIndex,
        held: &Held,
        repairs: bool,
        era: ServerStatus,
        status_of: impl Fn(MemberIndex) -> MemberStatus,
    ) -> Result<(), String> {
        let others = self.all.iter().filter(|holding| holding.member != member);
        let mut certain = others.filter(|other| other.is_certain(status_of(other.member), era));
        if let Some(other) = certain.find(|other| stand_against(held, &other.held)) {
            return Err(format!(
                "member {member} was granted {held:?}, which conflicts with {other:?}"
            ));
        }
        let Held::Lock(lock) = held else { return Ok(()) };
        match self.remnants.iter().find(|remnant| against(lock, &remnant.lock)) {
            Some(remnant) if !repairs => {
                Err(format!("member {member} was granted {held:?} over {remnant:?}"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a read or write that began at `begin` could be executed, given all certain
    /// holdings.
    pub(super) fn judge_transfer(
        &self,
        member: MemberIndex,
        run: &CellRange,
        writes: bool,
        begin: Tick,
        era: ServerStatus,
        status_of: impl Fn(MemberIndex) -> MemberStatus,
    ) -> Result<(), String> {
        let wanted = LockRange { run: *run, writes, persists: false, recovers: false };
        let in_way = self.all.iter().find(|other| {
            other.member != member
                && other.since < begin
                && other.epoch == era.epoch
                && matches!(&other.held, Held::Lock(lock) if against(&wanted, lock))
                && other.is_certain(status_of(other.member), era)
        });
        if let Some(other) = in_way {
            return Err(format!(
                "member {member} executed {wanted:?}, which conflicts with {other:?}"
            ));
        }
        let in_way = self
            .remnants
            .iter()
            .find(|remnant| remnant.since < begin && against(&wanted, &remnant.lock));
        match in_way {
            Some(remnant) => Err(format!("member {member} executed {wanted:?} over {remnant:?}")),
            None => Ok(()),
        }
    }
}

fn stand_against(one: &Held, other: &Held) -> bool {
    match (one, other) {
        (Held::Lock(one), Held::Lock(other)) => against(one, other),
        (Held::Share(one), Held::Share(other)) => {
            denies(one.deny, other.access)
                || denies(other.deny, one.access)
                || one.key.zip(other.key).is_some_and(|(one, other)| one != other)
        }
        _ => false,
    }
}

fn against(one: &LockRange, other: &LockRange) -> bool {
    one.run.overlaps(&other.run) && (one.writes || other.writes)
}

fn denies(deny: ShareDeny, access: ShareAccess) -> bool {
    match deny {
        ShareDeny::None => false,
        ShareDeny::Read => access.reads(),
        ShareDeny::Write => access.writes(),
        ShareDeny::Both => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERA: ServerStatus = ServerStatus { epoch: 1, may_reclaim: true };

    fn lock(first: u8, writes: bool) -> Held {
        let run = CellRange { file: File::Locked, first, count: 2 };
        Held::Lock(LockRange { run, writes, persists: true, recovers: false })
    }

    fn holding(member: MemberIndex, held: Held) -> Holding {
        Holding {
            number: 1,
            member,
            held,
            state: StateId::ANONYMOUS,
            file: FileHandle::NULL,
            owner: 0,
            since: 1,
            epoch: 1,
            has_right: false,
            is_ending: false,
            aborts: false,
        }
    }

    fn fresh(_: MemberIndex) -> MemberStatus {
        MemberStatus { is_fresh: true, is_settled: true }
    }

    #[test]
    fn locks_of_two_members_do_not_conflict() {
        let mut holdings = Holdings::default();
        holdings.all.push(holding(0, lock(4, false)));
        let judge =
            |holdings: &Holdings, held| holdings.judge_grant(1, &held, false, ERA, fresh).is_err();
        assert!(judge(&holdings, lock(5, true)));
        assert!(!judge(&holdings, lock(5, false)));
        assert!(!judge(&holdings, lock(6, true)));
        holdings.all[0].is_ending = true;
        assert!(!judge(&holdings, lock(5, true)));
        holdings.all[0].is_ending = false;
        holdings.die(0, fresh(0), ERA, 2);
        assert!(judge(&holdings, lock(5, true)));
        assert!(holdings.judge_grant(1, &lock(5, true), true, ERA, fresh).is_ok());
    }

    #[test]
    fn a_reclaimable_holding_stays_certain_across_a_restart() {
        let mut holdings = Holdings::default();
        holdings.all.push(holding(0, lock(4, true)));
        holdings.crash(ERA, fresh);
        let later = |may_reclaim| ServerStatus { epoch: 2, may_reclaim };
        assert!(holdings.judge_grant(1, &lock(4, false), false, later(true), fresh).is_err());
        assert!(holdings.judge_grant(1, &lock(4, false), false, later(false), fresh).is_ok());
    }

    #[test]
    fn a_member_that_has_not_finished_reclaiming_is_not_expected_again() {
        let judge = |may_reclaim, is_settled| {
            let mut holdings = Holdings::default();
            holdings.all.push(holding(0, lock(4, true)));
            let era = ServerStatus { epoch: 1, may_reclaim };
            holdings.crash(era, |_| MemberStatus { is_fresh: true, is_settled });
            let later = ServerStatus { epoch: 2, may_reclaim: true };
            holdings.judge_grant(1, &lock(4, false), false, later, fresh).is_err()
        };
        assert!(judge(true, false), "there is time left to reclaim");
        assert!(judge(false, true), "the member has finished reclaiming");
        assert!(!judge(false, false));
    }
}
