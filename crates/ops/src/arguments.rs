//! The arguments of operations. Each record is named after its operation.
//!
//! Invariant: the encoding of a record never changes. An operation that needs more arguments gets a
//! new row and a new number in the table of operations.

use dafs_types::{
    AccessMask, CacheHint, CachePattern, CookieVerifier, DeleteDisposition, DeviceNumber,
    FenceAccess, FenceObject, FenceUpdate, FileHandle, ObjectType, ReaddirCookie, RemoveMode,
    ShareAccess, ShareDeny, ShareKey, Stability, StateId, Verifier,
};

use crate::codec::{Settings, choice, record};
use crate::names::Names;

record! {
    /// The arguments of an operation without arguments.
    #[derive(Copy, Default)]
    Empty {}
}

record! {
    /// The argument of an operation on one object that has no further arguments.
    #[derive(Copy)]
    OneFile {
        /// The handle of the object that the request concerns.
        file: FileHandle,
    }
}

record! {
    /// Looks up a path, one name after the other. Symbolic links are not followed.
    #[derive(Copy)]
    Lookup<'m> {
        /// The directory at which the path starts.
        directory: FileHandle,
        /// The names of the path.
        path: Names<'m>,
    }
}

choice! {
    /// The claim under which a file is opened.
    #[derive(Copy)]
    Claim<'m> {
        /// A new open of a file that is named by its path.
        Null = 0 {
            /// The path, which starts at the directory. The single name `.` means the object at
            /// which the path starts.
            path: Names<'m>,
        },
        /// A reclaim of an open that the caller held before the server restarted.
        Previous = 1,
        /// A new open under a delegation that the caller holds.
        DelegateCurrent = 2 {
            /// The path, starting at the directory.
            path: Names<'m>,
            /// The state id of the delegation.
            state: StateId,
        },
        /// A new open under a delegation that the caller held before it restarted.
        DelegatePrevious = 3 {
            /// The path, starting at the directory.
            path: Names<'m>,
        },
        /// A new file without a name, in the directory's file system.
        CreateUnlinked = 4,
    }
}

choice! {
    /// Controls whether an open creates the file.
    Creation {
        /// The file must exist.
        NoCreate = 0,
        /// Creates the file with these attributes if it does not exist. If the file exists and the
        /// attributes have size 0, truncates the file.
        Unchecked = 1 {
            /// The attributes of a new file.
            attributes: Settings,
        },
        /// Creates the file; it must not exist.
        Guarded = 2 {
            /// The attributes of the new file.
            attributes: Settings,
        },
        /// Creates the file; it must not exist, unless it was created earlier with this verifier.
        Exclusive = 3 {
            /// A value chosen by the caller, by which a repeated creation is recognized.
            verifier: Verifier,
        },
        /// As `Exclusive`, and a new file gets these attributes.
        ExclusiveWithAttributes = 4 {
            /// A value chosen by the caller, by which a repeated creation is recognized.
            verifier: Verifier,
            /// The attributes of the new file. The store may keep the verifier as its times.
            attributes: Settings,
        },
    }
}

impl Creation {
    /// Returns true if the open may create or truncate a file.
    #[must_use]
    pub const fn is_any(&self) -> bool {
        !matches!(self, Self::NoCreate)
    }

    /// Returns the attributes of a new file.
    #[must_use]
    pub const fn attributes(&self) -> Option<&Settings> {
        match self {
            Self::Unchecked { attributes }
            | Self::Guarded { attributes }
            | Self::ExclusiveWithAttributes { attributes, .. } => Some(attributes),
            Self::NoCreate | Self::Exclusive { .. } => None,
        }
    }
}

record! {
    /// Opens a file, and creates it if requested.
    Open<'m> {
        /// The handle of the directory at which the path starts. For a reclaim, the handle of the
        /// file itself.
        from: FileHandle,
        /// The claim of the open.
        claim: Claim<'m>,
        /// Controls whether the file is created if it does not exist.
        creation: Creation,
        /// Controls whether other clients may remove the file's name while it is open.
        disposition: DeleteDisposition,
        /// The owner of the open, unique within its client.
        owner: &'m [u8],
        /// The access that the open requests.
        access: ShareAccess,
        /// The access that the open denies to other opens.
        deny: ShareDeny,
        /// The share key. If an open of the file has a key, all other opens with a key must have
        /// the same key.
        key: Option<ShareKey>,
    }
}

