//! The types of attributes that consist of several values (RFC 8881 sections 5, 6 and 11; RFC 7862
//! section 12; RFC 8275; RFC 9754).
//!
//! Invariant: every list in an attribute has a named bound.

use crate::xdr::{List, Opaque, xdr};

use super::bitmap::Bitmap;
use super::limits::{ACES_MAX, BODY_BYTES_MAX, LOCATIONS_MAX, NUMBERS_MAX};
use super::types::{LayoutType, Path, Text, Time};

/// An access control list of NFSv4.
pub type Acl<'b> = List<Ace<'b>, ACES_MAX>;

xdr! {
    /// An entry of an access control list.
    #[derive(Copy, Default, Hash)]
    struct Ace<'b> {
        /// The effect of the entry: it grants, denies, logs or raises an alarm.
        kind: AceType,
        /// The inheritance of the entry and the kind of its subject.
        flags: AceFlags,
        /// The access rights to which the entry applies.
        rights: AceRights,
        /// The user or group to which the entry applies, or a special name such as `EVERYONE@`.
        who: Text<'b>,
    }
    /// The effect of an entry. These are numbers and not bits: an entry has one effect.
    flags AceType: u32 {
        /// The entry grants rights.
        ALLOW = 0,
        /// The entry denies rights.
        DENY = 1,
        /// The entry logs the use of rights.
        AUDIT = 2,
        /// The entry raises an alarm when rights are used.
        ALARM = 3,
    }
    /// The inheritance of an entry and the kind of its subject.
    flags AceFlags: u32 {
        /// New files in the directory inherit the entry.
        FILE_INHERIT = 0x1,
        /// New directories in the directory inherit the entry.
        DIRECTORY_INHERIT = 0x2,
        /// Objects that inherit the entry do not pass it on.
        NO_PROPAGATE_INHERIT = 0x4,
        /// The entry does not apply to the directory itself.
        INHERIT_ONLY = 0x8,
        /// An audit or alarm entry applies to accesses that were granted.
        SUCCESSFUL_ACCESS = 0x10,
        /// An audit or alarm entry applies to accesses that were denied.
        FAILED_ACCESS = 0x20,
        /// The subject of the entry is a group.
        IDENTIFIER_GROUP = 0x40,
        /// The entry was inherited from the directory.
        INHERITED = 0x80,
    }
    /// The access rights to which an entry applies.
    flags AceRights: u32 {
        /// Read the data of a file, or list a directory.
        READ_DATA = 0x1,
        /// Write the data of a file, or add a file to a directory.
        WRITE_DATA = 0x2,
        /// Append data to a file, or add a directory to a directory.
        APPEND_DATA = 0x4,
        /// Read named attributes of the object.
        READ_NAMED_ATTRIBUTES = 0x8,
        /// Write named attributes of the object.
        WRITE_NAMED_ATTRIBUTES = 0x10,
        /// Execute a file, or look up a name in a directory.
        EXECUTE = 0x20,
        /// Remove a file or directory from the directory.
        DELETE_CHILD = 0x40,
        /// Read the attributes of the object.
        READ_ATTRIBUTES = 0x80,
        /// Write the times and similar attributes.
        WRITE_ATTRIBUTES = 0x100,
        /// Set the time for which the object is retained.
        WRITE_RETENTION = 0x200,
        /// Protect the object from deletion by a hold.
        WRITE_RETENTION_HOLD = 0x400,
        /// Remove the object itself.
        DELETE = 0x1_0000,
        /// Read the access control list.
        READ_ACL = 0x2_0000,
        /// Write the access control list and the mode.
        WRITE_ACL = 0x4_0000,
        /// Change the owner and the group.
        WRITE_OWNER = 0x8_0000,
        /// Use the object as a means of synchronization.
        SYNCHRONIZE = 0x10_0000,
    }
    /// The types of entries that the server supports.
    flags AclSupport: u32 {
        /// Entries that grant rights.
        ALLOW = 1,
        /// Entries that deny rights.
        DENY = 2,
        /// Entries that log accesses.
        AUDIT = 4,
        /// Entries that raise alarms.
        ALARM = 8,
    }
    /// An access control list with flags (`dacl` and `sacl`).
    #[derive(Default)]
    struct FlaggedAcl<'b> {
        /// The flags: 1 for automatic inheritance, 2 for protected, 4 for defaulted.
        flags: u32,
        /// The entries of the list.
        entries: Acl<'b>,
    }
    /// The value to which SETATTR sets a time.
    #[derive(Copy)]
    union SetTime on u32 {
        /// The server's present time.
        0 => ServerTime,
        /// The time in the message.
        1 => ClientTime(Time),
    }
    /// The lifetime of file handles: flags, of which several may be set.
    flags HandleLifetime: u32 {
        /// Handles are valid as long as their object exists.
        PERSISTENT = 0,
        /// Handles stay valid while the object is open.
        NO_EXPIRE_WITH_OPEN = 1,
        /// Handles may expire at any time.
        VOLATILE_ANY = 2,
        /// Handles expire when the file system moves.
        VOLATILE_AT_MIGRATION = 4,
        /// Handles expire when the object is renamed.
        VOLATILE_AT_RENAME = 8,
    }
    /// The servers that have a file system.
    #[derive(Default)]
    struct Locations<'b> {
        /// The path of the file system on this server.
        root: Path<'b>,
        /// The locations at which the file system is available.
        locations: List<Location<'b>, LOCATIONS_MAX>,
    }
    /// Servers that have a file system at the same path.
    #[derive(Default)]
    struct Location<'b> {
        /// The names or addresses of the servers.
        servers: List<Text<'b>, LOCATIONS_MAX>,
        /// The path of the file system on these servers.
        root: Path<'b>,
    }
    /// The servers that have a file system, with additional information about them.
    #[derive(Default)]
    struct LocationsInfo<'b> {
        /// The flags: 1 if the paths contain variables.
        flags: u32,
        /// The number of seconds for which the information is valid.
        valid_for: i32,
        /// The path of the file system on this server.
        root: Path<'b>,
        /// The locations at which the file system is available.
        items: List<LocationsItem<'b>, LOCATIONS_MAX>,
    }
    /// Servers that have a file system at the same path, with additional information about them.
    #[derive(Default)]
    struct LocationsItem<'b> {
        /// The servers at which the file system has this path.
        entries: List<LocationServer<'b>, LOCATIONS_MAX>,
        /// The path of the file system on these servers.
        root: Path<'b>,
    }
    /// A server that has a file system, with additional information about it.
    #[derive(Copy, Default)]
    struct LocationServer<'b> {
        /// The age of the server's data in seconds; negative if it is unknown.
        currency: i32,
        /// Flags, classes and ranks of the server, one byte each (RFC 8881 section 11.17.1).
        information: Opaque<'b, NUMBERS_MAX>,
        /// The name or address of the server.
        server: Text<'b>,
    }
    /// The state of a file system.
    #[derive(Copy)]
    struct FileSystemStatus<'b> {
        /// True if the file system is not on this server.
        is_absent: bool,
        /// The way in which the data of the file system changes.
        kind: FileSystemKind,
        /// The origin of the data, as text for people.
        source: Text<'b>,
        /// The version of the data, as text for people.
        current: Text<'b>,
        /// The age of the data in seconds; negative if it is unknown.
        age: i32,
        /// The time at which this version of the data was made.
        version: Time,
    }
    /// The way in which the data of a file system changes.
    enum FileSystemKind {
        /// The data never changes.
        Fixed = 1,
        /// The data is a copy that is replaced as a whole.
        Updated = 2,
        /// The data is a copy with numbered versions.
        Versioned = 3,
        /// The data can be written.
        Writable = 4,
        /// The file system exists only on other servers.
        Referral = 5,
    }
    /// A value that changes when the policy for a file changes.
    #[derive(Copy, Default)]
    struct ChangePolicy {
        /// The first half of the value.
        major: u64,
        /// The second half of the value.
        minor: u64,
    }
    /// The layout that a client would like for a new file.
    #[derive(Copy, Default)]
    struct LayoutHint<'b> {
        /// The type of the layout.
        kind: LayoutType,
        /// The hint in the encoding of the layout type.
        body: Opaque<'b, BODY_BYTES_MAX>,
    }
    /// The sizes of files or requests from which clients should use layouts.
    #[derive(Copy, Default)]
    struct Threshold<'b> {
        /// The layout type to which the sizes apply.
        kind: LayoutType,
        /// The hints that follow: 0 and 1 file sizes for reads and writes, 2 and 3 request sizes
        /// for reads and writes.
        hints: Bitmap,
        /// The encoded hints, in the order of their numbers.
        values: Opaque<'b, BODY_BYTES_MAX>,
    }
    /// The time for which an object is retained.
    #[derive(Copy, Default)]
    struct Retention {
        /// The duration in seconds; all bits set if it is unlimited.
        duration: u64,
        /// The time at which retention began; `None` if it has not begun.
        begin: Option<Time>,
    }
    /// A change of the time for which an object is retained.
    #[derive(Copy, Default)]
    struct SetRetention {
        /// True if retention begins now.
        enable: bool,
        /// The duration in seconds; `None` if it is not changed.
        duration: Option<u64>,
    }
    /// New values for some bits of the mode.
    #[derive(Copy, Default, Hash)]
    struct MaskedMode {
        /// The new values of the bits.
        mode: u32,
        /// The bits that are changed.
        mask: u32,
    }
    /// The mode of a new object and the umask of its creator (RFC 8275).
    #[derive(Copy, Default, Hash)]
    struct ModeUmask {
        /// The mode before the umask is applied.
        mode: u32,
        /// The umask, which is applied only if the directory has no default ACL.
        umask: u32,
    }
    /// The behavior of the change attribute of files.
    enum ChangeKind {
        /// The attribute increases with each change.
        Monotonic = 0,
        /// The attribute increases by one with each change.
        VersionCounter = 1,
        /// The attribute increases by one with each change that is not made through a layout.
        VersionCounterNoPnfs = 2,
        /// The attribute is the time of the last change of metadata.
        TimeMetadata = 3,
        /// The behavior of the attribute is not known.
        Undefined = 4,
    }
    /// A security label of a file.
    #[derive(Copy, Default)]
    struct SecurityLabel<'b> {
        /// The number of the label's format.
        format: u32,
        /// The number of the policy that gives the label its meaning.
        policy: u32,
        /// The label itself.
        label: Opaque<'b, BODY_BYTES_MAX>,
    }
    /// The arguments of OPEN that the server supports (RFC 9754).
    #[derive(Copy, Default)]
    struct OpenArguments {
        /// The supported bits of share access.
        share_access: Bitmap,
        /// The supported bits of share deny.
        share_deny: Bitmap,
        /// The supported wishes for delegations.
        share_access_want: Bitmap,
        /// The supported types of claims.
        claims: Bitmap,
        /// The supported modes of creation.
        create_modes: Bitmap,
    }
}

impl SetTime {
    /// Returns true if the nanoseconds of the time are valid, or if there is no time in the
    /// message.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        match self {
            Self::ServerTime => true,
            Self::ClientTime(time) => time.is_valid(),
        }
    }
}
