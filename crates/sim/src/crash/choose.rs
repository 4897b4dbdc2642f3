//! Chooses the next requests of members.
//!
//! Invariant: members send only requests that a correct client would send. A lock is requested
//! under the member's own open, no range is locked twice, and a member that sets a fencing list
//! includes itself.

use dafs_types::{ShareAccess, ShareDeny, Stability};

use super::cells::CellRange;
use super::holdings::Held;
use super::member::Phase;
use super::requests::{CELLS, File, LockRange, MemberIndex, MemberRequest, Share};
use super::world::World;
use crate::operation::{Name, NameOperation};

impl World {
    /// Makes a member send a request, with some probability.
    pub(super) fn begin_some(&mut self) -> Result<(), String> {
        let index = self.random.below(self.members.len() + self.nfs_members.len());
        if let Some(at) = index.checked_sub(self.members.len()) {
            self.begin_nfs(at);
            return Ok(());
        }
        if self.members[index].phase != Phase::Here || !self.random.percent(45) {
            return Ok(());
        }
        let ask = match self.members[index].again.pop() {
            Some(ask) => Some(self.update_repeat(index, ask)),
            None => self.choose(index).map(|ask| (ask, true)),
        };
        let Some((ask, is_wanted)) = ask else {
            return Ok(());
        };
        if is_wanted && !self.ask(index, ask.clone(), None)? {
            self.members[index].again.push(ask);
        }
        Ok(())
    }

    /// Updates a request that must be repeated. Returns the request, and a flag that is true if the
    /// request is still needed.
    fn update_repeat(&self, index: MemberIndex, ask: MemberRequest) -> (MemberRequest, bool) {
        let is_wanted = match &ask {
            MemberRequest::Unlock { holding, .. }
            | MemberRequest::CloseShare { holding }
            | MemberRequest::Abort { holding, .. } => self.holdings.find(*holding).is_some(),
            MemberRequest::Write { run, .. } => self.may_write(index, run),
            MemberRequest::Names { operation, .. } if operation.changes() => {
                self.judge.name_changes() < NAME_CHANGES_MAX
            }
            MemberRequest::Lock { lock, .. } => self.may_lock(index, &lock.run),
            _ => true,
        };
        (ask, is_wanted)
    }

    fn choose(&mut self, index: MemberIndex) -> Option<MemberRequest> {
        if self.plan.takes_back && self.random.percent(50) {
            return self.choose_under_locks(index);
        }
        if self.plan.shuts_out && self.random.percent(60) {
            return self.choose_beside_fences(index);
        }
        let held = self.holdings.of(index).count();
        match self.random.below(100) {
            0..28 => self.choose_name(),
            28..42 => {
                self.records += 1;
                Some(MemberRequest::Append { id: self.records })
            }
            42..58 => {
                let stability = match self.random.below(4) {
                    0 => Stability::DataSync,
                    1 => Stability::FileSync,
                    _ => Stability::Unstable,
                };
                let run = self.any_run();
                self.choose_write(index, run, stability)
            }
            58..62 => Some(MemberRequest::Commit { file: self.any_file() }),
            62..72 => Some(MemberRequest::Read { run: self.any_run() }),
            72..77 => {
                let from = self.random.below(self.judge.log.pages() as usize) as u64;
                Some(MemberRequest::ReadLog { from: from * super::log::PAGE_RECORDS })
            }
            77..80 => Some(MemberRequest::SetSize { id: 0 }),
            80..82 => Some(MemberRequest::Size),
            82..88 => self.choose_lock(index),
            88..95 if held > File::OPEN.len() => self.choose_end(index),
            88..91 => Some(MemberRequest::OpenShare { share: self.any_share() }),
            95..100 if index == 0 => self.choose_fence(),
            95..97 => self.choose_end(index),
            _ => Some(MemberRequest::Null),
        }
    }

