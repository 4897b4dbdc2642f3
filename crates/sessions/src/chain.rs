//! The structure of chains: what the previous request means for the next one (draft 4.3).
//!
//! Invariant: the check of a request's position depends only on the earlier requests on its
//! channel, not on their progress. So equal sequences of requests get equal replies, no matter how
//! long each request takes.
//!
//! ```text
//!              no FORWARD                 FORWARD, member
//!             ┌──────────┐   ┌──────────────────────────────────┐
//!             ▼          │   │                                  ▼
//!          Closed ───────┴───┘    Open ──FORWARD, refused──► Broken
//!             ▲                    │ ▲                         │ │
//!             └────no FORWARD──────┘ └──── (never back) ◄──────┘ │
//!             └───────────────────no FORWARD─────────────────────┘
//! ```
//!
//! These requests are refused with CHAIN_FORM. Later members of the chain are treated as if they
//! followed a failed member.
//! - a request without BACK after a request with FORWARD, or a request with BACK after a request
//!   without FORWARD;
//! - FILE_HANDLE or STATE_ID without BACK, or on a procedure that has no such argument;
//! - SAVE without FORWARD, or on a request whose procedure is not in the chain class `Simple`;
//! - a request of the special class with FORWARD or BACK, or one of the server's procedures;
//! - a request that modifies the file system after a bulk fetch in the same chain. CLOSE is
//!   permitted there (`docs/spec/gaps.md`).
//!
//! Members that follow a request that was refused here are refused with CHAIN_BROKEN. If a member
//! fails during execution, the server breaks the chain itself.

use dafs_types::Status;
use dafs_wire::{ChainClass, Procedure};

use crate::{ChainFlags, RequestClass};

/// The position of an executable request in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChainPlace {
    /// The request is not a member of a chain.
    Alone,
    /// The request begins a chain.
    First,
    /// The request has members before and after it.
    Middle,
    /// The request ends a chain.
    Last,
}

/// The state of a channel's chain after its last request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ChainState {
    /// No chain is open.
    #[default]
    Closed,
    /// The last request of the channel announced another member of its chain.
    Open {
        /// True if a member of the chain was a bulk fetch.
        has_fetched: bool,
    },
    /// The last request announced another member of its chain, but no further member will be
    /// executed.
    Broken,
    /// The last request was damaged, so it is unknown whether it announced another member of a
    /// chain.
    Unknown,
}

impl ChainState {
    /// Checks the position of the next request, and updates the state of the chain.
    ///
    /// # Errors
    /// CHAIN_FORM and CHAIN_BROKEN, as described at the top of this module.
    pub(crate) fn admit(
        &mut self,
        flags: ChainFlags,
        class: RequestClass,
        procedure: u32,
    ) -> Result<ChainPlace, Status> {
        let procedure = Procedure::from_number(procedure);
        let forward = flags.has(ChainFlags::FORWARD);
        let judged = if is_well_formed(flags, class, procedure) {
            self.judge_place(flags, procedure)
        } else {
            Err(Status::ChainForm)
        };
        let fetches =
            procedure.is_some_and(|procedure| procedure.chain_class() == ChainClass::BulkFetch);
        let has_fetched = fetches || matches!(self, Self::Open { has_fetched: true });
        *self = match (forward, judged) {
            (false, _) => Self::Closed,
            (true, Ok(_)) => Self::Open { has_fetched },
            (true, Err(_)) => Self::Broken,
        };
        judged
    }

    /// Records that the most recent request was refused for another reason, so that later members
    /// of its chain are not executed.
    pub(crate) fn break_off(&mut self) {
        if let Self::Open { .. } = self {
            *self = Self::Broken;
        }
    }

    fn judge_place(
        self,
        flags: ChainFlags,
        procedure: Option<Procedure>,
    ) -> Result<ChainPlace, Status> {
        let back = flags.has(ChainFlags::BACK);
        let place = match (flags.has(ChainFlags::FORWARD), back) {
            (false, false) => ChainPlace::Alone,
            (true, false) => ChainPlace::First,
            (true, true) => ChainPlace::Middle,
            (false, true) => ChainPlace::Last,
        };
        match (self, back) {
            (Self::Closed | Self::Unknown, false) => Ok(place),
            (Self::Closed, true) | (Self::Open { .. } | Self::Broken, false) => {
                Err(Status::ChainForm)
            }
            (Self::Broken | Self::Unknown, true) => Err(Status::ChainBroken),
            (Self::Open { has_fetched: true }, true) if modifies_files(procedure) => {
                Err(Status::ChainForm)
            }
            (Self::Open { .. }, true) => Ok(place),
        }
    }
}

