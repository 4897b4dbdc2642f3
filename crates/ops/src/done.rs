//! The results of operations.
//!
//! Invariant: a result describes the effect of an operation, independent of any protocol. The
//! encoding of a result never changes; a result with more data gets a new row and a new number.

use std::borrow::Cow;

use dafs_types::{
    AccessMask, ChangeInfo, ClientId, CookieVerifier, FileAttributes, FileHandle,
    FileSystemAttributes, ReaddirCookie, SpaceLimit, Stability, StateId, Verifier,
};

use crate::arguments::{Empty, LockMode, OneFile};
use crate::codec::{Code, Settings, choice, record, table, take_whole};
use crate::fault::Fault;
use crate::operation::Layout;

/// The outcome of an operation: a result or a refusal.
pub type Outcome<'o> = Result<Done<'o>, Refusal<'o>>;

/// A result that owns all its data and borrows nothing.
pub type OwnedDone = Done<'static>;

record! {
    /// The progress of a path lookup.
    #[derive(Copy)]
    Walked {
        /// The handle of the last object that was found. It is the handle of the starting object if
        /// no name was found.
        file: FileHandle,
        /// The number of names in the path that were found.
        component_count: u32,
    }
}

choice! {
    /// The rights that a delegation gives its holder.
    #[derive(Copy)]
    Delegated {
        /// The right to read without requests to the server.
        Read = 1,
        /// The right to read and write without requests to the server.
        Write = 2 {
            /// The limit to which the file may grow.
            limit: SpaceLimit,
        },
    }
}

record! {
    /// A delegation that was granted with an open.
    #[derive(Copy)]
    Delegation {
        /// The state id of the delegation.
        state: StateId,
        /// True if the server recalls the delegation in the same reply that grants it.
        recall: bool,
        /// The rights of the delegation.
        delegated: Delegated,
    }
}

record! {
    /// The result of opening a file.
    #[derive(Copy)]
    Opened {
        /// The handle of the opened file.
        file: FileHandle,
        /// The state id of the open.
        state: StateId,
        /// The change attribute of the directory before and after the open, which may have created
        /// the file.
        directory: ChangeInfo,
        /// The number of names in the path that were found.
        component_count: u32,
        /// True if the locks of other owners block reads and writes of the file.
        mandatory_locks: bool,
        /// The delegation that was granted. `None` if none was granted.
        delegation: Option<Delegation>,
    }
}

record! {
    /// The result of creating an object.
    #[derive(Copy)]
    Created {
        /// The handle of the created object.
        file: FileHandle,
        /// The change attribute of the directory before and after the creation.
        directory: ChangeInfo,
    }
}

record! {
    /// The result of changing a directory.
    #[derive(Copy)]
    Changed {
        /// The change attribute of the directory before and after the change.
        directory: ChangeInfo,
    }
}

record! {
    /// The result of renaming an object.
    #[derive(Copy)]
    Renamed {
        /// The change attribute of the source directory before and after the renaming.
        source: ChangeInfo,
        /// The change attribute of the target directory before and after the renaming.
        target: ChangeInfo,
    }
}

record! {
    /// One entry of a directory.
    Entry<'m> {
        /// The position at which a listing continues after this entry.
        cookie: ReaddirCookie,
        /// The name of the entry.
        name: Cow<'m, [u8]>,
        /// The known attributes of the object; at least its file id.
        attributes: FileAttributes,
    }
}

record! {
    /// A page of a directory listing.
    Page<'m> {
        /// The entries, without `.` and `..`.
        entries: Vec<Entry<'m>>,
        /// The verifier for the cookies of this page.
        verifier: CookieVerifier,
        /// True if the directory has no entries after this page.
        is_end: bool,
    }
}

record! {
    /// The target of a symbolic link.
    Text<'m> {
        /// The bytes of the target.
        text: Cow<'m, [u8]>,
    }
}

/// A set of attributes. Bit n - 1 stands for attribute number n, as numbered in the crate `types`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AttributeSet(pub u64);

