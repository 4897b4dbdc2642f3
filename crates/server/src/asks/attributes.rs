//! Attributes in the forms in which DAFS asks for them: inline, in the client's memory, and to be
//! compared.

use dafs_ops::{Operation, SetAttributes};
use dafs_store::ExtrasWanted;
use dafs_types::{AccessMask, FileAttributes, FileHandle, Status, limits};
use dafs_wire::limits::{ATTRIBUTE_BYTES_MAX, PLAIN_ATTRIBUTE_BYTES_MAX};
use dafs_wire::messages::{
    Access, AccessResult, DirectResult, Empty, FileAttributesResult, FsAttributesResult,
    GetAttributes, GetAttributesDirect, SetAttributesDirect, Verify,
};
use dafs_wire::{AttributeBitmap, ByteOrder, FileAttributeBlock, FsAttributeBlock, Response};

use crate::data::Step;
use crate::decode::settings_of;
use crate::delegations::Told;
use crate::outcome::NotDone;
use crate::reactor::Reactor;
use crate::reply_to::ReplyTo;
use crate::set_aside::Asked;
use crate::task::FetchTask;

impl Reactor {
    pub(super) fn ask_for_access(&mut self, to: ReplyTo, request: &Access) -> Result<(), NotDone> {
        let by = self.caller(to)?;
        let access = by.store().access(&by, &request.file, request.access)?;
        let supported = request.access & AccessMask::ALL;
        self.answer(to, &Response::Access(AccessResult { supported, access }))
    }

    pub(super) fn ask_for_attributes(
        &mut self,
        to: ReplyTo,
        request: &GetAttributes,
        told: Option<Told>,
    ) -> Result<(), NotDone> {
        let mut room = Room::default();
        let attributes =
            self.encoded_attributes(to, &request.file, request.wanted, told, &mut room)?;
        self.answer(to, &Response::GetAttrInline(FileAttributesResult { attributes }))
    }

    pub(super) fn ask_for_attributes_direct(
        &mut self,
        to: ReplyTo,
        request: &GetAttributesDirect,
        told: Option<Told>,
    ) -> Result<(), NotDone> {
        let mut room = Room::default();
        let block = self.encoded_attributes(to, &request.file, request.wanted, told, &mut room)?;
        let checksum = self.place_bytes(to, block.octets(), &[request.buffer])?;
        self.answer(to, &Response::GetAttrDirect(DirectResult { checksum }))
    }

