//! Tests device memory (dmabufs): real servers and the client library over the simulated network,
//! whose nodes have devices that map a memory file like a dmabuf. Over all other transports, it
//! tests the errors that say what is missing.
//!
//! On this side no such memory is mapped, so a request that contains its bytes could not be sent.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dafs_client::{
    Batch, Batched, Buffer, Client, ClientError, DeviceMemory, File, Group, OpenOptions, Recovery,
    RecoveryOptions, Session, SessionEvent, SessionOptions, Span, Stability, block_on,
};
use dafs_dat::sim::{Fault, Network, NetworkConfig};
use dafs_dat::{Address, Interface, InterfaceConfig};
use dafs_memory::{Memory, Pages};
use dafs_server::{ServerConfig, SteppedServer};
use dafs_store::local::{LocalConfig, LocalStore, Squash};
use dafs_types::{CacheHint, Moment, Random, Status};
use dafs_wire::messages::{AppendDirect, Empty};
use dafs_wire::{Checksum, Request};

use crate::fixture::{Ending, Fixture, Transport, Watch, me, over_each, pattern};

const SERVER: u32 = 1;
const CLIENT: u32 = 2;
const DEVICE: u32 = 5;
const OTHER: u32 = 6;
/// The offset of the registered part in the memory file, and its length.
const OFFSET: usize = 12288;
const LENGTH: usize = 1 << 20;
/// The bytes of a buffer in one request: more than are sent inline.
const PIECE: usize = 100_000;

/// A network, a directory served on it, and a client's node with a device.
struct World {
    network: Network,
    directory: tempfile::TempDir,
}

/// Runs a case with a server.
fn over_a_device(seed: u64, case: impl FnOnce(&World)) {
    let _watch = Watch::start();
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("export")).unwrap();
    // Two threads advance the clock, so absolute times mean nothing.
    let for_ever = u64::MAX;
    let network = Network::new(NetworkConfig {
        hold_ns_max: for_ever,
        connect_ns_max: for_ever,
        ..NetworkConfig::new(seed)
    });
    network.set_device(CLIENT, Some(DEVICE));
    let world = World { network, directory };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ending = Ending(&is_over);
        scope.spawn(|| world.serve(&is_over));
        case(&world);
    });
    assert_eq!([DEVICE, OTHER].map(|device| world.network.registration_count(device)), [0, 0]);
}

impl World {
    fn serve(&self, is_over: &AtomicBool) {
        let place = self.directory.path();
        let store = LocalStore::new(&LocalConfig::new(place.join("export"), place.join("state")));
        let listen = vec![Address::sim(SERVER)];
        let mut config = ServerConfig { listen, ..ServerConfig::default() };
        config.cache.arena_bytes = 16 << 20;
        config.cache.dirty_bytes_max = 4 << 20;
        config.sessions.authentication.anonymous = Some(me());
        config.access.squash = Some(Squash::Nobody);
        let sim = Some(self.network.at(SERVER));
        let interface =
            Interface::serving(InterfaceConfig { sim, ..InterfaceConfig::default() }).unwrap();
        let (entropy, order) = (Box::new(Random::new(1)), Box::new(Random::new(2)));
        let store = Arc::new(store.unwrap());
        let mut server =
            SteppedServer::new(&config, store, vec![interface], entropy, order).unwrap();
        let begun = Instant::now();
        while !is_over.load(Ordering::Acquire) {
            server.step(0, Moment(begun.elapsed().as_nanos() as u64));
            self.network.advance();
            std::thread::yield_now();
        }
    }

    fn connect(&self, options: &SessionOptions) -> (Client, Session) {
        let sim = Some(self.network.at(CLIENT));
        let interface =
            Interface::new(InterfaceConfig { sim, ..InterfaceConfig::default() }).unwrap();
        let client = Client::over(interface);
        let session = connect_until(&client, options);
        (client, session)
    }

    /// Makes a client with device memory, and a file with this content.
    fn setup(&self, content: &[u8]) -> Setup {
        std::fs::write(self.directory.path().join("export/file"), content).unwrap();
        let (client, session) = self.connect(&options());
        let file = session.open("/file", &OpenOptions::write()).unwrap();
        let bytes = Bytes::new();
        let memory = bytes.register(&session).unwrap();
        Setup { bytes, memory, file, session, client }
    }

