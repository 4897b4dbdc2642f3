//! File attributes.
//!
//! Invariant: the table of layouts, the decoder and the encoder all use the draft's attribute
//! numbers.

use dafs_types::attributes::DeviceNumber;
use dafs_types::{FileAttributes, FileHandle, ObjectType, SetAttributes, SetTime};

use super::AttributeKind::{
    Acl, Device, Flag, Handle, Long, SetTime as SetTimeKind, Text, Time, Word,
};
use super::{
    AttributeBitmap, AttributeLayout, Block, Table, acl, put_mime_type, put_text, put_time,
    read_flag, read_mime_type, read_text, read_time,
};
use crate::error::{DecodeError, EncodeError};
use crate::field::read_enum;
use crate::order::{ByteOrder, Order, with_order};
use crate::scope::{Scope, Writer};

/// The bitmap of each file attribute (draft 6.1.5).
pub mod bits {
    use super::AttributeBitmap;

    /// True if the object has named attributes.
    pub const NAMED_ATTR: AttributeBitmap = AttributeBitmap::of(1);
    /// True if the file was archived since its last change.
    pub const ARCHIVE: AttributeBitmap = AttributeBitmap::of(2);
    /// True if the file is hidden.
    pub const HIDDEN: AttributeBitmap = AttributeBitmap::of(3);
    /// True if the file is a system file.
    pub const SYSTEM: AttributeBitmap = AttributeBitmap::of(4);
    /// The type of the object. Mandatory.
    pub const OBJECT_TYPE: AttributeBitmap = AttributeBitmap::of(5);
    /// The permission bits of the mode.
    pub const MODE: AttributeBitmap = AttributeBitmap::of(6);
    /// The number of hard links.
    pub const NUM_LINKS: AttributeBitmap = AttributeBitmap::of(7);
    /// The change attribute. Mandatory.
    pub const CHANGE: AttributeBitmap = AttributeBitmap::of(8);
    /// The size in bytes. Mandatory.
    pub const OBJECT_SIZE: AttributeBitmap = AttributeBitmap::of(9);
    /// The file id (inode number). Mandatory.
    pub const FILE_ID: AttributeBitmap = AttributeBitmap::of(10);
    /// The number of bytes of storage that the object occupies.
    pub const SPACE_USED: AttributeBitmap = AttributeBitmap::of(11);
    /// The time when the data was last read.
    pub const TIME_ACCESS: AttributeBitmap = AttributeBitmap::of(12);
    /// Write-only: sets the time when the data was last read.
    pub const TIME_ACCESS_SET: AttributeBitmap = AttributeBitmap::of(13);
    /// The time when the file was last backed up.
    pub const TIME_BACKUP: AttributeBitmap = AttributeBitmap::of(14);
    /// The time when the object was created.
    pub const TIME_CREATE: AttributeBitmap = AttributeBitmap::of(15);
    /// The resolution of the times that the server stores.
    pub const TIME_DELTA: AttributeBitmap = AttributeBitmap::of(16);
    /// The time when the data or the attributes last changed.
    pub const TIME_METADATA: AttributeBitmap = AttributeBitmap::of(17);
    /// The time when the data last changed.
    pub const TIME_MODIFY: AttributeBitmap = AttributeBitmap::of(18);
    /// Write-only: sets the time when the data last changed.
    pub const TIME_MODIFY_SET: AttributeBitmap = AttributeBitmap::of(19);
    /// The major and minor device numbers of a device node.
    pub const RAW_DEV: AttributeBitmap = AttributeBitmap::of(20);
    /// The handle of the object. Mandatory.
    pub const FILEHANDLE: AttributeBitmap = AttributeBitmap::of(21);
    /// The access control list.
    pub const ACL: AttributeBitmap = AttributeBitmap::of(22);
    /// The MIME type of the content.
    pub const MIME_TYPE: AttributeBitmap = AttributeBitmap::of(23);
    /// The owner of the object.
    pub const OWNER: AttributeBitmap = AttributeBitmap::of(24);
    /// The group of the object.
    pub const OWNER_GROUP: AttributeBitmap = AttributeBitmap::of(25);

    /// The attributes that every server supports.
    pub const MANDATORY: AttributeBitmap =
        OBJECT_TYPE.with(CHANGE).with(OBJECT_SIZE).with(FILE_ID).with(FILEHANDLE);
    /// The attributes that this implementation can set.
    pub const SETTABLE: AttributeBitmap = MODE
        .with(OBJECT_SIZE)
        .with(TIME_ACCESS_SET)
        .with(TIME_MODIFY_SET)
        .with(ACL)
        .with(MIME_TYPE)
        .with(OWNER)
        .with(OWNER_GROUP);
}

