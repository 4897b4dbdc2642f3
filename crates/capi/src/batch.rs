//! Batches: many reads and writes that are sent to the server together.
//!
//! Invariant: if a call fails, no request of its batch is in flight.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use dafs_client::{Batch, ClientError, Slice};
use dafs_share::Entered;

use crate::check;
use crate::connect::SessionObject;
use crate::failure::{Failure, Result, counted, done, remember};
use crate::file::FileObject;
use crate::groups::GroupObject;
use crate::handles;
use crate::memory::{Piece, Target, targets};
use crate::operations::{Operation, OperationKind, Submission};
use crate::sync_io::Direction;
use crate::types::{DAP_READ, DAP_WRITE, dap_batch_request, dap_group, dap_range, dap_session};

/// Executes `count` requests, at most 4096, and waits for all of them. The server may execute them
/// in any order. When the call returns, written data is on stable storage. The `result` of each
/// request is its number of bytes or its negative error number.
///
/// Returns the number of requests that succeeded, or a negative error number if no request was
/// sent. If some requests failed, dap_error_text describes the first failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_batch(
    session: *mut dap_session,
    requests: *mut dap_batch_request,
    count: usize,
) -> i64 {
    counted(|| {
        let session: Arc<SessionObject> = handles::get(session)?;
        // SAFETY: the caller guarantees that its pointers are valid.
        let entries = unsafe { read(&session, requests, count)? };
        // SAFETY: the results are numbers and texts, which contain no client objects.
        let outcomes = unsafe { run(&session, &entries)? };
        let mut good = 0;
        for (place, outcome) in outcomes.into_iter().enumerate() {
            let result = match outcome {
                Ok(moved) => {
                    good += 1;
                    i64::from(moved)
                }
                Err(error) => {
                    let failure = Failure::from(error);
                    if good == place as u64 {
                        remember(&failure.text);
                    }
                    -i64::from(failure.errno)
                }
            };
            // SAFETY: there are `count` requests (see `read`), and as many outcomes.
            unsafe { (*requests.add(place)).result = result };
        }
        Ok(good)
    })
}

/// Executes requests and returns their results.
///
/// # Safety
/// The descriptors of the requests describe valid memory.
unsafe fn run(
    session: &SessionObject,
    entries: &[BatchEntry],
) -> Result<Vec<std::result::Result<u32, ClientError>>> {
    // SAFETY: the future owns the client objects that it uses, and returns only numbers and texts.
    unsafe {
        session.client.shared.run(async |entered: &Entered<'_>| {
            let pieces: Result<Vec<_>> =
                entries.iter().map(|entry| entry.pieces(entered)).collect();
            let pieces = pieces?;
            let mut batch = session.session(entered).batch();
            for (entry, pieces) in entries.iter().zip(&pieces) {
                batch = entry.add_to(batch, pieces, entered)?;
            }
            let outcomes = batch.start()?.await;
            for ((outcome, pieces), entry) in outcomes.iter().zip(&pieces).zip(entries) {
                if let (Ok(moved), Direction::Read) = (outcome, entry.direction) {
                    copy_out(pieces, *moved as usize);
                }
            }
            Ok(outcomes)
        })?
    }
}

fn copy_out(pieces: &[Piece], moved: usize) {
    let mut left = moved;
    for piece in pieces {
        let length = piece.length.min(left);
        piece.copy_out(length);
        left -= length;
    }
}

/// Submits `count` requests, at most 4096, as one batch. Each request is an operation of its own,
/// whose completion goes to `group`. The server may delay a request for up to `latency_us`
/// microseconds, or longer while it is busy, to execute adjacent requests together. The server
/// reports completions in groups of `completions`, or, if that is 0, all completions of the batch
/// together. dap_expedite makes the server execute a single request immediately. When the
/// completion of a write is returned, its data is on stable storage. The number of each operation
/// is stored in the `operation` of its request.
///
/// Returns 0, or a negative error number; on an error nothing is in flight.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_batch_submit(
    session: *mut dap_session,
    requests: *mut dap_batch_request,
    count: usize,
    latency_us: u64,
    completions: u32,
    group: *mut dap_group,
) -> c_int {
    done(|| {
        let session: Arc<SessionObject> = handles::get(session)?;
        let group: Arc<GroupObject> = handles::get(group)?;
        group.check_client(&session.client)?;
        // SAFETY: the caller guarantees that its pointers are valid.
        let entries = unsafe { read(&session, requests, count)? };
        if entries.is_empty() {
            return Ok(());
        }
        let latency = Duration::from_micros(latency_us);
        let numbers: Vec<u64> = entries.iter().map(|_| Operation::next_number()).collect();
        // SAFETY: the client objects of the batch go into the group, which is held.
        unsafe {
            session.client.within(|entered| {
                let pieces: Result<Vec<_>> =
                    entries.iter().map(|entry| entry.pieces(entered)).collect();
                let pieces = pieces?;
                let mut batch = session.session(entered).batch().latency(latency);
                if completions > 0 {
                    batch = batch.completions(completions);
                }
                for (entry, pieces) in entries.iter().zip(&pieces) {
                    batch = entry.add_to(batch, pieces, entered)?;
                }
                let batched = batch.submit()?;
                let mut state = group.state(entered);
                group.note_added(entries.len());
                for ((entry, pieces), number) in entries.iter().zip(pieces).zip(&numbers) {
                    state.add(*number, entry.operation(pieces));
                }
                state.add_batch(batched, numbers.clone());
                Ok(())
            })?;
        }
        for (place, number) in numbers.into_iter().enumerate() {
            // SAFETY: there are `count` requests (see `read`), and as many numbers.
            unsafe { (*requests.add(place)).operation = number };
        }
        Ok(())
    })
}