    /// What is wanted of an object's attributes, as its session has them.
    fn encoded_attributes<'r>(
        &mut self,
        to: ReplyTo,
        file: &FileHandle,
        wanted: AttributeBitmap,
        told: Option<Told>,
        room: &'r mut Room,
    ) -> Result<FileAttributeBlock<'r>, NotDone> {
        let by = self.caller(to)?;
        let full = self.files().attributes(&by, file, extras_in(wanted), told)?;
        let order = self.order_of(to.endpoint).ok_or(Status::BadSession)?;
        Ok(room.encode(order, wanted, &full)?)
    }

    pub(super) fn ask_for_fs_attributes(
        &mut self,
        to: ReplyTo,
        request: &GetAttributes,
    ) -> Result<(), NotDone> {
        let by = self.caller(to)?;
        let mut full = by.store().fs_attributes(&by, &request.file)?;
        let lease = self.filer.config().lease.as_secs();
        full.lease_time = Some(u32::try_from(lease).unwrap_or(u32::MAX));
        full.max_read = Some(u64::from(limits::TRANSFER_BYTES_MAX));
        full.max_write = Some(u64::from(limits::TRANSFER_BYTES_MAX));
        full.max_append = Some(u64::from(limits::APPEND_BYTES_MAX));
        full.preferred_io_size.get_or_insert(PREFERRED_IO_BYTES);
        full.supported_file_attributes = Some(SUPPORTED.0);
        full.supported_fs_attributes = Some(dafs_wire::attributes::file_system::bits::ALL.0);
        full.rd_attr_error = Some(0);
        let order = self.order_of(to.endpoint).ok_or(Status::BadSession)?;
        let mut buffer = [0; PLAIN_ATTRIBUTE_BYTES_MAX];
        let attributes = FsAttributeBlock::encode_fs(order, request.wanted, &full, &mut buffer)
            .map_err(|error| error.status())?;
        self.answer(to, &Response::GetFsAttr(FsAttributesResult { attributes }))
    }

    /// Attributes that are to be set lie in the client's memory: they are fetched first.
    pub(super) fn fetch_attributes(
        &mut self,
        to: ReplyTo,
        request: &SetAttributesDirect,
    ) -> Result<(), NotDone> {
        let length = request.buffer.length;
        if length as usize > ATTRIBUTE_BYTES_MAX {
            return Err(Status::Inval.into());
        }
        let (handle, state, checksum) = (request.file, request.state, request.checksum);
        self.fetch(to, &request.buffer, length, |staging| FetchTask {
            staging,
            transfers_left: 1,
            failed: false,
            handle,
            state,
            checksum,
            length,
        })?;
        Ok(())
    }

    pub(super) fn compare_attributes(
        &mut self,
        to: ReplyTo,
        request: &Verify<'_>,
        wants_same: bool,
        told: Option<Told>,
    ) -> Result<(), NotDone> {
        let valid = request.attributes.valid();
        let by = self.caller(to)?;
        let full = self.files().attributes(&by, &request.file, extras_in(valid), told)?;
        let order = self.order_of(to.endpoint).ok_or(Status::BadSession)?;
        let mut room = Room::default();
        let ours = room.encode(order, valid, &full)?;
        if ours.valid() != valid {
            return Err(Status::NotSupp.into());
        }
        let same = ours.file() == request.attributes.file();
        match (same, wants_same) {
            (true, true) => self.answer(to, &Response::Verify(Empty)),
            (false, false) => self.answer(to, &Response::NVerify(Empty)),
            (false, true) => Err(Status::NotSame.into()),
            (true, false) => Err(Status::Same.into()),
        }
    }

    /// Attributes that are to be set are here: from here on it is as if they had come inline.
    pub(crate) fn set_fetched_attributes(
        &mut self,
        to: ReplyTo,
        task: &FetchTask,
        bytes: &[u8],
    ) -> Result<Step, Status> {
        let order = self.order_of(to.endpoint).ok_or(Status::BadSession)?;
        let block = FileAttributeBlock::parse(order, bytes).map_err(|error| error.status())?;
        let (file, state, attributes) = (task.handle, task.state, settings_of(&block)?);
        let asked = SetAttributes { file, state, attributes };
        let operation = Operation::SetAttributes(asked.clone());
        if !to.logged && self.is_gated(to, &operation) {
            return Ok(Step::Silent);
        }
        match self.set_attributes(to, &asked) {
            Ok(now) => Ok(now.into()),
            Err(NotDone::Failed(fault)) => Err(fault.into()),
            Err(why) => {
                self.refuse(to, why, Asked::Operation(&operation));
                Ok(Step::Silent)
            }
        }
    }
}

/// Room for attributes: most fit on the stack, lists do not.
struct Room {
    small: [u8; PLAIN_ATTRIBUTE_BYTES_MAX],
    large: Vec<u8>,
}

impl Default for Room {
    fn default() -> Self {
        Self { small: [0; PLAIN_ATTRIBUTE_BYTES_MAX], large: Vec::new() }
    }
}

impl Room {
    fn encode(
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

/// Which of the attributes that cost the store calls of their own are wanted.
pub(super) fn extras_in(wanted: AttributeBitmap) -> ExtrasWanted {
    use dafs_wire::attributes::file::bits;
    ExtrasWanted {
        named_attributes: wanted.contains(bits::NAMED_ATTR),
        acl: wanted.contains(bits::ACL),
        mime_type: wanted.contains(bits::MIME_TYPE),
    }
}

/// Attributes that may be long.
const LONG: AttributeBitmap =
    dafs_wire::attributes::file::bits::ACL.with(dafs_wire::attributes::file::bits::MIME_TYPE);
/// Attributes a local file system can tell.
const SUPPORTED: AttributeBitmap = {
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
const PREFERRED_IO_BYTES: u32 = 1 << 20;