    /// Chooses a lock, an unlock, or an unstable write to the locked file.
    fn choose_under_locks(&mut self, index: MemberIndex) -> Option<MemberRequest> {
        match self.random.below(10) {
            0..6 => {
                let run = CellRange { file: File::Locked, ..self.any_run() };
                self.choose_write(index, run, Stability::Unstable)
            }
            6..8 => self.choose_lock(index),
            _ => self.choose_end(index),
        }
    }

    /// Chooses a change of a fencing list, a read after such a change, or a write that such a
    /// change may affect.
    fn choose_beside_fences(&mut self, index: MemberIndex) -> Option<MemberRequest> {
        let first = self.random.below(2) as u8;
        let run = CellRange { file: File::Data, first, count: 1 + self.random.below(2) as u8 };
        match index {
            0 if self.random.percent(40) => self.choose_fence(),
            0 => Some(MemberRequest::Read { run }),
            _ => {
                let (stability, is_direct) = (Stability::Unstable, true);
                Some(MemberRequest::Write { id: 0, run, stability, is_direct })
            }
        }
    }

    fn choose_write(
        &mut self,
        index: MemberIndex,
        run: CellRange,
        stability: Stability,
    ) -> Option<MemberRequest> {
        let is_direct = self.random.percent(50);
        let may = self.may_write(index, &run);
        may.then_some(MemberRequest::Write { id: 0, run, stability, is_direct })
    }

    fn any_file(&mut self) -> File {
        if self.random.percent(60) { File::Data } else { File::Locked }
    }

    pub(super) fn any_run(&mut self) -> CellRange {
        let (file, count) = (self.any_file(), 1 + self.random.below(3) as u8);
        // Use only a few positions, so that members conflict; one range crosses the boundary of a
        // block.
        let first = [0, 2, 4, 14, 15, 20][self.random.below(6)];
        CellRange { file, first: first.min(CELLS - count), count }
    }

    fn any_share(&mut self) -> Share {
        let access = [ShareAccess::Read, ShareAccess::Write, ShareAccess::Both];
        let deny = [ShareDeny::None, ShareDeny::None, ShareDeny::Read, ShareDeny::Write];
        let key = [None, None, Some(1), Some(2)];
        Share {
            access: access[self.random.below(3)],
            deny: deny[self.random.below(4)],
            key: key[self.random.below(4)],
        }
    }

    pub(super) fn choose_name(&mut self) -> Option<MemberRequest> {
        let is_file = self.random.percent(50);
        let may_change = self.judge.name_changes() < NAME_CHANGES_MAX;
        let name = self.any_name();
        let operation = match self.random.below(100) {
            0..34 if may_change => NameOperation::Create { name, guarded: true },
            34..52 if may_change => NameOperation::Remove { name },
            52..66 if may_change => NameOperation::Rename { from: name, to: self.any_name() },
            66..76 if may_change && !self.judge.made.is_empty() => {
                let file = self.judge.made[self.random.below(self.judge.made.len())];
                NameOperation::Link { file, name }
            }
            76..92 => NameOperation::Lookup { name },
            92..100 => NameOperation::List { directory: name.directory },
            _ => return None,
        };
        Some(MemberRequest::Names { operation, is_file })
    }

    fn any_name(&mut self) -> Name {
        let directory = self.random.below(2) as u8;
        Name { directory, index: self.random.below(4) as u8 }
    }

    fn choose_lock(&mut self, index: MemberIndex) -> Option<MemberRequest> {
        let run = CellRange { file: File::Locked, ..self.any_run() };
        // Do not take locks in runs with frequent fences. While an auto-recovery lock exists, the
        // server executes no write concurrently with the turns of other reactors, but these runs
        // must test such writes.
        if self.plan.shuts_out || !self.may_lock(index, &run) {
            return None;
        }
        let writes = self.random.percent(65);
        let recovers = writes && self.random.percent(50);
        let persists = self.random.percent(if recovers { 20 } else { 40 });
        Some(MemberRequest::Lock {
            lock: LockRange { run, writes, persists, recovers },
            repairs: false,
        })
    }