impl AttributeSet {
    /// The set of no attributes.
    pub const NONE: Self = Self(0);

    /// Creates the set of one attribute, numbered from 1 to 64.
    #[must_use]
    pub const fn one(number: u32) -> Self {
        Self(1 << (number - 1))
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Returns the attributes that are not in `others`.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Returns the attributes that `settings` sets.
    #[must_use]
    pub fn of(settings: &dafs_types::SetAttributes) -> Self {
        let Settings { mode, size, time_access, time_modify, acl, mime_type, owner, owner_group } =
            settings;
        [
            (mode.is_some(), 6),
            (size.is_some(), 9),
            (time_access.is_some(), 13),
            (time_modify.is_some(), 19),
            (acl.is_some(), 22),
            (mime_type.is_some(), 23),
            (owner.is_some(), 24),
            (owner_group.is_some(), 25),
        ]
        .into_iter()
        .filter(|(is_set, _)| *is_set)
        .fold(Self::NONE, |all, (_, number)| all.with(Self::one(number)))
    }
}

impl<'m> Code<'m> for AttributeSet {
    fn kind() -> String {
        "u64 attributes".to_owned()
    }

    fn put(&self, to: &mut Vec<u8>) {
        self.0.put(to);
    }

    fn take(from: &mut &'m [u8]) -> Option<Self> {
        u64::take(from).map(Self)
    }
}

record! {
    /// The result of setting attributes.
    #[derive(Copy)]
    Set {
        /// The attributes that were set.
        set: AttributeSet,
    }
}

record! {
    /// The access rights that the caller has to an object.
    #[derive(Copy)]
    Granted {
        /// Of the access rights asked about, those that the server can check.
        supported: AccessMask,
        /// Of the access rights asked about, those that the caller has.
        access: AccessMask,
    }
}

record! {
    /// The result of writing data.
    #[derive(Copy)]
    Written {
        /// The number of bytes written.
        length: u32,
        /// The parts of the file (data, metadata) that are on stable storage now.
        committed: Stability,
        /// The write verifier, which changes when the server may have lost unstable data.
        verifier: Verifier,
    }
}

record! {
    /// The result of appending data.
    #[derive(Copy)]
    Appended {
        /// The offset of the first appended byte.
        offset: u64,
        /// The parts of the file (data, metadata) that are on stable storage now.
        committed: Stability,
        /// The write verifier, which changes when the server may have lost unstable data.
        verifier: Verifier,
    }
}

record! {
    /// The result of flushing data to stable storage.
    #[derive(Copy)]
    Committed {
        /// The write verifier, which changes when the server may have lost unstable data.
        verifier: Verifier,
    }
}

record! {
    /// The place that a search in a file has found.
    #[derive(Copy)]
    Sought {
        /// The offset in the file at which the data or the hole begins.
        offset: u64,
        /// True if the place is the end of the file.
        is_end: bool,
    }
}

record! {
    /// The result of copying a range of a file.
    #[derive(Copy)]
    Copied {
        /// The number of bytes copied. It may be less than requested.
        length: u64,
        /// The data and metadata that are on stable storage.
        committed: Stability,
        /// The write verifier, which changes when the server may have lost unstable data.
        verifier: Verifier,
    }
}

record! {
    /// The value of an extended attribute.
    XattrValue<'m> {
        /// The bytes of the value.
        value: Cow<'m, [u8]>,
    }
}

record! {
    /// The result of changing an extended attribute.
    #[derive(Copy)]
    XattrChanged {
        /// The change attribute of the object before and after the change.
        change: ChangeInfo,
    }
}

record! {
    /// Part of the list of an object's extended attributes.
    XattrNames<'m> {
        /// The names, without a prefix.
        names: Vec<Cow<'m, [u8]>>,
        /// The cookie at which the list continues.
        cookie: u64,
        /// True if no names follow.
        is_end: bool,
    }
}

record! {
    /// The fencing list of an object.
    FenceIds {
        /// The fence identities that have access. If the list is empty, there is no fence and all
        /// clients have access.
        fence_ids: Vec<String>,
    }
}

