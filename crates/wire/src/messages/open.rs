//! Opening and closing files (draft 6.5.7, 6.5.24, 6.5.26), and delegations.
//!
//! Invariant: each union takes the size of its largest arm; the bytes that a smaller arm does not
//! use are zero.

pub use dafs_types::SpaceLimit;
use dafs_types::{
    ChangeInfo, CreateMode, DeleteDisposition, FileHandle, OpenClaim, ShareAccess, ShareDeny,
    ShareKey, StateId, Verifier,
};

use crate::array::{Path, PathName};
use crate::attributes::{Attributes, FileAttributeBlock};
use crate::error::{DecodeError, EncodeError};
use crate::field::{
    Change, Codec, Enum, Field, Handle, Key, Long, Opaque64, Owner, Principal, Word, kinds,
    read_enum, truth, wire_enum,
};
use crate::order::Order;
use crate::scope::{Scope, Writer};
use crate::section::section;

wire_enum! {
    /// The kind of a delegation, in messages.
    DelegationType, "delegation type" {
        /// No delegation at all.
        None = 0,
        /// The client may serve reads from its cache.
        Read = 1,
        /// The client may serve reads and writes from its cache.
        Write = 2,
    }
}

/// The object to open, and the claim under which the client opens it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OpenTarget<'a> {
    /// A new open of a file that is named by its path.
    Null {
        /// The directory at which the path starts.
        directory: FileHandle,
        /// The path of the file.
        path: Path<'a>,
    },
    /// A reclaim of an open that the client held before a server restart.
    Previous {
        /// The handle of the file to reclaim.
        file: FileHandle,
        /// The delegation of the same file that the client held before the restart.
        delegation: DelegationType,
    },
    /// An open that the client has already made under a delegation that it holds.
    DelegateCurrent {
        /// The directory at which the path starts.
        directory: FileHandle,
        /// The path of the file.
        path: Path<'a>,
        /// The state id of the delegation.
        state: StateId,
    },
    /// An open under a delegation that the client held before its own restart.
    DelegatePrevious {
        /// The directory at which the path starts.
        directory: FileHandle,
        /// The path of the file.
        path: Path<'a>,
    },
    /// A new file without a name.
    CreateUnlinked {
        /// A directory in the file system in which the file is created.
        directory: FileHandle,
    },
}

impl OpenTarget<'_> {
    /// Returns the kind of claim.
    #[must_use]
    pub const fn claim(&self) -> OpenClaim {
        match self {
            Self::Null { .. } => OpenClaim::Null,
            Self::Previous { .. } => OpenClaim::Previous,
            Self::DelegateCurrent { .. } => OpenClaim::DelegateCurrent,
            Self::DelegatePrevious { .. } => OpenClaim::DelegatePrevious,
            Self::CreateUnlinked { .. } => OpenClaim::CreateUnlinked,
        }
    }

    /// Returns the handle in the target: the handle of a directory, or of the file for a reclaim.
    #[must_use]
    pub const fn handle(&self) -> &FileHandle {
        match self {
            Self::Null { directory, .. }
            | Self::DelegateCurrent { directory, .. }
            | Self::DelegatePrevious { directory, .. }
            | Self::CreateUnlinked { directory } => directory,
            Self::Previous { file, .. } => file,
        }
    }
}

kinds! {
    /// The claim type, padding, and a union of 80 bytes whose arm the claim type selects.
    TargetField: 88, 8, "claim type, pad, union(null | previous | current | ...)";
    /// The open type, padding, the create mode, padding, and a union of 8 bytes whose arm these
    /// values select.
    CreationField: 24, 8, "open type, pad, create mode, pad, union(attributes | verifier)";
    /// The delegation type, padding, and a union of 40 bytes whose arm the delegation type selects.
    DelegationField: 48, 8, "delegation type, pad, union(read | write)";
}

/// The offset of the union in the field, counted from the claim type. The next constant is the
/// offset of the bytes after the file handle in the union.
const UNION: usize = 8;
const BEHIND_HANDLE: usize = UNION + 64;

