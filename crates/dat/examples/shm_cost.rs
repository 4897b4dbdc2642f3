//! Measures the cost of one request over shared memory: a 192-byte send, answered by an RDMA write
//! of the block from a 256 MiB arena and a 56-byte send. Compares it with `pread` and `memcpy` of
//! the same blocks in the same run.
//!
//! `cargo run --release -p dafs-dat --example shm_cost [block bytes]`

use std::time::{Duration, Instant};

use dafs_dat::*;
use dafs_memory::{Memory, Pages};

const ARENA: usize = 256 << 20;
const DEPTH_MAX: usize = 32;

fn main() {
    let block: usize = std::env::args().nth(1).map_or(4096, |a| a.parse().unwrap());
    let seconds = Duration::from_millis(300);
    let path = std::env::temp_dir().join(format!("dat-cost-{}", std::process::id()));
    let mut listening = Interface::new(InterfaceConfig::default()).unwrap();
    listening.listen(&Address::Shm(path.clone())).unwrap();
    std::thread::Builder::new()
        .name("server".into())
        .spawn(move || serve(listening, block))
        .unwrap();
    baseline(block, seconds);
    for (depth, threshold, spin) in
        [(1, 1, true), (8, 1, true), (32, 1, true), (32, 32, true), (32, 32, false)]
    {
        client(&path, block, depth, threshold, spin, seconds);
    }
}

fn offset(state: &mut u64, block: usize) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((*state >> 33) as usize % (ARENA / block)) * block
}

fn report(name: &str, count: u64, start: Instant, cpu: Duration) {
    let wall = start.elapsed().as_nanos() as f64 / count as f64;
    let cpu = cpu.as_nanos() as f64 / count as f64;
    println!("{name:30} {wall:9.0} ns/op {cpu:9.0} ns client CPU/op");
}

fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn baseline(block: usize, span: Duration) {
    let mut file = tempfile();
    std::io::Write::write_all(&mut file, &vec![1; ARENA]).unwrap();
    let mut buffer = vec![0; block];
    let (mut state, mut count, start, cpu) = (1, 0, Instant::now(), thread_cpu());
    while start.elapsed() < span {
        for _ in 0..64 {
            let at = offset(&mut state, block) as u64;
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut buffer, at).unwrap();
        }
        count += 64;
    }
    report("pread", count, start, thread_cpu() - cpu);
    let arena = Memory::anonymous(ARENA, Pages::Huge).unwrap();
    arena.write(0, &vec![1; ARENA]);
    let (mut count, start, cpu) = (0, Instant::now(), thread_cpu());
    while start.elapsed() < span {
        for _ in 0..64 {
            arena.read(offset(&mut state, block), &mut buffer);
        }
        count += 64;
    }
    report("memcpy", count, start, thread_cpu() - cpu);
}

fn tempfile() -> std::fs::File {
    let path = std::env::temp_dir().join(format!("dat-cost-file-{}", std::process::id()));
    let options =
        std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
    std::fs::remove_file(&path).unwrap();
    options.unwrap()
}

