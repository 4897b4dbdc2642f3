//! Random batches, checked against a model that tracks single bytes.
//!
//! The model checks that:
//! - every byte of every request is moved at most once, between the right positions in file and
//!   memory, and exactly once if the request is reported as complete;
//! - every accepted request is reported exactly once, with the status and count that its bytes
//!   imply;
//! - runs stay within their limits;
//! - no transfer overtakes an earlier batch on the same bytes;
//! - hurried requests go first;
//! - completions are delayed only for a reason, and never beyond their time;
//! - nothing is left in the end.

use std::collections::BTreeMap;
use std::time::Duration;

use dafs_filer::*;
use dafs_sessions::*;
use dafs_types::*;
use dafs_wire::messages::FileChunk;
use dafs_wire::{Checksum, DirectBuffer};
use proptest::prelude::*;

const SESSIONS: usize = 3;
const CANCELLED: Status = Status::Expired;
const FENCED: Status = Status::Access;
/// As in the scheduler: the number of hurried runs after which another may go.
const HURRIED_IN_A_ROW_MAX: u32 = 8;

#[derive(Clone, Debug)]
struct Wanted {
    file: u64,
    write: bool,
    chunks: Vec<(u64, u32)>,
    buffers: Vec<u32>,
    refused: bool,
}

#[derive(Clone, Copy, Debug)]
enum Outcome {
    Whole,
    Short(u16),
    Failed,
    Piece(usize),
}

#[derive(Clone, Debug)]
enum Event {
    Submit { session: usize, wanted: Vec<Wanted>, window: u32, count: u32, synchronous: bool },
    Hurry { pick: usize },
    Cancel { pick: usize },
    Abort { file: u64, offset: u64, length: u64, session: Option<usize> },
    Advance { micros: u64 },
    Poll { in_flight_max: u32 },
    Done { pick: usize, outcome: Outcome },
    Report,
    Close { session: usize },
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let chunk = (0..400u64, prop_oneof![1 => Just(0u32), 9 => 1..90u32]);
    let chunks = prop::collection::vec(chunk, 0..4);
    let refused = prop::bool::weighted(0.05);
    (0..2u64, any::<bool>(), chunks, prop::collection::vec(0..100u32, 0..4), refused).prop_map(
        |(file, write, chunks, buffers, refused)| Wanted { file, write, chunks, buffers, refused },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let session = 0..SESSIONS;
    let outcome = prop_oneof![
        12 => Just(Outcome::Whole),
        2 => any::<u16>().prop_map(Outcome::Short),
        1 => Just(Outcome::Failed),
        1 => any::<usize>().prop_map(Outcome::Piece),
    ];
    let window = prop_oneof![Just(0u32), 1..300u32, Just(u32::MAX)];
    let submit = (
        session.clone(),
        prop::collection::vec(wanted(), 0..5),
        window,
        prop_oneof![2 => Just(0u32), 1 => 1..6u32],
        prop::bool::weighted(0.2),
    );
    let scope = (0..3u64, 0..400u64, 1..200u64, prop::option::of(session.clone()));
    prop_oneof![
        8 => submit.prop_map(|(session, wanted, window, count, synchronous)| Event::Submit {
            session, wanted, window, count, synchronous
        }),
        2 => any::<usize>().prop_map(|pick| Event::Hurry { pick }),
        1 => any::<usize>().prop_map(|pick| Event::Cancel { pick }),
        1 => scope.prop_map(|(file, offset, length, session)| Event::Abort {
            file, offset, length, session
        }),
        4 => (0..200u64).prop_map(|micros| Event::Advance { micros }),
        10 => (0..5u32).prop_map(|in_flight_max| Event::Poll { in_flight_max }),
        9 => (any::<usize>(), outcome).prop_map(|(pick, outcome)| Event::Done { pick, outcome }),
        4 => Just(Event::Report),
        1 => session.prop_map(|session| Event::Close { session }),
    ]
}

/// A byte's position in the file and in memory.
type Place = (u64, u32, u64);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Byte {
    Waits,
    Running,
    Moved,
    /// The byte was not moved, and will not be.
    Over,
}

#[derive(Debug)]
struct Request {
    session: usize,
    tag: u64,
    order: u64,
    due: Moment,
    synchronous: bool,
    file: FileKey,
    kind: IoKind,
    places: Vec<Place>,
    data: Vec<Byte>,
    failure: Option<(usize, Status)>,
    hurried: bool,
    /// True if it blocked a request that was due or hurried, and keeps the priority that this gave
    /// it.
    pressed: bool,
    urged: bool,
    done_at: Option<Moment>,
    lost: bool,
}

impl Request {
    fn fail(&mut self, at: usize, status: Status) {
        if self.failure.is_none_or(|(other, _)| at < other) {
            self.failure = Some((at, status));
        }
    }