impl<'a> Codec<'a, OpenTarget<'a>> for TargetField {
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<OpenTarget<'a>, DecodeError> {
        scope.zeros(at + 4, at + UNION)?;
        let directory = Handle::read(scope, at + UNION)?;
        let rest = at + BEHIND_HANDLE;
        let unused = |from: usize| scope.zeros(rest + from, rest + 16);
        match read_enum(scope, at)? {
            OpenClaim::Null => {
                unused(4)?;
                Ok(OpenTarget::Null { directory, path: PathName::read(scope, rest)? })
            }
            OpenClaim::Previous => {
                unused(4)?;
                Ok(OpenTarget::Previous { file: directory, delegation: read_enum(scope, rest)? })
            }
            OpenClaim::DelegateCurrent => {
                scope.zeros(rest + 4, rest + 8)?;
                let path = PathName::read(scope, rest)?;
                let state = Opaque64::read(scope, rest + 8)?;
                Ok(OpenTarget::DelegateCurrent { directory, path, state })
            }
            OpenClaim::DelegatePrevious => {
                unused(4)?;
                Ok(OpenTarget::DelegatePrevious { directory, path: PathName::read(scope, rest)? })
            }
            OpenClaim::CreateUnlinked => {
                unused(0)?;
                Ok(OpenTarget::CreateUnlinked { directory })
            }
        }
    }

    fn write<O: Order>(
        value: &OpenTarget<'a>,
        writer: &mut Writer<'_, O>,
        at: usize,
    ) -> Result<(), EncodeError> {
        Enum::write(&value.claim(), writer, at)?;
        Handle::write(value.handle(), writer, at + UNION)?;
        let rest = at + BEHIND_HANDLE;
        match value {
            OpenTarget::Null { path, .. } | OpenTarget::DelegatePrevious { path, .. } => {
                PathName::write(path, writer, rest)
            }
            OpenTarget::Previous { delegation, .. } => Enum::write(delegation, writer, rest),
            OpenTarget::DelegateCurrent { path, state, .. } => {
                PathName::write(path, writer, rest)?;
                Opaque64::write(state, writer, rest + 8)
            }
            OpenTarget::CreateUnlinked { .. } => Ok(()),
        }
    }
}

/// Controls whether and how OPEN creates the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OpenCreation<'a> {
    /// The file must exist.
    NoCreate,
    /// Creates the file with these attributes if it does not exist.
    Unchecked(FileAttributeBlock<'a>),
    /// Creates the file with these attributes; it must not exist.
    Guarded(FileAttributeBlock<'a>),
    /// Creates the file; it must not exist unless it was created with this verifier.
    Exclusive(Verifier),
}

impl<'a> OpenCreation<'a> {
    /// Returns the create mode without its data.
    #[must_use]
    pub const fn mode(&self) -> CreateMode {
        match self {
            Self::NoCreate => CreateMode::NoCreate,
            Self::Unchecked(_) => CreateMode::Unchecked,
            Self::Guarded(_) => CreateMode::Guarded,
            Self::Exclusive(verifier) => CreateMode::Exclusive(*verifier),
        }
    }

    /// Returns the attributes of an unchecked or guarded creation.
    #[must_use]
    pub const fn attributes(&self) -> Option<&FileAttributeBlock<'a>> {
        match self {
            Self::Unchecked(attributes) | Self::Guarded(attributes) => Some(attributes),
            Self::NoCreate | Self::Exclusive(_) => None,
        }
    }
}

impl<'a> Codec<'a, OpenCreation<'a>> for CreationField {
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<OpenCreation<'a>, DecodeError> {
        scope.zeros(at + 4, at + 8)?;
        scope.zeros(at + 12, at + 16)?;
        let union = at + 16;
        match (truth(scope.u32(at)?)?, scope.u32(at + 8)?) {
            (false, 0) => {
                scope.zeros(union, union + 8)?;
                Ok(OpenCreation::NoCreate)
            }
            (true, mode @ (0 | 1)) => {
                scope.zeros(union + 4, union + 8)?;
                let attributes = Attributes::read(scope, union)?;
                Ok(if mode == 0 {
                    OpenCreation::Unchecked(attributes)
                } else {
                    OpenCreation::Guarded(attributes)
                })
            }
            (true, 2) => Ok(OpenCreation::Exclusive(Opaque64::read(scope, union)?)),
            (_, value) => Err(DecodeError::Value { what: "create mode", value }),
        }
    }

    fn write<O: Order>(
        value: &OpenCreation<'a>,
        writer: &mut Writer<'_, O>,
        at: usize,
    ) -> Result<(), EncodeError> {
        let union = at + 16;
        writer.put_u32(at, u32::from(*value != OpenCreation::NoCreate))?;
        match value {
            OpenCreation::NoCreate => Ok(()),
            OpenCreation::Unchecked(attributes) => Attributes::write(attributes, writer, union),
            OpenCreation::Guarded(attributes) => {
                writer.put_u32(at + 8, 1)?;
                Attributes::write(attributes, writer, union)
            }
            OpenCreation::Exclusive(verifier) => {
                writer.put_u32(at + 8, 2)?;
                Opaque64::write(verifier, writer, union)
            }
        }
    }
}

