//! Limits shared by both ends, each with its reason. A peer that goes beyond one
//! gets the protocol's error or loses its connection; nothing grows instead.

/// Largest message either side posts a receive for before sizes are negotiated
/// (draft 3.1: at least 4 KB must be posted for the connect exchange).
pub const CONNECT_MESSAGE_BYTES: usize = 4096;
/// Largest request size a session may negotiate.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// Smallest request size that still carries every request without bulk data.
pub const REQUEST_BYTES_MIN: usize = 2048;
/// Largest response size a session may negotiate.
pub const RESPONSE_BYTES_MAX: usize = 64 * 1024;
/// Smallest response size that still carries every response without bulk data.
pub const RESPONSE_BYTES_MIN: usize = 512;
/// Most credits one session may hold.
pub const CREDITS_MAX: u16 = 256;
/// Most sessions at once by which one client makes use of a server.
pub const CLIENT_CHANNELS_MAX: u16 = 8;
/// Longest file name, in bytes (Linux NAME_MAX).
pub const NAME_BYTES_MAX: usize = 255;
/// Longest file name on the wire, in bytes: each byte of it may be escaped there ([`names`]).
///
/// [`names`]: crate::names
pub const NAME_WIRE_BYTES_MAX: usize = NAME_BYTES_MAX * crate::names::ESCAPE_BYTES;
/// Longest path in one LOOKUP, in bytes (Linux PATH_MAX less the terminator).
pub const PATH_BYTES_MAX: usize = 4095;
/// Most components in one LOOKUP.
pub const PATH_COMPONENTS_MAX: usize = 1024;
/// Longest symbolic link text, in bytes.
pub const LINK_TEXT_BYTES_MAX: usize = 4095;
/// Longest client identity or lock owner, in bytes.
pub const OWNER_BYTES_MAX: usize = 1024;
/// Most entries of an access control list. POSIX lists of that length are rare: xfs keeps
/// 25 in its older format.
pub const ACL_ENTRIES_MAX: usize = 128;
/// Longest name in an access control entry, in bytes.
pub const ACL_WHO_BYTES_MAX: usize = 124;
/// Longest MIME type, in bytes (RFC 6838: 127, a slash, 127).
pub const MIME_TYPE_BYTES_MAX: usize = 255;
/// Longest fence identity, in bytes.
pub const FENCE_ID_BYTES_MAX: usize = 255;
/// Most fence identities in one list.
pub const FENCE_IDS_MAX: usize = 256;
/// Most buffers in one direct request.
pub const DIRECT_BUFFERS_MAX: usize = 64;
/// Most bytes one READ or WRITE moves (MAX_READ, MAX_WRITE attributes).
pub const TRANSFER_BYTES_MAX: u32 = 16 << 20;
/// Most bytes one APPEND takes (draft: at least 65,536).
pub const APPEND_BYTES_MAX: u32 = 1 << 20;
/// Largest offset a file may reach (off_t).
pub const FILE_OFFSET_MAX: u64 = i64::MAX as u64;

const _: () = assert!(REQUEST_BYTES_MIN <= CONNECT_MESSAGE_BYTES);
// A RENAME of two names, each of which may take its longest form.
const _: () = assert!(2 * NAME_WIRE_BYTES_MAX + 256 <= REQUEST_BYTES_MIN);
const _: () = assert!(CONNECT_MESSAGE_BYTES <= REQUEST_BYTES_MAX);
const _: () = assert!(APPEND_BYTES_MAX >= 65_536 && APPEND_BYTES_MAX <= TRANSFER_BYTES_MAX);
