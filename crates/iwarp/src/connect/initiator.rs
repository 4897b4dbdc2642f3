//! The start-up of the side that opens the connection.
//!
//! Invariant: the initiator sends one request and accepts at most one reply. The agreed terms
//! never exceed what this side offered or what the other side stated.

use super::frame::{
    DEPTH_MAX, DEPTH_NOT_NEGOTIATED, Enhanced, Frame, Gatherer, PRIVATE_DATA_OUT_BYTES_MAX,
    REVISION_ENHANCED, REVISION_PLAIN,
};
use super::{ConnectConfig, Established, Progress, ReadyToReceive, ReadyToReceiveSet, Role};
use crate::fpdu::MULPDU_MIN;
use crate::terminate::Terminate;
use crate::transmit::{TERMINATE_FPDU_BYTES_MAX, Transmitter};
use crate::violation::{Refusal, Violation};

/// The start-up state machine of the side that opens the connection.
#[derive(Clone, Debug)]
pub struct Initiator {
    config: ConnectConfig,
    request: Frame,
    request_bytes: Vec<u8>,
    gatherer: Gatherer,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    AwaitingReply,
    Answered,
    Failed { violation: Violation, crc: bool },
}

/// The result of a reply frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InitiatorOutcome {
    /// The responder accepts. The caller continues with [`Transmitter`] and
    /// [`Receiver`](crate::Receiver).
    Accepted {
        /// The agreed terms of the stream.
        established: Established,
        /// The responder's private data, without the enhanced data.
        private_data: Vec<u8>,
    },
    /// The responder's user rejects the connection.
    Rejected {
        /// The responder's private data, without the enhanced data.
        private_data: Vec<u8>,
        /// The depths that the responder stated, as (its IRD, its ORD); `None` if it stated none.
        peer_depth: Option<(u16, u16)>,
    },
}

impl Initiator {
    /// Creates a machine whose request carries `private_data`, at most 244 bytes.
    ///
    /// # Errors
    /// [`Refusal::PrivateDataTooLong`] if `private_data` is longer.
    pub fn new(config: ConnectConfig, private_data: &[u8]) -> Result<Self, Refusal> {
        if private_data.len() > PRIVATE_DATA_OUT_BYTES_MAX {
            return Err(Refusal::PrivateDataTooLong);
        }
        let peer_to_peer = (!config.ready_to_receive.is_empty()).then_some(config.ready_to_receive);
        let depth = |depth: u16| {
            if config.negotiate_depth { depth.min(DEPTH_MAX) } else { DEPTH_NOT_NEGOTIATED }
        };
        let enhanced = config.enhanced.then_some(Enhanced {
            ird: depth(config.ird),
            ord: depth(config.ord),
            peer_to_peer,
        });
        let request = Frame {
            revision: if config.enhanced { REVISION_ENHANCED } else { REVISION_PLAIN },
            markers: false,
            crc: config.crc,
            reject: false,
            enhanced,
            private_data: private_data.to_vec(),
        };
        let request_bytes = request.encode(Role::Initiator);
        let gatherer = Gatherer::default();
        Ok(Self { config, request, request_bytes, gatherer, state: State::AwaitingReply })
    }

    /// Returns the bytes of the request frame to send.
    #[must_use]
    pub fn request(&self) -> &[u8] {
        &self.request_bytes
    }

    /// Processes bytes of the reply, in pieces of any size. Consumes no bytes after the end of the
    /// frame, and none after the outcome was returned.
    ///
    /// # Errors
    /// The violation found. The caller must send the [`Initiator::terminate_fpdu`], if there is
    /// one, and then close the connection.
    pub fn on_bytes(&mut self, bytes: &[u8]) -> Result<Progress<InitiatorOutcome>, Violation> {
        match self.state {
            State::AwaitingReply => {}
            State::Answered => return Ok(Progress { consumed: 0, outcome: None }),
            State::Failed { violation, .. } => return Err(violation),
        }
        let (consumed, frame) = self
            .gatherer
            .on_bytes(Role::Responder, bytes)
            .map_err(|violation| self.fail(violation, false))?;
        let outcome = match frame {
            None => None,
            Some(frame) => {
                let crc = self.request.crc || frame.crc;
                let outcome = self.judge(frame).map_err(|violation| self.fail(violation, crc))?;
                self.state = State::Answered;
                Some(outcome)
            }
        };
        Ok(Progress { consumed, outcome })
    }