    /// Drops the bytes that have not started.
    fn drop_rest(&mut self) {
        for byte in self.data.iter_mut().filter(|byte| **byte == Byte::Waits) {
            *byte = Byte::Over;
        }
    }

    fn first(&self, wanted: Byte) -> Option<usize> {
        self.data.iter().position(|&byte| byte == wanted)
    }

    fn is_undone(&self) -> bool {
        self.data.iter().any(|byte| matches!(byte, Byte::Waits | Byte::Running))
    }

    fn cancel(&mut self, status: Status) {
        if let Some(at) = self.first(Byte::Waits) {
            self.fail(at, status);
            self.drop_rest();
        }
    }

    fn undone(&self) -> impl Iterator<Item = u64> + '_ {
        let undone = |&(_, byte): &(&Place, &Byte)| !matches!(byte, Byte::Moved | Byte::Over);
        self.places.iter().zip(&self.data).filter(undone).map(|(place, _)| place.0)
    }

    /// Returns true if this earlier request has pending bytes that `later` must not overtake.
    fn stands_before(&self, later: &Self) -> bool {
        let writes = self.kind == IoKind::Write || later.kind == IoKind::Write;
        self.order < later.order
            && self.file == later.file
            && writes
            && self.undone().any(|offset| later.undone().any(|other| other == offset))
    }
}

struct Model {
    scheduler: BatchScheduler,
    limits: BatchLimits,
    now: Moment,
    /// Accepted and unreported requests, by session and id; also those whose session has ended.
    requests: BTreeMap<(u64, u64), Request>,
    ids: [u64; SESSIONS],
    wanted: [usize; SESSIONS],
    /// True if the client was told to wait, or asked for something that has completed.
    awaited: [bool; SESSIONS],
    next_id: u64,
    next_name: u64,
    next_tag: u64,
    runs: Vec<Run>,
    hurried_in_a_row: u32,
    accepted: usize,
    reported: usize,
    lost: usize,
}

impl Model {
    fn new(limits: BatchLimits) -> Self {
        let mut model = Self {
            scheduler: BatchScheduler::new(limits).unwrap(),
            limits,
            now: Moment(1_000_000),
            requests: BTreeMap::new(),
            ids: [0; SESSIONS],
            wanted: [0; SESSIONS],
            awaited: [false; SESSIONS],
            next_id: 0,
            next_name: 0,
            next_tag: 0,
            runs: vec![],
            hurried_in_a_row: 0,
            accepted: 0,
            reported: 0,
            lost: 0,
        };
        (0..SESSIONS).for_each(|session| model.open(session));
        model
    }

    fn open(&mut self, session: usize) {
        self.next_id += 1;
        self.ids[session] = self.next_id;
        self.wanted[session] = 0;
        self.awaited[session] = false;
        // Room for four completions.
        self.scheduler.open_session(SessionId(self.next_id), Some(56 + 4 * 24 + 7));
    }

    fn step(&mut self, event: &Event) {
        match event {
            Event::Submit { session, wanted, window, count, synchronous } => {
                self.submit(*session, wanted, *window, *count, *synchronous);
            }
            Event::Hurry { pick } => self.hurry(*pick),
            Event::Cancel { pick } => self.cancel(*pick),
            Event::Abort { file, offset, length, session } => {
                self.abort(*file, *offset, *length, *session);
            }
            Event::Advance { micros } => {
                self.now = self.now.after(Duration::from_micros(*micros));
            }
            Event::Poll { in_flight_max } => self.poll(*in_flight_max),
            Event::Done { pick, outcome } => self.done(*pick, *outcome),
            Event::Report => self.report(),
            Event::Close { session } => self.close(*session),
        }
        self.note_reasons();
        let load = self.scheduler.load();
        assert!(load.requests <= self.limits.requests_max);
        assert!(load.transfers <= self.limits.transfers_max);
        assert!(load.bytes <= self.limits.bytes_max);
        let in_hand = self.requests.len();
        assert_eq!(load.requests as usize, in_hand, "pending requests");
    }

