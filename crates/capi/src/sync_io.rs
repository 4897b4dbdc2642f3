//! Blocking reads and writes.
//!
//! Invariant: a call transfers all requested bytes, unless the file ends or a request fails. In
//! that case the call returns the number of contiguous bytes transferred before, if there are any.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::pin::Pin;
use std::sync::Arc;

use crate::failure::{Failure, Result, counted};
use crate::file::FileObject;
use crate::handles;
use crate::memory::{Piece, Target, targets};
use crate::types::{dap_file, dap_memory};
use dafs_client::{ClientError, File, Transferred};
use dafs_share::Entered;

/// Reads `length` bytes at `offset` into memory that need not be registered.
///
/// Returns the number of bytes read, which is smaller than `length` only at the end of the file or
/// if a later part failed, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_pread(
    file: *mut dap_file,
    buffer: *mut c_void,
    length: usize,
    offset: u64,
) -> i64 {
    let memory = dap_memory { pointer: buffer, length, region: std::ptr::null_mut() };
    // SAFETY: it is one descriptor of memory that the caller guarantees.
    unsafe { transfer(file, &memory, 1, offset, Direction::Read) }
}

/// Writes `length` bytes at `offset` from memory that need not be registered. Until dap_fsync, a
/// server restart may lose the data.
///
/// Returns the number of bytes written, or a negative error number. The number is smaller than
/// `length` only if a later part failed; the next write, dap_fsync or dap_close reports the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_pwrite(
    file: *mut dap_file,
    buffer: *const c_void,
    length: usize,
    offset: u64,
) -> i64 {
    let pointer = buffer.cast_mut();
    let memory = dap_memory { pointer, length, region: std::ptr::null_mut() };
    // SAFETY: it is one descriptor of memory that the caller guarantees and that is only read.
    unsafe { transfer(file, &memory, 1, offset, Direction::Write) }
}

/// Reads from `offset` into `count` pieces of memory, at most 1024, which are filled one after the
/// other.
///
/// Returns the same values as dap_pread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_preadv(
    file: *mut dap_file,
    memory: *const dap_memory,
    count: usize,
    offset: u64,
) -> i64 {
    // SAFETY: the caller guarantees that its pointers are valid.
    unsafe { transfer(file, memory, count, offset, Direction::Read) }
}

/// Writes `count` pieces of memory, at most 1024, one after the other, at `offset`.
///
/// Returns the same values as dap_pwrite.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_pwritev(
    file: *mut dap_file,
    memory: *const dap_memory,
    count: usize,
    offset: u64,
) -> i64 {
    // SAFETY: the caller guarantees that its pointers are valid.
    unsafe { transfer(file, memory, count, offset, Direction::Write) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// Transfers data between a file and memory, and waits until it is transferred.
///
/// # Safety
/// `memory` points to `count` valid descriptors.
unsafe fn transfer(
    file: *mut dap_file,
    memory: *const dap_memory,
    count: usize,
    offset: u64,
    direction: Direction,
) -> i64 {
    counted(|| {
        let file: Arc<FileObject> = handles::get(file)?;
        // SAFETY: the caller guarantees that its pointers are valid.
        let targets = unsafe { targets(file.client(), memory, count, DESCRIPTORS_MAX)? };
        if direction == Direction::Write {
            file.take_failure()?;
        }
        let is_whole = |target: &Target| target.region.is_none();
        let asks_first = file.session.keeps_reads && direction == Direction::Read;
        if (asks_first || file.client().lends) && targets.iter().all(is_whole) {
            return transfer_sequentially(&file, &targets, offset, direction);
        }
        let mut parts = parts(&targets, offset);
        let mut moved = 0;
        while !parts.is_empty() {
            let some: Vec<Part> = parts.drain(..parts.len().min(UNDER_WAY)).collect();
            let wanted: u64 = some.iter().map(|part| part.length as u64).sum();
            let (count, failure) = transfer_concurrently(&file, &targets, &some, direction)?;
            moved += count;
            match failure {
                // Return the bytes transferred before. The next call reports the error.
                Some(failure) if moved == 0 => return Err(failure),
                Some(failure) => {
                    if direction == Direction::Write {
                        file.keep_failure(failure);
                    }
                    return Ok(moved);
                }
                None if count < wanted => return Ok(moved),
                None => {}
            }
        }
        Ok(moved)
    })
}

/// A part of a target, with the offset in the file.
struct Part {
    target: usize,
    start: usize,
    length: usize,
    offset: u64,
}

fn parts(targets: &[Target], offset: u64) -> VecDeque<Part> {
    let (mut parts, mut at) = (VecDeque::new(), offset);
    for (index, target) in targets.iter().enumerate() {
        let mut start = 0;
        while start < target.length {
            let length = (target.length - start).min(PART_BYTES_MAX);
            parts.push_back(Part { target: index, start, length, offset: at });
            start += length;
            at = at.saturating_add(length as u64);
        }
    }
    parts
}

/// Transfers several parts concurrently. Returns the number of contiguous bytes transferred from
/// the first part on, and the first error.
fn transfer_concurrently(
    file: &FileObject,
    targets: &[Target],
    parts: &[Part],
    direction: Direction,
) -> Result<(u64, Option<Failure>)> {
    // SAFETY: the results are numbers and a text, not client objects.
    unsafe {
        file.run(async |file: &File, entered: &Entered<'_>| {
            let piece = |part: &Part| {
                let target = &targets[part.target];
                Ok((part.offset, Piece::of(target, part.start, part.length, entered)?))
            };
            let pieces: Result<Vec<_>> = parts.iter().map(piece).collect();
            Ok(settle(file, &pieces?, direction).await)
        })
    }
}

async fn settle(
    file: &File,
    pieces: &[(u64, Piece)],
    direction: Direction,
) -> (u64, Option<Failure>) {
    // Start all transfers before awaiting the first one. Transfers after a failed one are awaited
    // too, because they use the memory until they end.
    let begun = pieces.iter().map(|(offset, piece)| begin(file, *offset, piece, 0, direction));
    let begun: Vec<_> = begun.collect();
    let (mut moved, mut failure, mut is_finished) = (0, None, false);
    for ((offset, piece), first) in pieces.iter().zip(begun) {
        let (count, failed) = finish(file, *offset, piece, direction, first.await).await;
        // If only a later part failed, use its error: the server may report lost data only once.
        failure = failure.or(failed);
        if !is_finished {
            moved += count as u64;
            is_finished = count < piece.length;
        }
    }
    (moved, failure)
}

/// A transfer in flight.
type Begun<'f> = Pin<Box<dyn Future<Output = Outcome> + 'f>>;
type Outcome = std::result::Result<Transferred, ClientError>;

/// Starts the transfer of a piece after its first `from` bytes.
fn begin<'f>(
    file: &'f File,
    offset: u64,
    piece: &Piece,
    from: usize,
    direction: Direction,
) -> Begun<'f> {
    let at = offset.saturating_add(from as u64);
    let slice = match piece.buffer.slice(piece.start + from, piece.length - from) {
        Ok(slice) => slice,
        Err(error) => return Box::pin(std::future::ready(Err(error))),
    };
    match direction {
        Direction::Read => Box::pin(file.read_async(at, slice)),
        Direction::Write => {
            piece.fill();
            Box::pin(file.write_async(at, slice))
        }
    }
}

