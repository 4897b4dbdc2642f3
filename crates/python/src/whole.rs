//! Reads and writes whole small files, many concurrently.
//!
//! Invariant: the number of files in flight does not exceed the session's credits, and no file
//! stays open.

use std::ffi::{OsStr, OsString};
use std::rc::Rc;

use dafs_client::{Buffer, OpenOptions, Outcome, Session, ShareAccess};
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::core::State;
use crate::errors::Failure;
use crate::memory::Range;
use crate::names;
use crate::transfer;

/// Reads whole files. Returns the contents or the error of each, in the order of the paths.
///
/// # Errors
/// If the session was closed.
pub(crate) async fn read_files(
    state: &State,
    paths: &[OsString],
) -> Result<Vec<Result<Vec<u8>, Failure>>, Failure> {
    let session = state.session()?;
    let client = session.client();
    let mut results: Vec<_> = paths.iter().map(|_| None).collect();
    let mut waiting = paths.iter().enumerate();
    let mut under_way = FuturesUnordered::new();
    // A chain has three requests, each of which uses a credit.
    let width = usize::from(session.credits() / 3).clamp(1, FILES_MAX);
    let mut start = |buffer: Buffer| {
        let (index, path) = waiting.next()?;
        let session = &session;
        Some(async move {
            let read = read_file(session, path, &buffer).await;
            (index, read, buffer)
        })
    };
    // Each file in flight has a buffer. Take one permit, and more only while they are free.
    let mut permits = vec![state.calls.enter().await];
    while permits.len() < width.min(paths.len())
        && let Some(permit) = state.calls.try_enter()
    {
        permits.push(permit);
    }
    for _ in 0..permits.len().min(paths.len()) {
        under_way.extend(start(client.allocate(FIRST_BYTES)?));
    }
    while let Some((index, read, buffer)) = under_way.next().await {
        if let Ok(bytes) = &read {
            state.counters.note_copy(bytes.len());
        }
        results[index] = Some(read.map_err(|failure| failure.with_path(&paths[index])));
        under_way.extend(start(buffer));
    }
    Ok(results.into_iter().flatten().collect())
}

/// Reads one file, in one round trip if it fits the buffer.
async fn read_file(session: &Session, path: &OsStr, buffer: &Buffer) -> Result<Vec<u8>, Failure> {
    let options = OpenOptions::read();
    let slice = buffer.slice(0, buffer.len())?;
    let chain = session.chain().open(path, &options).read_into(0, slice).close();
    let moved = match chain.run_async().await {
        Ok(outcomes) => outcomes.get(1).and_then(Outcome::transferred),
        Err(failure) => {
            if let Some(Outcome::Opened { file, state }) = failure.done.first() {
                // Dropping the file closes it.
                drop(session.opened(*file, *state, path));
            }
            if !names::needs_client_resolution(&failure.error) {
                return Err(Failure::of(failure.error, path));
            }
            None
        }
    };
    if let Some(moved) = moved.filter(|moved| moved.end_of_file) {
        return Ok(copy_of(buffer, moved.length as usize));
    }
    read_long(session, path, &options).await
}

/// Reads a file that is longer, or that is reached through a symbolic link.
async fn read_long(
    session: &Session,
    path: &OsStr,
    options: &OpenOptions,
) -> Result<Vec<u8>, Failure> {
    let file = names::open(session, path, options, false).await?;
    let size = session.metadata_async(file.handle(), path).await?.size;
    let length = usize::try_from(size).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    let buffer = session.client().allocate(length.clamp(1, BUFFER_BYTES_MAX))?;
    loop {
        let read =
            transfer::read_whole(&file, bytes.len() as u64, &buffer, 0, buffer.len()).await?;
        bytes.extend(copy_of(&buffer, read));
        if read < buffer.len() {
            break;
        }
    }
    file.close_async().await?;
    Ok(bytes)
}

fn copy_of(buffer: &Buffer, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    buffer.read(0, &mut bytes);
    bytes
}

/// Creates a file with the contents of a range, or replaces the contents of an existing one.
///
/// # Errors
/// The server's error, with the path.
pub(crate) async fn write_file(
    state: &Rc<State>,
    path: &OsStr,
    range: Range,
    mode: u32,
    is_new: bool,
) -> Result<(), Failure> {
    let session = state.session()?;
    let options = OpenOptions::write()
        .access(ShareAccess::Write)
        .truncate(!is_new)
        .create_new(is_new)
        .mode(mode);
    let length = range.length();
    let is_small = length <= INLINE_BYTES;
    if is_small {
        state.counters.note_copy(length);
        let bytes = range.to_vec();
        let chain = session.chain().open(path, &options);
        let chain = if bytes.is_empty() { chain } else { chain.write_inline(0, &bytes) };
        match chain.close().run_async().await {
            Ok(_) => return Ok(()),
            Err(failure) => {
                if let Some(Outcome::Opened { file, state }) = failure.done.first() {
                    drop(session.opened(*file, *state, path));
                    return Err(Failure::of(failure.error, path));
                }
                if !names::needs_client_resolution(&failure.error) {
                    return Err(Failure::of(failure.error, path));
                }
            }
        }
    }
    let file = names::open(&session, path, &options, false).await?;
    transfer::write(state, &file, range, 0).await?;
    file.close_async().await?;
    Ok(())
}

/// The maximum number of files in flight.
const FILES_MAX: usize = 64;
/// The number of bytes to request before the size of a file is known.
const FIRST_BYTES: usize = 64 << 10;
/// The size in bytes of the buffer for long files.
const BUFFER_BYTES_MAX: usize = 8 << 20;
/// The maximum number of bytes that are sent inline in a request.
const INLINE_BYTES: usize = 2 << 10;