/// The number, name and type of every file attribute.
pub const FILE_ATTRIBUTES: &[AttributeLayout] = &[
    AttributeLayout { number: 1, name: "NAMED_ATTR", kind: Flag },
    AttributeLayout { number: 2, name: "ARCHIVE", kind: Flag },
    AttributeLayout { number: 3, name: "HIDDEN", kind: Flag },
    AttributeLayout { number: 4, name: "SYSTEM", kind: Flag },
    AttributeLayout { number: 5, name: "OBJECT_TYPE", kind: Word },
    AttributeLayout { number: 6, name: "MODE", kind: Word },
    AttributeLayout { number: 7, name: "NUM_LINKS", kind: Word },
    AttributeLayout { number: 8, name: "CHANGE", kind: Long },
    AttributeLayout { number: 9, name: "OBJECT_SIZE", kind: Long },
    AttributeLayout { number: 10, name: "FILE_ID", kind: Long },
    AttributeLayout { number: 11, name: "SPACE_USED", kind: Long },
    AttributeLayout { number: 12, name: "TIME_ACCESS", kind: Time },
    AttributeLayout { number: 13, name: "TIME_ACCESS_SET", kind: SetTimeKind },
    AttributeLayout { number: 14, name: "TIME_BACKUP", kind: Time },
    AttributeLayout { number: 15, name: "TIME_CREATE", kind: Time },
    AttributeLayout { number: 16, name: "TIME_DELTA", kind: Time },
    AttributeLayout { number: 17, name: "TIME_METADATA", kind: Time },
    AttributeLayout { number: 18, name: "TIME_MODIFY", kind: Time },
    AttributeLayout { number: 19, name: "TIME_MODIFY_SET", kind: SetTimeKind },
    AttributeLayout { number: 20, name: "RAW_DEV", kind: Device },
    AttributeLayout { number: 21, name: "FILEHANDLE", kind: Handle },
    AttributeLayout { number: 22, name: "ACL", kind: Acl },
    AttributeLayout { number: 23, name: "MIME_TYPE", kind: Text },
    AttributeLayout { number: 24, name: "OWNER", kind: Text },
    AttributeLayout { number: 25, name: "OWNER_GROUP", kind: Text },
];

/// The type parameter of a [`Block`] that contains file attributes.
#[derive(Clone, Copy)]
pub enum FileTable {}

impl Table for FileTable {
    const LAYOUTS: &'static [AttributeLayout] = FILE_ATTRIBUTES;

    fn check<O: Order>(block: Scope<'_, O>, number: u32, at: usize) -> Result<(), DecodeError> {
        match number {
            1..=4 => read_flag(block, at).map(drop),
            5 => read_enum::<O, ObjectType>(block, at).map(drop),
            12 | 14..=18 => read_time(block, at).map(drop),
            13 | 19 => read_set_time(block, at).map(drop),
            22 => acl::check(block, at),
            23 => read_mime_type(block, at).map(drop),
            24 | 25 => read_text(block, at).map(drop),
            _ => Ok(()),
        }
    }
}

/// A block of file attributes, as encoded in messages.
pub type FileAttributeBlock<'a> = Block<'a, FileTable>;

impl<'a> FileAttributeBlock<'a> {
    /// Encodes the requested attributes into `buffer` (at most `ATTRIBUTE_BYTES_MAX` bytes). If the
    /// value of a requested attribute is `None`, its space in the block remains, and the attribute
    /// is marked invalid.
    ///
    /// # Errors
    /// If the buffer is too short, an owner or list is too long, or a time is out of range.
    pub fn encode_file(
        order: ByteOrder,
        wanted: AttributeBitmap,
        attributes: &FileAttributes,
        buffer: &'a mut [u8],
    ) -> Result<Self, EncodeError> {
        with_order!(order, O => Self::encode::<O>(wanted, buffer, |writer, number, at| {
            put_file(writer, number, at, attributes)
        }))
    }

