//! The operations on attributes: GETATTR, SETATTR, VERIFY, NVERIFY and ACCESS.

use std::sync::LazyLock;

use dafs_filer::FileOperation;
use dafs_files::delegations::Told;
use dafs_files::outcome::{NotDone, Outcome};
use dafs_nfs_wire::nfs4::attribute_types::{ChangeKind, HandleLifetime, OpenArguments};
use dafs_nfs_wire::nfs4::attributes::number;
use dafs_nfs_wire::nfs4::directory::{AccessDone, AccessMask as Asked, SetAttrArgs, SetAttrResult};
use dafs_nfs_wire::nfs4::types::{DeviceNumber, ObjectType as Shown, Time};
use dafs_nfs_wire::nfs4::{Answer, Attributes, Bitmap, Fattr, Reply, Status};
use dafs_nfs_wire::xdr::Opaque;
use dafs_ops::{Fault, SetAttributes};
use dafs_types::{
    AccessMask, FileHandle, FileSystemAttributes, ObjectType, StateId, Timestamp, limits,
};

use super::compound::Service;
use super::convert;
use super::fault::{Result, failed, not_done};
use super::settings::{of_exclusive_files, settings_of};
use super::waiting::{Awaits, Did};
use crate::nfs::told;

/// The texts to which the encoded attributes of an object refer.
pub(super) struct Texts {
    owner: String,
    group: String,
    handle: FileHandle,
}

impl Default for Texts {
    fn default() -> Self {
        Self { owner: String::new(), group: String::new(), handle: FileHandle::NULL }
    }
}

