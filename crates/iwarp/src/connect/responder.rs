//! The side that is connected to.
//!
//! Invariant: a reply is made only after a whole, well-formed request, and it has
//! the request's form: plain to plain, enhanced to enhanced.

use super::frame::{
    DEPTH_MAX, DEPTH_NOT_NEGOTIATED, Enhanced, Frame, Gatherer, PRIVATE_DATA_OUT_BYTES_MAX,
};
use super::{ConnectConfig, Established, Progress, ReadyToReceiveSet, Role};
use crate::violation::{Refusal, Violation};

/// The responder's start-up machine.
#[derive(Clone, Debug, Default)]
pub struct Responder {
    gatherer: Gatherer,
    request: Option<Request>,
    violation: Option<Violation>,
}

/// What the initiator asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Revision of the frame: 0, 1 or 2.
    pub revision: u8,
    /// Whether the frame is of the enhanced form.
    pub enhanced: bool,
    /// Whether the initiator wants CRC.
    pub crc: bool,
    /// Whether the initiator wants markers. Then the only possible answer is
    /// [`Responder::reject`].
    pub markers: bool,
    /// What the initiator can say that it is ready by, if it wants the peer-to-peer model.
    pub peer_to_peer: Option<ReadyToReceiveSet>,
    /// The depths the initiator stated, if it did: (its IRD, its ORD).
    pub peer_depth: Option<(u16, u16)>,
    /// The initiator's private data, without the enhanced bytes.
    pub private_data: Vec<u8>,
}

impl Responder {
    /// A machine that awaits a request.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in bytes of the request, split however they come. Bytes after the
    /// frame are left alone; after the outcome all are.
    ///
    /// # Errors
    /// The violation found: close the connection without a word.
    pub fn on_bytes(&mut self, bytes: &[u8]) -> Result<Progress<Request>, Violation> {
        if let Some(violation) = self.violation {
            return Err(violation);
        }
        if self.request.is_some() {
            return Ok(Progress { consumed: 0, outcome: None });
        }
        match self.gatherer.on_bytes(Role::Initiator, bytes) {
            Ok((consumed, frame)) => {
                self.request = frame.map(Request::from);
                Ok(Progress { consumed, outcome: self.request.clone() })
            }
            Err(violation) => {
                self.violation = Some(violation);
                Err(violation)
            }
        }
    }

    /// The request, once it is whole.
    #[must_use]
    pub fn request(&self) -> Option<&Request> {
        self.request.as_ref()
    }

    /// Accepts: the reply frame to send and what is then agreed on. `private_data`
    /// has at most 244 bytes.
    ///
    /// # Errors
    /// `OutOfOrder` without a request, or if it wants markers, or if it is enhanced
    /// and `config` is plain (then close the connection, so that the initiator can
    /// fall back); `PrivateDataTooLong`.
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

    /// Rejects: the reply frame to send. Enhanced replies state `config`'s depths,
    /// so that the initiator sees what would have been needed.
    ///
    /// # Errors
    /// `OutOfOrder` without a request; `PrivateDataTooLong`.
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

impl From<Frame> for Request {
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

/// Fits this side to the initiator's wishes and says so (RFC 6581 9.1 and 9.2).
fn meet(
    request: &Request,
    config: &ConnectConfig,
    established: &mut Established,
) -> Option<Enhanced> {
    let (peer_ird, peer_ord) = request.peer_depth?;
    let peer_to_peer = request.peer_to_peer.map(|wanted| offer(config, wanted));
    established.ready_by_send = peer_to_peer == Some(ReadyToReceiveSet::SEND);
    if peer_to_peer.is_some_and(|set| set.read) {
        // The indication may be a read, also to a side that serves none.
        established.ird = established.ird.max(1);
    }
    let ord = if peer_ird == DEPTH_NOT_NEGOTIATED {
        DEPTH_NOT_NEGOTIATED
    } else {
        established.ord = established.ord.min(peer_ird);
        established.ord
    };
    // Fewer than the initiator wants is stated all the same: it must then lower
    // its ORD.
    let ird = if peer_ord == DEPTH_NOT_NEGOTIATED { DEPTH_NOT_NEGOTIATED } else { established.ird };
    Some(Enhanced { ird, ord, peer_to_peer })
}

/// The indications this side takes; at least one, as RFC 6581 9.2 demands. A Send takes a
/// receive buffer on most machines, so it is the last resort.
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
    request: &Request,
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
