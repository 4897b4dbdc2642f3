//! The table of all DAFS procedures (draft 4.3, 6.1.10).
//!
//! Invariant: the number, name, messages, chain class, replay class, rights and reply limit of a
//! procedure are in one row of this table. All code that dispatches, counts, traces, fuzzes or
//! documents procedures iterates over the table. If a row lacks one of these values, or a handler
//! lacks a row, the code does not compile.

use std::marker::PhantomData;

use dafs_types::limits::{LINK_TEXT_BYTES_MAX, OWNER_BYTES_MAX, RESPONSE_BYTES_MAX};

use crate::limits::{
    ATTRIBUTE_BYTES_MAX, AUTH_METHODS_MAX, HEADER_BYTES, PRINCIPAL_BYTES_MAX, REPLY_TOKEN_BYTES_MAX,
};
use crate::messages::*;
use crate::section::{FieldLayout, Section};

/// The positions in a chain that a procedure may have (draft 4.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChainClass {
    /// The procedure may not be in a chain.
    Special,
    /// The procedure may have any position in a chain, but no request that modifies the file system
    /// may follow it.
    BulkFetch,
    /// The procedure may have any position in a chain, because it changes nothing.
    Simple,
    /// The procedure may have any position in a chain that is before every bulk fetch.
    ModifiesFiles,
    /// The procedure may have any position in a chain, although it changes locks.
    ModifiesLocks,
    /// The procedure is not allowed on the operation channel at all.
    BackControl,
}

/// Says which results of a procedure the response cache stores (draft 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplayClass {
    /// No result, because repeating the request is harmless or because the request concerns the
    /// session itself.
    Never,
    /// The result, if the request asks for it with the SAVE flag.
    OnRequest,
    /// The result of every request.
    Always,
    /// The result of every request, after all submitted transfers are complete (draft 5.2.3).
    WhenComplete,
}

/// The clients that may call a procedure. This is checked before the object is examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RightsClass {
    /// Any connected client, even before authentication.
    Anybody,
    /// Any client with an authenticated session.
    Session,
    /// Only a trusted client.
    TrustedClient,
    /// The owner of the object or a trusted client.
    Owner,
    /// Any user that may read the object, or its attributes.
    Reader,
    /// Any user that may write to the object.
    Writer,
    /// Any user that may search or change the directory.
    Directory,
    /// The client that holds the open, lock or delegation named in the request.
    StateHolder,
    /// Only the server, on the back-control channel.
    Server,
}

/// The limit for the length of a successful reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplyBound {
    /// The size of the header and the fixed section.
    Fixed,
    /// The size of the header and the fixed section, plus this many bytes of heap.
    Heap(usize),
    /// The maximum reply size that was negotiated for the session.
    Session,
}

/// Returns the maximum number of heap bytes that a string or token of `length` bytes takes.
const fn counted(length: usize) -> usize {
    length + 12
}

