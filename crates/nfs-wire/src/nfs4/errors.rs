//! The errors that each operation may return, as data (RFC 8881 sections 15.2 and 15.3, RFC 7862
//! section 11.2, RFC 8276 section 8.5).
//!
//! Invariant: there is a row for each operation and each callback; a missing row does not compile.
//!
//! These lists depart from the specifications in one case: COPY may also return `OFFLOAD_NO_REQS`.
//! The specification defines results for this status, but its list for COPY omits it. Other
//! omissions are kept: the lists for GETFH, IO_ADVISE, OFFLOAD_CANCEL and OFFLOAD_STATUS lack
//! errors that any operation of a session may return.

use super::status::{Status, StatusSet};
use super::table::{CallbackKind, OperationKind};

/// Errors that any operation of a session may return.
const SESSION: StatusSet = CB_SESSION.and(StatusSet::of(&[Status::DeadSession]));
/// Errors that any callback of a session may return.
const CB_SESSION: StatusSet = StatusSet::of(&[
    Status::Delay,
    Status::OpNotInSession,
    Status::RepTooBig,
    Status::RepTooBigToCache,
    Status::ReqTooBig,
    Status::RetryUncachedRep,
    Status::TooManyOps,
]);
/// Errors of operations on the current file handle.
const FILE: StatusSet = StatusSet::of(&[
    Status::FhExpired,
    Status::Moved,
    Status::NoFileHandle,
    Status::ServerFault,
    Status::Stale,
]);
/// Errors of operations with a state id.
const STATE: StatusSet = StatusSet::of(&[
    Status::AdminRevoked,
    Status::BadStateId,
    Status::DelegRevoked,
    Status::Expired,
    Status::OldStateId,
]);
/// Errors of data servers.
const PNFS: StatusSet = StatusSet::of(&[Status::PnfsIoHole, Status::PnfsNoLayout]);
/// Errors of operations that use space.
const SPACE: StatusSet = StatusSet::of(&[Status::DQuot, Status::FBig, Status::NoSpc]);
/// Errors of operations with a name.
const NAME: StatusSet = StatusSet::of(&[Status::BadChar, Status::BadName, Status::NameTooLong]);

