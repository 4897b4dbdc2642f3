//! The crash world: a server with its disk and its journal, members, the network between them, and
//! the scheduler.
//!
//! Invariant: everything happens in this thread, in an order determined by the seed, and nothing
//! reads a real clock: two runs of one seed are identical.

use std::collections::VecDeque;

use dafs_dat::sim::{ConnectionId, FaultPlan, Network};
use dafs_server::Defect;
use dafs_store::{AttributeChanges, Store};
use dafs_types::{CreateMode, FileHandle, Random, SequenceNumber, ShareAccess, StateId, StreamId};
use dafs_wire::RequestHeader;

use super::cells::Tick;
use super::connection::{ConnectionEvent, MemberConnection};
use super::holdings::{Held, Holdings, MemberStatus, ServerStatus};
use super::judge::Judge;
use super::log::stamped;
use super::member::{Flight, Member, Phase};
use super::nfs::NfsMember;
use super::requests::{Context, File, MemberRequest, Reclaimed, SIZE_BASE, Share, encode};
use super::servers::{CREDITS_MAX, Servers};
use super::{StormPlan, StormReport};
use crate::initial::{InitialObjects, set};
use crate::plan::{SERVER_NODE, root as superuser};
use crate::reactors::draw;

/// A run in progress.
pub(super) struct World {
    pub plan: StormPlan,
    pub network: Network,
    pub servers: Servers,
    pub members: Vec<Member>,
    /// The NFS clients. Their numbers follow those of the other members.
    pub nfs_members: Vec<NfsMember>,
    pub judge: Judge,
    pub holdings: Holdings,
    pub root: FileHandle,
    pub directories: Vec<FileHandle>,
    pub files: Vec<FileHandle>,
    pub random: Random,
    /// The number of servers that ran before the current one.
    pub epoch: u64,
    /// The numbers of requests that members have forgotten. Each comes with the connections that
    /// may still deliver it: those from this node up to the newest one.
    orphans: Vec<(u64, u32, Option<ConnectionId>)>,
    history: VecDeque<String>,
    pub number: u64,
    pub records: u64,
    pub asked: u64,
    turns: u64,
    pub report: StormReport,
    /// True if a persistent lock with undo data may remain at the end.
    pub may_keep_undo: bool,
    /// True when no more faults happen.
    pub faults_stopped: bool,
    /// True when no member reconnects any more.
    pub stops_reconnecting: bool,
    prints: bool,
}

impl World {
    pub(super) fn new(
        plan: StormPlan,
        defect: Option<Defect>,
        prints: bool,
    ) -> Result<Self, String> {
        let network = Network::new(plan.network());
        let mut servers = Servers::new(&plan, &network, defect);
        let InitialObjects { root, directories } = set(&servers.disk)?;
        let files = lay_out(&servers.disk, &root)?;
        servers.start(false)?;
        let nfs = plan.members..plan.members + plan.nfs_members;
        let nfs_members = nfs.map(|index| NfsMember::new(&network, index)).collect();
        let members = (0..plan.members)
            .map(|index| Ok(Member::new(index, MemberConnection::new(&network, 1 + index as u32)?)))
            .collect::<Result<_, String>>()?;
        Ok(Self {
            random: Random::new(plan.seed ^ WORLD_SALT),
            plan,
            network,
            servers,
            members,
            nfs_members,
            judge: Judge::new(),
            holdings: Holdings::default(),
            root,
            directories,
            files,
            epoch: 1,
            orphans: Vec::new(),
            history: VecDeque::new(),
            number: 0,
            records: 0,
            asked: 0,
            turns: 0,
            report: StormReport::default(),
            may_keep_undo: false,
            faults_stopped: false,
            stops_reconnecting: false,
            prints,
        })
    }

    /// Runs the whole plan, with the final checks.
    pub(super) fn play(&mut self) -> Result<StormReport, String> {
        while self.steps() < self.plan.steps {
            self.turn()?;
            self.begin_some()?;
        }
        self.stop_faults()?;
        self.finish()?;
        self.report.steps = self.steps();
        self.report.cloned_bytes = self.servers.cloned_bytes();
        self.report.trace = self.network.trace_hash();
        Ok(self.report)
    }

