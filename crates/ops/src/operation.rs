//! The one table of operations.
//!
//! Invariant: number, name, class, the objects that are named and the arguments of an operation
//! stand in one row. Whoever dispatches, renews handles, fences, keeps or documents operations
//! goes by it. A number is never used again for anything else.

use dafs_types::FileHandle;

use crate::arguments::{
    Access, Append, Attributes, Close, Commit, CreateNode, Downgrade, Empty, Fence, Hint, Link,
    List, Lock, LockSpan, Lookup, OneFile, Open, Remove, Rename, ReturnDelegation, SetAttributes,
    TestLock,
};
use crate::codec::{Code, Record, table, take_whole};

/// What an operation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// It looks at names or attributes, and changes nothing.
    Looks,
    /// It opens a file, and may make it.
    Opens,
    /// It changes an open.
    State,
    /// It changes names.
    Names,
    /// It changes attributes.
    Attributes,
    /// It is about a file's data.
    Data,
    /// It is about locks.
    Locks,
    /// It is about who may come near.
    Fences,
    /// It is about delegations.
    Delegations,
}

/// A row of the table of operations, or of the table of results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The first byte.
    pub number: u8,
    /// The name.
    pub name: &'static str,
    /// What follows, in order: names and forms.
    pub fields: Vec<(&'static str, String)>,
}

impl Layout {
    /// The forms of fields that are several values, by their names.
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
            /// Something that can be done to files.
            Operation "operation";
            $($(#[$about])* $variant = $number $name $record $(<$life>)?;)*
        }

        impl Operation<'_> {
            /// Its name.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)*
                }
            }

            /// What it is about.
            #[must_use]
            pub const fn class(&self) -> Class {
                match self {
                    $(Self::$variant(_) => Class::$class,)*
                }
            }

            /// The objects it names by their handles.
            #[must_use]
            pub fn named(&self) -> [Option<&FileHandle>; 2] {
                match self {
                    $(Self::$variant(_arguments) => pair([$(&_arguments.$handle),*]),)*
                }
            }

            /// The same, to be changed: a handle may have another form now than when it was given.
            pub fn named_mut(&mut self) -> [Option<&mut FileHandle>; 2] {
                match self {
                    $(Self::$variant(_arguments) => pair([$(&mut _arguments.$handle),*]),)*
                }
            }
        }
    };
}

operations! {
    /// Where everything begins.
    Root = 1 "root" Looks [] Empty;
    /// Looks a path up.
    Lookup = 2 "lookup" Looks [directory] Lookup<'m>;
    /// The directory that a directory is in.
    LookupParent = 3 "lookup parent" Looks [file] OneFile;
    /// Opens a file, and makes it if that is asked for.
    Open = 4 "open" Opens [from] Open<'m>;
    /// Ends an open.
    Close = 5 "close" State [file] Close;
    /// Gives up part of what an open may do.
    Downgrade = 6 "downgrade" State [file] Downgrade;
    /// Makes an object that is no regular file.
    CreateNode = 7 "create node" Names [directory] CreateNode<'m>;
    /// Gives an object another name.
    Link = 8 "link" Names [source, directory] Link<'m>;
    /// Takes a name away.
    Remove = 9 "remove" Names [directory] Remove<'m>;
    /// Moves a name.
    Rename = 10 "rename" Names [source, target] Rename<'m>;
    /// Lists part of a directory.
    List = 11 "list" Looks [directory] List;
    /// What a symbolic link says.
    ReadLink = 12 "read link" Looks [file] OneFile;
    /// Tells attributes.
    Attributes = 13 "attributes" Looks [file] Attributes;
    /// Sets attributes.
    SetAttributes = 14 "set attributes" Attributes [file] SetAttributes;
    /// Tells attributes of the file system that an object is in.
    FsAttributes = 15 "file-system attributes" Looks [file] OneFile;
    /// Asks for rights.
    Access = 16 "access" Looks [file] Access;
    /// The directory of an object's named attributes.
    OpenAttributes = 17 "open attributes" Looks [file] OneFile;
    /// Takes a place at a file's end.
    Append = 18 "append" Data [file] Append;
    /// Brings what was written to stable storage.
    Commit = 19 "commit" Data [file] Commit;
    /// Says how part of a file will be used.
    Hint = 20 "hint" Data [file] Hint;
    /// Takes a lock.
    Lock = 21 "lock" Locks [file] Lock;
    /// Asks whether a lock could be taken.
    TestLock = 22 "test lock" Locks [file] TestLock<'m>;
    /// Ends locks, and makes final what was changed under them.
    Unlock = 23 "unlock" Locks [file] LockSpan;
    /// Takes back what was changed under locks.
    Abort = 24 "abort" Locks [file] LockSpan;
    /// Tells who may reach an object.
    FenceList = 25 "fence list" Fences [file] OneFile;
    /// Says who may reach an object.
    Fence = 26 "fence" Fences [file] Fence<'m>;
    /// Gives a delegation back.
    ReturnDelegation = 27 "return delegation" Delegations [] ReturnDelegation;
    /// Gives up the delegations of an earlier life.
    PurgeDelegations = 28 "purge delegations" Delegations [] Empty;
}

impl<'m> Operation<'m> {
    /// Reads an operation. `None` if these are not the bytes of one.
    #[must_use]
    pub fn decode(bytes: &'m [u8]) -> Option<Self> {
        take_whole(bytes)
    }

    /// The objects whose fences stand in its way. What it leads to by name is not among them.
    #[must_use]
    pub fn touched(&self) -> [Option<&FileHandle>; 2] {
        match self.class() {
            // Whoever is fenced out must be able to be let in again.
            Class::Fences => [None; 2],
            Class::Looks
            | Class::Opens
            | Class::State
            | Class::Names
            | Class::Attributes
            | Class::Data
            | Class::Locks
            | Class::Delegations => self.named(),
        }
    }

    /// Whether it may change names or attributes, so that doing it twice can do harm.
    #[must_use]
    pub fn changes_names(&self) -> bool {
        match (self.class(), self) {
            (Class::Names | Class::Attributes, _) => true,
            (_, Self::Open(open)) => open.creation.is_any(),
            _ => false,
        }
    }
}

/// At most two, in their places.
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
        assert_eq!(rename.named(), [Some(&ONE), Some(&TWO)]);
        assert_eq!(rename.touched(), [Some(&ONE), Some(&TWO)]);
        for handle in rename.named_mut().into_iter().flatten() {
            *handle = FileHandle::NULL;
        }
        assert_eq!(rename.named(), [Some(&FileHandle::NULL); 2]);
        let mode = RemoveMode::Unchecked;
        let remove = Operation::Remove(Remove { directory: TWO, name: b"a", mode });
        assert_eq!(remove.named(), [Some(&TWO), None]);
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
        assert_eq!(fence.touched(), [None; 2]);
        assert_eq!(fence.named(), [Some(&ONE), None]);
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
