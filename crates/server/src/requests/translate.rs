//! Converts DAFS requests to operations, and outcomes of operations to DAFS replies and back.
//!
//! Invariant: converting results to an outcome and back produces the same bytes. Results that no
//! outcome can express are stored unchanged.

use dafs_files::outcome::NotDone;
use dafs_ops::{
    Appended, AttributeSet, Changed, Claim, CreateNode, Created, Creation, Delegated, Delegation,
    Done, Fault, Link, Lock, LockClaim, LockMode, LockSpan, Names, NewNode, Open, Opened,
    Operation, Outcome, Partial, Refusal, Remove, Rename, Renamed, Set, SetAttributes, Walked,
};
use dafs_types::{FileHandle, Status, StreamId};
use dafs_wire::messages::{
    self as wire, AppendResult, CreateResult, DirectoryChanged, LockOptions, LockType, NewObject,
    OpenCreation, OpenFlags, OpenResult, OpenTarget, RenameResult, SetAttributesResult,
};
use dafs_wire::{
    AttributeBitmap, ByteOrder, HEADER_BYTES, Procedure, Request, Response, decode_results,
    encode_response,
};
use smallvec::SmallVec;

use crate::reply_to::blank_header;
use crate::requests::answers::{opened_response, refusal_response};
use crate::requests::decode::{Scratch, components, name_of, settings_of};

/// Returns true if [`operation`] converts this request to an operation.
#[inline]
pub(crate) fn is_operation(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::Create(_)
            | Request::Link(_)
            | Request::Remove(_)
            | Request::Rename(_)
            | Request::SetAttrInline(_)
            | Request::Open(_)
            | Request::Lock(_)
    )
}

/// Converts a request to an operation. Returns `None` unless the request may change names or
/// attributes, opens a file, or takes a lock.
///
/// # Errors
/// INVAL for an invalid name, or for a lock with contradictory claims; NAMETOOLONG for a path that
/// is too long; the errors of attributes that cannot be set.
pub(crate) fn operation<'r, 'm: 'r>(
    request: &Request<'m>,
    scratch: &'r mut Scratch<'m>,
) -> Result<Option<Operation<'r>>, NotDone> {
    Ok(Some(match request {
        Request::Create(r) => {
            scratch.push(name_of(r.name)?);
            let (directory, node) = (r.directory, node_of(&r.object));
            let attributes = settings_of(&r.attributes)?;
            Operation::CreateNode(CreateNode { directory, name: &scratch[0], node, attributes })
        }
        Request::Link(r) => {
            scratch.push(name_of(r.name)?);
            let (source, directory) = (r.source, r.directory);
            Operation::Link(Link { source, directory, name: &scratch[0] })
        }
        Request::Remove(r) => {
            scratch.push(name_of(r.name)?);
            let (directory, mode) = (r.directory, r.mode);
            Operation::Remove(Remove { directory, name: &scratch[0], mode })
        }
        Request::Rename(r) => {
            scratch.push(name_of(r.old_name)?);
            scratch.push(name_of(r.new_name)?);
            let (source, target) = (r.source, r.target);
            let (old_name, new_name) = (&*scratch[0], &*scratch[1]);
            Operation::Rename(Rename { source, target, old_name, new_name })
        }
        Request::SetAttrInline(r) => {
            let attributes = settings_of(&r.attributes)?;
            Operation::SetAttributes(SetAttributes { file: r.file, state: r.state, attributes })
        }
        Request::Open(r) => Operation::Open(open(r, scratch)?),
        Request::Lock(r) => lock(r)?,
        _ => return Ok(None),
    }))
}

/// Converts an OPEN request to an operation.
///
/// # Errors
/// See [`operation`]. Invalid attributes make the request fail before it has any effect.
pub(crate) fn open<'r, 'm: 'r>(
    request: &wire::Open<'m>,
    scratch: &'r mut Scratch<'m>,
) -> Result<Open<'r>, NotDone> {
    let path = match &request.target {
        OpenTarget::Null { path, .. }
        | OpenTarget::DelegateCurrent { path, .. }
        | OpenTarget::DelegatePrevious { path, .. } => Some(path),
        OpenTarget::Previous { .. } | OpenTarget::CreateUnlinked { .. } => None,
    };
    if let Some(path) = path {
        components(path, scratch)?;
    }
    let path = Names::of(scratch);
    let claim = match request.target {
        OpenTarget::Null { .. } => Claim::Null { path },
        OpenTarget::Previous { .. } => Claim::Previous,
        OpenTarget::DelegateCurrent { state, .. } => Claim::DelegateCurrent { path, state },
        OpenTarget::DelegatePrevious { .. } => Claim::DelegatePrevious { path },
        OpenTarget::CreateUnlinked { .. } => Claim::CreateUnlinked,
    };
    let from = *request.target.handle();
    Ok(Open {
        from,
        claim,
        creation: creation_of(&request.creation, &from)?,
        disposition: request.delete_disposition,
        owner: request.owner,
        access: request.access,
        deny: request.deny,
        key: request.key,
    })
}

