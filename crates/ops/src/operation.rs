//! The table of all operations.
//!
//! Invariant: the number, name, class, named objects and arguments of an operation are in one row
//! of this table. All code that dispatches, renews handles, fences, stores or documents operations
//! uses the table. Numbers are never reused.

use dafs_types::FileHandle;

use crate::arguments::{
    Access, Append, Attributes, Close, Commit, CopyRange, CreateNode, Downgrade, Empty, Fence,
    FileRange, Hint, Link, List, ListXattrs, Lock, LockSpan, Lookup, OneFile, Open, Remove, Rename,
    ReturnDelegation, Seek, SetAttributes, SetXattr, TestLock, Xattr,
};
use crate::codec::{Code, Record, table, take_whole};

/// What an operation reads or changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// The operation reads names or attributes and changes nothing.
    Looks,
    /// The operation opens a file, and may create it.
    Opens,
    /// The operation changes or closes an open.
    State,
    /// The operation changes names in directories.
    Names,
    /// The operation changes attributes of an object.
    Attributes,
    /// The operation concerns a file's data.
    Data,
    /// The operation concerns byte-range locks.
    Locks,
    /// The operation concerns fencing lists.
    Fences,
    /// The operation concerns delegations.
    Delegations,
}

/// The layout of a row of the table of operations or of the table of results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The number of the row, which is the first encoded byte.
    pub number: u8,
    /// The name of the operation or result.
    pub name: &'static str,
    /// The names and encodings of the row's fields, in order.
    pub fields: Vec<(&'static str, String)>,
}

impl Layout {
    /// Returns the names of composite fields, with descriptions of their encodings.
    #[must_use]
    pub fn forms() -> Vec<(String, String)> {
        crate::codec::forms()
    }

    pub(crate) fn of<'m, T: Record<'m>>(number: u8, name: &'static str) -> Self {
        let fields = T::fields().into_iter().map(|(name, kind)| (name, kind())).collect();
        Self { number, name, fields }
    }
}

macro_rules! operations {
    ($($(#[$about:meta])* $variant:ident = $number:literal $name:literal $class:ident
        [$($handle:ident),*] $record:ident $(<$life:lifetime>)?;)*) => {
        table! {
            /// An operation on files, with its arguments.
            Operation "operation";
            $($(#[$about])* $variant = $number $name $record $(<$life>)?;)*
        }

        impl Operation<'_> {
            /// Returns the name of the operation.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)*
                }
            }

            /// Returns the subject of the operation.
            #[must_use]
            pub const fn class(&self) -> Class {
                match self {
                    $(Self::$variant(_) => Class::$class,)*
                }
            }

            /// Returns the handles of the objects that the operation names.
            #[must_use]
            pub fn handles(&self) -> [Option<&FileHandle>; 2] {
                match self {
                    $(Self::$variant(_arguments) => pair([$(&_arguments.$handle),*]),)*
                }
            }

            /// Returns the operation's handles mutably, so that a handle in an old form can be
            /// replaced by the current form.
            pub fn handles_mut(&mut self) -> [Option<&mut FileHandle>; 2] {
                match self {
                    $(Self::$variant(_arguments) => pair([$(&mut _arguments.$handle),*]),)*
                }
            }
        }
    };
}

operations! {
    /// Returns the root directory.
    Root = 1 "root" Looks [] Empty;
    /// Looks up a path.
    Lookup = 2 "lookup" Looks [directory] Lookup<'m>;
    /// Returns the parent of a directory.
    LookupParent = 3 "lookup parent" Looks [file] OneFile;
    /// Opens a file, and creates it if requested.
    Open = 4 "open" Opens [from] Open<'m>;
    /// Closes an open file.
    Close = 5 "close" State [file] Close;
    /// Gives up part of an open's access.
    Downgrade = 6 "downgrade" State [file] Downgrade;
    /// Creates an object that is not a regular file.
    CreateNode = 7 "create node" Names [directory] CreateNode<'m>;
    /// Creates a hard link to an object.
    Link = 8 "link" Names [source, directory] Link<'m>;
    /// Removes a name from a directory.
    Remove = 9 "remove" Names [directory] Remove<'m>;
    /// Renames an object.
    Rename = 10 "rename" Names [source, target] Rename<'m>;
    /// Lists part of a directory.
    List = 11 "list" Looks [directory] List;
    /// Reads the target of a symbolic link.
    ReadLink = 12 "read link" Looks [file] OneFile;
    /// Returns the attributes of an object.
    Attributes = 13 "attributes" Looks [file] Attributes;
    /// Sets attributes of an object.
    SetAttributes = 14 "set attributes" Attributes [file] SetAttributes;
    /// Returns the attributes of an object's file system.
    FsAttributes = 15 "file-system attributes" Looks [file] OneFile;
    /// Returns which of the given access rights the caller has.
    Access = 16 "access" Looks [file] Access;
    /// Returns the directory of an object's named attributes.
    OpenAttributes = 17 "open attributes" Looks [file] OneFile;
    /// Reserves a range at the end of a file for an append.
    Append = 18 "append" Data [file] Append;
    /// Flushes written data to stable storage.
    Commit = 19 "commit" Data [file] Commit;
    /// Gives a hint about the expected use of a range of a file.
    Hint = 20 "hint" Data [file] Hint;
    /// Acquires a lock on a range.
    Lock = 21 "lock" Locks [file] Lock;
    /// Tests whether a lock could be acquired.
    TestLock = 22 "test lock" Locks [file] TestLock<'m>;
    /// Releases locks, and makes the changes under them permanent.
    Unlock = 23 "unlock" Locks [file] LockSpan;
    /// Rolls back the changes made under locks.
    Abort = 24 "abort" Locks [file] LockSpan;
    /// Returns the fencing list of an object.
    FenceList = 25 "fence list" Fences [file] OneFile;
    /// Changes the fencing list of an object.
    Fence = 26 "fence" Fences [file] Fence<'m>;
    /// Returns a delegation to the server.
    ReturnDelegation = 27 "return delegation" Delegations [] ReturnDelegation;
    /// Releases the delegations of the client's previous incarnation.
    PurgeDelegations = 28 "purge delegations" Delegations [] Empty;
    /// Reserves storage for a range of a file, which may make the file longer.
    Allocate = 29 "allocate" Data [file] FileRange;
    /// Frees the storage of a range of a file, which then reads as zeros.
    Deallocate = 30 "deallocate" Data [file] FileRange;
    /// Searches a file for data or for a hole.
    Seek = 31 "seek" Data [file] Seek;
    /// Makes a range of a file share the storage of a range of another file.
    Clone = 32 "clone" Data [source, file] CopyRange;
    /// Copies a range of a file to another file.
    Copy = 33 "copy" Data [source, file] CopyRange;
    /// Reads an extended attribute.
    GetXattr = 34 "get extended attribute" Looks [file] Xattr<'m>;
    /// Sets an extended attribute.
    SetXattr = 35 "set extended attribute" Attributes [file] SetXattr<'m>;
    /// Lists the names of extended attributes.
    ListXattrs = 36 "list extended attributes" Looks [file] ListXattrs;
    /// Removes an extended attribute.
    RemoveXattr = 37 "remove extended attribute" Attributes [file] Xattr<'m>;
}

