//! Delegations: grants, conflicts, recalls, claims and timers.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::dice::*;
use dafs_filer::*;
use dafs_ops::Fault;
use dafs_types::*;

const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const C: ClientId = ClientId(3);
const FILE: FileKey = FileKey(1);
const FS: FsHandle = FsHandle([9; 16]);

fn handle(file: FileKey) -> FileHandle {
    FileHandle::new(FS, [file.0 as u8; 48])
}

fn at(seconds: u64) -> Moment {
    Moment(seconds * 1_000_000_000)
}

fn facts(client: ClientId, access: ShareAccess) -> DelegationFacts {
    DelegationFacts {
        client,
        file: FILE,
        handle: handle(FILE),
        access,
        can_recall: true,
        others_open: false,
        others_write: false,
        size: 100,
        space: 1 << 40,
    }
}

/// The policy of these tests: recalls take ten seconds, files are quiet for twenty.
fn policy() -> DelegationPolicy {
    DelegationPolicy {
        recall_timeout: Duration::from_secs(10),
        recall_retry: Duration::from_secs(1),
        quiet: Duration::from_secs(20),
        recovery: Duration::from_secs(5),
        growth_bytes_max: 50,
        ..DelegationPolicy::default()
    }
}

struct Bench {
    table: DelegationTable,
    waiters: u64,
}

impl Bench {
    fn new() -> Self {
        Self::with(policy())
    }

    fn with(policy: DelegationPolicy) -> Self {
        Self { table: DelegationTable::new(77, policy), waiters: 0 }
    }

    fn grant(&mut self, client: ClientId, access: ShareAccess) -> StateId {
        self.table.grant(&facts(client, access), at(0)).unwrap().state_id
    }

    fn refusal(&mut self, facts: &DelegationFacts, seconds: u64) -> NoDelegation {
        self.table.grant(facts, at(seconds)).unwrap_err()
    }

    /// Checks an operation; waiters are numbered from 1.
    fn request(
        &mut self,
        client: ClientId,
        operation: FileOperation,
        seconds: u64,
    ) -> DelegationDecision {
        self.waiters += 1;
        self.table.check(FILE, Some(client), operation, WaiterId(self.waiters), at(seconds))
    }

    fn actions(&mut self) -> Vec<DelegationAction> {
        std::iter::from_fn(|| self.table.poll_action()).collect()
    }
}

fn recall(client: ClientId, state_id: StateId) -> DelegationAction {
    DelegationAction::Recall { client, handle: handle(FILE), state_id, truncate: false }
}

fn resume(waiter: u64) -> DelegationAction {
    DelegationAction::Resume { waiter: WaiterId(waiter) }
}

const READ: ShareAccess = ShareAccess::Read;
const WRITE: ShareAccess = ShareAccess::Write;

fn open(access: ShareAccess, deny: ShareDeny) -> FileOperation {
    FileOperation::Open { access, deny, truncate: false }
}

use DelegationDecision::{Delay, Proceed, Wait};

#[test]
fn an_open_gets_the_delegation_that_fits_its_access() {
    let mut bench = Bench::new();
    let granted = bench.table.grant(&facts(A, ShareAccess::Both), at(0)).unwrap();
    assert_eq!(granted.kind, DelegationKind::Write);
    assert_eq!((granted.recall, granted.limit), (false, Some(SpaceLimit::Size(150))));
    assert_eq!(bench.refusal(&facts(A, READ), 0), NoDelegation::HeldAlready);
    assert_eq!(bench.refusal(&facts(B, READ), 0), NoDelegation::Conflict);
    bench.table.returned(A, granted.state_id, at(0)).unwrap();
    let granted = bench.table.grant(&facts(A, READ), at(0)).unwrap();
    assert_eq!((granted.kind, granted.limit), (DelegationKind::Read, None));
    bench.grant(B, READ);
    assert_eq!(bench.refusal(&facts(C, WRITE), 0), NoDelegation::Conflict);
    let open = DelegationFacts { others_open: true, ..facts(C, READ) };
    assert!(bench.table.grant(&open, at(0)).is_ok());
    let held: Vec<_> = bench.table.iter().map(|held| (held.client, held.kind)).collect();
    assert_eq!(held, [A, B, C].map(|client| (client, DelegationKind::Read)));
}

