//! Parses the kernel's requests.
//!
//! Invariants: a request of an unsupported kind is [`ParseError::Unknown`], and a request whose
//! bytes do not fit its kind is [`ParseError::Malformed`]. The two are never confused, because the
//! kernel never sends an unknown kind again. No operation begins before its request is parsed
//! completely.

use crate::abi::{Fields, opcode as op};
use crate::attributes::SetAttributesRequest;
use crate::locks::LockRequest;

/// The reason why a request cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParseError {
    /// This kind of request is not supported.
    Unknown,
    /// The bytes do not fit this kind of request.
    Malformed,
}

/// A request without its header. Names are as the kernel sent them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request<'m> {
    Lookup {
        name: &'m [u8],
    },
    Forget {
        lookups: u64,
    },
    ForgetMany {
        nodes: Forgotten<'m>,
    },
    GetAttributes,
    SetAttributes {
        wish: SetAttributesRequest,
    },
    ReadLink,
    SymbolicLink {
        name: &'m [u8],
        target: &'m [u8],
    },
    MakeNode {
        name: &'m [u8],
        mode: u32,
        device: u32,
    },
    MakeDirectory {
        name: &'m [u8],
        mode: u32,
    },
    Remove {
        name: &'m [u8],
    },
    Rename {
        name: &'m [u8],
        target: u64,
        new_name: &'m [u8],
        flags: u32,
    },
    Link {
        source: u64,
        name: &'m [u8],
    },
    Create {
        name: &'m [u8],
        mode: u32,
        flags: u32,
    },
    Open {
        flags: u32,
    },
    Read {
        file: u64,
        offset: u64,
        size: u32,
    },
    FileSystem,
    Release {
        file: u64,
        how: u32,
        owner: u64,
    },
    Flush {
        file: u64,
        owner: u64,
    },
    Sync {
        file: u64,
    },
    OpenDirectory,
    ReadDirectory {
        directory: u64,
        offset: u64,
        size: u32,
        plus: bool,
    },
    ReleaseDirectory {
        directory: u64,
    },
    SyncDirectory,
    TestLock {
        wish: LockRequest,
    },
    SetLock {
        wish: LockRequest,
    },
    SetExtended {
        name: &'m [u8],
        value: &'m [u8],
        flags: u32,
    },
    GetExtended {
        name: &'m [u8],
        size: u32,
    },
    ListExtended {
        size: u32,
    },
    RemoveExtended {
        name: &'m [u8],
    },
    Interrupt {
        unique: u64,
    },
    Destroy,
    /// An allocation of space, which is not supported.
    Allocate,
}

/// Nodes, and the number of lookups of each that the kernel forgets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forgotten<'m>(Fields<'m>, u32);

impl Iterator for Forgotten<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        self.1 = self.1.checked_sub(1)?;
        Some((self.0.u64()?, self.0.u64()?))
    }
}

/// A WRITE without its header and its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub file: u64,
    pub offset: u64,
    pub size: u32,
    pub flags: u32,
}

impl Write {
    /// Reads a `struct fuse_write_in`. `there` is the number of bytes of data in the request.
    pub(crate) fn read(fields: &mut Fields<'_>, there: usize) -> Option<Self> {
        let (file, offset, size, flags) =
            (fields.u64()?, fields.u64()?, fields.u32()?, fields.u32()?);
        (there >= size as usize).then_some(Self { file, offset, size, flags })
    }
}

type Read = for<'m> fn(Fields<'m>) -> Option<Request<'m>>;

impl<'m> Request<'m> {
    /// Parses the bytes after the header of a request.
    ///
    /// # Errors
    /// A [`ParseError`] if the kind is not supported or the bytes do not fit it.
    pub(crate) fn read(opcode: u32, rest: &'m [u8]) -> Result<Self, ParseError> {
        let kind = KINDS.iter().find(|(number, _)| *number == opcode);
        let (_, read) = kind.ok_or(ParseError::Unknown)?;
        read(Fields(rest)).ok_or(ParseError::Malformed)
    }
}

/// True if the kernel waits for a reply to this kind of request.
pub(crate) fn is_answered(opcode: u32) -> bool {
    !matches!(opcode, op::FORGET | op::BATCH_FORGET | op::INTERRUPT)
}

