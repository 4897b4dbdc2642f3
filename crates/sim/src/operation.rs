//! Operations of clients and their outcomes, in the terms of the model that checks them.
//!
//! Invariant: an operation contains everything that decides its outcome, and no address, state id
//! or other value that differs between two runs of one seed.

use dafs_types::names::{from_wire, to_wire};
use dafs_types::{Stability, Status};

/// A name in one of the directories that exist in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name {
    pub directory: u8,
    pub index: u8,
}

/// The prefix of names that are not UTF-8. It contains an invalid byte, and a code point that
/// stands for such a byte in messages.
const ODD: &[u8] = b"f\xff\xee\xbe\x80-";

impl Name {
    /// Returns the bytes of the name on the disk. Half of the names are not UTF-8.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let begin = if self.index.is_multiple_of(2) { "file-".as_bytes() } else { ODD };
        [begin, self.index.to_string().as_bytes()].concat()
    }

    /// Returns the text of the name in messages.
    pub(crate) fn text(self) -> String {
        to_wire(&self.bytes()).into_owned()
    }

    /// Returns the name that a text in a message encodes. `None` if it encodes none.
    pub(crate) fn parse(directory: u8, text: &str) -> Option<Self> {
        let bytes = from_wire(text).ok()?;
        let rest = bytes.strip_prefix(b"file-").or_else(|| bytes.strip_prefix(ODD))?;
        let index = std::str::from_utf8(rest).ok()?.parse().ok()?;
        let name = Self { directory, index };
        (name.text() == text).then_some(name)
    }
}

/// The number of a file. Files are numbered in the order in which their handles were first seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileNumber(pub u32);

/// The number of an operation of a run. Operations are numbered in the order in which they began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct OperationNumber(pub u64);

/// An operation on names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NameOperation {
    /// An OPEN that creates the file. If `guarded`, the file must not exist.
    Create {
        name: Name,
        /// True if an existing file is an error.
        guarded: bool,
    },
    /// OPEN of an existing file.
    Open { name: Name },
    /// LOOKUP of a name.
    Lookup { name: Name },
    /// REMOVE of a name.
    Remove { name: Name },
    /// RENAME, which replaces an existing file of the new name.
    Rename { from: Name, to: Name },
    /// LINK to a file.
    Link {
        file: FileNumber,
        /// The additional name.
        name: Name,
    },
    /// READDIR of a whole directory in one page.
    List { directory: u8 },
    /// GETATTR of the number of links.
    Links { file: FileNumber },
}

impl NameOperation {
    /// Returns true if the operation may change anything.
    pub(crate) fn changes(&self) -> bool {
        match self {
            Self::Create { .. } | Self::Remove { .. } | Self::Rename { .. } | Self::Link { .. } => {
                true
            }
            Self::Open { .. } | Self::Lookup { .. } | Self::List { .. } | Self::Links { .. } => {
                false
            }
        }
    }
}

/// The way in which the data of a read or write is transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferMode {
    /// Inside the message (inline).
    Inline,
    /// By RDMA, between the server and the client's memory (direct).
    Direct,
}

/// An operation on the content of an open file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DataOperation {
    /// A READ of a range of the file.
    Read {
        /// The offset in the file.
        offset: u64,
        length: u32,
        way: TransferMode,
    },
    /// A WRITE of data. The client sends short writes inline.
    Write {
        /// The offset in the file.
        offset: u64,
        data: Vec<u8>,
        /// The stability that the data must have before the reply is sent.
        stability: Stability,
    },
    /// An APPEND of data to the file.
    Append { data: Vec<u8>, way: TransferMode },
    /// COMMIT of the file.
    Commit,
    /// SETATTR of the size.
    SetSize { size: u64 },
    /// GETATTR of the size.
    Size,
}

/// An operation of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// An operation on names.
    Name(NameOperation),
    /// An operation on the content of one of the files with names.
    Data(FileNumber, DataOperation),
    /// APPEND of a record to the file that all clients append to.
    Record {
        /// The bytes of the record, including its head.
        length: u32,
        way: TransferMode,
    },
    /// A READ of the file of records, from its beginning.
    Records { length: u32 },
    /// CLOSE of an open file.
    Close(FileNumber),
}

/// The content of a reply, in the terms of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The procedure failed.
    Status(Status),
    /// The procedure succeeded and returned no value.
    Done,
    /// The file that has the name.
    File(FileNumber),
    /// All names of the directory.
    Names(Vec<(Name, FileNumber)>),
    /// The number of links.
    Links(u32),
    /// The bytes that were read, and a flag that is true if the file ends after them.
    Bytes(Vec<u8>, bool),
    /// The number of bytes written.
    Written(u32),
    /// The offset at which the data was appended.
    Offset(u64),
    /// The size of the file in bytes.
    Size(u64),
}

/// The end of an operation, as its client can observe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The server has replied.
    Known(Answer),
    /// The server or the client has detected that bytes were damaged in transit.
    Damaged,
    /// The connection broke.
    Lost,
}
