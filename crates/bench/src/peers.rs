//! Who is measured: each peer does one operation, or several in flight, on a block.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::Result;
use dafs_client::{
    Buffer, Client, ClientConfig, File, Group, OpenOptions, Session, SessionOptions, Stability,
};
use dafs_dat::{Address, WaitPolicy};
use dafs_memory::{Memory, Pages};

/// One way to move blocks.
pub trait Peer {
    /// What it is called.
    fn name(&self) -> &str;
    /// Operations in flight.
    fn depth(&self) -> usize;
    /// Moves at least `depth` blocks; returns how many, and a sum of what was read.
    fn run(&mut self, block: usize) -> Result<(u64, u64)>;
}

/// Offsets of blocks, spread over the file.
pub struct Offsets {
    state: u64,
    file_bytes: u64,
}

impl Offsets {
    pub fn new(file_bytes: u64) -> Self {
        Self { state: 7, file_bytes }
    }

    fn next(&mut self, block: usize) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        (self.state >> 33) % (self.file_bytes / block as u64) * block as u64
    }
}

/// Local file access.
pub struct Local {
    name: &'static str,
    file: std::fs::File,
    memory: Memory,
    offsets: Offsets,
    writes: bool,
}

impl Local {
    pub fn new(file_bytes: u64, writes: bool) -> Result<Self> {
        let file = tempfile::tempfile()?;
        let memory = Memory::anonymous(BUFFER_BYTES, Pages::Huge)?;
        memory.write(0, &vec![1; BUFFER_BYTES]);
        for offset in (0..file_bytes).step_by(BUFFER_BYTES) {
            let length = BUFFER_BYTES.min(usize::try_from(file_bytes - offset)?);
            memory.write_file(0, length, file.as_fd(), offset)?;
        }
        let name = if writes { "pwrite" } else { "pread" };
        Ok(Self { name, file, memory, offsets: Offsets::new(file_bytes), writes })
    }
}

impl Peer for Local {
    fn name(&self) -> &str {
        self.name
    }
    fn depth(&self) -> usize {
        1
    }
    fn run(&mut self, block: usize) -> Result<(u64, u64)> {
        let mut sum = 0;
        for _ in 0..OPERATIONS {
            let offset = self.offsets.next(block);
            if self.writes {
                self.memory.write_file(0, block, self.file.as_fd(), offset)?;
            } else {
                self.memory.read_file(0, block, self.file.as_fd(), offset)?;
            }
            sum += 1;
        }
        Ok((OPERATIONS, sum))
    }
}

/// Copies from a mapping as large as the file.
pub struct Copies {
    source: Memory,
    target: Memory,
    offsets: Offsets,
}

impl Copies {
    pub fn new(file_bytes: u64) -> Result<Self> {
        let source = Memory::anonymous(usize::try_from(file_bytes)?, Pages::Huge)?;
        source.write(0, &vec![1; source.length()]);
        let target = Memory::anonymous(BUFFER_BYTES, Pages::Huge)?;
        target.write(0, &vec![1; BUFFER_BYTES]);
        Ok(Self { source, target, offsets: Offsets::new(file_bytes) })
    }
}

impl Peer for Copies {
    fn name(&self) -> &str {
        "memcpy"
    }
    fn depth(&self) -> usize {
        1
    }
    fn run(&mut self, block: usize) -> Result<(u64, u64)> {
        for _ in 0..OPERATIONS {
            let from = usize::try_from(self.offsets.next(block))?;
            Memory::copy(&self.source, from, &self.target, 0, block);
        }
        Ok((OPERATIONS, OPERATIONS))
    }
}

/// A blocking echo over loopback: a request of 192 octets, an answer of a block.
pub struct Echo {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Echo {
    pub fn new() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        stream.set_nodelay(true)?;
        let (mut server, _) = listener.accept()?;
        server.set_nodelay(true)?;
        std::thread::spawn(move || {
            let answer = vec![1; BUFFER_BYTES];
            let mut request = [0; 192];
            while server.read_exact(&mut request).is_ok() {
                let mut length = [0; 8];
                length.copy_from_slice(&request[..8]);
                let length = usize::try_from(u64::from_le_bytes(length)).unwrap_or(0);
                if server.write_all(&answer[..length.min(answer.len())]).is_err() {
                    return;
                }
            }
        });
        Ok(Self { stream, buffer: vec![0; BUFFER_BYTES] })
    }
}

