//! ONC RPC version 2 (RFC 5531): calls, replies, and the records that carry them.
//!
//! Invariant: if the identifier of a call could be read, there is a reply to the call, whatever
//! else is wrong with it. [`CallError`] contains this reply.

mod auth;
pub mod gss;
mod message;
mod records;

pub use auth::{
    AUTH_BYTES_MAX, Auth, AuthSys, Credential, GROUPS_MAX, MACHINE_NAME_BYTES_MAX, START_TLS,
    flavor,
};
pub use message::{
    AcceptStat, Accepted, AuthStat, Call, CallError, MessageType, Outcome, RPC_VERSION, Refused,
    RejectStat, Rejected, Reply, ReplyBody, ReplyStat, Target, Versions, decode_call, encode_call,
    encode_reply, failure, success,
};
pub use records::{begin_record, end_record};