#[test]
fn an_open_gets_no_delegation_for_each_of_these_reasons() {
    let mut bench = Bench::new();
    let plain = facts(A, READ);
    let mute = DelegationFacts { can_recall: false, ..plain };
    assert_eq!(bench.refusal(&mute, 0), NoDelegation::CannotBeRecalled);
    let written = DelegationFacts { others_open: true, others_write: true, ..plain };
    assert_eq!(bench.refusal(&written, 0), NoDelegation::Conflict);
    let shared = DelegationFacts { others_open: true, ..facts(A, WRITE) };
    assert_eq!(bench.refusal(&shared, 0), NoDelegation::Conflict);
    let mut disabled = Bench::with(DelegationPolicy { enabled: false, ..policy() });
    assert_eq!(disabled.refusal(&plain, 0), NoDelegation::Disabled);
    let mut full = Bench::with(DelegationPolicy { per_file_max: 1, ..policy() });
    full.grant(A, READ);
    assert_eq!(full.refusal(&facts(B, READ), 0), NoDelegation::Limit);
    let mut full = Bench::with(DelegationPolicy { per_client_max: 1, ..policy() });
    full.grant(A, READ);
    let other = DelegationFacts { file: FileKey(2), ..facts(A, READ) };
    assert_eq!(full.refusal(&other, 0), NoDelegation::Limit);
    let mut full = Bench::with(DelegationPolicy { total_max: 1, ..policy() });
    full.grant(A, READ);
    let other = DelegationFacts { client: B, ..other };
    assert_eq!(full.refusal(&other, 0), NoDelegation::Limit);
    assert_eq!(full.table.counters().not_granted, 1);
}

#[test]
fn the_table_of_conflicts() {
    let operations = [
        (open(READ, ShareDeny::None), false),
        (open(READ, ShareDeny::Write), false),
        (open(READ, ShareDeny::Read), true),
        (open(READ, ShareDeny::Both), true),
        (open(WRITE, ShareDeny::None), true),
        (open(ShareAccess::Both, ShareDeny::None), true),
        (FileOperation::Read, false),
        (FileOperation::Write, true),
        (FileOperation::GetAttributes { may_ask: false }, false),
        (FileOperation::SetAttributes { truncate: false }, true),
        (FileOperation::Remove, true),
        (FileOperation::Rename, true),
        (FileOperation::Link, true),
        (FileOperation::Lock { exclusive: false }, false),
        (FileOperation::Lock { exclusive: true }, true),
    ];
    for (operation, is_in_the_way) in operations {
        for access in [READ, WRITE] {
            let mut bench = Bench::new();
            let state_id = bench.grant(A, access);
            assert_eq!(bench.request(A, operation, 0), Proceed);
            let expected = if access == WRITE || is_in_the_way { Wait } else { Proceed };
            assert_eq!(bench.request(B, operation, 0), expected, "{operation:?} {access:?}");
            let recalls = if expected == Wait { vec![recall(A, state_id)] } else { vec![] };
            assert_eq!(bench.actions(), recalls);
        }
    }
}

#[test]
fn a_recall_ends_with_the_return_and_resumes_all_waiters() {
    let mut bench = Bench::new();
    let [a, b] = [A, B].map(|client| bench.grant(client, READ));
    // B's own delegation does not conflict, A's does.
    assert_eq!(bench.request(B, FileOperation::Write, 1), Wait);
    assert_eq!(bench.actions(), [recall(A, a)]);
    assert_eq!(bench.request(C, FileOperation::Remove, 2), Wait);
    assert_eq!(bench.actions(), [recall(B, b)]);
    assert_eq!(bench.request(C, FileOperation::Read, 2), Proceed);
    assert_eq!(bench.refusal(&facts(C, READ), 2), NoDelegation::Recalling);
    // A recalled delegation is in force until it is returned.
    assert_eq!(bench.table.check_io(A, a, FILE, IoKind::Read), Ok(()));
    assert_eq!(bench.table.check_io(A, a, FILE, IoKind::Write), Err(Fault::OpenLacksAccess));
    assert_eq!(bench.table.returned(A, a, at(3)), Ok(()));
    assert_eq!(bench.actions(), [resume(1)]);
    assert_eq!(bench.table.returned(B, b, at(3)), Ok(()));
    assert_eq!(bench.actions(), [resume(2)]);
    assert!(bench.table.is_idle());
    assert_eq!(bench.table.returned(B, b, at(3)), Err(Fault::OldState));
    assert_eq!(bench.table.check_io(A, a, FILE, IoKind::Read), Err(Fault::OldState));
    let counters = DelegationCounters {
        granted_read: 2,
        not_granted: 1,
        recalled: 2,
        returned: 2,
        parked: 2,
        ..DelegationCounters::default()
    };
    assert_eq!(bench.table.counters(), counters);
}

