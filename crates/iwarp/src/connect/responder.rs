//! The start-up of the side that accepts the connection.
//!
//! Invariant: the responder replies only to a complete, well-formed request, and in the form of
//! the request: plain or enhanced.

use super::frame::{
    DEPTH_MAX, DEPTH_NOT_NEGOTIATED, Enhanced, Frame, Gatherer, PRIVATE_DATA_OUT_BYTES_MAX,
};
use super::{ConnectConfig, Established, Progress, ReadyToReceiveSet, Role};
use crate::violation::{Refusal, Violation};

/// The start-up state machine of the side that accepts the connection.
#[derive(Clone, Debug, Default)]
pub struct Responder {
    gatherer: Gatherer,
    request: Option<ConnectRequest>,
    violation: Option<Violation>,
}

/// The contents of the initiator's request frame.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectRequest {
    /// The revision of the frame: 0, 1 or 2.
    pub revision: u8,
    /// True if the frame has the enhanced form.
    pub enhanced: bool,
    /// True if the initiator wants CRC.
    pub crc: bool,
    /// True if the initiator requires markers. The only possible reply is then
    /// [`Responder::reject`].
    pub markers: bool,
    /// The ready-to-receive indications that the initiator supports; `None` if the initiator does
    /// not request the peer-to-peer model.
    pub peer_to_peer: Option<ReadyToReceiveSet>,
    /// The depths that the initiator stated, as (its IRD, its ORD); `None` if it stated none.
    pub peer_depth: Option<(u16, u16)>,
    /// The initiator's private data, without the enhanced data.
    pub private_data: Vec<u8>,
}

impl Responder {
    /// Creates a machine that waits for a request.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Processes bytes of the request, in pieces of any size. Consumes no bytes after the end of
    /// the frame, and none after the outcome was returned.
    ///
    /// # Errors
    /// The violation found. The caller must close the connection without sending anything.
    pub fn on_bytes(&mut self, bytes: &[u8]) -> Result<Progress<ConnectRequest>, Violation> {
        if let Some(violation) = self.violation {
            return Err(violation);
        }
        if self.request.is_some() {
            return Ok(Progress { consumed: 0, outcome: None });
        }
        match self.gatherer.on_bytes(Role::Initiator, bytes) {
            Ok((consumed, frame)) => {
                self.request = frame.map(ConnectRequest::from);
                Ok(Progress { consumed, outcome: self.request.clone() })
            }
            Err(violation) => {
                self.violation = Some(violation);
                Err(violation)
            }
        }
    }

    /// Returns the request once it is complete.
    #[must_use]
    pub fn request(&self) -> Option<&ConnectRequest> {
        self.request.as_ref()
    }

    /// Accepts the request. Returns the reply frame to send and the agreed terms. `private_data`
    /// has at most 244 bytes.
    ///
    /// # Errors
    /// - [`Refusal::OutOfOrder`] if there is no request, if the request wants markers, or if it is
    ///   enhanced and `config` is plain. In the last case close the connection, so that the
    ///   initiator can retry in plain form.
    /// - [`Refusal::PrivateDataTooLong`] if `private_data` is longer than 244 bytes.
    pub fn accept(
        &self,
        config: &ConnectConfig,
        private_data: &[u8],
    ) -> Result<(Vec<u8>, Established), Refusal> {
        let request = self.request.as_ref().ok_or(Refusal::OutOfOrder)?;
        if request.markers || (request.enhanced && !config.enhanced) {
            return Err(Refusal::OutOfOrder);
        }
        let mut established = Established {
            role: Role::Responder,
            crc: request.crc || config.crc,
            revision: request.revision,
            ird: config.ird.min(DEPTH_MAX),
            ord: config.ord.min(DEPTH_MAX),
            peer_depth: request.peer_depth,
            ready_to_receive: None,
            ready_by_send: false,
        };
        let enhanced = meet(request, config, &mut established);
        let reply = reply(request, established.crc, false, enhanced, private_data)?;
        Ok((reply, established))
    }

