//! The options of the tcp provider for the MPA start-up.
//!
//! Invariant: the default works with this provider as the peer and with every peer that implements
//! RFC 6581. The other values are for other peers.

use std::borrow::Cow;

use dafs_iwarp::{ConnectConfig, PRIVATE_DATA_OUT_BYTES_MAX, ReadyToReceiveSet};

use crate::EndpointConfig;

/// How a connection over TCP begins (RFC 5044 7, RFC 6581). Ignored by other transports and by
/// the side that accepts, which replies in the form of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpaOptions {
    /// True for revision 2, which negotiates read depths and readiness. False for revision 1, for
    /// peers that close the connection on anything newer. Then the `read_depth` of both sides must
    /// agree, and `ready_to_receive` is ignored.
    pub enhanced: bool,
    /// The empty messages by which this side, connecting, can show that it is ready. If the set is
    /// not empty, the accepting side may send first. If it is empty, the accepting side must wait
    /// for a message of this side.
    pub ready_to_receive: ReadyToReceiveSet,
    /// True to announce, connecting, that this side accepts frames longer than a TCP segment, up to
    /// 64,768 bytes. The announcement is eight bytes after the private data. If this provider is
    /// the acceptor, it announces the same, both sides send such frames, and neither user sees the
    /// eight bytes. Another acceptor gets them as private data and gets frames that fit a segment,
    /// as hardware requires.
    pub long_frames: bool,
}

impl Default for MpaOptions {
    /// Revision 2, readiness shown by a Write, and frames that fit a segment.
    fn default() -> Self {
        let ready_to_receive = ReadyToReceiveSet { write: true, read: false, send: false };
        Self { enhanced: true, ready_to_receive, long_frames: false }
    }
}

/// Returns the start-up terms of the side that connects. TLS detects damage, so over TLS this side
/// does not ask for CRC whatever the configuration says.
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

/// Appends the mark for long frames to private data, if it is wanted and fits.
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

/// The mark that announces support for frames of every length.
const SIGN: &[u8; 8] = b"DAFSlong";
