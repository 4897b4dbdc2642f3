//! Encodes and decodes the journal's records about clients and files (`docs/spec/journal.md`, "The
//! server's records"): clients with state, locks, fencing lists, undo data.
//!
//! Invariant: the rules of `docs/spec/journal.md` hold. No record in this module depends on a
//! protocol.

use dafs_filer::locks::{ByteRange, LockAttributes, LockId, LockMode, LockRecord, RecordPhase};
use dafs_filer::{ClientRecord, FenceId, FenceRecord, FencedObject, FileKey, Principal};
use dafs_journal::{RecordKind, UndoId};
use dafs_types::{ClientId, FileHandle, FsHandle, Verifier};

use super::bytes::{Put, Take};

/// A record that can be written to the journal.
pub trait Entry {
    /// Returns the kind of the record, which identifies its layout.
    fn kind(&self) -> RecordKind;
    /// Returns the encoded record without its kind.
    fn encode(&self) -> Vec<u8>;
}

/// A record about clients or files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateRecord {
    /// A client has state that it may reclaim after a restart.
    Client(ClientRecord),
    /// The client with this name no longer has state.
    ClientGone(Box<[u8]>),
    /// The client with this name takes plain locks, which are not recorded themselves.
    Locker(Box<[u8]>),
    /// A lock that survives its owner, and the handle of the locked file. The file key in the
    /// lock's record is not used.
    Lock(FileHandle, Box<LockRecord>),
    /// The lock with this id has ended.
    LockGone(LockId),
    /// The new fencing list of an object. An empty list gives every client access.
    Fence(FenceRecord),
    /// After this record, the bytes that are overwritten in a range are saved in the undo data with
    /// this id.
    UndoKept {
        /// The id of the undo data.
        id: UndoId,
        /// The handle of the file.
        handle: FileHandle,
        /// The range of bytes in the file.
        range: ByteRange,
    },
    /// The undo data of a range is no longer valid.
    UndoDropped {
        /// The handle of the file.
        handle: FileHandle,
        /// The range of bytes in the file.
        range: ByteRange,
    },
}

impl Entry for StateRecord {
    fn kind(&self) -> RecordKind {
        RecordKind(match self {
            Self::Client(_) => 6,
            Self::ClientGone(_) => 7,
            Self::Lock(..) => 8,
            Self::LockGone(_) => 9,
            Self::Fence(_) => 10,
            Self::Locker(_) => 11,
            Self::UndoKept { .. } => 20,
            Self::UndoDropped { .. } => 21,
        })
    }

    fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        match self {
            Self::Client(client) => {
                to.put_rest(&client.verifier.0);
                put_principal(&mut to, &client.principal);
                to.put_rest(&client.name);
            }
            Self::ClientGone(name) | Self::Locker(name) => to.put_rest(name),
            Self::Lock(handle, lock) => put_lock(&mut to, handle, lock),
            Self::LockGone(id) => to.put_u64(id.0),
            Self::Fence(fence) => put_fence(&mut to, fence),
            Self::UndoKept { id, handle, range } => {
                to.put_u64(id.0);
                put_range_of(&mut to, handle, *range);
            }
            Self::UndoDropped { handle, range } => put_range_of(&mut to, handle, *range),
        }
        to
    }
}

impl StateRecord {
    /// Converts each handle in the record to the form that the store uses now. The record may have
    /// been written by another server.
    pub fn renew(&mut self, renew: impl Fn(&mut FileHandle)) {
        match self {
            Self::Lock(handle, _)
            | Self::UndoKept { handle, .. }
            | Self::UndoDropped { handle, .. } => renew(handle),
            Self::Fence(fence) => match &mut fence.object {
                FencedObject::File(handle) => renew(handle),
                FencedObject::FileSystem(fs) => {
                    let mut alone = FileHandle::new(*fs, [0; 48]);
                    renew(&mut alone);
                    *fs = alone.fs();
                }
            },
            Self::Client(_) | Self::ClientGone(_) | Self::Locker(_) | Self::LockGone(_) => {}
        }
    }

    /// Decodes a record of this kind. `None` if the record is malformed or of an unknown kind.
    pub fn take(kind: u16, from: &mut &[u8]) -> Option<Self> {
        Some(match kind {
            6 => Self::Client(ClientRecord {
                verifier: Verifier(from.take_array()?),
                principal: take_principal(from)?,
                name: std::mem::take(from).into(),
                has_locks: false,
            }),
            7 => Self::ClientGone(std::mem::take(from).into()),
            8 => {
                let (handle, lock) = take_lock(from)?;
                Self::Lock(handle, Box::new(lock))
            }
            9 => Self::LockGone(LockId(from.take_u64()?)),
            10 => Self::Fence(take_fence(from)?),
            11 => Self::Locker(std::mem::take(from).into()),
            20 => {
                let id = UndoId(from.take_u64()?);
                let (handle, range) = take_range_of(from)?;
                Self::UndoKept { id, handle, range }
            }
            21 => {
                let (handle, range) = take_range_of(from)?;
                Self::UndoDropped { handle, range }
            }
            _ => return None,
        })
    }
}