record! {
    /// Closes an open file.
    #[derive(Copy)]
    Close {
        /// The handle of the file that the request concerns.
        file: FileHandle,
        /// The state id of the open.
        state: StateId,
    }
}

record! {
    /// Gives up part of the access of an open.
    #[derive(Copy)]
    Downgrade {
        /// The handle of the file that the request concerns.
        file: FileHandle,
        /// The state id of the open.
        state: StateId,
        /// The access that the open keeps.
        access: ShareAccess,
        /// The access that the open continues to deny to other opens.
        deny: ShareDeny,
        /// The share key that the open still has. `None` gives up the key.
        key: Option<ShareKey>,
    }
}

choice! {
    /// The object that a CreateNode operation creates. It is not a regular file.
    #[derive(Copy)]
    NewNode<'m> {
        /// A directory without entries.
        Directory = 0,
        /// A symbolic link.
        SymbolicLink = 1 {
            /// The target, which the server does not interpret.
            text: &'m [u8],
        },
        /// A named pipe (FIFO).
        Fifo = 2,
        /// A Unix domain socket.
        Socket = 3,
        /// A block device node.
        BlockDevice = 4 {
            /// The major and minor number of the device.
            device: DeviceNumber,
        },
        /// A character device node.
        CharacterDevice = 5 {
            /// The major and minor number of the device.
            device: DeviceNumber,
        },
    }
}

impl NewNode<'_> {
    /// Returns the type of the object.
    #[must_use]
    pub const fn object_type(&self) -> ObjectType {
        match self {
            Self::Directory => ObjectType::Directory,
            Self::SymbolicLink { .. } => ObjectType::SymbolicLink,
            Self::Fifo => ObjectType::Fifo,
            Self::Socket => ObjectType::Socket,
            Self::BlockDevice { .. } => ObjectType::BlockDevice,
            Self::CharacterDevice { .. } => ObjectType::CharacterDevice,
        }
    }
}

record! {
    /// Creates an object that is not a regular file.
    CreateNode<'m> {
        /// The handle of the directory in which the object is created.
        directory: FileHandle,
        /// The name of the new object.
        name: &'m [u8],
        /// The object to create.
        node: NewNode<'m>,
        /// The initial attributes of the object.
        attributes: Settings,
    }
}

record! {
    /// Creates a hard link to an object.
    #[derive(Copy)]
    Link<'m> {
        /// The handle of the object to link.
        source: FileHandle,
        /// The handle of the directory in which the new name is created.
        directory: FileHandle,
        /// The new name of the object.
        name: &'m [u8],
    }
}

record! {
    /// Removes a name from a directory.
    #[derive(Copy)]
    Remove<'m> {
        /// The handle of the directory that contains the name.
        directory: FileHandle,
        /// The name to remove.
        name: &'m [u8],
        /// Controls whether a file that is open may be removed.
        mode: RemoveMode,
    }
}

record! {
    /// Renames an object. If another object has the new name, that object loses the name.
    #[derive(Copy)]
    Rename<'m> {
        /// The handle of the directory that contains the old name.
        source: FileHandle,
        /// The handle of the directory in which the new name is created.
        target: FileHandle,
        /// The old name in the source directory.
        old_name: &'m [u8],
        /// The new name in the target directory.
        new_name: &'m [u8],
    }
}

record! {
    /// Selects the attributes that require extra system calls, so that they are returned only on
    /// request.
    #[derive(Copy, Default, Hash)]
    Extras {
        /// True to return whether the object has named attributes.
        named_attributes: bool,
        /// True to return the access control list.
        acl: bool,
        /// True to return the MIME type.
        mime_type: bool,
    }
}

record! {
    /// Lists part of a directory.
    #[derive(Copy)]
    List {
        /// The handle of the directory.
        directory: FileHandle,
        /// The position at which the listing continues; 0 for the start of the directory.
        cookie: ReaddirCookie,
        /// The verifier that came with the cookie; 0 for the start of the directory.
        verifier: CookieVerifier,
        /// The maximum number of entries to return.
        entry_count_max: u32,
        /// The maximum total number of bytes of the names to return.
        name_bytes_max: u32,
        /// The extra attributes to return for each entry. `None` returns no attributes at all.
        wanted: Option<Extras>,
    }
}