    /// Rejects the request. Returns the reply frame to send. An enhanced reply states the depths
    /// of `config`, so that the initiator sees what this side requires.
    ///
    /// # Errors
    /// [`Refusal::OutOfOrder`] if there is no request; [`Refusal::PrivateDataTooLong`] if
    /// `private_data` is longer than 244 bytes.
    pub fn reject(&self, config: &ConnectConfig, private_data: &[u8]) -> Result<Vec<u8>, Refusal> {
        let request = self.request.as_ref().ok_or(Refusal::OutOfOrder)?;
        let enhanced = request.peer_depth.map(|_| Enhanced {
            ird: config.ird.min(DEPTH_MAX),
            ord: config.ord.min(DEPTH_MAX),
            peer_to_peer: request.peer_to_peer.map(|wanted| offer(config, wanted)),
        });
        reply(request, request.crc, true, enhanced, private_data)
    }
}

impl From<Frame> for ConnectRequest {
    fn from(frame: Frame) -> Self {
        Self {
            revision: frame.revision,
            enhanced: frame.enhanced.is_some(),
            crc: frame.crc,
            markers: frame.markers,
            peer_to_peer: frame.enhanced.and_then(|enhanced| enhanced.peer_to_peer),
            peer_depth: frame.enhanced.map(|enhanced| enhanced.depth()),
            private_data: frame.private_data,
        }
    }
}

/// Adapts this side's terms to the initiator's terms and returns the enhanced data of the reply
/// (RFC 6581 9.1 and 9.2).
fn meet(
    request: &ConnectRequest,
    config: &ConnectConfig,
    established: &mut Established,
) -> Option<Enhanced> {
    let (peer_ird, peer_ord) = request.peer_depth?;
    let peer_to_peer = request.peer_to_peer.map(|wanted| offer(config, wanted));
    established.ready_by_send = peer_to_peer == Some(ReadyToReceiveSet::SEND);
    if peer_to_peer.is_some_and(|set| set.read) {
        // The indication may be a read, even if this side otherwise allows none.
        established.ird = established.ird.max(1);
    }
    let ord = if peer_ird == DEPTH_NOT_NEGOTIATED {
        DEPTH_NOT_NEGOTIATED
    } else {
        established.ord = established.ord.min(peer_ird);
        established.ord
    };
    // The reply states this depth even if the initiator wants more. The initiator must then
    // lower its ORD.
    let ird = if peer_ord == DEPTH_NOT_NEGOTIATED { DEPTH_NOT_NEGOTIATED } else { established.ird };
    Some(Enhanced { ird, ord, peer_to_peer })
}

/// Returns the indications that this side accepts. At least one is set, as RFC 6581 9.2 requires.
/// Send is the last choice, because on most implementations it consumes a receive buffer.
fn offer(config: &ConnectConfig, wanted: ReadyToReceiveSet) -> ReadyToReceiveSet {
    let own = config.ready_to_receive;
    let (write, read) = (own.write && wanted.write, own.read && wanted.read);
    if write || read {
        ReadyToReceiveSet { write, read, send: false }
    } else if own.send && wanted.send {
        ReadyToReceiveSet::SEND
    } else {
        ReadyToReceiveSet::WRITE_AND_READ
    }
}

fn reply(
    request: &ConnectRequest,
    crc: bool,
    reject: bool,
    enhanced: Option<Enhanced>,
    private_data: &[u8],
) -> Result<Vec<u8>, Refusal> {
    if private_data.len() > PRIVATE_DATA_OUT_BYTES_MAX {
        return Err(Refusal::PrivateDataTooLong);
    }
    let frame = Frame {
        revision: request.revision,
        markers: false,
        crc,
        reject,
        enhanced,
        private_data: private_data.to_vec(),
    };
    Ok(frame.encode(Role::Responder))
}
