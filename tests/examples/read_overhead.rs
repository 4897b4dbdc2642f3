//! What the product's own code costs for one read: client and server turn by turn in one
//! thread over shared memory, so that nothing waits for another core. Small blocks make
//! the copy vanish.
//!
//! `cargo run --release -p dafs-tests --example read_overhead [in flight] [block] [reads]`;
//! under `valgrind --tool=callgrind` it shows where the instructions go.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use dafs_client::{Client, ClientConfig, OpenOptions, SessionOptions, Stability};
use dafs_dat::{Address, Interface, InterfaceConfig};
use dafs_server::{ServerConfig, SteppedServer};
use dafs_store::memory::{MemoryLimits, MemoryStore};
use dafs_types::{Moment, Random};

fn main() {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse::<usize>().unwrap());
    let depth = arguments.next().unwrap_or(32);
    let block = arguments.next().unwrap_or(64);
    let reads = arguments.next().unwrap_or(2_000_000) / depth * depth;
    let directory = tempfile::tempdir().unwrap();
    let address = Address::Shm(directory.path().join("dafs.sock"));
    let config = ServerConfig { listen: vec![address.clone()], ..ServerConfig::default() };
    let limits = MemoryLimits { bytes_max: 64 << 20, object_count_max: 10 };
    let store = Arc::new(MemoryStore::new(limits));
    let interface = Interface::serving(InterfaceConfig::default()).unwrap();
    let (entropy, order) = (Box::new(Random::new(1)), Box::new(Random::new(2)));
    let mut server = SteppedServer::new(&config, store, vec![interface], entropy, order).unwrap();
    let begun = Instant::now();
    let mut step = move || server.step(0, Moment(begun.elapsed().as_nanos() as u64));

    let client = Client::new(ClientConfig::default()).unwrap();
    let options = SessionOptions::default();
    let mut turn = || {
        step();
        client.process_events(Some(Duration::ZERO));
    };
    let connecting = client.connect_async(&address, &options).unwrap();
    let session = drive(connecting, &mut turn).unwrap();
    let creating = OpenOptions::write();
    let opening = session.open_in_async(session.root(), "file", "/file", &creating);
    let file = drive(opening, &mut turn).unwrap();
    let buffer = client.allocate(depth * block.max(4096)).unwrap();
    let group = client.group();
    let file_bytes = 1 << 20;
    for offset in (0..file_bytes).step_by(4096) {
        let slice = buffer.slice(0, 4096).unwrap();
        session.submit_write(&file, offset, slice, Stability::Unstable, group, 0).unwrap();
        while client.next(group).is_none() {
            step();
            client.poll(group);
        }
    }
    let start = Instant::now();
    let mut offset = 0;
    for _ in 0..reads / depth {
        for slot in 0..depth {
            offset = (offset + 12_288) % (file_bytes - block as u64);
            let slice = buffer.slice(slot * block, block).unwrap();
            session.submit_read(&file, offset, slice, group, slot as u64).unwrap();
        }
        client.poll(group);
        step();
        client.poll(group);
        let mut done = 0;
        while done < depth {
            match client.next(group) {
                Some(completion) => {
                    assert_eq!(completion.result.unwrap().length as usize, block);
                    done += 1;
                }
                // Credits were fewer than reads.
                None => {
                    step();
                    client.poll(group);
                }
            }
        }
    }
    let each = start.elapsed().as_nanos() as f64 / reads as f64;
    println!("{each:.0} ns for both sides of a read of {block} bytes, {depth} in flight");
    // To leave in order they would wait for a server that nobody steps any more.
    std::mem::forget(file);
    std::mem::forget(session);
}

/// Polls a future to its end, with a turn of both sides in between.
fn drive<F: Future>(future: F, mut turn: impl FnMut()) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        turn();
    }
}