/// The parser of each supported kind, except WRITE, which [`Write::read`] parses.
const KINDS: &[(u32, Read)] = &[
    (op::LOOKUP, |mut it| Some(Request::Lookup { name: it.text()? })),
    (op::FORGET, |mut it| Some(Request::Forget { lookups: it.u64()? })),
    (op::GETATTR, |_| Some(Request::GetAttributes)),
    (op::SETATTR, |mut it| {
        Some(Request::SetAttributes { wish: SetAttributesRequest::read(&mut it)? })
    }),
    (op::READLINK, |_| Some(Request::ReadLink)),
    (op::SYMLINK, |mut it| Some(Request::SymbolicLink { name: it.text()?, target: it.text()? })),
    (op::MKNOD, make_node),
    (op::MKDIR, make_directory),
    (op::UNLINK, |mut it| Some(Request::Remove { name: it.text()? })),
    (op::RMDIR, |mut it| Some(Request::Remove { name: it.text()? })),
    (op::RENAME, |it| rename(it, false)),
    (op::LINK, |mut it| Some(Request::Link { source: it.u64()?, name: it.text()? })),
    (op::OPEN, |mut it| Some(Request::Open { flags: it.u32()? })),
    (op::READ, read),
    (op::STATFS, |_| Some(Request::FileSystem)),
    (op::RELEASE, release),
    (op::FSYNC, |mut it| Some(Request::Sync { file: it.u64()? })),
    (op::SETXATTR, set_extended),
    (op::GETXATTR, get_extended),
    (op::LISTXATTR, |mut it| Some(Request::ListExtended { size: it.u32()? })),
    (op::REMOVEXATTR, |mut it| Some(Request::RemoveExtended { name: it.text()? })),
    (op::FLUSH, flush),
    (op::OPENDIR, |_| Some(Request::OpenDirectory)),
    (op::READDIR, |it| read_directory(it, false)),
    (op::RELEASEDIR, |mut it| Some(Request::ReleaseDirectory { directory: it.u64()? })),
    (op::FSYNCDIR, |_| Some(Request::SyncDirectory)),
    (op::GETLK, |mut it| Some(Request::TestLock { wish: LockRequest::read(&mut it, false)? })),
    (op::SETLK, |mut it| Some(Request::SetLock { wish: LockRequest::read(&mut it, false)? })),
    (op::SETLKW, |mut it| Some(Request::SetLock { wish: LockRequest::read(&mut it, true)? })),
    (op::CREATE, create),
    (op::INTERRUPT, |mut it| Some(Request::Interrupt { unique: it.u64()? })),
    (op::DESTROY, |_| Some(Request::Destroy)),
    (op::BATCH_FORGET, forget_many),
    (op::FALLOCATE, |_| Some(Request::Allocate)),
    (op::READDIRPLUS, |it| read_directory(it, true)),
    (op::RENAME2, |it| rename(it, true)),
];

