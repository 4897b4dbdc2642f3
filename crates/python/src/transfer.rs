//! Reads and writes, without a copy where possible.
//!
//! Invariant: every copy within this process is counted.
//!
//! Over shared memory, a server's access to ordinary memory of the program goes through the kernel,
//! page by page. That takes longer than a transfer into a buffer that the server has mapped and a
//! copy from there, pipelined in pieces. So the buffer is used by default.

use std::rc::Rc;
use std::time::Duration;

use dafs_client::{Buffer, ClientError, File, Outcome, RegionPath};

use crate::core::State;
use crate::errors::Failure;
use crate::memory::{CallMemory, Range};
use crate::staged;

/// The minimum length of unregistered memory for a transfer without a copy. Shorter memory is
/// copied, which is faster than registering it.
pub(crate) const STRAIGHT_MIN: usize = 16 << 10;

/// The memory in which the server accesses the data of a call.
enum Place {
    /// Memory that was registered before.
    Registered(Buffer, usize),
    /// Memory that is registered for this call.
    CallMemory(CallMemory),
    /// A client buffer, at an offset, with a copy to or from the program's memory.
    Copied(Buffer, usize, Range),
}

impl Place {
    /// Returns a place for a transfer without a copy, or the range if it must be copied.
    fn without_copy(
        range: Range,
        file: &File,
        state: &State,
    ) -> Result<Result<Self, Range>, Failure> {
        if let Some((buffer, offset)) = state.buffer_around(range.address(), range.length()) {
            return Ok(Ok(Self::Registered(buffer, offset)));
        }
        if range.length() < STRAIGHT_MIN {
            return Ok(Err(range));
        }
        Ok(Ok(Self::CallMemory(range.lend(&file.session().client(), &state.counters)?)))
    }

    /// Copies data to be written into the buffer, if there is one.
    fn fetch(&self) {
        if let Self::Copied(buffer, at, range) = self {
            range.drain(buffer, *at);
        }
    }

    fn buffer(&self) -> (&Buffer, usize) {
        match self {
            Self::Registered(buffer, offset) => (buffer, *offset),
            Self::CallMemory(memory) => (&memory.buffer, 0),
            Self::Copied(buffer, at, _) => (buffer, *at),
        }
    }

    /// Ends the use of the memory after a reply or a failure.
    fn end(self, moved: &Result<usize, ClientError>, file: &File, state: &State, reads: bool) {
        let path = file.session().path_of(self.buffer().0);
        let bytes = moved.as_ref().copied().unwrap_or(0);
        let is_direct = path != Some(RegionPath::Staged);
        match self {
            Self::Copied(buffer, at, range) => {
                if reads {
                    range.fill(&buffer, at, bytes);
                }
                state.counters.note_copy(bytes);
            }
            Self::Registered(..) => state.counters.note_move(bytes, is_direct),
            Self::CallMemory(memory) => {
                state.counters.note_move(bytes, is_direct);
                if is_complete(moved) {
                    memory.complete();
                }
            }
        }
    }
}

/// True if the server has replied to every request that named the memory.
fn is_complete(moved: &Result<usize, ClientError>) -> bool {
    matches!(moved, Ok(_) | Err(ClientError::Status { .. }))
}

/// Reads into a range. Returns fewer bytes than the range has only at the end of the file.
///
/// # Errors
/// The server's error.
pub(crate) async fn read(
    state: &State,
    file: &File,
    range: Range,
    offset: u64,
) -> Result<usize, Failure> {
    if range.length() == 0 {
        return Ok(0);
    }
    if state.keeps.get() && range.length() < STRAIGHT_MIN {
        return read_cached(state, file, &range, offset);
    }
    let length = range.length();
    let _permit = state.calls.enter().await;
    if state.copies(&range) {
        return Ok(staged::read(state, file, &range, offset).await?);
    }
    let place = match Place::without_copy(range, file, state)? {
        Ok(place) => place,
        Err(range) => return Ok(staged::read(state, file, &range, offset).await?),
    };
    let moved = {
        let (buffer, at) = place.buffer();
        read_whole(file, offset, buffer, at, length).await
    };
    place.end(&moved, file, state, true);
    Ok(moved?)
}

/// Reads a small amount, from the client's cache if it may be used.
fn read_cached(state: &State, file: &File, range: &Range, offset: u64) -> Result<usize, Failure> {
    let client = file.session().client();
    let buffer = client.allocate(range.length())?;
    let mut bytes = vec![0; range.length()];
    let count = file.read_at(&mut bytes, offset)?;
    buffer.write(0, &bytes[..count]);
    range.fill(&buffer, 0, count);
    state.counters.note_copy(count);
    Ok(count)
}

