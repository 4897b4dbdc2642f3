//! File-system attributes.
//!
//! Invariant: the table of layouts, the decoder and the encoder all use the draft's attribute
//! numbers. The draft has no attribute 31.

use dafs_types::{FileSystemAttributes, FsHandle};

use super::AttributeKind::{Flag, FsHandle as FsHandleKind, Long, Other, Word};
use super::{AttributeBitmap, AttributeLayout, Block, Table, read_flag};
use crate::error::{DecodeError, EncodeError};
use crate::order::{ByteOrder, Order, with_order};
use crate::scope::{Scope, Writer};

/// The bitmap of each file-system attribute (draft 6.1.6).
pub mod bits {
    use super::AttributeBitmap;

    /// The attributes that every server supports.
    pub const MANDATORY: AttributeBitmap = AttributeBitmap::of(1)
        .with(AttributeBitmap::of(2))
        .with(AttributeBitmap::of(10))
        .with(AttributeBitmap::of(11))
        .with(AttributeBitmap::of(15))
        .with(AttributeBitmap::of(16))
        .with(AttributeBitmap::of(29))
        .with(AttributeBitmap::of(32));
    /// All attributes with a known layout.
    pub const ALL: AttributeBitmap = super::super::known(super::FS_ATTRIBUTES);
}

/// The number, name and type of every file-system attribute.
pub const FS_ATTRIBUTES: &[AttributeLayout] = &[
    AttributeLayout { number: 1, name: "LINK_SUPPORT", kind: Flag },
    AttributeLayout { number: 2, name: "SYMLINK_SUPPORT", kind: Flag },
    AttributeLayout { number: 3, name: "CAN_SET_TIME", kind: Flag },
    AttributeLayout { number: 4, name: "CASE_INSENSITIVE", kind: Flag },
    AttributeLayout { number: 5, name: "CASE_PRESERVING", kind: Flag },
    AttributeLayout { number: 6, name: "CHOWN_RESTRICTED", kind: Flag },
    AttributeLayout { number: 7, name: "HOMOGENEOUS", kind: Flag },
    AttributeLayout { number: 8, name: "NO_TRUNC", kind: Flag },
    AttributeLayout { number: 9, name: "UNIQUE_HANDLE", kind: Flag },
    AttributeLayout { number: 10, name: "LEASE_TIME", kind: Word },
    AttributeLayout { number: 11, name: "RD_ATTR_ERROR", kind: Word },
    AttributeLayout { number: 12, name: "ACL_SUPPORT", kind: Word },
    AttributeLayout { number: 13, name: "MAX_LINK", kind: Word },
    AttributeLayout { number: 14, name: "MAX_NAME", kind: Word },
    AttributeLayout { number: 15, name: "SUPPORTED_FATTR", kind: Long },
    AttributeLayout { number: 16, name: "SUPPORTED_FSATTR", kind: Long },
    AttributeLayout { number: 17, name: "FILES_AVAILABLE", kind: Long },
    AttributeLayout { number: 18, name: "FILES_FREE", kind: Long },
    AttributeLayout { number: 19, name: "FILES_TOTAL", kind: Long },
    AttributeLayout { number: 20, name: "MAX_FILE_SIZE", kind: Long },
    AttributeLayout { number: 21, name: "MAX_READ", kind: Long },
    AttributeLayout { number: 22, name: "MAX_WRITE", kind: Long },
    AttributeLayout { number: 23, name: "QUOTA_HARD", kind: Long },
    AttributeLayout { number: 24, name: "QUOTA_SOFT", kind: Long },
    AttributeLayout { number: 25, name: "QUOTA_USED", kind: Long },
    AttributeLayout { number: 26, name: "SPACE_AVAILABLE", kind: Long },
    AttributeLayout { number: 27, name: "SPACE_FREE", kind: Long },
    AttributeLayout { number: 28, name: "SPACE_TOTAL", kind: Long },
    AttributeLayout { number: 29, name: "FSHANDLE", kind: FsHandleKind },
    AttributeLayout { number: 30, name: "FAILOVER_LOCATIONS", kind: Other },
    AttributeLayout { number: 32, name: "MAX_APPEND", kind: Long },
    AttributeLayout { number: 33, name: "PREF_IO_SIZE", kind: Long },
    AttributeLayout { number: 34, name: "FH_EXPIRE_TYPE", kind: Word },
];

/// The type parameter of a [`Block`] that contains file-system attributes.
#[derive(Clone, Copy)]
pub enum FsTable {}

impl Table for FsTable {
    const LAYOUTS: &'static [AttributeLayout] = FS_ATTRIBUTES;

    fn check<O: Order>(block: Scope<'_, O>, number: u32, at: usize) -> Result<(), DecodeError> {
        match number {
            1..=9 => read_flag(block, at).map(drop),
            30 => block.variable(at, "attribute").map(drop),
            _ => Ok(()),
        }
    }
}

/// A block of file-system attributes, as encoded in messages.
pub type FsAttributeBlock<'a> = Block<'a, FsTable>;

impl<'a> FsAttributeBlock<'a> {
    /// Encodes the requested attributes into `buffer` (at most `ATTRIBUTE_BYTES_MAX` bytes). If the
    /// value of a requested attribute is `None`, its space in the block remains, and the attribute
    /// is marked invalid.
    ///
    /// # Errors
    /// If the buffer is too short.
    pub fn encode_fs(
        order: ByteOrder,
        wanted: AttributeBitmap,
        attributes: &FileSystemAttributes,
        buffer: &'a mut [u8],
    ) -> Result<Self, EncodeError> {
        with_order!(order, O => Self::encode::<O>(wanted, buffer, |writer, number, at| {
            put(writer, number, at, attributes)
        }))
    }

