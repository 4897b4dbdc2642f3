//! What a client asks, and what came of it, in the words of the judge.
//!
//! Invariant: an operation says everything that decides its outcome; nothing here names
//! an address, a state id or anything else that differs between two runs of one seed.

use dafs_types::names::{from_wire, to_wire};
use dafs_types::{Stability, Status};

/// A name in one of the directories every run begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name {
    pub directory: u8,
    pub index: u8,
}

/// What those names begin with that are no UTF-8: a byte that is none, and a code point that
/// stands for one on the wire.
const ODD: &[u8] = b"f\xff\xee\xbe\x80-";

impl Name {
    /// As the files have it. Every other one is no UTF-8.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let begin = if self.index.is_multiple_of(2) { "file-".as_bytes() } else { ODD };
        [begin, self.index.to_string().as_bytes()].concat()
    }

    /// As messages have it.
    pub(crate) fn text(self) -> String {
        to_wire(&self.bytes()).into_owned()
    }

    /// The name that a message has as this text.
    pub(crate) fn parse(directory: u8, text: &str) -> Option<Self> {
        let bytes = from_wire(text).ok()?;
        let rest = bytes.strip_prefix(b"file-").or_else(|| bytes.strip_prefix(ODD))?;
        let index = std::str::from_utf8(rest).ok()?.parse().ok()?;
        let name = Self { directory, index };
        (name.text() == text).then_some(name)
    }
}

/// A file, numbered in the order in which handles were first seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileNumber(pub u32);

/// Names an operation of a run, in the order of their beginnings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct OperationNumber(pub u64);

/// An operation on names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NameOperation {
    /// OPEN that makes the file; guarded, it must not be there.
    Create {
        name: Name,
        /// Whether an existing file is an error.
        guarded: bool,
    },
    /// OPEN of what must be there.
    Open { name: Name },
    /// LOOKUP.
    Lookup { name: Name },
    /// REMOVE.
    Remove { name: Name },
    /// RENAME, replacing what is there.
    Rename { from: Name, to: Name },
    /// LINK.
    Link {
        file: FileNumber,
        /// Its further name.
        name: Name,
    },
    /// READDIR of a whole directory in one page.
    List { directory: u8 },
    /// GETATTR of the count of names.
    Links { file: FileNumber },
}

impl NameOperation {
    /// Whether it may change anything.
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

/// How the bytes of a read or write travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// In the message.
    Inline,
    /// By RDMA.
    Direct,
}

/// An operation on the content of an open file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DataOperation {
    /// READ.
    Read {
        /// Bytes from the file's beginning.
        offset: u64,
        length: u32,
        way: Way,
    },
    /// WRITE; short ones travel inline by the client's own choice.
    Write {
        /// Bytes from the file's beginning.
        offset: u64,
        data: Vec<u8>,
        /// How stable the data must be when the answer comes.
        stability: Stability,
    },
    /// APPEND.
    Append { data: Vec<u8>, way: Way },
    /// COMMIT.
    Commit,
    /// SETATTR of the size.
    SetSize { size: u64 },
    /// GETATTR of the size.
    Size,
}

/// Any operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// On names.
    Name(NameOperation),
    /// On the content of one of the files with names.
    Data(FileNumber, DataOperation),
    /// APPEND of a record to the file that everybody appends to.
    Record {
        /// Bytes of the record, its head included.
        length: u32,
        way: Way,
    },
    /// READ of that file, from its beginning.
    Records { length: u32 },
    /// CLOSE of an open file.
    Close(FileNumber),
}

/// An answer whose meaning is certain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The procedure failed.
    Status(Status),
    /// It was done; there is nothing more to say.
    Done,
    /// This file has the name.
    File(FileNumber),
    /// These are all names of the directory.
    Names(Vec<(Name, FileNumber)>),
    /// So many names.
    Links(u32),
    /// Bytes read, and whether the file ends behind them.
    Bytes(Vec<u8>, bool),
    /// Bytes written.
    Written(u32),
    /// Bytes from the file's beginning to what was appended.
    Offset(u64),
    /// Bytes of the file.
    Size(u64),
}

/// How an operation ended, as far as its client can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The server has answered.
    Known(Answer),
    /// The server, or the client, has seen that bytes were damaged on their way.
    Damaged,
    /// The connection broke.
    Lost,
}
