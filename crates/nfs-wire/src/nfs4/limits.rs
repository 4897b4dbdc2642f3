//! Bounds of counts and lengths in messages of NFSv4.
//!
//! Invariant: every count and length in a message has a bound, which is defined here or in the
//! specification.

use crate::xdr::PAYLOAD_BYTES_MAX;

/// The maximum length of a file handle in bytes (RFC 8881 section 3.1).
pub const FH_BYTES_MAX: usize = 128;
/// The maximum length of client owners, server owners, state owners and scopes in bytes (RFC 8881
/// section 3.1).
pub const OPAQUE_BYTES_MAX: usize = 1024;
/// The maximum length of a compound's tag in bytes. Linux sends at most 12 bytes.
pub const TAG_BYTES_MAX: usize = 1024;
/// The maximum number of operations in one compound. Each session has an additional, lower limit.
pub const OPERATIONS_MAX: usize = 1 << 16;
/// The maximum number of operations in a compound that is decoded as a whole: see
/// [`Compound`](super::compound::Compound).
pub const WHOLE_OPERATIONS_MAX: usize = 256;
/// The maximum length of a name in a message, in bytes. File systems have much lower limits. A name
/// above their limits must get the status `NAMETOOLONG` and not `BADXDR`.
pub const NAME_BYTES_MAX: usize = 1 << 16;
/// The maximum length of a symbolic link's target in a message in bytes.
pub const LINK_TEXT_BYTES_MAX: usize = 1 << 16;
/// The maximum length of a user, group, domain or server name in bytes.
pub const TEXT_BYTES_MAX: usize = 4096;
/// The maximum length of a transport name or of a universal address in bytes.
pub const NETWORK_ADDRESS_BYTES_MAX: usize = 256;
/// The limit for names in one path.
pub const PATH_NAMES_MAX: usize = 256;
/// The limit for servers or locations in one list.
pub const LOCATIONS_MAX: usize = 64;
/// The limit for words of a bitmap. The highest assigned bit is below 96.
pub const BITMAP_WORDS_MAX: usize = 8;
/// The maximum length of encoded attributes in bytes.
pub const FATTR_BYTES_MAX: usize = 1 << 20;
/// The limit for entries of one access control list.
pub const ACES_MAX: usize = 4096;
/// The limit for layout types, hints and similar small numbers in one list.
pub const NUMBERS_MAX: usize = 64;
/// The maximum length in bytes of a body of a layout, device or label, whose encoding another
/// specification defines.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// The limit for state ids in one TEST_STATEID.
pub const STATE_IDS_MAX: usize = 4096;
/// The limit for devices, device errors and layouts in one list.
pub const DEVICES_MAX: usize = 1024;
/// The limit for stripes of a layout. Linux accepts 4096.
pub const STRIPES_MAX: usize = 4096;
/// The limit for mirrors of a layout. Linux accepts 4096, but files have few copies.
pub const MIRRORS_MAX: usize = 64;
/// The limit for protocols of a data server.
pub const VERSIONS_MAX: usize = 16;
/// The limit for security parameters of the callback channel in one list.
pub const SECURITY_PARAMETERS_MAX: usize = 16;
/// The limit for security flavors of an object.
pub const FLAVORS_MAX: usize = 64;
/// The maximum length of an object identifier in bytes.
pub const OID_BYTES_MAX: usize = 256;
/// The limit for algorithms in one list.
pub const ALGORITHMS_MAX: usize = 64;
/// The maximum length of GSS handles, digests and secrets in bytes.
pub const SECRET_BYTES_MAX: usize = 4096;
/// The limit for handles of GSS contexts in one list.
pub const GSS_HANDLES_MAX: usize = 1024;
/// The limit for directory entries in one reply.
pub const ENTRIES_MAX: usize = 1 << 16;
/// The limit for parts in one reply to READ_PLUS.
pub const CONTENTS_MAX: usize = 1024;
/// The maximum length of an extended attribute's value in bytes. Linux allows 65,536.
pub const XATTR_BYTES_MAX: usize = 1 << 20;
/// The limit for names of extended attributes in one reply.
pub const XATTR_NAMES_MAX: usize = 1 << 16;
/// The maximum length of the pattern in WRITE_SAME in bytes.
pub const PATTERN_BYTES_MAX: usize = 1 << 20;
/// The limit for sessions to which a callback refers, and for calls of each such session.
pub const REFERRING_CALLS_MAX: usize = 1024;
/// The limit for changes in one notification.
pub const NOTIFICATIONS_MAX: usize = 1024;

const _: () = assert!(BODY_BYTES_MAX <= PAYLOAD_BYTES_MAX);
