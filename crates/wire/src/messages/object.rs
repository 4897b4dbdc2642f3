//! Objects and their names (draft 6.5): lookup, access, attributes, creation, links,
//! removal, cache hints. Invariant: names are UTF-8 and not empty; what else a name may
//! not be (".", "..", a slash) is the file system's affair, not the wire's. Bytes that are no
//! UTF-8 are escaped (`dafs_types::names`): who takes a name out of a message translates it.

use dafs_types::attributes::DeviceNumber;
use dafs_types::{
    AccessMask, CacheHint, CachePattern, ChangeInfo, FileHandle, ObjectType, RemoveMode, StateId,
};

use crate::array::{Buffer, DirectBuffer, Path, PathName};
use crate::attributes::{AttributeBitmap, Attributes, FileAttributeBlock, FsAttributeBlock};
use crate::checksum::Checksum;
use crate::error::{DecodeError, EncodeError};
use crate::field::{
    Change, Codec, Enum, Field, Handle, LinkText, Long, Name, Opaque64, Sum, Word, kinds, read_enum,
};
use crate::order::Order;
use crate::scope::{Scope, Writer};
use crate::section::section;

section! {
    /// Arguments or results that are one file handle: GET_ROOT_HANDLE's results,
    /// LOOKUPP, OPENATTR, READLINK_INLINE.
    OneHandle: 64 {
        /// The object.
        file: FileHandle => Handle,
    }
}

section! {
    /// Arguments of ACCESS (draft 6.5.2).
    Access: 72 {
        /// The object.
        file: FileHandle => Handle,
        /// Rights asked about.
        access: AccessMask => Word,
    }
}

section! {
    /// Results of ACCESS.
    AccessResult: 8 {
        /// Rights the server can tell about.
        supported: AccessMask => Word,
        /// Rights granted.
        access: AccessMask => Word,
    }
}

section! {
    /// Arguments of CACHE_HINT (draft 6.5.6).
    CacheHintRequest: 88 {
        /// The file.
        file: FileHandle => Handle,
        /// First byte.
        offset: u64 => Long,
        /// Bytes.
        length: u32 => Word,
        /// Order of access expected.
        pattern: CachePattern => Enum,
        /// Use expected.
        hint: CacheHint => Word,
    }
}

/// What CREATE makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewObject<'a> {
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice(DeviceNumber),
    /// A character device.
    CharacterDevice(DeviceNumber),
    /// A symbolic link with this text, which nobody interprets.
    SymbolicLink(&'a [u8]),
    /// A socket.
    Socket,
    /// A named pipe.
    Fifo,
}

impl NewObject<'_> {
    /// Its type.
    #[must_use]
    pub const fn object_type(&self) -> ObjectType {
        match self {
            Self::Directory => ObjectType::Directory,
            Self::BlockDevice(_) => ObjectType::BlockDevice,
            Self::CharacterDevice(_) => ObjectType::CharacterDevice,
            Self::SymbolicLink(_) => ObjectType::SymbolicLink,
            Self::Socket => ObjectType::Socket,
            Self::Fifo => ObjectType::Fifo,
        }
    }
}

kinds! {
    /// Object type, then the union of link text and device number. The type stands
    /// four bytes before an eight-aligned union; CREATE's name offset is in front of
    /// it, so the pair starts four bytes off.
    NewObjectField: 20, 4, "object type, union(text | device)";
}

impl<'a> Codec<'a, NewObject<'a>> for NewObjectField {
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<NewObject<'a>, DecodeError> {
        let union = at + 4;
        let device = || Ok(DeviceNumber { major: scope.u64(union)?, minor: scope.u64(union + 8)? });
        let kind: ObjectType = read_enum(scope, at)?;
        let plain = match kind {
            ObjectType::BlockDevice => return device().map(NewObject::BlockDevice),
            ObjectType::CharacterDevice => return device().map(NewObject::CharacterDevice),
            ObjectType::SymbolicLink => {
                scope.zeros(union + 4, union + 16)?;
                return Ok(NewObject::SymbolicLink(LinkText::read(scope, union)?));
            }
            ObjectType::Directory => NewObject::Directory,
            ObjectType::Socket => NewObject::Socket,
            ObjectType::Fifo => NewObject::Fifo,
            ObjectType::Regular | ObjectType::AttributeDirectory | ObjectType::NamedAttribute => {
                return Err(DecodeError::Value { what: "creatable type", value: kind.number() });
            }
        };
        scope.zeros(union, union + 16)?;
        Ok(plain)
    }

    fn write<O: Order>(
        value: &NewObject<'a>,
        writer: &mut Writer<'_, O>,
        at: usize,
    ) -> Result<(), EncodeError> {
        let union = at + 4;
        writer.put_u32(at, value.object_type().number())?;
        match value {
            NewObject::BlockDevice(device) | NewObject::CharacterDevice(device) => {
                writer.put_u64(union, device.major)?;
                writer.put_u64(union + 8, device.minor)
            }
            NewObject::SymbolicLink(text) => LinkText::write(text, writer, union),
            NewObject::Directory | NewObject::Socket | NewObject::Fifo => Ok(()),
        }
    }
}

