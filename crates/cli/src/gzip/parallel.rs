//! Compresses one member with several threads.
//!
//! Invariant: blocks are compressed independently, each with the end of the previous block as its
//! dictionary, and are written in the order of the input. Each compressed block except the final
//! one ends at a byte boundary, so that the blocks together form one stream. The number of blocks
//! in flight is limited.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use crc32fast::Hasher;
use dafs_bench::thread_cpu;
use flate2::{Compress, Compression, FlushCompress, Status};

use super::encode::Header;

/// A block to compress.
struct Job {
    block: Arc<Vec<u8>>,
    before: Arc<Vec<u8>>,
    is_last: bool,
    answer: SyncSender<Result<Packed>>,
}

/// A compressed block.
struct Packed {
    bytes: Vec<u8>,
    checksum: Hasher,
    /// The processor time spent compressing this block.
    spent: Duration,
}

/// Reads blocks, distributes them to workers and writes the results in the order of the input.
/// Returns the number of bytes read, and the processor time of the compression.
pub(super) fn in_blocks(
    reader: &mut dyn Read,
    writer: &mut dyn Write,
    header: &Header,
    level: u32,
    workers: usize,
) -> Result<(u64, Duration)> {
    let (jobs, taken) = sync_channel::<Job>(workers * AHEAD);
    let taken = Mutex::new(taken);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| work(&taken, level));
        }
        // Dropping the sender ends the workers, however this closure ends.
        let jobs = jobs;
        writer.write_all(&header.bytes(level))?;
        let mut state = Order::default();
        let mut before = Arc::new(Vec::new());
        let mut block = read_block(reader)?;
        loop {
            let next = if block.len() == BLOCK_BYTES { read_block(reader)? } else { Vec::new() };
            let is_last = next.is_empty();
            let shared = Arc::new(block);
            let (answer, receiver) = sync_channel(1);
            let job = Job { block: Arc::clone(&shared), before, is_last, answer };
            jobs.send(job).ok().context("the compressing threads have ended")?;
            state.length += shared.len() as u64;
            state.pending.push_back(receiver);
            while state.pending.len() >= workers * AHEAD {
                state.write_first(writer)?;
            }
            if is_last {
                break;
            }
            (before, block) = (shared, next);
        }
        while !state.pending.is_empty() {
            state.write_first(writer)?;
        }
        writer.write_all(&state.checksum.finalize().to_le_bytes())?;
        // The format stores the length modulo 2^32.
        writer.write_all(&(state.length as u32).to_le_bytes())?;
        Ok((state.length, state.spent))
    })
}

/// The state of the writer, which writes the results in the order of the input.
#[derive(Default)]
struct Order {
    pending: VecDeque<Receiver<Result<Packed>>>,
    checksum: Hasher,
    length: u64,
    spent: Duration,
}

impl Order {
    fn write_first(&mut self, writer: &mut dyn Write) -> Result<()> {
        let Some(first) = self.pending.pop_front() else { return Ok(()) };
        let packed = first.recv().context("a compressing thread has ended")??;
        self.checksum.combine(&packed.checksum);
        self.spent += packed.spent;
        Ok(writer.write_all(&packed.bytes)?)
    }
}

/// Runs in each worker thread.
fn work(jobs: &Mutex<Receiver<Job>>, level: u32) {
    let mut compress = Compress::new(Compression::new(level), false);
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { block, before, is_last, answer }) = job else { return };
        let packed = pack(&mut compress, &block, &before, is_last);
        // The receiver may be gone after an error; then the result is not needed.
        let _ = answer.send(packed);
    }
}

fn pack(compress: &mut Compress, block: &[u8], before: &[u8], is_last: bool) -> Result<Packed> {
    let begun = thread_cpu();
    compress.reset();
    let dictionary = &before[before.len().saturating_sub(DICTIONARY_BYTES)..];
    if !dictionary.is_empty() {
        compress.set_dictionary(dictionary)?;
    }
    let flush = if is_last { FlushCompress::Finish } else { FlushCompress::Sync };
    let mut bytes = Vec::with_capacity(block.len() + block.len() / 8 + SLACK_BYTES);
    loop {
        let consumed = usize::try_from(compress.total_in())?;
        let status = compress.compress_vec(&block[consumed..], &mut bytes, flush)?;
        let has_room = bytes.len() < bytes.capacity();
        match status {
            Status::StreamEnd => break,
            _ if has_room && !is_last && compress.total_in() == block.len() as u64 => break,
            _ => bytes.reserve(SLACK_BYTES),
        }
    }
    let mut checksum = Hasher::new();
    checksum.update(block);
    Ok(Packed { bytes, checksum, spent: thread_cpu() - begun })
}

/// Reads a whole block, or what is left of the input.
fn read_block(reader: &mut dyn Read) -> Result<Vec<u8>> {
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    reader.take(BLOCK_BYTES as u64).read_to_end(&mut block)?;
    Ok(block)
}

/// The size of a block in bytes, large enough that the cuts between blocks cost little.
const BLOCK_BYTES: usize = 128 << 10;
/// The greatest distance in bytes of a deflate back-reference.
const DICTIONARY_BYTES: usize = 32 << 10;
/// The extra space for incompressible data and for the end marker, in bytes.
const SLACK_BYTES: usize = 1024;
/// The maximum number of blocks in flight per worker.
const AHEAD: usize = 3;