    /// Notes the sessions with a reason to report: a reason stays one, whatever is submitted before
    /// the notice is polled.
    fn note_reasons(&mut self) {
        for session in 0..SESSIONS {
            let id = self.ids[session];
            let own = self.requests.iter().filter(|(key, _)| key.0 == id);
            let (done, undone): (Vec<_>, Vec<_>) = own
                .map(|(_, request)| request)
                .filter(|request| !request.synchronous)
                .partition(|request| request.done_at.is_some());
            let enough = done.len() >= self.wanted[session].min(4);
            self.awaited[session] |= !done.is_empty() && (undone.is_empty() || enough);
        }
    }

    fn submit(
        &mut self,
        session: usize,
        wanted: &[Wanted],
        window: u32,
        count: u32,
        synchronous: bool,
    ) {
        let mut lists = vec![];
        for want in wanted {
            let total: u32 = want.chunks.iter().map(|&(_, length)| length).sum();
            let mut buffers = vec![];
            let mut left = total;
            for &length in want.buffers.iter().chain([&u32::MAX]) {
                let length = length.min(left);
                left -= length;
                self.next_name += 1;
                let context = RmrContext(self.next_name as u32);
                let target = RmrTarget(self.next_name * 0x1_0000);
                buffers.push(DirectBuffer { target, length, context });
            }
            let chunks: Vec<_> = want
                .chunks
                .iter()
                .map(|&(offset, length)| FileChunk { offset, length, hint: CacheHint(0) })
                .collect();
            lists.push((chunks, buffers));
        }
        let requests: Vec<_> = wanted
            .iter()
            .zip(&lists)
            .map(|(want, (chunks, buffers))| {
                self.next_name += 1;
                BatchRequest {
                    request: RequestId(self.next_name),
                    file: FileKey(want.file),
                    state: StateId(want.file),
                    kind: if want.write { IoKind::Write } else { IoKind::Read },
                    chunks,
                    buffers,
                    checksum: Checksum::default(),
                    handle: FileHandle::NULL,
                    data: None,
                    refused: want.refused.then_some(Status::BadStateId),
                }
            })
            .collect();
        self.next_tag += 1;
        let submission = Submission {
            requests: &requests,
            window_us: window,
            completion_count: count,
            synchronous,
            tag: self.next_tag,
        };
        let id = self.ids[session];
        match self.scheduler.submit(SessionId(id), &submission, self.now) {
            Ok(accepted) => {
                assert_eq!(accepted.complete, requests.is_empty() && !synchronous);
                if !synchronous && count != 0 {
                    self.wanted[session] = count as usize;
                }
                let window = Duration::from_micros(window.into()).min(self.limits.window_max);
                let due = if synchronous { self.now } else { self.now.after(window) };
                for request in &requests {
                    self.record(session, due, synchronous, request);
                }
            }
            Err(SubmitError::WhoaCowboy) => {
                let will_hear = |request: &Request| !request.synchronous && !request.lost;
                let mut own = self.requests.values().filter(|request| request.session == session);
                assert!(own.any(will_hear), "told to wait although no completion will follow");
                self.awaited[session] = true;
            }
            Err(SubmitError::Delay) => {
                let own = |request: &&Request| request.session == session && !request.lost;
                assert!(self.requests.values().filter(own).all(|request| request.synchronous));
            }
            Err(SubmitError::TooLarge) => {
                let bytes: u32 =
                    wanted.iter().flat_map(|want| &want.chunks).map(|&(_, length)| length).sum();
                let limits = &self.limits;
                assert!(
                    u64::from(bytes) > limits.bytes_per_session_max
                        || wanted.len() as u32 > limits.requests_per_session_max
                        || bytes > limits.transfers_per_session_max
                );
            }
            Err(error) => panic!("refused a valid batch: {error}"),
        }
    }

