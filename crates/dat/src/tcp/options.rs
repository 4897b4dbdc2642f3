//! The options of the tcp provider for the MPA start-up.
//!
//! Invariant: the default works with this provider as the peer and with every peer that implements
//! RFC 6581. The other values are for other peers.

use std::borrow::Cow;

use dafs_iwarp::{ConnectConfig, PRIVATE_DATA_OUT_BYTES_MAX, ReadyToReceiveSet};

use crate::EndpointConfig;

/// The form in which a connection over TCP begins (RFC 5044 7, RFC 6581). Other transports ignore
/// these options, as does the accepting side, which replies in the form of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpaOptions {
    /// True for revision 2, which negotiates read depths and readiness. False for revision 1, for
    /// peers that close the connection when a request has a newer revision. With revision 1, the
    /// `read_depth` of both sides must be equal, and `ready_to_receive` is ignored.
    pub enhanced: bool,
    /// The kinds of empty message by which this side, when connecting, can show that it is ready to
    /// receive. If the set is not empty, the accepting side may send first. If it is empty, the
    /// accepting side must wait for a message of this side.
    pub ready_to_receive: ReadyToReceiveSet,
    /// True to announce, when connecting, that this side accepts frames longer than a TCP segment,
    /// up to 64,768 bytes. The announcement is eight bytes after the private data. If the acceptor
    /// uses this provider too, it announces the same, both sides send such frames, and neither
    /// application sees the eight bytes. Any other acceptor sees the eight bytes as private data,
    /// and this side sends it only frames that fit in a segment, as hardware requires.
    pub long_frames: bool,
}

impl Default for MpaOptions {
    /// Returns revision 2, readiness shown by an RDMA Write, and frames that fit in a segment.
    fn default() -> Self {
        let ready_to_receive = ReadyToReceiveSet { write: true, read: false, send: false };
        Self { enhanced: true, ready_to_receive, long_frames: false }
    }
}

/// Returns the start-up terms of the side that connects. Over TLS this side never requests CRC,
/// whatever the configuration says, because TLS detects damage.
pub(super) fn connecting(config: &EndpointConfig) -> ConnectConfig {
    let MpaOptions { enhanced, ready_to_receive, .. } = config.mpa;
    let ready_to_receive = if enhanced { ready_to_receive } else { ReadyToReceiveSet::EMPTY };
    let mut wished = accepting(config, config.tls.is_some());
    (wished.enhanced, wished.ready_to_receive) = (enhanced, ready_to_receive);
    wished
}

/// Returns the start-up terms of the side that accepts. It supports every ready-to-receive
/// indication, so that any hardware can use its own.
pub(super) fn accepting(config: &EndpointConfig, is_tls: bool) -> ConnectConfig {
    let mut offered = ConnectConfig::default();
    offered.crc = config.crc && !is_tls;
    (offered.ird, offered.ord) = (config.read_depth, config.read_depth);
    offered.ready_to_receive = ReadyToReceiveSet { write: true, read: true, send: true };
    offered
}

/// Appends the mark for long frames to private data, if the mark is wanted and fits.
pub(super) fn signed(private_data: &[u8], is_wanted: bool) -> Cow<'_, [u8]> {
    let fits = private_data.len() + SIGN.len() <= PRIVATE_DATA_OUT_BYTES_MAX;
    if is_wanted && fits { [private_data, SIGN].concat().into() } else { private_data.into() }
}

/// Returns private data without the mark for long frames, and true if the mark was there.
pub(super) fn without_sign(private_data: &[u8]) -> (&[u8], bool) {
    match private_data.strip_suffix(SIGN) {
        Some(rest) => (rest, true),
        None => (private_data, false),
    }
}

/// The mark that announces support for frames longer than a TCP segment.
const SIGN: &[u8; 8] = b"DAFSlong";
