//! Transfers through buffers of the client, with one copy, for memory that the server cannot access
//! directly.
//!
//! Invariant: while one piece is copied here, the server works on the next one. A call never uses
//! more than [`DEPTH`] buffers.

use std::collections::VecDeque;
use std::pin::Pin;

use dafs_client::{Buffer, ClientError, File, Transferred};

use crate::core::State;
use crate::memory::Range;
use crate::transfer::{no_progress, read_whole, write_whole};

/// A piece in flight.
struct Piece<'f> {
    at: usize,
    length: usize,
    buffer: Buffer,
    moving: Pin<Box<dyn Future<Output = Result<Transferred, ClientError>> + 'f>>,
}

/// Reads into a range. Returns fewer bytes than the range has only at the end of the file.
///
/// # Errors
/// The server's error.
pub(crate) async fn read(
    state: &State,
    file: &File,
    range: &Range,
    offset: u64,
) -> Result<usize, ClientError> {
    let piece_length = piece_of(range.length());
    let start = |at: usize, buffer: Buffer| -> Result<Piece<'_>, ClientError> {
        let length = piece_length.min(range.length() - at);
        let slice = buffer.slice(0, length)?;
        let moving = Box::pin(file.read_async(offset.saturating_add(at as u64), slice));
        Ok(Piece { at, length, buffer, moving })
    };
    let (mut under_way, mut next) = (VecDeque::with_capacity(DEPTH), 0);
    while next < range.length() && under_way.len() < DEPTH {
        under_way.push_back(start(next, file.session().client().allocate(piece_length)?)?);
        next += piece_length;
    }
    let mut done = 0;
    while let Some(Piece { at, length, buffer, moving }) = under_way.pop_front() {
        let read = moving.await?;
        let mut count = (read.length as usize).min(length);
        if count < length && !read.end_of_file {
            if count == 0 {
                return Err(no_progress(file, "READ"));
            }
            let rest = offset.saturating_add((at + count) as u64);
            count += read_whole(file, rest, &buffer, count, length - count).await?;
        }
        range.fill_at(at, &buffer, count);
        state.counters.note_copy(count);
        done += count;
        if count < length {
            // Later pieces are also beyond the end of the file.
            break;
        }
        if next < range.length() {
            under_way.push_back(start(next, buffer)?);
            next += piece_length;
        }
    }
    Ok(done)
}

/// Writes a whole range.
///
/// # Errors
/// The server's error; [`ClientError::DataLost`] if earlier data is known to be lost.
pub(crate) async fn write(
    state: &State,
    file: &File,
    range: &Range,
    offset: u64,
) -> Result<usize, ClientError> {
    let piece_length = piece_of(range.length());
    let start = |at: usize, buffer: Buffer| -> Result<Piece<'_>, ClientError> {
        let length = piece_length.min(range.length() - at);
        range.drain_at(at, &buffer, length);
        state.counters.note_copy(length);
        let slice = buffer.slice(0, length)?;
        let moving = Box::pin(file.write_async(offset.saturating_add(at as u64), slice));
        Ok(Piece { at, length, buffer, moving })
    };
    let finish = async |piece: Piece<'_>| -> Result<(), ClientError> {
        let Piece { at, length, buffer, moving } = piece;
        let written = moving.await?;
        file.note_unstable(written.verifier)?;
        let count = (written.length as usize).min(length);
        if count == 0 {
            return Err(no_progress(file, "WRITE"));
        }
        if count < length {
            let rest = offset.saturating_add((at + count) as u64);
            write_whole(file, rest, &buffer, count, length - count).await?;
        }
        Ok(())
    };
    let (mut under_way, mut next) = (VecDeque::with_capacity(DEPTH), 0);
    let mut failure = None;
    loop {
        while failure.is_none() && next < range.length() && under_way.len() < DEPTH {
            let buffer = file.session().client().allocate(piece_length);
            match buffer.and_then(|buffer| start(next, buffer)) {
                Ok(piece) => under_way.push_back(piece),
                Err(error) => failure = Some(error),
            }
            next += piece_length;
        }
        let Some(piece) = under_way.pop_front() else {
            return failure.map_or(Ok(range.length()), Err);
        };
        // Wait for all pieces even after a failure: the caller may write again when it gets the
        // error.
        if let Err(error) = finish(piece).await {
            failure.get_or_insert(error);
        }
    }
}

/// Returns the size of each piece in bytes.
fn piece_of(length: usize) -> usize {
    length.min(PIECE_BYTES_MAX)
}

/// The maximum number of pieces in flight.
const DEPTH: usize = 2;
/// The maximum size of a piece in bytes. With smaller pieces, the overhead exceeds the gain from
/// concurrency.
const PIECE_BYTES_MAX: usize = 1 << 20;
