//! Bounds on counts that only the wire format needs; the others are in
//! `dafs_types::limits`. Invariant: no decoder walks more elements than its limit.

use dafs_types::limits;

/// Protocol version of every message (the draft gives no number; see
/// `docs/spec/gaps.md`).
pub const PROTOCOL_VERSION: u32 = 1;
/// Bytes in a request or response header.
pub const HEADER_BYTES: usize = 40;
/// Every message, counted array and join starts on a multiple of this.
pub const ALIGNMENT: usize = 8;
/// Most file chunks in one request of a batch.
pub const FILE_CHUNKS_MAX: usize = 64;
/// Most requests in one batch.
pub const BATCH_REQUESTS_MAX: usize = 256;
/// Most completions in one message: as many as fit the largest message.
pub const COMPLETIONS_MAX: usize = limits::REQUEST_BYTES_MAX / 24;
/// Most fence identities in one list.
pub const FENCE_IDS_MAX: usize = limits::FENCE_IDS_MAX;
/// Most authentication methods a server lists.
pub const AUTH_METHODS_MAX: usize = 16;
/// Most supplementary groups in one set of credentials (Linux NGROUPS_MAX is
/// 65,536; a 4 KB message carries under 1,024).
pub const GROUPS_MAX: usize = 1024;
/// Longest authentication token, GSS name or object identifier, in bytes. What fits the
/// message at hand is less: the first message of a connection has 4 KiB. Tickets that carry
/// many group memberships have 12 KiB, 48,000 bytes at most; a client with such a one
/// negotiates larger requests first (CLIENT_CONNECT), and authenticates then.
pub const TOKEN_BYTES_MAX: usize = 60 * 1024;
/// Longest token in an answer to an authentication, in bytes: the first answers of a
/// connection have 4 KiB, and no mechanism's acceptor says more.
pub const REPLY_TOKEN_BYTES_MAX: usize = 3072;
/// Longest user name or host-based principal, in bytes.
pub const PRINCIPAL_BYTES_MAX: usize = 1024;
/// Most directory entries in one answer: each takes 16 bytes, 16 of attributes and a name.
pub const ENTRIES_MAX: usize = limits::TRANSFER_BYTES_MAX as usize / 40;
/// Longest encoded attribute block without a list or a MIME type, in bytes: all fixed
/// fields and two owners.
pub const PLAIN_ATTRIBUTE_BYTES_MAX: usize = 512 + 2 * (limits::OWNER_BYTES_MAX + 16);
/// Longest encoded access control list, in bytes: each entry has 16 and its name.
pub const ACL_BYTES_MAX: usize =
    16 + limits::ACL_ENTRIES_MAX * (16 + (4 + limits::ACL_WHO_BYTES_MAX).next_multiple_of(8));
/// Longest encoded attribute block of all, in bytes.
pub const ATTRIBUTE_BYTES_MAX: usize =
    PLAIN_ATTRIBUTE_BYTES_MAX + ACL_BYTES_MAX + limits::MIME_TYPE_BYTES_MAX + 17;

const _: () = assert!(HEADER_BYTES.is_multiple_of(ALIGNMENT));
const _: () = assert!(ATTRIBUTE_BYTES_MAX + 512 < limits::REQUEST_BYTES_MAX);
const _: () = assert!(REPLY_TOKEN_BYTES_MAX + 512 < limits::CONNECT_MESSAGE_BYTES);
const _: () = assert!(TOKEN_BYTES_MAX + 512 < limits::REQUEST_BYTES_MAX);
