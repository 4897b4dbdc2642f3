//! The visible part of a state, and the types in it.

use crate::Nfs4Error;
use crate::keys::{ClientKey, StateKey};

/// The caller's number for a file. This crate only compares the numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileNumber(pub u64);

/// The kind of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateKind {
    /// The open of a file by an open owner.
    Open,
    /// The locks of a lock owner under an open.
    Lock,
    /// The delegation of a file to a client.
    Delegation,
    /// The layout of a file, held by a client.
    Layout,
    /// A copy that continues after the reply to its COPY.
    Copy,
}

impl StateKind {
    pub(super) const ALL: [Self; 5] =
        [Self::Open, Self::Lock, Self::Delegation, Self::Layout, Self::Copy];

    /// Returns the two bits that stand for the kind in a state id. Layouts and copies have the same
    /// bits; their keys differ.
    pub(super) const fn tag(self) -> u8 {
        match self {
            Self::Copy => Self::Layout as u8,
            kind => kind as u8,
        }
    }
}

/// A set of kinds of state, for operations that accept several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindSet(u8);

impl KindSet {
    /// The kinds that READ and WRITE accept.
    pub const DATA: Self = Self::of(&[StateKind::Open, StateKind::Lock, StateKind::Delegation]);
    /// Opens only, for CLOSE and OPEN_DOWNGRADE.
    pub const OPEN: Self = Self::of(&[StateKind::Open]);
    /// Locks only, for LOCKU.
    pub const LOCK: Self = Self::of(&[StateKind::Lock]);
    /// Delegations only, for DELEGRETURN.
    pub const DELEGATION: Self = Self::of(&[StateKind::Delegation]);
    /// Layouts only, for LAYOUTRETURN and LAYOUTCOMMIT.
    pub const LAYOUT: Self = Self::of(&[StateKind::Layout]);
    /// Copies only, for OFFLOAD_STATUS and OFFLOAD_CANCEL.
    pub const COPY: Self = Self::of(&[StateKind::Copy]);
    /// All kinds of state, for LAYOUTGET, TEST_STATEID and FREE_STATEID.
    pub const ALL: Self = Self::of(&StateKind::ALL);

    const fn of(kinds: &[StateKind]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < kinds.len() {
            bits |= 1 << kinds[index] as u8;
            index += 1;
        }
        Self(bits)
    }

    /// Returns true if the set has this kind.
    #[must_use]
    pub const fn contains(self, kind: StateKind) -> bool {
        self.0 >> kind as u8 & 1 == 1
    }
}

/// The reason why the server has revoked a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revocation {
    /// The lease had expired, and another client needed what the state holds.
    Expired,
    /// An administrator or a fence demanded the revocation.
    ByAdministrator,
    /// The client did not return a delegation or layout that was recalled.
    NotReturned,
}

impl Revocation {
    /// Returns the error that requests with the state's id get.
    #[must_use]
    pub const fn error(self) -> Nfs4Error {
        match self {
            Self::Expired => Nfs4Error::Expired,
            Self::ByAdministrator => Nfs4Error::AdminRevoked,
            Self::NotReturned => Nfs4Error::DelegRevoked,
        }
    }
}

/// The visible part of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateView<'a> {
    /// The key of the state.
    pub key: StateKey,
    /// The client that the state belongs to.
    pub client: ClientKey,
    /// The kind of the state.
    pub kind: StateKind,
    /// The file to which the state belongs.
    pub file: FileNumber,
    /// The name of the open owner or lock owner; empty for other kinds.
    pub owner: &'a [u8],
    /// The caller's number for the state, such as the filer's `StateId`.
    pub inner: u64,
    /// For a lock state: the open to which it belongs; otherwise `None`.
    pub open: Option<StateKey>,
    /// The number of changes of the state, which its id contains.
    pub sequence: u32,
    /// The reason why the state was revoked; `None` if it is valid.
    pub revoked: Option<Revocation>,
}

/// The meaning of a valid state id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// The caller has no open.
    Anonymous,
    /// The caller has no open, and ignores the locks of other owners.
    Bypass,
    /// The state that the id names.
    State(StateKey),
}