impl Service<'_, '_, '_> {
    pub(super) fn get_attributes(&mut self, wanted: &Bitmap) -> Result<Did> {
        let handle = self.current()?;
        if wanted.iter().any(|number| WRITE_ONLY.contains(&number)) {
            return Err(Status::Inval);
        }
        let by = self.by()?;
        let found = match self.reactor.files().attributes_of(&by, &handle) {
            Ok(found) => found,
            Err(error) => return Err(failed(self.reactor, &handle, error)),
        };
        // The holder of a delegation for writing may have changed what only it knows.
        if !self.reactor.shared.filer.has_no_delegations() && !wanted.and(&OF_CONTENT).is_empty() {
            let operation = FileOperation::GetAttributes { may_ask: true };
            match self.reactor.files().check_delegations(&by, &handle, operation) {
                Ok(()) => {}
                Err(NotDone::AwaitsHolder(question)) => {
                    let to = self.wait_for(Awaits::Holder(*wanted));
                    self.reactor.ask_holder_for_guest(to, *question);
                    return Ok(Did::Later);
                }
                Err(why) => return Err(not_done(self.reactor, why)),
            }
        }
        self.write_attributes(&handle, &found, wanted)?;
        Ok(Did::Written)
    }

    /// Continues a GETATTR with what the holder of a delegation for writing has reported. If it has
    /// reported nothing, the delegation is recalled.
    pub(super) fn end_get_attributes(&mut self, wanted: &Bitmap, told: Told) -> Result<()> {
        let (handle, by) = (self.current()?, self.by()?);
        if told == Told::Nothing {
            let operation = FileOperation::GetAttributes { may_ask: false };
            let checked = self.reactor.files().check_delegations(&by, &handle, operation);
            checked.map_err(|why| not_done(self.reactor, why))?;
        }
        let mut found = match self.reactor.files().attributes_of(&by, &handle) {
            Ok(found) => found,
            Err(error) => return Err(failed(self.reactor, &handle, error)),
        };
        told::overlay(told, &mut found);
        let mark = self.mark();
        self.write_attributes(&handle, &found, wanted)?;
        match self.desk.writer.fault() {
            None => Ok(()),
            Some(_) => {
                self.rewind(mark);
                Err(self.too_big())
            }
        }
    }

    fn write_attributes(
        &mut self,
        handle: &FileHandle,
        found: &dafs_store::Attributes,
        wanted: &Bitmap,
    ) -> Result<()> {
        let of_file_system = self.file_system(handle, wanted)?;
        let mut texts = Texts::default();
        let lease = self.lease();
        let shown = shown(handle, found, of_file_system.as_ref(), lease, &mut texts);
        if let Some(reply) = &mut self.c.reply_writer() {
            reply.attributes(self.desk.writer, &shown, wanted);
        }
        if wanted.contains(number::change) && self.desk.v4.states.latest.is_some() {
            let client = self.client()?;
            self.desk.v4.note_change_shown(client, handle, found.change);
        }
        Ok(())
    }

    /// Returns the attributes of the file system; `None` if the client wants none of them.
    pub(super) fn file_system(
        &mut self,
        handle: &FileHandle,
        wanted: &Bitmap,
    ) -> Result<Option<FileSystemAttributes>> {
        if wanted.and(&OF_FILE_SYSTEM).is_empty() {
            return Ok(None);
        }
        let by = self.by()?;
        match by.store().fs_attributes(&by, handle) {
            Ok(found) => Ok(Some(found)),
            Err(error) => Err(failed(self.reactor, handle, error)),
        }
    }

    /// Returns the length of a lease in seconds.
    pub(super) fn lease(&self) -> u32 {
        u32::try_from(self.reactor.shared.filer.config().lease.as_secs()).unwrap_or(u32::MAX)
    }

    pub(super) fn set_attributes(&mut self, asked: &SetAttrArgs<'_>) -> Result<Did> {
        let handle = self.current()?;
        let settings = settings_of(&asked.attributes, false)?;
        let state = match settings.attributes.size {
            Some(_) => self.io_state(&asked.state, &handle)?,
            None => StateId::ANONYMOUS,
        };
        if settings.attributes.size.is_some() {
            match self.kind_of(&handle)? {
                ObjectType::Regular | ObjectType::NamedAttribute => {}
                ObjectType::Directory | ObjectType::AttributeDirectory => {
                    return Err(Status::IsDir);
                }
                _ => return Err(Status::Inval),
            }
        }
        self.desk.recent.forget(self.reactor, &handle);
        let by = self.by()?;
        let ask = SetAttributes { file: handle, state, attributes: settings.attributes };
        let mut set = self.reactor.files().set_attributes(&by, &ask);
        if matches!(&set, Err(NotDone::Failed(Fault::RangeLocked))) && self.end_courtesy_of(&handle)
        {
            set = self.reactor.files().set_attributes(&by, &ask);
        }
        match set {
            Ok(started) => self.follow(Awaits::SetAttributes(settings.mask), started),
            Err(why) => Err(not_done(self.reactor, why)),
        }
    }

    /// Writes the result of a SETATTR whose operation has ended. Returns its status.
    pub(super) fn end_set_attributes(&mut self, mask: &Bitmap, outcome: &Outcome) -> Status {
        if outcome.result.is_err() {
            return convert::failure_of(outcome);
        }
        let result = SetAttrResult { status: Status::Ok, attributes: *mask };
        let _ = self.push(&Answer::SetAttr(result));
        Status::Ok
    }

    pub(super) fn compare(&mut self, asked: &Fattr<'_>, wants_same: bool) -> Result<Did> {
        let handle = self.current()?;
        let mask = asked.mask;
        if mask.contains(number::rdattr_error) || mask.iter().any(|n| WRITE_ONLY.contains(&n)) {
            return Err(Status::Inval);
        }
        if mask.iter().any(|number| !supported().contains(number)) {
            return Err(Status::AttrNotSupp);
        }
        asked.decode().map_err(|error| error.status())?;
        let by = self.by()?;
        let found = match self.reactor.files().attributes_of(&by, &handle) {
            Ok(found) => found,
            Err(error) => return Err(failed(self.reactor, &handle, error)),
        };
        let of_file_system = self.file_system(&handle, &mask)?;
        let mut texts = Texts::default();
        let lease = self.lease();
        let own = shown(&handle, &found, of_file_system.as_ref(), lease, &mut texts);
        let mut writer = dafs_nfs_wire::xdr::Writer::new();
        own.encode(&mask, &mut writer);
        let mut theirs = dafs_nfs_wire::xdr::Writer::new();
        dafs_nfs_wire::xdr::Xdr::encode(asked, &mut theirs);
        let is_same = writer.bytes() == theirs.bytes();
        match (is_same, wants_same) {
            (true, true) => self.push(&Answer::Verify(Status::Ok)),
            (false, false) => self.push(&Answer::NVerify(Status::Ok)),
            (false, true) => Err(Status::NotSame),
            (true, false) => Err(Status::Same),
        }
    }

    pub(super) fn access(&mut self, asked: Asked) -> Result<Did> {
        let handle = self.current()?;
        let by = self.by()?;
        // The six oldest bits of both protocols are the same. Who may read or write the data of an
        // object may also read or write its extended attributes.
        let of_xattrs = match self.c.call.minor {
            0..2 => Asked(0),
            _ => Asked(asked.0 & OF_XATTRS.iter().fold(0, |bits, (bit, _)| bits | bit.0)),
        };
        let needed = OF_XATTRS.iter().filter(|(bit, _)| of_xattrs.0 & bit.0 != 0);
        let needed = needed.fold(AccessMask(0), |bits, (_, right)| bits | *right);
        let wanted = AccessMask(asked.0) & AccessMask::ALL;
        let granted = match by.store().access(&by, &handle, wanted | needed) {
            Ok(granted) => granted,
            Err(error) => return Err(failed(self.reactor, &handle, error)),
        };
        let allowed = OF_XATTRS.iter().filter(|(_, right)| granted.0 & right.0 != 0);
        let allowed = allowed.fold(0, |bits, (bit, _)| bits | bit.0) & of_xattrs.0;
        let supported = Asked(wanted.0 | of_xattrs.0);
        let access = Asked((granted & wanted).0 | allowed);
        let done = AccessDone { supported, access };
        self.push(&Answer::Access(Reply::Ok(done)))
    }
}