section! {
    /// The arguments of OPEN (draft 6.5.24).
    Open<'a>: 144 {
        /// The object to open.
        target: OpenTarget<'a> => TargetField,
        /// Controls whether the file is created if it does not exist.
        creation: OpenCreation<'a> => CreationField,
        /// Controls whether the name may be removed while the file is open.
        delete_disposition: DeleteDisposition => Enum,
        /// The name of the owner to which the open belongs.
        owner: &'a [u8] => Owner,
        /// The access that the open requests.
        access: ShareAccess => Enum,
        /// The access that the open denies to other opens.
        deny: ShareDeny => Enum,
        /// The share key. If an open of the file has a key, all other opens with a key must have
        /// the same key.
        key: Option<ShareKey> => Key,
    }
}

/// An access control entry that says which users may open the file under a delegation without a
/// request to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessEntry<'a> {
    /// The entry type: allow 0, deny 1, audit 2, alarm 4.
    pub entry_type: u32,
    /// Inheritance and audit flags.
    pub flags: u32,
    /// The rights of the entry.
    pub mask: u32,
    /// The user or group of the entry.
    pub who: &'a str,
}

/// A delegation that was granted with an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delegation<'a> {
    /// No delegation was granted.
    None,
    /// A delegation that permits reading.
    Read {
        /// The state id of the delegation.
        state: StateId,
        /// True if the server recalls the delegation in the same reply that grants it.
        recall: bool,
        /// The users that may open the file without a request to the server.
        entry: AccessEntry<'a>,
    },
    /// A delegation that permits reading and writing.
    Write {
        /// The state id of the delegation.
        state: StateId,
        /// True if the server recalls the delegation in the same reply that grants it.
        recall: bool,
        /// The limit to which the file may grow.
        limit: SpaceLimit,
        /// The users that may open the file without a request to the server.
        entry: AccessEntry<'a>,
    },
}

fn read_entry<O: Order>(scope: Scope<'_, O>, at: usize) -> Result<AccessEntry<'_>, DecodeError> {
    Ok(AccessEntry {
        entry_type: scope.u32(at)?,
        flags: scope.u32(at + 4)?,
        mask: scope.u32(at + 8)?,
        who: Principal::read(scope, at + 12)?,
    })
}

fn write_entry<O: Order>(
    entry: &AccessEntry<'_>,
    writer: &mut Writer<'_, O>,
    at: usize,
) -> Result<(), EncodeError> {
    writer.put_u32(at, entry.entry_type)?;
    writer.put_u32(at + 4, entry.flags)?;
    writer.put_u32(at + 8, entry.mask)?;
    Principal::write(&entry.who, writer, at + 12)
}

impl<'a> Codec<'a, Delegation<'a>> for DelegationField {
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<Delegation<'a>, DecodeError> {
        scope.zeros(at + 4, at + UNION)?;
        let union = at + UNION;
        let kind: DelegationType = read_enum(scope, at)?;
        if kind == DelegationType::None {
            scope.zeros(union, union + 40)?;
            return Ok(Delegation::None);
        }
        let state = Opaque64::read(scope, union)?;
        let recall = truth(scope.u32(union + 8)?)?;
        if kind == DelegationType::Read {
            scope.zeros(union + 28, union + 40)?;
            return Ok(Delegation::Read { state, recall, entry: read_entry(scope, union + 12)? });
        }
        let limit = match scope.u32(union + 12)? {
            1 => SpaceLimit::Size(scope.u64(union + 16)?),
            2 => SpaceLimit::Blocks {
                count: scope.u32(union + 16)?,
                block_bytes: scope.u32(union + 20)?,
            },
            value => return Err(DecodeError::Value { what: "space limit", value }),
        };
        Ok(Delegation::Write { state, recall, limit, entry: read_entry(scope, union + 24)? })
    }

    fn write<O: Order>(
        value: &Delegation<'a>,
        writer: &mut Writer<'_, O>,
        at: usize,
    ) -> Result<(), EncodeError> {
        let union = at + UNION;
        match value {
            Delegation::None => Ok(()),
            Delegation::Read { state, recall, entry } => {
                Enum::write(&DelegationType::Read, writer, at)?;
                Opaque64::write(state, writer, union)?;
                writer.put_u32(union + 8, u32::from(*recall))?;
                write_entry(entry, writer, union + 12)
            }
            Delegation::Write { state, recall, limit, entry } => {
                Enum::write(&DelegationType::Write, writer, at)?;
                Opaque64::write(state, writer, union)?;
                writer.put_u32(union + 8, u32::from(*recall))?;
                match limit {
                    SpaceLimit::Size(size) => {
                        writer.put_u32(union + 12, 1)?;
                        writer.put_u64(union + 16, *size)?;
                    }
                    SpaceLimit::Blocks { count, block_bytes } => {
                        writer.put_u32(union + 12, 2)?;
                        writer.put_u32(union + 16, *count)?;
                        writer.put_u32(union + 20, *block_bytes)?;
                    }
                }
                write_entry(entry, writer, union + 24)
            }
        }
    }
}

