//! Streams of files on a real server, over every transport.

use std::cell::RefCell;
use std::error::Error as _;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

use dafs_client::{Client, ClientConfig, ClientError, Recovery, SessionOptions};
use dafs_dat::Address;
use dafs_extmem::{
    Budget, DafsEngine, Engine, Error, Flow, Format, MergeOptions, RecordLayout, Stream,
    TypedReader, TypedWriter, Watch, sort,
};
use dafs_server::{LedgerError, Server, ServerConfig, ServerStats, Stopper};
use dafs_store::local::{LocalConfig, LocalStore, Squash};
use dafs_types::Credentials;

/// A server with a directory of its own, in a thread.
struct Served {
    place: tempfile::TempDir,
    address: Address,
    running: Running,
}

type Running = Rc<RefCell<Option<(Stopper, JoinHandle<Result<ServerStats, LedgerError>>)>>>;

impl Served {
    fn start(is_shm: bool) -> Self {
        let place = tempfile::tempdir().unwrap();
        let (export, state) = (place.path().join("export"), place.path().join("state"));
        std::fs::create_dir(&export).unwrap();
        let listen = match is_shm {
            true => Address::Shm(place.path().join("socket")),
            false => Address::Tcp("127.0.0.1:0".parse().unwrap()),
        };
        let mut config = ServerConfig { listen: vec![listen], ..ServerConfig::default() };
        config.cache.arena_bytes = 64 << 20;
        config.cache.dirty_bytes_max = 16 << 20;
        config.access.squash = Some(Squash::Nobody);
        config.sessions.authentication.anonymous = Some(
            Credentials::plain(
                rustix::process::getuid().as_raw(),
                rustix::process::getgid().as_raw(),
            )
            .unwrap(),
        );
        let store = LocalStore::new(&LocalConfig::new(export, state)).unwrap();
        let server = Server::new(&config, Arc::new(store)).unwrap();
        let (address, stopper) = (server.addresses()[0].clone(), server.stopper());
        let thread = std::thread::spawn(move || server.run());
        Self { place, address, running: Rc::new(RefCell::new(Some((stopper, thread)))) }
    }

    /// Returns an engine whose session ends with its connection.
    fn engine(&self) -> DafsEngine {
        let client = Client::new(ClientConfig::default()).unwrap();
        let options = SessionOptions::default().recovery(Recovery::Off);
        DafsEngine::new(client.connect_to(&self.address, &options).unwrap(), Watch::default())
    }
}

fn stop(running: &Running) {
    if let Some((stopper, thread)) = running.borrow_mut().take() {
        stopper.stop();
        thread.join().unwrap().unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        stop(&self.running);
    }
}

fn numbers(engine: &DafsEngine, path: &str, count: u64) {
    let output = engine.create(path.as_ref()).unwrap();
    let mut writer = TypedWriter::new(output.file(), Flow { block_bytes: 64 << 10, depth: 3 });
    for number in 0..count {
        writer.put(&[number.wrapping_mul(0x9e37_79b9_7f4a_7c15), number]).unwrap();
    }
    assert_eq!(writer.finish().unwrap(), count);
    output.publish(true).unwrap();
}

fn options(watch: Watch) -> (Format, MergeOptions) {
    let layout = RecordLayout::new(16, "0:8:u".parse().unwrap()).unwrap();
    let flow = Flow { block_bytes: 64 << 10, depth: 2 };
    let budget = Budget::of(3 << 20);
    (Format::Records(layout), MergeOptions { flow, budget, is_unique: false, watch })
}

#[test]
fn values_are_sorted_in_runs_on_the_server() {
    for is_shm in [true, false] {
        let served = Served::start(is_shm);
        let engine = served.engine();
        numbers(&engine, "/numbers", 1 << 20);
        let stream = Stream::whole(engine.open("/numbers".as_ref()).unwrap()).unwrap();
        let output = engine.create("/sorted".as_ref()).unwrap();
        let (format, options) = options(Watch::default());
        let temporary = || engine.temporary("/".as_ref());
        let done = sort(&[stream], &format, &temporary, output.file(), &options).unwrap();
        assert!(done.runs > 4 && done.records == 1 << 20, "{done:?}");
        assert!(!served.place.path().join("export/sorted").exists());
        output.publish(false).unwrap();
        let names = served.place.path().join("export").read_dir().unwrap().count();
        assert_eq!(names, 2, "nothing else has a name");
        let sorted = Stream::whole(engine.open("/sorted".as_ref()).unwrap()).unwrap();
        let reader = TypedReader::<[u64; 2]>::new(&sorted, options.flow, &options.watch).unwrap();
        let (mut last, mut sum) = (0, 0);
        for value in reader {
            let [key, number] = value.unwrap();
            assert!(key >= last);
            (last, sum) = (key, sum + number);
        }
        assert_eq!(sum, (1 << 19) * ((1 << 20) - 1));
    }
}

#[test]
fn the_end_of_the_server_is_told_with_the_file() {
    for is_shm in [true, false] {
        let served = Served::start(is_shm);
        let engine = served.engine();
        numbers(&engine, "/numbers", 1 << 18);
        let running = served.running.clone();
        let (format, options) = options(Watch::default().telling(move |_| stop(&running)));
        let stream = Stream::whole(engine.open("/numbers".as_ref()).unwrap()).unwrap();
        let output = engine.create("/sorted".as_ref()).unwrap();
        let temporary = || engine.temporary("/".as_ref());
        let error = sort(&[stream], &format, &temporary, output.file(), &options).unwrap_err();
        assert_eq!(error.to_string(), "reading /numbers");
        let cause = error.source().and_then(|cause| cause.downcast_ref::<ClientError>());
        assert!(matches!(cause, Some(ClientError::SessionEnded { .. })), "{error:?}");
        assert!(matches!(error, Error::Engine { .. }));
    }
}