/// Returns the attributes of an object in the form of the protocol.
pub(super) fn shown<'t>(
    handle: &FileHandle,
    found: &dafs_store::Attributes,
    of_file_system: Option<&FileSystemAttributes>,
    lease: u32,
    texts: &'t mut Texts,
) -> Attributes<'t> {
    texts.owner = found.uid.to_string();
    texts.group = found.gid.to_string();
    texts.handle = *handle;
    let texts: &'t Texts = texts;
    let of = of_file_system;
    Attributes {
        supported_attrs: Some(*supported()),
        type_: Some(match found.kind {
            ObjectType::Regular => Shown::Regular,
            ObjectType::Directory => Shown::Directory,
            ObjectType::BlockDevice => Shown::BlockDevice,
            ObjectType::CharacterDevice => Shown::CharacterDevice,
            ObjectType::SymbolicLink => Shown::SymbolicLink,
            ObjectType::Socket => Shown::Socket,
            ObjectType::Fifo => Shown::Fifo,
            ObjectType::AttributeDirectory => Shown::AttributeDirectory,
            ObjectType::NamedAttribute => Shown::NamedAttribute,
        }),
        fh_expire_type: Some(HandleLifetime::PERSISTENT),
        change: Some(found.change),
        size: Some(found.size),
        link_support: Some(true),
        symlink_support: Some(true),
        named_attr: Some(false),
        fsid: Some(convert::file_system_of(handle)),
        unique_handles: Some(true),
        lease_time: Some(lease),
        rdattr_error: Some(Status::Ok),
        cansettime: Some(true),
        case_insensitive: Some(false),
        case_preserving: Some(true),
        chown_restricted: Some(true),
        filehandle: Some(Opaque(&texts.handle.0)),
        fileid: Some(found.file_id),
        files_avail: of.and_then(|of| of.files_available),
        files_free: of.and_then(|of| of.files_free),
        files_total: of.and_then(|of| of.files_total),
        homogeneous: Some(true),
        maxfilesize: Some(of.and_then(|of| of.max_file_size).unwrap_or(limits::FILE_OFFSET_MAX)),
        maxlink: Some(of.and_then(|of| of.max_link).unwrap_or(1)),
        maxname: Some(of.and_then(|of| of.max_name).unwrap_or(255)),
        maxread: Some(u64::from(TRANSFER_BYTES_MAX)),
        maxwrite: Some(u64::from(TRANSFER_BYTES_MAX)),
        mode: Some(found.mode),
        no_trunc: Some(true),
        numlinks: Some(found.link_count),
        owner: Some(Opaque(texts.owner.as_bytes())),
        owner_group: Some(Opaque(texts.group.as_bytes())),
        rawdev: Some(DeviceNumber {
            major: u32::try_from(found.device.major).unwrap_or(0),
            minor: u32::try_from(found.device.minor).unwrap_or(0),
        }),
        space_avail: of.and_then(|of| of.space_available),
        space_free: of.and_then(|of| of.space_free),
        space_total: of.and_then(|of| of.space_total),
        space_used: Some(found.space_used),
        time_access: Some(time(found.time_access)),
        time_create: found.time_create.map(time),
        time_delta: Some(Time { seconds: 0, nanoseconds: 1 }),
        time_metadata: Some(time(found.time_metadata)),
        time_modify: Some(time(found.time_modify)),
        mounted_on_fileid: Some(found.file_id),
        suppattr_exclcreat: Some(*of_exclusive_files()),
        clone_blksize: Some(CLONE_BLOCK_BYTES),
        change_attr_type: Some(ChangeKind::Undefined),
        xattr_support: Some(true),
        open_arguments: Some(*OPEN_ARGUMENTS),
        ..Attributes::default()
    }
}