/// Returns true if the flags are allowed for the procedure, regardless of earlier requests.
fn is_well_formed(flags: ChainFlags, class: RequestClass, procedure: Option<Procedure>) -> bool {
    let (forward, back) = (flags.has(ChainFlags::FORWARD), flags.has(ChainFlags::BACK));
    let takes_handle = flags.has(ChainFlags::FILE_HANDLE);
    let takes_state = flags.has(ChainFlags::STATE_ID);
    if flags.0 & !ChainFlags::KNOWN != 0 || ((takes_handle || takes_state) && !back) {
        return false;
    }
    // The decoding of a request with an unassigned procedure number fails later.
    let Some(procedure) = procedure else { return !flags.has(ChainFlags::SAVE) };
    let chain_class = procedure.chain_class();
    let is_chained = forward || back;
    let is_special = class != RequestClass::Ordinary
        || matches!(chain_class, ChainClass::Special | ChainClass::BackControl);
    let is_saved_rightly = forward && chain_class == ChainClass::Simple;
    !(is_chained && is_special)
        && (!flags.has(ChainFlags::SAVE) || is_saved_rightly)
        && (!takes_handle || procedure.chained_handle_at().is_some())
        && (!takes_state || procedure.chained_state_at().is_some())
}

/// Returns true if the procedure modifies the file system. Such a request may not follow a bulk
/// fetch in the same chain.
fn modifies_files(procedure: Option<Procedure>) -> bool {
    procedure.is_some_and(|procedure| {
        procedure.chain_class() == ChainClass::ModifiesFiles && procedure != Procedure::Close
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: u16 = ChainFlags::FORWARD;
    const B: u16 = ChainFlags::BACK;

    fn admit(
        state: &mut ChainState,
        procedure: Procedure,
        flags: u16,
    ) -> Result<ChainPlace, Status> {
        let number = procedure.number();
        state.admit(ChainFlags(flags), RequestClass::of(number), number)
    }

    const FORM: Result<ChainPlace, Status> = Err(Status::ChainForm);
    const BROKEN: Result<ChainPlace, Status> = Err(Status::ChainBroken);

    #[test]
    fn members_follow_each_other() {
        let mut state = ChainState::default();
        assert_eq!(admit(&mut state, Procedure::Null, F), Ok(ChainPlace::First));
        assert_eq!(admit(&mut state, Procedure::Null, F | B), Ok(ChainPlace::Middle));
        assert_eq!(admit(&mut state, Procedure::Null, B), Ok(ChainPlace::Last));
        assert_eq!(admit(&mut state, Procedure::Null, 0), Ok(ChainPlace::Alone));
        assert_eq!(state, ChainState::Closed);
    }

    #[test]
    fn a_request_outside_the_chain_is_refused_and_breaks_the_chain() {
        let mut state = ChainState::default();
        admit(&mut state, Procedure::Null, F).unwrap();
        assert_eq!(admit(&mut state, Procedure::Null, 0), FORM);
        // A refused request announced no member, so the next one does not belong to a chain either.
        // The one after that was announced by a request that failed.
        assert_eq!(admit(&mut state, Procedure::Null, F | B), FORM);
        assert_eq!(admit(&mut state, Procedure::Null, F | B), BROKEN);
        assert_eq!(admit(&mut state, Procedure::Null, B), BROKEN);
        assert_eq!(admit(&mut state, Procedure::Null, 0), Ok(ChainPlace::Alone));
        // A request that begins a chain between members of another ends that chain, too.
        admit(&mut state, Procedure::Null, F).unwrap();
        assert_eq!(admit(&mut state, Procedure::Null, F), FORM);
        assert_eq!(admit(&mut state, Procedure::Null, B), BROKEN);
    }

    #[test]
    fn every_procedure_is_allowed_where_its_class_says() {
        for &procedure in Procedure::ALL {
            let class = procedure.chain_class();
            let never = matches!(class, ChainClass::Special | ChainClass::BackControl);
            let name = procedure.name();
            for (before, has_fetched) in [(Procedure::Null, false), (Procedure::ReadDirect, true)] {
                for flags in [F, B, F | B] {
                    let mut state = ChainState::default();
                    if flags & B != 0 {
                        admit(&mut state, before, F).unwrap();
                    }
                    let is_late = has_fetched
                        && flags & B != 0
                        && class == ChainClass::ModifiesFiles
                        && procedure != Procedure::Close;
                    let refused = admit(&mut state, procedure, flags) == FORM;
                    assert_eq!(refused, never || is_late, "{name} with {flags:#x}");
                    if flags & F != 0 {
                        let next = admit(&mut state, Procedure::Null, B);
                        let wanted = if refused { BROKEN } else { Ok(ChainPlace::Last) };
                        assert_eq!(next, wanted, "behind {name}");
                    }
                }
            }
            // What a bulk fetch forbids stays forbidden, however many members come between.
            let mut state = ChainState::default();
            admit(&mut state, Procedure::GetAttrInline, F).unwrap();
            admit(&mut state, Procedure::Null, F | B).unwrap();
            let is_late = class == ChainClass::ModifiesFiles && procedure != Procedure::Close;
            assert_eq!(admit(&mut state, procedure, B) == FORM, never || is_late, "{name}");
        }
    }

    #[test]
    fn save_is_for_simple_requests_with_a_following_member() {
        for &procedure in Procedure::ALL {
            let is_simple = procedure.chain_class() == ChainClass::Simple;
            let name = procedure.name();
            let with = |flags| admit(&mut ChainState::default(), procedure, flags);
            assert_eq!(with(F | ChainFlags::SAVE).is_ok(), is_simple, "{name}");
            assert_eq!(with(ChainFlags::SAVE), FORM, "{name}");
        }
    }

    #[test]
    fn only_later_members_inherit_and_only_arguments_that_they_have() {
        for &procedure in Procedure::ALL {
            let never =
                matches!(procedure.chain_class(), ChainClass::Special | ChainClass::BackControl);
            for (flag, has_place) in [
                (ChainFlags::FILE_HANDLE, procedure.chained_handle_at().is_some()),
                (ChainFlags::STATE_ID, procedure.chained_state_at().is_some()),
            ] {
                let name = procedure.name();
                for flags in [flag, flag | F] {
                    assert_eq!(admit(&mut ChainState::default(), procedure, flags), FORM, "{name}");
                }
                let mut state = ChainState::Open { has_fetched: false };
                let taken = admit(&mut state, procedure, flag | B);
                assert_eq!(taken.is_ok(), has_place && !never, "{name}");
            }
        }
    }

    #[test]
    fn unknown_flags_and_numbers() {
        assert_eq!(admit(&mut ChainState::default(), Procedure::Null, 0x20), FORM);
        let mut state = ChainState::default();
        let mut unassigned = |flags| state.admit(ChainFlags(flags), RequestClass::Ordinary, 107);
        assert_eq!(unassigned(F), Ok(ChainPlace::First));
        assert_eq!(unassigned(F | B | ChainFlags::FILE_HANDLE), Ok(ChainPlace::Middle));
        assert_eq!(unassigned(F | B | ChainFlags::SAVE), FORM);
        assert_eq!(unassigned(B), BROKEN);
    }

    #[test]
    fn after_a_damaged_request_no_member_is_refused_as_malformed_or_executed() {
        for (flags, wanted) in [(0, Ok(ChainPlace::Alone)), (F, Ok(ChainPlace::First))] {
            assert_eq!(admit(&mut ChainState::Unknown, Procedure::Null, flags), wanted);
        }
        let mut state = ChainState::Unknown;
        assert_eq!(admit(&mut state, Procedure::Null, F | B), BROKEN);
        assert_eq!(admit(&mut state, Procedure::Null, B), BROKEN);
        assert_eq!(state, ChainState::Closed);
    }

    #[test]
    fn a_member_refused_for_another_reason_breaks_its_chain() {
        let mut state = ChainState::default();
        admit(&mut state, Procedure::Null, F).unwrap();
        state.break_off();
        assert_eq!(admit(&mut state, Procedure::Null, B), BROKEN);
        state.break_off();
        assert_eq!(admit(&mut state, Procedure::Null, 0), Ok(ChainPlace::Alone));
    }
}