fn serve(mut interface: Interface, block: usize) {
    let arena = Memory::anonymous(ARENA, Pages::Huge).unwrap();
    arena.write(0, &vec![1; ARENA]);
    let arena = interface.register(&arena, Domain(0), Rights::LOCAL).unwrap();
    let inbox = Memory::anonymous(DEPTH_MAX * 256, Pages::Small).unwrap();
    let slots = interface.register(&inbox, Domain(0), Rights::LOCAL).unwrap();
    loop {
        interface.wait(1, None);
        while let Some(event) = interface.next_event() {
            match event {
                Event::ConnectionRequest { pending, .. } => {
                    let endpoint =
                        interface.accept(pending, Domain(0), &EndpointConfig::default(), b"");
                    for slot in 0..DEPTH_MAX as u64 {
                        let segment = slots.local(slot * 256, 256);
                        interface.post_receive(endpoint, slot, &[segment]).unwrap();
                    }
                }
                Event::Completion(done) if done.operation == Operation::Receive => {
                    if done.status != CompletionStatus::Success {
                        continue;
                    }
                    let mut request = [0; 192];
                    inbox.read(done.cookie as usize * 256, &mut request);
                    let word = |i: usize| {
                        u64::from_le_bytes(request[i * 8..i * 8 + 8].try_into().unwrap())
                    };
                    let remote = RemoteSegment {
                        stag: Stag(word(1) as u32),
                        address: word(2),
                        length: block as u32,
                    };
                    let source = arena.local(word(0), block as u32);
                    let silent = Signal::OnError;
                    let _ = interface.post_rdma_write(done.endpoint, 0, &[source], remote, silent);
                    let segment = slots.local(done.cookie * 256, 256);
                    let _ = interface.post_receive(done.endpoint, done.cookie, &[segment]);
                    let mut answer = [0; 56];
                    answer[..8].copy_from_slice(&word(3).to_le_bytes());
                    let options = SendOptions { signal: silent, invalidate: None };
                    let answer = [Gather::Bytes(&answer)];
                    // If the client is gone, its Broken event follows.
                    let _ = interface.post_send(done.endpoint, 0, &answer, options);
                }
                Event::Broken { endpoint, .. } => interface.release(endpoint),
                _ => {}
            }
        }
    }
}

fn client(
    path: &std::path::Path,
    block: usize,
    depth: usize,
    threshold: usize,
    spin: bool,
    span: Duration,
) {
    let spin_max = if spin { WaitPolicy::default().spin_max } else { Duration::ZERO };
    let config = InterfaceConfig { wait: WaitPolicy { spin_max }, ..Default::default() };
    let mut interface = Interface::new(config).unwrap();
    let buffers = Memory::shared(depth * block, Pages::Huge).unwrap();
    buffers.zero(0, depth * block);
    let buffers = interface.register(&buffers, Domain(0), Rights::REMOTE).unwrap();
    let inbox = Memory::anonymous(DEPTH_MAX * 64, Pages::Small).unwrap();
    let slots = interface.register(&inbox, Domain(0), Rights::LOCAL).unwrap();
    let address = Address::Shm(path.to_path_buf());
    let endpoint =
        interface.connect(&address, Domain(0), &EndpointConfig::default(), b"hi").unwrap();
    for slot in 0..depth as u64 {
        interface.post_receive(endpoint, slot, &[slots.local(slot * 64, 64)]).unwrap();
    }
    interface.wait(1, None);
    assert!(matches!(interface.next_event(), Some(Event::Established { .. })));
    let mut state = 7;
    let request = |interface: &mut Interface, state: &mut u64, slot: u64| {
        let mut message = [0; 192];
        message[..8].copy_from_slice(&(offset(state, block) as u64).to_le_bytes());
        message[8..16].copy_from_slice(&u64::from(buffers.stag.0).to_le_bytes());
        let target = buffers.address + slot * block as u64;
        message[16..24].copy_from_slice(&target.to_le_bytes());
        message[24..32].copy_from_slice(&slot.to_le_bytes());
        let options = SendOptions { signal: Signal::OnError, invalidate: None };
        interface.post_send(endpoint, 0, &[Gather::Bytes(&message)], options).unwrap();
    };
    for slot in 0..depth as u64 {
        request(&mut interface, &mut state, slot);
    }
    let (mut count, start, cpu) = (0, Instant::now(), thread_cpu());
    while start.elapsed() < span {
        interface.wait(threshold, None);
        while let Some(event) = interface.next_event() {
            let Event::Completion(done) = event else { panic!("{event:?}") };
            let mut answer = [0; 56];
            inbox.read(done.cookie as usize * 64, &mut answer);
            interface
                .post_receive(endpoint, done.cookie, &[slots.local(done.cookie * 64, 64)])
                .unwrap();
            let slot = u64::from_le_bytes(answer[..8].try_into().unwrap());
            request(&mut interface, &mut state, slot);
            count += 1;
        }
    }
    report(&format!("shm depth {depth} threshold {threshold}"), count, start, thread_cpu() - cpu);
}