    /// Returns the number of events: messages that arrived and requests that were sent.
    pub(super) fn steps(&self) -> u64 {
        self.network.statistics().arrivals + self.asked
    }

    pub(super) fn history(&self) -> Vec<String> {
        self.history.iter().cloned().collect()
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        let line = format!("{:>12} ns  {}", self.network.now_ns(), line());
        if self.prints {
            println!("{line}");
        }
        if self.history.len() == HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back(line);
    }

    // ---- turns ----------------------------------------------------------------------

    /// Runs one turn of the server, a member or the clock.
    pub(super) fn turn(&mut self) -> Result<(), String> {
        self.turns += 1;
        if self.turns > TURNS_MAX {
            return Err("nothing ends".into());
        }
        match self.random.below(100) {
            0..35 => self.turn_server()?,
            35..70 => {
                let index = self.random.below(self.members.len() + self.nfs_members.len());
                match index.checked_sub(self.members.len()) {
                    Some(at) => self.turn_nfs(at)?,
                    None => self.turn_member(index)?,
                }
            }
            70..98 => self.turn_clock(),
            _ => {
                let span_ns = self.random.below(SPAN_NS_MAX) as u64;
                self.network.advance_to(self.network.now_ns() + span_ns);
            }
        }
        if !self.faults_stopped && (self.random.below(10_000) as u32) < self.plan.faults_of_10000 {
            self.make_fault()?;
        }
        Ok(())
    }

    fn turn_clock(&mut self) {
        let far_ns = self.network.now_ns() + SPAN_NS_MAX as u64;
        match self.network.next_ns() {
            Some(next_ns) if next_ns > far_ns => self.network.advance_to(far_ns),
            _ => drop(self.network.advance()),
        }
    }

    fn turn_server(&mut self) -> Result<(), String> {
        if !self.servers.is_up() {
            if self.faults_stopped || self.random.percent(10) {
                self.restart()?;
            }
            return Ok(());
        }
        self.servers.step();
        if self.servers.has_overslept() {
            return Err("a reactor slept although it had work".into());
        }
        if self.turns.is_multiple_of(16) {
            self.check_server()?;
        }
        self.settle_orphans()
    }

    fn restart(&mut self) -> Result<(), String> {
        if self.servers.start(!self.faults_stopped)? {
            self.note(|| "the server is up".into());
            // Settle all requests in flight, because their server has ended.
            for (number, ..) in std::mem::take(&mut self.orphans) {
                self.judge.settle(number)?;
            }
        } else {
            self.report.crashes += 1;
            self.judge.crash(true);
            self.note(|| "the power fails while the server starts".into());
        }
        Ok(())
    }

    /// Checks the invariants of the server.
    fn check_server(&mut self) -> Result<(), String> {
        let Some(stats) = self.servers.stats() else { return Ok(()) };
        let sessions = stats.sessions;
        if sessions.credits > self.plan.credits_budget {
            return Err(format!("{} credits of {}", sessions.credits, self.plan.credits_budget));
        }
        if sessions.breaks_credits + sessions.breaks_stream > 0 {
            return Err(format!("a member was reported to withhold credits: {sessions:?}"));
        }
        Ok(())
    }

    fn settle_orphans(&mut self) -> Result<(), String> {
        if self.orphans.is_empty() {
            return Ok(());
        }
        let busy = |stats: dafs_server::ServerStats| {
            stats.parked_requests > 0 || stats.journaled_requests > 0
        };
        if self.servers.stats().is_some_and(busy) {
            return Ok(());
        }
        let connections = self.network.connections();
        let carries = |(_, node, newest): &(u64, u32, Option<ConnectionId>)| {
            connections.iter().any(|c| c.initiator == *node && Some(c.id) <= *newest)
        };
        let (left, over): (Vec<_>, Vec<_>) = self.orphans.drain(..).partition(carries);
        self.orphans = left;
        for (number, ..) in over {
            self.judge.settle(number)?;
        }
        Ok(())
    }