    fn content(&self) -> Vec<u8> {
        std::fs::read(self.directory.path().join("export/file")).unwrap()
    }

    fn registrations(&self) -> [usize; 2] {
        [DEVICE, OTHER].map(|device| self.network.registration_count(device))
    }

    /// Blocks all messages to the server until [`World::go_on`].
    fn hold(&self) {
        self.network.partition(SERVER);
    }

    /// Gives the client's node this device, and breaks its connections.
    fn go_on_with(&self, device: Option<u32>) {
        self.network.set_device(CLIENT, device);
        self.network.heal(SERVER);
    }
}

struct Setup {
    bytes: Bytes,
    memory: DeviceMemory,
    file: File,
    session: Session,
    client: Client,
}

/// The memory of a device. Only the test accesses it.
struct Bytes(Memory);

impl Bytes {
    fn new() -> Self {
        Self(Memory::shared(OFFSET + LENGTH, Pages::Small).unwrap())
    }

    /// Registers it through a descriptor that is closed immediately afterwards.
    fn register(&self, session: &Session) -> Result<DeviceMemory, ClientError> {
        let fd = self.0.file().unwrap().try_clone_to_owned().unwrap();
        session.register_dmabuf(fd, OFFSET as u64, LENGTH)
    }

    fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        self.0.to_vec(OFFSET + offset, length)
    }

    fn fill(&self, seed: u64) -> Vec<u8> {
        let bytes = pattern(LENGTH, seed);
        self.0.write(OFFSET, &bytes);
        bytes
    }
}

fn options() -> SessionOptions {
    let recovery = RecoveryOptions::default()
        .pause_min(Duration::ZERO)
        .pause_max(Duration::from_millis(1))
        .give_up_after(Duration::from_secs(30));
    SessionOptions::default().recovery(Recovery::On(recovery))
}

/// Connects, and retries until the server's thread listens.
fn connect_until(client: &Client, options: &SessionOptions) -> Session {
    loop {
        match client.connect_to(&Address::sim(SERVER), options) {
            Ok(session) => return session,
            Err(ClientError::Connect { .. }) => std::thread::yield_now(),
            Err(other) => panic!("{other}"),
        }
    }
}

/// True if the error says that device memory is unreachable, and what to do.
fn is_out_of_reach(error: &ClientError) -> bool {
    let text = error.to_string();
    matches!(error, ClientError::OutOfReach { .. })
        && text.contains("no RDMA device")
        && text.contains("dafs+verbs://")
        && text.contains("Client::allocate")
}

#[test]
fn device_memory_is_read_into_and_written_from() {
    over_a_device(1, |world| {
        let mut content = pattern(LENGTH, 1);
        let Setup { bytes, memory, file, client, .. } = world.setup(&content);
        assert_eq!((memory.len(), memory.is_empty()), (LENGTH, false));
        // From a buffer, the small ones would be sent inline.
        for length in [1, 7, 100, 4096, 65_000, LENGTH - 64] {
            bytes.fill(2);
            let slice = memory.slice(64, length).unwrap();
            assert_eq!((slice.len(), slice.is_empty()), (length, false));
            let read = block_on(&client, file.read_async(0, slice.clone())).unwrap();
            assert_eq!(read.length as usize, length);
            assert_eq!(bytes.read(64, length), content[..length]);
            assert_eq!(bytes.read(0, 64), pattern(LENGTH, 2)[..64]);
            let mine = bytes.fill(3 + length as u64);
            let written = block_on(&client, file.write_async(5, slice)).unwrap();
            assert_eq!(written.length as usize, length);
            file.commit().unwrap();
            content[5..5 + length].copy_from_slice(&mine[64..64 + length]);
            assert!(world.content()[..LENGTH] == content, "{length} bytes");
        }
        assert_eq!(bytes.0.to_vec(0, OFFSET), vec![0; OFFSET], "what was not registered");
        file.read_into(3, memory.slice(0, 10).unwrap()).unwrap();
        assert_eq!(bytes.read(0, 10), content[3..13]);
        file.write_from(0, memory.slice(0, 10).unwrap()).unwrap();
        let beyond = memory.slice(LENGTH - 1, 2);
        assert!(matches!(beyond, Err(ClientError::Range { .. })), "{beyond:?}");
    });
}