/// A request whose arguments were checked.
struct BatchEntry {
    file: Arc<FileObject>,
    direction: Direction,
    ranges: Vec<(u64, u32)>,
    targets: Vec<Target>,
    context: usize,
}

/// Checks and converts the requests of a batch.
///
/// # Safety
/// `requests` is NULL or points to `count` valid requests.
unsafe fn read(
    session: &Arc<SessionObject>,
    requests: *mut dap_batch_request,
    count: usize,
) -> Result<Vec<BatchEntry>> {
    // SAFETY: the caller guarantees that its pointers are valid.
    let requests = unsafe { check::array(requests, count, REQUESTS_MAX, "requests")? };
    let numbered = requests.iter().enumerate();
    let entries = numbered.map(|(place, request)| {
        // SAFETY: the caller guarantees that its pointers are valid.
        unsafe { BatchEntry::read(session, request) }.map_err(|failure| Failure {
            text: format!("request {place}: {}", failure.text),
            ..failure
        })
    });
    entries.collect()
}

impl BatchEntry {
    /// Checks and converts one request.
    ///
    /// # Safety
    /// The pointers in the request are valid for their types.
    unsafe fn read(session: &Arc<SessionObject>, request: &dap_batch_request) -> Result<Self> {
        let direction = match request.direction {
            DAP_READ => Direction::Read,
            DAP_WRITE => Direction::Write,
            other => return Err(Failure::invalid(format!("direction {other} is invalid"))),
        };
        let file: Arc<FileObject> = handles::get(request.file)?;
        if !Arc::ptr_eq(&file.session, session) {
            return Err(Failure::invalid("the file belongs to another session"));
        }
        // SAFETY: the caller guarantees that its pointers are valid.
        let (ranges, targets) = unsafe {
            let ranges = check::array(request.ranges, request.range_count, LIST_MAX, "ranges")?;
            let (memory, count) = (request.memory, request.memory_count);
            (ranges, targets(&session.client, memory, count, LIST_MAX)?)
        };
        let in_file: u64 = ranges.iter().fold(0, |sum, range| sum.saturating_add(range.length));
        let lengths = targets.iter().map(|target| target.length as u64);
        let in_memory = lengths.fold(0, u64::saturating_add);
        if in_file != in_memory || in_file == 0 || in_file > u64::from(u32::MAX) {
            let text = format!("the ranges have {in_file} bytes, but the memory has {in_memory}");
            return Err(Failure::invalid(text));
        }
        // No range is longer than the sum, which was checked to fit.
        let ranges = ranges.iter().map(|&dap_range { offset, length }| (offset, length as u32));
        let (ranges, context) = (ranges.collect(), request.context.expose_provenance());
        Ok(Self { file, direction, ranges, targets, context })
    }

    /// Returns registered memory for the request. For a write, copies unregistered data into it.
    fn pieces(&self, entered: &Entered<'_>) -> Result<Vec<Piece>> {
        let some = self.targets.iter().filter(|target| target.length > 0);
        some.map(|target| {
            let piece = Piece::of(target, 0, target.length, entered)?;
            if self.direction == Direction::Write {
                piece.fill();
            }
            Ok(piece)
        })
        .collect()
    }

    fn add_to<'s>(
        &self,
        batch: Batch<'s>,
        pieces: &[Piece],
        entered: &Entered<'_>,
    ) -> Result<Batch<'s>> {
        let slices: std::result::Result<Vec<Slice>, ClientError> =
            pieces.iter().map(|piece| piece.buffer.slice(piece.start, piece.length)).collect();
        let (file, slices) = (self.file.file.get(entered), slices?);
        Ok(match self.direction {
            Direction::Read => batch.read_list(file, &self.ranges, slices),
            Direction::Write => batch.write_list(file, &self.ranges, slices),
        })
    }

    fn operation(&self, pieces: Vec<Piece>) -> Operation {
        let kind = match self.direction {
            Direction::Read => OperationKind::Read,
            Direction::Write => OperationKind::Write,
        };
        let mut operation =
            Operation::new(kind, Submission::Batch, &self.file, &self.targets, self.context);
        for piece in pieces {
            operation.add_piece(Some(piece));
        }
        operation
    }
}

/// The maximum number of requests of a batch.
const REQUESTS_MAX: usize = 4096;
/// The maximum number of ranges, and of pieces of memory, of a request.
const LIST_MAX: usize = 64;
