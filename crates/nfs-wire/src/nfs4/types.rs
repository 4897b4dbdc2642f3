//! The types that many operations share (RFC 8881 section 3).
//!
//! Invariant: a value with a variable length has a named bound.

use crate::xdr::{List, Opaque, Reader, Shape, Writer, Xdr, XdrError, xdr};

use super::limits::{
    FH_BYTES_MAX, LINK_TEXT_BYTES_MAX, NAME_BYTES_MAX, NETWORK_ADDRESS_BYTES_MAX, OPAQUE_BYTES_MAX,
    PATH_NAMES_MAX, TEXT_BYTES_MAX,
};
use super::status::Status;

/// A name in a directory or of an extended attribute. Its bytes are not checked: see
/// [`check_name`].
pub type Name<'b> = Opaque<'b, NAME_BYTES_MAX>;
/// A file handle, whose meaning only the server knows.
pub type FileHandle<'b> = Opaque<'b, FH_BYTES_MAX>;
/// The target of a symbolic link.
pub type LinkText<'b> = Opaque<'b, LINK_TEXT_BYTES_MAX>;
/// A client owner, server owner, state owner or server scope.
pub type Identity<'b> = Opaque<'b, OPAQUE_BYTES_MAX>;
/// A short text: a user, a group, a domain, a server.
pub type Text<'b> = Opaque<'b, TEXT_BYTES_MAX>;
/// The names of a path, from the root downwards.
pub type Path<'b> = List<Name<'b>, PATH_NAMES_MAX>;

/// The limit for nanoseconds in a time; a second has as many.
pub const NANOSECONDS_PER_SECOND: u32 = 1_000_000_000;

macro_rules! wrappers {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $inner);

        impl<'b> Xdr<'b> for $name {
            const LEAST: usize = <$inner as Xdr<'b>>::LEAST;
            const SHAPE: &'static Shape = <$inner as Xdr<'b>>::SHAPE;
            #[inline]
            fn decode(reader: &mut Reader<'b>) -> Result<Self, XdrError> {
                Xdr::decode(reader).map(Self)
            }
            #[inline]
            fn encode(&self, writer: &mut Writer) {
                self.0.encode(writer);
            }
        }
    )*};
}

wrappers! {
    /// The id that the server gave a client.
    ClientId(u64);
    /// The id of a session.
    SessionId([u8; 16]);
    /// Eight bytes that tell instances of a client, a server or a directory apart.
    Verifier([u8; 8]);
    /// The id of a device that layouts refer to.
    DeviceId([u8; 16]);
    /// The type of a layout; a number that is not listed is kept.
    LayoutType(u32);
    /// The access mode of a layout; a number that is not listed is kept.
    LayoutMode(u32);
}

impl LayoutType {
    /// File layouts of NFSv4.1.
    pub const FILES: Self = Self(1);
    /// Layouts of object storage.
    pub const OBJECTS: Self = Self(2);
    /// Layouts of block devices.
    pub const BLOCKS: Self = Self(3);
    /// Flexible file layouts (RFC 8435).
    pub const FLEXIBLE_FILES: Self = Self(4);
    /// Layouts of SCSI devices.
    pub const SCSI: Self = Self(5);
}

impl LayoutMode {
    /// Access for reading only.
    pub const READ: Self = Self(1);
    /// Access for reading and writing.
    pub const READ_WRITE: Self = Self(2);
    /// Both modes, in returns and recalls.
    pub const ANY: Self = Self(3);
}

