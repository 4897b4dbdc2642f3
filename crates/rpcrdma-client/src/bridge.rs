//! A bridge for clients that only know TCP: each record becomes a call over RDMA, and each reply a
//! record.
//!
//! Invariant: each connection of a client has its own connection to the server.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use dafs_dat::Address;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::connection::{Connection, Received};

/// A listener whose connections lead to a server over RDMA, until it is dropped.
#[derive(Debug)]
pub struct Bridge {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// One client of a bridge.
struct Passage {
    stream: TcpStream,
    server: Connection,
    /// Bytes of the client that are not sent yet.
    received: Vec<u8>,
    /// The fragments of the current record.
    record: Vec<u8>,
}

impl Bridge {
    /// Starts a bridge to a server, at a port of 127.0.0.1 that the system chooses.
    ///
    /// # Errors
    /// If the listener or the thread cannot be made.
    pub fn start(server: Address) -> io::Result<Self> {
        Self::start_with(server, 1)
    }

    /// Does the same, and offers the memory for replies in chunks of so many segments.
    ///
    /// # Errors
    /// If the listener or the thread cannot be made.
    pub fn start_with(server: Address, segments: usize) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let run = move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Acquire) {
                    return;
                }
                let (Ok(stream), server) = (stream, server.clone()) else { continue };
                std::thread::spawn(move || {
                    // The client notices that its connection ends.
                    let _ = pass(stream, &server, segments);
                });
            }
        };
        let thread = std::thread::Builder::new().name("rdma-bridge".into()).spawn(run)?;
        Ok(Self { address, is_over, thread: Some(thread) })
    }

    /// Returns the address at which clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // The listener notices the end with the next connection.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Passes on everything between a client and the server, until one of them ends.
fn pass(stream: TcpStream, server: &Address, segments: usize) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut server = Connection::open(server, PATIENCE).map_err(io::Error::other)?;
    server.set_segments(segments);
    let (received, record) = (Vec::new(), Vec::new());
    let mut passage = Passage { stream, server, received, record };
    loop {
        while let Some(what) = passage.server.poll() {
            if !passage.send_to_client(what)? {
                return Ok(());
            }
        }
        passage.send_to_server()?;
        if !passage.wait()? {
            return Ok(());
        }
    }
}

impl Passage {
    /// Passes on what has arrived from the server. Returns false if the connection has ended.
    fn send_to_client(&mut self, what: Received) -> io::Result<bool> {
        match what {
            Received::Reply(message) | Received::Callback(message) => {
                let mark = LAST | u32::try_from(message.len()).unwrap_or(0);
                self.stream.write_all(&[&mark.to_be_bytes()[..], &message].concat())?;
                Ok(true)
            }
            Received::Failed(xid, failure) => {
                Err(io::Error::other(format!("the call {xid} has failed: {failure:?}")))
            }
            Received::Ended(_) => Ok(false),
        }
    }

    /// Passes on complete records, as long as the server allows calls.
    fn send_to_server(&mut self) -> io::Result<()> {
        let mut taken = 0;
        while let Some((mark, rest)) = self.received[taken..].split_first_chunk()
            && self.server.has_credit()
        {
            let mark = u32::from_be_bytes(*mark);
            let length = (mark & !LAST) as usize;
            if length > RECORD_BYTES_MAX {
                return Err(io::Error::other("a record of the client is too long"));
            }
            let Some(fragment) = rest.get(..length) else { break };
            self.record.extend_from_slice(fragment);
            taken += 4 + length;
            if mark & LAST == 0 {
                continue;
            }
            let record = std::mem::take(&mut self.record);
            let sent = match record.get(4..8) {
                Some([0, 0, 0, 1]) => self.server.reply_back(&record),
                _ => self.server.call(&record),
            };
            sent.map_err(io::Error::other)?;
        }
        self.received.drain(..taken);
        Ok(())
    }

    /// Waits until something has arrived. Returns false if the client has ended.
    fn wait(&mut self) -> io::Result<bool> {
        if !self.server.arm() {
            return Ok(true);
        }
        let is_reading = self.received.len() < RECEIVED_BYTES_MAX && self.server.has_credit();
        let wanted = if is_reading { PollFlags::IN } else { PollFlags::empty() };
        let server = self.server.as_fd();
        let mut polled =
            [PollFd::new(&self.stream, wanted), PollFd::from_borrowed_fd(server, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec { tv_sec: 1, tv_nsec: 0 }))?;
        if polled[0].revents().is_empty() {
            return Ok(true);
        }
        let mut buffer = vec![0; 256 << 10];
        match (&self.stream).read(&mut buffer) {
            Ok(0) => Ok(false),
            Ok(length) => {
                self.received.extend_from_slice(&buffer[..length]);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }
}

/// The bit of a mark that is set if the fragment is the last of its record.
const LAST: u32 = 0x8000_0000;
/// The maximum length of a record in bytes.
const RECORD_BYTES_MAX: usize = 4 << 20;
/// The maximum number of bytes of a client that wait for a credit.
const RECEIVED_BYTES_MAX: usize = 8 << 20;
/// The time for a connection to the server.
const PATIENCE: Duration = Duration::from_secs(20);
