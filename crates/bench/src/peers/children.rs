//! Competitors that are separate processes, like the server: a raw echo, a raw stream, and a
//! process that only keeps a core busy.
//!
//! Invariant: a child ends when the value that started it is dropped, and when this process ends
//! for any reason, because either closes the child's standard input.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::bare::blocks;
use super::{BLOCK_BYTES_MAX, Kind, Label, Peer, Tally, Times, repeat};

/// Does the work of a child process: `echo`, `stream`, `blocks` or `busy`. Returns when standard
/// input ends.
///
/// # Errors
/// If the work is unknown or a socket cannot be opened.
pub fn serve(work: &str) -> Result<()> {
    let wait = || {
        let mut rest = Vec::new();
        // Both the end of the input and an error end the work.
        let _ = std::io::stdin().lock().read_to_end(&mut rest);
    };
    let session: fn(TcpStream) -> std::io::Result<()> = match work {
        "echo" => echo,
        "stream" => stream,
        "blocks" => blocks,
        "busy" => {
            let busy = std::thread::spawn(|| {
                loop {
                    std::hint::black_box(0);
                }
            });
            println!("ready");
            wait();
            drop(busy);
            return Ok(());
        }
        other => bail!("unknown work {other:?} for a peer; use echo, stream, blocks or busy"),
    };
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            // The thread ends when the client closes the connection.
            std::thread::spawn(move || session(connection));
        }
    });
    wait();
    Ok(())
}

/// Serves requests of 192 bytes. The first eight bytes of a request contain the length of the
/// reply.
fn echo(mut connection: TcpStream) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let answer = vec![1; BLOCK_BYTES_MAX];
    let mut request = [0; REQUEST_BYTES];
    loop {
        connection.read_exact(&mut request)?;
        let mut length = [0; 8];
        length.copy_from_slice(&request[..8]);
        let length = usize::try_from(u64::from_le_bytes(length)).unwrap_or(0);
        connection.write_all(&answer[..length.min(answer.len())])?;
    }
}

/// Sends bytes without end.
fn stream(mut connection: TcpStream) -> std::io::Result<()> {
    let block = vec![1; BLOCK_BYTES_MAX];
    loop {
        connection.write_all(&block)?;
    }
}

/// A child process and the first line it printed.
pub(super) struct Process {
    child: Child,
    line: String,
}

impl Process {
    pub(super) fn start(program: &Path, work: &str) -> Result<Self> {
        let mut child = Command::new(program)
            .args(["bench-peer", work])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {} as {work}", program.display()))?;
        let stdout = child.stdout.take().context("the child has no standard output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let process = Self { child, line: line.trim().to_owned() };
        if process.line.is_empty() {
            bail!("{} as {work} ended before it was ready", program.display());
        }
        Ok(process)
    }

    /// Returns the first line that the process printed: the address at which it listens.
    pub(super) fn line(&self) -> &str {
        &self.line
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.stdin.take();
        // Ignore an error: nothing else can be done.
        let _ = self.child.wait();
    }
}

/// A process that keeps a core busy until it is dropped.
pub(crate) struct Busy(
    #[expect(dead_code, reason = "the process ends when this is dropped")] Process,
);

impl Busy {
    /// Starts the process. `program` is the path of this program, which implements `bench-peer`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn start(program: &Path) -> Result<Self> {
        Process::start(program, "busy").map(Self)
    }
}

/// A competitor that sends a request of 192 bytes over loopback and waits for a reply of one block.
pub(crate) struct Echo {
    stream: TcpStream,
    buffer: Vec<u8>,
    _process: Process,
}

impl Echo {
    /// Starts the child process.
    ///
    /// # Errors
    /// If the child cannot be started.
    pub(crate) fn new(program: &Path) -> Result<Self> {
        let process = Process::start(program, "echo")?;
        let stream = TcpStream::connect(process.line())?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; BLOCK_BYTES_MAX], _process: process })
    }
}

impl Peer for Echo {
    fn label(&self) -> Label {
        Label::plain("tcp echo", Kind::Echo)
    }

    fn run(&mut self, block: usize, span: Duration, times: Option<&mut Times>) -> Result<Tally> {
        let Self { stream, buffer, .. } = self;
        let mut request = [0; REQUEST_BYTES];
        request[..8].copy_from_slice(&(block as u64).to_le_bytes());
        repeat(span, times, || {
            stream.write_all(&request)?;
            stream.read_exact(&mut buffer[..block])?;
            Ok(u64::from(buffer[0]))
        })
    }
}

/// A competitor that receives bytes from a socket without sending requests.
pub(crate) struct Stream {
    stream: TcpStream,
    buffer: Vec<u8>,
    _process: Process,
}

impl Stream {
    /// Starts the child process.
    ///
    /// # Errors
    /// If the child cannot be started.
    pub(crate) fn new(program: &Path) -> Result<Self> {
        let process = Process::start(program, "stream")?;
        let stream = TcpStream::connect(process.line())?;
        Ok(Self { stream, buffer: vec![0; BLOCK_BYTES_MAX], _process: process })
    }
}

impl Peer for Stream {
    fn label(&self) -> Label {
        Label::plain("tcp stream", Kind::Read)
    }

    fn serves(&self, block: usize) -> bool {
        block >= 64 << 10
    }

    fn run(&mut self, block: usize, span: Duration, times: Option<&mut Times>) -> Result<Tally> {
        let Self { stream, buffer, .. } = self;
        repeat(span, times, || {
            stream.read_exact(&mut buffer[..block])?;
            Ok(u64::from(buffer[0]))
        })
    }
}

/// The length in bytes of a DAFS read request with its header.
pub(super) const REQUEST_BYTES: usize = 192;
