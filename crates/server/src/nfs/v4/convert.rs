//! Converts statuses and change information from operations on files to NFS version 4.

use dafs_files::outcome::Outcome;
use dafs_nfs_state::Nfs4Error;
use dafs_nfs_wire::nfs4::{Status, types};
use dafs_ops::Fault;
use dafs_types::{ChangeInfo, FileHandle};

/// Returns the NFS status for a fault.
pub(super) fn status_of(fault: impl Into<Fault>) -> Status {
    match fault.into() {
        Fault::NotPermitted => Status::Perm,
        Fault::NotFound => Status::NoEnt,
        Fault::Io | Fault::LockBroken => Status::Io,
        Fault::NoDevice => Status::Nxio,
        Fault::Access | Fault::Fenced | Fault::NotAuthorized | Fault::KeyMismatch => Status::Access,
        Fault::Exists => Status::Exist,
        Fault::CrossDevice => Status::XDev,
        Fault::NotDirectory => Status::NotDir,
        Fault::IsDirectory => Status::IsDir,
        Fault::Invalid | Fault::TransferTooBig => Status::Inval,
        Fault::TooBig => Status::FBig,
        Fault::NoSpace => Status::NoSpc,
        Fault::ReadOnly => Status::RoFs,
        Fault::TooManyLinks => Status::MLink,
        Fault::NameTooLong => Status::NameTooLong,
        Fault::NotEmpty => Status::NotEmpty,
        Fault::Quota => Status::DQuot,
        Fault::Stale => Status::Stale,
        Fault::BadHandle => Status::BadHandle,
        Fault::BadCookie => Status::BadCookie,
        Fault::NotSupported => Status::NotSupp,
        Fault::BadType => Status::WrongType,
        Fault::IsSymlink => Status::Symlink,
        Fault::TooSmall | Fault::EntryTooLong => Status::TooSmall,
        Fault::OpenLacksAccess => Status::OpenMode,
        Fault::ShareDenied => Status::ShareDenied,
        Fault::NameHeldOpen => Status::FileOpen,
        Fault::RangeLocked => Status::Locked,
        Fault::LockRange => Status::LockRange,
        Fault::Denied => Status::Denied,
        Fault::Deadlock => Status::Deadlock,
        Fault::Grace => Status::Grace,
        Fault::NoGrace => Status::NoGrace,
        Fault::Expired => Status::Expired,
        Fault::StaleState => Status::StaleStateId,
        Fault::OldState => Status::OldStateId,
        Fault::BadState => Status::BadStateId,
        Fault::StaleClient | Fault::NoClient => Status::StaleClientId,
        Fault::Busy | Fault::Resource | Fault::WouldWait | Fault::Limit | Fault::Unavailable(_) => {
            Status::Delay
        }
        Fault::NoXattr => Status::NoXattr,
        Fault::XattrTooBig => Status::XattrTooBig,
        Fault::Broken | Fault::Front(_) => Status::ServerFault,
    }
}

/// Returns the NFS status for an error of the session state.
pub(super) fn status_of_machine(error: Nfs4Error) -> Status {
    Status::from_number(error.number()).unwrap_or(Status::ServerFault)
}

/// Returns the NFS status for a failed outcome.
pub(super) fn failure_of(outcome: &Outcome) -> Status {
    match &outcome.result {
        Ok(_) => Status::ServerFault,
        Err(refusal) => status_of(refusal.fault),
    }
}

/// Converts the change information of a directory. It is never atomic, because processes of this
/// host may change the directory, too.
pub(super) fn change(change: ChangeInfo) -> types::ChangeInfo {
    types::ChangeInfo { atomic: change.atomic, before: change.before, after: change.after }
}

/// Returns an id for the file system of an object, computed from the part of the handle that
/// identifies the file system.
pub(super) fn file_system_of(handle: &FileHandle) -> types::FsId {
    let half = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&handle.0[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    types::FsId { major: half(0), minor: half(8) }
}