    /// Encodes attributes to set into `buffer`. All attributes that are `Some` are marked valid.
    ///
    /// # Errors
    /// If the buffer is too short, an owner or list is too long, or a time is out of range.
    pub fn encode_set(
        order: ByteOrder,
        attributes: &SetAttributes,
        buffer: &'a mut [u8],
    ) -> Result<Self, EncodeError> {
        let wanted = set_bits(attributes);
        with_order!(order, O => Self::encode::<O>(wanted, buffer, |writer, number, at| {
            put_set(writer, number, at, attributes)
        }))
    }

    /// Returns the valid attributes of the block. The attributes archive, hidden, system and backup
    /// time are ignored.
    #[must_use]
    pub fn file(&self) -> FileAttributes {
        let mut into = FileAttributes::default();
        with_order!(self.order, O => self.valid_fields::<O>(|block, number, at| {
            take_file(block, number, at, &mut into)
        }));
        into
    }

    /// Returns the valid attributes of the block as attributes to set.
    ///
    /// # Errors
    /// `NotSettable` if this implementation cannot set one of the valid attributes.
    pub fn set(&self) -> Result<SetAttributes, DecodeError> {
        let refused = self.valid().without(bits::SETTABLE);
        if refused != AttributeBitmap::NONE {
            return Err(DecodeError::NotSettable(refused.0));
        }
        let mut into = SetAttributes::default();
        with_order!(self.order, O => self.valid_fields::<O>(|block, number, at| {
            take_set(block, number, at, &mut into)
        }));
        Ok(into)
    }
}

impl PartialEq for FileAttributeBlock<'_> {
    /// Returns true if both blocks include the same attributes, the same of these are valid, and
    /// their values are equal.
    fn eq(&self, other: &Self) -> bool {
        self.included() == other.included()
            && self.valid() == other.valid()
            && self.file() == other.file()
            && self.set() == other.set()
    }
}

impl std::fmt::Debug for FileAttributeBlock<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileAttributeBlock")
            .field("included", &self.included())
            .field("valid", &self.valid())
            .field("file", &self.file())
            .finish()
    }
}

fn put_file<O: Order>(
    writer: &mut Writer<'_, O>,
    number: u32,
    at: usize,
    from: &FileAttributes,
) -> Result<bool, EncodeError> {
    let word = |value: Option<u32>, writer: &mut Writer<'_, O>| {
        value.map(|value| writer.put_u32(at, value))
    };
    let long = |value: Option<u64>, writer: &mut Writer<'_, O>| {
        value.map(|value| writer.put_u64(at, value))
    };
    let outcome = match number {
        1 => from.named_attributes.map(|flag| writer.put(at, [u8::from(flag)])),
        5 => word(from.object_type.map(ObjectType::number), writer),
        6 => word(from.mode, writer),
        7 => word(from.link_count, writer),
        8 => long(from.change, writer),
        9 => long(from.size, writer),
        10 => long(from.file_id, writer),
        11 => long(from.space_used, writer),
        12 => from.time_access.map(|time| put_time(writer, at, time)),
        15 => from.time_create.map(|time| put_time(writer, at, time)),
        16 => from.time_delta.map(|time| put_time(writer, at, time)),
        17 => from.time_metadata.map(|time| put_time(writer, at, time)),
        18 => from.time_modify.map(|time| put_time(writer, at, time)),
        20 => from.raw_device.map(|device| {
            writer.put_u64(at, device.major)?;
            writer.put_u64(at + 8, device.minor)
        }),
        21 => from.file_handle.map(|handle| writer.put(at, handle.0)),
        22 => from.acl.as_deref().map(|list| acl::put(writer, at, list)),
        23 => from.mime_type.as_deref().map(|text| put_mime_type(writer, at, text)),
        24 => from.owner.as_deref().map(|owner| put_text(writer, at, owner)),
        25 => from.owner_group.as_deref().map(|group| put_text(writer, at, group)),
        _ => None,
    };
    outcome.transpose().map(|written| written.is_some())
}

