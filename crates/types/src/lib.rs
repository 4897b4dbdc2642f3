//! The basic types of all other crates: identifiers, status codes, limits, file attributes,
//! credentials and names; time and randomness, the two external inputs that state machines take as
//! arguments; and the interface for sharing a file's blocks.
//!
//! Invariant: this crate does no I/O, allocates nothing without a limit, and does not know the
//! layout of messages. Names and numbers are those of the DAFS 1.0 draft (draft-wittle-dafs-00),
//! whose sections are cited in the comments.
#![forbid(unsafe_code)]

pub mod acl;
pub mod attributes;
pub mod clone_source;
pub mod fence;
pub mod file;
pub mod identity;
pub mod ids;
pub mod limits;
pub mod names;
pub mod permission;
pub mod placement;
pub mod quick_map;
pub mod random;
pub mod secret;
pub mod status;
pub mod time;

pub use acl::{Ace, AceFlags, AceKind, AceRights};
pub use attributes::{
    DeviceNumber, FileAttributes, FileSystemAttributes, ObjectType, SetAttributes, SetTime,
};
pub use clone_source::CloneSource;
pub use fence::{FenceAccess, FenceObject, FenceUpdate, SpaceLimit};
pub use file::{
    AccessMask, CacheHint, CachePattern, ChangeInfo, CreateMode, DeleteDisposition, OpenClaim,
    RemoveMode, ShareAccess, ShareDeny, ShareKey, Stability,
};
pub use identity::{AuthType, Credentials, NO_ID, NoSuchId};
pub use ids::{
    ClientId, CookieVerifier, CredHandle, FileHandle, FsHandle, ReaddirCookie, RequestId,
    RmrContext, RmrTarget, SequenceNumber, SessionId, StateId, StreamId, Verifier,
};
pub use placement::{ChannelCount, ChannelIndex, placement_hash};
pub use quick_map::QuickMap;
pub use random::Random;
pub use secret::{ExposedSecret, check_secret};
pub use status::Status;
pub use time::{Clock, Entropy, Moment, Timestamp};
