//! The form of chains: what the request before leaves for the next one (draft 4.3).
//!
//! Invariant: whether a request is well placed depends on the requests before it on its
//! channel and on nothing else, not on how far they have come. So the same requests get the
//! same answers however long any of them takes.
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
//! Refused with CHAIN_FORM, and a member that has failed for those behind it:
//! - a request without BACK behind one with FORWARD, and the converse;
//! - FILE_HANDLE or STATE_ID without BACK, or on a procedure that has no such argument;
//! - SAVE without FORWARD, or on a request that is not simple;
//! - a request of the special class with FORWARD or BACK, or one of the server's;
//! - a request that modifies the file system behind one that fetched in bulk. CLOSE is let
//!   pass there (`docs/spec/gaps.md`).
//!
//! Refused with CHAIN_BROKEN: members behind one that was refused here. Members that fail
//! when they are carried out are the driver's affair, which breaks the chain by itself.

use dafs_types::Status;
use dafs_wire::{ChainClass, Procedure};

use crate::{ChainFlags, RequestClass};

/// Where a request stands that may be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChainPlace {
    /// In no chain.
    Alone,
    /// It begins one.
    First,
    /// It has members before and behind it.
    Middle,
    /// It ends one.
    Last,
}

/// What a channel's last request leaves for its next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ChainState {
    /// No chain is open.
    #[default]
    Closed,
    /// It announced another member.
    Open {
        /// A member has fetched in bulk.
        has_fetched: bool,
    },
    /// It announced another member, and none will be carried out.
    Broken,
    /// It was damaged: whether it announced another member, nobody knows.
    Doubtful,
}

impl ChainState {
    /// Judges the next request's place, and remembers it.
    ///
    /// # Errors
    /// CHAIN_FORM and CHAIN_BROKEN, as the module says.
    pub fn take(
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

    /// The request that was taken last is refused for another reason: whoever is chained
    /// behind it is not carried out.
    pub fn break_off(&mut self) {
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
            (Self::Closed | Self::Doubtful, false) => Ok(place),
            (Self::Closed, true) | (Self::Open { .. } | Self::Broken, false) => {
                Err(Status::ChainForm)
            }
            (Self::Broken | Self::Doubtful, true) => Err(Status::ChainBroken),
            (Self::Open { has_fetched: true }, true) if modifies_files(procedure) => {
                Err(Status::ChainForm)
            }
            (Self::Open { .. }, true) => Ok(place),
        }
    }
}

