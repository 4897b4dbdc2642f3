//! The attributes of files and file systems (RFC 8881 section 5, RFC 7862 section 12, RFC 8275, RFC
//! 8276, RFC 9754): one table, a structure of optional values, and their encoding.
//!
//! Invariant: number, name, type, access and requirement of an attribute are in one row of the
//! table. Attributes are encoded in the order of their numbers.

use crate::table::{Codec, codec};
use crate::xdr::{List, Opaque, Reader, Writer, Xdr, XdrError, decode_whole, xdr};

use super::attribute_types::{
    Acl, AclSupport, ChangeKind, ChangePolicy, FileSystemStatus, FlaggedAcl, HandleLifetime,
    LayoutHint, Locations, LocationsInfo, MaskedMode, ModeUmask, OpenArguments, Retention,
    SecurityLabel, SetRetention, SetTime, Threshold,
};
use super::bitmap::Bitmap;
use super::limits::{FATTR_BYTES_MAX, NUMBERS_MAX};
use super::status::Status;
use super::types::{DeviceNumber, FileHandle, FsId, LayoutType, ObjectType, Text, Time};

/// The ways in which clients may use an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Use {
    /// Clients may only read the attribute.
    Read,
    /// Clients may only write the attribute.
    Write,
    /// Clients may read and write the attribute.
    Both,
}

/// The properties of an attribute.
#[derive(Clone, Copy, Debug)]
pub struct AttributeRow {
    /// The number of the attribute's bit.
    pub number: u32,
    /// The name of the attribute in the specification.
    pub name: &'static str,
    /// The ways in which clients may use the attribute.
    pub access: Use,
    /// True if every server must support the attribute.
    pub is_required: bool,
    /// The codec of the attribute's value.
    pub codec: Codec,
}

xdr! {
    /// Encoded attributes: the numbers of the attributes, and their values.
    #[derive(Copy, Default)]
    struct Fattr<'b> {
        /// The numbers of the attributes.
        mask: Bitmap,
        /// The values, one after the other; see [`Fattr::decode`].
        values: Opaque<'b, FATTR_BYTES_MAX>,
    }
}

/// The reason why encoded attributes cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttributeError {
    /// No attribute has this number, so the values after it cannot be decoded.
    #[error("no attribute has the number {0}")]
    Unknown(u32),
    /// The values do not have the encoding of their attributes.
    #[error("the values of the attributes cannot be decoded")]
    Encoding(#[from] XdrError),
    /// The nanoseconds of a time are not less than one second.
    #[error("a time has too many nanoseconds")]
    Time,
}

impl AttributeError {
    /// Returns the status for the reply to the request with the faulty attributes.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::Unknown(_) => Status::AttrNotSupp,
            Self::Encoding(_) => Status::BadXdr,
            Self::Time => Status::Inval,
        }
    }
}

impl<'b> Fattr<'b> {
    /// Decodes the values. All bytes must belong to an attribute of the mask.
    ///
    /// # Errors
    /// If the mask has an unknown attribute, or if the bytes are not the values of the attributes
    /// in the mask.
    pub fn decode(&self) -> Result<Attributes<'b>, AttributeError> {
        let mut reader = Reader::new(self.values.0);
        let mut attributes = Attributes::default();
        for number in self.mask.iter() {
            if !attributes.decode_one(number, &mut reader)? {
                return Err(AttributeError::Unknown(number));
            }
        }
        reader.finish()?;
        if attributes.has_valid_times() { Ok(attributes) } else { Err(AttributeError::Time) }
    }
}