#[test]
fn a_recalled_file_gets_no_delegation_for_a_while() {
    let mut bench = Bench::new();
    let state_id = bench.grant(A, READ);
    bench.request(B, FileOperation::Write, 1);
    bench.table.returned(A, state_id, at(3)).unwrap();
    assert_eq!(bench.refusal(&facts(A, READ), 22), NoDelegation::Quiet);
    let granted = bench.table.grant(&facts(A, READ), at(23)).unwrap();
    // A delegation that ended before its recall was sent leaves no trace.
    bench.table.returned(A, granted.state_id, at(24)).unwrap();
    assert!(bench.table.grant(&facts(A, READ), at(24)).is_ok());
}

#[test]
fn the_number_of_quiet_files_is_limited() {
    let mut bench = Bench::with(DelegationPolicy { quiet_files_max: 1, ..policy() });
    for file in [1, 2] {
        let facts = DelegationFacts { file: FileKey(file), ..facts(A, READ) };
        let state_id = bench.table.grant(&facts, at(0)).unwrap().state_id;
        let waiter = WaiterId(file);
        bench.table.check(facts.file, None, FileOperation::Remove, waiter, at(0));
        bench.table.returned(A, state_id, at(1)).unwrap();
    }
    assert!(bench.table.grant(&facts(A, READ), at(2)).is_ok());
    let second = DelegationFacts { file: FileKey(2), ..facts(A, READ) };
    assert_eq!(bench.refusal(&second, 2), NoDelegation::Quiet);
}

#[test]
fn a_delegation_that_is_not_returned_is_revoked() {
    let mut bench = Bench::new();
    let state_id = bench.grant(A, WRITE);
    assert_eq!(bench.table.next_timer(), None);
    assert_eq!(bench.request(B, FileOperation::Read, 5), Wait);
    assert_eq!(bench.actions(), [recall(A, state_id)]);
    assert_eq!(bench.table.next_timer(), Some(at(15)));
    bench.table.tick(Moment(at(15).0 - 1));
    assert_eq!(bench.actions(), []);
    bench.table.tick(at(15));
    let revoked = DelegationAction::Revoked { client: A, handle: handle(FILE) };
    assert_eq!(bench.actions(), [resume(1), revoked]);
    assert_eq!(bench.table.next_timer(), None);
    assert!(bench.table.is_idle());
    assert_eq!(bench.table.check_io(A, state_id, FILE, IoKind::Read), Err(Fault::Expired));
    let claim = bench.table.claim_current(A, state_id, FILE, READ, ShareDeny::None);
    assert_eq!(claim, Err(Fault::Expired));
    // Until the client has returned the revoked delegation it gets no other.
    let other = DelegationFacts { file: FileKey(2), ..facts(A, READ) };
    assert_eq!(bench.refusal(&other, 16), NoDelegation::Untrustworthy);
    assert_eq!(bench.table.returned(A, state_id, at(16)), Err(Fault::Expired));
    assert_eq!(bench.table.returned(A, state_id, at(16)), Err(Fault::OldState));
    assert!(bench.table.grant(&other, at(16)).is_ok());
    assert_eq!(bench.table.counters().revoked, 1);
}

#[test]
fn a_client_that_returns_its_revoked_delegation_is_trusted_again() {
    let mut bench = Bench::new();
    let revoked = bench.grant(A, READ);
    let of_file =
        |file| DelegationFacts { file: FileKey(file), handle: FileHandle::NULL, ..facts(A, READ) };
    let kept = bench.table.grant(&of_file(2), at(0)).unwrap().state_id;
    bench.request(B, FileOperation::Write, 0);
    bench.table.tick(at(10));
    // Its other delegation stays in force.
    assert_eq!(bench.table.check_io(A, kept, FileKey(2), IoKind::Read), Ok(()));
    assert_eq!(bench.refusal(&of_file(3), 10), NoDelegation::Untrustworthy);
    assert_eq!(bench.table.returned(A, revoked, at(11)), Err(Fault::Expired));
    assert!(bench.table.grant(&of_file(3), at(11)).is_ok());
}

