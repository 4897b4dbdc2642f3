//! Converts attributes to the form of DAFS messages.

use dafs_store::ExtrasWanted;
use dafs_types::{FileAttributes, Status};
use dafs_wire::limits::{ATTRIBUTE_BYTES_MAX, PLAIN_ATTRIBUTE_BYTES_MAX};
use dafs_wire::{AttributeBitmap, ByteOrder, FileAttributeBlock};

/// A buffer for encoded attributes. Its part on the stack has room for all attributes of fixed
/// size; lists may need more.
pub(super) struct Room {
    small: [u8; PLAIN_ATTRIBUTE_BYTES_MAX],
    large: Vec<u8>,
}

impl Default for Room {
    fn default() -> Self {
        Self { small: [0; PLAIN_ATTRIBUTE_BYTES_MAX], large: Vec::new() }
    }
}

impl Room {
    pub(super) fn encode(
        &mut self,
        order: ByteOrder,
        wanted: AttributeBitmap,
        full: &FileAttributes,
    ) -> Result<FileAttributeBlock<'_>, Status> {
        let room = if wanted.and(LONG) == AttributeBitmap::NONE {
            &mut self.small[..]
        } else {
            self.large.resize(ATTRIBUTE_BYTES_MAX, 0);
            &mut self.large
        };
        FileAttributeBlock::encode_file(order, wanted, full, room).map_err(|error| error.status())
    }
}

/// Returns the requested attributes that the store returns only through separate calls.
pub(super) fn extras_in(wanted: AttributeBitmap) -> ExtrasWanted {
    use dafs_wire::attributes::file::bits;
    ExtrasWanted {
        named_attributes: wanted.contains(bits::NAMED_ATTR),
        acl: wanted.contains(bits::ACL),
        mime_type: wanted.contains(bits::MIME_TYPE),
    }
}

/// The attributes that may be longer than a few bytes.
const LONG: AttributeBitmap =
    dafs_wire::attributes::file::bits::ACL.with(dafs_wire::attributes::file::bits::MIME_TYPE);
/// The attributes that a store on a local file system supports.
pub(super) const SUPPORTED: AttributeBitmap = {
    use dafs_wire::attributes::file::bits as b;
    b::NAMED_ATTR
        .with(b::OBJECT_TYPE)
        .with(b::MODE)
        .with(b::NUM_LINKS)
        .with(b::CHANGE)
        .with(b::OBJECT_SIZE)
        .with(b::FILE_ID)
        .with(b::SPACE_USED)
        .with(b::TIME_ACCESS)
        .with(b::TIME_ACCESS_SET)
        .with(b::TIME_CREATE)
        .with(b::TIME_DELTA)
        .with(b::TIME_METADATA)
        .with(b::TIME_MODIFY)
        .with(b::TIME_MODIFY_SET)
        .with(b::RAW_DEV)
        .with(b::FILEHANDLE)
        .with(b::ACL)
        .with(b::MIME_TYPE)
        .with(b::OWNER)
        .with(b::OWNER_GROUP)
};
pub(super) const PREFERRED_IO_BYTES: u32 = 1 << 20;
