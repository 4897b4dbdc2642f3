//! Measures the cost of one request over TCP: a 192-byte send, answered by an RDMA write of a block
//! and a 56-byte send. Compares it with bare sockets that move the same bytes in the same run, and
//! with TLS. Client and server are two threads. Each figure is a median of rounds that alternate
//! with those of its limit.
//!
//! `cargo run --release -p dafs-dat --example tcp_cost [milliseconds a measurement]`
//!
//! System calls: `strace -f -c` around it, or `perf stat -e raw_syscalls:sys_enter`.

#[path = "../tests/certificates/mod.rs"]
#[allow(dead_code, reason = "shared with tests that need more of it")]
mod certificates;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use certificates::Authority;
use dafs_dat::*;
use dafs_memory::{Memory, Pages};

const ARENA: usize = 64 << 20;
const DEPTH_MAX: usize = 32;
const BLOCK: usize = 4096;
const LARGE: usize = 1 << 20;
const REQUEST: usize = 192;
const ANSWER: usize = 56;
const RECEIVED: (Operation, CompletionStatus) = (Operation::Receive, CompletionStatus::Success);
const ROUNDS: usize = 7;

/// One way of sending requests.
#[derive(Clone, Copy)]
struct Shape {
    block: usize,
    depth: usize,
    threshold: usize,
    crc: bool,
    hints: bool,
    tls: bool,
}

/// The TLS configurations of both sides.
static TLS: LazyLock<(TlsServer, TlsTarget)> = LazyLock::new(|| {
    let authority = Authority::new();
    (authority.server(false), authority.target())
});

/// Time and client CPU per operation, in nanoseconds.
#[derive(Clone, Copy)]
struct Cost {
    wall: f64,
    cpu: f64,
}

fn main() {
    let milliseconds = std::env::args().nth(1).map_or(200, |a| a.parse().expect("a number"));
    let span = Duration::from_millis(milliseconds);
    let (echo, stream, iwarp) = (spawn_echo(), spawn_stream(), spawn_iwarp());
    let shape = Shape { block: BLOCK, depth: 1, threshold: 1, crc: false, hints: true, tls: false };
    let deep = Shape { depth: 32, threshold: 32, ..shape };
    let large = Shape { block: LARGE, depth: 4, threshold: 1, ..shape };
    let shapes = [
        ("4 KiB, 1 in flight", shape),
        ("the same by TLS", Shape { tls: true, ..shape }),
        ("4 KiB, 8 in flight", Shape { depth: 8, ..shape }),
        ("4 KiB, 32 in flight, wait for 1", Shape { depth: 32, ..shape }),
        ("4 KiB, 32 in flight, wait for 32", deep),
        ("the same without hints", Shape { hints: false, ..deep }),
        ("the same with CRC", Shape { crc: true, ..deep }),
        ("the same by TLS", Shape { tls: true, ..deep }),
        ("1 MiB, 4 in flight", large),
        ("the same without hints", Shape { hints: false, ..large }),
        ("the same with CRC", Shape { crc: true, ..large }),
        ("the same by TLS", Shape { tls: true, ..large }),
    ];
    let mut raw = [Vec::new(), Vec::new()];
    let mut costs = vec![Vec::new(); shapes.len()];
    for _ in 0..ROUNDS {
        raw[0].push(raw_echo(echo, span));
        raw[1].push(raw_stream(stream, span));
        for (cost, (_, shape)) in costs.iter_mut().zip(&shapes) {
            cost.push(client(iwarp, *shape, span));
        }
    }
    let [echo, stream] = raw.map(|costs| median(&costs));
    report("bare echo", echo, BLOCK, None);
    report("bare stream of 1 MiB", stream, LARGE, None);
    for ((name, shape), costs) in shapes.iter().zip(&costs) {
        let limit = if shape.block == BLOCK { echo } else { stream };
        report(name, median(costs), shape.block, Some(limit));
    }
}

fn median(costs: &[Cost]) -> Cost {
    let middle = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Cost {
        wall: middle(costs.iter().map(|c| c.wall).collect()),
        cpu: middle(costs.iter().map(|c| c.cpu).collect()),
    }
}

fn report(name: &str, cost: Cost, block: usize, limit: Option<Cost>) {
    let rate = 1e9 / cost.wall;
    let speed = block as f64 / cost.wall;
    print!("{name:34} {:9.0} ns {rate:9.0}/s {speed:5.2} GB/s", cost.wall);
    print!(" {:8.0} ns client CPU", cost.cpu);
    match limit {
        Some(limit) => println!("  time is {:.2} of the bare one", cost.wall / limit.wall),
        None => println!(),
    }
}

fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn measured(count: u64, start: Instant, cpu: Duration) -> Cost {
    let wall = start.elapsed().as_nanos() as f64 / count as f64;
    Cost { wall, cpu: (thread_cpu() - cpu).as_nanos() as f64 / count as f64 }
}

/// Returns the offset of the next block. The sequence is the same for every way.
fn offset(state: &mut u64, block: usize) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((*state >> 33) as usize % (ARENA / block)) * block
}

// ---- bare sockets ---------------------------------------------------------------

fn spawn_raw(serve: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let socket = socket.expect("a connection");
            socket.set_nodelay(true).expect("no delay");
            serve(socket);
        }
    });
    address
}

fn spawn_echo() -> SocketAddr {
    spawn_raw(|mut socket| {
        let arena = vec![1; ARENA];
        let (mut request, mut state) = ([0; REQUEST], 1);
        while socket.read_exact(&mut request).is_ok() {
            let at = offset(&mut state, BLOCK).min(ARENA - BLOCK - ANSWER);
            if socket.write_all(&arena[at..at + BLOCK + ANSWER]).is_err() {
                return;
            }
        }
    })
}

fn raw_echo(address: SocketAddr, span: Duration) -> Cost {
    let mut socket = TcpStream::connect(address).expect("a connection");
    socket.set_nodelay(true).expect("no delay");
    let (request, mut answer) = ([0; REQUEST], [0; BLOCK + ANSWER]);
    let mut ask = |count: &mut u64| {
        socket.write_all(&request).expect("a server");
        socket.read_exact(&mut answer).expect("an answer");
        *count += 1;
    };
    // The server allocates its memory at the first request.
    ask(&mut 0);
    let (mut count, start, cpu) = (0, Instant::now(), thread_cpu());
    while start.elapsed() < span {
        ask(&mut count);
    }
    measured(count, start, cpu)
}

fn spawn_stream() -> SocketAddr {
    spawn_raw(|mut socket| {
        let arena = vec![1; ARENA];
        let mut state = 1;
        loop {
            let at = offset(&mut state, LARGE);
            if socket.write_all(&arena[at..at + LARGE]).is_err() {
                return;
            }
        }
    })
}

fn raw_stream(address: SocketAddr, span: Duration) -> Cost {
    let mut socket = TcpStream::connect(address).expect("a connection");
    let mut buffers = vec![0; 4 * LARGE];
    let mut turn = |count: u64| {
        let at = (count as usize % 4) * LARGE;
        socket.read_exact(&mut buffers[at..at + LARGE]).expect("a stream");
    };
    (0..4).for_each(&mut turn);
    let (mut count, start, cpu) = (0, Instant::now(), thread_cpu());
    while start.elapsed() < span {
        turn(count);
        count += 1;
    }
    measured(count, start, cpu)
}

// ---- iWARP ----------------------------------------------------------------------

fn spawn_iwarp() -> SocketAddr {
    let config = InterfaceConfig { tls: Some(TLS.0.clone()), ..InterfaceConfig::default() };
    let mut interface = Interface::new(config).expect("an interface");
    let listener = interface.listen(&Address::Tcp(([127, 0, 0, 1], 0).into())).expect("a listener");
    let Some(Address::Tcp(address)) = interface.listener_address(listener) else {
        unreachable!("a TCP listener has a TCP address")
    };
    std::thread::Builder::new()
        .name("server".into())
        .spawn(move || Server::new(interface).run())
        .expect("a thread");
    address
}

struct Server {
    interface: Interface,
    arena: Region,
    inbox: Memory,
    slots: Region,
}

impl Server {
    fn new(mut interface: Interface) -> Self {
        let arena = Memory::anonymous(ARENA, Pages::Huge).expect("memory");
        arena.write(0, &vec![1; ARENA]);
        let arena = interface.register(&arena, Domain(0), Rights::LOCAL).expect("a slot");
        let inbox = Memory::anonymous(DEPTH_MAX * 256, Pages::Small).expect("memory");
        let slots = interface.register(&inbox, Domain(0), Rights::LOCAL).expect("a slot");
        Self { interface, arena, inbox, slots }
    }

    fn run(mut self) {
        loop {
            self.interface.wait(1, None);
            while let Some(event) = self.interface.next_event() {
                match event {
                    Event::ConnectionRequest { pending, .. } => self.accept(pending),
                    Event::Completion(done) if (done.operation, done.status) == RECEIVED => {
                        self.answer(&done);
                    }
                    Event::Broken { endpoint, .. } => self.interface.release(endpoint),
                    _ => {}
                }
            }
        }
    }

    fn accept(&mut self, pending: PendingId) {
        let config = EndpointConfig::default();
        let endpoint = self.interface.accept(pending, Domain(0), &config, b"");
        for slot in 0..DEPTH_MAX as u64 {
            let segment = self.slots.local(slot * 256, 256);
            // If the client is gone, its Broken event follows.
            let _ = self.interface.post_receive(endpoint, slot, &[segment]);
        }
    }

