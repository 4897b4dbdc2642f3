//! The types that many operations share (RFC 8881 section 3).
//!
//! Invariant: a value with a variable length has a named bound.

use crate::xdr::{List, Opaque, Reader, Shape, Writer, Xdr, XdrError, xdr};

use super::limits::{
    FH_BYTES_MAX, LINK_TEXT_BYTES_MAX, NAME_BYTES_MAX, NETWORK_ADDRESS_BYTES_MAX, OPAQUE_BYTES_MAX,
    PATH_NAMES_MAX, TEXT_BYTES_MAX,
};
use super::status::Status;

/// The name of a directory entry or of an extended attribute. Decoding does not check its bytes;
/// [`check_name`] does.
pub type Name<'b> = Opaque<'b, NAME_BYTES_MAX>;
/// A file handle, which only the server can interpret.
pub type FileHandle<'b> = Opaque<'b, FH_BYTES_MAX>;
/// The target of a symbolic link.
pub type LinkText<'b> = Opaque<'b, LINK_TEXT_BYTES_MAX>;
/// The name of a client, a server, the owner of a state, or a server's scope.
pub type Identity<'b> = Opaque<'b, OPAQUE_BYTES_MAX>;
/// A short text, such as the name of a user, a group, a domain or a server.
pub type Text<'b> = Opaque<'b, TEXT_BYTES_MAX>;
/// The names of the components of a path, from the root downwards.
pub type Path<'b> = List<Name<'b>, PATH_NAMES_MAX>;

/// The number of nanoseconds in a second, which is the limit for the nanoseconds of a time.
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
    /// The id that the server assigns to a client.
    ClientId(u64);
    /// The id of a session.
    SessionId([u8; 16]);
    /// Eight bytes that distinguish the instances of a client, of a server or of a directory's
    /// cookies.
    Verifier([u8; 8]);
    /// The id of a device to which layouts refer.
    DeviceId([u8; 16]);
    /// The type of a layout. Decoding accepts numbers that are not listed here.
    LayoutType(u32);
    /// The access mode of a layout. Decoding accepts numbers that are not listed here.
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
    /// Both access modes, in LAYOUTRETURN and CB_LAYOUTRECALL.
    pub const ANY: Self = Self(3);
}

xdr! {
    /// The id of an open, a lock, a delegation, a layout or a copy.
    #[derive(Copy, Default, Hash)]
    struct StateId {
        /// The number of changes of the state so far.
        sequence: u32,
        /// The identity of the state, which only the server can interpret.
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
        /// True if no other change of the directory can have occurred between the two values.
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
    /// The number of a device, in the attributes of a special file.
    #[derive(Copy, Default)]
    struct DeviceNumber {
        /// The major device number.
        major: u32,
        /// The minor device number.
        minor: u32,
    }
    /// The owner of an open or of locks: a name by which a client identifies one of its processes.
    #[derive(Copy, Default)]
    struct StateOwner<'b> {
        /// The client id, which servers of minor version 1 and above ignore.
        client: ClientId,
        /// The name that the client chose.
        owner: Identity<'b>,
    }
    /// The name by which a client identifies itself, and the client's instance.
    #[derive(Copy, Default)]
    struct ClientOwner<'b> {
        /// The verifier of the client's current instance.
        verifier: Verifier,
        /// The name, which stays the same when the client restarts.
        owner: Identity<'b>,
    }
    /// The name by which a server identifies itself.
    #[derive(Copy, Default)]
    struct ServerOwner<'b> {
        /// The part that differs between servers that share client ids but not sessions.
        minor: u64,
        /// The part that is equal for all servers that share client ids.
        major: Identity<'b>,
    }
    /// The product name and version of a client or server, for people.
    #[derive(Copy, Default)]
    struct Implementation<'b> {
        /// The domain name of the vendor.
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
        /// A directory of other objects.
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
    /// The time by which a server must put written data on stable storage.
    #[derive(Default)]
    enum Stability {
        /// The server may wait for a later COMMIT.
        #[default]
        Unstable = 0,
        /// The data, before the reply to the WRITE.
        DataSync = 1,
        /// The data and all attributes, before the reply to the WRITE.
        FileSync = 2,
    }
    /// The kind of a lock of a byte range.
    enum LockType {
        /// A shared lock.
        Read = 1,
        /// An exclusive lock.
        Write = 2,
        /// A shared lock, which the client will request again until it is granted.
        ReadWait = 3,
        /// An exclusive lock, which the client will request again until it is granted.
        WriteWait = 4,
    }
    /// The kind of content of a range. Decoding accepts numbers that are not listed here.
    #[derive(Copy, Hash)]
    union Content on u32 {
        /// A range with data.
        0 => Data,
        /// A hole, which is read as zeros.
        1 => Hole,
        /// A kind of content that this implementation does not know.
        _ => Other,
    }
    /// The result of a write or copy that may continue after the reply.
    #[derive(Copy, Default)]
    struct WriteResponse {
        /// The id of the operation if it continues after the reply; otherwise `None`.
        callback: Option<StateId>,
        /// The number of bytes that were written.
        count: u64,
        /// The guarantee that the server gives for the bytes that were written.
        committed: Stability,
        /// A value that changes if the server may have lost unstable data, for example by a
        /// restart.
        verifier: Verifier,
    }
}

impl StateId {
    /// The state id with all bits zero: no open and no lock.
    pub const ANONYMOUS: Self = Self { sequence: 0, other: [0; 12] };
    /// The state id with all bits one: a READ that ignores locks.
    pub const READ_BYPASS: Self = Self { sequence: u32::MAX, other: [0xff; 12] };
    /// The state id that the previous operation of the compound has returned.
    pub const CURRENT: Self = Self { sequence: 1, other: [0; 12] };
    /// A state id that no server accepts.
    pub const INVALID: Self = Self { sequence: u32::MAX, other: [0; 12] };

    /// Returns true if this is a special state id. Such an id names no open, lock, delegation or
    /// layout; for example, it stands for the current state id of the compound.
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
    /// Returns true if the nanoseconds are less than one second.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.nanoseconds < NANOSECONDS_PER_SECOND
    }
}

impl LockType {
    /// Returns true for the exclusive kinds.
    #[must_use]
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteWait)
    }

    /// Returns true if the client will request the lock again until it is granted.
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

/// Checks the name of a directory entry (RFC 8881 section 14.5). The name must not be empty, `.` or
/// `..`, must not contain a slash or a zero byte, and must not be longer than `bytes_max`.
///
/// # Errors
/// The status for the reply to the request.
pub fn check_name<'b>(name: &Name<'b>, bytes_max: usize) -> Result<&'b [u8], Status> {
    match name.0 {
        [] => Err(Status::Inval),
        b"." | b".." => Err(Status::BadName),
        bytes if bytes.len() > bytes_max => Err(Status::NameTooLong),
        bytes if bytes.iter().any(|byte| matches!(byte, 0 | b'/')) => Err(Status::BadChar),
        bytes => Ok(bytes),
    }
}
