//! The attributes of files and file systems, as held in memory. `None` means that the attribute was
//! not requested or is not supported. In messages (crate `wire`), bitmaps say so.

use crate::file::wire_enum;
use crate::{Ace, FileHandle, FsHandle, Timestamp};

wire_enum! {
    /// The type of an object. The draft gives the type REG no number; this project uses 1, which is
    /// free and is the number in NFSv4 (`docs/spec/gaps.md`).
    ObjectType {
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
}

/// The major and minor number of a device (draft: specdata).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeviceNumber {
    /// The major device number.
    pub major: u64,
    /// The minor device number.
    pub minor: u64,
}

/// The attributes of one object, with their numbers in draft 6.2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileAttributes {
    /// No. 1: true if the object has named attributes.
    pub named_attributes: Option<bool>,
    /// No. 5: the type of the object.
    pub object_type: Option<ObjectType>,
    /// No. 6: the 12 low bits of the POSIX mode.
    pub mode: Option<u32>,
    /// No. 7: the number of hard links.
    pub link_count: Option<u32>,
    /// No. 8: the change attribute, whose value differs after every change.
    pub change: Option<u64>,
    /// No. 9: the size in bytes.
    pub size: Option<u64>,
    /// No. 10: the file id, unique in its file system.
    pub file_id: Option<u64>,
    /// No. 11: the number of bytes of storage that the object occupies.
    pub space_used: Option<u64>,
    /// No. 12: the time when the data was last read.
    pub time_access: Option<Timestamp>,
    /// No. 15: the time when the object was created.
    pub time_create: Option<Timestamp>,
    /// No. 16: the resolution of the times that the server stores.
    pub time_delta: Option<Timestamp>,
    /// No. 17: the time when the data or the attributes last changed.
    pub time_metadata: Option<Timestamp>,
    /// No. 18: the time when the data last changed.
    pub time_modify: Option<Timestamp>,
    /// No. 20: the major and minor number of the device, if the object is a device node.
    pub raw_device: Option<DeviceNumber>,
    /// No. 21: the handle of the object.
    pub file_handle: Option<FileHandle>,
    /// No. 22: the access control list.
    pub acl: Option<Vec<Ace>>,
    /// No. 23: the MIME type and subtype of the content.
    pub mime_type: Option<String>,
    /// No. 24: the owner, as a name or a decimal user id.
    pub owner: Option<String>,
    /// No. 25: the group, as a name or a decimal group id.
    pub owner_group: Option<String>,
}

/// The ways to set a time attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// Sets the time attribute to the server's current time.
    Server,
    /// Sets the time attribute to this time.
    Client(Timestamp),
}

/// The attributes that a client may set with SETATTR, OPEN or CREATE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// No. 6: the permission bits.
    pub mode: Option<u32>,
    /// No. 9: the new size in bytes; the file is truncated or extended to it.
    pub size: Option<u64>,
    /// No. 13: the access time.
    pub time_access: Option<SetTime>,
    /// No. 19: the modification time.
    pub time_modify: Option<SetTime>,
    /// No. 22: the access control list, which replaces the old one.
    pub acl: Option<Vec<Ace>>,
    /// No. 23: the MIME type; an empty string removes it.
    pub mime_type: Option<String>,
    /// No. 24: the owner, as a name or a decimal user id.
    pub owner: Option<String>,
    /// No. 25: the group, as a name or a decimal group id.
    pub owner_group: Option<String>,
}

/// The attributes of a file system, with their numbers in draft 6.3.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSystemAttributes {
    /// No. 1: true if hard links are supported.
    pub link_support: Option<bool>,
    /// No. 2: true if symbolic links are supported.
    pub symlink_support: Option<bool>,
    /// No. 3: true if times can be set.
    pub can_set_time: Option<bool>,
    /// No. 4: true if names are compared without regard to case.
    pub case_insensitive: Option<bool>,
    /// No. 5: true if names keep their case.
    pub case_preserving: Option<bool>,
    /// No. 6: true if only the superuser may change owners.
    pub chown_restricted: Option<bool>,
    /// No. 7: true if these attributes are the same for all objects of the file system.
    pub homogeneous: Option<bool>,
    /// No. 8: true if names that are too long are refused, not truncated.
    pub no_trunc: Option<bool>,
    /// No. 9: true if each object has only one handle.
    pub unique_handle: Option<bool>,
    /// No. 10: the duration of a lease in seconds.
    pub lease_time: Option<u32>,
    /// No. 11: the status of attributes that READDIR could not read.
    pub rd_attr_error: Option<u32>,
    /// No. 12: the supported kinds of access control entries: allow 1, deny 2, audit 4, alarm 8.
    pub acl_support: Option<u32>,
    /// No. 13: the maximum number of hard links to one object.
    pub max_link: Option<u32>,
    /// No. 14: the maximum length of a name in bytes.
    pub max_name: Option<u32>,
    /// No. 15: the bitmap of supported file attributes.
    pub supported_file_attributes: Option<u64>,
    /// No. 16: the bitmap of supported file-system attributes.
    pub supported_fs_attributes: Option<u64>,
    /// No. 17: the number of files that a user may still create.
    pub files_available: Option<u64>,
    /// No. 18: the number of free inodes.
    pub files_free: Option<u64>,
    /// No. 19: the total number of inodes.
    pub files_total: Option<u64>,
    /// No. 20: the maximum size of a file in bytes.
    pub max_file_size: Option<u64>,
    /// No. 21: the maximum number of bytes of one read.
    pub max_read: Option<u64>,
    /// No. 22: the maximum number of bytes of one write.
    pub max_write: Option<u64>,
    /// No. 23: the number of bytes that the user may still allocate before the quota refuses more.
    pub quota_hard: Option<u64>,
    /// No. 24: the number of bytes that the user may still allocate before the quota causes a
    /// warning.
    pub quota_soft: Option<u64>,
    /// No. 25: the number of bytes that the user's quota counts as used.
    pub quota_used: Option<u64>,
    /// No. 26: the number of bytes that a user may still allocate.
    pub space_available: Option<u64>,
    /// No. 27: the number of free bytes in the file system.
    pub space_free: Option<u64>,
    /// No. 28: the total number of bytes in the file system.
    pub space_total: Option<u64>,
    /// No. 29: the handle of the file system.
    pub fs_handle: Option<FsHandle>,
    /// No. 32: the maximum number of bytes of one append.
    pub max_append: Option<u64>,
    /// No. 33: the preferred transfer size, in bytes.
    pub preferred_io_size: Option<u32>,
    /// No. 34: a bitmap of the events that make handles expire; 0 means that handles never expire.
    pub handle_expire_type: Option<u32>,
}