macro_rules! attributes {
    ($($(#[$about:meta])* $field:ident $number:literal $access:ident $required:literal:
        $type:ty;)*) => {
        /// Values of attributes. A field is `None` if the attribute is not known or not wanted.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Attributes<'b> {
            $($(#[$about])* pub $field: Option<$type>,)*
        }

        /// The number of each attribute, under the name of its field.
        #[allow(non_upper_case_globals, reason = "the names are those of the fields")]
        pub mod number {
            $($(#[$about])* pub const $field: u32 = $number;)*
        }

        /// All attributes, in the order of their numbers.
        pub const ATTRIBUTES: &[AttributeRow] = &[$(AttributeRow {
            number: $number,
            name: name_of(stringify!($field)),
            access: Use::$access,
            is_required: $required,
            codec: codec!($type),
        },)*];

        impl<'b> Attributes<'b> {
            /// Returns the attributes that have a value.
            #[must_use]
            pub fn mask(&self) -> Bitmap {
                let mut words = [0_u32; 3];
                $(if self.$field.is_some() {
                    words[$number / 32] |= 1 << ($number % 32);
                })*
                Bitmap::from_array(words)
            }

            /// Decodes the value of an attribute. Returns false if no attribute has this number.
            fn decode_one(
                &mut self,
                number: u32,
                reader: &mut Reader<'b>,
            ) -> Result<bool, XdrError> {
                match number {
                    $($number => self.$field = Some(<$type as Xdr<'b>>::decode(reader)?),)*
                    _ => return Ok(false),
                }
                Ok(true)
            }

            /// Encodes the values of the attributes in `mask`, all of which have a value.
            fn encode_values(&self, mask: &Bitmap, writer: &mut Writer) {
                $(if let Some(value) = &self.$field
                    && mask.contains($number)
                {
                    <$type as Xdr<'b>>::encode(value, writer);
                })*
            }
        }
    };
}

attributes! {
    /// The attributes that the server supports for this object.
    supported_attrs 0 Read true: Bitmap;
    /// The type of the object.
    type_ 1 Read true: ObjectType;
    /// The lifetime of file handles.
    fh_expire_type 2 Read true: HandleLifetime;
    /// A number that differs after each change of the object.
    change 3 Read true: u64;
    /// The size in bytes.
    size 4 Both true: u64;
    /// True if the file system supports hard links.
    link_support 5 Read true: bool;
    /// True if the file system supports symbolic links.
    symlink_support 6 Read true: bool;
    /// True if the object has named attributes.
    named_attr 7 Read true: bool;
    /// The id of the file system.
    fsid 8 Read true: FsId;
    /// True if different handles always belong to different objects.
    unique_handles 9 Read true: bool;
    /// The duration of leases in seconds.
    lease_time 10 Read true: u32;
    /// The reason why a directory entry has no attributes.
    rdattr_error 11 Read true: Status;
    /// The access control list.
    acl 12 Both false: Acl<'b>;
    /// The types of access control entries that the server supports.
    aclsupport 13 Read false: AclSupport;
    /// True if the object was archived since its last change.
    archive 14 Both false: bool;
    /// True if the server can set times.
    cansettime 15 Read false: bool;
    /// True if names that differ only in case are equal.
    case_insensitive 16 Read false: bool;
    /// True if names keep their case.
    case_preserving 17 Read false: bool;
    /// True if only privileged users can change owners.
    chown_restricted 18 Read false: bool;
    /// The file handle of the object.
    filehandle 19 Read true: FileHandle<'b>;
    /// The number of the object in its file system.
    fileid 20 Read false: u64;
    /// The number of files that this user may still create.
    files_avail 21 Read false: u64;
    /// The number of files that can still be created.
    files_free 22 Read false: u64;
    /// The number of files that the file system can hold.
    files_total 23 Read false: u64;
    /// The servers that have this file system.
    fs_locations 24 Read false: Locations<'b>;
    /// True if listings should leave the object out.
    hidden 25 Both false: bool;
    /// True if all objects have the same values of file system attributes.
    homogeneous 26 Read false: bool;
    /// The maximum size of a file in bytes.
    maxfilesize 27 Read false: u64;
    /// The maximum number of links of a file.
    maxlink 28 Read false: u32;
    /// The maximum length of a name in bytes.
    maxname 29 Read false: u32;
    /// The maximum number of bytes in one READ.
    maxread 30 Read false: u64;
    /// The maximum number of bytes in one WRITE.
    maxwrite 31 Read false: u64;
    /// The MIME type of the contents.
    mimetype 32 Both false: Text<'b>;
    /// The permission bits, as in POSIX.
    mode 33 Both false: u32;
    /// True if names that are too long are refused; false if they are shortened.
    no_trunc 34 Read false: bool;
    /// The number of hard links.
    numlinks 35 Read false: u32;
    /// The owner, as `user@domain` or as a number.
    owner 36 Both false: Text<'b>;
    /// The group, as `group@domain` or as a number.
    owner_group 37 Both false: Text<'b>;
    /// The number of bytes that this user may still use, by the hard limit.
    quota_avail_hard 38 Read false: u64;
    /// The number of bytes that this user may still use, by the soft limit.
    quota_avail_soft 39 Read false: u64;
    /// The number of bytes that this user uses.
    quota_used 40 Read false: u64;
    /// The device number of a special file.
    rawdev 41 Read false: DeviceNumber;
    /// The number of bytes that this user may still use on the file system.
    space_avail 42 Read false: u64;
    /// The number of free bytes of the file system.
    space_free 43 Read false: u64;
    /// The size of the file system in bytes.
    space_total 44 Read false: u64;
    /// The number of bytes that the object occupies on the disk.
    space_used 45 Read false: u64;
    /// True if the object belongs to the operating system.
    system 46 Both false: bool;
    /// The time of the last access.
    time_access 47 Read false: Time;
    /// The time of the last access, to be set.
    time_access_set 48 Write false: SetTime;
    /// The time of the last backup.
    time_backup 49 Both false: Time;
    /// The time when the object was created.
    time_create 50 Both false: Time;
    /// The resolution of times in the file system.
    time_delta 51 Read false: Time;
    /// The time of the last change of metadata.
    time_metadata 52 Read false: Time;
    /// The time of the last change of contents.
    time_modify 53 Read false: Time;
    /// The time of the last change of contents, to be set.
    time_modify_set 54 Write false: SetTime;
    /// The inode number of the directory on which the file system is mounted.
    mounted_on_fileid 55 Read false: u64;
    /// The delay of notifications about the attributes of a directory.
    dir_notif_delay 56 Read false: Time;
    /// The delay of notifications about the attributes of a directory's entries.
    dirent_notif_delay 57 Read false: Time;
    /// The access control list without audit and alarm entries.
    dacl 58 Both false: FlaggedAcl<'b>;
    /// The list of audit and alarm entries.
    sacl 59 Both false: FlaggedAcl<'b>;
    /// A value that changes with the policy for the object.
    change_policy 60 Read false: ChangePolicy;
    /// The state of the file system.
    fs_status 61 Read false: FileSystemStatus<'b>;
    /// The types of layouts that the file system supports.
    fs_layout_types 62 Read false: List<LayoutType, NUMBERS_MAX>;
    /// The layout that the client would like for a new file.
    layout_hint 63 Write false: LayoutHint<'b>;
    /// The types of layouts that the file supports.
    layout_types 64 Read false: List<LayoutType, NUMBERS_MAX>;
    /// The block size of layouts in bytes.
    layout_blksize 65 Read false: u32;
    /// The alignment of layouts in bytes.
    layout_alignment 66 Read false: u32;
    /// The servers that have this file system, with additional information about them.
    fs_locations_info 67 Read false: LocationsInfo<'b>;
    /// The sizes of files or requests from which clients should use layouts.
    mdsthreshold 68 Read false: List<Threshold<'b>, NUMBERS_MAX>;
    /// The time for which the object is retained.
    retention_get 69 Read false: Retention;
    /// The time for which the object is to be retained.
    retention_set 70 Write false: SetRetention;
    /// The time for which the object is retained after an event.
    retentevt_get 71 Read false: Retention;
    /// The time for which the object is to be retained after an event.
    retentevt_set 72 Write false: SetRetention;
    /// The holds that protect the object from deletion, one bit each.
    retention_hold 73 Both false: u64;
    /// New values for some bits of the mode.
    mode_set_masked 74 Write false: MaskedMode;
    /// The attributes that an exclusive creation can set.
    suppattr_exclcreat 75 Read true: Bitmap;
    /// The character sets of names: 1 if names may be in others than UTF-8, 2 if names are only in
    /// UTF-8.
    fs_charset_cap 76 Read false: u32;
    /// The block size of CLONE in bytes.
    clone_blksize 77 Read false: u32;
    /// The number of bytes that are freed if the object is removed.
    space_freed 78 Read false: u64;
    /// The behavior of the change attribute.
    change_attr_type 79 Read false: ChangeKind;
    /// The security label of the object.
    sec_label 80 Both false: SecurityLabel<'b>;
    /// The mode of a new object with the umask of its creator.
    mode_umask 81 Write false: ModeUmask;
    /// True if the file system supports extended attributes.
    xattr_support 82 Read false: bool;
    /// True if the data of the object must first be copied from slow storage.
    offline 83 Read false: bool;
    /// The time of the last access, which the holder of a delegation determines. The client sets
    /// this attribute, and returns it in the reply to CB_GETATTR.
    time_deleg_access 84 Write false: Time;
    /// The time of the last change, which the holder of a delegation determines. The client sets
    /// this attribute, and returns it in the reply to CB_GETATTR.
    time_deleg_modify 85 Write false: Time;
    /// The arguments of OPEN that the server supports.
    open_arguments 86 Read false: OpenArguments;
}

impl Attributes<'_> {
    /// Encodes the attributes that are in `wanted` and have a value. The encoding consists of the
    /// mask, the length of the values, and the values.
    pub fn encode(&self, wanted: &Bitmap, writer: &mut Writer) {
        let mask = self.mask().and(wanted);
        mask.encode(writer);
        let length = writer.reserve();
        let start = writer.length();
        self.encode_values(&mask, writer);
        let bytes = writer.length() - start;
        match u32::try_from(bytes) {
            Ok(count) if bytes <= FATTR_BYTES_MAX => writer.patch(length, count),
            _ => writer.fail(XdrError::TooMany { count: bytes, bound: FATTR_BYTES_MAX }),
        }
    }

    /// Encodes all attributes that have a value into a buffer, which [`parse_fattr`] can decode.
    ///
    /// # Errors
    /// If a value is outside its bounds.
    pub fn to_bytes(&self) -> Result<Vec<u8>, XdrError> {
        let mut writer = Writer::new();
        self.encode(&self.mask(), &mut writer);
        writer.contiguous().map(<[u8]>::to_vec)
    }

    /// Returns true if the nanoseconds of all times are less than one second.
    #[must_use]
    pub fn has_valid_times(&self) -> bool {
        let times = [
            &self.time_access,
            &self.time_backup,
            &self.time_create,
            &self.time_delta,
            &self.time_metadata,
            &self.time_modify,
            &self.dir_notif_delay,
            &self.dirent_notif_delay,
            &self.time_deleg_access,
            &self.time_deleg_modify,
        ];
        let settings = [&self.time_access_set, &self.time_modify_set];
        times.into_iter().flatten().all(Time::is_valid)
            && settings.into_iter().flatten().all(SetTime::is_valid)
    }
}

/// Decodes the mask of encoded attributes that take up all of `bytes`. [`Fattr::decode`] decodes
/// the values.
///
/// # Errors
/// If `bytes` are not a mask and values, or if there are more bytes after them.
pub fn parse_fattr(bytes: &[u8]) -> Result<Fattr<'_>, XdrError> {
    decode_whole(bytes)
}

/// Returns the properties of the attribute with this number; `None` if there is none.
#[must_use]
pub fn attribute_row(number: u32) -> Option<&'static AttributeRow> {
    let row = ATTRIBUTES.get(number as usize)?;
    (row.number == number).then_some(row)
}

/// Returns the attributes that clients may read.
#[must_use]
pub fn readable_attributes() -> Bitmap {
    attributes_where(|row| row.access != Use::Write)
}

/// Returns the attributes that clients may write.
#[must_use]
pub fn writable_attributes() -> Bitmap {
    attributes_where(|row| row.access != Use::Read)
}

/// Returns the attributes that every server must support.
#[must_use]
pub fn required_attributes() -> Bitmap {
    attributes_where(|row| row.is_required)
}

/// Returns the name of the attribute that a field stands for. If the name is a keyword of Rust, the
/// field has an underscore at the end.
const fn name_of(field: &'static str) -> &'static str {
    match field.as_bytes() {
        b"type_" => "type",
        _ => field,
    }
}

fn attributes_where(belongs: impl Fn(&AttributeRow) -> bool) -> Bitmap {
    let rows = ATTRIBUTES.iter().filter(|row| belongs(row));
    Bitmap::of(&rows.map(|row| row.number).collect::<Vec<_>>())
}
