//! The table of all operations and callbacks of NFSv4.1 and NFSv4.2 (RFC 8881 sections 17, 18 and
//! 20; RFC 7862 sections 13, 15 and 16; RFC 8276 section 8.4).
//!
//! Invariant: all properties of an operation are in one row of this table: number, name, messages,
//! family, minor version, requirement, position, file handles and effect. Code that decodes,
//! encodes, dispatches, counts, traces, tests or documents operations iterates over the table.

use super::errors::{callback_errors_of, errors_of};
use super::status::StatusSet;

/// The subject of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Attributes of files and comparison with them.
    Attributes,
    /// Copies within a server or between servers.
    Copy,
    /// The data of files and the space that it occupies.
    Data,
    /// Delegations of files and directories.
    Delegation,
    /// Names in directories.
    Directory,
    /// The current and the saved file handle.
    Handle,
    /// Layouts and devices of pNFS.
    Layout,
    /// Locks of byte ranges.
    Lock,
    /// Opens and share reservations.
    Open,
    /// Security flavors of objects.
    Security,
    /// Clients, sessions, connections and slots.
    Session,
    /// State ids and recovery.
    State,
    /// Extended attributes of files.
    Xattr,
}

/// The requirement that the specification makes on servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Requirement {
    /// Every server must implement the operation.
    Required,
    /// A server should implement the operation.
    Recommended,
    /// A server may implement the operation.
    Optional,
    /// A server must not implement the operation, which belongs to minor version 0.
    Forbidden,
}

/// The positions that an operation may have in a compound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// Only the first position. This is the position of SEQUENCE.
    First,
    /// Any position after SEQUENCE.
    AfterSequence,
    /// Any position after SEQUENCE, or the only operation of a compound.
    AfterSequenceOrAlone,
    /// Only as the only operation of a compound.
    Alone,
}

/// The file handles that an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Handles {
    /// The operation needs no file handle.
    None,
    /// The current file handle.
    Current,
    /// The current file handle, but only with some arguments.
    CurrentForSome,
    /// The saved file handle.
    Saved,
    /// The current and the saved file handle.
    Both,
}

/// The effect of executing an operation a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The operation can be executed again without harm.
    Idempotent,
    /// The operation changes names, contents or state. A second execution could do harm or have
    /// another result.
    Changes,
}

