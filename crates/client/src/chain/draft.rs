//! The state of a chain that is being built, which the next member depends on.
//!
//! Invariant: a member that does not name an object or open uses those of the members before it.

use dafs_types::{FileHandle, StateId};
use dafs_wire::{ChainClass, ChainFlags, Procedure};

use crate::chain::outcome::ChainFailure;
use crate::impersonation::RegisteredCredentials;

/// The state of a chain that is being built, which the next member depends on.
#[derive(Default)]
pub(crate) struct Draft {
    /// The object of the next member; `None` if the server takes the object from the member before
    /// it.
    pub file: Option<FileHandle>,
    /// The open of the next member; `None` if the server takes the open from the members before it.
    pub state: Option<StateId>,
    pub has_fetched: bool,
    pub request_bytes_max: usize,
    pub has_checksums: bool,
    pub writes_inline: bool,
    /// The number of credits that the members request.
    pub wanted_credits: u16,
    /// The credentials of the user that the session impersonates.
    pub acting: Option<RegisteredCredentials>,
    /// The session's label, sent in each member, by which the server's operator can follow
    /// requests.
    pub label: u64,
    /// The failure of the first member that cannot be sent.
    pub refused: Option<Box<ChainFailure>>,
}

impl Draft {
    pub(crate) fn stand_on(&mut self, file: FileHandle, state: StateId) {
        (self.file, self.state) = (Some(file), Some(state));
    }

    /// Returns the object and the open of the next member.
    pub(crate) fn place(&self) -> (Option<FileHandle>, Option<StateId>) {
        (self.file, self.state)
    }

    pub(crate) fn return_to(&mut self, place: (Option<FileHandle>, Option<StateId>)) {
        (self.file, self.state) = place;
    }

    pub(crate) fn flags_of(&self, procedure: Procedure, is_first: bool) -> ChainFlags {
        let mut flags = ChainFlags::default();
        if !is_first {
            flags = flags.with(ChainFlags::BACK);
        }
        if self.file.is_none() && procedure.chained_handle_at().is_some() {
            flags = flags.with(ChainFlags::FILE_HANDLE);
        }
        if self.state.is_none() && procedure.chained_state_at().is_some() {
            flags = flags.with(ChainFlags::STATE_ID);
        }
        flags
    }

    /// Returns the reason why a procedure is not allowed at this position of the chain; `None` if
    /// it is allowed.
    pub(crate) fn misplaced(&self, procedure: Procedure) -> Option<String> {
        let name = procedure.name();
        match procedure.chain_class() {
            ChainClass::Special | ChainClass::BackControl => {
                Some(format!("{name} cannot be in a chain (draft 4.3.1)"))
            }
            ChainClass::ModifiesFiles if self.has_fetched && procedure != Procedure::Close => {
                Some(format!("{name} cannot follow a member that fetches data (draft 4.3.1)"))
            }
            ChainClass::ModifiesFiles
            | ChainClass::BulkFetch
            | ChainClass::Simple
            | ChainClass::ModifiesLocks => None,
        }
    }

    /// Updates the current object and open for the member after this one.
    pub(crate) fn note_left_behind(&mut self, procedure: Procedure) {
        self.has_fetched |= procedure.chain_class() == ChainClass::BulkFetch;
        if procedure == Procedure::Open {
            (self.file, self.state) = (None, None);
        } else if procedure.finds() {
            // The next member works on another object, which this chain has not opened.
            (self.file, self.state) = (None, Some(StateId::ANONYMOUS));
        } else if procedure.chained_handle_at().is_some() {
            self.file = None;
        }
    }
}