/// Reads into a registered buffer.
///
/// # Errors
/// The server's error.
pub(crate) async fn read_whole(
    file: &File,
    offset: u64,
    buffer: &Buffer,
    at: usize,
    length: usize,
) -> Result<usize, ClientError> {
    let mut done = 0;
    while done < length {
        let piece = (length - done).min(PIECE_MAX);
        let slice = buffer.slice(at + done, piece)?;
        let read = file.read_async(offset.saturating_add(done as u64), slice).await?;
        done += read.length as usize;
        if read.end_of_file {
            break;
        }
        if read.length == 0 {
            return Err(no_progress(file, "READ"));
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
    range: Range,
    offset: u64,
) -> Result<usize, Failure> {
    let length = range.length();
    if length == 0 {
        return Ok(0);
    }
    let _permit = state.calls.enter().await;
    if state.copies(&range) {
        return Ok(staged::write(state, file, &range, offset).await?);
    }
    let place = match Place::without_copy(range, file, state)? {
        Ok(place) => place,
        Err(range) => return Ok(staged::write(state, file, &range, offset).await?),
    };
    let moved = {
        let (buffer, at) = place.buffer();
        write_whole(file, offset, buffer, at, length).await
    };
    place.end(&moved, file, state, false);
    Ok(moved?)
}

/// Writes from a registered buffer.
///
/// # Errors
/// As for [`write()`].
pub(crate) async fn write_whole(
    file: &File,
    offset: u64,
    buffer: &Buffer,
    at: usize,
    length: usize,
) -> Result<usize, ClientError> {
    let mut done = 0;
    while done < length {
        let piece = (length - done).min(PIECE_MAX);
        let slice = buffer.slice(at + done, piece)?;
        let written = file.write_async(offset.saturating_add(done as u64), slice).await?;
        file.note_unstable(written.verifier)?;
        if written.length == 0 {
            return Err(no_progress(file, "WRITE"));
        }
        done += written.length as usize;
    }
    Ok(done)
}

/// Appends a range atomically. Returns its offset.
///
/// # Errors
/// The server's error.
pub(crate) async fn append(state: &State, file: &Rc<File>, range: Range) -> Result<u64, Failure> {
    let length = range.length();
    let _permit = state.calls.enter().await;
    let client = file.session().client();
    let place = match Place::without_copy(range, file, state)? {
        Ok(place) => place,
        Err(range) => Place::Copied(client.allocate(length)?, 0, range),
    };
    place.fetch();
    let (buffer, at) = place.buffer();
    let slice = buffer.slice(at, length)?;
    let chain = file.session().chain().of(file).append_from(slice);
    let ended = chain.run_async().await.map_err(|failure| failure.error);
    let moved = ended.as_ref().map(|_| length).map_err(Clone::clone);
    place.end(&moved, file, state, false);
    match ended.map_err(|error| Failure::of(error, file.path()))?.first() {
        Some(Outcome::Appended { offset, .. }) => Ok(*offset),
        _ => Err(no_progress(file, "APPEND").into()),
    }
}

/// One request of a batch.
pub(crate) struct Request {
    /// The number of the file.
    pub file: usize,
    /// The offset in the file.
    pub offset: u64,
    /// The memory to transfer from or to.
    pub range: Range,
    /// True for a write.
    pub is_write: bool,
}

/// Runs many requests as batches. Returns the number of bytes that each transferred.
///
/// # Errors
/// If no request was sent.
pub(crate) async fn batch(
    state: &State,
    requests: Vec<Request>,
    window: Option<Duration>,
) -> Result<Vec<Result<u32, ClientError>>, Failure> {
    let mut counts = Vec::with_capacity(requests.len());
    let mut requests = requests.into_iter().peekable();
    while requests.peek().is_some() {
        let some: Vec<_> = requests.by_ref().take(BATCH_MAX).collect();
        let _permit = state.batches.enter().await;
        counts.extend(batch_some(state, some, window).await?);
    }
    Ok(counts)
}

async fn batch_some(
    state: &State,
    requests: Vec<Request>,
    window: Option<Duration>,
) -> Result<Vec<Result<u32, ClientError>>, Failure> {
    let session = state.session()?;
    // All copied data goes through one buffer.
    let lengths = requests.iter().map(|request| request.range.length());
    let copied = lengths.filter(|length| *length < STRAIGHT_MIN).sum::<usize>();
    let staging = session.client().allocate(copied)?;
    let mut used = 0;
    let mut places = Vec::with_capacity(requests.len());
    let mut batch = session.batch();
    for Request { file, offset, range, is_write } in requests {
        let (file, length) = (state.file(file)?, range.length());
        let place = Place::without_copy(range, &file, state)?.unwrap_or_else(|range| {
            let at = used;
            used += length;
            Place::Copied(staging.clone(), at, range)
        });
        let (buffer, at) = place.buffer();
        let slice = buffer.slice(at, length)?;
        batch = if is_write {
            place.fetch();
            batch.write(&file, offset, slice)
        } else {
            batch.read(&file, offset, slice)
        };
        places.push((place, file, is_write));
    }
    let started = match window {
        Some(window) => batch.latency(window).submit()?,
        None => batch.start()?,
    };
    let counts = started.await;
    for ((place, file, is_write), count) in places.into_iter().zip(&counts) {
        let moved = count.clone().map(|count| count as usize);
        place.end(&moved, &file, state, !is_write);
    }
    Ok(counts)
}

pub(crate) fn no_progress(file: &File, what: &str) -> ClientError {
    ClientError::Protocol {
        address: file.session().address().to_string(),
        what: format!("{what} of {} transferred no data", file.path()),
    }
}

/// The maximum number of bytes per client request; the client splits it further.
const PIECE_MAX: usize = 1 << 30;
/// The maximum number of requests per client batch: each may need a region of the connection.
const BATCH_MAX: usize = 128;