    /// Returns the valid attributes of the block. The failover locations are ignored. A preferred
    /// transfer size that does not fit into 32 bits is returned as `u32::MAX`.
    #[must_use]
    pub fn file_system(&self) -> FileSystemAttributes {
        let mut into = FileSystemAttributes::default();
        with_order!(self.order, O => self.valid_fields::<O>(|block, number, at| {
            take(block, number, at, &mut into)
        }));
        into
    }
}

impl PartialEq for FsAttributeBlock<'_> {
    /// Returns true if both blocks include the same attributes, the same of these are valid, and
    /// their values are equal.
    fn eq(&self, other: &Self) -> bool {
        self.included() == other.included()
            && self.valid() == other.valid()
            && self.file_system() == other.file_system()
    }
}

impl std::fmt::Debug for FsAttributeBlock<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FsAttributeBlock")
            .field("included", &self.included())
            .field("valid", &self.valid())
            .field("file_system", &self.file_system())
            .finish()
    }
}

fn put<O: Order>(
    writer: &mut Writer<'_, O>,
    number: u32,
    at: usize,
    from: &FileSystemAttributes,
) -> Result<bool, EncodeError> {
    let written = match number {
        1..=9 => flag(number, from).map(|value| writer.put(at, [u8::from(value)])),
        10 => from.lease_time.map(|value| writer.put_u32(at, value)),
        11 => from.rd_attr_error.map(|value| writer.put_u32(at, value)),
        12 => from.acl_support.map(|value| writer.put_u32(at, value)),
        13 => from.max_link.map(|value| writer.put_u32(at, value)),
        14 => from.max_name.map(|value| writer.put_u32(at, value)),
        34 => from.handle_expire_type.map(|value| writer.put_u32(at, value)),
        29 => from.fs_handle.map(|handle| writer.put(at, handle.0)),
        _ => long(number, from).map(|value| writer.put_u64(at, value)),
    };
    written.transpose().map(|written| written.is_some())
}

fn flag(number: u32, from: &FileSystemAttributes) -> Option<bool> {
    match number {
        1 => from.link_support,
        2 => from.symlink_support,
        3 => from.can_set_time,
        4 => from.case_insensitive,
        5 => from.case_preserving,
        6 => from.chown_restricted,
        7 => from.homogeneous,
        8 => from.no_trunc,
        9 => from.unique_handle,
        _ => None,
    }
}

fn long(number: u32, from: &FileSystemAttributes) -> Option<u64> {
    match number {
        15 => from.supported_file_attributes,
        16 => from.supported_fs_attributes,
        17 => from.files_available,
        18 => from.files_free,
        19 => from.files_total,
        20 => from.max_file_size,
        21 => from.max_read,
        22 => from.max_write,
        23 => from.quota_hard,
        24 => from.quota_soft,
        25 => from.quota_used,
        26 => from.space_available,
        27 => from.space_free,
        28 => from.space_total,
        32 => from.max_append,
        33 => from.preferred_io_size.map(u64::from),
        _ => None,
    }
}

fn take<O: Order>(
    block: Scope<'_, O>,
    number: u32,
    at: usize,
    into: &mut FileSystemAttributes,
) -> Result<(), DecodeError> {
    match number {
        1 => into.link_support = Some(read_flag(block, at)?),
        2 => into.symlink_support = Some(read_flag(block, at)?),
        3 => into.can_set_time = Some(read_flag(block, at)?),
        4 => into.case_insensitive = Some(read_flag(block, at)?),
        5 => into.case_preserving = Some(read_flag(block, at)?),
        6 => into.chown_restricted = Some(read_flag(block, at)?),
        7 => into.homogeneous = Some(read_flag(block, at)?),
        8 => into.no_trunc = Some(read_flag(block, at)?),
        9 => into.unique_handle = Some(read_flag(block, at)?),
        10 => into.lease_time = Some(block.u32(at)?),
        11 => into.rd_attr_error = Some(block.u32(at)?),
        12 => into.acl_support = Some(block.u32(at)?),
        13 => into.max_link = Some(block.u32(at)?),
        14 => into.max_name = Some(block.u32(at)?),
        15 => into.supported_file_attributes = Some(block.u64(at)?),
        16 => into.supported_fs_attributes = Some(block.u64(at)?),
        17 => into.files_available = Some(block.u64(at)?),
        18 => into.files_free = Some(block.u64(at)?),
        19 => into.files_total = Some(block.u64(at)?),
        20 => into.max_file_size = Some(block.u64(at)?),
        21 => into.max_read = Some(block.u64(at)?),
        22 => into.max_write = Some(block.u64(at)?),
        23 => into.quota_hard = Some(block.u64(at)?),
        24 => into.quota_soft = Some(block.u64(at)?),
        25 => into.quota_used = Some(block.u64(at)?),
        26 => into.space_available = Some(block.u64(at)?),
        27 => into.space_free = Some(block.u64(at)?),
        28 => into.space_total = Some(block.u64(at)?),
        29 => into.fs_handle = Some(FsHandle(block.array(at)?)),
        32 => into.max_append = Some(block.u64(at)?),
        33 => {
            into.preferred_io_size = Some(u32::try_from(block.u64(at)?).unwrap_or(u32::MAX));
        }
        34 => into.handle_expire_type = Some(block.u32(at)?),
        _ => {}
    }
    Ok(())
}
