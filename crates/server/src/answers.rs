//! From results to replies: what DAFS says of what an operation has come to.
//!
//! Invariant: whatever ends by itself, after its request was parked, is told here and nowhere
//! else.

use dafs_ops::{
    Conflict, Delegated, Delegation, LockMode, Opened, Partial, Refusal, Set, Walked, Written,
};
use dafs_types::{ChangeInfo, StateId, Status};
use dafs_wire::messages::{
    AccessEntry, AppendResult, CommitResult, Delegation as WireDelegation, Empty, HandOverResult,
    LockConflict as WireConflict, LockResult, LockType, LookupResult, OpenFlags, OpenResult,
    SetAttributesResult, WriteResult,
};
use dafs_wire::{AttributeBitmap, Procedure, Response};

use crate::outcome::{Ended, Outcome};
use crate::reactor::Reactor;
use crate::read::read_response;
use crate::reply_to::ReplyTo;
use crate::respond::ReplyStatus;

impl Reactor {
    /// Replies with what came of an operation.
    pub(crate) fn report(&mut self, to: ReplyTo, outcome: Outcome) {
        let Outcome { result, after } = outcome;
        match &result {
            Ok(Ended::Written(written)) if after.0 == 0 => {
                self.reply_moved(to, &written_response(written));
            }
            Ok(ended) => self.respond(to, ReplyStatus::ok_after(after), &done_response(ended)),
            Err(refusal) => {
                let status = refusal.fault.into();
                // What fails late was a SETATTR or a LOCK, if there is more to say of it.
                let response = match &refusal.partial {
                    Partial::Set { .. } => refusal_response(Procedure::SetAttrInline, refusal),
                    _ => refusal_response(Procedure::Lock, refusal),
                };
                self.respond(to, ReplyStatus { status, after }, &response);
            }
        }
    }

    /// Replies that a request was not carried out, for no fault of its own: its connection is at
    /// its end, and whoever comes back asks for it anew.
    pub(crate) fn report_broken(&mut self, to: ReplyTo) {
        let to = self.abandon(to);
        self.fail(to, Status::Io);
    }
}

fn done_response(ended: &Ended) -> Response<'static> {
    match ended {
        Ended::Read { length, is_end, checksum } => read_response(*length, *is_end, *checksum),
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
        Ended::HandedOver(name) => Response::HandOver(HandOverResult { token: *name }),
    }
}

/// What a write answers: inline and direct writes have the same results.
#[inline]
pub(crate) fn written_response(written: &Written) -> Response<'static> {
    let Written { length, committed, verifier } = *written;
    Response::WriteInline(WriteResult { length, committed, verifier })
}

/// What an OPEN answers.
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

/// A delegation as the answer to OPEN has it. Its entry denies everybody: whoever else
/// would open under it asks the server, which alone knows who may.
fn delegation_of(delegation: &Delegation) -> WireDelegation<'static> {
    let Delegation { state, recall, delegated } = *delegation;
    let entry = AccessEntry { entry_type: 1, flags: 0, mask: EVERYTHING, who: "EVERYONE@" };
    match delegated {
        Delegated::Read => WireDelegation::Read { state, recall, entry },
        Delegated::Write { limit } => WireDelegation::Write { state, recall, limit, entry },
    }
}

/// The results of a request that failed, where the protocol has them.
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

/// A lock that stands in the way.
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

/// Rights to read, write and append, and to execute.
const EVERYTHING: u32 = 0x27;