fn lock(request: &wire::Lock) -> Result<Operation<'static>, Status> {
    let wire::Lock { file, lock_type, options, state, offset, length } = *request;
    let (mode, waits) = match lock_type {
        LockType::Read => (LockMode::Read, false),
        LockType::Write => (LockMode::Write, false),
        LockType::ReadWait => (LockMode::Read, true),
        LockType::WriteWait => (LockMode::Write, true),
        LockType::Abort => {
            return Ok(Operation::Abort(LockSpan { file, state, offset, length }));
        }
    };
    let has = |option| options.contains(option);
    let claim = match (has(LockOptions::RECLAIM), has(LockOptions::REPAIR)) {
        (false, false) => LockClaim::New,
        (true, false) => LockClaim::Reclaim,
        (false, true) => LockClaim::Repair,
        (true, true) => return Err(Status::Inval),
    };
    let (persist, auto_recovery) = (has(LockOptions::PERSIST), has(LockOptions::AUTO_RECOVERY));
    let asked = Lock { file, state, mode, offset, length, claim, persist, auto_recovery, waits };
    Ok(Operation::Lock(asked))
}

fn creation_of(wanted: &OpenCreation<'_>, from: &FileHandle) -> Result<Creation, NotDone> {
    let settings = |block| {
        let reached = Walked { file: *from, component_count: 0 };
        settings_of(block)
            .map_err(|status| NotDone::partly(status.into(), Partial::Walked { reached }))
    };
    Ok(match wanted {
        OpenCreation::NoCreate => Creation::NoCreate,
        OpenCreation::Unchecked(block) => Creation::Unchecked { attributes: settings(block)? },
        OpenCreation::Guarded(block) => Creation::Guarded { attributes: settings(block)? },
        OpenCreation::Exclusive(verifier) => Creation::Exclusive { verifier: *verifier },
    })
}

fn node_of<'m>(object: &NewObject<'m>) -> NewNode<'m> {
    match *object {
        NewObject::Directory => NewNode::Directory,
        NewObject::SymbolicLink(text) => NewNode::SymbolicLink { text },
        NewObject::Fifo => NewNode::Fifo,
        NewObject::Socket => NewNode::Socket,
        NewObject::BlockDevice(device) => NewNode::BlockDevice { device },
        NewObject::CharacterDevice(device) => NewNode::CharacterDevice { device },
    }
}

/// Converts an outcome to a status and to the encoded results that follow the reply's header.
/// `None` if the procedure has no results for this outcome.
pub(crate) fn results_of(
    order: ByteOrder,
    procedure: u32,
    outcome: &Outcome<'_>,
) -> Option<(Status, Vec<u8>)> {
    let procedure = Procedure::from_number(procedure)?;
    let (status, response) = match outcome {
        Ok(done) => (Status::Ok, response_of(done)?),
        Err(refusal) => (refusal.fault.into(), refusal_response(base(procedure), refusal)),
    };
    let mut message = [0; RESULTS_BYTES_MAX];
    let header = blank_header(StreamId(0), status);
    let length = encode_response(order, &header, &response, &mut message).ok()?;
    Some((status, message[HEADER_BYTES..length].to_vec()))
}

/// Converts the encoded results that follow a reply's header to an outcome. `None` if outcomes are
/// not used for this procedure, or if no outcome can express these results.
pub(crate) fn outcome_of(
    order: ByteOrder,
    procedure: u32,
    status: Status,
    results: &[u8],
) -> Option<Outcome<'static>> {
    let mut message = SmallVec::<[u8; RESULTS_BYTES_MAX]>::from_elem(0, HEADER_BYTES);
    message.extend_from_slice(results);
    let header = blank_header(StreamId(0), status);
    let kind = Procedure::from_number(procedure)?;
    let response = decode_results(order, kind, &header, &message).ok()?;
    let outcome = told(status, &response)?;
    let again = results_of(order, procedure, &outcome)?;
    (again == (status, results.to_vec())).then_some(outcome)
}

