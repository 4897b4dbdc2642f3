//! Objects and their names (draft 6.5): lookup, access, attributes, creation, links, removal, cache
//! hints.
//!
//! Invariant: names are UTF-8 and not empty. The code that uses a name checks the other rules (".",
//! "..", slashes). Bytes that are not UTF-8 are escaped in messages (`dafs_types::names`), and the
//! code that uses a name decodes it.

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
    /// A single file handle: the results of GET_ROOT_HANDLE, and the arguments or results of
    /// LOOKUPP, OPENATTR and READLINK_INLINE.
    OneHandle: 64 {
        /// The handle of the object that the request or reply concerns.
        file: FileHandle => Handle,
    }
}

section! {
    /// The arguments of ACCESS (draft 6.5.2).
    Access: 72 {
        /// The handle of the object that the request concerns.
        file: FileHandle => Handle,
        /// The access rights that the client asks about, as a mask.
        access: AccessMask => Word,
    }
}

section! {
    /// The results of ACCESS.
    AccessResult: 8 {
        /// Of the access rights asked about, those that the server can check.
        supported: AccessMask => Word,
        /// Of the access rights asked about, those that the client has.
        access: AccessMask => Word,
    }
}

section! {
    /// The arguments of CACHE_HINT (draft 6.5.6).
    CacheHintRequest: 88 {
        /// The handle of the file that the request concerns.
        file: FileHandle => Handle,
        /// The offset of the first byte of the range.
        offset: u64 => Long,
        /// The length of the range in bytes.
        length: u32 => Word,
        /// The expected order of accesses.
        pattern: CachePattern => Enum,
        /// A hint about how the client will use the data.
        hint: CacheHint => Word,
    }
}

/// The object that a CREATE request creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewObject<'a> {
    /// A new, empty directory.
    Directory,
    /// A block device node with these device numbers.
    BlockDevice(DeviceNumber),
    /// A character device node with these device numbers.
    CharacterDevice(DeviceNumber),
    /// A symbolic link with this target, which the server does not interpret.
    SymbolicLink(&'a [u8]),
    /// A Unix domain socket.
    Socket,
    /// A named pipe (FIFO).
    Fifo,
}

impl NewObject<'_> {
    /// Returns the type of the object.
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
    /// An object type, then the union of a link target and a device number. The union is aligned to
    /// eight bytes and directly follows the type, which has four bytes. So this field starts four
    /// bytes after a multiple of eight, as it does in CREATE, where the offset of the name precedes
    /// it.
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
    /// The arguments of CREATE (draft 6.5.9).
    Create<'a>: 96 {
        /// The handle of the directory in which the object is created.
        directory: FileHandle => Handle,
        /// The name of the new object.
        name: &'a str => Name,
        /// The object to create.
        object: NewObject<'a> => NewObjectField,
        /// The initial attributes; only for a directory.
        attributes: FileAttributeBlock<'a> => Attributes,
    }
}

section! {
    /// The results of CREATE.
    CreateResult: 88 {
        /// The handle of the new object.
        file: FileHandle => Handle,
        /// The change attribute of the directory before and after the creation.
        directory: ChangeInfo => Change,
    }
}

section! {
    /// The arguments of GETATTR_INLINE, GET_FSATTR and BC_GETATTR (draft 6.5.13, 6.5.15, 6.6.3).
    GetAttributes: 72 {
        /// The handle of the object that the request concerns.
        file: FileHandle => Handle,
        /// The attributes that the client requests.
        wanted: AttributeBitmap => Long,
    }
}

section! {
    /// The results of GETATTR_INLINE and BC_GETATTR.
    FileAttributesResult<'a>: 8 {
        /// The attributes of the object.
        attributes: FileAttributeBlock<'a> => Attributes,
    }
}

section! {
    /// The results of GET_FSATTR.
    FsAttributesResult<'a>: 8 {
        /// The attributes of the file system.
        attributes: FsAttributeBlock<'a> => Attributes,
    }
}

section! {
    /// The arguments of GETATTR_DIRECT (draft 6.5.14).
    GetAttributesDirect: 88 {
        /// The handle of the object that the request concerns.
        file: FileHandle => Handle,
        /// The attributes that the client requests.
        wanted: AttributeBitmap => Long,
        /// The client memory into which the server writes the attributes.
        buffer: DirectBuffer => Buffer,
    }
}