/// Whether flags and procedure agree, whatever stands before.
fn is_well_formed(flags: ChainFlags, class: RequestClass, procedure: Option<Procedure>) -> bool {
    let (forward, back) = (flags.has(ChainFlags::FORWARD), flags.has(ChainFlags::BACK));
    let takes_handle = flags.has(ChainFlags::FILE_HANDLE);
    let takes_state = flags.has(ChainFlags::STATE_ID);
    if flags.0 & !ChainFlags::KNOWN != 0 || ((takes_handle || takes_state) && !back) {
        return false;
    }
    // A number that nobody assigned is a member that its decoder refuses.
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

/// Whether a procedure may not follow a bulk fetch.
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

    fn take(
        state: &mut ChainState,
        procedure: Procedure,
        flags: u16,
    ) -> Result<ChainPlace, Status> {
        let number = procedure.number();
        state.take(ChainFlags(flags), RequestClass::of(number), number)
    }

    const FORM: Result<ChainPlace, Status> = Err(Status::ChainForm);
    const BROKEN: Result<ChainPlace, Status> = Err(Status::ChainBroken);

    #[test]
    fn members_follow_each_other() {
        let mut state = ChainState::default();
        assert_eq!(take(&mut state, Procedure::Null, F), Ok(ChainPlace::First));
        assert_eq!(take(&mut state, Procedure::Null, F | B), Ok(ChainPlace::Middle));
        assert_eq!(take(&mut state, Procedure::Null, B), Ok(ChainPlace::Last));
        assert_eq!(take(&mut state, Procedure::Null, 0), Ok(ChainPlace::Alone));
        assert_eq!(state, ChainState::Closed);
    }

    #[test]
    fn a_stranger_between_members_is_refused_and_breaks_the_chain() {
        let mut state = ChainState::default();
        take(&mut state, Procedure::Null, F).unwrap();
        assert_eq!(take(&mut state, Procedure::Null, 0), FORM);
        // It announced nobody, so the next one is a stranger, too; the one behind it was
        // announced by a request that failed.
        assert_eq!(take(&mut state, Procedure::Null, F | B), FORM);
        assert_eq!(take(&mut state, Procedure::Null, F | B), BROKEN);
        assert_eq!(take(&mut state, Procedure::Null, B), BROKEN);
        assert_eq!(take(&mut state, Procedure::Null, 0), Ok(ChainPlace::Alone));
        // One that begins a chain of its own between members takes its chain with it.
        take(&mut state, Procedure::Null, F).unwrap();
        assert_eq!(take(&mut state, Procedure::Null, F), FORM);
        assert_eq!(take(&mut state, Procedure::Null, B), BROKEN);
    }

    #[test]
    fn every_procedure_stands_where_its_class_says() {
        for &procedure in Procedure::ALL {
            let class = procedure.chain_class();
            let never = matches!(class, ChainClass::Special | ChainClass::BackControl);
            let name = procedure.name();
            for (before, has_fetched) in [(Procedure::Null, false), (Procedure::ReadDirect, true)] {
                for flags in [F, B, F | B] {
                    let mut state = ChainState::default();
                    if flags & B != 0 {
                        take(&mut state, before, F).unwrap();
                    }
                    let is_late = has_fetched
                        && flags & B != 0
                        && class == ChainClass::ModifiesFiles
                        && procedure != Procedure::Close;
                    let refused = take(&mut state, procedure, flags) == FORM;
                    assert_eq!(refused, never || is_late, "{name} with {flags:#x}");
                    if flags & F != 0 {
                        let next = take(&mut state, Procedure::Null, B);
                        let wanted = if refused { BROKEN } else { Ok(ChainPlace::Last) };
                        assert_eq!(next, wanted, "behind {name}");
                    }
                }
            }
            // What a bulk fetch keeps out stays out however many stand between.
            let mut state = ChainState::default();
            take(&mut state, Procedure::GetAttrInline, F).unwrap();
            take(&mut state, Procedure::Null, F | B).unwrap();
            let is_late = class == ChainClass::ModifiesFiles && procedure != Procedure::Close;
            assert_eq!(take(&mut state, procedure, B) == FORM, never || is_late, "{name}");
        }
    }

    #[test]
    fn save_is_for_simple_requests_that_somebody_follows() {
        for &procedure in Procedure::ALL {
            let is_simple = procedure.chain_class() == ChainClass::Simple;
            let name = procedure.name();
            let with = |flags| take(&mut ChainState::default(), procedure, flags);
            assert_eq!(with(F | ChainFlags::SAVE).is_ok(), is_simple, "{name}");
            assert_eq!(with(ChainFlags::SAVE), FORM, "{name}");
        }
    }

    #[test]
    fn only_members_behind_others_take_and_only_what_they_have_a_place_for() {
        for &procedure in Procedure::ALL {
            let never =
                matches!(procedure.chain_class(), ChainClass::Special | ChainClass::BackControl);
            for (flag, has_place) in [
                (ChainFlags::FILE_HANDLE, procedure.chained_handle_at().is_some()),
                (ChainFlags::STATE_ID, procedure.chained_state_at().is_some()),
            ] {
                let name = procedure.name();
                for flags in [flag, flag | F] {
                    assert_eq!(take(&mut ChainState::default(), procedure, flags), FORM, "{name}");
                }
                let mut state = ChainState::Open { has_fetched: false };
                let taken = take(&mut state, procedure, flag | B);
                assert_eq!(taken.is_ok(), has_place && !never, "{name}");
            }
        }
    }

    #[test]
    fn unknown_flags_and_numbers() {
        assert_eq!(take(&mut ChainState::default(), Procedure::Null, 0x20), FORM);
        let mut state = ChainState::default();
        let mut unassigned = |flags| state.take(ChainFlags(flags), RequestClass::Ordinary, 107);
        assert_eq!(unassigned(F), Ok(ChainPlace::First));
        assert_eq!(unassigned(F | B | ChainFlags::FILE_HANDLE), Ok(ChainPlace::Middle));
        assert_eq!(unassigned(F | B | ChainFlags::SAVE), FORM);
        assert_eq!(unassigned(B), BROKEN);
    }

    #[test]
    fn behind_a_damaged_request_nobody_is_wrong_and_no_member_is_carried_out() {
        for (flags, wanted) in [(0, Ok(ChainPlace::Alone)), (F, Ok(ChainPlace::First))] {
            assert_eq!(take(&mut ChainState::Doubtful, Procedure::Null, flags), wanted);
        }
        let mut state = ChainState::Doubtful;
        assert_eq!(take(&mut state, Procedure::Null, F | B), BROKEN);
        assert_eq!(take(&mut state, Procedure::Null, B), BROKEN);
        assert_eq!(state, ChainState::Closed);
    }

    #[test]
    fn a_member_refused_for_another_reason_breaks_its_chain() {
        let mut state = ChainState::default();
        take(&mut state, Procedure::Null, F).unwrap();
        state.break_off();
        assert_eq!(take(&mut state, Procedure::Null, B), BROKEN);
        state.break_off();
        assert_eq!(take(&mut state, Procedure::Null, 0), Ok(ChainPlace::Alone));
    }
}