    /// Notes requests that a member on this node has forgotten. They are settled when they can no
    /// longer be executed.
    pub(super) fn orphan(&mut self, node: u32, numbers: impl IntoIterator<Item = u64>) {
        let connections = self.network.connections();
        let newest = connections.iter().filter(|c| c.initiator == node).map(|c| c.id).max();
        self.orphans.extend(numbers.into_iter().map(|number| (number, node, newest)));
    }

    fn turn_member(&mut self, index: usize) -> Result<(), String> {
        for word in self.members[index].line.take() {
            match word {
                ConnectionEvent::Up => {
                    let wish = 1 + self.random.below(usize::from(CREDITS_MAX)) as u16;
                    self.members[index].log_in(wish, self.epoch)?;
                }
                ConnectionEvent::Down => self.on_down(index)?,
                ConnectionEvent::Message(message) => self.on_message(index, &message)?,
            }
        }
        let member = &mut self.members[index];
        match member.phase {
            Phase::Away
                if member.line.is_free() && !self.stops_reconnecting && self.random.percent(25) =>
            {
                let reactor = draw(self.plan.reactors, &mut self.random);
                member.connect(reactor)?;
            }
            Phase::Recovering
                if member.flights.is_empty() && member.patient_ns <= self.network.now_ns() =>
            {
                self.recover(index)?;
            }
            _ => {}
        }
        Ok(())
    }

    // ---- faults ---------------------------------------------------------------------

    fn make_fault(&mut self) -> Result<(), String> {
        let index = self.random.below(self.members.len() + self.nfs_members.len());
        let nfs = index.checked_sub(self.members.len());
        let node = SERVER_NODE + 1 + index as u32;
        match self.random.below(100) {
            0..35 => {
                let connections = self.network.connections();
                let mine: Vec<_> = connections.iter().filter(|c| c.initiator == node).collect();
                if let Some(connection) = mine.last() {
                    self.note(|| format!("fault: the connection of member {index} is cut"));
                    self.network.break_connection(connection.id);
                    self.report.cuts += 1;
                }
            }
            35..45 => {
                self.note(|| format!("trouble: member {index} is parted"));
                self.network.partition(node);
            }
            45..60 => self.network.heal(node),
            60..68 => match nfs {
                Some(at) => self.kill_nfs_member(at),
                None => self.kill_member(index),
            },
            68..75 => {
                self.note(|| format!("trouble: member {index} hangs up"));
                match nfs {
                    Some(at) => self.nfs_members[at].hang_up(),
                    None => self.members[index].line.hang_up(),
                }
            }
            _ if self.servers.is_up() => {
                let loses_power = self.random.percent(50);
                self.crash(loses_power);
            }
            _ => {}
        }
        Ok(())
    }

    fn kill_member(&mut self, index: usize) {
        self.note(|| format!("trouble: member {index} dies"));
        self.report.deaths += 1;
        let era = self.era();
        let life = self.status_of(index);
        let held: Vec<u64> = self.holdings.of(index).map(|holding| holding.number).collect();
        for number in held {
            self.note_loss(number);
        }
        self.holdings.die(index, life, era, self.judge.now());
        let node = self.members[index].node();
        let lost: Vec<u64> = self.members[index].die().iter().map(|flight| flight.number).collect();
        self.orphan(node, lost);
    }

    pub(super) fn crash(&mut self, loses_power: bool) {
        let how = if loses_power { "the power fails" } else { "the server is killed" };
        self.note(|| format!("crash: {how}"));
        self.report.crashes += 1;
        let era = self.era();
        let lives: Vec<MemberStatus> =
            (0..self.members.len()).map(|at| self.status_of(at)).collect();
        self.holdings.crash(era, |member| lives[member]);
        self.epoch += 1;
        self.servers.crash(loses_power);
        self.judge.crash(loses_power);
    }