fn make_node(mut it: Fields<'_>) -> Option<Request<'_>> {
    let (mode, device, _umask, _) = (it.u32()?, it.u32()?, it.u32()?, it.u32()?);
    Some(Request::MakeNode { name: it.text()?, mode, device })
}

fn make_directory(mut it: Fields<'_>) -> Option<Request<'_>> {
    let (mode, _umask) = (it.u32()?, it.u32()?);
    Some(Request::MakeDirectory { name: it.text()?, mode })
}

fn rename(mut it: Fields<'_>, has_flags: bool) -> Option<Request<'_>> {
    let target = it.u64()?;
    let flags = match has_flags {
        true => (it.u32()?, it.u32()?).0,
        false => 0,
    };
    Some(Request::Rename { name: it.text()?, target, new_name: it.text()?, flags })
}

fn create(mut it: Fields<'_>) -> Option<Request<'_>> {
    let (flags, mode, _umask, _) = (it.u32()?, it.u32()?, it.u32()?, it.u32()?);
    Some(Request::Create { name: it.text()?, mode, flags })
}

fn read(mut it: Fields<'_>) -> Option<Request<'_>> {
    Some(Request::Read { file: it.u64()?, offset: it.u64()?, size: it.u32()? })
}

fn release(mut it: Fields<'_>) -> Option<Request<'_>> {
    let (file, _flags, how, owner) = (it.u64()?, it.u32()?, it.u32()?, it.u64()?);
    Some(Request::Release { file, how, owner })
}

fn flush(mut it: Fields<'_>) -> Option<Request<'_>> {
    let (file, _, _, owner) = (it.u64()?, it.u32()?, it.u32()?, it.u64()?);
    Some(Request::Flush { file, owner })
}

fn read_directory(mut it: Fields<'_>, plus: bool) -> Option<Request<'_>> {
    let (directory, offset, size) = (it.u64()?, it.u64()?, it.u32()?);
    Some(Request::ReadDirectory { directory, offset, size, plus })
}

fn set_extended(mut it: Fields<'_>) -> Option<Request<'_>> {
    let (size, flags) = (it.u32()? as usize, it.u32()?);
    let name = it.text()?;
    Some(Request::SetExtended { name, value: it.rest().get(..size)?, flags })
}

fn get_extended(mut it: Fields<'_>) -> Option<Request<'_>> {
    let (size, _) = (it.u32()?, it.u32()?);
    Some(Request::GetExtended { name: it.text()?, size })
}

fn forget_many(mut it: Fields<'_>) -> Option<Request<'_>> {
    let (count, _) = (it.u32()?, it.u32()?);
    let needed = (count as usize).checked_mul(2 * size_of::<u64>())?;
    (it.rest().len() >= needed).then_some(Request::ForgetMany { nodes: Forgotten(it, count) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the size of the shortest request of a kind: the number of bytes in its numbers, and
    /// the number of one-letter texts after them.
    fn shortest(opcode: u32) -> (usize, usize) {
        match opcode {
            op::GETATTR | op::READLINK | op::STATFS | op::OPENDIR => (0, 0),
            op::FSYNCDIR | op::DESTROY | op::FALLOCATE => (0, 0),
            op::LOOKUP | op::UNLINK | op::RMDIR | op::REMOVEXATTR => (0, 1),
            op::SYMLINK => (0, 2),
            op::OPEN | op::LISTXATTR => (4, 0),
            op::FORGET | op::FSYNC | op::RELEASEDIR | op::INTERRUPT | op::BATCH_FORGET => (8, 0),
            op::MKDIR | op::LINK | op::GETXATTR | op::SETXATTR => (8, 1),
            op::RENAME => (8, 2),
            op::MKNOD | op::CREATE => (16, 1),
            op::RENAME2 => (16, 2),
            op::READ | op::READDIR | op::READDIRPLUS => (20, 0),
            op::RELEASE | op::FLUSH => (24, 0),
            op::GETLK | op::SETLK | op::SETLKW => (44, 0),
            op::SETATTR => (84, 0),
            _ => panic!("opcode {opcode} is served, and this test does not know it"),
        }
    }

    #[test]
    fn a_request_of_any_kind_that_is_cut_short_is_malformed_and_never_unknown() {
        for (opcode, _) in KINDS {
            let (numbers, texts) = shortest(*opcode);
            let mut whole = vec![0; numbers];
            (0..texts).for_each(|_| whole.extend_from_slice(b"n\0"));
            assert!(Request::read(*opcode, &whole).is_ok(), "opcode {opcode}");
            for length in 0..whole.len() {
                let unread = Request::read(*opcode, &whole[..length]).unwrap_err();
                assert_eq!(unread, ParseError::Malformed, "opcode {opcode}, {length} bytes");
            }
        }
    }

    #[test]
    fn lengths_that_say_more_than_there_is_are_malformed() {
        let mut many = vec![0xff; 8];
        many.extend_from_slice(&[0; 160]);
        assert_eq!(Request::read(op::BATCH_FORGET, &many).unwrap_err(), ParseError::Malformed);
        let mut value = 5u32.to_ne_bytes().to_vec();
        value.extend_from_slice(b"\0\0\0\0name\0four");
        assert_eq!(Request::read(op::SETXATTR, &value).unwrap_err(), ParseError::Malformed);
        value[0] = 4;
        let read = Request::read(op::SETXATTR, &value).unwrap();
        assert!(matches!(read, Request::SetExtended { value: b"four", .. }), "{read:?}");
        let mut write = [0; 40];
        write[16] = 9;
        assert_eq!(Write::read(&mut Fields(&write), 8), None);
        assert_eq!(Write::read(&mut Fields(&write), 9).map(|write| write.size), Some(9));
        assert_eq!(Write::read(&mut Fields(&write[..20]), 9), None);
    }

    #[test]
    fn no_other_kind_is_served() {
        let served: Vec<u32> = KINDS.iter().map(|(number, _)| *number).collect();
        for opcode in (0..=u32::from(u16::MAX)).filter(|opcode| !served.contains(opcode)) {
            assert_eq!(Request::read(opcode, &[0; 128]).unwrap_err(), ParseError::Unknown);
        }
        for (index, number) in served.iter().enumerate() {
            assert!(!served[..index].contains(number), "opcode {number} stands there twice");
        }
    }

    #[test]
    fn nodes_that_are_forgotten_are_as_many_as_are_said() {
        let mut bytes = vec![2, 0, 0, 0, 0, 0, 0, 0];
        for number in [7u64, 1, 8, 2, 9, 3] {
            bytes.extend_from_slice(&number.to_ne_bytes());
        }
        let Ok(Request::ForgetMany { nodes }) = Request::read(op::BATCH_FORGET, &bytes) else {
            panic!("it is whole");
        };
        assert_eq!(nodes.collect::<Vec<_>>(), [(7, 1), (8, 2)]);
    }
}