#[test]
fn a_recall_that_did_not_arrive_is_sent_again() {
    use RecallOutcome::{Accepted, Refused, Undelivered};
    let mut bench = Bench::new();
    let state_id = bench.grant(A, WRITE);
    bench.request(B, FileOperation::Read, 0);
    assert_eq!(bench.actions(), [recall(A, state_id)]);
    bench.table.recall_done(A, state_id, Refused, at(2));
    assert_eq!(bench.table.next_timer(), Some(at(3)));
    bench.table.tick(at(3));
    assert_eq!(bench.actions(), [recall(A, state_id)]);
    bench.table.recall_done(A, state_id, Undelivered, at(4));
    bench.table.can_be_reached(A);
    assert_eq!(bench.actions(), [recall(A, state_id)]);
    bench.table.can_be_reached(A);
    bench.table.recall_done(A, state_id, Accepted, at(5));
    assert_eq!(bench.actions(), []);
    // The deadline does not change.
    bench.table.recall_done(A, state_id, Undelivered, Moment(at(10).0 - 5));
    assert_eq!(bench.table.next_timer(), Some(at(10)));
    bench.table.tick(at(10));
    assert_eq!(bench.table.counters().revoked, 1);
    assert_eq!(bench.table.counters().retried, 2);
}

#[test]
fn a_recall_that_is_no_longer_needed_is_not_sent() {
    let mut bench = Bench::new();
    let state_id = bench.grant(A, WRITE);
    let operation = FileOperation::SetAttributes { truncate: true };
    assert_eq!(bench.request(B, operation, 0), Wait);
    bench.table.returned(A, state_id, at(0)).unwrap();
    assert_eq!(bench.actions(), [resume(1)]);
    bench.table.tick(at(30));
    let state_id = bench.table.grant(&facts(A, WRITE), at(30)).unwrap().state_id;
    bench.request(B, operation, 30);
    let expected =
        DelegationAction::Recall { client: A, handle: handle(FILE), state_id, truncate: true };
    assert_eq!(bench.actions(), [expected]);
}

#[test]
fn the_holder_is_asked_for_attributes_before_the_delegation_is_recalled() {
    let mut bench = Bench::new();
    let ask = |may_ask| FileOperation::GetAttributes { may_ask };
    let asked = DelegationDecision::AskAttributes { client: A, handle: handle(FILE) };
    let state_id = bench.grant(A, WRITE);
    assert_eq!(bench.request(A, ask(true), 0), Proceed);
    assert_eq!(bench.request(B, ask(true), 0), asked);
    assert_eq!(bench.actions(), []);
    assert_eq!(bench.request(B, ask(false), 0), Wait);
    assert_eq!(bench.actions(), [recall(A, state_id)]);
    // The server still knows the attributes.
    assert_eq!(bench.request(B, ask(true), 0), asked);
    bench.table.client_restarted(A, C, at(1));
    assert_eq!(bench.request(B, ask(true), 1), Wait);
}

#[test]
fn too_many_waiters_get_delay() {
    let mut bench = Bench::with(DelegationPolicy { waiters_max: 1, ..policy() });
    let state_id = bench.grant(A, WRITE);
    assert_eq!(bench.request(B, FileOperation::Read, 0), Wait);
    assert_eq!(bench.request(C, FileOperation::Read, 0), Delay);
    bench.table.abandon(WaiterId(1));
    assert_eq!(bench.request(C, FileOperation::Read, 0), Wait);
    bench.table.returned(A, state_id, at(1)).unwrap();
    // The request was abandoned between the decision and its delivery.
    bench.table.abandon(WaiterId(3));
    assert_eq!(bench.actions(), []);
    assert_eq!(bench.table.counters().delayed, 1);
}

#[test]
fn opens_made_under_a_delegation_are_claimed() {
    let mut bench = Bench::new();
    let read = bench.grant(A, READ);
    let claim = |state_id, access, deny| bench.table.claim_current(A, state_id, FILE, access, deny);
    assert_eq!(claim(read, READ, ShareDeny::None), Ok(()));
    assert_eq!(claim(read, READ, ShareDeny::Write), Ok(()));
    assert_eq!(claim(read, READ, ShareDeny::Read), Err(Fault::Invalid));
    assert_eq!(claim(read, WRITE, ShareDeny::None), Err(Fault::Invalid));
    let open = |client, file, state_id| {
        bench.table.claim_current(client, state_id, file, READ, ShareDeny::None)
    };
    assert_eq!(open(B, FILE, read), Err(Fault::BadState));
    assert_eq!(open(A, FileKey(2), read), Err(Fault::BadState));
    assert_eq!(open(A, FILE, StateId(read.0 ^ 1 << 63)), Err(Fault::StaleState));
    bench.table.returned(A, read, at(0)).unwrap();
    let write = bench.grant(A, WRITE);
    let both = bench.table.claim_current(A, write, FILE, ShareAccess::Both, ShareDeny::Both);
    assert_eq!(both, Ok(()));
    assert!(bench.table.owns(write) && !bench.table.owns(StateId::ANONYMOUS));
}

