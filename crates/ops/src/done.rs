//! What operations come to.
//!
//! Invariant: a result says what happened, never how a protocol shows it. A result's bytes never
//! change; more gets a new row and a new number.

use std::borrow::Cow;

use dafs_types::{
    AccessMask, ChangeInfo, ClientId, CookieVerifier, FileAttributes, FileHandle,
    FileSystemAttributes, ReaddirCookie, SpaceLimit, Stability, StateId, Verifier,
};

use crate::arguments::{Empty, LockMode, OneFile};
use crate::codec::{Code, Settings, choice, record, table, take_whole};
use crate::fault::Fault;
use crate::operation::Layout;

/// What an operation comes to: it was done, or it was refused.
pub type Outcome<'o> = Result<Done<'o>, Refusal<'o>>;

/// What was done, without anything borrowed.
pub type OwnedDone = Done<'static>;

record! {
    /// How far a walk got.
    #[derive(Copy)]
    Walked {
        /// The last object reached. Where the walk began, if it got nowhere.
        file: FileHandle,
        /// How many names were found.
        component_count: u32,
    }
}

choice! {
    /// What a delegation lets its holder do.
    #[derive(Copy)]
    Delegated {
        /// Read without asking.
        Read = 1,
        /// Read and write without asking.
        Write = 2 {
            /// How far the file may grow.
            limit: SpaceLimit,
        },
    }
}

record! {
    /// A delegation that came with an open.
    #[derive(Copy)]
    Delegation {
        /// Names it.
        state: StateId,
        /// It is called back by this answer.
        recall: bool,
        /// What it is for.
        delegated: Delegated,
    }
}

record! {
    /// A file is open.
    #[derive(Copy)]
    Opened {
        /// The file.
        file: FileHandle,
        /// Names the open.
        state: StateId,
        /// The directory before and after.
        directory: ChangeInfo,
        /// How many names were found.
        component_count: u32,
        /// Locks of others stop reads and writes.
        mandatory_locks: bool,
        /// What came with it.
        delegation: Option<Delegation>,
    }
}

record! {
    /// An object was made.
    #[derive(Copy)]
    Created {
        /// The object.
        file: FileHandle,
        /// The directory before and after.
        directory: ChangeInfo,
    }
}

record! {
    /// A directory was changed.
    #[derive(Copy)]
    Changed {
        /// The directory before and after.
        directory: ChangeInfo,
    }
}

record! {
    /// A name was moved.
    #[derive(Copy)]
    Renamed {
        /// The directory that it left, before and after.
        source: ChangeInfo,
        /// The directory that it entered, before and after.
        target: ChangeInfo,
    }
}

record! {
    /// An entry of a directory.
    Entry<'m> {
        /// Where to go on behind it.
        cookie: ReaddirCookie,
        /// Its name.
        name: Cow<'m, [u8]>,
        /// What is known of its object; at least the number.
        attributes: FileAttributes,
    }
}

record! {
    /// Part of a directory.
    Page<'m> {
        /// The entries, without `.` and `..`.
        entries: Vec<Entry<'m>>,
        /// Goes with every cookie of the page.
        verifier: CookieVerifier,
        /// Nothing follows.
        is_end: bool,
    }
}

record! {
    /// What a symbolic link says.
    Text<'m> {
        /// It.
        text: Cow<'m, [u8]>,
    }
}

/// A set of attributes by their numbers in `types`: number n is bit n - 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AttributeSet(pub u64);

impl AttributeSet {
    /// No attributes.
    pub const NONE: Self = Self(0);

    /// The set of one attribute, numbered from 1 to 64.
    #[must_use]
    pub const fn one(number: u32) -> Self {
        Self(1 << (number - 1))
    }

    /// Both sets.
    #[must_use]
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// These without the others.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Those that are to be set.
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
    /// Attributes were set.
    #[derive(Copy)]
    Set {
        /// Which.
        set: AttributeSet,
    }
}

record! {
    /// What the asker may do.
    #[derive(Copy)]
    Granted {
        /// Rights that can be told about.
        supported: AccessMask,
        /// Rights that the asker has.
        access: AccessMask,
    }
}

