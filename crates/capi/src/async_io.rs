//! Submits reads, writes and commits, whose completions are collected later.
//!
//! Invariant: if a call fails, no part of its operation is in flight.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use dafs_client::{File, Group, OperationId, Session, Slice, Stability};
use dafs_share::Entered;

use crate::check;
use crate::failure::{Failure, Result, done};
use crate::file::FileObject;
use crate::groups::GroupObject;
use crate::handles;
use crate::memory::{Piece, Target, targets};
use crate::operations::{Operation, OperationKind, Submission};
use crate::types::{dap_file, dap_group, dap_memory};

/// Submits a read from `offset` into `count` pieces of memory, at most 1024, which are filled one
/// after the other. The memory belongs to the operation until dap_wait has returned its completion.
/// The completion goes to `group` and carries `context`. Stores the operation's number in
/// `operation`, unless that is NULL.
///
/// Returns 0, or a negative error number; on an error nothing is in flight.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_read_async(
    file: *mut dap_file,
    memory: *const dap_memory,
    count: usize,
    offset: u64,
    group: *mut dap_group,
    context: *mut c_void,
    operation: *mut u64,
) -> c_int {
    let transfer = TransferKind::Read;
    // SAFETY: the caller guarantees that its pointers are valid.
    done(|| unsafe { submit(file, (memory, count), offset, transfer, group, context, operation) })
}

/// Submits a write of `count` pieces of memory, at most 1024, one after the other, at `offset`.
/// `stability` is DAP_UNSTABLE, DAP_DATA_SYNC or DAP_FILE_SYNC. The other arguments are those of
/// dap_read_async. Even without a region handle, the memory belongs to the operation until dap_wait
/// has returned its completion.
///
/// Returns 0, or a negative error number; on an error nothing is in flight.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_write_async(
    file: *mut dap_file,
    memory: *const dap_memory,
    count: usize,
    offset: u64,
    stability: u32,
    group: *mut dap_group,
    context: *mut c_void,
    operation: *mut u64,
) -> c_int {
    done(|| {
        let stability = Stability::from_number(stability)
            .ok_or_else(|| Failure::invalid(format!("stability {stability} is invalid")))?;
        let transfer = TransferKind::Write(stability);
        // SAFETY: the caller guarantees that its pointers are valid.
        unsafe { submit(file, (memory, count), offset, transfer, group, context, operation) }
    })
}

/// Submits the operation of dap_fsync. It flushes to stable storage the data of all writes whose
/// completions have already been returned.
///
/// Returns 0, or a negative error number; on an error nothing is in flight.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_fsync_async(
    file: *mut dap_file,
    group: *mut dap_group,
    context: *mut c_void,
    operation: *mut u64,
) -> c_int {
    let (none, transfer) = ((std::ptr::null(), 0), TransferKind::Commit);
    // SAFETY: the caller guarantees that its pointers are valid.
    done(|| unsafe { submit(file, none, 0, transfer, group, context, operation) })
}

#[derive(Clone, Copy)]
enum TransferKind {
    Read,
    Write(Stability),
    Commit,
}

impl TransferKind {
    fn kind(self) -> OperationKind {
        match self {
            Self::Read => OperationKind::Read,
            Self::Write(_) => OperationKind::Write,
            Self::Commit => OperationKind::Commit,
        }
    }
}

/// Submits an operation.
///
/// # Safety
/// The pointers are valid for their types, and the descriptors describe valid memory.
unsafe fn submit(
    file: *mut dap_file,
    (memory, count): (*const dap_memory, usize),
    offset: u64,
    transfer: TransferKind,
    group: *mut dap_group,
    context: *mut c_void,
    operation: *mut u64,
) -> Result<()> {
    if !operation.is_null() {
        check::place(operation, "operation")?;
    }
    let (file, group): (Arc<FileObject>, Arc<GroupObject>) =
        (handles::get(file)?, handles::get(group)?);
    group.check_client(file.client())?;
    // SAFETY: the caller guarantees that its pointers are valid.
    let targets = unsafe { targets(file.client(), memory, count, DESCRIPTORS_MAX)? };
    let number = Operation::next_number();
    let (kind, submission) = (transfer.kind(), Submission::Transfers(Vec::new()));
    let mut new = Operation::new(kind, submission, &file, &targets, context.expose_provenance());
    // SAFETY: the client objects of the operation go into the group, which is held.
    unsafe {
        file.client().within(|entered| {
            let mut state = group.state(entered);
            let submitter = Submitter {
                entered,
                session: file.session.session(entered),
                file: file.file.get(entered),
                group: state.group,
                number,
                transfer,
            };
            let asked = submitter.submit_all(&targets, offset, &mut new);
            match asked {
                Err(failure) if new.part_count() == 0 => return Err(failure),
                Err(failure) => new.set_refusal(failure),
                Ok(()) => {}
            }
            group.note_added(1);
            state.add(number, new);
            Ok(())
        })?;
    }
    if !operation.is_null() {
        // SAFETY: the caller guarantees that its pointers are valid.
        unsafe { check::put(operation, number, "operation")? };
    }
    Ok(())
}

/// An operation whose parts are being submitted.
struct Submitter<'a> {
    entered: &'a Entered<'a>,
    session: &'a Session,
    file: &'a File,
    group: Group,
    number: u64,
    transfer: TransferKind,
}

impl Submitter<'_> {
    fn submit_all(&self, targets: &[Target], offset: u64, new: &mut Operation) -> Result<()> {
        let Self { session, file, group, .. } = *self;
        if matches!(self.transfer, TransferKind::Commit) {
            let id = session.submit_commit(file, group, Operation::word_of(self.number, 0))?;
            new.add_part(None, id);
            return Ok(());
        }
        let mut at = offset;
        for target in targets {
            let mut start = 0;
            while start < target.length {
                let length = (target.length - start).min(PART_BYTES_MAX);
                if new.part_count() == PARTS_MAX {
                    return Err(Failure::invalid("too much memory for one operation"));
                }
                let piece = Piece::of(target, start, length, self.entered)?;
                let slice = piece.buffer.slice(piece.start, length)?;
                let id = self.submit_one(&piece, slice, at, new.part_count())?;
                new.add_part(Some(piece), id);
                start += length;
                at = at.saturating_add(length as u64);
            }
        }
        Ok(())
    }

    fn submit_one(&self, piece: &Piece, slice: Slice, at: u64, part: usize) -> Result<OperationId> {
        let Self { session, file, group, .. } = *self;
        let word = Operation::word_of(self.number, part);
        Ok(match self.transfer {
            TransferKind::Write(stability) => {
                piece.fill();
                session.submit_write(file, at, slice, stability, group, word)?
            }
            TransferKind::Read | TransferKind::Commit => {
                session.submit_read(file, at, slice, group, word)?
            }
        })
    }
}

/// The maximum number of descriptors of a call.
const DESCRIPTORS_MAX: usize = 1024;
/// The maximum number of bytes of a part. The client splits it further.
const PART_BYTES_MAX: usize = 1 << 30;
const PARTS_MAX: usize = 1 << 12;