#[test]
fn vectors_of_transfers_end_in_their_completion_group() {
    over_a_device(2, |world| {
        let content = pattern(LENGTH, 1);
        let Setup { bytes, memory, file, session, client } = world.setup(&content);
        let group = client.group();
        // In reverse order.
        for piece in 0..256 {
            let slice = memory.slice(piece * 4096, 4096).unwrap();
            let from = (255 - piece as u64) * 4096;
            session.submit_read(&file, from, slice, group, piece as u64).unwrap();
        }
        assert_eq!(client.wait(group, 256, None), 256);
        while let Some(completion) = client.next(group) {
            assert_eq!(completion.result.unwrap().length, 4096);
        }
        for (here, there) in bytes.read(0, LENGTH).chunks(4096).zip(content.chunks(4096).rev()) {
            assert!(here == there);
        }
        let slice = memory.slice(0, LENGTH).unwrap();
        session.submit_write(&file, 0, slice, Stability::DataSync, group, 7).unwrap();
        while client.poll(group) == 0 {}
        assert_eq!(client.next(group).unwrap().context, 7);
        assert!(world.content() == bytes.read(0, LENGTH));
    });
}

#[test]
fn lists_are_scattered_and_gathered() {
    over_a_device(3, |world| {
        let content = pattern(LENGTH, 1);
        let Setup { bytes, memory, file, session, client } = world.setup(&content);
        let buffer = client.allocate(1000).unwrap();
        for is_submitted in [false, true] {
            let send = |batch: Batch<'_>| match is_submitted {
                true => batch.submit().unwrap(),
                false => batch.start().unwrap(),
            };
            bytes.fill(2);
            let spans: [Span; 3] = [
                memory.slice(100, 300).unwrap().into(),
                buffer.slice(0, 1000).unwrap().into(),
                memory.slice(50_000, 700).unwrap().into(),
            ];
            let ranges = [(9000, 1500), (20, 500)];
            let batch = session.batch().read_list(&file, &ranges, spans.clone());
            let batch = send(batch.read(&file, 1, memory.slice(0, 3).unwrap()));
            assert_eq!(batch.wait(), [Ok(2000), Ok(3)]);
            let read = [&content[9000..10_500], &content[20..520]].concat();
            let mut middle = vec![0; 1000];
            buffer.read(0, &mut middle);
            assert_eq!(bytes.read(0, 3), content[1..4]);
            assert_eq!(bytes.read(100, 300), read[..300]);
            assert_eq!(middle, read[300..1300]);
            assert_eq!(bytes.read(50_000, 700), read[1300..]);
            let ranges = [(400_000, 1), (500_000, 1999)];
            let batch = send(session.batch().write_list(&file, &ranges, spans));
            let mut outcome = None;
            while outcome.is_none() {
                client.process_events(None);
                outcome = batch.outcome(0);
            }
            assert_eq!((outcome, batch.left()), (Some(Ok(2000)), 0));
            assert_eq!(world.content()[500_000..501_999], read[1..]);
        }
    });
}

#[test]
fn cancelled_transfers_hold_the_memory_until_they_end() {
    over_a_device(4, |world| {
        let content = pattern(LENGTH, 1);
        let Setup { bytes, memory, file, session, client } = world.setup(&content);
        session.listen().unwrap();
        let group = client.group();
        world.hold();
        let piece = |number: usize| memory.slice(number * 1000, 1000).unwrap();
        let ids: Vec<_> = (0..2)
            .map(|n| session.submit_read(&file, 0, piece(n), group, n as u64).unwrap())
            .collect();
        let batch = session.batch().read(&file, 0, piece(2)).read(&file, 500, piece(3));
        let batch = batch.submit().unwrap();
        drop(file.read_async(0, piece(4)));
        assert!(client.cancel(ids[1]));
        assert!(batch.cancel(1));
        drop(memory);
        assert_eq!(client.poll(group), 0);
        assert_eq!(world.registrations(), [1, 0], "it is in use");
        world.network.heal(SERVER);
        assert_eq!(client.wait(group, 2, None), 2);
        let mut ends = [client.next(group).unwrap(), client.next(group).unwrap()];
        ends.sort_by_key(|end| end.context);
        assert_eq!(ends[0].result.as_ref().unwrap().length, 1000);
        assert_eq!(ends[1].result, Err(ClientError::Cancelled));
        assert_eq!(batch.wait(), [Ok(1000), Err(ClientError::Cancelled)]);
        assert_eq!(bytes.read(0, 1000), content[..1000]);
        assert_eq!(bytes.read(2000, 1000), content[..1000]);
        // The transfer of the dropped future has ended when a later one has.
        session.ping().unwrap();
        while world.registrations() != [0, 0] {
            client.process_events(Some(Duration::ZERO));
        }
        drop(file);
    });
}