    fn record(
        &mut self,
        session: usize,
        due: Moment,
        synchronous: bool,
        request: &BatchRequest<'_>,
    ) {
        let in_file = request
            .chunks
            .iter()
            .flat_map(|chunk| (0..u64::from(chunk.length)).map(|byte| chunk.offset + byte));
        let in_memory = request.buffers.iter().flat_map(|buffer| {
            (0..u64::from(buffer.length)).map(|byte| (buffer.context.0, buffer.target.0 + byte))
        });
        let places: Vec<_> = in_file
            .zip(in_memory)
            .map(|(offset, (context, address))| (offset, context, address))
            .collect();
        let byte = if request.refused.is_some() { Byte::Over } else { Byte::Waits };
        let record = Request {
            session,
            tag: self.next_tag,
            order: self.next_tag,
            due,
            synchronous,
            file: request.file,
            kind: request.kind,
            data: vec![byte; places.len()],
            places,
            failure: request.refused.map(|status| (0, status)),
            hurried: false,
            pressed: false,
            urged: false,
            done_at: None,
            lost: false,
        };
        self.accepted += 1;
        self.requests.insert((self.ids[session], request.request.0), record);
        self.note_done();
    }

    /// Notes the requests that have just completed; those without a session are forgotten.
    fn note_done(&mut self) {
        let (now, awaited) = (self.now, &mut self.awaited);
        for request in self.requests.values_mut().filter(|request| !request.is_undone()) {
            if request.done_at.is_none() {
                request.done_at = Some(now);
                awaited[request.session] |= request.hurried && !request.lost;
            }
        }
        self.requests.retain(|_, request| !(request.lost && request.done_at.is_some()));
    }

    /// Returns one of the pending requests, or one that does not exist.
    fn pick(&self, pick: usize) -> (u64, u64) {
        let live: Vec<_> = self
            .requests
            .iter()
            .filter(|(_, request)| !request.lost)
            .map(|(key, _)| *key)
            .collect();
        if live.is_empty() || pick.is_multiple_of(16) {
            (self.ids[0], 0)
        } else {
            live[pick % live.len()]
        }
    }

    fn hurry(&mut self, pick: usize) {
        let key = self.pick(pick);
        let outcome = self.scheduler.hurry_up(SessionId(key.0), RequestId(key.1));
        match self.requests.get_mut(&key) {
            Some(request) if !request.synchronous => {
                assert_eq!(outcome, Ok(()));
                request.hurried = true;
                self.awaited[request.session] |= request.done_at.is_some();
                // The requests that block it may be hurried already, and stay so even if this
                // request ends before the next run is chosen.
                let urgent = self.pressed(|request| request.hurried || request.urged);
                for key in urgent {
                    self.requests.get_mut(&key).unwrap().urged = true;
                }
            }
            Some(_) | None => assert_eq!(outcome, Err(RequestNotFound)),
        }
    }

    fn cancel(&mut self, pick: usize) {
        let key = self.pick(pick);
        let outcome =
            self.scheduler.cancel(SessionId(key.0), RequestId(key.1), CANCELLED, self.now);
        let Some(request) = self.requests.get_mut(&key) else {
            return assert_eq!(outcome, Err(RequestNotFound));
        };
        request.cancel(CANCELLED);
        let drains = request.first(Byte::Running).is_some();
        let wanted = if drains { Cancelled::Draining } else { Cancelled::Ended };
        assert_eq!(outcome, Ok(wanted));
        if !request.synchronous {
            request.hurried = true;
            self.awaited[request.session] |= !drains;
        }
        self.note_done();
    }

    fn abort(&mut self, file: u64, offset: u64, length: u64, session: Option<usize>) {
        let scope = AbortScope {
            session: session.map(|session| SessionId(self.ids[session])),
            state: None,
            file: (file < 2).then_some(FileKey(file)),
            offset,
            length,
        };
        let limits = self.limits;
        let aborted = self.scheduler.abort(&scope, FENCED, self.now);
        let mut failed = 0;
        for (key, request) in &mut self.requests {
            let in_scope = scope.file.is_none_or(|file| file == request.file)
                && scope.session.is_none_or(|id| id == SessionId(key.0));
            // The scheduler aborts whole transfers; a transfer may touch the range even if the byte
            // itself does not.
            let touched = (0..request.places.len()).any(|at| {
                request.data[at] == Byte::Waits
                    && transfer_of(&request.places, at, limits.run_bytes_max)
                        .any(|at| (offset..offset + length).contains(&request.places[at].0))
            });
            if in_scope && touched {
                failed += 1;
                request.cancel(FENCED);
            }
        }
        assert_eq!(aborted.requests, failed);
        assert_eq!(aborted.running > 0, self.scheduler.is_running(&scope));
        self.note_done();
    }