    fn answer(&mut self, done: &Completion) {
        let mut request = [0; REQUEST];
        self.inbox.read(done.cookie as usize * 256, &mut request);
        let word = |index: usize| {
            u64::from_le_bytes(request[index * 8..index * 8 + 8].try_into().expect("8 bytes"))
        };
        let length = word(4) as u32;
        let remote = RemoteSegment { stag: Stag(word(1) as u32), address: word(2), length };
        let source = self.arena.local(word(0), length);
        let (interface, endpoint, silent) = (&mut self.interface, done.endpoint, Signal::OnError);
        let segment = self.slots.local(done.cookie * 256, 256);
        let mut answer = [0; ANSWER];
        answer[..8].copy_from_slice(&word(3).to_le_bytes());
        let options = SendOptions { signal: silent, invalidate: None };
        // If the client is gone, its Broken event follows.
        let _ = interface.post_rdma_write(endpoint, 0, &[source], remote, silent);
        let _ = interface.post_receive(endpoint, done.cookie, &[segment]);
        let _ = interface.post_send(endpoint, 0, &[Gather::Bytes(&answer)], options);
    }
}

struct Client {
    interface: Interface,
    endpoint: EndpointId,
    buffers: Region,
    inbox: Memory,
    slots: Region,
    shape: Shape,
    state: u64,
}

fn client(address: SocketAddr, shape: Shape, span: Duration) -> Cost {
    let mut client = Client::connect(address, shape);
    for slot in 0..shape.depth as u64 {
        client.ask(slot);
    }
    // Let the connection's TCP window open first.
    let warm = Instant::now();
    while warm.elapsed() < span / 10 {
        client.turn();
    }
    let (mut count, start, cpu) = (0, Instant::now(), thread_cpu());
    while start.elapsed() < span {
        count += client.turn();
    }
    measured(count, start, cpu)
}

impl Client {
    fn connect(address: SocketAddr, shape: Shape) -> Self {
        let mut interface = Interface::new(InterfaceConfig::default()).expect("an interface");
        let bytes = shape.depth * shape.block;
        let buffers = Memory::shared(bytes, Pages::Huge).expect("memory");
        buffers.zero(0, bytes);
        let buffers = interface.register(&buffers, Domain(0), Rights::REMOTE).expect("a slot");
        let inbox = Memory::anonymous(DEPTH_MAX * 64, Pages::Small).expect("memory");
        let slots = interface.register(&inbox, Domain(0), Rights::LOCAL).expect("a slot");
        let tls = shape.tls.then(|| TLS.1.clone());
        let config = EndpointConfig { crc: shape.crc, tls, ..EndpointConfig::default() };
        let endpoint = interface
            .connect(&Address::Tcp(address), Domain(0), &config, b"hi")
            .expect("a connect begun");
        for slot in 0..shape.depth as u64 {
            interface.post_receive(endpoint, slot, &[slots.local(slot * 64, 64)]).expect("room");
        }
        interface.wait(1, None);
        let event = interface.next_event();
        assert!(matches!(event, Some(Event::Established { .. })), "{event:?}");
        Self { interface, endpoint, buffers, inbox, slots, shape, state: 7 }
    }

    fn ask(&mut self, slot: u64) {
        let block = self.shape.block;
        let target = self.buffers.remote(slot * block as u64, block as u32);
        let words = [
            offset(&mut self.state, block) as u64,
            u64::from(target.stag.0),
            target.address,
            slot,
            block as u64,
        ];
        let mut message = [0; REQUEST];
        for (bytes, word) in message.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let options = SendOptions { signal: Signal::OnError, invalidate: None };
        let gather = [Gather::Bytes(&message)];
        self.interface.post_send(self.endpoint, 0, &gather, options).expect("room");
        if self.shape.hints {
            self.interface.expect(self.endpoint, &Forecast::answer(&[target], ANSWER as u32));
        }
    }

    /// Waits for replies and sends new requests. Returns the number of replies.
    fn turn(&mut self) -> u64 {
        self.interface.wait(self.shape.threshold, None);
        let mut count = 0;
        while let Some(event) = self.interface.next_event() {
            let Event::Completion(done) = event else { panic!("{event:?}") };
            let mut answer = [0; ANSWER];
            self.inbox.read(done.cookie as usize * 64, &mut answer);
            let segment = self.slots.local(done.cookie * 64, 64);
            self.interface.post_receive(self.endpoint, done.cookie, &[segment]).expect("room");
            self.ask(u64::from_le_bytes(answer[..8].try_into().expect("8 bytes")));
            count += 1;
        }
        count
    }
}
