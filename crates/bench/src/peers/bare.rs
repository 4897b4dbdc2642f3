//! A lower bound for DAFS over TCP: the same exchange of messages over bare sockets. Requests have
//! the same length as DAFS requests. A reply consists of a header, a block from memory, and a
//! trailing message. All requests of a turn are sent with one system call, and all replies with
//! another. The client sleeps until all replies have arrived. The blocks need no further copy.
//!
//! Invariant: client and server interpret only the offset and the length of each block. So the
//! measured cost is the minimum for any protocol over these sockets.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, recvmsg};

use super::children::{Process, REQUEST_BYTES};
use super::{
    BLOCK_BYTES_MAX, DEPTH_MAX, Kind, Label, Offsets, Peer, Tally, Times, repeat_together,
};

/// Runs in the child process. Each request begins with the offset and the length of a block.
pub(super) fn blocks(mut connection: TcpStream) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let arena = vec![1; ARENA_BYTES];
    let (header, trailer) = ([0; HEADER_BYTES], [0; TRAILER_BYTES]);
    let mut requests = [0; REQUEST_BYTES * DEPTH_MAX];
    let mut filled = 0;
    loop {
        let more = connection.read(&mut requests[filled..])?;
        if more == 0 {
            return Ok(());
        }
        filled += more;
        let whole = filled / REQUEST_BYTES * REQUEST_BYTES;
        let mut answers = Vec::with_capacity(3 * DEPTH_MAX);
        for request in requests[..whole].chunks_exact(REQUEST_BYTES) {
            let (offset, length) = (word(request, 0), word(request, 1));
            let block = arena.get(offset..).and_then(|rest| rest.get(..length)).unwrap_or(&[]);
            answers.extend([&header[..], block, &trailer].map(IoSlice::new));
        }
        write_all(&mut connection, &mut answers)?;
        requests.copy_within(whole..filled, 0);
        filled -= whole;
    }
}

fn write_all(connection: &mut TcpStream, mut pieces: &mut [IoSlice<'_>]) -> std::io::Result<()> {
    while !pieces.is_empty() {
        let written = connection.write_vectored(pieces)?;
        IoSlice::advance_slices(&mut pieces, written);
    }
    Ok(())
}

fn word(request: &[u8], index: usize) -> usize {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&request[index * 8..][..8]);
    usize::try_from(u64::from_le_bytes(bytes)).unwrap_or(0)
}

/// A competitor that reads blocks concurrently over bare sockets.
pub(crate) struct Bare {
    stream: TcpStream,
    requests: Vec<u8>,
    /// Headers and trailers, whose contents are ignored.
    frames: Vec<[u8; HEADER_BYTES + TRAILER_BYTES]>,
    blocks: Vec<u8>,
    offsets: Offsets,
    _process: Process,
}

impl Bare {
    /// Starts the child process.
    ///
    /// # Errors
    /// If the child cannot be started.
    pub(crate) fn new(program: &Path, file_bytes: u64) -> Result<Self> {
        let process = Process::start(program, "blocks")?;
        let stream = TcpStream::connect(process.line())?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            requests: vec![0; REQUEST_BYTES * DEPTH_MAX],
            frames: vec![[0; HEADER_BYTES + TRAILER_BYTES]; DEPTH_MAX],
            blocks: vec![0; BLOCK_BYTES_MAX * DEPTH_MAX],
            offsets: Offsets::new(file_bytes.min(ARENA_BYTES as u64)),
            _process: process,
        })
    }

    fn turn(&mut self, block: usize) -> Result<u64> {
        for request in self.requests.chunks_exact_mut(REQUEST_BYTES) {
            request[..8].copy_from_slice(&self.offsets.next(block).to_le_bytes());
            request[8..16].copy_from_slice(&(block as u64).to_le_bytes());
        }
        self.stream.write_all(&self.requests)?;
        let mut pieces = Vec::with_capacity(3 * DEPTH_MAX);
        for (frame, target) in self.frames.iter_mut().zip(self.blocks.chunks_exact_mut(block)) {
            let (header, trailer) = frame.split_at_mut(HEADER_BYTES);
            pieces.extend([header, target, trailer].map(IoSliceMut::new));
        }
        let mut pieces = &mut pieces[..];
        while !pieces.is_empty() {
            let mut control = RecvAncillaryBuffer::default();
            let got = recvmsg(&self.stream, pieces, &mut control, RecvFlags::WAITALL)?;
            anyhow::ensure!(got.bytes > 0, "the child process for bare sockets ended");
            IoSliceMut::advance_slices(&mut pieces, got.bytes);
        }
        Ok(self.blocks.iter().step_by(block).take(DEPTH_MAX).map(|&byte| u64::from(byte)).sum())
    }
}

impl Peer for Bare {
    fn label(&self) -> Label {
        Label { depth: DEPTH_MAX, sleeps: true, ..Label::plain("tcp bare", Kind::Read) }
    }

    fn run(&mut self, block: usize, span: Duration, times: Option<&mut Times>) -> Result<Tally> {
        repeat_together(DEPTH_MAX, span, times, || self.turn(block))
    }
}

/// The size in bytes of the memory that blocks are read from: that of the file in the other
/// measurements.
const ARENA_BYTES: usize = 256 << 20;
/// The number of bytes that precede the payload in an RDMA write of one segment.
const HEADER_BYTES: usize = 16;
/// The number of bytes after the payload: the RDMA write's checksum field, and the DAFS reply,
/// which is a separate send.
const TRAILER_BYTES: usize = 84;