    fn close(&mut self, session: usize) {
        let ended = self.scheduler.close_session(SessionId(self.ids[session]));
        let mut lost = 0;
        for (key, request) in &mut self.requests {
            if key.0 == self.ids[session] {
                lost += 1;
                request.lost = true;
                request.drop_rest();
            }
        }
        assert_eq!(ended.requests, lost);
        self.lost += lost as usize;
        self.note_done();
        let still = self.requests.keys().filter(|key| key.0 == self.ids[session]).count();
        assert_eq!(ended.running as usize, still);
        self.open(session);
    }

    fn poll(&mut self, in_flight_max: u32) {
        let in_flight = self.runs.len() as u32;
        let device = DeviceLoad { in_flight, in_flight_max };
        let urgent = self.pressed(|request| request.hurried || request.urged);
        let hurried = self.requests.iter().any(|(key, request)| {
            request.hurried
                && !request.synchronous
                && request.first(Byte::Waits).is_some()
                && !self
                    .requests
                    .iter()
                    .any(|(other, before)| other != key && before.stands_before(request))
        });
        let now = self.now;
        let due = self.pressed(|request| request.due <= now || request.hurried || request.pressed);
        for (key, request) in &mut self.requests {
            request.urged |= urgent.contains(key);
            request.pressed |= due.contains(key);
        }
        let Some(run) = self.scheduler.poll_run(self.now, device) else {
            assert!(in_flight >= in_flight_max || !hurried, "a hurried request was left");
            return;
        };
        assert!(in_flight < in_flight_max);
        let keys: Vec<_> = run.pieces().iter().map(|piece| self.owner(piece)).collect();
        let all_urgent = keys.iter().all(|key| urgent.contains(key));
        if hurried && self.hurried_in_a_row < HURRIED_IN_A_ROW_MAX {
            assert!(all_urgent, "a hurried request was passed over");
        }
        self.hurried_in_a_row = if all_urgent { self.hurried_in_a_row + 1 } else { 0 };
        if in_flight >= self.limits.early_start_below {
            assert!(keys.iter().any(|key| due.contains(key)), "started before its time");
        }
        self.check_run(&run, &keys);
        self.runs.push(run);
    }

    /// Returns the requests of a kind and those that block them.
    fn pressed(&self, kind: impl Fn(&Request) -> bool) -> Vec<(u64, u64)> {
        let mut pressed: Vec<_> = self
            .requests
            .iter()
            .filter(|(_, request)| kind(request))
            .map(|(key, _)| *key)
            .collect();
        let mut next = 0;
        while next < pressed.len() {
            let later = &self.requests[&pressed[next]];
            let before = self.requests.iter().filter(|(_, request)| request.stands_before(later));
            let found: Vec<_> = before.map(|(key, _)| *key).collect();
            pressed
                .extend(found.into_iter().filter(|key| !pressed.contains(key)).collect::<Vec<_>>());
            next += 1;
        }
        pressed
    }

    fn owner(&self, piece: &Piece) -> (u64, u64) {
        let view = self.scheduler.request(piece);
        let session = view.session.expect("a run starts only for an existing session");
        assert_eq!(view.failed, None, "a failed request starts nothing");
        (session.0, view.request.0)
    }

    fn check_run(&mut self, run: &Run, keys: &[(u64, u64)]) {
        assert!(run.length > 0 && run.length <= self.limits.run_bytes_max);
        assert!(!keys.is_empty() && keys.len() as u32 <= self.limits.run_pieces_max);
        let mut reached = run.offset;
        for piece in run.pieces() {
            let end = piece.offset + u64::from(piece.buffer.length);
            assert!(piece.offset <= reached, "a gap in a run");
            assert!(run.kind == IoKind::Read || piece.offset == reached, "writes overlap");
            reached = reached.max(end);
        }
        assert_eq!(reached, run.offset + u64::from(run.length));
        for (piece, key) in run.pieces().iter().zip(keys) {
            let request = &self.requests[key];
            assert_eq!((request.file, request.kind), (run.file, run.kind));
            let range = piece.offset..piece.offset + u64::from(piece.buffer.length);
            for (other, before) in &self.requests {
                let writes = before.kind == IoKind::Write || request.kind == IoKind::Write;
                if before.order < request.order && before.file == request.file && writes {
                    let overtakes = before.undone().any(|offset| range.contains(&offset));
                    assert!(!overtakes, "{key:?} overtakes {other:?}");
                }
            }
        }
        for (piece, key) in run.pieces().iter().zip(keys) {
            let request = self.requests.get_mut(key).unwrap();
            for byte in 0..u64::from(piece.buffer.length) {
                let at = piece.at as usize + byte as usize;
                let place =
                    (piece.offset + byte, piece.buffer.context.0, piece.buffer.target.0 + byte);
                assert_eq!(request.places[at], place, "moved between the wrong positions");
                assert_eq!(request.data[at], Byte::Waits, "moved twice");
                request.data[at] = Byte::Running;
            }
        }
    }