    /// Returns the lock that covers a member's write, if that lock rolls changes back.
    fn recovering_lock(&self, index: usize, run: &super::cells::CellRange) -> Option<u64> {
        let mut held = self.holdings.of(index);
        let lock = held.find(|holding| match holding.held {
            Held::Lock(lock) => lock.recovers && lock.run.overlaps(run),
            _ => false,
        });
        lock.map(|lock| lock.number)
    }

    /// Handles the end of an open or lock that its holder did not request. The changes under the
    /// lock are rolled back.
    pub(super) fn note_loss(&mut self, number: u64) {
        let Some(holding) = self.holdings.find(number).filter(|holding| holding.recovers()) else {
            return;
        };
        // A persistent lock is rolled back only when it breaks, and no later request may break it.
        let persists = matches!(holding.held, Held::Lock(lock) if lock.persists);
        if holding.is_ending || persists {
            self.judge.cells.leave_open(number);
        } else {
            self.report.taken_back += 1;
            self.judge.cells.undo(number, self.judge.now());
        }
    }

    /// Records that members that have sent nothing for a long time may have lost their locks, so
    /// that the changes under these locks may be rolled back.
    pub(super) fn note_absence(&mut self) {
        let (era, lives) = (self.era(), self.statuses());
        let recovering = self.holdings.all.iter().filter(|holding| holding.recovers());
        for holding in recovering.filter(|holding| !holding.is_left(lives[holding.member], era)) {
            self.judge.cells.leave_open(holding.number);
        }
    }

    /// Returns the current state of the server, as far as it is known.
    pub(super) fn era(&self) -> ServerStatus {
        let since_ns = self.network.now_ns().saturating_sub(self.servers.started_ns());
        let may_reclaim = !self.servers.is_up() || since_ns < self.plan.lease_ns / 2;
        ServerStatus { epoch: self.epoch, may_reclaim }
    }

    /// Returns the current state of a member, as far as it is known.
    pub(super) fn status_of(&self, index: usize) -> MemberStatus {
        let silent_ns = self.network.now_ns().saturating_sub(self.members[index].heard_ns);
        let is_settled = self.members[index].settled == Some(self.epoch);
        MemberStatus { is_fresh: silent_ns < self.plan.lease_ns / 2, is_settled }
    }

    /// Returns the current states of all members, as far as they are known.
    pub(super) fn statuses(&self) -> Vec<MemberStatus> {
        (0..self.members.len()).map(|index| self.status_of(index)).collect()
    }

    // ---- requests -------------------------------------------------------------------

    /// Sends a request if there is a credit for it. Returns true if it was sent.
    pub(super) fn ask(
        &mut self,
        index: usize,
        ask: MemberRequest,
        about: Option<Box<Flight>>,
    ) -> Result<bool, String> {
        let draw = self.random.below(64);
        let Some(stream) = self.members[index].free_stream(draw) else { return Ok(false) };
        let sequence = self.members[index].next_sequence(stream);
        self.number += 1;
        self.asked += 1;
        let number = self.number;
        let ask = self.named(ask);
        if let MemberRequest::Lock { lock, .. } = &ask {
            // If the reply with the grant is lost, no request may ever break or release the lock.
            self.may_keep_undo |= lock.persists && lock.recovers;
        }
        let mut header = RequestHeader::new(StreamId(stream), SequenceNumber(sequence));
        header.desired_credits = self.random.below(usize::from(CREDITS_MAX) + 1) as u16;
        let buffer = match &ask {
            MemberRequest::Write { id, run, is_direct: true, .. } => {
                let bytes = stamped(*id, usize::from(run.count) * super::requests::CELL_BYTES);
                Some(self.members[index].line.expose(usize::from(stream), &bytes))
            }
            _ => None,
        };
        let (state, file, owner, reclaims) = self.subject(index, &ask);
        let context = Context {
            root: self.root,
            dafs_members: self.members.len(),
            directories: &self.directories,
            files: &self.files,
            state,
            file,
            owner,
            reclaims,
            buffer,
        };
        let (procedure, message) =
            encode(&header, &ask, &context).map_err(|error| error.to_string())?;
        // Decode the reply as a reply to the earlier request whose outcome is queried.
        let procedure = about.as_ref().map_or(procedure, |about| about.procedure);
        self.note(|| format!("{number} at member {index}, {stream}.{sequence}: {ask:?}"));
        self.judge.begin(number, index, &ask);
        self.note_asked(index, &ask);
        let member = &mut self.members[index];
        member.line.send(&message);
        let flight = Flight {
            number,
            ask,
            session: member.session,
            epoch: member.epoch,
            client: member.client,
            stream,
            sequence,
            procedure,
            about,
        };
        member.flights.insert(stream, flight);
        Ok(true)
    }

