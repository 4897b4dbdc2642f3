//! The side that connects.
//!
//! Invariant: one request goes out, and at most one reply is taken in.

use super::{ConnectConfig, Established, Progress};
use crate::transmit::TERMINATE_FPDU_OCTETS_MAX;
use crate::violation::{Refusal, Violation};

/// The initiator's start-up machine.
#[derive(Clone, Debug)]
pub struct Initiator {
    config: ConnectConfig,
}

/// What the reply said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InitiatorOutcome {
    /// Go on with [`Transmitter`](crate::Transmitter) and
    /// [`Receiver`](crate::Receiver).
    Accepted {
        /// What was agreed on.
        established: Established,
        /// The responder's private data, without the enhanced octets.
        private_data: Vec<u8>,
    },
    /// The responder's user said no.
    Rejected {
        /// The responder's private data, without the enhanced octets.
        private_data: Vec<u8>,
        /// The depths the responder stated, if it did: (its IRD, its ORD).
        peer_depth: Option<(u16, u16)>,
    },
}

impl Initiator {
    /// A machine whose request carries `private_data` (at most 244 octets).
    ///
    /// # Errors
    /// `PrivateDataTooLong`.
    pub fn new(config: ConnectConfig, private_data: &[u8]) -> Result<Self, Refusal> {
        let _ = private_data;
        Ok(Self { config })
    }

    /// The request frame to send.
    #[must_use]
    pub fn request(&self) -> &[u8] {
        todo!()
    }

    /// Takes in octets of the reply, split however they come. Octets after the
    /// frame are left alone.
    ///
    /// # Errors
    /// The violation found: close the connection, after sending
    /// [`Initiator::terminate_fpdu`] if there is one.
    pub fn on_octets(&mut self, octets: &[u8]) -> Result<Progress<InitiatorOutcome>, Violation> {
        let _ = octets;
        todo!()
    }

    /// The Terminate frame owed to a responder whose terms cannot be met (RFC 6581
    /// 9.1 and 9.2); `None` for every other violation.
    #[must_use]
    pub fn terminate_fpdu(&self) -> Option<([u8; TERMINATE_FPDU_OCTETS_MAX], usize)> {
        todo!()
    }

    /// For a responder that closed the connection on an enhanced request: the
    /// same request in plain form, for a new connection (RFC 6581 10). `None` if
    /// this one was plain or got an answer.
    #[must_use]
    pub fn plain_retry(&self) -> Option<Self> {
        todo!()
    }

    /// What this machine was made with.
    #[must_use]
    pub fn config(&self) -> &ConnectConfig {
        &self.config
    }
}
