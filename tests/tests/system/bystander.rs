//! Sessions that must not be affected: they read while others misbehave, and every byte must be
//! right.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use dafs_client::{Client, ClientConfig, OpenOptions, SessionOptions};
use dafs_dat::Address;
use dafs_server::ServerConfig;

use crate::fixture::{Fixture, HANG, Transport, pattern, transports};

/// Honest sessions, each in a separate thread, one per address.
pub(crate) struct Bystanders {
    stop: Arc<AtomicBool>,
    all: Vec<Bystander>,
}

struct Bystander {
    address: Address,
    rounds: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Bystanders {
    /// Starts the sessions and waits until each has read correctly. The file must contain
    /// [`contents`].
    pub(crate) fn start(addresses: &[Address]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let all = addresses
            .iter()
            .map(|address| {
                let rounds = Arc::new(AtomicU64::new(0));
                let (place, count, ends) = (address.clone(), rounds.clone(), stop.clone());
                let thread = std::thread::spawn(move || read_on(&place, &count, &ends));
                Bystander { address: address.clone(), rounds, thread: Some(thread) }
            })
            .collect();
        let mut bystanders = Self { stop, all };
        bystanders.go_on();
        bystanders
    }

    /// Waits until each session has read correctly several more times.
    pub(crate) fn go_on(&mut self) {
        let marks: Vec<u64> = self.all.iter().map(Bystander::rounds).collect();
        let begun = Instant::now();
        for (bystander, mark) in self.all.iter_mut().zip(marks) {
            while bystander.rounds() < mark + ROUNDS {
                if bystander.thread.as_ref().is_some_and(JoinHandle::is_finished) {
                    bystander.thread.take().unwrap().join().unwrap();
                    unreachable!("a bystander ends only when told to");
                }
                assert!(begun.elapsed() < HANG, "the session on {} stands", bystander.address);
                std::thread::yield_now();
            }
        }
    }
}

impl Bystander {
    fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Acquire)
    }
}

impl Drop for Bystanders {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for bystander in &mut self.all {
            let ended = bystander.thread.take().map(JoinHandle::join);
            if !std::thread::panicking() {
                ended.into_iter().for_each(|ended| ended.unwrap());
            }
        }
    }
}

fn read_on(address: &Address, rounds: &AtomicU64, stop: &AtomicBool) {
    let client = Client::new(ClientConfig::default()).unwrap();
    let session = client.connect_to(address, &SessionOptions::default()).unwrap();
    let file = session.open("/bystander", &OpenOptions::read()).unwrap();
    let contents = contents();
    let mut bytes = vec![0; CHUNK_BYTES];
    let mut at = 0;
    while !stop.load(Ordering::Acquire) {
        at = (at + 4 * CHUNK_BYTES + 1000) % (contents.len() - CHUNK_BYTES);
        bytes.fill(0);
        assert_eq!(file.read_at(&mut bytes, at as u64).unwrap(), CHUNK_BYTES);
        assert!(bytes == contents[at..at + CHUNK_BYTES], "wrong bytes at {at} over {address}");
        rounds.fetch_add(1, Ordering::Release);
        // There may be only two cores, so leave some time to the misbehaving clients.
        std::thread::yield_now();
    }
    session.disconnect().unwrap();
}

/// The contents of the file `bystander`.
pub(crate) fn contents() -> Vec<u8> {
    pattern(512 << 10, 77)
}

/// Runs a case over every transport, each on a new server, with sessions over all transports that
/// must continue during and after it.
pub(crate) fn beside_bystanders(case: impl Fn(&Fixture, Transport)) {
    for transport in transports() {
        eprintln!("over {transport:?}");
        beside_bystanders_of(|_| {}, |fixture| case(fixture, transport));
    }
}

/// Does the same for a case that chooses its transport, with changes to the server's configuration.
pub(crate) fn beside_bystanders_of(
    change: impl FnOnce(&mut ServerConfig),
    case: impl FnOnce(&Fixture),
) {
    let fixture = Fixture::with(change);
    std::fs::write(fixture.local("bystander"), contents()).unwrap();
    let mut bystanders = Bystanders::start(fixture.addresses());
    case(&fixture);
    bystanders.go_on();
}

/// The number of reads that show that a session continues.
const ROUNDS: u64 = 20;
const CHUNK_BYTES: usize = 20_000;