fn take_file<O: Order>(
    block: Scope<'_, O>,
    number: u32,
    at: usize,
    into: &mut FileAttributes,
) -> Result<(), DecodeError> {
    match number {
        1 => into.named_attributes = Some(read_flag(block, at)?),
        5 => into.object_type = Some(read_enum(block, at)?),
        6 => into.mode = Some(block.u32(at)?),
        7 => into.link_count = Some(block.u32(at)?),
        8 => into.change = Some(block.u64(at)?),
        9 => into.size = Some(block.u64(at)?),
        10 => into.file_id = Some(block.u64(at)?),
        11 => into.space_used = Some(block.u64(at)?),
        12 => into.time_access = Some(read_time(block, at)?),
        15 => into.time_create = Some(read_time(block, at)?),
        16 => into.time_delta = Some(read_time(block, at)?),
        17 => into.time_metadata = Some(read_time(block, at)?),
        18 => into.time_modify = Some(read_time(block, at)?),
        20 => {
            let (major, minor) = (block.u64(at)?, block.u64(at + 8)?);
            into.raw_device = Some(DeviceNumber { major, minor });
        }
        21 => into.file_handle = Some(FileHandle(block.array(at)?)),
        22 => into.acl = Some(acl::take(block, at)?),
        23 => into.mime_type = Some(read_mime_type(block, at)?.to_owned()),
        24 => into.owner = Some(read_text(block, at)?.to_owned()),
        25 => into.owner_group = Some(read_text(block, at)?.to_owned()),
        _ => {}
    }
    Ok(())
}

fn set_bits(attributes: &SetAttributes) -> AttributeBitmap {
    [
        (attributes.mode.is_some(), bits::MODE),
        (attributes.size.is_some(), bits::OBJECT_SIZE),
        (attributes.time_access.is_some(), bits::TIME_ACCESS_SET),
        (attributes.time_modify.is_some(), bits::TIME_MODIFY_SET),
        (attributes.acl.is_some(), bits::ACL),
        (attributes.mime_type.is_some(), bits::MIME_TYPE),
        (attributes.owner.is_some(), bits::OWNER),
        (attributes.owner_group.is_some(), bits::OWNER_GROUP),
    ]
    .into_iter()
    .filter(|(present, _)| *present)
    .fold(AttributeBitmap::NONE, |all, (_, bit)| all.with(bit))
}

fn put_set<O: Order>(
    writer: &mut Writer<'_, O>,
    number: u32,
    at: usize,
    from: &SetAttributes,
) -> Result<bool, EncodeError> {
    let outcome = match number {
        6 => from.mode.map(|mode| writer.put_u32(at, mode)),
        9 => from.size.map(|size| writer.put_u64(at, size)),
        13 => from.time_access.map(|time| put_set_time(writer, at, time)),
        19 => from.time_modify.map(|time| put_set_time(writer, at, time)),
        22 => from.acl.as_deref().map(|list| acl::put(writer, at, list)),
        23 => from.mime_type.as_deref().map(|text| put_mime_type(writer, at, text)),
        24 => from.owner.as_deref().map(|owner| put_text(writer, at, owner)),
        25 => from.owner_group.as_deref().map(|group| put_text(writer, at, group)),
        _ => None,
    };
    outcome.transpose().map(|written| written.is_some())
}

fn take_set<O: Order>(
    block: Scope<'_, O>,
    number: u32,
    at: usize,
    into: &mut SetAttributes,
) -> Result<(), DecodeError> {
    match number {
        6 => into.mode = Some(block.u32(at)?),
        9 => into.size = Some(block.u64(at)?),
        13 => into.time_access = Some(read_set_time(block, at)?),
        19 => into.time_modify = Some(read_set_time(block, at)?),
        22 => into.acl = Some(acl::take(block, at)?),
        23 => into.mime_type = Some(read_mime_type(block, at)?.to_owned()),
        24 => into.owner = Some(read_text(block, at)?.to_owned()),
        25 => into.owner_group = Some(read_text(block, at)?.to_owned()),
        _ => {}
    }
    Ok(())
}

/// The number of `SET_TO_SERVER_TIME` in the protocol.
const SERVER_TIME: u32 = 1;
const CLIENT_TIME: u32 = 2;

fn read_set_time<O: Order>(block: Scope<'_, O>, at: usize) -> Result<SetTime, DecodeError> {
    block.zeros(at + 20, at + 24)?;
    match block.u32(at + 16)? {
        // The time value has no meaning in this case and is ignored.
        SERVER_TIME => Ok(SetTime::Server),
        CLIENT_TIME => Ok(SetTime::Client(read_time(block, at)?)),
        value => Err(DecodeError::Value { what: "way to set a time", value }),
    }
}

fn put_set_time<O: Order>(
    writer: &mut Writer<'_, O>,
    at: usize,
    time: SetTime,
) -> Result<(), EncodeError> {
    match time {
        SetTime::Server => writer.put_u32(at + 16, SERVER_TIME),
        SetTime::Client(time) => {
            put_time(writer, at, time)?;
            writer.put_u32(at + 16, CLIENT_TIME)
        }
    }
}
