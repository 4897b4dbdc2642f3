//! Attributes of objects, as the application sees them.
//!
//! Invariant: nothing is made up: what a server must give and does not makes no [`Metadata`].

use std::ffi::OsString;

use dafs_types::{DeviceNumber, FileAttributes, FileHandle, ObjectType, Timestamp};
use dafs_wire::AttributeBitmap;
use dafs_wire::attributes::file::bits;

/// Attributes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// What it is.
    pub kind: ObjectType,
    /// The 12 low bits of the POSIX mode.
    pub mode: u32,
    /// Hard links.
    pub link_count: u32,
    /// Bytes.
    pub size: u64,
    /// Unique in its file system.
    pub file_id: u64,
    /// Bytes of storage.
    pub space_used: u64,
    /// Last read.
    pub time_access: Timestamp,
    /// Last change of data.
    pub time_modify: Timestamp,
    /// Last change of anything.
    pub time_metadata: Timestamp,
    /// Owner, a decimal number or a name.
    pub owner: String,
    /// Group, a decimal number or a name.
    pub owner_group: String,
    /// Differs after every change.
    pub change: u64,
    /// Its handle.
    pub handle: FileHandle,
    /// Numbers of a device; zeros for what is none.
    pub device: DeviceNumber,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Its name, which is any bytes but a slash and NUL.
    pub name: OsString,
    /// Its attributes; `None` if it was gone when the server looked.
    pub metadata: Option<Metadata>,
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

/// What [`Metadata`] needs.
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
