//! File and file-system attributes as both sides use them in memory. `None`
//! means "not asked for" or "not supported"; `wire` turns that into bitmaps.

use crate::file::wire_enum;
use crate::{Ace, FileHandle, FsHandle, Timestamp};

wire_enum! {
    /// Type of a file-system object. REG has no number in the draft; 1 is the
    /// free one and that of NFSv4 (`docs/spec/gaps.md`).
    ObjectType {
        /// Regular file.
        Regular = 1,
        /// Directory.
        Directory = 2,
        /// Block device.
        BlockDevice = 3,
        /// Character device.
        CharacterDevice = 4,
        /// Symbolic link.
        SymbolicLink = 5,
        /// Socket.
        Socket = 6,
        /// Named pipe.
        Fifo = 7,
        /// Named-attribute directory.
        AttributeDirectory = 8,
        /// Named attribute.
        NamedAttribute = 9,
    }
}

/// Major and minor number of a device (draft: specdata).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeviceNumber {
    /// Major.
    pub major: u64,
    /// Minor.
    pub minor: u64,
}

/// Attributes of one object, draft 6.2 numbers in brackets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileAttributes {
    /// No. 1: whether it has named attributes.
    pub named_attributes: Option<bool>,
    /// No. 5: type.
    pub object_type: Option<ObjectType>,
    /// No. 6: permission bits, 12 low bits of the POSIX mode.
    pub mode: Option<u32>,
    /// No. 7: hard links.
    pub link_count: Option<u32>,
    /// No. 8: differs after every change.
    pub change: Option<u64>,
    /// No. 9: bytes.
    pub size: Option<u64>,
    /// No. 10: unique in its file system.
    pub file_id: Option<u64>,
    /// No. 11: bytes of storage.
    pub space_used: Option<u64>,
    /// No. 12: last read.
    pub time_access: Option<Timestamp>,
    /// No. 15: creation.
    pub time_create: Option<Timestamp>,
    /// No. 16: granularity of the server's times.
    pub time_delta: Option<Timestamp>,
    /// No. 17: last metadata change.
    pub time_metadata: Option<Timestamp>,
    /// No. 18: last data change.
    pub time_modify: Option<Timestamp>,
    /// No. 20: device numbers.
    pub raw_device: Option<DeviceNumber>,
    /// No. 21: the handle.
    pub file_handle: Option<FileHandle>,
    /// No. 22: access control list.
    pub acl: Option<Vec<Ace>>,
    /// No. 23: MIME type and subtype of the body.
    pub mime_type: Option<String>,
    /// No. 24: owner; a name or a decimal uid.
    pub owner: Option<String>,
    /// No. 25: group; a name or a decimal gid.
    pub owner_group: Option<String>,
}

/// How a time is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// To the server's present time.
    Server,
    /// To this time.
    Client(Timestamp),
}

/// Attributes a client may set with SETATTR, OPEN or CREATE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// No. 6: permission bits.
    pub mode: Option<u32>,
    /// No. 9: truncate or extend to this many bytes.
    pub size: Option<u64>,
    /// No. 13: access time.
    pub time_access: Option<SetTime>,
    /// No. 19: modification time.
    pub time_modify: Option<SetTime>,
    /// No. 22: access control list, whole.
    pub acl: Option<Vec<Ace>>,
    /// No. 23: MIME type; an empty one takes it away.
    pub mime_type: Option<String>,
    /// No. 24: owner.
    pub owner: Option<String>,
    /// No. 25: group.
    pub owner_group: Option<String>,
}

/// Attributes of a file system, draft 6.3 numbers in brackets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSystemAttributes {
    /// No. 1: hard links.
    pub link_support: Option<bool>,
    /// No. 2: symbolic links.
    pub symlink_support: Option<bool>,
    /// No. 3: times can be set.
    pub can_set_time: Option<bool>,
    /// No. 4: names compare without case.
    pub case_insensitive: Option<bool>,
    /// No. 5: names keep their case.
    pub case_preserving: Option<bool>,
    /// No. 6: only the superuser changes owners.
    pub chown_restricted: Option<bool>,
    /// No. 7: these attributes hold everywhere in it.
    pub homogeneous: Option<bool>,
    /// No. 8: long names are refused, not cut.
    pub no_trunc: Option<bool>,
    /// No. 9: one object has one handle.
    pub unique_handle: Option<bool>,
    /// No. 10: seconds a lease lasts.
    pub lease_time: Option<u32>,
    /// No. 11: status of attributes that could not be read in READDIR.
    pub rd_attr_error: Option<u32>,
    /// No. 12: kinds of access control entries: allow 1, deny 2, audit 4, alarm 8.
    pub acl_support: Option<u32>,
    /// No. 13: most links to one object.
    pub max_link: Option<u32>,
    /// No. 14: longest name.
    pub max_name: Option<u32>,
    /// No. 15: bitmap of supported file attributes.
    pub supported_file_attributes: Option<u64>,
    /// No. 16: bitmap of supported file-system attributes.
    pub supported_fs_attributes: Option<u64>,
    /// No. 17: files a user may still make.
    pub files_available: Option<u64>,
    /// No. 18: free file slots.
    pub files_free: Option<u64>,
    /// No. 19: all file slots.
    pub files_total: Option<u64>,
    /// No. 20: largest file.
    pub max_file_size: Option<u64>,
    /// No. 21: most bytes in one read.
    pub max_read: Option<u64>,
    /// No. 22: most bytes in one write.
    pub max_write: Option<u64>,
    /// No. 23: bytes the asker may still fill before the quota refuses more.
    pub quota_hard: Option<u64>,
    /// No. 24: bytes the asker may still fill before a warning.
    pub quota_soft: Option<u64>,
    /// No. 25: bytes the asker's quota counts as used.
    pub quota_used: Option<u64>,
    /// No. 26: bytes a user may still fill.
    pub space_available: Option<u64>,
    /// No. 27: free bytes.
    pub space_free: Option<u64>,
    /// No. 28: all bytes.
    pub space_total: Option<u64>,
    /// No. 29: the file system's handle.
    pub fs_handle: Option<FsHandle>,
    /// No. 32: most bytes in one append.
    pub max_append: Option<u64>,
    /// No. 33: transfer size that suits best.
    pub preferred_io_size: Option<u32>,
    /// No. 34: when handles expire: 0 never.
    pub handle_expire_type: Option<u32>,
}
