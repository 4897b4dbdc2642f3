//! The types of calls and answers, which are generated from the table of operations.
//!
//! Invariant: the types of an operation's arguments and results are those in its row of the table.

use crate::xdr::{Reader, Shape, Writer, Xdr, XdrError, xdr};

use super::attributes::Fattr;
use super::bitmap::Bitmap;
use super::copy::{
    CloneArgs, CopyArgs, CopyNotifyArgs, CopyNotifyDone, CopyRequirements, CopyResult,
    ListXattrsArgs, ListXattrsDone, OffloadStatusDone, SecInfoDone, SecInfoStyle, SetXattrArgs,
    XattrValue,
};
use super::data::{
    CommitArgs, IoAdviseArgs, RangeArgs, ReadArgs, ReadDone, ReadPlusDone, SeekArgs, SeekDone,
    WriteArgs, WriteDone, WriteSameArgs,
};
use super::directory::{
    AccessDone, AccessMask, CreateArgs, CreateDone, ReadDirArgs, ReadDirDone, RenameArgs,
    RenameDone, SetAttrArgs, SetAttrResult,
};
use super::layout::{
    GetDeviceInfoArgs, GetDeviceInfoResult, GetDeviceListArgs, GetDeviceListDone, LayoutCommitArgs,
    LayoutErrorArgs, LayoutGetArgs, LayoutGetResult, LayoutReturnArgs, LayoutStatsArgs,
};
use super::lock::{
    LockArgs, LockDenied, LockResult, LockTArgs, LockTResult, LockUArgs, TestStateIdArgs,
    TestStateIdDone,
};
use super::open::{
    CloseArgs, Delegation, DirDelegation, GetDirDelegationArgs, OpenArgs, OpenConfirmArgs,
    OpenDone, OpenDowngradeArgs, WantDelegationArgs,
};
use super::session::{
    BackchannelCtlArgs, BindConnToSession, CreateSessionArgs, CreateSessionDone, ExchangeIdArgs,
    ExchangeIdDone, SequenceArgs, SequenceDone, SetClientIdArgs, SetClientIdDone, SetSsvArgs,
    SsvDigest,
};
use super::status::Status;
use super::table::{OperationKind, operation_table};
use super::types::{
    ChangeInfo, ClientId, FileHandle, LinkText, LockType, Name, SessionId, StateId, StateOwner,
    Verifier, WriteResponse,
};

/// The results of an operation that has results only if it succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<T> {
    /// The operation succeeded with these results.
    Ok(T),
    /// The operation failed with this status, which is not [`Status::Ok`].
    Failed(Status),
}

impl<'b, T: Xdr<'b>> Xdr<'b> for Reply<T> {
    const LEAST: usize = 4;
    const SHAPE: &'static Shape = &Shape::Union {
        name: "Reply",
        on: <Status as Xdr<'b>>::SHAPE,
        arms: &[(0, "Ok", T::SHAPE)],
        other: Some(("Failed", &Shape::Void)),
    };
    #[inline]
    fn decode(reader: &mut Reader<'b>) -> Result<Self, XdrError> {
        match Status::decode(reader)? {
            Status::Ok => T::decode(reader).map(Self::Ok),
            status => Ok(Self::Failed(status)),
        }
    }
    #[inline]
    fn encode(&self, writer: &mut Writer) {
        match self {
            Self::Ok(results) => {
                Status::Ok.encode(writer);
                results.encode(writer);
            }
            Self::Failed(Status::Ok) => writer.fail(XdrError::Value { kind: "Reply", value: 0 }),
            Self::Failed(status) => status.encode(writer),
        }
    }
}

/// The results of an operation, which contain its status.
pub trait Outcome: Sized {
    /// Returns the status of the operation.
    fn status(&self) -> Status;
    /// Returns the results of an operation that failed with this status. If the results for this
    /// status contain other values, these are empty or zero.
    fn failed(status: Status) -> Self;
}

impl Outcome for Status {
    fn status(&self) -> Status {
        *self
    }
    fn failed(status: Status) -> Self {
        status
    }
}

impl<T> Outcome for Reply<T> {
    fn status(&self) -> Status {
        match self {
            Self::Ok(_) => Status::Ok,
            Self::Failed(status) => *status,
        }
    }
    fn failed(status: Status) -> Self {
        Self::Failed(status)
    }
}

impl Outcome for SetAttrResult {
    fn status(&self) -> Status {
        self.status
    }
    fn failed(status: Status) -> Self {
        Self { status, attributes: Bitmap::default() }
    }
}

