//! The rules for each operation: its allowed positions in a compound, and the file handles that it
//! needs.

use crate::Nfs4Error;
use crate::operation::{OperationNumber, OperationNumber as Op, OperationSet};

/// The rule for one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub stand: Stand,
    pub needs: Needs,
}

/// The positions in a compound at which an operation is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// The first operation of a compound in a session.
    First,
    /// The only operation of a compound.
    Alone,
    /// The only operation of a compound, or after a SEQUENCE.
    AloneOrInSession,
    /// Only after a SEQUENCE.
    InSession,
}

/// The file handles that an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    Current,
    Saved,
    Both,
}

/// Returns the rule for an operation.
///
/// # Errors
/// OP_ILLEGAL if the minor version does not define the operation; NOTSUPP if it forbids it.
pub(super) fn rule(operation: OperationNumber, minor: u32) -> Result<Rule, Nfs4Error> {
    if !exists_in(operation, minor) {
        return Err(Nfs4Error::OpIllegal);
    }
    if FORBIDDEN.contains(operation) {
        return Err(Nfs4Error::NotSupp);
    }
    let stand = match operation {
        Op::SEQUENCE => Stand::First,
        Op::BIND_CONN_TO_SESSION => Stand::Alone,
        Op::EXCHANGE_ID | Op::CREATE_SESSION | Op::DESTROY_SESSION | Op::DESTROY_CLIENTID => {
            Stand::AloneOrInSession
        }
        _ => Stand::InSession,
    };
    let needs = match operation {
        Op::RESTOREFH => Needs::Saved,
        Op::LINK | Op::RENAME | Op::COPY | Op::CLONE => Needs::Both,
        other if NO_HANDLE.contains(other) => Needs::Nothing,
        _ => Needs::Current,
    };
    Ok(Rule { stand, needs })
}

/// Returns true if a minor version defines the operation.
#[must_use]
pub fn exists_in(operation: OperationNumber, minor: u32) -> bool {
    let last = if minor < 2 { Op::RECLAIM_COMPLETE } else { Op::REMOVEXATTR };
    (Op::ACCESS..=last).contains(&operation)
}

/// Returns true if an operation fails without a current file handle. RECLAIM_COMPLETE and
/// LAYOUTRETURN are not included, because they need a file handle only with some arguments.
#[must_use]
pub fn needs_current_handle(operation: OperationNumber) -> bool {
    let rule = rule(operation, 2);
    rule.is_ok_and(|rule| matches!(rule.needs, Needs::Current | Needs::Both))
}

/// The operations of NFSv4.0 that servers of NFSv4.1 and later must not implement.
const FORBIDDEN: OperationSet = OperationSet::of(&[
    Op::OPEN_CONFIRM,
    Op::RENEW,
    Op::SETCLIENTID,
    Op::SETCLIENTID_CONFIRM,
    Op::RELEASE_LOCKOWNER,
]);

/// The operations that need no file handle.
const NO_HANDLE: OperationSet = OperationSet::of(&[
    Op::BACKCHANNEL_CTL,
    Op::BIND_CONN_TO_SESSION,
    Op::CREATE_SESSION,
    Op::DELEGPURGE,
    Op::DESTROY_CLIENTID,
    Op::DESTROY_SESSION,
    Op::EXCHANGE_ID,
    Op::FREE_STATEID,
    Op::GETDEVICEINFO,
    Op::LAYOUTRETURN,
    Op::PUTFH,
    Op::PUTPUBFH,
    Op::PUTROOTFH,
    Op::RECLAIM_COMPLETE,
    Op::SEQUENCE,
    Op::SET_SSV,
    Op::TEST_STATEID,
]);