#[test]
fn delegations_are_reclaimed_after_a_server_restart() {
    use DelegationKind::{Read, Write};
    let mut bench = Bench::new();
    let mute = DelegationFacts { can_recall: false, ..facts(A, READ) };
    let granted = bench.table.claim_previous(&mute, Write, at(0)).unwrap();
    assert_eq!((granted.kind, granted.recall), (Write, true));
    // The reply carries the recall; no message follows.
    assert_eq!(bench.actions(), []);
    assert_eq!(bench.table.claim_previous(&mute, Write, at(0)), Ok(granted));
    assert_eq!(bench.table.claim_previous(&mute, Read, at(0)), Err(Fault::Invalid));
    assert_eq!(bench.table.claim_previous(&facts(B, READ), Read, at(0)), Err(Fault::Denied));
    bench.table.tick(at(10));
    let granted = bench.table.claim_previous(&facts(B, READ), Read, at(10)).unwrap();
    assert!(!granted.recall);
    assert_eq!(bench.table.claim_previous(&facts(C, READ), Write, at(10)), Err(Fault::Denied));
    bench.request(C, FileOperation::Remove, 11);
    let granted = bench.table.claim_previous(&facts(C, READ), Read, at(11)).unwrap();
    assert!(granted.recall);
    let mut full = Bench::with(DelegationPolicy { per_client_max: 1, ..policy() });
    full.grant(A, READ);
    let other = DelegationFacts { file: FileKey(2), ..facts(A, READ) };
    assert_eq!(full.table.claim_previous(&other, Read, at(0)), Err(Fault::Limit));
}

#[test]
fn a_restarted_client_may_claim_its_delegations() {
    let mut bench = Bench::new();
    let old = bench.grant(A, WRITE);
    bench.table.client_restarted(A, B, at(0));
    assert_eq!(bench.table.check_io(A, old, FILE, IoKind::Read), Err(Fault::OldState));
    assert_eq!(bench.table.check_io(B, old, FILE, IoKind::Read), Err(Fault::OldState));
    assert_eq!(bench.request(C, FileOperation::Read, 1), Wait);
    assert_eq!(bench.actions(), []);
    let none = bench.table.claim_awaiting(&facts(C, READ), at(1));
    assert_eq!(none, Err(Fault::Expired));
    let granted = bench.table.claim_awaiting(&facts(B, WRITE), at(1)).unwrap();
    assert_eq!((granted.kind, granted.recall), (DelegationKind::Write, true));
    assert_eq!(granted.limit, Some(SpaceLimit::Size(150)));
    assert_eq!(bench.table.check_io(B, granted.state_id, FILE, IoKind::Write), Ok(()));
    bench.table.returned(B, granted.state_id, at(2)).unwrap();
    assert_eq!(bench.actions(), [resume(1)]);
}

#[test]
fn delegations_that_a_restarted_client_does_not_claim_end() {
    for is_purged in [true, false] {
        let mut bench = Bench::new();
        bench.grant(A, READ);
        bench.table.client_restarted(A, B, at(0));
        bench.request(C, FileOperation::Write, 1);
        // Another restart does not extend the wait.
        bench.table.client_restarted(B, A, at(4));
        assert_eq!(bench.table.next_timer(), Some(at(5)));
        if is_purged {
            assert_eq!(bench.table.purge(B, at(4)), 0);
            assert_eq!(bench.table.purge(A, at(4)), 1);
        } else {
            bench.table.tick(at(5));
        }
        assert_eq!(bench.actions(), [resume(1)]);
        assert_eq!(bench.table.claim_awaiting(&facts(A, READ), at(5)), Err(Fault::Expired));
        assert_eq!(bench.refusal(&facts(A, READ), 5), NoDelegation::Quiet);
    }
    let mut bench = Bench::with(DelegationPolicy { recovery: Duration::ZERO, ..policy() });
    bench.grant(A, READ);
    bench.table.client_restarted(A, B, at(0));
    assert!(bench.table.is_idle());
    assert_eq!(bench.table.counters().held, 0);
}

#[test]
fn promises_of_space_end_with_their_delegation() {
    let mut bench = Bench::new();
    let mut grant = |file, client| {
        let facts = DelegationFacts { file: FileKey(file), space: 80, ..facts(client, WRITE) };
        bench.table.grant(&facts, at(0)).unwrap()
    };
    let first = grant(1, A);
    let limits = [first, grant(2, B), grant(3, B)].map(|granted| granted.limit.unwrap());
    assert_eq!(limits, [150, 130, 100].map(SpaceLimit::Size));
    assert_eq!(bench.table.counters().promised, 80);
    bench.table.returned(A, first.state_id, at(0)).unwrap();
    assert_eq!(bench.table.counters().promised, 30);
    bench.table.client_gone(B, at(0));
    assert_eq!(bench.table.counters().promised, 0);
}

