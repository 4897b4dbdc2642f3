//! What is known of the next member of a chain that is being put together.
//!
//! Invariant: a member takes from those before what it does not name.

use dafs_types::{FileHandle, StateId};
use dafs_wire::{ChainClass, ChainFlags, Procedure};

use crate::acting::Registered;
use crate::chain::outcome::ChainFailure;

/// What is known of the next member of a chain that is being put together.
#[derive(Default)]
pub(crate) struct Draft {
    /// The object of the next member; `None` for what the members before have left.
    pub file: Option<FileHandle>,
    /// The open that the next member uses; `None` for what the members before have left.
    pub state: Option<StateId>,
    pub has_fetched: bool,
    pub request_bytes_max: usize,
    pub has_checksums: bool,
    pub writes_inline: bool,
    /// Credits to wish for.
    pub wish: u16,
    /// For whom the session acts.
    pub acting: Option<Registered>,
    /// What its members bear for whoever watches the server.
    pub label: u64,
    /// The member that cannot be sent.
    pub refused: Option<Box<ChainFailure>>,
}

impl Draft {
    pub fn stand_on(&mut self, file: FileHandle, state: StateId) {
        (self.file, self.state) = (Some(file), Some(state));
    }

    /// The object and the open of the next member.
    pub fn place(&self) -> (Option<FileHandle>, Option<StateId>) {
        (self.file, self.state)
    }

    pub fn return_to(&mut self, place: (Option<FileHandle>, Option<StateId>)) {
        (self.file, self.state) = place;
    }

    pub fn flags_of(&self, procedure: Procedure, is_first: bool) -> ChainFlags {
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

    /// What is wrong with a procedure in this place, if anything is.
    pub fn misplaced(&self, procedure: Procedure) -> Option<String> {
        let name = procedure.name();
        match procedure.chain_class() {
            ChainClass::Special | ChainClass::BackControl => {
                Some(format!("{name} cannot be in a chain (draft 4.3.1)"))
            }
            ChainClass::ModifiesFiles if self.has_fetched && procedure != Procedure::Close => {
                Some(format!("{name} cannot stand behind a member that fetches (draft 4.3.1)"))
            }
            ChainClass::ModifiesFiles
            | ChainClass::BulkFetch
            | ChainClass::Simple
            | ChainClass::ModifiesLocks => None,
        }
    }

    /// What a member leaves for the next one.
    pub fn note_left_behind(&mut self, procedure: Procedure) {
        self.has_fetched |= procedure.chain_class() == ChainClass::BulkFetch;
        if procedure == Procedure::Open {
            (self.file, self.state) = (None, None);
        } else if procedure.finds() {
            // Another object, which nobody has opened here.
            (self.file, self.state) = (None, Some(StateId::ANONYMOUS));
        } else if procedure.chained_handle_at().is_some() {
            self.file = None;
        }
    }
}