record! {
    /// A lock that conflicts with a request.
    Conflict<'m> {
        /// The client that holds the lock.
        client: ClientId,
        /// The owner of the lock, unique within its client.
        owner: Cow<'m, [u8]>,
        /// The offset in the file of the lock's first byte.
        offset: u64,
        /// The length of the lock in bytes; `u64::MAX` means up to the end of the file.
        length: u64,
        /// The mode of the lock: shared or exclusive.
        mode: LockMode,
    }
}

choice! {
    /// The data that an operation returns although it was refused.
    Partial<'m> {
        /// The refusal has no further data.
        Nothing = 0,
        /// The progress of a lookup or an open before it failed.
        Walked = 1 {
            /// The progress of the path lookup.
            reached: Walked,
        },
        /// Some attributes were set before the failure.
        Set = 2 {
            /// The attributes that were set.
            set: AttributeSet,
        },
        /// Another lock conflicts with the request.
        Conflict = 3 {
            /// The conflicting lock.
            conflict: Conflict<'m>,
        },
    }
}

record! {
    /// The refusal of an operation, with its reason and data.
    Refusal<'m> {
        /// The reason for the refusal.
        fault: Fault,
        /// The data that the refusal returns in addition.
        partial: Partial<'m>,
    }
}

impl From<Fault> for Refusal<'_> {
    fn from(fault: Fault) -> Self {
        Self { fault, partial: Partial::Nothing }
    }
}

impl<'m> Refusal<'m> {
    /// Appends the encoded refusal to `to`.
    pub fn encode(&self, to: &mut Vec<u8>) {
        self.put(to);
    }

    /// Decodes a refusal. `None` if the bytes are invalid.
    #[must_use]
    pub fn decode(bytes: &'m [u8]) -> Option<Self> {
        take_whole(bytes)
    }

    /// Returns a copy of the refusal that borrows nothing.
    #[must_use]
    pub fn into_owned(self) -> Refusal<'static> {
        let partial = match self.partial {
            Partial::Nothing => Partial::Nothing,
            Partial::Walked { reached } => Partial::Walked { reached },
            Partial::Set { set } => Partial::Set { set },
            Partial::Conflict { conflict } => {
                let Conflict { client, owner, offset, length, mode } = conflict;
                let owner = Cow::Owned(owner.into_owned());
                Partial::Conflict { conflict: Conflict { client, owner, offset, length, mode } }
            }
        };
        Refusal { fault: self.fault, partial }
    }
}

table! {
    /// The result of an operation that was executed.
    Done "result";
    /// The operation returns no data.
    Nothing = 1 "nothing" Empty;
    /// An object was found.
    Object = 2 "object" OneFile;
    /// A path was resolved completely.
    Walked = 3 "walked" Walked;
    /// A file was opened.
    Opened = 4 "opened" Opened;
    /// An object was created.
    Created = 5 "created" Created;
    /// A directory was changed.
    Changed = 6 "changed" Changed;
    /// An object was renamed.
    Renamed = 7 "renamed" Renamed;
    /// A page of a directory listing.
    Page = 8 "page" Page<'m>;
    /// The target of a symbolic link.
    Text = 9 "text" Text<'m>;
    /// The attributes of an object.
    Attributes = 10 "attributes" FileAttributes;
    /// Attributes were set.
    Set = 11 "set" Set;
    /// The attributes of a file system.
    FsAttributes = 12 "file-system attributes" FileSystemAttributes;
    /// The access rights that the caller has to an object.
    Granted = 13 "granted" Granted;
    /// Data was written.
    Written = 14 "written" Written;
    /// Data was appended to a file.
    Appended = 15 "appended" Appended;
    /// Written data is on stable storage.
    Committed = 16 "committed" Committed;
    /// The fencing list of an object.
    FenceIds = 17 "fence identities" FenceIds;
    /// The place that a search in a file has found.
    Sought = 18 "sought" Sought;
    /// A range of a file was copied.
    Copied = 19 "copied" Copied;
    /// The value of an extended attribute.
    XattrValue = 20 "extended attribute" XattrValue<'m>;
    /// An extended attribute was set or removed.
    XattrChanged = 21 "extended attribute changed" XattrChanged;
    /// Part of a list of extended attributes.
    XattrNames = 22 "extended attribute names" XattrNames<'m>;
}