// ---- The model -------------------------------------------------------------------------

#[derive(Clone, Copy, Debug)]
struct Held {
    state_id: StateId,
    client: ClientId,
    file: FileKey,
    kind: DelegationKind,
    /// The deadline, if the delegation is being recalled or belongs to an earlier incarnation.
    ends: Option<Moment>,
    is_awaiting: bool,
}

struct Parked {
    waiter: WaiterId,
    client: ClientId,
    file: FileKey,
    operation: FileOperation,
}

struct Model {
    held: Vec<Held>,
    revoked: Vec<(ClientId, StateId)>,
    /// State ids that must never be honoured again.
    dead: BTreeSet<StateId>,
    parked: Vec<Parked>,
    quiet: Vec<(FileKey, Moment)>,
    now: Moment,
    count: u64,
    clients: Vec<ClientId>,
}

const FILES: [FileKey; 3] = [FileKey(1), FileKey(2), FileKey(3)];

/// The conflict table in another form: the operations that a read delegation permits.
fn passes_reads(operation: FileOperation) -> bool {
    match operation {
        FileOperation::Open { access, deny, .. } => {
            access.number() & 2 == 0 && deny.number() & 1 == 0
        }
        FileOperation::Lock { exclusive } => !exclusive,
        other => matches!(other, FileOperation::Read | FileOperation::GetAttributes { .. }),
    }
}

fn random_operation(random: &mut Random) -> FileOperation {
    let truncate = random.percent(30);
    let access = pick(random, &[READ, WRITE, ShareAccess::Both]);
    let deny = pick(random, &[ShareDeny::None, ShareDeny::Read, ShareDeny::Write]);
    let operations = [
        FileOperation::Open { access, deny, truncate },
        FileOperation::Read,
        FileOperation::Write,
        FileOperation::GetAttributes { may_ask: random.percent(50) },
        FileOperation::SetAttributes { truncate },
        FileOperation::Remove,
        FileOperation::Lock { exclusive: truncate },
    ];
    pick(random, &operations)
}

impl Model {
    fn new() -> Self {
        Self {
            held: Vec::new(),
            revoked: Vec::new(),
            dead: BTreeSet::new(),
            parked: Vec::new(),
            quiet: Vec::new(),
            now: at(0),
            count: 100,
            clients: vec![A, B, C],
        }
    }

    fn blocks(held: &Held, file: FileKey, client: ClientId, operation: FileOperation) -> bool {
        held.file == file
            && held.client != client
            && (held.kind == DelegationKind::Write || !passes_reads(operation))
    }

    fn is_blocked(&self, file: FileKey, client: ClientId, operation: FileOperation) -> bool {
        self.held.iter().any(|held| Self::blocks(held, file, client, operation))
    }

    /// Ends a delegation; `Resume` actions must follow.
    fn end(&mut self, at: usize) {
        let held = self.held.remove(at);
        self.dead.insert(held.state_id);
        let is_waited_for = self.parked.iter().any(|parked| parked.file == held.file);
        if is_waited_for || (held.ends.is_some() && !held.is_awaiting) {
            self.quiet.push((held.file, self.now.after(policy().quiet)));
        }
    }

    /// Returns the requests that nothing blocks, in the order of their arrival.
    fn release(&mut self) -> Vec<WaiterId> {
        let (blocked, free) = std::mem::take(&mut self.parked)
            .into_iter()
            .partition(|parked| self.is_blocked(parked.file, parked.client, parked.operation));
        self.parked = blocked;
        free.iter().map(|parked: &Parked| parked.waiter).collect()
    }

    fn may_grant(&self, facts: &DelegationFacts) -> bool {
        let of_file: Vec<_> = self.held.iter().filter(|held| held.file == facts.file).collect();
        let wants_write = facts.access != READ;
        facts.can_recall
            && !(if wants_write { facts.others_open } else { facts.others_write })
            && !self.revoked.iter().any(|revoked| revoked.0 == facts.client)
            && of_file.iter().all(|held| held.ends.is_none() && held.client != facts.client)
            && !of_file.iter().any(|held| held.kind == DelegationKind::Write || wants_write)
            && !self.parked.iter().any(|parked| parked.file == facts.file)
            && !self.quiet.iter().any(|&(file, until)| file == facts.file && self.now < until)
    }