    fn done(&mut self, pick: usize, outcome: Outcome) {
        if self.runs.is_empty() {
            return;
        }
        let mut run = self.runs.swap_remove(pick % self.runs.len());
        let (mut moved, mut failed_piece) = (u64::from(run.length), None);
        let result = match outcome {
            Outcome::Whole => RunOutcome::Moved(moved),
            Outcome::Short(bytes) => {
                moved = u64::from(bytes) % (moved + 1);
                RunOutcome::Moved(moved)
            }
            Outcome::Failed => {
                moved = 0;
                RunOutcome::Failed(Status::Io)
            }
            Outcome::Piece(pick) => {
                let index = pick % run.pieces().len();
                run.fail_piece(index, Status::Chksum);
                failed_piece = Some(index);
                RunOutcome::Moved(moved)
            }
        };
        for (index, piece) in run.pieces().iter().enumerate() {
            let status = match outcome {
                Outcome::Failed => Some(Status::Io),
                Outcome::Piece(_) if failed_piece == Some(index) => Some(Status::Chksum),
                Outcome::Whole | Outcome::Short(_) | Outcome::Piece(_) => None,
            };
            // A request without a session is identified by its memory only.
            let mine = |request: &&mut Request| {
                let place = request.places.get(piece.at as usize);
                place.is_some_and(|place| {
                    (place.1, place.2) == (piece.buffer.context.0, piece.buffer.target.0)
                })
            };
            let request =
                self.requests.values_mut().find(mine).expect("the piece belongs to a request");
            let view = self.scheduler.request(piece);
            assert_eq!(view.session.is_none(), request.lost);
            for byte in 0..piece.buffer.length {
                let at = (piece.at + byte) as usize;
                assert_eq!(request.data[at], Byte::Running);
                let reached = piece.offset + u64::from(byte) < run.offset + moved;
                let is_moved = status.is_none() && reached;
                request.data[at] = if is_moved { Byte::Moved } else { Byte::Over };
            }
            if let Some(status) = status {
                request.fail(piece.at as usize, status);
                request.drop_rest();
            }
        }
        self.scheduler.run_done(run, result, self.now);
        self.note_done();
    }

    fn report(&mut self) {
        while let Some(reply) = self.scheduler.poll_reply() {
            let of_batch = |request: &Request| request.tag == reply.tag;
            let count = self.requests.values().filter(|request| of_batch(request)).count();
            assert_eq!(count, reply.completions.len(), "a reply reports its whole batch");
            let names: Vec<_> = reply.completions.iter().map(|done| done.request).collect();
            assert!(names.is_sorted(), "in the order of the requests");
            for completion in &reply.completions {
                let request = self.check(reply.session, completion);
                assert!(request.synchronous && request.tag == reply.tag);
            }
        }
        while let Some(notice) = self.scheduler.poll_notice(self.now) {
            self.check_notice(&notice);
        }
        for (session, id) in self.ids.iter().enumerate() {
            let own =
                self.requests.iter().filter(|(key, request)| key.0 == *id && !request.synchronous);
            let (done, undone): (Vec<_>, Vec<_>) =
                own.map(|(_, request)| request).partition(|request| request.done_at.is_some());
            assert!(done.is_empty() || !undone.is_empty(), "no other completion is pending");
            let wanted = self.wanted[session].min(4);
            assert!(done.is_empty() || done.len() < wanted, "as many as were asked for");
            for request in done {
                assert!(self.now < self.report_by(request), "waits too long");
                assert!(!request.hurried, "a hurried request waits");
            }
        }
        let synchronous_left = self.requests.values().any(|request| {
            let own = |other: &Request| other.tag == request.tag;
            request.synchronous
                && !request.lost
                && self.requests.values().filter(|r| own(r)).all(|r| r.done_at.is_some())
        });
        assert!(!synchronous_left, "a reply was left");
    }

    fn report_by(&self, request: &Request) -> Moment {
        let done_at = request.done_at.expect("the request is done");
        request.due.max(done_at.after(self.limits.notice_delay_max))
    }