/// Flags in the results of OPEN. Undefined bits are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OpenFlags(pub u32);

impl OpenFlags {
    /// Set if locks on this file are mandatory.
    pub const MANDATORY_LOCKS: Self = Self(1);
}

impl<'a> Codec<'a, OpenFlags> for Word {
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<OpenFlags, DecodeError> {
        scope.u32(at).map(OpenFlags)
    }
    fn write<O: Order>(
        value: &OpenFlags,
        writer: &mut Writer<'_, O>,
        at: usize,
    ) -> Result<(), EncodeError> {
        writer.put_u32(at, value.0)
    }
}

section! {
    /// The results of OPEN; if resolving the path failed, only `file` and `component_count` are
    /// meaningful.
    OpenResult<'a>: 152 {
        /// The handle of the file or, after a failure, of the last directory reached.
        file: FileHandle => Handle,
        /// The state id of the open.
        state: StateId => Opaque64,
        /// The change attribute of the directory before and after the open, which may have created
        /// the file.
        directory: ChangeInfo => Change,
        /// The number of path components that were resolved.
        component_count: u32 => Word,
        /// Flags that apply to the use of the file.
        flags: OpenFlags => Word,
        /// The delegation that was granted with the open, if any.
        delegation: Delegation<'a> => DelegationField,
    }
}

section! {
    /// The arguments of OPEN_DOWNGRADE (draft 6.5.26).
    OpenDowngrade: 96 {
        /// The handle of the file that the request concerns.
        file: FileHandle => Handle,
        /// The state id of the open.
        state: StateId => Opaque64,
        /// The access that the open still allows.
        access: ShareAccess => Enum,
        /// The access that the open continues to deny to other opens.
        deny: ShareDeny => Enum,
        /// The share key that the open still has. `None` gives up the key.
        key: Option<ShareKey> => Key,
    }
}

section! {
    /// The arguments of CLOSE (draft 6.5.7).
    Close: 72 {
        /// The handle of the file that the request concerns.
        file: FileHandle => Handle,
        /// The state id of the open.
        state: StateId => Opaque64,
    }
}

section! {
    /// The arguments of HAND_OVER, an extension: the client requests a descriptor of a file for
    /// which it has a read delegation.
    HandOver: 80 {
        /// The handle of the file that the request concerns.
        file: FileHandle => Handle,
        /// The state id of the open under which the client reads the file.
        state: StateId => Opaque64,
        /// The state id of the delegation.
        delegation: StateId => Opaque64,
    }
}

section! {
    /// The results of HAND_OVER.
    HandOverResult: 8 {
        /// A token that identifies the descriptor among those that the server has sent over the
        /// local socket.
        token: u64 => Long,
    }
}

section! {
    /// The arguments of DELEGRETURN (draft 6.5.11).
    DelegReturn: 8 {
        /// The state id of the delegation.
        state: StateId => Opaque64,
    }
}