section! {
    /// The results of GETATTR_DIRECT and READLINK_DIRECT.
    DirectResult: 8 {
        /// The checksum of the transferred data.
        checksum: Checksum => Sum,
    }
}

section! {
    /// The arguments of SETATTR_INLINE (draft 6.5.35).
    SetAttributesInline<'a>: 80 {
        /// The handle of the object that the request concerns.
        file: FileHandle => Handle,
        /// The state id of the open to use for a change of size; the anonymous state id if there is
        /// no open.
        state: StateId => Opaque64,
        /// The attributes to set.
        attributes: FileAttributeBlock<'a> => Attributes,
    }
}

section! {
    /// The arguments of SETATTR_DIRECT (draft 6.5.36).
    SetAttributesDirect: 96 {
        /// The handle of the object that the request concerns.
        file: FileHandle => Handle,
        /// The state id of the open to use for a change of size; the anonymous state id if there is
        /// no open.
        state: StateId => Opaque64,
        /// The checksum of the attributes.
        checksum: Checksum => Sum,
        /// The client memory from which the server reads the attributes.
        buffer: DirectBuffer => Buffer,
    }
}

section! {
    /// The results of SETATTR_INLINE and SETATTR_DIRECT, which are present after a failure too.
    SetAttributesResult: 8 {
        /// The attributes that were set.
        set: AttributeBitmap => Long,
    }
}

section! {
    /// The arguments of VERIFY and NVERIFY (draft 6.5.37, 6.5.23).
    Verify<'a>: 72 {
        /// The handle of the object that the request concerns.
        file: FileHandle => Handle,
        /// The attributes to compare with the attributes of the object.
        attributes: FileAttributeBlock<'a> => Attributes,
    }
}

section! {
    /// The arguments of LINK (draft 6.5.17).
    Link<'a>: 136 {
        /// The handle of the object that gets a new name.
        source: FileHandle => Handle,
        /// The handle of the directory in which the new name is created.
        directory: FileHandle => Handle,
        /// The new name of the object.
        name: &'a str => Name,
    }
}

section! {
    /// The results of LINK and of REMOVE.
    DirectoryChanged: 24 {
        /// The change attribute of the directory before and after the change.
        directory: ChangeInfo => Change,
    }
}

section! {
    /// The arguments of LOOKUP (draft 6.5.21).
    Lookup<'a>: 72 {
        /// The directory at which the path starts.
        directory: FileHandle => Handle,
        /// The path to look up.
        path: Path<'a> => PathName,
    }
}

section! {
    /// The results of LOOKUP, which are present even if it failed after some components.
    LookupResult: 72 {
        /// The handle of the last object that was found.
        file: FileHandle => Handle,
        /// The number of components that were found. If it is 0, `file` has no meaning.
        component_count: u32 => Word,
    }
}

section! {
    /// The results of READLINK_INLINE (draft 6.5.31).
    LinkTextResult<'a>: 8 {
        /// The target of the link, which the server does not interpret.
        text: &'a [u8] => LinkText,
    }
}

section! {
    /// The arguments of READLINK_DIRECT (draft 6.5.32).
    ReadLinkDirect: 80 {
        /// The handle of the symbolic link.
        file: FileHandle => Handle,
        /// The client memory into which the server writes the link's target.
        buffer: DirectBuffer => Buffer,
    }
}

section! {
    /// The arguments of REMOVE (draft 6.5.33).
    Remove<'a>: 72 {
        /// The handle of the directory that contains the name.
        directory: FileHandle => Handle,
        /// The name to remove.
        name: &'a str => Name,
        /// Controls whether a file that is open may be removed.
        mode: RemoveMode => Enum,
    }
}

section! {
    /// The arguments of RENAME (draft 6.5.34).
    Rename<'a>: 136 {
        /// The handle of the directory that contains the old name.
        source: FileHandle => Handle,
        /// The handle of the directory in which the new name is created.
        target: FileHandle => Handle,
        /// The old name in the source directory.
        old_name: &'a str => Name,
        /// The new name in the target directory.
        new_name: &'a str => Name,
    }
}

section! {
    /// The results of RENAME.
    RenameResult: 48 {
        /// The change attribute of the source directory before and after the renaming.
        source: ChangeInfo => Change,
        /// The change attribute of the target directory before and after the renaming.
        target: ChangeInfo => Change,
    }
}
