//! Converts faults to DAFS statuses and back. This is needed as long as code outside the DAFS front
//! uses `Status`.
//!
//! Invariant: a status that was converted to a fault converts back to the same status.

use dafs_types::Status;

use crate::done::Refusal;
use crate::fault::Fault;

impl From<Fault> for Status {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::NotPermitted => Self::Perm,
            Fault::NotFound | Fault::NoXattr => Self::NoEnt,
            Fault::Io => Self::Io,
            Fault::NoDevice => Self::Nxio,
            Fault::Access | Fault::OpenLacksAccess | Fault::Fenced => Self::Access,
            Fault::Exists => Self::Exist,
            Fault::CrossDevice => Self::XDev,
            Fault::NotDirectory => Self::NotDir,
            Fault::IsDirectory => Self::IsDir,
            Fault::Invalid => Self::Inval,
            Fault::TooBig | Fault::XattrTooBig => Self::FBig,
            Fault::NoSpace => Self::NoSpc,
            Fault::ReadOnly => Self::RoFs,
            Fault::TooManyLinks => Self::MLink,
            Fault::NameTooLong => Self::NameTooLong,
            Fault::NotEmpty => Self::NotEmpty,
            Fault::Quota => Self::DQuot,
            Fault::Stale => Self::Stale,
            Fault::BadHandle => Self::BadHandle,
            Fault::BadCookie => Self::BadCookie,
            Fault::NotSupported => Self::NotSupp,
            Fault::BadType => Self::BadType,
            Fault::Busy | Fault::WouldWait | Fault::Unavailable(_) => Self::Delay,
            Fault::Resource | Fault::Limit => Self::Resource,
            Fault::IsSymlink => Self::Symlink,
            Fault::TooSmall => Self::TooSmall,
            Fault::Broken => Self::ServerFault,
            Fault::EntryTooLong => Self::ReaddirNoSpc,
            Fault::TransferTooBig => Self::WriteTooBig,
            Fault::ShareDenied => Self::ShareDenied,
            Fault::KeyMismatch => Self::KeyMismatch,
            Fault::NameHeldOpen => Self::DenyDispConflict,
            Fault::RangeLocked => Self::Locked,
            Fault::LockBroken => Self::LockBroken,
            Fault::LockRange => Self::LockRange,
            Fault::Denied => Self::Denied,
            Fault::Deadlock => Self::Deadlock,
            Fault::Grace => Self::Grace,
            Fault::BadState => Self::BadStateId,
            Fault::Expired | Fault::NoGrace => Self::Expired,
            Fault::StaleState => Self::StaleStateId,
            Fault::OldState => Self::OldStateId,
            Fault::StaleClient => Self::StaleClientId,
            Fault::NotAuthorized => Self::NotAuthorized,
            Fault::NoClient => Self::NotAuthenticated,
            Fault::Front(number) => match Self::from_number(number) {
                Some(Self::Ok) | None => Self::ServerFault,
                Some(status) => status,
            },
        }
    }
}

/// Converts a status to a fault, for code that reports errors as DAFS statuses. `Status::Ok` is not
/// a fault and becomes an internal error.
impl From<Status> for Fault {
    fn from(status: Status) -> Self {
        match status {
            Status::Ok | Status::ServerFault => Self::Broken,
            Status::Perm => Self::NotPermitted,
            Status::NoEnt => Self::NotFound,
            Status::Io => Self::Io,
            Status::Nxio => Self::NoDevice,
            Status::Access => Self::Access,
            Status::Exist => Self::Exists,
            Status::XDev => Self::CrossDevice,
            Status::NotDir => Self::NotDirectory,
            Status::IsDir => Self::IsDirectory,
            Status::Inval => Self::Invalid,
            Status::FBig => Self::TooBig,
            Status::NoSpc => Self::NoSpace,
            Status::RoFs => Self::ReadOnly,
            Status::MLink => Self::TooManyLinks,
            Status::NameTooLong => Self::NameTooLong,
            Status::NotEmpty => Self::NotEmpty,
            Status::DQuot => Self::Quota,
            Status::Stale => Self::Stale,
            Status::BadHandle => Self::BadHandle,
            Status::BadCookie => Self::BadCookie,
            Status::NotSupp => Self::NotSupported,
            Status::BadType => Self::BadType,
            Status::Delay => Self::Busy,
            Status::Resource => Self::Resource,
            Status::Symlink => Self::IsSymlink,
            Status::TooSmall => Self::TooSmall,
            Status::ReaddirNoSpc => Self::EntryTooLong,
            Status::WriteTooBig => Self::TransferTooBig,
            Status::ShareDenied => Self::ShareDenied,
            Status::KeyMismatch => Self::KeyMismatch,
            Status::DenyDispConflict => Self::NameHeldOpen,
            Status::Locked => Self::RangeLocked,
            Status::LockBroken => Self::LockBroken,
            Status::LockRange => Self::LockRange,
            Status::Denied => Self::Denied,
            Status::Deadlock => Self::Deadlock,
            Status::Grace => Self::Grace,
            Status::Expired => Self::Expired,
            Status::StaleStateId => Self::StaleState,
            Status::OldStateId => Self::OldState,
            Status::BadStateId => Self::BadState,
            Status::StaleClientId => Self::StaleClient,
            Status::NotAuthorized => Self::NotAuthorized,
            Status::NotAuthenticated => Self::NoClient,
            Status::NoDev
            | Status::Same
            | Status::NotSame
            | Status::FhExpired
            | Status::WrongSec
            | Status::ClidInUse
            | Status::Moved
            | Status::NoFileHandle
            | Status::MinorVersMismatch
            | Status::BadSeqId
            | Status::LeaseMoved
            | Status::VersMismatch
            | Status::IllegalProt
            | Status::IllegalState
            | Status::UnknownSession
            | Status::NoXidMatch
            | Status::NotFound
            | Status::RdmaReadChannelUnusable
            | Status::ChainForm
            | Status::ChainBroken
            | Status::GssContinueInit
            | Status::BadSession
            | Status::NoCreds
            | Status::CrHandConflict
            | Status::DenyDispNotSupp
            | Status::BackChannelUnusable
            | Status::Chksum
            | Status::BatchRequestNotFound
            | Status::PrefetchNotSupported
            | Status::WhoaCowboy
            | Status::NoPartialInfo => Self::Front(status.number()),
        }
    }
}

impl From<Status> for Refusal<'_> {
    fn from(status: Status) -> Self {
        Fault::from(status).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_comes_back_from_its_fault() {
        for &status in Status::ALL.iter().filter(|status| **status != Status::Ok) {
            assert_eq!(Status::from(Fault::from(status)), status);
        }
    }

    #[test]
    fn no_fault_is_a_success() {
        let parameters = [Fault::Unavailable(7), Fault::Front(0), Fault::Front(3)];
        for &fault in Fault::ALL.iter().chain(&parameters) {
            assert_ne!(Status::from(fault), Status::Ok);
        }
    }
}
