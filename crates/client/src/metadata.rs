//! Attributes of objects, as the application sees them.
//!
//! Invariant: no attribute is invented. If the server's reply lacks a mandatory attribute, there is
//! no [`Metadata`].

use std::ffi::OsString;

use dafs_types::{DeviceNumber, FileAttributes, FileHandle, ObjectType, Timestamp};
use dafs_wire::AttributeBitmap;
use dafs_wire::attributes::file::bits;

/// The attributes of a file, directory or other object.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The type of the object.
    pub kind: ObjectType,
    /// The 12 low bits of the POSIX mode.
    pub mode: u32,
    /// The number of hard links to the object.
    pub link_count: u32,
    /// The size of the object in bytes.
    pub size: u64,
    /// The file id (inode number), unique in its file system.
    pub file_id: u64,
    /// The number of bytes of storage that the object occupies.
    pub space_used: u64,
    /// The time when the data was last read.
    pub time_access: Timestamp,
    /// The time when the data was last modified.
    pub time_modify: Timestamp,
    /// The time when the data or the attributes last changed.
    pub time_metadata: Timestamp,
    /// The owner: a decimal user id or a user name.
    pub owner: String,
    /// The group: a decimal group id or a group name.
    pub owner_group: String,
    /// The change attribute, whose value differs after every change of the object.
    pub change: u64,
    /// The object's handle, which names it in requests.
    pub handle: FileHandle,
    /// The device numbers (major and minor); zeros unless the object is a device.
    pub device: DeviceNumber,
}

/// One entry of a directory listing.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The entry's name: any bytes except a slash and NUL.
    pub name: OsString,
    /// The object's attributes; `None` if the object was removed before the server read its
    /// attributes.
    pub metadata: Option<Metadata>,
}

impl Metadata {
    /// Creates attributes of an object of which only the type and the handle are known; the other
    /// fields are zero or empty. For tests and for applications that cache attributes.
    #[must_use]
    pub fn new(kind: ObjectType, handle: FileHandle) -> Self {
        Self {
            kind,
            mode: 0,
            link_count: 1,
            size: 0,
            file_id: 0,
            space_used: 0,
            time_access: Timestamp::default(),
            time_modify: Timestamp::default(),
            time_metadata: Timestamp::default(),
            owner: String::new(),
            owner_group: String::new(),
            change: 0,
            handle,
            device: DeviceNumber::default(),
        }
    }
}

impl DirectoryEntry {
    /// Creates an entry with a name and, if known, the attributes of its object.
    #[must_use]
    pub fn new(name: OsString, metadata: Option<Metadata>) -> Self {
        Self { name, metadata }
    }
}

pub(crate) fn to_metadata(attributes: FileAttributes, handle: FileHandle) -> Option<Metadata> {
    Some(Metadata {
        kind: attributes.object_type?,
        mode: attributes.mode.unwrap_or(0),
        link_count: attributes.link_count.unwrap_or(1),
        size: attributes.size?,
        file_id: attributes.file_id?,
        space_used: attributes.space_used.unwrap_or(0),
        time_access: attributes.time_access.unwrap_or_default(),
        time_modify: attributes.time_modify.unwrap_or_default(),
        time_metadata: attributes.time_metadata.unwrap_or_default(),
        owner: attributes.owner.unwrap_or_default(),
        owner_group: attributes.owner_group.unwrap_or_default(),
        change: attributes.change.unwrap_or(0),
        handle,
        device: attributes.raw_device.unwrap_or_default(),
    })
}

/// The attributes that are requested to fill a [`Metadata`].
pub(crate) const METADATA: AttributeBitmap = bits::OBJECT_TYPE
    .with(bits::MODE)
    .with(bits::NUM_LINKS)
    .with(bits::CHANGE)
    .with(bits::OBJECT_SIZE)
    .with(bits::FILE_ID)
    .with(bits::SPACE_USED)
    .with(bits::TIME_ACCESS)
    .with(bits::TIME_METADATA)
    .with(bits::TIME_MODIFY)
    .with(bits::FILEHANDLE)
    .with(bits::RAW_DEV)
    .with(bits::OWNER)
    .with(bits::OWNER_GROUP);