fn told(status: Status, response: &Response<'_>) -> Option<Outcome<'static>> {
    if status != Status::Ok {
        let partial = match response {
            Response::Failed => Partial::Nothing,
            Response::Open(OpenResult { file, component_count, .. }) => {
                let (file, component_count) = (*file, *component_count);
                Partial::Walked { reached: Walked { file, component_count } }
            }
            Response::SetAttrInline(result) | Response::SetAttrDirect(result) => {
                Partial::Set { set: AttributeSet(result.set.0) }
            }
            _ => return None,
        };
        return Some(Err(Refusal { fault: Fault::from(status), partial }));
    }
    let done = match response {
        Response::Create(CreateResult { file, directory }) => {
            Done::Created(Created { file: *file, directory: *directory })
        }
        Response::Open(result) => Done::Opened(opened(result)),
        Response::Link(result) | Response::Remove(result) => {
            Done::Changed(Changed { directory: result.directory })
        }
        Response::Rename(RenameResult { source, target }) => {
            Done::Renamed(Renamed { source: *source, target: *target })
        }
        Response::SetAttrInline(result) | Response::SetAttrDirect(result) => {
            Done::Set(Set { set: AttributeSet(result.set.0) })
        }
        Response::AppendInline(result) | Response::AppendDirect(result) => {
            let AppendResult { offset, verifier, committed } = *result;
            Done::Appended(Appended { offset, committed, verifier })
        }
        _ => return None,
    };
    Some(Ok(done))
}

fn opened(result: &OpenResult<'_>) -> Opened {
    let delegation = match result.delegation {
        wire::Delegation::None => None,
        wire::Delegation::Read { state, recall, .. } => {
            Some(Delegation { state, recall, delegated: Delegated::Read })
        }
        wire::Delegation::Write { state, recall, limit, .. } => {
            Some(Delegation { state, recall, delegated: Delegated::Write { limit } })
        }
    };
    Opened {
        file: result.file,
        state: result.state,
        directory: result.directory,
        component_count: result.component_count,
        mandatory_locks: result.flags == OpenFlags::MANDATORY_LOCKS,
        delegation,
    }
}

fn response_of(done: &Done<'_>) -> Option<Response<'static>> {
    Some(match done {
        Done::Created(Created { file, directory }) => {
            Response::Create(CreateResult { file: *file, directory: *directory })
        }
        Done::Opened(opened) => opened_response(opened),
        // REMOVE has results of the same form.
        Done::Changed(Changed { directory }) => {
            Response::Link(DirectoryChanged { directory: *directory })
        }
        Done::Renamed(Renamed { source, target }) => {
            Response::Rename(RenameResult { source: *source, target: *target })
        }
        Done::Set(Set { set }) => {
            Response::SetAttrInline(SetAttributesResult { set: AttributeBitmap(set.0) })
        }
        Done::Appended(appended) => Response::AppendInline(AppendResult {
            offset: appended.offset,
            verifier: appended.verifier,
            committed: appended.committed,
        }),
        Done::Nothing(_)
        | Done::Object(_)
        | Done::Walked(_)
        | Done::Page(_)
        | Done::Text(_)
        | Done::Attributes(_)
        | Done::FsAttributes(_)
        | Done::Granted(_)
        | Done::Written(_)
        | Done::Committed(_)
        | Done::FenceIds(_)
        | Done::Sought(_)
        | Done::Copied(_)
        | Done::XattrValue(_)
        | Done::XattrChanged(_)
        | Done::XattrNames(_) => return None,
    })
}

/// Returns SETATTR_INLINE for SETATTR_DIRECT, because both procedures have the same results.
/// Returns every other procedure unchanged.
fn base(procedure: Procedure) -> Procedure {
    match procedure {
        Procedure::SetAttrDirect => Procedure::SetAttrInline,
        procedure => procedure,
    }
}

/// The size in bytes of the largest results that are stored as an outcome: those of an OPEN with a
/// write delegation.
const RESULTS_BYTES_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use dafs_types::{ChangeInfo, SpaceLimit, Stability, StateId, Verifier};
    use dafs_wire::ResponseHeader;
    use dafs_wire::messages::AccessEntry;

    use super::*;

    const FILE: FileHandle = FileHandle([7; 64]);
    const CHANGE: ChangeInfo = ChangeInfo { before: 1, after: 2, atomic: true };

    fn results(order: ByteOrder, status: Status, response: &Response<'_>) -> Vec<u8> {
        let header = ResponseHeader { target_credits: 9, ..blank_header(StreamId(3), status) };
        let mut message = [0; 1024];
        let length = encode_response(order, &header, response, &mut message).unwrap();
        message[HEADER_BYTES..length].to_vec()
    }

    fn open_result(delegation: wire::Delegation<'static>) -> OpenResult<'static> {
        OpenResult {
            file: FILE,
            state: StateId(0x0123_4567_89ab_cdef),
            directory: CHANGE,
            component_count: 3,
            flags: OpenFlags::MANDATORY_LOCKS,
            delegation,
        }
    }

    /// All kinds of replies to requests whose outcomes are journaled.
    fn answers() -> Vec<(Procedure, Status, Response<'static>)> {
        let entry = AccessEntry { entry_type: 1, flags: 0, mask: 0x27, who: "EVERYONE@" };
        let (state, recall) = (StateId(5), true);
        let write = |limit| wire::Delegation::Write { state, recall, limit, entry };
        let directory = CHANGE;
        let set = SetAttributesResult { set: AttributeBitmap(1 << 5) };
        let appended = AppendResult {
            offset: 1 << 40,
            verifier: Verifier([4; 8]),
            committed: Stability::FileSync,
        };
        let missed = OpenResult {
            file: FILE,
            state: StateId::ANONYMOUS,
            directory: ChangeInfo::default(),
            component_count: 1,
            flags: OpenFlags::default(),
            delegation: wire::Delegation::None,
        };
        let ok = Status::Ok;
        let mut answers = vec![
            (Procedure::Create, ok, Response::Create(CreateResult { file: FILE, directory })),
            (Procedure::Link, ok, Response::Link(DirectoryChanged { directory })),
            (Procedure::Remove, ok, Response::Remove(DirectoryChanged { directory })),
            (
                Procedure::Rename,
                ok,
                Response::Rename(RenameResult { source: CHANGE, target: CHANGE }),
            ),
            (Procedure::SetAttrInline, ok, Response::SetAttrInline(set)),
            (Procedure::SetAttrDirect, ok, Response::SetAttrDirect(set)),
            (Procedure::SetAttrInline, Status::NoSpc, Response::SetAttrInline(set)),
            (Procedure::AppendInline, ok, Response::AppendInline(appended)),
            (Procedure::AppendDirect, ok, Response::AppendDirect(appended)),
            (Procedure::Open, Status::NotDir, Response::Open(missed)),
        ];
        for delegation in [
            wire::Delegation::None,
            wire::Delegation::Read { state, recall: false, entry },
            write(SpaceLimit::Size(1 << 33)),
            write(SpaceLimit::Blocks { count: 3, block_bytes: 512 }),
        ] {
            answers.push((Procedure::Open, ok, Response::Open(open_result(delegation))));
        }
        let failures = Status::ALL.iter().filter(|status| **status != Status::Ok);
        answers.extend(failures.map(|&status| (Procedure::Rename, status, Response::Failed)));
        answers
    }

    #[test]
    fn an_answer_is_the_same_bytes_once_it_was_an_outcome() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            for (procedure, status, response) in answers() {
                let (number, before) = (procedure.number(), results(order, status, &response));
                let outcome = outcome_of(order, number, status, &before);
                let outcome = outcome.unwrap_or_else(|| panic!("{status:?} {response:?}"));
                let mut kept = Vec::new();
                dafs_ops::encode_outcome(&outcome, &mut kept);
                let read = dafs_ops::decode_outcome(&kept).unwrap();
                assert_eq!(results_of(order, number, &read), Some((status, before)));
            }
        }
    }

    /// Checks that results which no outcome can express are not converted, so that they are stored
    /// unchanged.
    #[test]
    fn what_an_outcome_has_no_words_for_is_none() {
        let order = ByteOrder::Big;
        let entry = AccessEntry { entry_type: 0, flags: 0, mask: 1, who: "ann" };
        let delegation = wire::Delegation::Read { state: StateId(5), recall: false, entry };
        let flagged = OpenResult { flags: OpenFlags(2), ..open_result(wire::Delegation::None) };
        for response in [Response::Open(open_result(delegation)), Response::Open(flagged)] {
            let bytes = results(order, Status::Ok, &response);
            assert_eq!(outcome_of(order, Procedure::Open.number(), Status::Ok, &bytes), None);
        }
        let bytes = results(order, Status::Ok, &Response::Close(wire::Empty));
        assert_eq!(outcome_of(order, Procedure::Close.number(), Status::Ok, &bytes), None);
        assert_eq!(outcome_of(order, Procedure::Create.number(), Status::Ok, b"short"), None);
        assert_eq!(outcome_of(order, 7, Status::Ok, &[]), None);
    }
}