fn time(time: Timestamp) -> Time {
    Time { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

/// Returns the attributes that this server supports.
pub(super) fn supported() -> &'static Bitmap {
    &SUPPORTED
}

static SUPPORTED: LazyLock<Bitmap> =
    LazyLock::new(|| Bitmap::of(READABLE).or(&Bitmap::of(WRITE_ONLY)));

/// The numbers of the attributes that clients can read.
const READABLE: &[u32] = &[
    number::supported_attrs,
    number::type_,
    number::fh_expire_type,
    number::change,
    number::size,
    number::link_support,
    number::symlink_support,
    number::named_attr,
    number::fsid,
    number::unique_handles,
    number::lease_time,
    number::rdattr_error,
    number::cansettime,
    number::case_insensitive,
    number::case_preserving,
    number::chown_restricted,
    number::filehandle,
    number::fileid,
    number::files_avail,
    number::files_free,
    number::files_total,
    number::homogeneous,
    number::maxfilesize,
    number::maxlink,
    number::maxname,
    number::maxread,
    number::maxwrite,
    number::mode,
    number::no_trunc,
    number::numlinks,
    number::owner,
    number::owner_group,
    number::rawdev,
    number::space_avail,
    number::space_free,
    number::space_total,
    number::space_used,
    number::time_access,
    number::time_create,
    number::time_delta,
    number::time_metadata,
    number::time_modify,
    number::mounted_on_fileid,
    number::suppattr_exclcreat,
    number::clone_blksize,
    number::change_attr_type,
    number::xattr_support,
    number::open_arguments,
];

/// The numbers of the attributes that clients can only set.
pub(super) const WRITE_ONLY: &[u32] =
    &[number::time_access_set, number::time_modify_set, number::mode_umask];

/// The values of the arguments of OPEN that this server supports (RFC 9754 section 3): all access
/// modes, reservations and modes of creation; the wishes for any delegation, for none, and to
/// cancel a wish; and all claims but those of a client that has restarted.
static OPEN_ARGUMENTS: LazyLock<OpenArguments> = LazyLock::new(|| OpenArguments {
    share_access: Bitmap::of(&[1, 2, 3]),
    share_deny: Bitmap::of(&[0, 1, 2, 3]),
    share_access_want: Bitmap::of(&[3, 4, 5]),
    claims: Bitmap::of(&[0, 1, 2, 4, 5]),
    create_modes: Bitmap::of(&[0, 1, 2, 3]),
});

/// The attributes that change with the content of a file.
static OF_CONTENT: LazyLock<Bitmap> = LazyLock::new(|| {
    Bitmap::of(&[
        number::change,
        number::size,
        number::space_used,
        number::time_metadata,
        number::time_modify,
    ])
});

/// The attributes whose values the server must ask the file system for.
static OF_FILE_SYSTEM: LazyLock<Bitmap> = LazyLock::new(|| {
    Bitmap::of(&[
        number::files_avail,
        number::files_free,
        number::files_total,
        number::maxfilesize,
        number::maxlink,
        number::maxname,
        number::space_avail,
        number::space_free,
        number::space_total,
    ])
});

/// The rights to extended attributes, and the right to the data that each needs.
const OF_XATTRS: [(Asked, AccessMask); 3] = [
    (Asked::XATTR_READ, AccessMask::READ),
    (Asked::XATTR_WRITE, AccessMask::MODIFY),
    (Asked::XATTR_LIST, AccessMask::READ),
];

/// The number of bytes of which the offsets and the length of a CLONE should be multiples.
const CLONE_BLOCK_BYTES: u32 = 4096;

/// The maximum number of bytes of a READ or WRITE.
pub(super) const TRANSFER_BYTES_MAX: u32 = 1 << 20;
