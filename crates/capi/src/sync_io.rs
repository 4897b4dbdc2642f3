//! Reads and writes that wait.
//!
//! Invariant: a call moves all it was asked for, unless the file ends or something fails; then it
//! tells of the bytes that were moved in a row before, if there are any.

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

/// Reads `length` bytes at `offset` into plain memory.
///
/// Returns the bytes read, fewer only at the end of the file, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_pread(
    file: *mut dap_file,
    buffer: *mut c_void,
    length: usize,
    offset: u64,
) -> i64 {
    let memory = dap_memory { pointer: buffer, length, region: std::ptr::null_mut() };
    // SAFETY: it is one descriptor, of what the caller promises.
    unsafe { transfer(file, &memory, 1, offset, Direction::Read) }
}

/// Writes `length` bytes at `offset` from plain memory. They may be lost with the server until
/// dap_fsync.
///
/// Returns the bytes written, or a negative error number. Fewer than `length` were written only
/// if something failed behind them; the next write, dap_fsync or dap_close tells what.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_pwrite(
    file: *mut dap_file,
    buffer: *const c_void,
    length: usize,
    offset: u64,
) -> i64 {
    let pointer = buffer.cast_mut();
    let memory = dap_memory { pointer, length, region: std::ptr::null_mut() };
    // SAFETY: it is one descriptor, of what the caller promises; it is only read.
    unsafe { transfer(file, &memory, 1, offset, Direction::Write) }
}

/// Reads into `count` pieces of memory, at most 1024, one behind the other, from `offset` on.
///
/// Returns as dap_pread does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_preadv(
    file: *mut dap_file,
    memory: *const dap_memory,
    count: usize,
    offset: u64,
) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { transfer(file, memory, count, offset, Direction::Read) }
}

/// Writes `count` pieces of memory, at most 1024, one behind the other, from `offset` on.
///
/// Returns as dap_pwrite does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_pwritev(
    file: *mut dap_file,
    memory: *const dap_memory,
    count: usize,
    offset: u64,
) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { transfer(file, memory, count, offset, Direction::Write) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// # Safety
/// There are `count` descriptors at `memory`, and what they say is so.
unsafe fn transfer(
    file: *mut dap_file,
    memory: *const dap_memory,
    count: usize,
    offset: u64,
    direction: Direction,
) -> i64 {
    counted(|| {
        let file: Arc<FileObject> = handles::get(file)?;
        // SAFETY: the caller's promise.
        let targets = unsafe { targets(file.client(), memory, count, DESCRIPTORS_MAX)? };
        if direction == Direction::Write {
            file.pay()?;
        }
        let is_whole = |target: &Target| target.region.is_none();
        let asks_first = file.session.keeps_reads && direction == Direction::Read;
        if (asks_first || file.client().lends) && targets.iter().all(is_whole) {
            return in_turn(&file, &targets, offset, direction);
        }
        let mut parts = parts(&targets, offset);
        let mut moved = 0;
        while !parts.is_empty() {
            let some: Vec<Part> = parts.drain(..parts.len().min(UNDER_WAY)).collect();
            let wanted: u64 = some.iter().map(|part| part.length as u64).sum();
            let (count, failure) = together(&file, &targets, &some, direction)?;
            moved += count;
            match failure {
                // What was moved before is told; whoever goes on is told of the failure.
                Some(failure) if moved == 0 => return Err(failure),
                Some(failure) => {
                    if direction == Direction::Write {
                        file.owe(failure);
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

/// Part of a target, and of the file.
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

/// Moves a few parts at once: bytes in a row from the first one on, and what failed behind them.
fn together(
    file: &FileObject,
    targets: &[Target],
    parts: &[Part],
    direction: Direction,
) -> Result<(u64, Option<Failure>)> {
    // SAFETY: what comes of it are numbers and a text.
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
    // All of them are under way before the first is waited for; what is behind one that fails is
    // waited for, too, since memory is in use until then.
    let begun = pieces.iter().map(|(offset, piece)| begin(file, *offset, piece, 0, direction));
    let begun: Vec<_> = begun.collect();
    let (mut moved, mut failure, mut is_over) = (0, None, false);
    for ((offset, piece), first) in pieces.iter().zip(begun) {
        let (count, failed) = finish(file, *offset, piece, direction, first.await).await;
        // What the server says behind the first that failed it may say once.
        failure = failure.or(failed);
        if !is_over {
            moved += count as u64;
            is_over = count < piece.length;
        }
    }
    (moved, failure)
}

/// A transfer under way.
type Begun<'f> = Pin<Box<dyn Future<Output = Outcome> + 'f>>;
type Outcome = std::result::Result<Transferred, ClientError>;

/// Has the bytes of a piece behind the first `from` moved.
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

/// Goes on until all of a piece is moved, for a server may move less than it was asked for.
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
            break Some(Failure::new(libc::EPROTO, format!("{}: nothing was moved", file.path())));
        }
        outcome = begin(file, offset, piece, moved, direction).await;
    };
    if direction == Direction::Read {
        piece.spill(moved);
    }
    (moved, failure)
}

/// One after the other by the client's own calls, which look at what is kept and lend memory to
/// devices; others are kept out meanwhile.
fn in_turn(
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
                // SAFETY: the caller of the function from C has promised so many bytes there,
                // which nobody else uses meanwhile.
                file.read_at(unsafe { bytes_of(target) }, at)
            }
            Direction::Write => {
                // SAFETY: as above.
                let bytes = unsafe { bytes_of(target) };
                file.write_at(bytes, at).map(|()| bytes.len())
            }
        });
        let count = match done {
            Ok(count) => count,
            Err(failure) if moved == 0 => return Err(failure),
            Err(failure) => {
                if direction == Direction::Write {
                    file.owe(failure);
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

/// # Safety
/// The target is memory that nobody else uses for as long as the slice is.
unsafe fn bytes_of<'t>(target: &Target) -> &'t mut [u8] {
    if target.length == 0 {
        return &mut [];
    }
    // SAFETY: the caller's promise; a target with bytes is not NULL (`memory::target`).
    unsafe { std::slice::from_raw_parts_mut(target.pointer, target.length) }
}

/// Most descriptors of one call.
const DESCRIPTORS_MAX: usize = 1024;
/// Most bytes of one request.
const PART_BYTES_MAX: usize = 4 << 20;
/// Most requests of one call at once.
const UNDER_WAY: usize = 8;