/// The result of a transfer or a request, usually a number of bytes.
type End = Result<u32, ClientError>;
type Ends = Vec<End>;

/// Reads, writes and both kinds of batches in flight, with device memory and a buffer.
struct UnderWay<'s> {
    setup: &'s Setup,
    buffer: Buffer,
    batches: [Batched; 2],
    group: Group,
}

impl<'s> UnderWay<'s> {
    fn start(world: &World, setup: &'s Setup) -> Self {
        let Setup { memory, file, session, client, .. } = setup;
        // The back-control channel exists already.
        session.listen().unwrap();
        world.hold();
        let (group, buffer) = (client.group(), client.allocate(4000).unwrap());
        let piece = |number: usize| memory.slice(number * 1000, 1000).unwrap();
        session.submit_read(file, 0, piece(0), group, 0).unwrap();
        session.submit_write(file, 100_000, piece(500), Stability::Unstable, group, 1).unwrap();
        session.submit_read(file, 0, buffer.slice(0, 1000).unwrap(), group, 2).unwrap();
        let batch = |number: usize| {
            let batch =
                session.batch().read(file, 2000, buffer.slice(1000 * number, 1000).unwrap());
            let batch = batch.read_list(file, &[(4000, 1000)], [piece(number)]);
            batch.write(file, 100_000 + 1000 * number as u64, piece(500 + number))
        };
        let batches = [batch(1).start().unwrap(), batch(2).submit().unwrap()];
        client.poll(group);
        Self { setup, buffer, batches, group }
    }

    /// Returns the results of the transfers, and of the requests in both batches.
    fn end(self) -> (Ends, [Ends; 2]) {
        let client = &self.setup.client;
        let batches = self.batches.map(Batched::wait);
        assert_eq!(client.wait(self.group, 3, None), 3);
        let mut ends: Vec<_> = std::iter::from_fn(|| client.next(self.group)).collect();
        ends.sort_by_key(|end| end.context);
        let mut bytes = vec![0; 1000];
        self.buffer.read(0, &mut bytes);
        assert_eq!(bytes, pattern(LENGTH, 1)[..1000]);
        (ends.into_iter().map(|end| end.result.map(|done| done.length)).collect(), batches)
    }
}

#[test]
fn what_is_under_way_goes_on_over_the_device_that_the_session_comes_back_by() {
    for (seed, device) in (0..6).flat_map(|seed| [(seed, DEVICE), (seed, OTHER)]) {
        over_a_device(seed, |world| {
            let content = pattern(LENGTH, 1);
            let setup = world.setup(&content);
            let written = setup.bytes.fill(2);
            let under_way = UnderWay::start(world, &setup);
            world.go_on_with(Some(device));
            let (ends, batches) = under_way.end();
            assert_eq!(ends, vec![Ok(1000); 3]);
            assert_eq!(batches, [vec![Ok(1000); 3], vec![Ok(1000); 3]]);
            let bytes = &setup.bytes;
            assert_eq!(bytes.read(0, 1000), content[..1000]);
            assert_eq!(bytes.read(1000, 2000), content[4000..5000].repeat(2));
            assert!(bytes.read(3000, LENGTH - 3000) == written[3000..]);
            setup.file.commit().unwrap();
            assert_eq!(world.content()[100_000..103_000], written[500_000..503_000]);
            let known = if device == DEVICE { [1, 0] } else { [1, 1] };
            assert_eq!(world.registrations(), known);
        });
    }
}