impl<'m> Operation<'m> {
    /// Decodes an operation. `None` if the bytes are invalid.
    #[must_use]
    pub fn decode(bytes: &'m [u8]) -> Option<Self> {
        take_whole(bytes)
    }

    /// Returns the objects for which the fencing lists must be checked before the operation.
    /// Objects that the operation finds by name are not included.
    #[must_use]
    pub fn fenced_objects(&self) -> [Option<&FileHandle>; 2] {
        match self.class() {
            // A client that is excluded by a fence must still be able to change the fence and
            // readmit itself.
            Class::Fences => [None; 2],
            Class::Looks
            | Class::Opens
            | Class::State
            | Class::Names
            | Class::Attributes
            | Class::Data
            | Class::Locks
            | Class::Delegations => self.handles(),
        }
    }

    /// Returns true if the operation may change names or attributes, so that repeating it can do
    /// harm.
    #[must_use]
    pub fn changes_names(&self) -> bool {
        match (self.class(), self) {
            (Class::Names | Class::Attributes, _) => true,
            (_, Self::Open(open)) => open.creation.is_any(),
            _ => false,
        }
    }
}

/// Returns an array of up to two values as an array of two options, in the same order.
fn pair<T, const N: usize>(given: [T; N]) -> [Option<T>; 2] {
    const { assert!(N <= 2, "an operation names two objects at most") };
    let mut given = given.into_iter();
    [given.next(), given.next()]
}

#[cfg(test)]
mod tests {
    use dafs_types::{FenceAccess, FenceObject, FenceUpdate, RemoveMode};

    use super::*;
    use crate::names::Names;

    const ONE: FileHandle = FileHandle([1; 64]);
    const TWO: FileHandle = FileHandle([2; 64]);

    #[test]
    fn both_objects_of_an_operation_are_named() {
        let mut rename =
            Operation::Rename(Rename { source: ONE, target: TWO, old_name: b"a", new_name: b"b" });
        assert_eq!(rename.handles(), [Some(&ONE), Some(&TWO)]);
        assert_eq!(rename.fenced_objects(), [Some(&ONE), Some(&TWO)]);
        for handle in rename.handles_mut().into_iter().flatten() {
            *handle = FileHandle::NULL;
        }
        assert_eq!(rename.handles(), [Some(&FileHandle::NULL); 2]);
        let mode = RemoveMode::Unchecked;
        let remove = Operation::Remove(Remove { directory: TWO, name: b"a", mode });
        assert_eq!(remove.handles(), [Some(&TWO), None]);
    }

    #[test]
    fn fences_do_not_stand_in_the_way_of_fences() {
        let fence = Operation::Fence(Fence {
            file: ONE,
            object: FenceObject::File,
            access: FenceAccess::Allow,
            update: FenceUpdate::Overwrite,
            fence_ids: Names::new(&[]),
        });
        assert_eq!(fence.fenced_objects(), [None; 2]);
        assert_eq!(fence.handles(), [Some(&ONE), None]);
    }

    #[test]
    fn numbers_stand_in_order_and_names_stand_once() {
        let layouts = Operation::layouts();
        assert!(layouts.windows(2).all(|pair| pair[0].number < pair[1].number));
        let mut names: Vec<_> = layouts.iter().map(|layout| layout.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), layouts.len());
    }
}
