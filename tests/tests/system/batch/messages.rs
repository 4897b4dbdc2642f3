//! Tests batches message by message: which are refused, and how completions are reported.

use std::time::Duration;

use dafs_dat::EndpointId;
use dafs_memory::{Memory, Pages};
use dafs_types::{
    CacheHint, FileHandle, RequestId, SequenceNumber, SessionId, StateId, Status, StreamId,
};
use dafs_wire::messages::{
    BatchRequest, BatchSubmit, Completion, Empty, FileChunk, HurryUp,
    SessionOptions as WireOptions, TransferDirection,
};
use dafs_wire::{
    Array, ByteOrder, ChainFlags, ChannelType, Checksum, DirectBuffer, DirectBuffers, Procedure,
    Request, RequestHeader, Response, ResponseHeader, decode_request, decode_response,
    encode_request,
};

use crate::bind::{answer, answer_null, bind};
use crate::fixture::{Fixture, Transport, any, over_each, pattern, transports};
use crate::rogue::{Rogue, status_of};

pub(crate) const READ: TransferDirection = TransferDirection::Read;
pub(crate) const WRITE: TransferDirection = TransferDirection::Write;
/// Longer than any test.
pub(crate) const LONG: u32 = u32::MAX;

/// A request of one piece: name, direction, offset, length. Its memory depends on its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct One(pub u64, pub TransferDirection, pub u64, pub u32);

/// The parameters of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    pub window_us: u32,
    pub count: u32,
    pub synchronous: bool,
}

pub(crate) const AT_ONCE: Asked = Asked { window_us: 0, count: 0, synchronous: false };
pub(crate) const HELD: Asked = Asked { window_us: LONG, count: 0, synchronous: false };
pub(crate) const SYNCHRONOUS: Asked = Asked { window_us: 0, count: 0, synchronous: true };

/// A client that submits batches message by message.
pub(crate) struct Batcher {
    pub rogue: Rogue,
    pub session: SessionId,
    pub back: Option<EndpointId>,
    pub memory: Memory,
    region: dafs_dat::Region,
    pub file: FileHandle,
    pub state: StateId,
    sequence: u16,
}

/// The bytes of memory for each request.
pub(crate) const PLACE: usize = 4096;
const PLACES: usize = 300;

impl Batcher {
    pub(crate) fn connect(fixture: &Fixture, transport: Transport, name: &'static [u8]) -> Self {
        let options = WireOptions { back_control_channel: true, ..WireOptions::default() };
        Self::connect_with(fixture, transport, name, options)
    }

    pub(crate) fn connect_with(
        fixture: &Fixture,
        transport: Transport,
        name: &'static [u8],
        options: WireOptions,
    ) -> Self {
        let mut rogue = Rogue::connect(&fixture.address(transport));
        let session = rogue.log_in_as(name, options).session;
        let (file, state) = rogue.open("file");
        let memory = Memory::shared(PLACES * PLACE, Pages::Small).unwrap();
        let region = rogue.expose(&memory);
        Self { rogue, session, back: None, memory, region, file, state, sequence: 1000 }
    }

    /// Binds a back-control channel and replies to the request that tests it.
    pub(crate) fn listen(&mut self, fixture: &Fixture, transport: Transport) -> &mut Self {
        let kind = ChannelType::BackControl;
        let back = bind(&mut self.rogue, fixture, transport, self.session, kind);
        self.back = Some(back);
        let message = self.rogue.message_on(back).unwrap();
        let (header, request) = decode_request(ByteOrder::NATIVE, &message).unwrap();
        assert_eq!(request.procedure(), Procedure::BcNull);
        self.rogue.send_on(back, &answer_null(&header));
        self
    }

    pub(crate) fn buffer(&mut self, name: u64, length: u32) -> DirectBuffer {
        self.rogue.buffer(&self.region, name * PLACE as u64, length)
    }

