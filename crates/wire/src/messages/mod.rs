//! The arguments and results of all procedures, grouped by subject.
//!
//! Invariant: each structure lists its fields in the draft's order and states its size. The code
//! for a structure's unions and heap fields is in the same module.

mod authentication;
mod back_control;
mod batch;
mod data;
mod directory;
mod lock;
mod object;
mod open;
mod ranges;
mod recovery;
mod session;

pub use crate::section::Empty;
pub use authentication::{
    AuthMethod, AuthRequest, AuthResult, ClientAuth, ClientAuthResult, CredentialData,
    GssProcedure, GssService, SecurityMethods, ServerAuth, ServerAuthResult, ServerProof,
};
pub use back_control::{LockReady, Recall};
pub use batch::{
    BatchRequest, BatchSubmit, Completion, Completions, FileChunk, HurryUp, TransferDirection,
};
pub use data::{
    AppendDirect, AppendInline, AppendResult, Commit, CommitResult, InlineData, Placement,
    ReadDirect, ReadDirectResult, ReadInline, ReadInlineResult, WriteDirect, WriteInline,
    WriteResult,
};
pub use directory::{
    ReadDirectory, ReadDirectoryDirect, ReadDirectoryDirectResult, ReadDirectoryResult,
};
pub use lock::{Lock, LockConflict, LockOptions, LockResult, LockTest, LockType, Unlock};
pub use object::{
    Access, AccessResult, CacheHintRequest, Create, CreateResult, DirectResult, DirectoryChanged,
    FileAttributesResult, FsAttributesResult, GetAttributes, GetAttributesDirect, Link,
    LinkTextResult, Lookup, LookupResult, NewObject, OneHandle, ReadLinkDirect, Remove, Rename,
    RenameResult, SetAttributesDirect, SetAttributesInline, SetAttributesResult, Verify,
};
pub use open::{
    AccessEntry, Close, DelegReturn, Delegation, DelegationType, HandOver, HandOverResult, Open,
    OpenCreation, OpenDowngrade, OpenFlags, OpenResult, OpenTarget, SpaceLimit,
};
pub use ranges::{CopyRange, CopyResult, FileRange, Seek, SeekResult};
pub use recovery::{
    CachedResponse, DiscardResponses, FenceAccess, FenceObject, FenceUpdate, FencingList,
    FetchedResults, GetFencingList, SetFencingList,
};
pub use session::{
    ChannelUse, ChannelsResult, ClientConnect, ClientConnectAuth, ClientConnectAuthResult,
    ClientConnectResult, ConnectBind, ConnectBindResult, RegisterCred, RegisterCredResult,
    ReleaseCred, SessionOptions,
};
