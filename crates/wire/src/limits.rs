//! Limits that only the message format needs; all other limits are in `dafs_types::limits`.
//!
//! Invariant: no decoder iterates over more elements than its limit.

use dafs_types::limits;

/// The protocol version in every message. The draft gives no number; see `docs/spec/gaps.md`.
pub const PROTOCOL_VERSION: u32 = 1;
/// The size of a request or reply header in bytes.
pub const HEADER_BYTES: usize = 40;
/// The alignment, in bytes, of messages, counted arrays and other structures with variable fields.
pub const ALIGNMENT: usize = 8;
/// The limit for file chunks in one request of a batch.
pub const FILE_CHUNKS_MAX: usize = 64;
/// The limit for requests in one batch.
pub const BATCH_REQUESTS_MAX: usize = 256;
/// The limit for completions in one message: the number that fits in the largest message.
pub const COMPLETIONS_MAX: usize = limits::REQUEST_BYTES_MAX / 24;
/// The limit for fence identities in one list.
pub const FENCE_IDS_MAX: usize = limits::FENCE_IDS_MAX;
/// The limit for the authentication methods that a server lists.
pub const AUTH_METHODS_MAX: usize = 16;
/// The limit for supplementary groups in one set of credentials. Linux allows 65,536 (NGROUPS_MAX),
/// but a message of 4 KiB has room for fewer than 1,024.
pub const GROUPS_MAX: usize = 1024;
/// The maximum length in bytes of an authentication token, GSS name or object identifier. Some
/// messages have room for less: the first message of a connection has at most 4 KiB. A Kerberos
/// ticket with many group memberships often takes 12 KiB, and may take up to 48,000 bytes. A client
/// with such a ticket first negotiates larger requests (CLIENT_CONNECT) and then authenticates.
pub const TOKEN_BYTES_MAX: usize = 60 * 1024;
/// The maximum length in bytes of a token in the reply to an authentication. The first replies of a
/// connection have at most 4 KiB, and no mechanism's acceptor sends more.
pub const REPLY_TOKEN_BYTES_MAX: usize = 3072;
/// The maximum length in bytes of a user name or host-based principal.
pub const PRINCIPAL_BYTES_MAX: usize = 1024;
/// The limit for directory entries in one reply. Each entry takes at least 40 bytes: 16 bytes for
/// the entry, 16 bytes of attributes, and a name.
pub const ENTRIES_MAX: usize = limits::TRANSFER_BYTES_MAX as usize / 40;
/// The maximum length in bytes of an encoded attribute block without an access control list or a
/// MIME type: all fixed fields and two owners.
pub const PLAIN_ATTRIBUTE_BYTES_MAX: usize = 512 + 2 * (limits::OWNER_BYTES_MAX + 16);
/// The maximum length in bytes of an encoded access control list. Each entry takes 16 bytes, plus
/// the bytes of the name of its user or group.
pub const ACL_BYTES_MAX: usize =
    16 + limits::ACL_ENTRIES_MAX * (16 + (4 + limits::ACL_WHO_BYTES_MAX).next_multiple_of(8));
/// The maximum length in bytes of an encoded attribute block.
pub const ATTRIBUTE_BYTES_MAX: usize =
    PLAIN_ATTRIBUTE_BYTES_MAX + ACL_BYTES_MAX + limits::MIME_TYPE_BYTES_MAX + 17;

const _: () = assert!(HEADER_BYTES.is_multiple_of(ALIGNMENT));
const _: () = assert!(ATTRIBUTE_BYTES_MAX + 512 < limits::REQUEST_BYTES_MAX);
const _: () = assert!(REPLY_TOKEN_BYTES_MAX + 512 < limits::CONNECT_MESSAGE_BYTES);
const _: () = assert!(TOKEN_BYTES_MAX + 512 < limits::REQUEST_BYTES_MAX);