/// Appends the encoded identity of a client.
pub fn put_principal(to: &mut Vec<u8>, principal: &Principal) {
    match principal {
        Principal::Anonymous => to.push(0),
        Principal::LocalUser(uid) => {
            to.push(1);
            to.put_u32(*uid);
        }
        Principal::User(name) => {
            to.push(2);
            to.put_counted(name.as_bytes());
        }
        Principal::Gss(name) => {
            to.push(3);
            to.put_counted(name.as_bytes());
        }
    }
}

/// Decodes the identity of a client from the front of `from`. `None` if it is malformed.
pub fn take_principal(from: &mut &[u8]) -> Option<Principal> {
    match from.take_u8()? {
        0 => Some(Principal::Anonymous),
        1 => Some(Principal::LocalUser(from.take_u32()?)),
        2 => Some(Principal::User(std::str::from_utf8(from.take_counted()?).ok()?.into())),
        3 => Some(Principal::Gss(std::str::from_utf8(from.take_counted()?).ok()?.into())),
        _ => None,
    }
}

fn put_lock(to: &mut Vec<u8>, handle: &FileHandle, lock: &LockRecord) {
    to.put_u64(lock.id.0);
    to.put_rest(&handle.0);
    to.put_u64(lock.client.0);
    to.put_rest(&lock.verifier.0);
    to.put_u64(lock.range.first());
    to.put_u64(lock.range.last());
    let options = u8::from(lock.attributes.persist) | u8::from(lock.attributes.auto_recovery) << 1;
    to.push(options | u8::from(lock.mode == LockMode::Write) << 2);
    to.push(match lock.phase {
        RecordPhase::Held => 0,
        RecordPhase::Revoked => 1,
        RecordPhase::BrokenUnrolled => 2,
        RecordPhase::Broken => 3,
    });
    to.put_counted(&lock.client_name);
    to.put_counted(&lock.principal);
    to.put_counted(&lock.owner);
}

fn take_lock(from: &mut &[u8]) -> Option<(FileHandle, LockRecord)> {
    let id = LockId(from.take_u64()?);
    let handle = take_handle(from)?;
    let (client, verifier) = (ClientId(from.take_u64()?), Verifier(from.take_array()?));
    let range = ByteRange::from_ends(from.take_u64()?, from.take_u64()?)?;
    let bits = from.take_u8()?;
    let attributes = LockAttributes {
        persist: bits & 1 != 0,
        auto_recovery: bits & 2 != 0,
        ..LockAttributes::PLAIN
    };
    let mode = if bits & 4 != 0 { LockMode::Write } else { LockMode::Read };
    let phase = match from.take_u8()? {
        0 => RecordPhase::Held,
        1 => RecordPhase::Revoked,
        2 => RecordPhase::BrokenUnrolled,
        3 => RecordPhase::Broken,
        _ => return None,
    };
    let client_name = from.take_counted()?.into();
    let principal = from.take_counted()?.into();
    let owner = from.take_counted()?.into();
    let file = FileKey(0);
    let lock = LockRecord {
        id,
        file,
        client,
        client_name,
        principal,
        verifier,
        owner,
        range,
        mode,
        attributes,
        phase,
    };
    Some((handle, lock))
}

fn put_fence(to: &mut Vec<u8>, fence: &FenceRecord) {
    match &fence.object {
        FencedObject::File(file) => {
            to.push(0);
            to.put_rest(&file.0);
        }
        FencedObject::FileSystem(fs) => {
            to.push(1);
            to.put_rest(&fs.0);
        }
    }
    to.put_u32(fence.fence_ids.len() as u32);
    for fence_id in &fence.fence_ids {
        to.put_counted(fence_id.as_str().as_bytes());
    }
}

fn take_fence(from: &mut &[u8]) -> Option<FenceRecord> {
    let object = match from.take_u8()? {
        0 => FencedObject::File(take_handle(from)?),
        1 => FencedObject::FileSystem(from.take_array().map(FsHandle)?),
        _ => return None,
    };
    let count = from.take_u32()?;
    let mut take_id = || FenceId::new(std::str::from_utf8(from.take_counted()?).ok()?).ok();
    // Each id takes several bytes, so decoding with a wrong count fails at the end of the record.
    let fence_ids = (0..count).map(|_| take_id()).collect::<Option<_>>()?;
    Some(FenceRecord { object, fence_ids })
}

fn put_range_of(to: &mut Vec<u8>, handle: &FileHandle, range: ByteRange) {
    to.put_rest(&handle.0);
    to.put_u64(range.first());
    to.put_u64(range.last());
}

fn take_range_of(from: &mut &[u8]) -> Option<(FileHandle, ByteRange)> {
    let handle = take_handle(from)?;
    Some((handle, ByteRange::from_ends(from.take_u64()?, from.take_u64()?)?))
}

/// Decodes a file handle from the front of `from`. `None` if too few bytes are left.
pub fn take_handle(from: &mut &[u8]) -> Option<FileHandle> {
    from.take_array().map(FileHandle)
}
