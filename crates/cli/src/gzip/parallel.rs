//! Compression of one member by several threads.
//!
//! Invariant: blocks are compressed by themselves, each with the end of the one before as its
//! dictionary, and come out in their order; each but the last ends at a byte's border, so that
//! what they become is one stream. Only so many are under way.

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

/// A block to be compressed.
struct Job {
    block: Arc<Vec<u8>>,
    before: Arc<Vec<u8>>,
    is_last: bool,
    answer: SyncSender<Result<Packed>>,
}

/// A block that was compressed.
struct Packed {
    bytes: Vec<u8>,
    checksum: Hasher,
    /// Processor time of it.
    spent: Duration,
}

/// Reads, hands out, and writes in order. Returns the bytes read, and the processor time of
/// compressing them.
pub fn in_blocks(
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
        // Dropped at the end, however it comes: then the workers end.
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
        // Modulo 2^32, as the format wants it.
        writer.write_all(&(state.length as u32).to_le_bytes())?;
        Ok((state.length, state.spent))
    })
}

/// What comes out, in order.
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

/// A worker's life.
fn work(jobs: &Mutex<Receiver<Job>>, level: u32) {
    let mut compress = Compress::new(Compression::new(level), false);
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { block, before, is_last, answer }) = job else { return };
        let packed = pack(&mut compress, &block, &before, is_last);
        // Whoever asked may have failed meanwhile.
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

/// A whole block, or what is left.
fn read_block(reader: &mut dyn Read) -> Result<Vec<u8>> {
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    reader.take(BLOCK_BYTES as u64).read_to_end(&mut block)?;
    Ok(block)
}

/// Bytes compressed by themselves: large enough that the cuts cost little.
const BLOCK_BYTES: usize = 128 << 10;
/// How far deflate looks back.
const DICTIONARY_BYTES: usize = 32 << 10;
/// Room for what little cannot be compressed, and for the end.
const SLACK_BYTES: usize = 1024;
/// Blocks under way for each worker.
const AHEAD: usize = 3;
