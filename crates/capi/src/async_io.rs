//! Reads, writes and commits that are submitted, and collected later.
//!
//! Invariant: if a call fails, nothing of it is under way.

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
use crate::operations::{Operation, OperationKind, Way};
use crate::types::{dap_file, dap_group, dap_memory};

/// Submits a read from `offset` on into `count` pieces of memory, at most 1024, one behind the
/// other. The memory belongs to the operation until its end is taken by dap_wait. The end is
/// collected in `group`, and hands `context` back. Puts the operation's number into `operation`,
/// unless that is NULL.
///
/// Returns 0, or a negative error number: then nothing is under way.
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
    let what = What::Read;
    // SAFETY: the caller's promise.
    done(|| unsafe { submit(file, (memory, count), offset, what, group, context, operation) })
}

/// Submits a write of `count` pieces of memory, at most 1024, one behind the other, from `offset`
/// on; `stability` is DAP_UNSTABLE, DAP_DATA_SYNC or DAP_FILE_SYNC. Otherwise as dap_read_async:
/// without a region handle, too, the memory belongs to the operation until its end is taken.
///
/// Returns 0, or a negative error number: then nothing is under way.
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
            .ok_or_else(|| Failure::invalid(format!("stability {stability} means nothing")))?;
        let what = What::Write(stability);
        // SAFETY: the caller's promise.
        unsafe { submit(file, (memory, count), offset, what, group, context, operation) }
    })
}

/// Submits what dap_fsync does: everything written, whose end was taken before, comes to stable
/// storage.
///
/// Returns 0, or a negative error number: then nothing is under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_fsync_async(
    file: *mut dap_file,
    group: *mut dap_group,
    context: *mut c_void,
    operation: *mut u64,
) -> c_int {
    let (none, what) = ((std::ptr::null(), 0), What::Commit);
    // SAFETY: the caller's promise.
    done(|| unsafe { submit(file, none, 0, what, group, context, operation) })
}

#[derive(Clone, Copy)]
enum What {
    Read,
    Write(Stability),
    Commit,
}

impl What {
    fn kind(self) -> OperationKind {
        match self {
            Self::Read => OperationKind::Read,
            Self::Write(_) => OperationKind::Write,
            Self::Commit => OperationKind::Commit,
        }
    }
}

/// # Safety
/// The pointers are what their types say, and the memory is what its descriptors say.
unsafe fn submit(
    file: *mut dap_file,
    (memory, count): (*const dap_memory, usize),
    offset: u64,
    what: What,
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
    // SAFETY: the caller's promise.
    let targets = unsafe { targets(file.client(), memory, count, DESCRIPTORS_MAX)? };
    let number = Operation::next_number();
    let (kind, way) = (what.kind(), Way::Transfers(Vec::new()));
    let mut new = Operation::new(kind, way, &file, &targets, context.expose_provenance());
    // SAFETY: what there is of the client goes into its group, which is held.
    unsafe {
        file.client().within(|entered| {
            let mut state = group.state(entered);
            let asking = Asking {
                entered,
                session: file.session.session(entered),
                file: file.file.get(entered),
                group: state.group,
                number,
                what,
            };
            let asked = asking.all(&targets, offset, &mut new);
            match asked {
                Err(failure) if new.part_count() == 0 => return Err(failure),
                Err(failure) => new.refuse(failure),
                Ok(()) => {}
            }
            group.note_added(1);
            state.add(number, new);
            Ok(())
        })?;
    }
    if !operation.is_null() {
        // SAFETY: the caller's promise.
        unsafe { check::put(operation, number, "operation")? };
    }
    Ok(())
}

/// The parts of an operation being submitted.
struct Asking<'a> {
    entered: &'a Entered<'a>,
    session: &'a Session,
    file: &'a File,
    group: Group,
    number: u64,
    what: What,
}

impl Asking<'_> {
    fn all(&self, targets: &[Target], offset: u64, new: &mut Operation) -> Result<()> {
        let Self { session, file, group, .. } = *self;
        if matches!(self.what, What::Commit) {
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
                    return Err(Failure::invalid("more memory than one operation takes"));
                }
                let piece = Piece::of(target, start, length, self.entered)?;
                let slice = piece.buffer.slice(piece.start, length)?;
                let id = self.one(&piece, slice, at, new.part_count())?;
                new.add_part(Some(piece), id);
                start += length;
                at = at.saturating_add(length as u64);
            }
        }
        Ok(())
    }

    fn one(&self, piece: &Piece, slice: Slice, at: u64, part: usize) -> Result<OperationId> {
        let Self { session, file, group, .. } = *self;
        let word = Operation::word_of(self.number, part);
        Ok(match self.what {
            What::Write(stability) => {
                piece.fill();
                session.submit_write(file, at, slice, stability, group, word)?
            }
            What::Read | What::Commit => session.submit_read(file, at, slice, group, word)?,
        })
    }
}

/// Most descriptors of one call.
const DESCRIPTORS_MAX: usize = 1024;
/// Most bytes of one part; the client cuts it further.
const PART_BYTES_MAX: usize = 1 << 30;
const PARTS_MAX: usize = 1 << 12;
