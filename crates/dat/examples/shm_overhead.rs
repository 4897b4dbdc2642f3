//! Measures the cost of the provider's own code: client and server alternate in one thread, so
//! nothing waits for another core. With blocks of 64 bytes, the copy costs almost nothing.
//!
//! `cargo run --release -p dafs-dat --example shm_overhead [operations in a turn]`

use std::time::Instant;

use dafs_dat::*;
use dafs_memory::{Memory, Pages};

const OPERATIONS: u64 = 2_000_000;

fn main() {
    let depth: u64 = std::env::args().nth(1).map_or(16, |a| a.parse().unwrap());
    let path = std::env::temp_dir().join(format!("dat-overhead-{}", std::process::id()));
    let mut server = Interface::new(InterfaceConfig::default()).unwrap();
    server.listen(&Address::Shm(path.clone())).unwrap();
    let mut client = Interface::new(InterfaceConfig::default()).unwrap();
    let config = EndpointConfig::default();
    let there = client.connect(&Address::Shm(path), Domain(0), &config, b"").unwrap();
    let here = loop {
        server.poll();
        if let Some(Event::ConnectionRequest { pending, .. }) = server.next_event() {
            break server.accept(pending, Domain(0), &config, b"");
        }
    };
    while !matches!(client.next_event(), Some(Event::Established { .. })) {
        client.poll();
    }
    let arena = Memory::anonymous(1 << 20, Pages::Small).unwrap();
    let source = server.register(&arena, Domain(0), Rights::LOCAL).unwrap();
    let inbox = server.register(&arena, Domain(0), Rights::LOCAL).unwrap();
    let shared = Memory::shared(1 << 20, Pages::Small).unwrap();
    let target = client.register(&shared, Domain(0), Rights::REMOTE).unwrap();
    let outbox = client.register(&arena, Domain(0), Rights::LOCAL).unwrap();
    for slot in 0..depth {
        server.post_receive(here, slot, &[inbox.local(slot * 256, 256)]).unwrap();
        client.post_receive(there, slot, &[outbox.local(65_536 + slot * 64, 64)]).unwrap();
    }
    server.poll();
    while server.next_event().is_some() {}
    let silent = SendOptions { signal: Signal::OnError, invalidate: None };
    let start = Instant::now();
    for _ in 0..OPERATIONS / depth {
        for _ in 0..depth {
            client.post_send(there, 0, &[Gather::Bytes(&[7; 160])], silent).unwrap();
        }
        client.flush();
        server.poll();
        while let Some(event) = server.next_event() {
            let Event::Completion(done) = event else { continue };
            let mut message = [0; 160];
            arena.read(done.cookie as usize * 256, &mut message);
            let local = [source.local(0, 64)];
            let remote = target.remote(0, 64);
            server.post_rdma_write(here, 1, &local, remote, Signal::OnError).unwrap();
            server.post_receive(here, done.cookie, &[inbox.local(done.cookie * 256, 256)]).unwrap();
            server.post_send(here, 2, &[Gather::Bytes(&[8; 56])], silent).unwrap();
        }
        server.flush();
        client.poll();
        while let Some(event) = client.next_event() {
            let Event::Completion(done) = event else { continue };
            let mut message = [0; 56];
            arena.read(65_536 + done.cookie as usize * 64, &mut message);
            let slot = outbox.local(65_536 + done.cookie * 64, 64);
            client.post_receive(there, done.cookie, &[slot]).unwrap();
        }
    }
    let each = start.elapsed().as_nanos() as f64 / OPERATIONS as f64;
    println!("{each:.1} ns for both sides of one operation, {depth} in a turn");
}