section! {
    /// Arguments of CREATE (draft 6.5.9).
    Create<'a>: 96 {
        /// Where.
        directory: FileHandle => Handle,
        /// Under which name.
        name: &'a str => Name,
        /// What.
        object: NewObject<'a> => NewObjectField,
        /// Attributes it starts with; only for a directory.
        attributes: FileAttributeBlock<'a> => Attributes,
    }
}

section! {
    /// Results of CREATE.
    CreateResult: 88 {
        /// The new object.
        file: FileHandle => Handle,
        /// The directory around the creation.
        directory: ChangeInfo => Change,
    }
}

section! {
    /// Arguments of GETATTR_INLINE, GET_FSATTR and BC_GETATTR (draft 6.5.13, 6.5.15,
    /// 6.6.3).
    GetAttributes: 72 {
        /// The object.
        file: FileHandle => Handle,
        /// Attributes wanted.
        wanted: AttributeBitmap => Long,
    }
}

section! {
    /// Results of GETATTR_INLINE and BC_GETATTR.
    FileAttributesResult<'a>: 8 {
        /// The attributes.
        attributes: FileAttributeBlock<'a> => Attributes,
    }
}

section! {
    /// Results of GET_FSATTR.
    FsAttributesResult<'a>: 8 {
        /// The attributes.
        attributes: FsAttributeBlock<'a> => Attributes,
    }
}

section! {
    /// Arguments of GETATTR_DIRECT (draft 6.5.14).
    GetAttributesDirect: 88 {
        /// The object.
        file: FileHandle => Handle,
        /// Attributes wanted.
        wanted: AttributeBitmap => Long,
        /// Where they go.
        buffer: DirectBuffer => Buffer,
    }
}

section! {
    /// Results of GETATTR_DIRECT and READLINK_DIRECT.
    DirectResult: 8 {
        /// Checksum of what was placed.
        checksum: Checksum => Sum,
    }
}

section! {
    /// Arguments of SETATTR_INLINE (draft 6.5.35).
    SetAttributesInline<'a>: 80 {
        /// The object.
        file: FileHandle => Handle,
        /// The open a change of size goes under; anonymous without one.
        state: StateId => Opaque64,
        /// What to set.
        attributes: FileAttributeBlock<'a> => Attributes,
    }
}

section! {
    /// Arguments of SETATTR_DIRECT (draft 6.5.36).
    SetAttributesDirect: 96 {
        /// The object.
        file: FileHandle => Handle,
        /// The open a change of size goes under; anonymous without one.
        state: StateId => Opaque64,
        /// Checksum of the attributes.
        checksum: Checksum => Sum,
        /// Where they lie.
        buffer: DirectBuffer => Buffer,
    }
}

section! {
    /// Results of SETATTR_INLINE and SETATTR_DIRECT, also when they failed.
    SetAttributesResult: 8 {
        /// Attributes that were set.
        set: AttributeBitmap => Long,
    }
}

section! {
    /// Arguments of VERIFY and NVERIFY (draft 6.5.37, 6.5.23).
    Verify<'a>: 72 {
        /// The object.
        file: FileHandle => Handle,
        /// What its attributes should or should not be.
        attributes: FileAttributeBlock<'a> => Attributes,
    }
}

section! {
    /// Arguments of LINK (draft 6.5.17).
    Link<'a>: 136 {
        /// The object to be linked.
        source: FileHandle => Handle,
        /// Where.
        directory: FileHandle => Handle,
        /// Under which name.
        name: &'a str => Name,
    }
}

section! {
    /// Results of LINK and REMOVE.
    DirectoryChanged: 24 {
        /// The directory around the change.
        directory: ChangeInfo => Change,
    }
}

section! {
    /// Arguments of LOOKUP (draft 6.5.21).
    Lookup<'a>: 72 {
        /// Where the path starts.
        directory: FileHandle => Handle,
        /// The path.
        path: Path<'a> => PathName,
    }
}

section! {
    /// Results of LOOKUP, also when it stopped on the way.
    LookupResult: 72 {
        /// The last object reached.
        file: FileHandle => Handle,
        /// Components walked; 0 makes `file` meaningless.
        component_count: u32 => Word,
    }
}

section! {
    /// Results of READLINK_INLINE (draft 6.5.31).
    LinkTextResult<'a>: 8 {
        /// The text, which nobody interprets.
        text: &'a [u8] => LinkText,
    }
}

section! {
    /// Arguments of READLINK_DIRECT (draft 6.5.32).
    ReadLinkDirect: 80 {
        /// The link.
        file: FileHandle => Handle,
        /// Where its text goes.
        buffer: DirectBuffer => Buffer,
    }
}

section! {
    /// Arguments of REMOVE (draft 6.5.33).
    Remove<'a>: 72 {
        /// Where.
        directory: FileHandle => Handle,
        /// Which name.
        name: &'a str => Name,
        /// What an open file means.
        mode: RemoveMode => Enum,
    }
}

section! {
    /// Arguments of RENAME (draft 6.5.34).
    Rename<'a>: 136 {
        /// From where.
        source: FileHandle => Handle,
        /// To where.
        target: FileHandle => Handle,
        /// Old name.
        old_name: &'a str => Name,
        /// New name.
        new_name: &'a str => Name,
    }
}

section! {
    /// Results of RENAME.
    RenameResult: 48 {
        /// The directory it left.
        source: ChangeInfo => Change,
        /// The directory it entered.
        target: ChangeInfo => Change,
    }
}