#[test]
fn without_a_device_what_is_under_way_ends_and_says_why() {
    for seed in 0..6 {
        over_a_device(seed, |world| {
            let content = pattern(LENGTH, 1);
            let setup = world.setup(&content);
            setup.bytes.fill(2);
            let under_way = UnderWay::start(world, &setup);
            world.go_on_with(None);
            let (ends, batches) = under_way.end();
            // Transfers of the buffer continue.
            let is_lost = |end: &End| end.as_ref().is_err_and(is_out_of_reach);
            assert!(is_lost(&ends[0]) && is_lost(&ends[1]), "{ends:?}");
            assert_eq!(ends[2], Ok(1000));
            for ends in batches {
                assert_eq!(ends[0], Ok(1000));
                assert!(is_lost(&ends[1]) && is_lost(&ends[2]), "{ends:?}");
            }
            let Setup { bytes, memory, file, session, .. } = &setup;
            let slice = memory.slice(0, 10).unwrap();
            let refused = file.read_into(0, slice.clone()).unwrap_err();
            assert!(is_out_of_reach(&refused), "{refused}");
            let refused = bytes.register(session).unwrap_err();
            assert!(is_out_of_reach(&refused), "{refused}");
            session.ping().unwrap();
            // With a device it works as before.
            world.network.set_device(CLIENT, Some(OTHER));
            session.ping().unwrap();
            file.read_into(7, slice).unwrap();
            assert_eq!(bytes.read(0, 10), content[7..17]);
        });
    }
}

/// A device has its own names for a buffer. A request that is kept for repetition must have the
/// name that is valid when it is sent.
#[test]
fn requests_that_name_buffers_go_on_over_whatever_the_session_comes_back_by() {
    let ways = [Some(DEVICE), Some(OTHER), None];
    for (seed, device) in (0..6).flat_map(|seed| ways.map(|device| (seed, device))) {
        over_a_device(seed, |world| {
            let content = pattern(LENGTH, 1);
            let Setup { memory, file, session, client, .. } = world.setup(&content);
            drop(memory);
            let log = session.open("/log", &OpenOptions::write()).unwrap();
            let buffer = client.allocate(5 * PIECE).unwrap();
            let piece = |number: usize| buffer.slice(number * PIECE, PIECE).unwrap();
            let mine = pattern(5 * PIECE, 2);
            buffer.write(0, &mine);
            let read = |number| {
                let chain = session.chain().open("/file", &OpenOptions::read());
                chain.read_into(7, piece(number)).close()
            };
            let write = |name: &str, number| {
                let chain = session.chain().open(name, &OpenOptions::write());
                chain.write_from(0, piece(number)).commit().close()
            };
            // One of each is sent, and one is built before the loss and sent after it.
            let late = [read(1), write("/late", 3)];
            world.hold();
            let sent = [read(0).run_async(), write("/sent", 2).run_async()];
            let append = Request::AppendDirect(AppendDirect {
                file: log.handle(),
                state: log.state(),
                stability: Stability::DataSync,
                length: PIECE as u32,
                hint: CacheHint::default(),
                checksum: Checksum::NONE,
                buffer: piece(4).direct(),
            });
            let append = session.start(&append).unwrap();
            client.process_events(Some(Duration::ZERO));
            world.go_on_with(device);
            for chain in sent {
                block_on(&client, chain).unwrap();
            }
            let (status, _) = block_on(&client, append).unwrap().read().unwrap();
            assert_eq!(status, Status::Ok);
            for chain in late {
                chain.run().unwrap();
            }
            let mut bytes = vec![0; 2 * PIECE];
            buffer.read(0, &mut bytes);
            assert!(bytes == content[7..7 + PIECE].repeat(2));
            for (name, number) in [("sent", 2), ("late", 3), ("log", 4)] {
                let stored = world.directory.path().join("export").join(name);
                assert!(
                    std::fs::read(stored).unwrap() == mine[number * PIECE..][..PIECE],
                    "{name}, by {device:?}, seed {seed}"
                );
            }
            drop(file);
        });
    }
}

/// The reply to one request frees a credit for another, and the connection breaks after it. Both
/// are noticed together: the second request is posted to a connection that has ended.
#[test]
fn a_request_that_meets_the_end_of_its_connection_is_told_why_that_ended() {
    for seed in 0..6 {
        over_a_device(seed, |world| {
            let options = options().credits(1);
            let (client, session) = world.connect(&options);
            session.ping().unwrap();
            let losses = Rc::new(RefCell::new(Vec::new()));
            let told = losses.clone();
            session.on_event(move |event| {
                if let SessionEvent::Lost { reason } = event {
                    told.borrow_mut().push(reason.clone());
                }
            });
            // The first message from here on is the first request, the second its reply.
            world.network.inject(Fault::BreakAfter, 1);
            let calls = [(); 2].map(|()| session.start(&Request::Null(Empty)).unwrap());
            for call in calls {
                let (status, _) = block_on(&client, call).unwrap().read().unwrap();
                assert_eq!(status, Status::Ok);
            }
            assert_eq!(*losses.borrow(), ["transport failed: connection lost"], "seed {seed}");
        });
    }
}