    /// Updates the member's opens and locks for a request that is being sent.
    fn note_asked(&mut self, index: usize, ask: &MemberRequest) {
        if let MemberRequest::Unlock { holding, .. }
        | MemberRequest::CloseShare { holding }
        | MemberRequest::Abort { holding, .. } = ask
            && let Some(holding) = self.holdings.find_mut(*holding)
        {
            holding.is_ending = true;
            holding.aborts = matches!(ask, MemberRequest::Abort { .. });
        }
        if let MemberRequest::Abort { holding, .. } = ask {
            self.judge.cells.leave_open(*holding);
        }
        if let MemberRequest::Write { id, run, .. } = ask
            && let Some(lock) = self.recovering_lock(index, run)
        {
            self.judge.cells.set_transaction(*id, lock);
        }
        if let MemberRequest::Lock { lock, repairs: true } = ask {
            self.holdings.repair(&lock.run);
        }
    }

    /// Gives a write its id, which is the number of the operation.
    pub(super) fn named(&self, ask: MemberRequest) -> MemberRequest {
        match ask {
            MemberRequest::Write { run, stability, is_direct, .. } => {
                MemberRequest::Write { id: self.number, run, stability, is_direct }
            }
            MemberRequest::SetSize { .. } => MemberRequest::SetSize { id: self.number },
            other => other,
        }
    }

    /// Returns what a request concerns: the state id, the file, the owner, and the open or lock to
    /// reclaim.
    fn subject(
        &self,
        index: usize,
        ask: &MemberRequest,
    ) -> (StateId, FileHandle, u64, Option<Reclaimed>) {
        let state_of = |file| {
            self.holdings.base(index, file).map_or(StateId::ANONYMOUS, |holding| holding.state)
        };
        let (none, null) = (StateId::ANONYMOUS, FileHandle::NULL);
        match ask {
            MemberRequest::Append { .. } | MemberRequest::ReadLog { .. } => {
                (state_of(File::Log), null, 0, None)
            }
            MemberRequest::Write { run, .. } | MemberRequest::Read { run } => {
                (state_of(run.file), null, 0, None)
            }
            MemberRequest::SetSize { .. } => (state_of(File::Data), null, 0, None),
            MemberRequest::Lock { .. }
            | MemberRequest::Unlock { .. }
            | MemberRequest::Abort { .. } => (state_of(File::Locked), null, 0, None),
            MemberRequest::CloseShare { holding } => match self.holdings.find(*holding) {
                Some(holding) => (holding.state, holding.file, 0, None),
                None => (none, null, 0, None),
            },
            MemberRequest::OpenShare { .. } => (none, null, share_owner(self.number), None),
            MemberRequest::OpenBase { file } => (none, null, *file as u64, None),
            MemberRequest::Reclaim { holding } => self.subject_of_reclaim(index, *holding),
            MemberRequest::Names { operation, .. } => {
                use crate::operation::NameOperation::{Link, Links};
                let file = match operation {
                    Link { file, .. } | Links { file } => self.judge.handle_of(*file),
                    _ => null,
                };
                (none, file, MADE_OWNER, None)
            }
            _ => (none, null, 0, None),
        }
    }

