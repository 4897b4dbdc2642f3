//! Identifiers. Each is a newtype, so that a stream can never be passed where a
//! sequence number is meant. Opaque values are byte arrays: they are compared
//! and copied, never swapped (draft section 6, basic types).

use std::hash::{Hash, Hasher};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);
    };
}

number! {
    /// Names one DAFS session; unique among servers that share recovery state.
    SessionId(u64)
}
number! {
    /// The server's short name for a client identity string and verifier.
    ClientId(u64)
}
number! {
    /// One open of one file by one lock owner. Zero is the anonymous state.
    StateId(u64)
}
number! {
    /// A request slot of a session, `0..credit count`.
    StreamId(u16)
}
number! {
    /// Per-stream request number; wraps.
    SequenceNumber(u16)
}
number! {
    /// Names registered credentials; zero means the session's own identity.
    CredHandle(u32)
}
number! {
    /// A transport's remote memory region handle (an STag over iWARP).
    RmrContext(u32)
}
number! {
    /// An address inside a remote memory region.
    RmrTarget(u64)
}
number! {
    /// Client-chosen name of one transfer of a batch, unique in its session.
    RequestId(u64)
}
number! {
    /// Position in a directory listing; 0, 1 and 2 are reserved.
    ReaddirCookie(u64)
}

impl StateId {
    /// The state that stands for "no open" (READ and WRITE without OPEN, SETATTR
    /// that does not change the size).
    pub const ANONYMOUS: StateId = StateId(0);
}

impl SequenceNumber {
    /// The number of the next request on the same stream.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// Opaque 8 bytes that change when the party that made them has restarted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Verifier(pub [u8; 8]);

/// Opaque 8 bytes that tie readdir cookies to one state of a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CookieVerifier(pub [u8; 8]);

/// Names a file system; the client may only compare it. 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FsHandle(pub [u8; 16]);

/// Names a file: 16 bytes of [`FsHandle`], then 48 bytes only its server reads.
#[derive(Clone, Copy)]
pub struct FileHandle(pub [u8; FileHandle::LENGTH]);

/// Word by word, without a call: a request compares several.
impl PartialEq for FileHandle {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let (own, others): (&[[u8; 8]], &[[u8; 8]]) = (self.0.as_chunks().0, other.0.as_chunks().0);
        let pairs = own.iter().zip(others);
        let different =
            |(a, b): (&[u8; 8], &[u8; 8])| u64::from_ne_bytes(*a) ^ u64::from_ne_bytes(*b);
        pairs.map(different).fold(0, |sum, word| sum | word) == 0
    }
}

impl Eq for FileHandle {}

/// One word of it: handles are looked up several times in a request, and whoever makes them
/// sees to it that they differ (ours end in a seal that nobody can foresee).
impl Hash for FileHandle {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let words = self.0.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
        state.write_u64(words.fold(0, |sum, word| sum ^ word));
    }
}

impl FileHandle {
    /// Bytes in a file handle.
    pub const LENGTH: usize = 64;
    /// The handle no server issues.
    pub const NULL: FileHandle = FileHandle([0; Self::LENGTH]);

    /// Joins the two halves.
    #[must_use]
    pub fn new(fs: FsHandle, file_id: [u8; 48]) -> Self {
        let mut bytes = [0; Self::LENGTH];
        bytes[..16].copy_from_slice(&fs.0);
        bytes[16..].copy_from_slice(&file_id);
        Self(bytes)
    }

    /// The client-visible half.
    #[must_use]
    pub fn fs(&self) -> FsHandle {
        let mut fs = [0; 16];
        fs.copy_from_slice(&self.0[..16]);
        FsHandle(fs)
    }

    /// Of which node of a federation the object was born: the two highest bytes of the first
    /// word, least byte first. 0: the server stands alone.
    ///
    /// Handles that servers made before they left room for it have any number there: see
    /// `Store::renewed` of the store.
    #[inline]
    #[must_use]
    pub fn birth_node(&self) -> u16 {
        u16::from_le_bytes([self.0[6], self.0[7]])
    }

    /// The server's half.
    #[must_use]
    pub fn file_id(&self) -> [u8; 48] {
        let mut id = [0; 48];
        id.copy_from_slice(&self.0[16..]);
        id
    }
}

impl Default for FileHandle {
    fn default() -> Self {
        Self::NULL
    }
}

impl std::fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FileHandle(")?;
        for byte in &self.0 {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}
