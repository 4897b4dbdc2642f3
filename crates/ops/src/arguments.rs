//! What operations are asked with. The names of the records are those of the operations.
//!
//! Invariant: a record's bytes never change. What is to be asked with more gets a new row and a
//! new number in the table of operations.

use dafs_types::{
    AccessMask, CacheHint, CachePattern, CookieVerifier, DeleteDisposition, DeviceNumber,
    FenceAccess, FenceObject, FenceUpdate, FileHandle, ObjectType, ReaddirCookie, RemoveMode,
    ShareAccess, ShareDeny, ShareKey, Stability, StateId, Verifier,
};

use crate::codec::{Settings, choice, record};
use crate::names::Names;

record! {
    /// An operation that needs to be told nothing.
    #[derive(Copy, Default)]
    Empty {}
}

record! {
    /// An operation on one object that needs to be told nothing else.
    #[derive(Copy)]
    OneFile {
        /// The object.
        file: FileHandle,
    }
}

record! {
    /// Looks a path up, name by name. Symbolic links are not followed.
    #[derive(Copy)]
    Lookup<'m> {
        /// Where the path starts.
        directory: FileHandle,
        /// The path.
        path: Names<'m>,
    }
}

choice! {
    /// By what right something is opened.
    #[derive(Copy)]
    Claim<'m> {
        /// A new open by name.
        Null = 0 {
            /// The path from the directory. The one name `.` is the object itself.
            path: Names<'m>,
        },
        /// It was open before the server restarted.
        Previous = 1,
        /// Under a delegation that the asker has now.
        DelegateCurrent = 2 {
            /// The path from the directory.
            path: Names<'m>,
            /// The delegation.
            state: StateId,
        },
        /// Under a delegation that the asker had before it restarted.
        DelegatePrevious = 3 {
            /// The path from the directory.
            path: Names<'m>,
        },
        /// A new file without a name, in the directory's file system.
        CreateUnlinked = 4,
    }
}

choice! {
    /// Whether an open makes the file.
    Creation {
        /// It must be there.
        NoCreate = 0,
        /// If it is not there, with these attributes. If it is, a size of 0 truncates it.
        Unchecked = 1 {
            /// What a new file has.
            attributes: Settings,
        },
        /// It must not be there.
        Guarded = 2 {
            /// What the new file has.
            attributes: Settings,
        },
        /// It must not be there, unless it was made under this verifier.
        Exclusive = 3 {
            /// The asker's choice.
            verifier: Verifier,
        },
    }
}

impl Creation {
    /// Whether the open may make a file, or truncate one.
    #[must_use]
    pub const fn is_any(&self) -> bool {
        !matches!(self, Self::NoCreate)
    }

    /// What a new file is to have.
    #[must_use]
    pub const fn attributes(&self) -> Option<&Settings> {
        match self {
            Self::Unchecked { attributes } | Self::Guarded { attributes } => Some(attributes),
            Self::NoCreate | Self::Exclusive { .. } => None,
        }
    }
}

record! {
    /// Opens a file, and makes it if that is asked for.
    Open<'m> {
        /// Where the path starts. Of an open that is claimed back, the file.
        from: FileHandle,
        /// By what right.
        claim: Claim<'m>,
        /// Whether it may be made.
        creation: Creation,
        /// Whether others may remove its name while it is open.
        disposition: DeleteDisposition,
        /// Who holds the open, among the asker's own.
        owner: &'m [u8],
        /// What the open may do.
        access: ShareAccess,
        /// What it keeps others from doing.
        deny: ShareDeny,
        /// The key that all opens of the file must show.
        key: Option<ShareKey>,
    }
}

record! {
    /// Ends an open.
    #[derive(Copy)]
    Close {
        /// The file.
        file: FileHandle,
        /// The open.
        state: StateId,
    }
}

record! {
    /// Gives up part of what an open may do.
    #[derive(Copy)]
    Downgrade {
        /// The file.
        file: FileHandle,
        /// The open.
        state: StateId,
        /// What it may still do.
        access: ShareAccess,
        /// What it still keeps others from doing.
        deny: ShareDeny,
        /// The key, or none to give it up.
        key: Option<ShareKey>,
    }
}

choice! {
    /// An object that is no regular file.
    #[derive(Copy)]
    NewNode<'m> {
        /// A directory.
        Directory = 0,
        /// A symbolic link.
        SymbolicLink = 1 {
            /// Where it leads. Nobody interprets it.
            text: &'m [u8],
        },
        /// A named pipe.
        Fifo = 2,
        /// A socket.
        Socket = 3,
        /// A block device.
        BlockDevice = 4 {
            /// Which one.
            device: DeviceNumber,
        },
        /// A character device.
        CharacterDevice = 5 {
            /// Which one.
            device: DeviceNumber,
        },
    }
}

impl NewNode<'_> {
    /// Its type.
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
    /// Makes an object that is no regular file.
    CreateNode<'m> {
        /// Where.
        directory: FileHandle,
        /// Under which name.
        name: &'m [u8],
        /// What.
        node: NewNode<'m>,
        /// What it has from the start.
        attributes: Settings,
    }
}

record! {
    /// Gives an object another name.
    #[derive(Copy)]
    Link<'m> {
        /// The object.
        source: FileHandle,
        /// Where the name goes.
        directory: FileHandle,
        /// The name.
        name: &'m [u8],
    }
}