    fn subject_of_reclaim(
        &self,
        index: usize,
        holding: u64,
    ) -> (StateId, FileHandle, u64, Option<Reclaimed>) {
        let none = StateId::ANONYMOUS;
        let Some(holding) = self.holdings.find(holding) else {
            return (none, FileHandle::NULL, 0, None);
        };
        let open = |share: Share| (none, holding.file, holding.owner, Some(Reclaimed::Open(share)));
        match holding.held {
            Held::Base(_) | Held::Made => open(super::requests::BASE),
            Held::Share(share) => open(share),
            Held::Lock(lock) => {
                let base = self.holdings.base(index, File::Locked);
                let state = base.map_or(none, |base| base.state);
                (state, holding.file, 0, Some(Reclaimed::Lock(lock)))
            }
        }
    }

    // ---- the end --------------------------------------------------------------------

    fn stop_faults(&mut self) -> Result<(), String> {
        self.faults_stopped = true;
        self.note(|| "calm".into());
        self.network.set_faults(FaultPlan::default());
        for member in &self.members {
            self.network.heal(member.node());
        }
        for member in &self.nfs_members {
            self.network.heal(member.node());
        }
        Ok(())
    }

    /// Runs turns until a condition holds. The longer that takes, the faster the clock advances.
    pub(super) fn until(
        &mut self,
        what: &str,
        is_so: impl Fn(&Self) -> bool,
    ) -> Result<(), String> {
        for count in 0..PATIENCE_TURNS {
            if is_so(self) {
                return Ok(());
            }
            if count % 500 == 499 {
                self.network.advance_to(self.network.now_ns() + self.plan.lease_ns / 8);
            }
            self.turn()?;
        }
        let phases: Vec<_> = self.members.iter().map(|m| (m.phase, &m.flights)).collect();
        let nfs_phases: Vec<_> = self.nfs_members.iter().map(|m| m.phase).collect();
        Err(format!(
            "timeout waiting for {what}: {:?}; {phases:?}; {nfs_phases:?}; {:?}; {} jobs",
            self.servers.stats(),
            self.network.connections(),
            self.servers.jobs_under_way()
        ))
    }

    pub(super) fn tick(&self) -> Tick {
        self.judge.now()
    }
}

/// Creates the files that exist in every run. Returns their handles.
fn lay_out(store: &dyn Store, root: &FileHandle) -> Result<Vec<FileHandle>, String> {
    let failed = |error| format!("preparing the store: {error:?}");
    let mut handles = Vec::new();
    for file in File::ALL {
        let (name, mode) = (file.name().as_bytes(), CreateMode::Guarded);
        let (access, changes) = (ShareAccess::Both, AttributeChanges::default());
        let (made, open) =
            store.create_file(&superuser(), root, name, mode, &changes, access).map_err(failed)?;
        if matches!(file, File::Data | File::Locked) {
            open.set_size(SIZE_BASE).map_err(failed)?;
        }
        open.sync(false).map_err(failed)?;
        handles.push(made.object.handle);
    }
    store.sync(root).map_err(failed)?;
    Ok(handles)
}

/// The maximum time in nanoseconds by which the clock is advanced in one step.
const SPAN_NS_MAX: usize = 20_000_000;
/// The maximum number of turns of a run, far more than a run needs.
const TURNS_MAX: u64 = 2_000_000;
/// The number of turns after which all requests in flight must have ended.
const PATIENCE_TURNS: u64 = 100_000;
/// The maximum number of lines of history that a failure prints.
const HISTORY_MAX: usize = 4_000;
/// A constant that makes the random numbers of a world differ from other random numbers of the same
/// seed.
const WORLD_SALT: u64 = 0x5707_2a11_0f5e_7e45;
/// Returns the lock owner for an open with share reservations. An owner is not reused soon, and
/// differs from the owners of the opens of [`File::OPEN`].
pub(super) fn share_owner(number: u64) -> u64 {
    4 + number % 250
}

/// The lock owner for opens that are made when a file is created.
pub(super) const MADE_OWNER: u64 = 254;