    fn check_notice(&mut self, notice: &Notice) {
        let session = self.ids.iter().position(|&id| SessionId(id) == notice.session).unwrap();
        let (wanted, count) = (self.wanted[session], notice.completions.len());
        assert!((1..=4).contains(&count));
        assert!(wanted == 0 || count <= wanted);
        let undone = self.requests.iter().any(|(key, request)| {
            SessionId(key.0) == notice.session && !request.synchronous && request.done_at.is_none()
        });
        let mut late = false;
        for completion in &notice.completions {
            let request = self.check(notice.session, completion);
            assert!(!request.synchronous);
            late |= self.now >= self.report_by(&request);
            let is_last = !self.requests.values().any(|other| other.tag == request.tag);
            let is_finished = notice.finished.contains(&request.tag);
            if is_last {
                assert!(is_finished, "the batch of the last completion is finished");
            }
        }
        for tag in &notice.finished {
            assert!(!self.requests.values().any(|request| request.tag == *tag));
        }
        let has_reason =
            wanted == 0 || count >= wanted.min(4) || !undone || late || self.awaited[session];
        assert!(has_reason, "reported too early");
        let has_more = self.requests.iter().any(|(key, request)| {
            SessionId(key.0) == notice.session && !request.synchronous && request.done_at.is_some()
        });
        // A late completion makes the others go out, too.
        self.awaited[session] = has_more && (self.awaited[session] || late);
    }

    /// Checks a completion against the bytes, and forgets the request.
    fn check(
        &mut self,
        session: SessionId,
        completion: &dafs_wire::messages::Completion,
    ) -> Request {
        let key = (session.0, completion.request.0);
        let request = self.requests.remove(&key).expect("reported once, to the right session");
        assert!(request.done_at.is_some(), "reported before it was done");
        let moved = request.data.iter().take_while(|byte| **byte == Byte::Moved).count();
        let status = request.failure.map_or(Status::Ok, |(_, status)| status);
        assert_eq!((completion.status, completion.length as usize), (status, moved));
        self.reported += 1;
        request
    }

    /// Lets all requests complete.
    fn finish(mut self) {
        for _ in 0..10_000 {
            while !self.runs.is_empty() {
                self.done(0, Outcome::Whole);
            }
            self.poll(1);
            self.report();
            if self.runs.is_empty() {
                let Some(due) = self.scheduler.next_due() else { break };
                self.now = self.now.max(due);
            }
        }
        assert!(
            self.scheduler.is_idle(),
            "the scheduler is not empty: {:?}",
            self.scheduler.load()
        );
        assert!(self.requests.is_empty(), "never reported: {:?}", self.requests);
        assert_eq!(self.accepted, self.reported + self.lost);
        assert_eq!(self.scheduler.next_due(), None);
    }
}

/// Returns the positions of the transfer that contains a byte of a request. A transfer is
/// contiguous in both file and memory, and does not cross a multiple of the longest run.
fn transfer_of(places: &[Place], at: usize, run_bytes: u32) -> impl Iterator<Item = usize> {
    let joined = |left: usize| {
        let (one, two) = (places[left], places[left + 1]);
        two.0 == one.0 + 1
            && (two.1, two.2) == (one.1, one.2 + 1)
            && two.0 % u64::from(run_bytes) != 0
    };
    let first = (0..at).rev().take_while(|&left| joined(left)).last().unwrap_or(at);
    let last = (at..places.len() - 1).take_while(|&left| joined(left)).last();
    first..=last.map_or(at, |left| left + 1)
}

fn limits() -> impl Strategy<Value = BatchLimits> {
    (1..200u32, 1..6u32, 0..3u32, prop_oneof![Just(6u32), Just(1000)]).prop_map(
        |(run_bytes_max, run_pieces_max, early_start_below, requests)| BatchLimits {
            requests_max: requests * 2,
            requests_per_session_max: requests,
            transfers_max: 4000,
            transfers_per_session_max: 2000,
            bytes_max: 4000,
            bytes_per_session_max: 2000,
            run_bytes_max,
            run_pieces_max,
            window_max: Duration::from_micros(500),
            notice_delay_max: Duration::from_micros(50),
            early_start_below,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_is_moved_once_and_every_request_reported_once(
        limits in limits(),
        events in prop::collection::vec(event(), 1..120),
    ) {
        let mut model = Model::new(limits);
        for event in &events {
            model.step(event);
        }
        model.finish();
    }
}