    /// Encodes requests and passes the batch to a function.
    pub(crate) fn with<T>(
        &mut self,
        requests: &[One],
        asked: Asked,
        send: impl FnOnce(&mut Rogue, &Request<'_>) -> T,
    ) -> T {
        let lists: Vec<_> = requests
            .iter()
            .map(|&One(name, _, offset, length)| {
                ([FileChunk { offset, length, hint: CacheHint(0) }], [self.buffer(name, length)])
            })
            .collect();
        let wire: Vec<_> = requests
            .iter()
            .zip(&lists)
            .map(|(&One(name, direction, _, _), (chunks, buffers))| BatchRequest {
                file: self.file,
                request: RequestId(name),
                state: self.state,
                direction,
                chunks: Array::from(&chunks[..]),
                buffers: DirectBuffers::from(&buffers[..]),
                checksum: Checksum::NONE,
            })
            .collect();
        let batch = BatchSubmit {
            requests: Array::from(&wire[..]),
            window_us: asked.window_us,
            completion_count: asked.count,
            synchronous: asked.synchronous,
        };
        send(&mut self.rogue, &Request::BatchSubmit(batch))
    }

    pub(crate) fn submit(&mut self, requests: &[One], asked: Asked) -> Status {
        self.with(requests, asked, |rogue, request| rogue.outcome(request).unwrap())
    }

    /// Sends a batch on a stream without waiting.
    pub(crate) fn send(&mut self, stream: u16, requests: &[One], asked: Asked) {
        self.sequence += 1;
        let sequence = self.sequence;
        self.with(requests, asked, |rogue, request| rogue.request(stream, sequence, request));
    }

    /// Runs a synchronous batch.
    pub(crate) fn run(&mut self, requests: &[One]) -> Vec<Completion> {
        let answer = self.with(requests, SYNCHRONOUS, |rogue, request| rogue.ask(request).unwrap());
        completions_of(&answer)
    }

    pub(crate) fn hurry(&mut self, name: u64) -> Status {
        let hurry = HurryUp { request: RequestId(name) };
        self.rogue.outcome(&Request::HurryUp(hurry)).unwrap()
    }

    /// Returns the next completion notice without replying to it.
    pub(crate) fn notice(&mut self) -> (RequestHeader, Vec<Completion>) {
        let message = self.rogue.message_on(self.back.unwrap()).unwrap();
        let (header, request) = decode_request(ByteOrder::NATIVE, &message).unwrap();
        match request {
            Request::BcBatchCompletion(done) => (header, done.completions.iter().collect()),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn answer(&mut self, header: &RequestHeader) {
        let heard = answer(header, Status::Ok, &Response::BcBatchCompletion(Empty));
        self.rogue.send_on(self.back.unwrap(), &heard);
    }

    /// Returns the names and statuses of the next completion notice, and replies to it.
    pub(crate) fn told(&mut self) -> Vec<(u64, Status)> {
        let (header, done) = self.notice();
        self.answer(&header);
        done.iter().map(|done| (done.request.0, done.status)).collect()
    }

    /// Returns the memory of a request.
    pub(crate) fn bytes(&self, name: u64, length: usize) -> Vec<u8> {
        self.memory.to_vec(name as usize * PLACE, length)
    }
}

pub(crate) fn completions_of(answer: &[u8]) -> Vec<Completion> {
    match decode_response(ByteOrder::NATIVE, Procedure::BatchSubmit, answer).unwrap().1 {
        Response::BatchSubmit(done) => done.completions.iter().collect(),
        other => panic!("{other:?}"),
    }
}

/// Makes a synchronous batch of requests that [`One`] cannot express.
pub(crate) fn synchronous<'a>(requests: &'a [BatchRequest<'a>]) -> Request<'a> {
    Request::BatchSubmit(BatchSubmit {
        requests: Array::from(requests),
        window_us: 0,
        completion_count: 0,
        synchronous: true,
    })
}

/// Starts a server that begins no request before its time, with a file.
pub(crate) fn patient(change: impl FnOnce(&mut dafs_sessions::BatchLimits)) -> Fixture {
    let fixture = Fixture::with(|config| {
        config.sessions.batch.early_start_below = 0;
        config.sessions.batch.window_max = Duration::from_secs(3600);
        change(&mut config.sessions.batch);
    });
    std::fs::write(fixture.local("file"), pattern(100_000, 9)).unwrap();
    fixture
}

#[test]
fn without_a_channel_to_tell_of_them_batches_are_synchronous() {
    over_each(|fixture, transport| {
        let content = pattern(9000, 1);
        std::fs::write(fixture.local("file"), &content).unwrap();
        let mut batcher = Batcher::connect(fixture, transport, b"batcher");
        let requests = [One(1, READ, 0, 100), One(2, READ, 8990, 100), One(3, READ, 9000, 1)];
        assert_eq!(batcher.submit(&requests, AT_ONCE), Status::BackChannelUnusable);
        let done = batcher.run(&requests);
        let lengths: Vec<_> = done.iter().map(|done| (done.request.0, done.length)).collect();
        assert_eq!(lengths, [(1, 100), (2, 10), (3, 0)], "in the order of the requests");
        assert_eq!(batcher.bytes(1, 100), content[..100]);
        assert_eq!(batcher.bytes(2, 10), content[8990..]);
        assert_eq!(batcher.run(&[]), []);
        assert_eq!(batcher.hurry(1), Status::BatchRequestNotFound);
    });
}

#[test]
fn what_is_wrong_with_a_batch_refuses_all_of_it() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"as it was").unwrap();
        let mut batcher = Batcher::connect(fixture, transport, b"batcher");
        let twice = [One(1, WRITE, 0, 4), One(1, WRITE, 4, 4)];
        assert_eq!(batcher.submit(&twice, SYNCHRONOUS), Status::Inval);
        let far = [One(1, WRITE, 0, 4), One(2, WRITE, u64::MAX - 1, 4)];
        assert_eq!(batcher.submit(&far, SYNCHRONOUS), Status::Inval);
        let (file, state) = (batcher.file, batcher.state);
        let buffers = [batcher.buffer(1, 5)];
        let chunks = [FileChunk { offset: 0, length: 4, hint: CacheHint(0) }];
        let uneven = [BatchRequest {
            file,
            request: RequestId(1),
            state,
            direction: WRITE,
            chunks: Array::from(&chunks[..]),
            buffers: DirectBuffers::from(&buffers[..]),
            checksum: Checksum::NONE,
        }];
        assert_eq!(batcher.rogue.outcome(&synchronous(&uneven)), Some(Status::Inval));
        assert_eq!(std::fs::read(fixture.local("file")).unwrap(), b"as it was");
    });
}