record! {
    /// Returns the attributes of an object.
    #[derive(Copy)]
    Attributes {
        /// The handle of the object that the request concerns.
        file: FileHandle,
        /// The extra attributes to return.
        extras: Extras,
    }
}

record! {
    /// Sets attributes of an object.
    SetAttributes {
        /// The handle of the object that the request concerns.
        file: FileHandle,
        /// The state id of the open to use for a change of size; the anonymous state id if there is
        /// no open.
        state: StateId,
        /// The attributes to set.
        attributes: Settings,
    }
}

record! {
    /// Returns which of the given access rights the caller has.
    #[derive(Copy)]
    Access {
        /// The handle of the object that the request concerns.
        file: FileHandle,
        /// The access rights that the caller asks about.
        access: AccessMask,
    }
}

record! {
    /// Reserves a range at the end of a file for an append. The data itself is moved separately.
    #[derive(Copy)]
    Append {
        /// The handle of the file that the request concerns.
        file: FileHandle,
        /// The state id of the open under which the data is appended.
        state: StateId,
        /// The number of bytes to append.
        length: u32,
        /// The parts of the file (data, metadata) that must be on stable storage before the reply.
        /// Never `Unstable`.
        stability: Stability,
        /// A hint about how the client will use the data.
        hint: CacheHint,
    }
}

record! {
    /// Flushes written data to stable storage.
    #[derive(Copy)]
    Commit {
        /// The handle of the file that the request concerns.
        file: FileHandle,
        /// The offset in the file of the first byte of the range.
        offset: u64,
        /// The number of bytes to flush; 0 means all bytes from the offset on.
        length: u64,
    }
}

record! {
    /// Gives a hint about the expected use of a range of a file.
    #[derive(Copy)]
    Hint {
        /// The handle of the file that the request concerns.
        file: FileHandle,
        /// The offset in the file of the first byte of the range.
        offset: u64,
        /// The length of the range in bytes.
        length: u64,
        /// The expected order of accesses.
        pattern: CachePattern,
        /// A hint about how the client will use the data.
        hint: CacheHint,
    }
}

choice! {
    /// The access that a lock denies to others.
    #[derive(Copy, Hash)]
    LockMode {
        /// A shared lock, which denies writing.
        Read = 1,
        /// An exclusive lock, which denies reading and writing.
        Write = 2,
    }
}

choice! {
    /// The claim under which a lock is requested.
    #[derive(Copy, Hash)]
    LockClaim {
        /// The lock is new.
        New = 0,
        /// The lock was held before the server restarted.
        Reclaim = 1,
        /// The lock is broken, and the caller takes it over to repair the data.
        Repair = 2,
    }
}

record! {
    /// Acquires a lock for the owner of the open.
    #[derive(Copy)]
    Lock {
        /// The handle of the file that the request concerns.
        file: FileHandle,
        /// The state id of the open.
        state: StateId,
        /// The mode of the lock: shared or exclusive.
        mode: LockMode,
        /// The offset in the file of the first byte of the range.
        offset: u64,
        /// The length of the range in bytes; `u64::MAX` means up to the end of the file.
        length: u64,
        /// The claim under which the lock is taken.
        claim: LockClaim,
        /// True if the lock becomes broken, instead of being released, when its owner fails.
        persist: bool,
        /// True if changes made under the lock are rolled back when its owner fails.
        auto_recovery: bool,
        /// True if the caller will repeat the request until it has the lock.
        waits: bool,
    }
}

record! {
    /// Tests whether a lock could be acquired.
    #[derive(Copy)]
    TestLock<'m> {
        /// The handle of the file that the request concerns.
        file: FileHandle,
        /// The name of the owner for which the conflict is tested.
        owner: &'m [u8],
        /// The mode of the lock: shared or exclusive.
        mode: LockMode,
        /// The offset in the file of the first byte of the range.
        offset: u64,
        /// The length of the range in bytes; `u64::MAX` means up to the end of the file.
        length: u64,
    }
}

