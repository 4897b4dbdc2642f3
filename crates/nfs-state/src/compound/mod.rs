//! Compounds: the positions at which operations are allowed, the current file handle and state id,
//! and the space that is left in the reply (RFC 8881 sections 2.6.3.1, 2.10.6.4, 15.1.1 and
//! 16.2.3).
//!
//! Invariants:
//! - There is always room in the reply for the error of the next operation.
//! - The current state id belongs to the current file handle. Each change of the handle clears the
//!   state id.

mod place;
mod room;
mod rules;

use dafs_types::FileHandle;

use room::Room;
use rules::{Needs, Stand};

use crate::Nfs4Error;
use crate::limits::SEQUENCE_REPLY_BYTES;
use crate::machine::Admitted;
use crate::operation::OperationNumber;
use crate::state_ids::Stateid4;

pub use rules::{exists_in, needs_current_handle};

/// A compound that is being executed.
#[derive(Clone, Debug)]
pub struct Compound {
    minor: u32,
    count: u32,
    /// The number of operations that have begun.
    begun: u32,
    is_in_session: bool,
    current: Option<FileHandle>,
    current_id: Option<Stateid4>,
    saved: Option<FileHandle>,
    saved_id: Option<Stateid4>,
    room: Room,
}

impl Compound {
    /// Begins a compound of `count` operations. The caller must have checked that the minor version
    /// is supported.
    #[must_use]
    pub fn new(minor: u32, count: u32) -> Self {
        Self {
            minor,
            count,
            begun: 0,
            is_in_session: false,
            current: None,
            current_id: None,
            saved: None,
            saved_id: None,
            room: Room::unlimited(),
        }
    }

    /// Begins the next operation. If this returns an error, the compound ends with the error as the
    /// result of the operation.
    ///
    /// # Errors
    /// OP_ILLEGAL or NOTSUPP if the minor version does not have the operation; OP_NOT_IN_SESSION,
    /// NOT_ONLY_OP or SEQUENCE_POS if the operation is not allowed at this position; NOFILEHANDLE
    /// or RESTOREFH if the operation needs a current or saved file handle and there is none.
    pub fn begin(&mut self, operation: OperationNumber) -> Result<(), Nfs4Error> {
        let is_first = self.begun == 0;
        self.begun += 1;
        let rule = rules::rule(operation, self.minor)?;
        match (is_first, rule.stand) {
            (true, Stand::First) => return Ok(()),
            (true, Stand::Alone | Stand::AloneOrInSession) if self.count == 1 => return Ok(()),
            (true, Stand::Alone | Stand::AloneOrInSession) => return Err(Nfs4Error::NotOnlyOp),
            (true, Stand::InSession) => return Err(Nfs4Error::OpNotInSession),
            (false, Stand::First) => return Err(Nfs4Error::SequencePos),
            (false, Stand::Alone) => return Err(Nfs4Error::NotOnlyOp),
            (false, Stand::AloneOrInSession | Stand::InSession) => {}
        }
        if !self.is_in_session {
            return Err(Nfs4Error::OpNotInSession);
        }
        match rule.needs {
            Needs::Nothing => Ok(()),
            Needs::Current => self.current().map(|_| ()),
            Needs::Both => self.current().and_then(|_| self.saved()).map(|_| ()),
            Needs::Saved if self.saved.is_none() => Err(Nfs4Error::RestoreFh),
            Needs::Saved => Ok(()),
        }
    }

    /// Reports that the SEQUENCE has succeeded. `tag_bytes` is the encoded length of the tag in the
    /// reply, and `header_bytes` is the length of the RPC header.
    pub fn enter_session(&mut self, admitted: &Admitted, header_bytes: u32, tag_bytes: u32) {
        self.is_in_session = true;
        let kept_max = admitted.must_keep.then_some(admitted.kept_bytes_max);
        self.room = Room::new(admitted.reply_bytes_max, kept_max);
        let sequence_bytes = SEQUENCE_REPLY_BYTES - RPC_HEADER_BYTES;
        self.room.use_up(sequence_bytes.saturating_add(header_bytes).saturating_add(tag_bytes));
    }

    /// Returns the index of the operation that has most recently begun.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.begun.saturating_sub(1)
    }

    /// Returns true if the last operation of the compound has begun.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.begun >= self.count
    }

    /// Checks the position of a DESTROY_SESSION that destroys the session of this compound.
    ///
    /// # Errors
    /// NOT_ONLY_OP if it is not the last operation.
    pub fn check_destroys_own(&self) -> Result<(), Nfs4Error> {
        if self.is_last() { Ok(()) } else { Err(Nfs4Error::NotOnlyOp) }
    }

    /// Checks that the reply has room for a result of this many bytes, before the operation is
    /// executed. The bytes include the number of the operation and its status.
    ///
    /// # Errors
    /// REP_TOO_BIG; REP_TOO_BIG_TO_CACHE if the reply must be kept.
    pub fn check_room(&self, result_bytes: u32) -> Result<(), Nfs4Error> {
        self.room.check(result_bytes.saturating_add(self.bytes_after()))
    }

    /// Returns the maximum number of bytes of the next result, for operations that can return less
    /// data.
    #[must_use]
    pub fn room(&self) -> u32 {
        self.room.left().saturating_sub(self.bytes_after())
    }

    /// Reports that the result of an operation has this many bytes.
    pub fn add_result(&mut self, result_bytes: u32) {
        self.room.use_up(result_bytes);
    }

    /// Returns the number of bytes of the reply so far.
    #[must_use]
    pub fn reply_bytes(&self) -> u32 {
        self.room.used()
    }

    /// Returns the number of bytes that must stay free after the result of this operation.
    fn bytes_after(&self) -> u32 {
        if self.is_last() { 0 } else { ERROR_RESULT_BYTES }
    }
}

/// The size in bytes of the RPC header that is included in [`SEQUENCE_REPLY_BYTES`].
const RPC_HEADER_BYTES: u32 = 24;
/// The size in bytes of a result with an error: the number of the operation and its status.
const ERROR_RESULT_BYTES: u32 = 8;