    fn add(&mut self, facts: &DelegationFacts, granted: GrantedDelegation) {
        assert!(!self.dead.contains(&granted.state_id), "a state id was reused");
        let ends = granted.recall.then(|| self.now.after(policy().recall_timeout));
        let (state_id, kind) = (granted.state_id, granted.kind);
        let (client, file) = (facts.client, facts.file);
        self.held.push(Held { state_id, client, file, kind, ends, is_awaiting: false });
    }

    fn step(&mut self, table: &mut DelegationTable, random: &mut Random) {
        let client = pick(random, &self.clients);
        let file = pick(random, &FILES);
        match random.below(20) {
            0..6 => {
                let others_open = random.percent(30);
                let facts = DelegationFacts {
                    file,
                    handle: handle(file),
                    can_recall: random.percent(90),
                    others_open,
                    others_write: others_open && random.percent(50),
                    ..facts(client, pick(random, &[READ, WRITE]))
                };
                let expected = self.may_grant(&facts);
                let granted = table.grant(&facts, self.now);
                assert_eq!(granted.is_ok(), expected, "{granted:?}");
                if let Ok(granted) = granted {
                    self.add(&facts, granted);
                }
            }
            6..10 => self.request(table, file, client, random_operation(random)),
            10..12 if !self.held.is_empty() => {
                let at = random.below(self.held.len());
                let held = self.held[at];
                if !held.is_awaiting {
                    assert_eq!(table.returned(held.client, held.state_id, self.now), Ok(()));
                    self.end(at);
                }
            }
            12 if !self.revoked.is_empty() => {
                let (client, state_id) = self.revoked.swap_remove(0);
                let outcome = table.returned(client, state_id, self.now);
                assert_eq!(outcome, Err(Fault::Expired));
            }
            13..15 => {
                self.now = Moment(self.now.0 + at(1).0 * random.below(8) as u64);
                self.tick(table);
            }
            15 => {
                table.client_gone(client, self.now);
                self.revoked.retain(|revoked| revoked.0 != client);
                self.end_all(|held| held.client == client);
            }
            16 => self.restart(table, client),
            17 => self.claim(table, client, file, random),
            18 => {
                table.purge(client, self.now);
                self.end_all(|held| held.client == client && held.is_awaiting);
            }
            _ if !self.parked.is_empty() => {
                let parked = self.parked.remove(random.below(self.parked.len()));
                table.abandon(parked.waiter);
            }
            _ => {}
        }
    }

    fn end_all(&mut self, wanted: impl Fn(&Held) -> bool) {
        while let Some(at) = self.held.iter().position(&wanted) {
            self.end(at);
        }
    }

    fn request(
        &mut self,
        table: &mut DelegationTable,
        file: FileKey,
        client: ClientId,
        operation: FileOperation,
    ) {
        self.count += 1;
        let waiter = WaiterId(self.count);
        let decision = table.check(file, Some(client), operation, waiter, self.now);
        let ends = self.now.after(policy().recall_timeout);
        let in_the_way: Vec<_> = self
            .held
            .iter_mut()
            .filter(|held| Self::blocks(held, file, client, operation))
            .collect();
        let may_ask = operation == FileOperation::GetAttributes { may_ask: true };
        match decision {
            Proceed => assert!(in_the_way.is_empty()),
            DelegationDecision::AskAttributes { client, handle: asked } => {
                assert!(may_ask && in_the_way.len() == 1 && !in_the_way[0].is_awaiting);
                assert_eq!((client, asked), (in_the_way[0].client, handle(file)));
            }
            Wait => {
                assert!(!in_the_way.is_empty());
                assert!(!may_ask || in_the_way[0].is_awaiting);
                for held in in_the_way.into_iter().filter(|held| held.ends.is_none()) {
                    held.ends = Some(ends);
                }
                self.parked.push(Parked { waiter, client, file, operation });
            }
            Delay => panic!("no request gets DELAY here"),
        }
    }

    fn tick(&mut self, table: &mut DelegationTable) {
        table.tick(self.now);
        let now = self.now;
        let is_due = |held: &Held| held.ends.is_some_and(|ends| ends <= now);
        let late = self.held.iter().filter(|held| is_due(held) && !held.is_awaiting);
        self.revoked.extend(late.map(|held| (held.client, held.state_id)));
        self.end_all(is_due);
    }

    fn restart(&mut self, table: &mut DelegationTable, old: ClientId) {
        self.count += 1;
        let new = ClientId(self.count);
        table.client_restarted(old, new, self.now);
        *self.clients.iter_mut().find(|client| **client == old).unwrap() = new;
        self.revoked.retain(|revoked| revoked.0 != old);
        let until = self.now.after(policy().recovery);
        for held in self.held.iter_mut().filter(|held| held.client == old) {
            self.dead.insert(held.state_id);
            held.client = new;
            held.is_awaiting = true;
            held.ends = Some(held.ends.map_or(until, |ends| ends.min(until)));
        }
    }