#[test]
fn an_answer_that_would_not_fit_is_refused_beforehand() {
    let fixture = patient(|_| {});
    let options = WireOptions { response_bytes_max: 512, ..WireOptions::default() };
    let mut batcher = Batcher::connect_with(&fixture, any(), b"small", options);
    let reads = |count| (0..count).map(|n| One(n, READ, n * 10, 10)).collect::<Vec<_>>();
    assert_eq!(batcher.run(&reads(19)).len(), 19);
    assert_eq!(batcher.submit(&reads(20), SYNCHRONOUS), Status::TooSmall);
}

#[test]
fn a_request_that_may_not_be_done_says_so_in_its_completion() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), pattern(1000, 2)).unwrap();
        std::fs::create_dir(fixture.local("directory")).unwrap();
        let mut batcher = Batcher::connect(fixture, transport, b"batcher");
        let (file, state) = (batcher.file, batcher.state);
        let directory = batcher.rogue.lookup("directory");
        let anonymous = StateId::ANONYMOUS;
        let unknown = FileHandle([9; 64]);
        let cases = [
            (file, state, Status::Ok),
            (file, anonymous, Status::Ok),
            (file, StateId(state.0 ^ 1), Status::BadStateId),
            (directory, state, Status::BadStateId),
            (directory, anonymous, Status::IsDir),
            (unknown, anonymous, Status::BadHandle),
        ];
        let chunks = [FileChunk { offset: 0, length: 10, hint: CacheHint(0) }];
        let buffers = [batcher.buffer(1, 10)];
        let wire: Vec<_> = (0..)
            .zip(&cases)
            .map(|(name, &(file, state, _))| BatchRequest {
                file,
                request: RequestId(name),
                state,
                direction: READ,
                chunks: Array::from(&chunks[..]),
                buffers: DirectBuffers::from(&buffers[..]),
                checksum: Checksum::NONE,
            })
            .collect();
        let done = completions_of(&batcher.rogue.ask(&synchronous(&wire)).unwrap());
        for (done, (_, state, expected)) in done.iter().zip(&cases) {
            assert_eq!(done.status, *expected, "{state:?}");
        }
    });
}

#[test]
fn completions_come_as_many_at_once_as_was_asked() {
    for transport in transports() {
        let fixture = patient(|limits| {
            limits.early_start_below = 1;
            limits.notice_delay_max = Duration::from_secs(3600);
        });
        let mut batcher = Batcher::connect(&fixture, transport, b"batcher");
        batcher.listen(&fixture, transport);
        let reads = |names: std::ops::Range<u64>| {
            names.map(|name| One(name, READ, name * 5000, 100)).collect::<Vec<_>>()
        };
        let three = Asked { count: 3, ..AT_ONCE };
        assert_eq!(batcher.submit(&reads(0..7), three), Status::Ok);
        let sizes: Vec<_> = (0..3).map(|_| batcher.told().len()).collect();
        assert_eq!(sizes, [3, 3, 1]);
        // Zero keeps the number; an empty batch sets it.
        assert_eq!(batcher.submit(&reads(0..4), AT_ONCE), Status::Ok);
        assert_eq!([batcher.told().len(), batcher.told().len()], [3, 1]);
        assert_eq!(batcher.submit(&[], Asked { count: 1, ..AT_ONCE }), Status::Ok);
        assert_eq!(batcher.submit(&reads(0..3), AT_ONCE), Status::Ok);
        assert_eq!([batcher.told().len(), batcher.told().len(), batcher.told().len()], [1, 1, 1]);
    }
}

