//! What a user of the tcp provider may say about how MPA begins.
//!
//! Invariant: the default suits this provider as its own peer and every peer that knows
//! RFC 6581; the rest is for peers that want it otherwise.

use dafs_iwarp::ReadyToReceiveSet;
use dafs_iwarp::connect::ConnectConfig;

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
}

impl Default for MpaOptions {
    /// Revision 2, ready by a Write.
    fn default() -> Self {
        let ready_to_receive = ReadyToReceiveSet { write: true, read: false, send: false };
        Self { enhanced: true, ready_to_receive }
    }
}

/// What the side that connects brings to the start. Under TLS nothing is damaged unseen: then
/// CRC is not asked for, whatever the wish.
pub(super) fn connecting(config: &EndpointConfig) -> ConnectConfig {
    let MpaOptions { enhanced, ready_to_receive } = config.mpa;
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