record! {
    /// Takes a name away.
    #[derive(Copy)]
    Remove<'m> {
        /// Where the name is.
        directory: FileHandle,
        /// The name.
        name: &'m [u8],
        /// What it means that somebody has the file open.
        mode: RemoveMode,
    }
}

record! {
    /// Moves a name. What has the new one loses it.
    #[derive(Copy)]
    Rename<'m> {
        /// From where.
        source: FileHandle,
        /// To where.
        target: FileHandle,
        /// The old name.
        old_name: &'m [u8],
        /// The new name.
        new_name: &'m [u8],
    }
}

record! {
    /// Attributes that cost calls of their own, so that they are told only if wanted.
    #[derive(Copy, Default, Hash)]
    Extras {
        /// Whether the object has named attributes.
        named_attributes: bool,
        /// Its access control list.
        acl: bool,
        /// Its MIME type.
        mime_type: bool,
    }
}

record! {
    /// Lists part of a directory.
    #[derive(Copy)]
    List {
        /// The directory.
        directory: FileHandle,
        /// Behind which entry to go on; 0 for the start.
        cookie: ReaddirCookie,
        /// What came with the cookie; 0 for the start.
        verifier: CookieVerifier,
        /// Most entries.
        entry_count_max: u32,
        /// Most bytes of all names together.
        name_bytes_max: u32,
        /// Whether the entries' attributes are wanted, and which extras.
        wanted: Option<Extras>,
    }
}

record! {
    /// Tells an object's attributes.
    #[derive(Copy)]
    Attributes {
        /// The object.
        file: FileHandle,
        /// What is wanted besides the usual ones.
        extras: Extras,
    }
}

record! {
    /// Sets attributes.
    SetAttributes {
        /// The object.
        file: FileHandle,
        /// The open that a change of size goes under; anonymous without one.
        state: StateId,
        /// What to set.
        attributes: Settings,
    }
}

record! {
    /// Asks which of some rights the asker has.
    #[derive(Copy)]
    Access {
        /// The object.
        file: FileHandle,
        /// The rights.
        access: AccessMask,
    }
}

record! {
    /// Takes a place at a file's end. What is put there moves by itself.
    #[derive(Copy)]
    Append {
        /// The file.
        file: FileHandle,
        /// The open it goes under.
        state: StateId,
        /// How many bytes.
        length: u32,
        /// How stable they must be before the answer; never unstable.
        stability: Stability,
        /// What the asker will likely do with them.
        hint: CacheHint,
    }
}

record! {
    /// Brings what was written to stable storage.
    #[derive(Copy)]
    Commit {
        /// The file.
        file: FileHandle,
        /// The first byte.
        offset: u64,
        /// How many bytes; 0 for all behind the offset.
        length: u64,
    }
}

record! {
    /// Says how part of a file will be used.
    #[derive(Copy)]
    Hint {
        /// The file.
        file: FileHandle,
        /// The first byte.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// In which order.
        pattern: CachePattern,
        /// For what.
        hint: CacheHint,
    }
}

choice! {
    /// What a lock keeps others from doing.
    #[derive(Copy, Hash)]
    LockMode {
        /// Writing.
        Read = 1,
        /// Reading and writing.
        Write = 2,
    }
}

choice! {
    /// By what right a lock is taken.
    #[derive(Copy, Hash)]
    LockClaim {
        /// It is new.
        New = 0,
        /// It was held before the server restarted.
        Reclaim = 1,
        /// It is taken over from an owner that failed.
        Repair = 2,
    }
}

record! {
    /// Takes a lock, for the owner of the open.
    #[derive(Copy)]
    Lock {
        /// The file.
        file: FileHandle,
        /// The open.
        state: StateId,
        /// What others may not do.
        mode: LockMode,
        /// The first byte.
        offset: u64,
        /// How many bytes; all ones for the rest of the file.
        length: u64,
        /// By what right.
        claim: LockClaim,
        /// It breaks, and does not vanish, when its owner fails.
        persist: bool,
        /// What is changed under it is rolled back when its owner fails.
        auto_recovery: bool,
        /// The asker will ask again until it has it.
        waits: bool,
    }
}

record! {
    /// Asks whether a lock could be taken.
    #[derive(Copy)]
    TestLock<'m> {
        /// The file.
        file: FileHandle,
        /// Who would take it.
        owner: &'m [u8],
        /// What others could not do.
        mode: LockMode,
        /// The first byte.
        offset: u64,
        /// How many bytes; all ones for the rest of the file.
        length: u64,
    }
}

record! {
    /// The bytes whose locks are ended, by UNLOCK or by ABORT.
    #[derive(Copy)]
    LockSpan {
        /// The file.
        file: FileHandle,
        /// The open that the locks are under.
        state: StateId,
        /// The first byte.
        offset: u64,
        /// How many bytes; all ones for the rest of the file.
        length: u64,
    }
}

record! {
    /// Says who may reach a file, or a file system.
    #[derive(Copy)]
    Fence<'m> {
        /// The file, or one of the file system.
        file: FileHandle,
        /// Which of the two.
        object: FenceObject,
        /// What the list says.
        access: FenceAccess,
        /// How it is applied.
        update: FenceUpdate,
        /// The identities, as UTF-8.
        fence_ids: Names<'m>,
    }
}

record! {
    /// Gives a delegation back.
    #[derive(Copy)]
    ReturnDelegation {
        /// The delegation.
        state: StateId,
    }
}