record! {
    /// The range in which UNLOCK releases locks, or ABORT rolls back changes.
    #[derive(Copy)]
    LockSpan {
        /// The handle of the file that the request concerns.
        file: FileHandle,
        /// The state id of the open under which the locks were taken.
        state: StateId,
        /// The offset in the file of the first byte of the range.
        offset: u64,
        /// The length of the range in bytes; `u64::MAX` means up to the end of the file.
        length: u64,
    }
}

record! {
    /// Changes the fencing list of a file or a file system.
    #[derive(Copy)]
    Fence<'m> {
        /// The handle of the file, or of a file in the file system.
        file: FileHandle,
        /// Says whether the operation concerns the file's list or the list of its file system.
        object: FenceObject,
        /// Says whether the listed identities gain or lose access.
        access: FenceAccess,
        /// Says how the listed identities change the existing list.
        update: FenceUpdate,
        /// The fence identities, in UTF-8.
        fence_ids: Names<'m>,
    }
}

record! {
    /// Returns a delegation to the server.
    #[derive(Copy)]
    ReturnDelegation {
        /// The state id of the delegation.
        state: StateId,
    }
}

record! {
    /// A range of a file whose storage is to be reserved or freed.
    #[derive(Copy)]
    FileRange {
        /// The handle of the file that the request concerns.
        file: FileHandle,
        /// The state id of the open or delegation, or the anonymous state id.
        state: StateId,
        /// The offset in the file of the first byte of the range.
        offset: u64,
        /// The length of the range in bytes.
        length: u64,
    }
}

choice! {
    /// What a search in a file looks for.
    #[derive(Copy)]
    SeekFor {
        /// The next range with data.
        Data = 0,
        /// The next range without data. Every file has one at its end.
        Hole = 1,
    }
}

record! {
    /// Searches a file for data or for a hole.
    #[derive(Copy)]
    Seek {
        /// The handle of the file that the request concerns.
        file: FileHandle,
        /// The state id of the open or delegation, or the anonymous state id.
        state: StateId,
        /// The offset in the file at which the search starts.
        offset: u64,
        /// What the search looks for.
        what: SeekFor,
    }
}

record! {
    /// Copies a range of one file to another file, or to another range of the same file.
    #[derive(Copy)]
    CopyRange {
        /// The handle of the file to read.
        source: FileHandle,
        /// The handle of the file to write.
        file: FileHandle,
        /// The state id with which the source is read.
        source_state: StateId,
        /// The state id with which the file is written.
        state: StateId,
        /// The offset in the source of the first byte.
        source_offset: u64,
        /// The offset in the file of the first byte to write.
        offset: u64,
        /// The number of bytes; 0 means up to the end of the source.
        length: u64,
    }
}

record! {
    /// Names one extended attribute of an object.
    #[derive(Copy)]
    Xattr<'m> {
        /// The handle of the object that the request concerns.
        file: FileHandle,
        /// The name of the attribute, without a prefix.
        name: &'m [u8],
    }
}

choice! {
    /// Says whether an extended attribute must exist already when it is set.
    #[derive(Copy)]
    XattrMode {
        /// The attribute may exist or not.
        Either = 0,
        /// The attribute must not exist.
        Create = 1,
        /// The attribute must exist.
        Replace = 2,
    }
}

record! {
    /// Sets an extended attribute.
    #[derive(Copy)]
    SetXattr<'m> {
        /// The handle of the object that the request concerns.
        file: FileHandle,
        /// The name of the attribute, without a prefix.
        name: &'m [u8],
        /// The complete new value of the attribute.
        value: &'m [u8],
        /// Says whether the attribute must exist already.
        mode: XattrMode,
    }
}

record! {
    /// Lists the names of an object's extended attributes.
    #[derive(Copy)]
    ListXattrs {
        /// The handle of the object that the request concerns.
        file: FileHandle,
        /// The cookie at which the list continues; 0 starts it.
        cookie: u64,
        /// The maximum number of names to return.
        count_max: u32,
        /// The maximum number of bytes to return. Each name counts with its length and 8 more
        /// bytes.
        name_bytes_max: u32,
    }
}