#[test]
fn a_client_that_does_not_answer_is_told_no_more_than_it_has_credits_for() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), pattern(50_000, 3)).unwrap();
        let mut batcher = Batcher::connect(fixture, transport, b"batcher");
        batcher.listen(fixture, transport);
        let reads: Vec<_> = (0..6).map(|name| One(name, READ, name * 5000, 10)).collect();
        assert_eq!(batcher.submit(&reads, Asked { count: 1, ..AT_ONCE }), Status::Ok);
        let unanswered = [batcher.notice(), batcher.notice()];
        // Unreported requests keep their names and are found.
        let told: Vec<_> = unanswered.iter().map(|(_, done)| done[0].request.0).collect();
        for name in 0..6 {
            let expected =
                if told.contains(&name) { Status::BatchRequestNotFound } else { Status::Ok };
            assert_eq!(batcher.hurry(name), expected, "request {name}");
        }
        for (header, _) in unanswered {
            batcher.answer(&header);
        }
        let mut left: Vec<u64> = Vec::new();
        while left.len() < 4 {
            left.extend(batcher.told().iter().map(|(name, _)| name));
        }
        left.extend(told);
        left.sort_unstable();
        assert_eq!(left, [0, 1, 2, 3, 4, 5]);
    });
}

#[test]
fn hurrying_releases_one_request_and_tells_of_it_at_once() {
    for transport in transports() {
        let fixture = patient(|_| {});
        let mut batcher = Batcher::connect(&fixture, transport, b"batcher");
        batcher.listen(&fixture, transport);
        let reads: Vec<_> = (0..5).map(|name| One(name, READ, name * 9000, 10)).collect();
        assert_eq!(batcher.submit(&reads, Asked { count: 5, ..HELD }), Status::Ok);
        assert_eq!(batcher.hurry(3), Status::Ok);
        assert_eq!(batcher.told(), [(3, Status::Ok)]);
        assert_eq!(batcher.hurry(3), Status::BatchRequestNotFound);
        assert_eq!(batcher.hurry(77), Status::BatchRequestNotFound);
        // The name is free again; names of pending requests are not.
        assert_eq!(batcher.submit(&[One(3, READ, 99_000, 1)], HELD), Status::Ok);
        assert_eq!(batcher.submit(&[One(2, READ, 99_000, 1)], HELD), Status::Inval);
        assert_eq!(batcher.hurry(3), Status::Ok);
        assert_eq!(batcher.told(), [(3, Status::Ok)]);
    }
}

#[test]
fn a_busy_server_has_clients_wait_for_what_they_will_hear_of() {
    for transport in transports() {
        let fixture = patient(|limits| {
            limits.requests_per_session_max = 4;
            limits.requests_max = 5;
        });
        let mut batcher = Batcher::connect(&fixture, transport, b"first");
        batcher.listen(&fixture, transport);
        let reads = |names: std::ops::Range<u64>| {
            names.map(|name| One(name, READ, name * 5000, 100)).collect::<Vec<_>>()
        };
        assert_eq!(batcher.submit(&reads(0..5), HELD), Status::Resource, "never");
        assert_eq!(batcher.submit(&reads(0..4), Asked { count: 4, ..HELD }), Status::Ok);
        assert_eq!(batcher.submit(&reads(4..5), HELD), Status::WhoaCowboy);
        // Another session has no requests to wait for.
        let mut other = Batcher::connect(&fixture, transport, b"other");
        other.listen(&fixture, transport);
        assert_eq!(other.submit(&reads(0..2), HELD), Status::Delay);
        // At another place of the file: otherwise it would run the held requests, too.
        assert_eq!(other.run(&[One(0, READ, 90_000, 10)]).len(), 1);
        assert_eq!(batcher.hurry(1), Status::Ok);
        assert_eq!(batcher.told(), [(1, Status::Ok)]);
        assert_eq!(batcher.submit(&reads(4..5), HELD), Status::Ok);
        assert_eq!(other.submit(&reads(0..1), HELD), Status::Ok);
    }
}