impl Peer for Echo {
    fn name(&self) -> &str {
        "tcp echo"
    }
    fn depth(&self) -> usize {
        1
    }
    fn run(&mut self, block: usize) -> Result<(u64, u64)> {
        let mut request = [0; 192];
        request[..8].copy_from_slice(&(block as u64).to_le_bytes());
        self.stream.write_all(&request)?;
        self.stream.read_exact(&mut self.buffer[..block])?;
        Ok((1, u64::from(self.buffer[0])))
    }
}

/// A file on a server.
pub struct Remote {
    name: String,
    client: Client,
    _session: Session,
    file: File,
    buffer: Buffer,
    group: Group,
    offsets: Offsets,
    depth: usize,
    writes: bool,
    /// Completions to sleep for before going on.
    threshold: usize,
    in_flight: usize,
    free: Vec<usize>,
}

impl Remote {
    pub fn new(
        address: &Address,
        path: &str,
        file_bytes: u64,
        depth: usize,
        writes: bool,
        sleeps: bool,
    ) -> Result<Self> {
        let spin_max = if sleeps { Duration::ZERO } else { WaitPolicy::default().spin_max };
        let client = Client::new(ClientConfig { wait: WaitPolicy { spin_max } })?;
        let session = client.connect_to(address, &SessionOptions::default())?;
        let file = session.open(path, &OpenOptions::write())?;
        let buffer = client.allocate(BUFFER_BYTES * depth)?;
        buffer.write(0, &vec![1; BUFFER_BYTES * depth]);
        let transport = match address {
            Address::Shm(_) => "shm",
            Address::Tcp(_) => "tcp",
            Address::Sim(_) => "sim",
        };
        let kind = if writes { "write" } else { "read" };
        let how = if sleeps { ", sleeping" } else { "" };
        Ok(Self {
            name: format!("{transport} {kind} x{depth}{how}"),
            group: client.group(),
            client,
            _session: session,
            file,
            buffer,
            offsets: Offsets::new(file_bytes),
            depth,
            writes,
            threshold: if sleeps { depth } else { 1 },
            in_flight: 0,
            free: (0..depth).collect(),
        })
    }

    /// Fills the server's file and its cache.
    pub fn fill(&mut self, file_bytes: u64) -> Result<()> {
        let block = BUFFER_BYTES as u64;
        for offset in (0..file_bytes).step_by(BUFFER_BYTES) {
            let length = usize::try_from(block.min(file_bytes - offset))?;
            self.file.write_from(offset, self.buffer.slice(0, length)?)?;
        }
        self.file.commit()?;
        for offset in (0..file_bytes).step_by(BUFFER_BYTES) {
            let length = usize::try_from(block.min(file_bytes - offset))?;
            self.file.read_into(offset, self.buffer.slice(0, length)?)?;
        }
        Ok(())
    }

    fn submit(&mut self, block: usize, slot: usize) -> Result<()> {
        let offset = self.offsets.next(block);
        let slice = self.buffer.slice(slot * block, block)?;
        let session = self.file.session();
        let context = slot as u64;
        if self.writes {
            let stability = Stability::Unstable;
            session.submit_write(&self.file, offset, slice, stability, self.group, context)?;
        } else {
            session.submit_read(&self.file, offset, slice, self.group, context)?;
        }
        self.in_flight += 1;
        Ok(())
    }

    fn collect(&mut self, count: usize) -> Result<(u64, u64)> {
        self.client.wait(self.group, count, None);
        let (mut done, mut sum) = (0, 0);
        while let Some(completion) = self.client.next(self.group) {
            sum += u64::from(completion.result?.length > 0);
            self.free.push(usize::try_from(completion.context)?);
            self.in_flight -= 1;
            done += 1;
        }
        Ok((done, sum))
    }
}

impl Peer for Remote {
    fn name(&self) -> &str {
        &self.name
    }
    fn depth(&self) -> usize {
        self.depth
    }
    fn run(&mut self, block: usize) -> Result<(u64, u64)> {
        let (mut count, mut sum) = (0, 0);
        let start = Instant::now();
        // A slice of time, so that the pipeline is full for nearly all of it.
        while count < self.depth as u64 || start.elapsed() < SLICE {
            while let Some(slot) = self.free.pop() {
                self.submit(block, slot)?;
            }
            let (done, part) = self.collect(self.threshold)?;
            count += done;
            sum += part;
        }
        while self.in_flight > 0 {
            let (done, part) = self.collect(self.in_flight)?;
            count += done;
            sum += part;
        }
        Ok((count, sum))
    }
}

/// The largest block.
const BUFFER_BYTES: usize = 1 << 20;
/// Local operations between two looks at the clock.
const OPERATIONS: u64 = 16;
const SLICE: Duration = Duration::from_millis(5);
