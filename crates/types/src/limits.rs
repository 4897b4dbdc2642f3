//! Limits that client and server share, with their reasons. A peer that exceeds a limit gets the
//! protocol's error or loses its connection.

/// The maximum size in bytes of a message before sizes are negotiated. Both sides post receive
/// buffers of this size (draft 3.1: at least 4 KB for the connect exchange).
pub const CONNECT_MESSAGE_BYTES: usize = 4096;
/// The maximum request size, in bytes, that a session may negotiate.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// The minimum request size, in bytes, that a session may negotiate. It is sufficient for every
/// request without bulk data.
pub const REQUEST_BYTES_MIN: usize = 2048;
/// The maximum reply size, in bytes, that a session may negotiate.
pub const RESPONSE_BYTES_MAX: usize = 64 * 1024;
/// The minimum reply size, in bytes, that a session may negotiate. It is sufficient for every reply
/// without bulk data.
pub const RESPONSE_BYTES_MIN: usize = 512;
/// The maximum number of credits of one session.
pub const CREDITS_MAX: u16 = 256;
/// The maximum number of channels of one session.
pub const CLIENT_CHANNELS_MAX: u16 = 8;
/// The maximum length of a file name in bytes (Linux NAME_MAX).
pub const NAME_BYTES_MAX: usize = 255;
/// The maximum length in bytes of a file name in a message: every byte of a name may be escaped
/// ([`names`]).
///
/// [`names`]: crate::names
pub const NAME_WIRE_BYTES_MAX: usize = NAME_BYTES_MAX * crate::names::ESCAPE_BYTES;
/// The maximum length in bytes of a path in one LOOKUP (Linux PATH_MAX without the terminator).
pub const PATH_BYTES_MAX: usize = 4095;
/// The maximum number of components in one LOOKUP.
pub const PATH_COMPONENTS_MAX: usize = 1024;
/// The maximum length in bytes of a symbolic link's target.
pub const LINK_TEXT_BYTES_MAX: usize = 4095;
/// The maximum length in bytes of a client identity or lock owner.
pub const OWNER_BYTES_MAX: usize = 1024;
/// The maximum number of entries of an access control list. POSIX lists that long are rare: xfs in
/// its older format stores at most 25 entries.
pub const ACL_ENTRIES_MAX: usize = 128;
/// The maximum length in bytes of a name in an access control entry.
pub const ACL_WHO_BYTES_MAX: usize = 124;
/// The maximum length of a MIME type in bytes. RFC 6838 allows 127 bytes, a slash, and 127 bytes.
pub const MIME_TYPE_BYTES_MAX: usize = 255;
/// The maximum length of a fence identity in bytes.
pub const FENCE_ID_BYTES_MAX: usize = 255;
/// The maximum number of fence identities in one list.
pub const FENCE_IDS_MAX: usize = 256;
/// The maximum number of buffers in one direct request.
pub const DIRECT_BUFFERS_MAX: usize = 64;
/// The maximum number of bytes moved by one READ or WRITE (MAX_READ, MAX_WRITE attributes).
pub const TRANSFER_BYTES_MAX: u32 = 16 << 20;
/// The maximum number of bytes of one APPEND (draft: at least 65,536).
pub const APPEND_BYTES_MAX: u32 = 1 << 20;
/// The largest offset in a file (off_t).
pub const FILE_OFFSET_MAX: u64 = i64::MAX as u64;

const _: () = assert!(REQUEST_BYTES_MIN <= CONNECT_MESSAGE_BYTES);
// A RENAME contains two names, each of which may have the longest encoded form.
const _: () = assert!(2 * NAME_WIRE_BYTES_MAX + 256 <= REQUEST_BYTES_MIN);
const _: () = assert!(CONNECT_MESSAGE_BYTES <= REQUEST_BYTES_MAX);
const _: () = assert!(APPEND_BYTES_MAX >= 65_536 && APPEND_BYTES_MAX <= TRANSFER_BYTES_MAX);