    /// Returns true if a member may write a range. A lock whose changes are rolled back must cover
    /// the whole range or none of it, so that the checker knows which lock covers the write.
    fn may_write(&self, index: MemberIndex, run: &CellRange) -> bool {
        let mut held = self.holdings.of(index);
        let covers = |lock: &LockRange| {
            lock.run.first <= run.first && run.first + run.count <= lock.run.first + lock.run.count
        };
        let is_covered = held.all(|holding| match &holding.held {
            Held::Lock(lock) if lock.recovers && lock.run.overlaps(run) => {
                covers(lock) && !holding.is_ending && holding.epoch == self.epoch
            }
            _ => true,
        });
        let member = &self.members[index];
        let is_changing = |ask: &MemberRequest| match ask {
            MemberRequest::Lock { lock, .. } => lock.run.overlaps(run),
            MemberRequest::Unlock { run: other, .. } | MemberRequest::Abort { run: other, .. } => {
                other.overlaps(run)
            }
            _ => false,
        };
        is_covered && !member.flights.values().any(|flight| is_changing(&flight.ask))
    }

    /// Returns true if a member has no write in flight in this range.
    fn is_quiet(&self, index: MemberIndex, run: &CellRange) -> bool {
        let member = &self.members[index];
        !member.flights.values().any(|flight| match &flight.ask {
            MemberRequest::Write { run: other, .. } => other.overlaps(run),
            _ => false,
        })
    }

    /// Returns true if a member has no lock in this range and has not requested one.
    fn may_lock(&self, index: MemberIndex, run: &CellRange) -> bool {
        let mut held = self.holdings.of(index);
        let has = held.any(|holding| match holding.held {
            Held::Lock(lock) => lock.run.overlaps(run),
            _ => false,
        });
        let mut flights = self.members[index].flights.values();
        let wants = flights.any(|flight| match &flight.ask {
            MemberRequest::Lock { lock, .. } => lock.run.overlaps(run),
            MemberRequest::Unlock { run: other, .. } | MemberRequest::Write { run: other, .. } => {
                other.overlaps(run)
            }
            _ => false,
        });
        !has && !wants && self.holdings.base(index, File::Locked).is_some()
    }

    /// Chooses an open or lock to release, and returns the request that releases it.
    fn choose_end(&mut self, index: MemberIndex) -> Option<MemberRequest> {
        let epoch = self.epoch;
        let held = self.holdings.of(index).filter(|holding| {
            !matches!(holding.held, Held::Base(_)) && !holding.is_ending && holding.epoch == epoch
        });
        let held: Vec<_> = held.map(|holding| (holding.number, holding.held)).collect();
        let (holding, held) = *held.get(self.random.below(held.len()))?;
        Some(match held {
            Held::Lock(lock) if lock.recovers && !self.is_quiet(index, &lock.run) => return None,
            Held::Lock(lock) if lock.recovers && self.random.percent(40) => {
                MemberRequest::Abort { holding, run: lock.run }
            }
            Held::Lock(lock) => MemberRequest::Unlock { holding, run: lock.run },
            _ => MemberRequest::CloseShare { holding },
        })
    }

    fn choose_fence(&mut self) -> Option<MemberRequest> {
        let file = if self.random.percent(60) { File::Data } else { File::Log };
        if self.judge.fences.is_changing(file) {
            return None;
        }
        let mut members = vec![0];
        members.extend(
            (1..self.members.len() + self.nfs_members.len()).filter(|_| self.random.percent(55)),
        );
        if self.random.percent(30) {
            members.clear();
        }
        Some(MemberRequest::Fence { file, members })
    }
}

/// The maximum number of changes of names in flight. It is small, because the checker tries all
/// their orders.
const NAME_CHANGES_MAX: usize = 4;