xdr! {
    /// The id of an open, a lock, a delegation, a layout or a copy.
    #[derive(Copy, Default, Hash)]
    struct StateId {
        /// The number of changes of the state, which the server counts.
        sequence: u32,
        /// The identity of the state, whose meaning only the server knows.
        other: [u8; 12],
    }
    /// A point in time since 1970-01-01 00:00 UTC.
    #[derive(Copy, Default, Hash, PartialOrd, Ord)]
    struct Time {
        /// The whole seconds, which may be negative.
        seconds: i64,
        /// The nanoseconds after the whole second: see [`Time::is_valid`].
        nanoseconds: u32,
    }
    /// The value of a change attribute before and after an operation.
    #[derive(Copy, Default)]
    struct ChangeInfo {
        /// Whether nothing else changed the directory in between.
        atomic: bool,
        /// The value before the operation.
        before: u64,
        /// The value after the operation.
        after: u64,
    }
    /// The id of a file system.
    #[derive(Copy, Default, Hash)]
    struct FsId {
        /// The first half of the id.
        major: u64,
        /// The second half of the id.
        minor: u64,
    }
    /// The number of a device that a device file stands for.
    #[derive(Copy, Default)]
    struct DeviceNumber {
        /// The major device number.
        major: u32,
        /// The minor device number.
        minor: u32,
    }
    /// The owner of an open or of locks: a client's name for a process.
    #[derive(Copy, Default)]
    struct StateOwner<'b> {
        /// The client id, which servers ignore in minor version 1.
        client: ClientId,
        /// The name that the client chose.
        owner: Identity<'b>,
    }
    /// A client's name for itself.
    #[derive(Copy, Default)]
    struct ClientOwner<'b> {
        /// The verifier of the client's current instance.
        verifier: Verifier,
        /// The name, which stays the same over restarts.
        owner: Identity<'b>,
    }
    /// A server's name for itself.
    #[derive(Copy, Default)]
    struct ServerOwner<'b> {
        /// The part that differs between servers which share client ids, not sessions.
        minor: u64,
        /// The part that is equal for servers which share client ids.
        major: Identity<'b>,
    }
    /// The implementation of a client or server, for people.
    #[derive(Copy, Default)]
    struct Implementation<'b> {
        /// The domain name of those who made it.
        domain: Text<'b>,
        /// The name of the product with its version.
        name: Text<'b>,
        /// The date of the build.
        date: Time,
    }
    /// A universal address (RFC 5665).
    #[derive(Copy, Default)]
    struct NetworkAddress<'b> {
        /// The transport: `tcp`, `tcp6`, `rdma` and so on.
        transport: Opaque<'b, NETWORK_ADDRESS_BYTES_MAX>,
        /// The address and port as text.
        address: Opaque<'b, NETWORK_ADDRESS_BYTES_MAX>,
    }
    /// The type of an object.
    enum ObjectType {
        /// A regular file.
        Regular = 1,
        /// A directory of names.
        Directory = 2,
        /// A block device node.
        BlockDevice = 3,
        /// A character device node.
        CharacterDevice = 4,
        /// A symbolic link.
        SymbolicLink = 5,
        /// A Unix domain socket.
        Socket = 6,
        /// A named pipe (FIFO).
        Fifo = 7,
        /// A directory of named attributes.
        AttributeDirectory = 8,
        /// A named attribute.
        NamedAttribute = 9,
    }
    /// The point at which written data is on stable storage.
    #[derive(Default)]
    enum Stability {
        /// Some time later, or at COMMIT.
        #[default]
        Unstable = 0,
        /// The data before the reply.
        DataSync = 1,
        /// The data and all attributes before the reply.
        FileSync = 2,
    }
    /// The kind of a lock of a byte range.
    enum LockType {
        /// A shared lock.
        Read = 1,
        /// An exclusive lock.
        Write = 2,
        /// A shared lock, of a client that will wait for it.
        ReadWait = 3,
        /// An exclusive lock, of a client that will wait for it.
        WriteWait = 4,
    }
    /// The content of a part of a file; a number that is not listed is kept.
    #[derive(Copy, Hash)]
    union Content on u32 {
        /// Bytes that were written.
        0 => Data,
        /// A hole, which reads as zeros.
        1 => Hole,
        /// A kind of content that this implementation does not know.
        _ => Other,
    }
    /// The answer to a write that may continue after the reply.
    #[derive(Copy, Default)]
    struct WriteResponse {
        /// The id of the write if it continues: at most one.
        callback: Option<StateId>,
        /// The number of bytes that were written.
        count: u64,
        /// The stability of the bytes that were written.
        committed: Stability,
        /// The verifier of the server's current instance.
        verifier: Verifier,
    }
}

impl StateId {
    /// All bits zero: no state at all.
    pub const ANONYMOUS: Self = Self { sequence: 0, other: [0; 12] };
    /// All bits one: a read without regard to locks.
    pub const READ_BYPASS: Self = Self { sequence: u32::MAX, other: [0xff; 12] };
    /// The state id that the previous operation of the compound left.
    pub const CURRENT: Self = Self { sequence: 1, other: [0; 12] };
    /// A state id that no server accepts.
    pub const INVALID: Self = Self { sequence: u32::MAX, other: [0; 12] };

    /// Returns true if the id is reserved: it names no state, or its meaning is fixed.
    #[must_use]
    pub const fn is_special(&self) -> bool {
        let mut at = 1;
        while at < self.other.len() {
            if self.other[at] != self.other[0] {
                return false;
            }
            at += 1;
        }
        matches!(self.other[0], 0 | 0xff)
    }
}

impl Time {
    /// Returns true if the nanoseconds are less than a second.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.nanoseconds < NANOSECONDS_PER_SECOND
    }
}

impl LockType {
    /// Returns true for exclusive locks.
    #[must_use]
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteWait)
    }

    /// Returns true if the client wants to wait for the lock.
    #[must_use]
    pub const fn waits(self) -> bool {
        matches!(self, Self::ReadWait | Self::WriteWait)
    }
}

impl<'b> Xdr<'b> for Status {
    const LEAST: usize = 4;
    const SHAPE: &'static Shape = &Shape::Enum { name: "Status", values: Self::NUMBERS };
    #[inline]
    fn decode(reader: &mut Reader<'b>) -> Result<Self, XdrError> {
        let value = reader.u32()?;
        Self::from_number(value).ok_or(XdrError::Value { kind: "Status", value })
    }
    #[inline]
    fn encode(&self, writer: &mut Writer) {
        writer.u32(self.number());
    }
}

/// Checks a name of a directory entry (RFC 8881 section 14.5): it must not be empty, be `.` or
/// `..`, contain a slash or a zero byte, or be longer than `bytes_max`.
///
/// # Errors
/// The status for the reply.
pub fn check_name<'b>(name: &Name<'b>, bytes_max: usize) -> Result<&'b [u8], Status> {
    match name.0 {
        [] => Err(Status::Inval),
        b"." | b".." => Err(Status::BadName),
        bytes if bytes.len() > bytes_max => Err(Status::NameTooLong),
        bytes if bytes.iter().any(|byte| matches!(byte, 0 | b'/')) => Err(Status::BadChar),
        bytes => Ok(bytes),
    }
}
