//! The keys of clients and sessions, by which tables refer to each other.

use dafs_base::Key;

/// The key of a client's record. After the record was removed, the key refers to no record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientKey(pub(crate) Key<ClientTag>);

/// A marker type: the type parameter of [`ClientKey`], so that keys of clients and of sessions are
/// different types.
#[derive(Clone, Copy, Debug)]
pub enum ClientTag {}

impl ClientKey {
    /// The key that refers to no client.
    pub const NONE: Self = Self(Key::NULL);

    /// Returns the key as a number.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// Creates a key from a number. If no client has this key, it refers to none.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(Key::from_bits(bits))
    }

    /// Returns the index of the record in its table, for use as an index of the caller's own
    /// tables.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0.index()
    }
}

/// The key of a session. After the session has ended, the key refers to no session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey(pub(crate) Key<SessionTag>);

/// A marker type: the type parameter of [`SessionKey`], so that keys of clients and of sessions are
/// different types.
#[derive(Clone, Copy, Debug)]
pub enum SessionTag {}

/// The id of a session: the number of the server's run that created it, a running number, and eight
/// random bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SessionId4(pub [u8; 16]);

impl SessionId4 {
    pub(crate) fn new(epoch: u32, index: u32, random: u64) -> Self {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&epoch.to_be_bytes());
        bytes[4..8].copy_from_slice(&index.to_be_bytes());
        bytes[8..].copy_from_slice(&random.to_be_bytes());
        Self(bytes)
    }

    /// Returns the part of the id that is unique to the session. The server uses it to name the
    /// origin of requests.
    #[must_use]
    pub fn number(self) -> u64 {
        let (number, _) = self.0.split_at(8);
        number.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// Returns the number of the run of the server that created the session.
    #[must_use]
    pub fn epoch(self) -> u32 {
        (self.number() >> 32) as u32
    }
}

/// The key of a callback. After the callback has ended, the key refers to no callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallbackKey(pub(crate) Key<CallbackTag>);

/// The type parameter of the keys of callbacks, whose type is private.
#[derive(Clone, Copy, Debug)]
pub enum CallbackTag {}

/// The key of a state that a state id names. After the state has ended, the key refers to no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateKey(pub(crate) Key<StateTag>);

/// The type parameter of the keys of states, whose type is private.
#[derive(Clone, Copy, Debug)]
pub enum StateTag {}
