//! Attributes of one object as a store keeps them: plain numbers, no names of
//! users, nothing optional.
//!
//! Invariant: `change` differs after every change of data or metadata that this
//! machine's clock can tell apart.

use dafs_types::attributes::DeviceNumber;
use dafs_types::{FileAttributes, FileHandle, NO_ID, ObjectType, SetTime, Timestamp};

use crate::error::{Result, StoreError};

/// What is known about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// What it is.
    pub kind: ObjectType,
    /// The 12 low bits of the POSIX mode.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Hard links.
    pub link_count: u32,
    /// Differs after every change.
    pub change: u64,
    /// Bytes.
    pub size: u64,
    /// Unique in its file system.
    pub file_id: u64,
    /// Bytes of storage.
    pub space_used: u64,
    /// Last read; seldom kept exact.
    pub time_access: Timestamp,
    /// Creation, where the file system keeps it.
    pub time_create: Option<Timestamp>,
    /// Last change of attributes or data.
    pub time_metadata: Timestamp,
    /// Last change of data.
    pub time_modify: Timestamp,
    /// Device numbers of block and character devices; else zeros.
    pub device: DeviceNumber,
}

/// What decides over access to an object, but for its access control list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bits {
    /// What it is.
    pub kind: ObjectType,
    /// The 12 low bits of the POSIX mode.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl From<&Attributes> for Bits {
    fn from(attributes: &Attributes) -> Self {
        let Attributes { kind, mode, uid, gid, .. } = *attributes;
        Self { kind, mode, uid, gid }
    }
}

impl Attributes {
    /// All of it in the protocol's form; owner and group as decimal numbers.
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

/// Attributes around a change of some of them. Who else changed the object in between is not told
/// apart from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Altered {
    /// As they were just before.
    pub before: Attributes,
    /// As they are.
    pub after: Attributes,
}

/// Attributes to be set; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributeChanges {
    /// The 12 low bits of the POSIX mode.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes; truncates or extends with zeros.
    pub size: Option<u64>,
    /// Access time.
    pub time_access: Option<SetTime>,
    /// Modification time.
    pub time_modify: Option<SetTime>,
}

impl AttributeChanges {
    /// Whether nothing is to be set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Reads the protocol's form; `resolve_user` and `resolve_group` turn names that
    /// are not decimal numbers into ids.
    ///
    /// # Errors
    /// `Invalid` for a name nobody knows, and for -1, which no user or group has.
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