/// Calls `$then!` with the rows of all operations: variant, number, name, arguments, results,
/// family, minor version, requirement, position, file handles and effect.
macro_rules! operation_table {
    ($then:ident) => {
        $then! {
            Access 3 "ACCESS" [AccessMask] [Reply<AccessDone>]
                Attributes 1 Required AfterSequence Current Idempotent;
            Close 4 "CLOSE" [CloseArgs] [Reply<StateId>]
                Open 1 Required AfterSequence Current Changes;
            Commit 5 "COMMIT" [CommitArgs] [Reply<Verifier>]
                Data 1 Required AfterSequence Current Idempotent;
            Create 6 "CREATE" [CreateArgs<'b>] [Reply<CreateDone>]
                Directory 1 Required AfterSequence Current Changes;
            DelegPurge 7 "DELEGPURGE" [ClientId] [Status]
                Delegation 1 Optional AfterSequence None Changes;
            DelegReturn 8 "DELEGRETURN" [StateId] [Status]
                Delegation 1 Optional AfterSequence Current Changes;
            GetAttr 9 "GETATTR" [Bitmap] [Reply<Fattr<'b>>]
                Attributes 1 Required AfterSequence Current Idempotent;
            GetFh 10 "GETFH" [] [Reply<FileHandle<'b>>]
                Handle 1 Required AfterSequence Current Idempotent;
            Link 11 "LINK" [Name<'b>] [Reply<ChangeInfo>]
                Directory 1 Optional AfterSequence Both Changes;
            Lock 12 "LOCK" [LockArgs<'b>] [LockResult<'b>]
                Lock 1 Required AfterSequence Current Changes;
            LockT 13 "LOCKT" [LockTArgs<'b>] [LockTResult<'b>]
                Lock 1 Required AfterSequence Current Idempotent;
            LockU 14 "LOCKU" [LockUArgs] [Reply<StateId>]
                Lock 1 Required AfterSequence Current Changes;
            Lookup 15 "LOOKUP" [Name<'b>] [Status]
                Directory 1 Required AfterSequence Current Idempotent;
            LookupP 16 "LOOKUPP" [] [Status]
                Directory 1 Required AfterSequence Current Idempotent;
            NVerify 17 "NVERIFY" [Fattr<'b>] [Status]
                Attributes 1 Required AfterSequence Current Idempotent;
            Open 18 "OPEN" [OpenArgs<'b>] [Reply<OpenDone<'b>>]
                Open 1 Required AfterSequence Current Changes;
            OpenAttr 19 "OPENATTR" [bool] [Status]
                Open 1 Optional AfterSequence Current Changes;
            OpenConfirm 20 "OPEN_CONFIRM" [OpenConfirmArgs] [Reply<StateId>]
                Open 0 Forbidden AfterSequence Current Changes;
            OpenDowngrade 21 "OPEN_DOWNGRADE" [OpenDowngradeArgs] [Reply<StateId>]
                Open 1 Required AfterSequence Current Changes;
            PutFh 22 "PUTFH" [FileHandle<'b>] [Status]
                Handle 1 Required AfterSequence None Idempotent;
            PutPubFh 23 "PUTPUBFH" [] [Status]
                Handle 1 Required AfterSequence None Idempotent;
            PutRootFh 24 "PUTROOTFH" [] [Status]
                Handle 1 Required AfterSequence None Idempotent;
            Read 25 "READ" [ReadArgs] [Reply<ReadDone<'b>>]
                Data 1 Required AfterSequence Current Idempotent;
            ReadDir 26 "READDIR" [ReadDirArgs] [Reply<ReadDirDone<'b>>]
                Directory 1 Required AfterSequence Current Idempotent;
            ReadLink 27 "READLINK" [] [Reply<LinkText<'b>>]
                Directory 1 Optional AfterSequence Current Idempotent;
            Remove 28 "REMOVE" [Name<'b>] [Reply<ChangeInfo>]
                Directory 1 Required AfterSequence Current Changes;
            Rename 29 "RENAME" [RenameArgs<'b>] [Reply<RenameDone>]
                Directory 1 Required AfterSequence Both Changes;
            Renew 30 "RENEW" [ClientId] [Status]
                State 0 Forbidden AfterSequence None Idempotent;
            RestoreFh 31 "RESTOREFH" [] [Status]
                Handle 1 Required AfterSequence Saved Idempotent;
            SaveFh 32 "SAVEFH" [] [Status]
                Handle 1 Required AfterSequence Current Idempotent;
            SecInfo 33 "SECINFO" [Name<'b>] [Reply<SecInfoDone<'b>>]
                Security 1 Required AfterSequence Current Idempotent;
            SetAttr 34 "SETATTR" [SetAttrArgs<'b>] [SetAttrResult]
                Attributes 1 Required AfterSequence Current Changes;
            SetClientId 35 "SETCLIENTID" [SetClientIdArgs<'b>] [Reply<SetClientIdDone>]
                Session 0 Forbidden AfterSequence None Changes;
            SetClientIdConfirm 36 "SETCLIENTID_CONFIRM" [SetClientIdDone] [Status]
                Session 0 Forbidden AfterSequence None Changes;
            Verify 37 "VERIFY" [Fattr<'b>] [Status]
                Attributes 1 Required AfterSequence Current Idempotent;
            Write 38 "WRITE" [WriteArgs<'b>] [Reply<WriteDone>]
                Data 1 Required AfterSequence Current Changes;
            ReleaseLockOwner 39 "RELEASE_LOCKOWNER" [StateOwner<'b>] [Status]
                Lock 0 Forbidden AfterSequence None Changes;
            BackchannelCtl 40 "BACKCHANNEL_CTL" [BackchannelCtlArgs<'b>] [Status]
                Session 1 Required AfterSequence None Changes;
            BindConnToSession 41 "BIND_CONN_TO_SESSION" [BindConnToSession]
                [Reply<BindConnToSession>]
                Session 1 Required Alone None Changes;
            ExchangeId 42 "EXCHANGE_ID" [ExchangeIdArgs<'b>] [Reply<ExchangeIdDone<'b>>]
                Session 1 Required AfterSequenceOrAlone None Changes;
            CreateSession 43 "CREATE_SESSION" [CreateSessionArgs<'b>] [Reply<CreateSessionDone>]
                Session 1 Required AfterSequenceOrAlone None Changes;
            DestroySession 44 "DESTROY_SESSION" [SessionId] [Status]
                Session 1 Required AfterSequenceOrAlone None Changes;
            FreeStateId 45 "FREE_STATEID" [StateId] [Status]
                State 1 Required AfterSequence None Changes;
            GetDirDelegation 46 "GET_DIR_DELEGATION" [GetDirDelegationArgs]
                [Reply<DirDelegation>]
                Delegation 1 Optional AfterSequence Current Changes;
            GetDeviceInfo 47 "GETDEVICEINFO" [GetDeviceInfoArgs] [GetDeviceInfoResult<'b>]
                Layout 1 Optional AfterSequence None Idempotent;
            GetDeviceList 48 "GETDEVICELIST" [GetDeviceListArgs] [Reply<GetDeviceListDone>]
                Layout 1 Optional AfterSequence Current Idempotent;
            LayoutCommit 49 "LAYOUTCOMMIT" [LayoutCommitArgs<'b>] [Reply<Option<u64>>]
                Layout 1 Optional AfterSequence Current Changes;
            LayoutGet 50 "LAYOUTGET" [LayoutGetArgs] [LayoutGetResult<'b>]
                Layout 1 Optional AfterSequence Current Changes;
            LayoutReturn 51 "LAYOUTRETURN" [LayoutReturnArgs<'b>] [Reply<Option<StateId>>]
                Layout 1 Optional AfterSequence CurrentForSome Changes;
            SecInfoNoName 52 "SECINFO_NO_NAME" [SecInfoStyle] [Reply<SecInfoDone<'b>>]
                Security 1 Recommended AfterSequence Current Idempotent;
            Sequence 53 "SEQUENCE" [SequenceArgs] [Reply<SequenceDone>]
                Session 1 Required First None Idempotent;
            SetSsv 54 "SET_SSV" [SetSsvArgs<'b>] [Reply<SsvDigest<'b>>]
                Session 1 Required AfterSequence None Changes;
            TestStateId 55 "TEST_STATEID" [TestStateIdArgs] [Reply<TestStateIdDone>]
                State 1 Required AfterSequence None Idempotent;
            WantDelegation 56 "WANT_DELEGATION" [WantDelegationArgs] [Reply<Delegation<'b>>]
                Delegation 1 Optional AfterSequence Current Changes;
            DestroyClientId 57 "DESTROY_CLIENTID" [ClientId] [Status]
                Session 1 Required AfterSequenceOrAlone None Changes;
            ReclaimComplete 58 "RECLAIM_COMPLETE" [bool] [Status]
                State 1 Required AfterSequence CurrentForSome Changes;
            Allocate 59 "ALLOCATE" [RangeArgs] [Status]
                Data 2 Optional AfterSequence Current Changes;
            Copy 60 "COPY" [CopyArgs<'b>] [CopyResult]
                Copy 2 Optional AfterSequence Both Changes;
            CopyNotify 61 "COPY_NOTIFY" [CopyNotifyArgs<'b>] [Reply<CopyNotifyDone<'b>>]
                Copy 2 Optional AfterSequence Current Changes;
            Deallocate 62 "DEALLOCATE" [RangeArgs] [Status]
                Data 2 Optional AfterSequence Current Changes;
            IoAdvise 63 "IO_ADVISE" [IoAdviseArgs] [Reply<Bitmap>]
                Data 2 Optional AfterSequence Current Idempotent;
            LayoutError 64 "LAYOUTERROR" [LayoutErrorArgs] [Status]
                Layout 2 Optional AfterSequence Current Idempotent;
            LayoutStats 65 "LAYOUTSTATS" [LayoutStatsArgs<'b>] [Status]
                Layout 2 Optional AfterSequence Current Idempotent;
            OffloadCancel 66 "OFFLOAD_CANCEL" [StateId] [Status]
                Copy 2 Optional AfterSequence None Changes;
            OffloadStatus 67 "OFFLOAD_STATUS" [StateId] [Reply<OffloadStatusDone>]
                Copy 2 Optional AfterSequence None Idempotent;
            ReadPlus 68 "READ_PLUS" [ReadArgs] [Reply<ReadPlusDone<'b>>]
                Data 2 Optional AfterSequence Current Idempotent;
            Seek 69 "SEEK" [SeekArgs] [Reply<SeekDone>]
                Data 2 Optional AfterSequence Current Idempotent;
            WriteSame 70 "WRITE_SAME" [WriteSameArgs<'b>] [Reply<WriteResponse>]
                Data 2 Optional AfterSequence Current Changes;
            Clone 71 "CLONE" [CloneArgs] [Status]
                Copy 2 Optional AfterSequence Both Changes;
            GetXattr 72 "GETXATTR" [Name<'b>] [Reply<XattrValue<'b>>]
                Xattr 2 Optional AfterSequence Current Idempotent;
            SetXattr 73 "SETXATTR" [SetXattrArgs<'b>] [Reply<ChangeInfo>]
                Xattr 2 Optional AfterSequence Current Changes;
            ListXattrs 74 "LISTXATTRS" [ListXattrsArgs] [Reply<ListXattrsDone<'b>>]
                Xattr 2 Optional AfterSequence Current Idempotent;
            RemoveXattr 75 "REMOVEXATTR" [Name<'b>] [Reply<ChangeInfo>]
                Xattr 2 Optional AfterSequence Current Changes;
        }
    };
}
pub(super) use operation_table;

/// Calls `$then!` with the rows of all callbacks: variant, number, name, arguments, results, minor
/// version and requirement for clients.
macro_rules! callback_table {
    ($then:ident) => {
        $then! {
            GetAttr 3 "CB_GETATTR" [CbGetAttrArgs<'b>] [Reply<Fattr<'b>>] 1 Optional;
            Recall 4 "CB_RECALL" [CbRecallArgs<'b>] [Status] 1 Optional;
            LayoutRecall 5 "CB_LAYOUTRECALL" [CbLayoutRecallArgs<'b>] [Status] 1 Optional;
            Notify 6 "CB_NOTIFY" [CbNotifyArgs<'b>] [Status] 1 Optional;
            PushDeleg 7 "CB_PUSH_DELEG" [CbPushDelegArgs<'b>] [Status] 1 Optional;
            RecallAny 8 "CB_RECALL_ANY" [CbRecallAnyArgs] [Status] 1 Optional;
            RecallableObjAvail 9 "CB_RECALLABLE_OBJ_AVAIL" [CbRecallAnyArgs] [Status] 1 Optional;
            RecallSlot 10 "CB_RECALL_SLOT" [u32] [Status] 1 Required;
            Sequence 11 "CB_SEQUENCE" [CbSequenceArgs] [Reply<CbSequenceDone>] 1 Optional;
            WantsCancelled 12 "CB_WANTS_CANCELLED" [CbWantsCancelledArgs] [Status] 1 Optional;
            NotifyLock 13 "CB_NOTIFY_LOCK" [CbNotifyLockArgs<'b>] [Status] 1 Optional;
            NotifyDeviceId 14 "CB_NOTIFY_DEVICEID" [CbNotifyDeviceIdArgs<'b>] [Status] 1 Optional;
            Offload 15 "CB_OFFLOAD" [CbOffloadArgs<'b>] [Status] 2 Optional;
        }
    };
}
pub(super) use callback_table;

macro_rules! operation_kinds {
    ($($variant:ident $number:literal $name:literal [$($args:ty)?] [$result:ty]
        $family:ident $minor:literal $requirement:ident $position:ident $handles:ident
        $effect:ident;)*) => {
        /// An operation of a compound, identified by its number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum OperationKind {
            $(#[doc = concat!("`", $name, "`, number ", $number, ".")] $variant = $number,)*
            /// `ILLEGAL`, number 10044: the answer to a number that is not assigned.
            Illegal = ILLEGAL,
        }

        impl OperationKind {
            /// All operations except `ILLEGAL`, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the operation with this number, in any minor version; `None` if there is
            /// none.
            #[must_use]
            #[inline]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Returns the properties of the operation.
            #[must_use]
            pub const fn row(self) -> Row {
                match self {
                    $(Self::$variant => Row {
                        kind: self,
                        name: $name,
                        family: Family::$family,
                        minor_version: $minor,
                        requirement: Requirement::$requirement,
                        position: Position::$position,
                        handles: Handles::$handles,
                        effect: Effect::$effect,
                        errors: errors_of(self),
                    },)*
                    Self::Illegal => Row {
                        kind: self,
                        name: "ILLEGAL",
                        family: Family::Session,
                        minor_version: 0,
                        requirement: Requirement::Required,
                        position: Position::AfterSequenceOrAlone,
                        handles: Handles::None,
                        effect: Effect::Idempotent,
                        errors: errors_of(self),
                    },
                }
            }
        }
    };
}

macro_rules! callback_kinds {
    ($($variant:ident $number:literal $name:literal [$($args:ty)?] [$result:ty]
        $minor:literal $requirement:ident;)*) => {
        /// An operation of a callback compound, identified by its number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum CallbackKind {
            $(#[doc = concat!("`", $name, "`, number ", $number, ".")] $variant = $number,)*
            /// `CB_ILLEGAL`, number 10044: the answer to a number that is not assigned.
            Illegal = ILLEGAL,
        }

        impl CallbackKind {
            /// All callbacks except `CB_ILLEGAL`, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the callback with this number; `None` if there is none.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Returns the name of the callback in the specification.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Illegal => "CB_ILLEGAL",
                }
            }

            /// Returns the first minor version that has the callback.
            #[must_use]
            pub const fn minor_version(self) -> u32 {
                match self {
                    $(Self::$variant => $minor,)*
                    Self::Illegal => 0,
                }
            }

            /// Returns the requirement that the specification makes on clients.
            #[must_use]
            pub const fn requirement(self) -> Requirement {
                match self {
                    $(Self::$variant => Requirement::$requirement,)*
                    Self::Illegal => Requirement::Required,
                }
            }
        }
    };
}

/// The number in the answer to an operation or callback whose number is not assigned.
pub const ILLEGAL: u32 = 10_044;

operation_table!(operation_kinds);
callback_table!(callback_kinds);

/// The properties of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The operation that this row describes.
    pub kind: OperationKind,
    /// The name of the operation in the specification, without `OP_`.
    pub name: &'static str,
    /// The subject of the operation.
    pub family: Family,
    /// The first minor version that has the operation; 0 if later ones must not implement it.
    pub minor_version: u32,
    /// The requirement that the specification makes on servers.
    pub requirement: Requirement,
    /// The positions that the operation may have in a compound.
    pub position: Position,
    /// The file handles that the operation needs.
    pub handles: Handles,
    /// The effect of executing the operation a second time.
    pub effect: Effect,
    /// The errors that the operation may return.
    pub errors: StatusSet,
}

impl OperationKind {
    /// Returns the number of the operation in messages.
    #[must_use]
    #[inline]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Returns the name of the operation in the specification, without `OP_`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns the errors that the operation may return.
    #[must_use]
    pub const fn errors(self) -> StatusSet {
        errors_of(self)
    }
}

impl CallbackKind {
    /// Returns the number of the callback in messages.
    #[must_use]
    #[inline]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Returns the errors that the callback may return.
    #[must_use]
    pub const fn errors(self) -> StatusSet {
        callback_errors_of(self)
    }
}