#[test]
fn a_wrong_checksum_leaves_the_file_as_it_was() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"as it was").unwrap();
        let mut rogue = Rogue::logged_in_sealed(&fixture.address(transport));
        let (file, state) = rogue.open("file");
        let memory = Memory::shared(PLACE, Pages::Small).unwrap();
        memory.write(0, b"as it is.");
        let region = rogue.expose(&memory);
        let buffers = [rogue.buffer(&region, 0, 9)];
        let chunks = [FileChunk { offset: 0, length: 9, hint: CacheHint(0) }];
        let mut run = |checksum| {
            let wire = [BatchRequest {
                file,
                request: RequestId(1),
                state,
                direction: WRITE,
                chunks: Array::from(&chunks[..]),
                buffers: DirectBuffers::from(&buffers[..]),
                checksum,
            }];
            let answer = rogue.ask(&synchronous(&wire)).unwrap();
            assert_eq!(status_of(&answer), Status::Ok);
            completions_of(&answer)[0].status
        };
        assert_eq!(run(Checksum::of(b"as it was")), Status::Chksum);
        assert_eq!(std::fs::read(fixture.local("file")).unwrap(), b"as it was");
        assert_eq!(run(Checksum::of(b"as it is.")), Status::Ok);
        assert_eq!(std::fs::read(fixture.local("file")).unwrap(), b"as it is.");
    });
}

#[test]
fn memory_that_is_not_the_clients_ends_the_connection_it_was_named_over() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), pattern(5000, 4)).unwrap();
        let mut batcher = Batcher::connect(fixture, transport, b"batcher");
        batcher.listen(fixture, transport);
        let beyond = One(PLACES as u64, READ, 0, 100);
        // Data read by an asynchronous batch goes over the channel that reports it.
        assert_eq!(batcher.submit(&[beyond], AT_ONCE), Status::Ok);
        let back = batcher.back.unwrap();
        assert_eq!(batcher.rogue.message_on(back), None);
        batcher.rogue.root();
        batcher.send(0, &[beyond], SYNCHRONOUS);
        while batcher.rogue.answer().is_some() {}
    });
}

/// Encodes a batch as a member of a chain.
fn member(
    batcher: &mut Batcher,
    stream: u16,
    flags: ChainFlags,
    requests: &[One],
    asked: Asked,
) -> Vec<u8> {
    batcher.with(requests, asked, |_, request| {
        let header = RequestHeader {
            chain_flags: flags,
            ..RequestHeader::new(StreamId(stream), SequenceNumber(900))
        };
        let mut message = vec![0; 4096];
        let length = encode_request(ByteOrder::NATIVE, &header, request, &mut message).unwrap();
        message.truncate(length);
        message
    })
}

#[test]
fn in_a_chain_a_batch_begins_when_the_one_before_is_answered() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), pattern(9000, 5)).unwrap();
        let mut batcher = Batcher::connect(fixture, transport, b"batcher");
        batcher.memory.write(PLACE, &[0xaa; PLACE]);
        let mut run = |members: [(&[One], Asked); 2]| {
            let [(first, asked), (second, then)] = members;
            let first = member(&mut batcher, 0, ChainFlags::FORWARD, first, asked);
            let second = member(&mut batcher, 1, ChainFlags::BACK, second, then);
            batcher.rogue.send(&first);
            batcher.rogue.send(&second);
            let mut statuses = [Status::Io; 2];
            for _ in 0..2 {
                let answer = batcher.rogue.answer().unwrap();
                let header = ResponseHeader::decode(ByteOrder::NATIVE, &answer).unwrap();
                statuses[usize::from(header.stream.0)] = header.status;
            }
            (statuses, batcher.bytes(2, 4096))
        };
        let (write, read) = ([One(1, WRITE, 100, 4096)], [One(2, READ, 100, 4096)]);
        let (statuses, seen) = run([(&write, SYNCHRONOUS), (&read, SYNCHRONOUS)]);
        assert_eq!((statuses, seen), ([Status::Ok; 2], vec![0xaa; 4096]));
        let twice = [write[0], write[0]];
        let (statuses, _) = run([(&twice, SYNCHRONOUS), (&write, SYNCHRONOUS)]);
        assert_eq!(statuses, [Status::Inval, Status::ChainBroken]);
        // A batch whose completion cannot be reported is refused and breaks the chain.
        let (statuses, _) = run([(&write, AT_ONCE), (&read, SYNCHRONOUS)]);
        assert_eq!(statuses, [Status::BackChannelUnusable, Status::ChainBroken]);
    });
}