/// Declares a function that returns the errors of an operation. A row lists groups of errors, and
/// after the bar single errors.
macro_rules! errors {
    ($(#[$doc:meta])* $function:ident($kind:ident);
        $($variant:ident: $($group:ident)* | $($status:ident)*;)*) => {
        $(#[$doc])*
        #[must_use]
        pub(super) const fn $function(kind: $kind) -> StatusSet {
            match kind {
                $($kind::$variant => {
                    const SET: StatusSet =
                        StatusSet::of(&[$(Status::$status),*])$(.and($group))*;
                    SET
                })*
            }
        }
    };
}

errors! {
    /// Returns the errors that the operation may return.
    errors_of(OperationKind);
    Access: SESSION FILE | Access BadXdr Inval Io;
    Close: SESSION FILE | AdminRevoked BadStateId BadXdr Expired LocksHeld OldStateId
        WrongCred;
    Commit: SESSION FILE | Access BadXdr Io IsDir Symlink WrongType;
    Create: SESSION FILE NAME | Access AttrNotSupp BadOwner BadType BadXdr DQuot Exist Inval
        Io MLink NoSpc NotDir Perm RoFs UnsafeCompound;
    DelegPurge: SESSION | BadXdr NotSupp ServerFault WrongCred;
    DelegReturn: SESSION FILE STATE | BadXdr Inval NotSupp WrongCred;
    GetAttr: SESSION FILE | Access BadXdr Grace Inval Io WrongType;
    GetFh: | FhExpired Moved NoFileHandle OpNotInSession Stale;
    Link: SESSION FILE NAME | Access BadXdr DQuot Exist FileOpen Grace Inval Io IsDir MLink
        NoSpc NotDir NotSupp RoFs Symlink WrongSec WrongType XDev;
    Lock: SESSION FILE | Access AdminRevoked BadRange BadStateId BadXdr Deadlock Denied
        Expired Grace Inval IsDir LockNotSupp LockRange NoGrace OldStateId OpenMode
        ReclaimBad ReclaimConflict RoFs Symlink WrongCred WrongType;
    LockT: SESSION | Access BadRange BadXdr Denied Expired FhExpired Grace Inval IsDir
        LockRange Moved NoFileHandle RoFs Stale Symlink WrongCred WrongType;
    LockU: SESSION FILE | Access AdminRevoked BadRange BadStateId BadXdr Expired Inval
        LockRange OldStateId WrongCred;
    Lookup: SESSION FILE NAME | Access BadXdr Inval Io NoEnt NotDir Symlink WrongSec;
    LookupP: SESSION FILE | Access Io NoEnt NotDir Symlink WrongSec;
    NVerify: SESSION FILE | Access AttrNotSupp BadChar BadXdr Grace Inval Io Same
        UnknownLayoutType WrongType;
    Open: SESSION FILE STATE SPACE NAME | Access AttrNotSupp BadOwner BadXdr
        DelegAlreadyWanted Exist Grace Inval Io IsDir NoEnt NoGrace NotDir Perm ReclaimBad
        ReclaimConflict RoFs ShareDenied Symlink UnsafeCompound WrongSec WrongType;
    OpenAttr: SESSION FILE | Access BadXdr DQuot Io NoEnt NoSpc NotSupp RoFs UnsafeCompound
        WrongType;
    OpenConfirm: | NotSupp;
    OpenDowngrade: SESSION FILE | AdminRevoked BadStateId BadXdr Expired Inval OldStateId
        RoFs WrongCred;
    PutFh: SESSION | BadHandle BadXdr Moved ServerFault Stale WrongSec;
    PutPubFh: SESSION | ServerFault WrongSec;
    PutRootFh: SESSION | ServerFault WrongSec;
    Read: SESSION FILE STATE PNFS | Access BadXdr Grace Inval Io IsDir Locked OpenMode
        PartnerNoAuth Symlink WrongType;
    ReadDir: SESSION FILE | Access BadCookie BadXdr Inval Io NotDir NotSame TooSmall;
    ReadLink: SESSION FILE | Access Inval Io WrongType;
    Remove: SESSION FILE NAME | Access BadXdr FileOpen Grace Inval Io NoEnt NotDir NotEmpty
        RoFs;
    Rename: SESSION FILE NAME | Access BadXdr DQuot Exist FileOpen Grace Inval Io MLink
        NoEnt NoSpc NotDir NotEmpty RoFs WrongSec XDev;
    Renew: | NotSupp;
    RestoreFh: FILE | DeadSession OpNotInSession RepTooBig RepTooBigToCache ReqTooBig
        RetryUncachedRep TooManyOps WrongSec;
    SaveFh: FILE | DeadSession OpNotInSession RepTooBig RepTooBigToCache ReqTooBig
        RetryUncachedRep TooManyOps;
    SecInfo: SESSION FILE NAME | Access BadXdr Inval NoEnt NotDir;
    SetAttr: SESSION FILE STATE SPACE | Access AttrNotSupp BadChar BadOwner BadXdr Grace
        Inval Io Locked OpenMode Perm RoFs UnknownLayoutType WrongType;
    SetClientId: | NotSupp;
    SetClientIdConfirm: | NotSupp;
    Verify: SESSION FILE | Access AttrNotSupp BadChar BadXdr Grace Inval Io NotSame
        UnknownLayoutType WrongType;
    Write: SESSION FILE STATE PNFS SPACE | Access BadXdr Grace Inval Io IsDir Locked
        OpenMode RoFs Symlink WrongType;
    ReleaseLockOwner: | NotSupp;
    BackchannelCtl: SESSION | BadXdr Inval NoEnt;
    BindConnToSession: | BadSession BadSessionDigest BadXdr DeadSession Delay Inval
        NotOnlyOp RepTooBig RepTooBigToCache ReqTooBig RetryUncachedRep ServerFault
        TooManyOps;
    ExchangeId: | BadChar BadXdr ClidInUse DeadSession Delay EncrAlgUnsupp HashAlgUnsupp
        Inval NoEnt NotOnlyOp NotSame RepTooBig RepTooBigToCache ReqTooBig RetryUncachedRep
        ServerFault TooManyOps;
    CreateSession: | BadXdr ClidInUse DeadSession Delay Inval NoEnt NoSpc NotOnlyOp
        RepTooBig RepTooBigToCache ReqTooBig RetryUncachedRep SeqMisordered ServerFault
        StaleClientId TooManyOps TooSmall WrongCred;
    DestroySession: | BackChanBusy BadSession BadXdr CbPathDown ConnNotBoundToSession
        DeadSession Delay NotOnlyOp RepTooBig RepTooBigToCache ReqTooBig RetryUncachedRep
        ServerFault StaleClientId TooManyOps WrongCred;
    FreeStateId: SESSION | BadStateId BadXdr LocksHeld OldStateId ServerFault WrongCred;
    GetDirDelegation: SESSION FILE | Access BadXdr DirDelegUnavail Grace Inval Io NotDir
        NotSupp;
    GetDeviceInfo: SESSION | BadXdr Inval NoEnt NotSupp ServerFault TooSmall
        UnknownLayoutType;
    GetDeviceList: | NotSupp;
    LayoutCommit: SESSION FILE | Access AdminRevoked AttrNotSupp BadIoMode BadLayout BadXdr
        DelegRevoked Expired FBig Grace Inval Io IsDir NoGrace NotSupp ReclaimBad
        ReclaimConflict Symlink UnknownLayoutType WrongCred;
    LayoutGet: SESSION FILE | Access AdminRevoked BadIoMode BadLayout BadStateId BadXdr
        DQuot DelegRevoked Grace Inval Io LayoutTryLater LayoutUnavailable Locked NoSpc
        NotSupp OldStateId OpenMode RecallConflict TooSmall UnknownLayoutType WrongType;
    LayoutReturn: SESSION FILE STATE | BadXdr Grace Inval IsDir NoGrace NotSupp
        UnknownLayoutType WrongCred WrongType;
    SecInfoNoName: SESSION FILE | Access BadXdr Inval NoEnt NotDir NotSupp;
    Sequence: | BadHighSlot BadSession BadSlot BadXdr ConnNotBoundToSession DeadSession
        Delay RepTooBig RepTooBigToCache ReqTooBig RetryUncachedRep SeqFalseRetry
        SeqMisordered SequencePos TooManyOps;
    SetSsv: SESSION | BadSessionDigest BadXdr Inval;
    TestStateId: SESSION | BadXdr ServerFault;
    WantDelegation: SESSION FILE | BadXdr DelegAlreadyWanted Grace Inval Io NoGrace NotSupp
        RecallConflict ReclaimBad ReclaimConflict WrongType;
    DestroyClientId: | BadXdr ClientIdBusy DeadSession Delay NotOnlyOp RepTooBig
        RepTooBigToCache ReqTooBig RetryUncachedRep ServerFault StaleClientId TooManyOps
        WrongCred;
    ReclaimComplete: SESSION FILE | BadXdr CompleteAlready Inval WrongCred WrongType;
    Allocate: SESSION FILE STATE SPACE | Access BadXdr Grace Inval Io IsDir NotSupp OpenMode
        RoFs Symlink WrongType;
    Copy: SESSION FILE STATE PNFS SPACE | Access BadXdr Grace Inval Io IsDir Locked
        OffloadDenied OffloadNoReqs OpenMode PartnerNoAuth PartnerNotSupp RoFs Symlink
        WrongType;
    CopyNotify: SESSION FILE STATE PNFS | Access BadXdr Grace Inval Io IsDir Locked OpenMode
        Symlink WrongType;
    Deallocate: SESSION FILE STATE | Access BadXdr FBig Grace Inval Io IsDir NotSupp
        OpenMode RoFs Symlink WrongType;
    IoAdvise: FILE STATE | Access BadXdr DeadSession Delay FBig Grace Inval Io IsDir NotSupp
        OpNotInSession RetryUncachedRep Symlink TooManyOps WrongType;
    LayoutError: SESSION FILE STATE | BadXdr Grace Inval IsDir NoGrace NotSupp
        UnknownLayoutType WrongCred WrongType;
    LayoutStats: SESSION FILE STATE | BadXdr Grace Inval IsDir NoGrace NotSupp
        UnknownLayoutType WrongCred WrongType;
    OffloadCancel: | AdminRevoked BadStateId BadXdr CompleteAlready DeadSession Delay
        Expired Grace NotSupp OldStateId OpNotInSession ServerFault TooManyOps;
    OffloadStatus: | AdminRevoked BadStateId BadXdr CompleteAlready DeadSession Delay
        Expired Grace NotSupp OldStateId OpNotInSession ServerFault TooManyOps;
    ReadPlus: SESSION FILE STATE PNFS | Access BadXdr Grace Inval Io IsDir Locked NotSupp
        OpenMode PartnerNoAuth Symlink WrongType;
    Seek: SESSION FILE STATE PNFS | Access BadXdr Grace Inval Io IsDir Locked NotSupp
        OpenMode Symlink UnionNotSupp WrongType;
    WriteSame: SESSION FILE STATE PNFS SPACE | Access BadXdr Grace Inval Io IsDir Locked
        NotSupp OpenMode RoFs Symlink WrongType;
    Clone: SESSION FILE STATE SPACE | Access BadXdr Grace Inval Io IsDir NotSupp OpenMode
        RoFs Symlink WrongType XDev;
    GetXattr: SESSION FILE | Access BadXdr Inval Io NameTooLong NoXattr NotSupp Perm
        TooSmall WrongType XattrTooBig;
    SetXattr: SESSION FILE | Access BadChar BadXdr DQuot Exist Inval Io NameTooLong NoSpc
        NoXattr NotSupp Perm RoFs WrongType XattrTooBig;
    ListXattrs: SESSION FILE | Access BadCookie BadXdr Inval Io NoXattr NotSupp Perm
        TooSmall WrongType;
    RemoveXattr: SESSION FILE | Access BadChar BadXdr DQuot Exist Inval Io NameTooLong NoSpc
        NoXattr NotSupp Perm RoFs WrongType;
    Illegal: | BadXdr OpIllegal;
}

errors! {
    /// Returns the errors that the callback may return.
    callback_errors_of(CallbackKind);
    GetAttr: CB_SESSION | BadHandle BadXdr Inval ServerFault;
    Recall: CB_SESSION | BadHandle BadStateId BadXdr ServerFault;
    LayoutRecall: CB_SESSION | BadHandle BadIoMode BadStateId BadXdr Inval NoMatchingLayout
        NotSupp UnknownLayoutType WrongType;
    Notify: CB_SESSION | BadHandle BadStateId BadXdr Inval NotSupp ServerFault;
    PushDeleg: CB_SESSION | BadHandle BadXdr Inval NotSupp RejectDeleg ServerFault
        WrongType;
    RecallAny: CB_SESSION | BadXdr Inval;
    RecallableObjAvail: CB_SESSION | BadXdr Inval NotSupp ServerFault;
    RecallSlot: CB_SESSION | BadHighSlot BadXdr;
    Sequence: | BadHighSlot BadSession BadSlot BadXdr ConnNotBoundToSession Delay RepTooBig
        RepTooBigToCache ReqTooBig RetryUncachedRep SeqFalseRetry SeqMisordered SequencePos
        TooManyOps;
    WantsCancelled: CB_SESSION | BadXdr NotSupp ServerFault;
    NotifyLock: CB_SESSION | BadHandle BadStateId BadXdr NotSupp ServerFault;
    NotifyDeviceId: CB_SESSION | BadXdr Inval NotSupp ServerFault;
    Offload: CB_SESSION | BadHandle BadStateId BadXdr ServerFault;
    Illegal: | BadXdr OpIllegal;
}