impl LockDenied<'_> {
    /// A lock of the whole file by an unknown owner.
    const UNKNOWN: Self = Self {
        offset: 0,
        length: u64::MAX,
        kind: LockType::Write,
        owner: StateOwner { client: ClientId(0), owner: crate::xdr::Opaque(&[]) },
    };
}

impl Outcome for LockResult<'_> {
    fn status(&self) -> Status {
        match self {
            Self::Locked(_) => Status::Ok,
            Self::Denied(_) => Status::Denied,
            Self::Failed(status) => *status,
        }
    }
    fn failed(status: Status) -> Self {
        match status {
            Status::Denied => Self::Denied(LockDenied::UNKNOWN),
            status => Self::Failed(status),
        }
    }
}

impl Outcome for LockTResult<'_> {
    fn status(&self) -> Status {
        match self {
            Self::Free => Status::Ok,
            Self::Denied(_) => Status::Denied,
            Self::Failed(status) => *status,
        }
    }
    fn failed(status: Status) -> Self {
        match status {
            Status::Denied => Self::Denied(LockDenied::UNKNOWN),
            status => Self::Failed(status),
        }
    }
}

impl Outcome for GetDeviceInfoResult<'_> {
    fn status(&self) -> Status {
        match self {
            Self::Found(_) => Status::Ok,
            Self::TooSmall(_) => Status::TooSmall,
            Self::Failed(status) => *status,
        }
    }
    fn failed(status: Status) -> Self {
        match status {
            Status::TooSmall => Self::TooSmall(0),
            status => Self::Failed(status),
        }
    }
}

impl Outcome for LayoutGetResult<'_> {
    fn status(&self) -> Status {
        match self {
            Self::Granted(_) => Status::Ok,
            Self::TryLater(_) => Status::LayoutTryLater,
            Self::Failed(status) => *status,
        }
    }
    fn failed(status: Status) -> Self {
        match status {
            Status::LayoutTryLater => Self::TryLater(false),
            status => Self::Failed(status),
        }
    }
}

impl Outcome for CopyResult {
    fn status(&self) -> Status {
        match self {
            Self::Started(_) => Status::Ok,
            Self::Requirements(_) => Status::OffloadNoReqs,
            Self::Failed(status) => *status,
        }
    }
    fn failed(status: Status) -> Self {
        match status {
            Status::OffloadNoReqs => Self::Requirements(CopyRequirements::default()),
            status => Self::Failed(status),
        }
    }
}

macro_rules! operations {
    ($($variant:ident $number:literal $name:literal [$($args:ty)?] [$result:ty]
        $family:ident $minor:literal $requirement:ident $position:ident $handles:ident
        $effect:ident;)*) => {
        xdr! {
            /// An operation of a compound, with its arguments.
            union Operation<'b> on u32 {
                $(#[doc = concat!("`", $name, "`, number ", $number, ".")]
                $number => $variant $(($args))?,)*
                /// A number that is not assigned in the minor version. The length of its arguments
                /// is unknown, so the rest of the compound cannot be decoded.
                _ => Illegal,
            }
            /// The result of an operation, with its status.
            union Answer<'b> on u32 {
                $(#[doc = concat!("`", $name, "`, number ", $number, ".")]
                $number => $variant($result),)*
                /// The result for a number that no operation has.
                10_044 => Illegal(Status),
            }
        }

        impl Operation<'_> {
            /// Returns the row of the operation in the table.
            #[must_use]
            pub const fn kind(&self) -> OperationKind {
                match self {
                    $(Self::$variant { .. } => OperationKind::$variant,)*
                    Self::Illegal(_) => OperationKind::Illegal,
                }
            }
        }

        impl Answer<'_> {
            /// Returns the row of the operation in the table.
            #[must_use]
            pub const fn kind(&self) -> OperationKind {
                match self {
                    $(Self::$variant { .. } => OperationKind::$variant,)*
                    Self::Illegal(_) => OperationKind::Illegal,
                }
            }

            /// Returns the status of the operation.
            #[must_use]
            pub fn status(&self) -> Status {
                match self {
                    $(Self::$variant(result) => Outcome::status(result),)*
                    Self::Illegal(status) => *status,
                }
            }

            /// Returns the result of an operation that failed with this status. If the results for
            /// this status contain other values, these are empty or zero.
            #[must_use]
            pub fn failed(kind: OperationKind, status: Status) -> Self {
                match kind {
                    $(OperationKind::$variant => Self::$variant(Outcome::failed(status)),)*
                    OperationKind::Illegal => Self::Illegal(status),
                }
            }
        }
    };
}

operation_table!(operations);