record! {
    /// Data was written.
    #[derive(Copy)]
    Written {
        /// How many bytes.
        length: u32,
        /// How stable they are.
        committed: Stability,
        /// Changes when unstable data may have been lost.
        verifier: Verifier,
    }
}

record! {
    /// Data was put at the end of a file.
    #[derive(Copy)]
    Appended {
        /// Where it begins.
        offset: u64,
        /// How stable it is.
        committed: Stability,
        /// Changes when unstable data may have been lost.
        verifier: Verifier,
    }
}

record! {
    /// What was written is on stable storage.
    #[derive(Copy)]
    Committed {
        /// Changes when unstable data may have been lost.
        verifier: Verifier,
    }
}

record! {
    /// Who may reach an object.
    FenceIds {
        /// Their identities; everybody may if there are none.
        fence_ids: Vec<String>,
    }
}

record! {
    /// A lock that stands in the way.
    Conflict<'m> {
        /// The client that has it.
        client: ClientId,
        /// Who has it, among the client's own.
        owner: Cow<'m, [u8]>,
        /// The first byte.
        offset: u64,
        /// How many bytes; all ones for the rest of the file.
        length: u64,
        /// What it keeps others from doing.
        mode: LockMode,
    }
}

choice! {
    /// What is known of an operation that was refused, besides why.
    Partial<'m> {
        /// Nothing.
        Nothing = 0,
        /// How far a lookup or an open got.
        Walked = 1 {
            /// There.
            reached: Walked,
        },
        /// Some attributes were set.
        Set = 2 {
            /// They.
            set: AttributeSet,
        },
        /// A lock stands in the way.
        Conflict = 3 {
            /// That one.
            conflict: Conflict<'m>,
        },
    }
}

record! {
    /// An operation was not done.
    Refusal<'m> {
        /// Why.
        fault: Fault,
        /// What is known besides.
        partial: Partial<'m>,
    }
}

impl From<Fault> for Refusal<'_> {
    fn from(fault: Fault) -> Self {
        Self { fault, partial: Partial::Nothing }
    }
}

impl<'m> Refusal<'m> {
    /// Adds its bytes.
    pub fn encode(&self, to: &mut Vec<u8>) {
        self.put(to);
    }

    /// Reads a refusal. `None` if these are not the bytes of one.
    #[must_use]
    pub fn decode(bytes: &'m [u8]) -> Option<Self> {
        take_whole(bytes)
    }

    /// The same, without anything borrowed.
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
    /// What was done.
    Done "result";
    /// That is all there is to say.
    Nothing = 1 "nothing" Empty;
    /// An object was found.
    Object = 2 "object" OneFile;
    /// A path was walked to its end.
    Walked = 3 "walked" Walked;
    /// A file is open.
    Opened = 4 "opened" Opened;
    /// An object was made.
    Created = 5 "created" Created;
    /// A directory was changed.
    Changed = 6 "changed" Changed;
    /// A name was moved.
    Renamed = 7 "renamed" Renamed;
    /// Part of a directory.
    Page = 8 "page" Page<'m>;
    /// What a symbolic link says.
    Text = 9 "text" Text<'m>;
    /// An object's attributes.
    Attributes = 10 "attributes" FileAttributes;
    /// Attributes were set.
    Set = 11 "set" Set;
    /// A file system's attributes.
    FsAttributes = 12 "file-system attributes" FileSystemAttributes;
    /// What the asker may do.
    Granted = 13 "granted" Granted;
    /// Data was written.
    Written = 14 "written" Written;
    /// Data was put at the end of a file.
    Appended = 15 "appended" Appended;
    /// What was written is on stable storage.
    Committed = 16 "committed" Committed;
    /// Who may reach an object.
    FenceIds = 17 "fence identities" FenceIds;
}

impl<'m> Done<'m> {
    /// That is all there is to say.
    pub const NOTHING: Self = Self::Nothing(Empty {});

    /// Reads a result. `None` if these are not the bytes of one.
    #[must_use]
    pub fn decode(bytes: &'m [u8]) -> Option<Self> {
        take_whole(bytes)
    }

    /// The same, without anything borrowed.
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