    /// Returns the frame of the Terminate to send, and its length in bytes, if the responder's
    /// terms cannot be met (RFC 6581 9.1 and 9.2). Returns `None` for every other violation.
    #[must_use]
    pub fn terminate_fpdu(&self) -> Option<([u8; TERMINATE_FPDU_BYTES_MAX], usize)> {
        let State::Failed { violation, crc } = self.state else { return None };
        let owed = matches!(
            violation,
            Violation::InsufficientReadDepth | Violation::NoMatchingReadyToReceive
        );
        if !owed {
            return None;
        }
        let established = Established::client_server(Role::Initiator, crc, 0, 0);
        let terminate = Terminate::new(violation.terminate_code(), None, None);
        let mut bytes = [0; TERMINATE_FPDU_BYTES_MAX];
        let length =
            Transmitter::new(&established, MULPDU_MIN).terminate(&terminate, &mut bytes).ok()?;
        Some((bytes, length))
    }

    /// Returns the same request in plain form, for a new connection, after the responder closed
    /// the connection on an enhanced request (RFC 6581 10). Returns `None` if this request was
    /// plain or if any byte of a reply has arrived.
    #[must_use]
    pub fn plain_retry(&self) -> Option<Self> {
        if !self.config.enhanced || !self.gatherer.is_empty() {
            return None;
        }
        let config = ConnectConfig {
            enhanced: false,
            ready_to_receive: ReadyToReceiveSet::EMPTY,
            ..self.config
        };
        Self::new(config, &self.request.private_data).ok()
    }

    /// Returns the configuration with which this machine was created.
    #[must_use]
    pub fn config(&self) -> &ConnectConfig {
        &self.config
    }

    fn fail(&mut self, violation: Violation, crc: bool) -> Violation {
        self.state = State::Failed { violation, crc };
        violation
    }

    fn judge(&self, reply: Frame) -> Result<InitiatorOutcome, Violation> {
        // A plain request requires a plain reply (RFC 6581 10).
        if reply.enhanced.is_some() && self.request.enhanced.is_none() {
            return Err(Violation::FrameRevision);
        }
        let peer_depth = reply.enhanced.map(|enhanced| enhanced.depth());
        if reply.reject {
            return Ok(InitiatorOutcome::Rejected { private_data: reply.private_data, peer_depth });
        }
        if reply.markers {
            return Err(Violation::MarkersRequired);
        }
        let mut established = Established {
            role: Role::Initiator,
            crc: self.request.crc || reply.crc,
            revision: reply.revision,
            ird: self.config.ird.min(DEPTH_MAX),
            ord: self.config.ord.min(DEPTH_MAX),
            peer_depth,
            ready_to_receive: None,
            ready_by_send: false,
        };
        // A responder that does not know the enhanced form may ignore its bit, which was
        // reserved before. Then nothing is negotiated.
        if let Some(terms) = reply.enhanced {
            self.meet(&terms, &mut established)?;
        }
        Ok(InitiatorOutcome::Accepted { established, private_data: reply.private_data })
    }

    /// Adapts this side's terms to the responder's terms (RFC 6581 9.1 and 9.2).
    fn meet(&self, terms: &Enhanced, established: &mut Established) -> Result<(), Violation> {
        if terms.ird != DEPTH_NOT_NEGOTIATED {
            established.ord = established.ord.min(terms.ird);
        }
        if terms.ord != DEPTH_NOT_NEGOTIATED && terms.ord > established.ird {
            return Err(Violation::InsufficientReadDepth);
        }
        let wanted = self.config.ready_to_receive;
        if wanted.is_empty() {
            return Ok(());
        }
        let offered = terms.peer_to_peer.ok_or(Violation::NoMatchingReadyToReceive)?;
        let chosen = if wanted.write && offered.write {
            ReadyToReceive::Write
        } else if wanted.read && offered.read && terms.ird > 0 {
            // The indication is a read, so one read must be allowed even if the user wants none.
            established.ord = established.ord.max(1);
            ReadyToReceive::Read
        } else if wanted.send && offered.send {
            ReadyToReceive::Send
        } else {
            return Err(Violation::NoMatchingReadyToReceive);
        };
        established.ready_to_receive = Some(chosen);
        Ok(())
    }
}
