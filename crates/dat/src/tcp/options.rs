//! What a user of the tcp provider may say about how MPA begins.
//!
//! Invariant: the default suits this provider as its own peer and every peer that knows
//! RFC 6581; the rest is for peers that want it otherwise.

use std::borrow::Cow;

use dafs_iwarp::ReadyToReceiveSet;
use dafs_iwarp::connect::{ConnectConfig, PRIVATE_DATA_OUT_BYTES_MAX};

use crate::EndpointConfig;

/// How a connection over TCP begins (RFC 5044 7, RFC 6581). Nothing to other transports, nor
/// to the side that accepts, which answers in the form that it is asked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpaOptions {
    /// Revision 2, which negotiates read depths and readiness. Without it revision 1, for
    /// peers that close the connection on anything newer; the two sides' `read_depth` must
    /// agree then, and `ready_to_receive` is nothing.
    pub enhanced: bool,
    /// By which empty message this side, connecting, can say that it is ready. Then the side
    /// that accepts may send first. None of them: it must wait for a message of ours.
    pub ready_to_receive: ReadyToReceiveSet,
    /// This side, connecting, says behind its private data that it takes frames that are longer
    /// than a segment of TCP, up to 64,768 bytes. This provider, accepting, says so too, and both
    /// send such; neither's user sees the eight bytes. Another acceptor gets them as private
    /// data, and frames that fit a segment, as hardware wants them.
    pub long_frames: bool,
}

impl Default for MpaOptions {
    /// Revision 2, ready by a Write, and frames of a segment.
    fn default() -> Self {
        let ready_to_receive = ReadyToReceiveSet { write: true, read: false, send: false };
        Self { enhanced: true, ready_to_receive, long_frames: false }
    }
}

/// What the side that connects brings to the start. Under TLS nothing is damaged unseen: then
/// CRC is not asked for, whatever the wish.
pub(super) fn connecting(config: &EndpointConfig) -> ConnectConfig {
    let MpaOptions { enhanced, ready_to_receive, .. } = config.mpa;
    let ready_to_receive = if enhanced { ready_to_receive } else { ReadyToReceiveSet::EMPTY };
    ConnectConfig { enhanced, ready_to_receive, ..accepting(config, config.tls.is_some()) }
}

/// What the side that accepts does: it takes every way to be ready, so that hardware of any
/// make may choose its own.
pub(super) fn accepting(config: &EndpointConfig, is_tls: bool) -> ConnectConfig {
    ConnectConfig {
        crc: config.crc && !is_tls,
        enhanced: true,
        ird: config.read_depth,
        ord: config.read_depth,
        negotiate_depth: true,
        ready_to_receive: ReadyToReceiveSet { write: true, read: true, send: true },
    }
}

/// Private data with the sign behind it, if that is wanted and fits.
pub(super) fn signed(private_data: &[u8], is_wanted: bool) -> Cow<'_, [u8]> {
    let fits = private_data.len() + SIGN.len() <= PRIVATE_DATA_OUT_BYTES_MAX;
    if is_wanted && fits { [private_data, SIGN].concat().into() } else { private_data.into() }
}

/// Private data without the sign, and whether it was there.
pub(super) fn without_sign(private_data: &[u8]) -> (&[u8], bool) {
    match private_data.strip_suffix(SIGN) {
        Some(rest) => (rest, true),
        None => (private_data, false),
    }
}

/// Whoever says it takes frames of every length.
const SIGN: &[u8; 8] = b"DAFSlong";
