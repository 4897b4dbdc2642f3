//! Converts the results of operations to DAFS replies.
//!
//! Invariant: only this module converts the outcome of a parked request to a reply.

use dafs_files::outcome::{Ended, Holes};
use dafs_ops::{
    Conflict, Copied, Delegated, Delegation, LockMode, Opened, Partial, Refusal, Set, Sought,
    Walked, Written,
};
use dafs_types::{ChangeInfo, StateId};
use dafs_wire::messages::{
    AccessEntry, AppendResult, CommitResult, CopyResult, Delegation as WireDelegation, Empty,
    HandOverResult, LockConflict as WireConflict, LockResult, LockType, LookupResult, OpenFlags,
    OpenResult, ReadDirectResult, SeekResult, SetAttributesResult, WriteResult,
};
use dafs_wire::{AttributeBitmap, Checksum, Procedure, Response};

pub(crate) fn done_response(ended: &Ended) -> Response<'static> {
    match ended {
        Ended::Written(written) => written_response(written),
        Ended::Appended(appended) => {
            let (offset, committed) = (appended.offset, appended.committed);
            Response::AppendInline(AppendResult { offset, verifier: appended.verifier, committed })
        }
        Ended::Committed(committed) => {
            Response::Commit(CommitResult { verifier: committed.verifier })
        }
        Ended::Closed => Response::Close(Empty),
        Ended::Unlocked => Response::LockU(Empty),
        Ended::Locked => Response::Lock(LockResult { conflict: None }),
        Ended::Opened(opened) => opened_response(opened),
        Ended::Set(Set { set }) => {
            Response::SetAttrInline(SetAttributesResult { set: AttributeBitmap(set.0) })
        }
        Ended::Fenced => Response::SetFencingList(Empty),
        // The results of ALLOCATE, DEALLOCATE and CLONE_RANGE have the same form.
        Ended::Ranged => Response::Allocate(Empty),
        Ended::Copied(Copied { length, committed, verifier }) => Response::CopyRange(CopyResult {
            length: *length,
            verifier: *verifier,
            committed: *committed,
        }),
        Ended::Sought(Sought { offset, is_end }) => {
            Response::Seek(SeekResult { offset: *offset, end_of_file: *is_end })
        }
        // No DAFS request lists holes.
        Ended::Listed(Holes { size, .. }) => {
            Response::Seek(SeekResult { offset: *size, end_of_file: true })
        }
    }
}

/// Returns the reply to a direct read.
#[inline]
pub(crate) fn read_response(
    length: u32,
    end_of_file: bool,
    checksum: Checksum,
) -> Response<'static> {
    Response::ReadDirect(ReadDirectResult { end_of_file, length, checksum })
}

/// Returns the reply to a write. The results of inline and direct writes have the same form.
#[inline]
pub(crate) fn written_response(written: &Written) -> Response<'static> {
    let Written { length, committed, verifier } = *written;
    Response::WriteInline(WriteResult { length, committed, verifier })
}

/// Returns the reply to HAND_OVER.
pub(crate) fn handed_over_response(name: u64) -> Response<'static> {
    Response::HandOver(HandOverResult { token: name })
}

/// Returns the reply to OPEN.
pub(crate) fn opened_response(opened: &Opened) -> Response<'static> {
    Response::Open(OpenResult {
        file: opened.file,
        state: opened.state,
        directory: opened.directory,
        component_count: opened.component_count,
        flags: match opened.mandatory_locks {
            true => OpenFlags::MANDATORY_LOCKS,
            false => OpenFlags::default(),
        },
        delegation: opened.delegation.as_ref().map_or(WireDelegation::None, delegation_of),
    })
}

/// Converts a delegation to the form in the reply to OPEN. Its access entry denies all access to
/// every user, so that the client sends the opens of other users to the server, because only the
/// server can check their access.
fn delegation_of(delegation: &Delegation) -> WireDelegation<'static> {
    let Delegation { state, recall, delegated } = *delegation;
    let entry = AccessEntry { entry_type: 1, flags: 0, mask: EVERYTHING, who: "EVERYONE@" };
    match delegated {
        Delegated::Read => WireDelegation::Read { state, recall, entry },
        Delegated::Write { limit } => WireDelegation::Write { state, recall, limit, entry },
    }
}

/// Returns the results of a failed request. Most procedures have no results for a failure.
pub(crate) fn refusal_response<'r>(procedure: Procedure, refusal: &'r Refusal<'_>) -> Response<'r> {
    match (procedure, &refusal.partial) {
        (Procedure::Lookup, Partial::Walked { reached }) => {
            let Walked { file, component_count } = *reached;
            Response::Lookup(LookupResult { file, component_count })
        }
        (Procedure::Open, Partial::Walked { reached }) => {
            let Walked { file, component_count } = *reached;
            Response::Open(OpenResult {
                file,
                state: StateId::ANONYMOUS,
                directory: ChangeInfo::default(),
                component_count,
                flags: OpenFlags::default(),
                delegation: WireDelegation::None,
            })
        }
        (Procedure::SetAttrInline, Partial::Set { set }) => {
            Response::SetAttrInline(SetAttributesResult { set: AttributeBitmap(set.0) })
        }
        (Procedure::Lock, Partial::Conflict { conflict }) => Response::Lock(shown(conflict)),
        (Procedure::LockT, Partial::Conflict { conflict }) => Response::LockT(shown(conflict)),
        _ => Response::Failed,
    }
}

/// Converts a conflicting lock to the results of a lock request.
fn shown<'c>(conflict: &'c Conflict<'_>) -> LockResult<'c> {
    let conflict = WireConflict {
        client: conflict.client,
        owner: &conflict.owner,
        offset: conflict.offset,
        length: conflict.length,
        lock_type: match conflict.mode {
            LockMode::Read => LockType::Read,
            LockMode::Write => LockType::Write,
        },
    };
    LockResult { conflict: Some(conflict) }
}

/// The access mask with the bits for read, write, append and execute.
const EVERYTHING: u32 = 0x27;
