//! Placeholder
/// Octets of a frame without private data.
pub const FRAME_HEADER_OCTETS: usize = 20;
/// Octets of private data a frame may carry.
pub const PRIVATE_DATA_OCTETS_MAX: usize = 512;
/// Octets of user data this side puts into a frame: Linux siw takes 256 in all and
/// keeps a length in one octet.
pub const PRIVATE_DATA_OUT_OCTETS_MAX: usize = 248 - 4;
/// Octets of the longest frame.
pub const FRAME_OCTETS_MAX: usize = FRAME_HEADER_OCTETS + PRIVATE_DATA_OCTETS_MAX;
/// The depth that says "not negotiated here".
pub const DEPTH_NOT_NEGOTIATED: u16 = 0x3fff;