#[test]
fn device_memory_goes_with_its_descriptor_and_its_slices() {
    over_a_device(5, |world| {
        let Setup { bytes, memory, file, session, client } = world.setup(&pattern(9000, 1));
        let (other, slice) = (bytes.register(&session).unwrap(), memory.slice(8, 8).unwrap());
        assert_eq!(world.registrations(), [2, 0]);
        drop((other, memory));
        assert_eq!(world.registrations(), [1, 0], "a slice of it is there");
        file.read_into(0, slice).unwrap();
        assert_eq!(world.registrations(), [0, 0]);
        // The memory is unknown to another client.
        let memory = bytes.register(&session).unwrap();
        let (_stranger, theirs) = world.connect(&options());
        let file = theirs.open("/file", &OpenOptions::read()).unwrap();
        let refused = file.read_into(0, memory.slice(0, 8).unwrap());
        assert!(matches!(refused, Err(ClientError::Foreign { .. })), "{refused:?}");
        drop(client);
    });
}

#[test]
fn a_session_with_checksums_refuses_device_memory() {
    over_a_device(6, |world| {
        let Setup { bytes, memory, client, .. } = world.setup(&pattern(9000, 1));
        let options = options().checksums(true);
        let session = client.connect_to(&Address::sim(SERVER), &options).unwrap();
        let file = session.open("/file", &OpenOptions::write()).unwrap();
        let slice = || memory.slice(0, 8).unwrap();
        let batch = session.batch().write(&file, 0, slice()).run().unwrap();
        let refused = [
            bytes.register(&session).map(drop).unwrap_err(),
            file.read_into(0, slice()).map(drop).unwrap_err(),
            file.write_from(0, slice()).map(drop).unwrap_err(),
            batch.into_iter().next().unwrap().map(drop).unwrap_err(),
        ];
        for error in refused {
            assert!(matches!(error, ClientError::OutOfReach { .. }), "{error}");
            assert!(error.to_string().contains("checksums"), "{error}");
        }
        assert_eq!(world.content(), pattern(9000, 1));
    });
}

#[test]
fn what_a_device_does_not_take_is_refused_with_its_name() {
    over_a_device(7, |world| {
        let (_client, session) = world.connect(&options());
        let no_dmabuf = std::fs::File::open("/dev/null").unwrap();
        let refused = session.register_dmabuf(&no_dmabuf, 0, 4096).unwrap_err();
        let text = refused.to_string();
        assert!(matches!(refused, ClientError::OutOfReach { .. }), "{text}");
        assert!(text.contains("sim5") && text.contains("Client::allocate"), "{text}");
    });
}

/// On real transports, and on a real device in the virtual machine: none accepts `/dev/null`.
#[test]
fn other_transports_say_that_they_have_no_device_for_it() {
    over_each(|fixture: &Fixture, transport| {
        let (client, session) = fixture.connect(transport);
        let bytes = Bytes::new();
        let refused = bytes.register(&session).unwrap_err();
        let text = refused.to_string();
        match transport {
            Transport::Shm | Transport::Tcp => assert!(is_out_of_reach(&refused), "{text}"),
            // A memory file is not a dmabuf.
            Transport::Verbs => {
                assert!(matches!(refused, ClientError::OutOfReach { .. }), "{text}");
                assert!(text.contains("mlx5") && text.contains("Client::allocate"), "{text}");
            }
        }
        assert!(text.contains(&session.address().to_string()), "{text}");
        assert_eq!(std::io::Error::from(refused).kind(), std::io::ErrorKind::Unsupported);
        // The session still works.
        let file = session.open("/file", &OpenOptions::write()).unwrap();
        let buffer = client.allocate(8).unwrap();
        file.write_from(0, buffer.slice(0, 8).unwrap()).unwrap();
    });
}
