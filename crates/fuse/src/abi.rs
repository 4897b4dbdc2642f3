//! Encodes and decodes the kernel's messages (`linux/fuse.h`, version 7.40).
//!
//! Invariant: reading a message that is shorter than its kind requires returns `None` and never
//! panics. All integers are in native byte order.

use crate::tasks::Requester;

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub opcode: u32,
    /// The number of the request, which its reply repeats.
    pub unique: u64,
    /// The node that the request is for.
    pub node: u64,
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
}

/// The size of a request's header in bytes.
pub(crate) const IN_HEADER_BYTES: usize = 40;
/// The size of a reply's header in bytes.
pub(crate) const OUT_HEADER_BYTES: usize = 16;
/// The number of bytes before the data of a WRITE.
pub(crate) const WRITE_HEADER_BYTES: usize = IN_HEADER_BYTES + 40;

impl Header {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let _length = fields.u32()?;
        let (opcode, unique, node) = (fields.u32()?, fields.u64()?, fields.u64()?);
        let (uid, gid, pid) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let _extensions = fields.u32()?;
        Some(Self { opcode, unique, node, uid, gid, pid })
    }

    /// Returns the process that waits for the reply.
    pub(crate) fn requester(&self) -> Requester {
        Requester { unique: self.unique, pid: self.pid }
    }
}

/// Reads the fields of a message one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'m>(pub &'m [u8]);

impl<'m> Fields<'m> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    /// Reads a text up to a zero byte, and skips the zero.
    pub(crate) fn text(&mut self) -> Option<&'m [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let (text, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Some(text)
    }

    /// Returns the bytes that were not read yet.
    pub(crate) fn rest(self) -> &'m [u8] {
        self.0
    }
}

/// Builds a message.
#[derive(Debug, Default)]
pub(crate) struct Message(pub Vec<u8>);

impl Message {
    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends zeros up to a multiple of eight bytes.
    pub(crate) fn pad(&mut self) -> &mut Self {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        self
    }
}

/// The numbers that identify the kinds of requests.
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const GETLK: u32 = 31;
    pub(crate) const SETLK: u32 = 32;
    pub(crate) const SETLKW: u32 = 33;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
}

/// The bits that say which attributes a SETATTR sets.
pub(crate) mod set {
    pub(crate) const MODE: u32 = 1;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
}

/// Flags in the reply to OPEN.
pub(crate) mod open {
    /// The page cache is not used for this file.
    pub(crate) const DIRECT_IO: u32 = 1;
    /// The contents of the page cache are still valid.
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
    /// Direct writes may run in parallel.
    pub(crate) const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// The request is for a `flock` lock, not for a record lock.
pub(crate) const LK_FLOCK: u32 = 1;
/// RELEASE also releases a `flock` lock.
pub(crate) const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
/// The node number of the root.
pub(crate) const ROOT: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_request_is_none() {
        let bytes = [0; IN_HEADER_BYTES];
        assert!(Header::read(&mut Fields(&bytes)).is_some());
        assert_eq!(Header::read(&mut Fields(&bytes[1..])), None);
        assert_eq!(Fields(b"no end").text(), None);
    }

    #[test]
    fn names_end_with_a_zero() {
        let mut fields = Fields(b"one\0two\0rest");
        assert_eq!(fields.text(), Some(&b"one"[..]));
        assert_eq!(fields.text(), Some(&b"two"[..]));
        assert_eq!(fields.rest(), b"rest");
    }
}
