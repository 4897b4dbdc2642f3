//! Attributes of one object in the form that stores use: users and groups are ids, not names, and
//! every attribute has a value.
//!
//! Invariant: `change` differs after every change of data or metadata that this machine's clock can
//! distinguish.

use dafs_types::attributes::DeviceNumber;
use dafs_types::{FileAttributes, FileHandle, NO_ID, ObjectType, SetTime, Timestamp};

use crate::error::{Result, StoreError};

/// The attributes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The type of the object.
    pub kind: ObjectType,
    /// The 12 low bits of the POSIX mode.
    pub mode: u32,
    /// The owner's user id.
    pub uid: u32,
    /// The id of the object's group.
    pub gid: u32,
    /// The number of hard links.
    pub link_count: u32,
    /// The change attribute. Its value differs after every change of the object's data or
    /// attributes.
    pub change: u64,
    /// The size in bytes.
    pub size: u64,
    /// The inode number, which is unique in its file system.
    pub file_id: u64,
    /// The storage that the object uses, in bytes.
    pub space_used: u64,
    /// The time of the last read. File systems seldom update it at every read.
    pub time_access: Timestamp,
    /// The time of creation. `None` if the file system does not keep it.
    pub time_create: Option<Timestamp>,
    /// The time of the last change of attributes or data.
    pub time_metadata: Timestamp,
    /// The time of the last change of data.
    pub time_modify: Timestamp,
    /// The device number of a block or character device; zeros for other objects.
    pub device: DeviceNumber,
}

/// The attributes that decide, together with an access control list, who may access an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bits {
    /// The type of the object.
    pub kind: ObjectType,
    /// The 12 low bits of the POSIX mode.
    pub mode: u32,
    /// The owner's user id.
    pub uid: u32,
    /// The id of the object's group.
    pub gid: u32,
}

impl From<&Attributes> for Bits {
    fn from(attributes: &Attributes) -> Self {
        let Attributes { kind, mode, uid, gid, .. } = *attributes;
        Self { kind, mode, uid, gid }
    }
}

impl Attributes {
    /// Converts the attributes to the protocol's form, with owner and group as decimal numbers.
    #[must_use]
    pub fn to_file_attributes(&self, handle: FileHandle) -> FileAttributes {
        FileAttributes {
            object_type: Some(self.kind),
            mode: Some(self.mode),
            link_count: Some(self.link_count),
            change: Some(self.change),
            size: Some(self.size),
            file_id: Some(self.file_id),
            space_used: Some(self.space_used),
            time_access: Some(self.time_access),
            time_create: self.time_create,
            time_delta: Some(Timestamp { seconds: 0, nanoseconds: 1 }),
            time_metadata: Some(self.time_metadata),
            time_modify: Some(self.time_modify),
            raw_device: Some(self.device),
            file_handle: Some(handle),
            owner: Some(self.uid.to_string()),
            owner_group: Some(self.gid.to_string()),
            ..FileAttributes::default()
        }
    }
}

/// The attributes before and after a change. They may include a change that another process makes
/// at the same time, because it cannot be told apart from this change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Altered {
    /// The attributes just before the change.
    pub before: Attributes,
    /// The attributes after the change.
    pub after: Attributes,
}

/// Attributes to set; `None` leaves an attribute unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributeChanges {
    /// The 12 low bits of the POSIX mode.
    pub mode: Option<u32>,
    /// The owner's user id.
    pub uid: Option<u32>,
    /// The id of the object's group.
    pub gid: Option<u32>,
    /// The size in bytes. A smaller size truncates the file; a larger size extends it with zeros.
    pub size: Option<u64>,
    /// The access time to set.
    pub time_access: Option<SetTime>,
    /// The modification time to set.
    pub time_modify: Option<SetTime>,
}

impl AttributeChanges {
    /// Returns true if no attribute is to be set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Converts attributes from the protocol's form. `resolve_user` and `resolve_group` look up
    /// names that are not decimal numbers.
    ///
    /// # Errors
    /// `Invalid` for an unknown name, and for the id -1, which is not a valid user or group id.
    pub fn from_protocol(
        wanted: &dafs_types::SetAttributes,
        resolve_user: impl Fn(&str) -> Option<u32>,
        resolve_group: impl Fn(&str) -> Option<u32>,
    ) -> Result<Self> {
        let id = |name: &Option<String>, resolve: &dyn Fn(&str) -> Option<u32>| match name {
            None => Ok(None),
            Some(name) => name
                .parse::<u32>()
                .ok()
                .or_else(|| resolve(name))
                .filter(|id| *id != NO_ID)
                .map(Some)
                .ok_or(StoreError::Invalid),
        };
        Ok(Self {
            mode: wanted.mode,
            uid: id(&wanted.owner, &resolve_user)?,
            gid: id(&wanted.owner_group, &resolve_group)?,
            size: wanted.size,
            time_access: wanted.time_access,
            time_modify: wanted.time_modify,
        })
    }
}
