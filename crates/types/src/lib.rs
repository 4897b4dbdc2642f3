//! The ground every other crate stands on: identifiers, status codes, limits,
//! file attributes, credentials, names, and the two outside influences a state machine
//! may take as arguments (time and randomness), and how a file offers its blocks to be shared.
//!
//! Invariant: nothing here does I/O, allocates without a bound or knows how a
//! message is laid out. Names and numbers are those of the DAFS 1.0 draft
//! (draft-wittle-dafs-00); sections are cited beside each item.
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