/// Calls a macro with all rows of the table.
macro_rules! procedure_table {
    ($apply:ident) => {
        $apply! {
            ClientAuth 100 "CLIENT_AUTH" (ClientAuth<'a>) (ClientAuthResult<'a>)
                Special Never Anybody (ReplyBound::Heap(counted(REPLY_TOKEN_BYTES_MAX)));
            ClientConnect 101 "CLIENT_CONNECT" (ClientConnect<'a>) (ClientConnectResult)
                Special Never Anybody (ReplyBound::Fixed);
            ClientConnectAuth 102 "CLIENT_CONNECT_AUTH"
                (ClientConnectAuth<'a>) (ClientConnectAuthResult<'a>)
                Special Never Anybody (ReplyBound::Heap(counted(REPLY_TOKEN_BYTES_MAX)));
            ConnectBind 103 "CONNECT_BIND" (ConnectBind<'a>) (ConnectBindResult<'a>)
                Special Never Anybody (ReplyBound::Heap(counted(REPLY_TOKEN_BYTES_MAX)));
            Disconnect 104 "DISCONNECT" (Empty) (Empty)
                Special Never Anybody (ReplyBound::Fixed);
            RegisterCred 105 "REGISTER_CRED" (RegisterCred<'a>) (RegisterCredResult)
                Special Never TrustedClient (ReplyBound::Fixed);
            ReleaseCred 106 "RELEASE_CRED" (ReleaseCred) (Empty)
                Special Never TrustedClient (ReplyBound::Fixed);
            SecInfo 108 "SECINFO" (Empty) (SecurityMethods<'a>)
                Special Never Anybody (ReplyBound::Heap(8 + AUTH_METHODS_MAX * (16 + counted(64))));
            ServerAuth 109 "SERVER_AUTH" (ServerAuth) (ServerAuthResult<'a>)
                Special Never Session (ReplyBound::Heap(2 * counted(PRINCIPAL_BYTES_MAX)));
            CheckResponse 110 "CHECK_RESPONSE" (CachedResponse) (Empty)
                Simple OnRequest Session (ReplyBound::Fixed);
            FetchResponse 111 "FETCH_RESPONSE" (CachedResponse) (FetchedResults<'a>)
                Simple OnRequest Session (ReplyBound::Session);
            DiscardResponses 112 "DISCARD_RESPONSES" (DiscardResponses) (Empty)
                Special Never Session (ReplyBound::Fixed);
            Access 113 "ACCESS" (Access) (AccessResult)
                Simple OnRequest Session (ReplyBound::Fixed);
            CacheHint 114 "CACHE_HINT" (CacheHintRequest) (Empty)
                Simple OnRequest Reader (ReplyBound::Fixed);
            Close 115 "CLOSE" (Close) (Empty)
                ModifiesFiles Always StateHolder (ReplyBound::Fixed);
            Commit 116 "COMMIT" (Commit) (CommitResult)
                ModifiesFiles Always Writer (ReplyBound::Fixed);
            Create 117 "CREATE" (Create<'a>) (CreateResult)
                ModifiesFiles Always Directory (ReplyBound::Fixed);
            DelegPurge 118 "DELEGPURGE" (Empty) (Empty)
                ModifiesFiles Always Session (ReplyBound::Fixed);
            DelegReturn 119 "DELEGRETURN" (DelegReturn) (Empty)
                ModifiesFiles Always StateHolder (ReplyBound::Fixed);
            GetFsAttr 122 "GET_FSATTR" (GetAttributes) (FsAttributesResult<'a>)
                BulkFetch Never Reader (ReplyBound::Heap(ATTRIBUTE_BYTES_MAX));
            GetRootHandle 123 "GET_ROOT_HANDLE" (Empty) (OneHandle)
                Simple OnRequest Session (ReplyBound::Fixed);
            GetAttrInline 124 "GETATTR_INLINE" (GetAttributes) (FileAttributesResult<'a>)
                BulkFetch Never Reader (ReplyBound::Heap(ATTRIBUTE_BYTES_MAX));
            GetAttrDirect 125 "GETATTR_DIRECT" (GetAttributesDirect) (DirectResult)
                BulkFetch Never Reader (ReplyBound::Fixed);
            Link 126 "LINK" (Link<'a>) (DirectoryChanged)
                ModifiesFiles Always Directory (ReplyBound::Fixed);
            Lock 127 "LOCK" (Lock) (LockResult<'a>)
                ModifiesLocks Always StateHolder (ReplyBound::Heap(counted(OWNER_BYTES_MAX)));
            LockT 128 "LOCKT" (LockTest<'a>) (LockResult<'a>)
                ModifiesLocks Always Reader (ReplyBound::Heap(counted(OWNER_BYTES_MAX)));
            LockU 129 "LOCKU" (Unlock) (Empty)
                ModifiesLocks Always StateHolder (ReplyBound::Fixed);
            Lookup 130 "LOOKUP" (Lookup<'a>) (LookupResult)
                Simple OnRequest Directory (ReplyBound::Fixed);
            LookupP 131 "LOOKUPP" (OneHandle) (OneHandle)
                Simple OnRequest Directory (ReplyBound::Fixed);
            Null 132 "NULL" (Empty) (Empty)
                Simple OnRequest Session (ReplyBound::Fixed);
            NVerify 133 "NVERIFY" (Verify<'a>) (Empty)
                Simple OnRequest Reader (ReplyBound::Fixed);
            Open 134 "OPEN" (Open<'a>) (OpenResult<'a>)
                ModifiesFiles Always Directory (ReplyBound::Heap(counted(PRINCIPAL_BYTES_MAX)));
            OpenDowngrade 135 "OPEN_DOWNGRADE" (OpenDowngrade) (Empty)
                ModifiesLocks Always StateHolder (ReplyBound::Fixed);
            OpenAttr 136 "OPENATTR" (OneHandle) (OneHandle)
                Simple OnRequest Reader (ReplyBound::Fixed);
            ReadInline 137 "READ_INLINE" (ReadInline) (ReadInlineResult<'a>)
                BulkFetch Never Reader (ReplyBound::Session);
            ReadDirect 138 "READ_DIRECT" (ReadDirect<'a>) (ReadDirectResult)
                BulkFetch Never Reader (ReplyBound::Fixed);
            ReadDirInline 139 "READDIR_INLINE" (ReadDirectory) (ReadDirectoryResult<'a>)
                BulkFetch Never Reader (ReplyBound::Session);
            ReadDirDirect 140 "READDIR_DIRECT" (ReadDirectoryDirect<'a>) (ReadDirectoryDirectResult)
                BulkFetch Never Reader (ReplyBound::Fixed);
            ReadLinkInline 141 "READLINK_INLINE" (OneHandle) (LinkTextResult<'a>)
                BulkFetch Never Reader (ReplyBound::Heap(counted(LINK_TEXT_BYTES_MAX)));
            ReadLinkDirect 142 "READLINK_DIRECT" (ReadLinkDirect) (DirectResult)
                BulkFetch Never Reader (ReplyBound::Fixed);
            Remove 143 "REMOVE" (Remove<'a>) (DirectoryChanged)
                ModifiesFiles Always Directory (ReplyBound::Fixed);
            Rename 144 "RENAME" (Rename<'a>) (RenameResult)
                ModifiesFiles Always Directory (ReplyBound::Fixed);
            SetAttrInline 145 "SETATTR_INLINE" (SetAttributesInline<'a>) (SetAttributesResult)
                ModifiesFiles Always Owner (ReplyBound::Fixed);
            SetAttrDirect 146 "SETATTR_DIRECT" (SetAttributesDirect) (SetAttributesResult)
                ModifiesFiles Always Owner (ReplyBound::Fixed);
            Verify 147 "VERIFY" (Verify<'a>) (Empty)
                Simple OnRequest Reader (ReplyBound::Fixed);
            BatchSubmit 148 "BATCH_SUBMIT" (BatchSubmit<'a>) (Completions<'a>)
                ModifiesFiles WhenComplete Session (ReplyBound::Session);
            WriteInline 149 "WRITE_INLINE" (WriteInline<'a>) (WriteResult)
                ModifiesFiles Always Writer (ReplyBound::Fixed);
            WriteDirect 150 "WRITE_DIRECT" (WriteDirect<'a>) (WriteResult)
                ModifiesFiles Always Writer (ReplyBound::Fixed);
            BcGetAttr 151 "BC_GETATTR" (GetAttributes) (FileAttributesResult<'a>)
                BackControl Never Server (ReplyBound::Heap(ATTRIBUTE_BYTES_MAX));
            BcNull 152 "BC_NULL" (Empty) (Empty)
                BackControl Never Server (ReplyBound::Fixed);
            BcRecall 153 "BC_RECALL" (Recall) (Empty)
                BackControl Never Server (ReplyBound::Fixed);
            BcLockReady 154 "BC_LOCK_READY" (LockReady) (Empty)
                BackControl Never Server (ReplyBound::Fixed);
            BcBatchCompletion 155 "BC_BATCH_COMPLETION" (Completions<'a>) (Empty)
                BackControl Never Server (ReplyBound::Fixed);
            AppendInline 156 "APPEND_INLINE" (AppendInline<'a>) (AppendResult)
                ModifiesFiles Always Writer (ReplyBound::Fixed);
            AppendDirect 157 "APPEND_DIRECT" (AppendDirect) (AppendResult)
                ModifiesFiles Always Writer (ReplyBound::Fixed);
            GetFencingList 158 "GET_FENCING_LIST" (GetFencingList) (FencingList<'a>)
                Special Never Owner (ReplyBound::Session);
            SetFencingList 159 "SET_FENCING_LIST" (SetFencingList<'a>) (Empty)
                Special Never Owner (ReplyBound::Fixed);
            HurryUp 160 "HURRY_UP" (HurryUp) (Empty)
                ModifiesFiles Always Session (ReplyBound::Fixed);
            // An extension (`docs/spec/gaps.md`, "Files handed over").
            HandOver 161 "HAND_OVER" (HandOver) (HandOverResult)
                Simple OnRequest Reader (ReplyBound::Fixed);
            // An extension (`docs/spec/gaps.md`, "Several channels").
            Channels 162 "CHANNELS" (Empty) (ChannelsResult)
                Simple OnRequest Session (ReplyBound::Fixed);
            // Extensions (`docs/spec/gaps.md`, "Holes and copies").
            Allocate 163 "ALLOCATE" (FileRange) (Empty)
                ModifiesFiles Always Writer (ReplyBound::Fixed);
            Deallocate 164 "DEALLOCATE" (FileRange) (Empty)
                ModifiesFiles Always Writer (ReplyBound::Fixed);
            Seek 165 "SEEK" (Seek) (SeekResult)
                Simple OnRequest Reader (ReplyBound::Fixed);
            CloneRange 166 "CLONE_RANGE" (CopyRange) (Empty)
                ModifiesFiles Always Writer (ReplyBound::Fixed);
            CopyRange 167 "COPY_RANGE" (CopyRange) (CopyResult)
                ModifiesFiles Always Writer (ReplyBound::Fixed);
        }
    };
}
pub(crate) use procedure_table;

/// A message type, combined with a lifetime that the type's row in the table may or may not use.
type With<'a, T> = (PhantomData<&'a ()>, T);

/// The constants of a section, accessible through [`With`].
trait Constants {
    const SIZE: usize;
    const FIELDS: &'static [FieldLayout];
}

impl<T: Section<'static>> Constants for With<'static, T> {
    const SIZE: usize = T::SIZE;
    const FIELDS: &'static [FieldLayout] = T::FIELDS;
}

macro_rules! procedures {
    ($($variant:ident $number:literal $name:literal ($($request:tt)*) ($($response:tt)*)
        $chain:ident $replay:ident $rights:ident ($bound:expr);)*) => {
        /// A procedure of the protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Procedure {
            $(#[doc = concat!("`", $name, "`, number ", $number, ".")] $variant = $number,)*
        }

        impl Procedure {
            /// All procedures, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the procedure with this number; `None` if there is none.
            #[must_use]
            #[inline]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Returns the procedure's name in the draft, without the draft's prefix.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Returns the positions in a chain that the procedure may have.
            #[must_use]
            #[inline]
            pub const fn chain_class(self) -> ChainClass {
                match self {
                    $(Self::$variant => ChainClass::$chain,)*
                }
            }

            /// Returns which results of the procedure the response cache stores.
            #[must_use]
            #[inline]
            pub const fn replay_class(self) -> ReplayClass {
                match self {
                    $(Self::$variant => ReplayClass::$replay,)*
                }
            }

            /// Returns the clients that may call the procedure.
            #[must_use]
            #[inline]
            pub const fn rights_class(self) -> RightsClass {
                match self {
                    $(Self::$variant => RightsClass::$rights,)*
                }
            }

            /// Returns the limit for the length of a successful reply.
            #[must_use]
            #[inline]
            pub const fn reply_bound(self) -> ReplyBound {
                match self {
                    $(Self::$variant => $bound,)*
                }
            }

            /// Returns the size of the arguments' fixed section in bytes.
            #[must_use]
            pub const fn request_fixed_bytes(self) -> usize {
                match self {
                    $(Self::$variant => {
                        type Of<'a> = With<'a, $($request)*>;
                        <Of<'static> as Constants>::SIZE
                    },)*
                }
            }

            /// Returns the size of the results' fixed section in bytes.
            #[must_use]
            pub const fn response_fixed_bytes(self) -> usize {
                match self {
                    $(Self::$variant => {
                        type Of<'a> = With<'a, $($response)*>;
                        <Of<'static> as Constants>::SIZE
                    },)*
                }
            }

            /// Returns the layout of the fields in the arguments' fixed section.
            #[must_use]
            pub const fn request_fields(self) -> &'static [FieldLayout] {
                match self {
                    $(Self::$variant => {
                        type Of<'a> = With<'a, $($request)*>;
                        <Of<'static> as Constants>::FIELDS
                    },)*
                }
            }

            /// Returns the layout of the fields in the results' fixed section.
            #[must_use]
            pub const fn response_fields(self) -> &'static [FieldLayout] {
                match self {
                    $(Self::$variant => {
                        type Of<'a> = With<'a, $($response)*>;
                        <Of<'static> as Constants>::FIELDS
                    },)*
                }
            }
        }
    };
}

procedure_table!(procedures);

impl Procedure {
    /// Returns the procedure's number in messages.
    #[must_use]
    #[inline]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Returns the procedure's index in [`Procedure::ALL`], for tables indexed by procedure.
    #[must_use]
    pub fn index(self) -> usize {
        Self::ALL.binary_search(&self).unwrap_or_default()
    }

    /// Returns the maximum length of a successful reply in bytes, including the header.
    #[must_use]
    pub const fn reply_bytes_max(self) -> usize {
        match self.reply_bound() {
            ReplyBound::Fixed => HEADER_BYTES + self.response_fixed_bytes(),
            ReplyBound::Heap(bytes) => HEADER_BYTES + self.response_fixed_bytes() + bytes,
            ReplyBound::Session => RESPONSE_BYTES_MAX,
        }
    }

    /// Returns true if the server sends this request to the client.
    #[must_use]
    pub const fn is_back_control(self) -> bool {
        matches!(self.chain_class(), ChainClass::BackControl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rise_and_come_back() {
        assert!(Procedure::ALL.is_sorted());
        for (index, &procedure) in Procedure::ALL.iter().enumerate() {
            assert_eq!(Procedure::from_number(procedure.number()), Some(procedure));
            assert_eq!(procedure.index(), index);
        }
        for number in [0, 99, 107, 120, 121, 168] {
            assert_eq!(Procedure::from_number(number), None);
        }
        assert_eq!(Procedure::ALL.len(), 65);
    }

    #[test]
    fn replay_follows_the_chain_class() {
        for &procedure in Procedure::ALL {
            let expected = match procedure.chain_class() {
                ChainClass::Special | ChainClass::BulkFetch | ChainClass::BackControl => {
                    ReplayClass::Never
                }
                ChainClass::Simple => ReplayClass::OnRequest,
                ChainClass::ModifiesFiles if procedure == Procedure::BatchSubmit => {
                    ReplayClass::WhenComplete
                }
                ChainClass::ModifiesFiles | ChainClass::ModifiesLocks => ReplayClass::Always,
            };
            assert_eq!(procedure.replay_class(), expected, "{}", procedure.name());
        }
    }

    #[test]
    fn every_reply_fits_the_largest_response() {
        for &procedure in Procedure::ALL {
            assert!(procedure.reply_bytes_max() <= RESPONSE_BYTES_MAX, "{}", procedure.name());
        }
    }
}
