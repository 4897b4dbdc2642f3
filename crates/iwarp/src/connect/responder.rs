//! The side that is connected to.
//!
//! Invariant: a reply is made only after a whole, well-formed request, and it has
//! the request's form: plain to plain, enhanced to enhanced.

use super::{ConnectConfig, Established, Progress};
use crate::violation::{Refusal, Violation};

/// The responder's start-up machine.
#[derive(Clone, Debug, Default)]
pub struct Responder {}

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
    /// Whether the initiator wants the peer-to-peer model.
    pub peer_to_peer: bool,
    /// The depths the initiator stated, if it did: (its IRD, its ORD).
    pub peer_depth: Option<(u16, u16)>,
    /// The initiator's private data, without the enhanced octets.
    pub private_data: Vec<u8>,
}

impl Responder {
    /// A machine that awaits a request.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in octets of the request, split however they come. Octets after the
    /// frame are left alone.
    ///
    /// # Errors
    /// The violation found: close the connection without a word.
    pub fn on_octets(&mut self, octets: &[u8]) -> Result<Progress<Request>, Violation> {
        let _ = octets;
        todo!()
    }

    /// The request, once it is whole.
    #[must_use]
    pub fn request(&self) -> Option<&Request> {
        todo!()
    }

    /// Accepts: the reply frame to send and what is then agreed on. `private_data`
    /// has at most 244 octets.
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
        let _ = (config, private_data);
        todo!()
    }

    /// Rejects: the reply frame to send. Enhanced replies state `config`'s depths,
    /// so that the initiator sees what would have been needed.
    ///
    /// # Errors
    /// `OutOfOrder` without a request; `PrivateDataTooLong`.
    pub fn reject(&self, config: &ConnectConfig, private_data: &[u8]) -> Result<Vec<u8>, Refusal> {
        let _ = (config, private_data);
        todo!()
    }
}