/// Repeats a transfer until the whole piece is transferred, because a server may transfer less than
/// requested.
async fn finish(
    file: &File,
    offset: u64,
    piece: &Piece,
    direction: Direction,
    first: Outcome,
) -> (usize, Option<Failure>) {
    let (mut moved, mut outcome) = (0, first);
    let failure = loop {
        let noted = outcome.and_then(|transferred| match direction {
            Direction::Read => Ok(transferred),
            Direction::Write => file.note_unstable(transferred.verifier).map(|()| transferred),
        });
        let transferred = match noted {
            Ok(transferred) => transferred,
            Err(error) => break Some(error.into()),
        };
        moved += transferred.length as usize;
        if moved >= piece.length || transferred.end_of_file {
            break None;
        }
        if transferred.length == 0 {
            break Some(Failure::new(
                libc::EPROTO,
                format!("{}: the server transferred no data", file.path()),
            ));
        }
        outcome = begin(file, offset, piece, moved, direction).await;
    };
    if direction == Direction::Read {
        piece.copy_out(moved);
    }
    (moved, failure)
}

/// Transfers the parts one after the other with the client's blocking calls, which use the client's
/// cache and lend memory to devices. These calls hold the client's lock while they wait.
fn transfer_sequentially(
    file: &FileObject,
    targets: &[Target],
    offset: u64,
    direction: Direction,
) -> Result<u64> {
    let mut moved = 0;
    for target in targets {
        let at = offset.saturating_add(moved);
        let done = file.ask(|file| match direction {
            Direction::Read => {
                // SAFETY: the C caller guarantees this many bytes to be read into, which no other
                // thread uses meanwhile.
                file.read_at(unsafe { room_of(target) }, at)
            }
            Direction::Write => {
                // SAFETY: the C caller guarantees this many bytes, which no thread changes
                // meanwhile.
                let bytes = unsafe { bytes_of(target) };
                file.write_at(bytes, at).map(|()| bytes.len())
            }
        });
        let count = match done {
            Ok(count) => count,
            Err(failure) if moved == 0 => return Err(failure),
            Err(failure) => {
                if direction == Direction::Write {
                    file.keep_failure(failure);
                }
                break;
            }
        };
        moved += count as u64;
        if count < target.length {
            break;
        }
    }
    Ok(moved)
}

/// Returns the memory of a target that is written from. Several threads may write from the same
/// memory, which may be read-only.
///
/// # Safety
/// The memory is readable, and no thread changes it while the slice exists.
unsafe fn bytes_of<'t>(target: &Target) -> &'t [u8] {
    if target.length == 0 {
        return &[];
    }
    // SAFETY: the caller guarantees the memory. A target with bytes is not NULL (`memory::target`).
    unsafe { std::slice::from_raw_parts(target.pointer, target.length) }
}

/// Returns the memory of a target that is read into.
///
/// # Safety
/// The memory is writable, and no other thread uses it while the slice exists.
unsafe fn room_of<'t>(target: &Target) -> &'t mut [u8] {
    if target.length == 0 {
        return &mut [];
    }
    // SAFETY: the caller guarantees the memory. A target with bytes is not NULL (`memory::target`).
    unsafe { std::slice::from_raw_parts_mut(target.pointer, target.length) }
}

/// The maximum number of descriptors of a call.
const DESCRIPTORS_MAX: usize = 1024;
/// The maximum number of bytes of a request.
const PART_BYTES_MAX: usize = 4 << 20;
/// The maximum number of concurrent requests of a call.
const UNDER_WAY: usize = 8;