impl<'m> Done<'m> {
    /// The value for a result without data.
    pub const NOTHING: Self = Self::Nothing(Empty {});

    /// Decodes a result. `None` if the bytes are invalid.
    #[must_use]
    pub fn decode(bytes: &'m [u8]) -> Option<Self> {
        take_whole(bytes)
    }

    /// Returns a copy of the result that borrows nothing.
    #[must_use]
    pub fn into_owned(self) -> OwnedDone {
        match self {
            Self::Nothing(results) => Done::Nothing(results),
            Self::Object(results) => Done::Object(results),
            Self::Walked(results) => Done::Walked(results),
            Self::Opened(results) => Done::Opened(results),
            Self::Created(results) => Done::Created(results),
            Self::Changed(results) => Done::Changed(results),
            Self::Renamed(results) => Done::Renamed(results),
            Self::Page(Page { entries, verifier, is_end }) => {
                let entries = entries.into_iter().map(Entry::into_owned).collect();
                Done::Page(Page { entries, verifier, is_end })
            }
            Self::Text(Text { text }) => Done::Text(Text { text: Cow::Owned(text.into_owned()) }),
            Self::Attributes(results) => Done::Attributes(results),
            Self::Set(results) => Done::Set(results),
            Self::FsAttributes(results) => Done::FsAttributes(results),
            Self::Granted(results) => Done::Granted(results),
            Self::Written(results) => Done::Written(results),
            Self::Appended(results) => Done::Appended(results),
            Self::Committed(results) => Done::Committed(results),
            Self::FenceIds(results) => Done::FenceIds(results),
            Self::Sought(results) => Done::Sought(results),
            Self::Copied(results) => Done::Copied(results),
            Self::XattrValue(XattrValue { value }) => {
                Done::XattrValue(XattrValue { value: Cow::Owned(value.into_owned()) })
            }
            Self::XattrChanged(results) => Done::XattrChanged(results),
            Self::XattrNames(XattrNames { names, cookie, is_end }) => {
                let names = names.into_iter().map(|name| Cow::Owned(name.into_owned())).collect();
                Done::XattrNames(XattrNames { names, cookie, is_end })
            }
        }
    }
}

impl Entry<'_> {
    fn into_owned(self) -> Entry<'static> {
        let Self { cookie, name, attributes } = self;
        Entry { cookie, name: Cow::Owned(name.into_owned()), attributes }
    }
}

#[cfg(test)]
mod tests {
    use dafs_types::{SetAttributes, SetTime};

    use super::*;

    #[test]
    fn what_is_to_be_set_is_told_by_its_numbers() {
        assert_eq!(AttributeSet::of(&SetAttributes::default()), AttributeSet::NONE);
        let settings = SetAttributes {
            mode: Some(0),
            time_modify: Some(SetTime::Server),
            owner_group: Some(String::new()),
            ..SetAttributes::default()
        };
        assert_eq!(AttributeSet::of(&settings), AttributeSet(1 << 5 | 1 << 18 | 1 << 24));
    }

    #[test]
    fn an_owned_result_is_the_same_result() {
        let name = Cow::Borrowed(b"name".as_slice());
        let attributes = FileAttributes { file_id: Some(7), ..FileAttributes::default() };
        let entries = vec![Entry { cookie: ReaddirCookie(3), name, attributes }];
        let page = Page { entries, verifier: CookieVerifier([1; 8]), is_end: true };
        for done in [Done::Page(page), Done::Text(Text { text: Cow::Borrowed(b"to") })] {
            assert_eq!(done.clone().into_owned(), done);
        }
    }
}