    fn claim(
        &mut self,
        table: &mut DelegationTable,
        client: ClientId,
        file: FileKey,
        random: &mut Random,
    ) {
        let can_recall = random.percent(80);
        let facts =
            DelegationFacts { file, handle: handle(file), can_recall, ..facts(client, READ) };
        let mine = |held: &Held| held.file == file && held.client == client && held.is_awaiting;
        let outcome = table.claim_awaiting(&facts, self.now);
        match self.held.iter().position(mine) {
            Some(at) => {
                self.held.remove(at);
                let granted = outcome.unwrap();
                let is_wanted = self.parked.iter().any(|parked| parked.file == file);
                assert_eq!(granted.recall, is_wanted || !can_recall);
                self.add(&facts, granted);
            }
            None => assert_eq!(outcome, Err(Fault::Expired)),
        }
    }

    /// Checks the actions: recalls of the recalled delegations, and resumptions of exactly the
    /// requests that nothing blocks.
    fn settle(&mut self, table: &mut DelegationTable, random: &mut Random) {
        let expected: BTreeSet<_> = self.release().into_iter().collect();
        let mut resumed = BTreeSet::new();
        while let Some(action) = table.poll_action() {
            match action {
                DelegationAction::Resume { waiter } => assert!(resumed.insert(waiter)),
                DelegationAction::Recall { client, state_id, .. } => {
                    let held = self.held.iter().find(|held| held.state_id == state_id).unwrap();
                    assert!(held.client == client && held.ends.is_some() && !held.is_awaiting);
                    let answer = pick(
                        random,
                        &[
                            RecallOutcome::Accepted,
                            RecallOutcome::Refused,
                            RecallOutcome::Undelivered,
                        ],
                    );
                    table.recall_done(client, state_id, answer, self.now);
                    if random.percent(20) {
                        table.can_be_reached(client);
                    }
                }
                DelegationAction::Revoked { client, .. } => {
                    assert!(self.revoked.iter().any(|revoked| revoked.0 == client));
                }
            }
        }
        assert_eq!(resumed, expected);
    }

    fn check(&self, table: &DelegationTable) {
        for (index, one) in self.held.iter().enumerate() {
            for other in &self.held[index + 1..] {
                let both_read = one.kind == other.kind && one.kind == DelegationKind::Read;
                assert!(one.file != other.file || (both_read && one.client != other.client));
            }
            let may = table.check_io(one.client, one.state_id, one.file, IoKind::Read);
            assert_eq!(may.is_ok(), !one.is_awaiting);
        }
        let shown: BTreeSet<_> = table
            .iter()
            .filter(|held| held.phase != DelegationPhase::Revoked)
            .map(|held| (held.file, held.client, held.kind))
            .collect();
        let known = self.held.iter().map(|held| (held.file, held.client, held.kind));
        assert_eq!(shown, known.collect());
        for &state_id in &self.dead {
            for (&client, file) in self.clients.iter().zip(FILES) {
                assert!(table.check_io(client, state_id, file, IoKind::Read).is_err());
            }
        }
        assert_eq!(table.counters().waiting as usize, self.parked.len());
        for parked in &self.parked {
            assert!(self.held.iter().any(|held| {
                Self::blocks(held, parked.file, parked.client, parked.operation)
                    && held.ends.is_some()
            }));
        }
    }
}

#[test]
fn no_delegations_conflict_and_every_waiter_is_resumed() {
    for_seeds("no_delegations_conflict_and_every_waiter_is_resumed", 400, |random| {
        let mut table = DelegationTable::new(random.below(1 << 40) as u64, policy());
        let mut model = Model::new();
        for _ in 0..250 {
            model.step(&mut table, random);
            model.settle(&mut table, random);
            model.check(&table);
        }
        // From here on no client returns anything: the timers alone must release all requests.
        while let Some(when) = table.next_timer() {
            model.now = when.max(model.now);
            model.tick(&mut table);
            model.settle(&mut table, random);
        }
        assert!(model.parked.is_empty());
        assert_eq!(table.counters().waiting, 0);
        for client in model.clients.clone() {
            table.client_gone(client, model.now);
        }
        let counters = table.counters();
        assert_eq!((counters.held, counters.files, counters.promised), (0, 0, 0));
        assert!(table.is_idle());
    });
}
