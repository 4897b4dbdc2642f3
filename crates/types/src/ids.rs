//! Identifiers. Each has a separate type, so that for example a stream cannot be passed as a
//! sequence number. Opaque identifiers are byte arrays: they are compared and copied, but never
//! byte-swapped (draft section 6, basic types).

use std::hash::{Hash, Hasher};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);
    };
}

number! {
    /// The id of a DAFS session, unique among servers that share recovery state.
    SessionId(u64)
}
number! {
    /// The id that the server assigns to a client's identity string and verifier.
    ClientId(u64)
}
number! {
    /// The state id of an open: it identifies one open of one file by one owner. Zero is the
    /// anonymous state id.
    StateId(u64)
}
number! {
    /// The number of a stream: a request slot of a session. It is less than the session's number of
    /// credits.
    StreamId(u16)
}
number! {
    /// The sequence number of a request on its stream; it wraps around.
    SequenceNumber(u16)
}
number! {
    /// The handle of registered credentials; zero means the session's own identity.
    CredHandle(u32)
}
number! {
    /// The handle of a memory region of the client. With iWARP, it is the region's STag.
    RmrContext(u32)
}
number! {
    /// An address inside a memory region of the client.
    RmrTarget(u64)
}
number! {
    /// The client's id for one transfer of a batch, unique within its session.
    RequestId(u64)
}
number! {
    /// A position in a directory listing; 0, 1 and 2 are reserved.
    ReaddirCookie(u64)
}

impl StateId {
    /// The state id for requests that use no open, such as READ and WRITE without OPEN, or SETATTR
    /// without a change of the size.
    pub const ANONYMOUS: StateId = StateId(0);
}

impl SequenceNumber {
    /// Returns the sequence number of the next request on the same stream.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// Eight opaque bytes that identify one run of a client or server. They change when it restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Verifier(pub [u8; 8]);

/// Eight opaque bytes that identify the state of a directory for which cookies are valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CookieVerifier(pub [u8; 8]);

/// The handle of a file system: 16 bytes that a client may only compare with other handles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FsHandle(pub [u8; 16]);

/// The handle of a file: the 16 bytes of a [`FsHandle`], then 48 bytes that only the server that
/// issued them interprets.
#[derive(Clone, Copy)]
pub struct FileHandle(pub [u8; FileHandle::LENGTH]);

/// Returns true if both handles are equal. They are compared word by word, without a function call,
/// because every request compares several handles.
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

/// Hashes a single word, the XOR of all words, because a request looks up handles several times.
/// The hashes of different handles differ enough, because each handle of the store ends in a MAC
/// (message authentication code) that no client can predict.
impl Hash for FileHandle {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let words = self.0.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
        state.write_u64(words.fold(0, |sum, word| sum ^ word));
    }
}

impl FileHandle {
    /// The length of a handle in bytes.
    pub const LENGTH: usize = 64;
    /// A handle that no server issues.
    pub const NULL: FileHandle = FileHandle([0; Self::LENGTH]);

    /// Creates a handle from a file-system handle and the server's part.
    #[must_use]
    pub fn new(fs: FsHandle, file_id: [u8; 48]) -> Self {
        let mut bytes = [0; Self::LENGTH];
        bytes[..16].copy_from_slice(&fs.0);
        bytes[16..].copy_from_slice(&file_id);
        Self(bytes)
    }

    /// Returns the part of the handle that names the file system.
    #[must_use]
    pub fn fs(&self) -> FsHandle {
        let mut fs = [0; 16];
        fs.copy_from_slice(&self.0[..16]);
        FsHandle(fs)
    }

    /// Returns the number of the server node that created the object: the two highest bytes of the
    /// first word, in little-endian order. The number is 0 if the server has no other nodes.
    ///
    /// Handles from servers that did not reserve these bytes have arbitrary values there: see
    /// `Store::renewed` in the store.
    #[inline]
    #[must_use]
    pub fn birth_node(&self) -> u16 {
        u16::from_le_bytes([self.0[6], self.0[7]])
    }

    /// Returns the 48 bytes of the handle that only the server interprets.
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
