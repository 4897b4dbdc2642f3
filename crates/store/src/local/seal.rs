//! File handles that only this server can make.
//!
//! Invariant: nothing in a handle is believed before its seal is: SipHash-2-4 with a
//! 128-bit key that never leaves the state directory, over the other 56 octets.
//!
//! Layout: 8 octets export, 8 octets file system (0: that of the export's root), then
//! form, length, 2 zeros, 4 kind, 32 body, 8 seal.

use std::hash::Hasher;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use dafs_memory::kernel_handle::KernelHandle;
use dafs_types::{FileHandle, FsHandle, Timestamp};
use siphasher::sip::SipHasher24;

/// How an object is found again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Identity {
    /// By the kernel.
    Kernel(KernelHandle),
    /// By number and time of birth: the number alone is used again after a removal.
    Inode { number: u64, birth: Timestamp },
    /// The directory that lists several exports.
    VirtualRoot,
}

/// A handle taken apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Parts {
    /// Which export; see [`Sealer::export_id`].
    pub export: u64,
    /// Which file system beneath it; 0 for that of its root.
    pub file_system: u64,
    pub identity: Identity,
}

/// The key.
pub(super) struct Sealer {
    key: [u8; 16],
}

impl Sealer {
    /// Reads the key, or makes one that only this user can read.
    pub fn load(directory: &Path) -> std::io::Result<Self> {
        let path = directory.join(KEY_FILE);
        let mut key = [0; 16];
        match std::fs::File::open(&path) {
            Ok(mut file) => {
                file.read_exact(&mut key)?;
                return Ok(Self { key });
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        std::fs::create_dir_all(directory)?;
        std::fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
        let draft = directory.join(format!("{KEY_FILE}.{}", std::process::id()));
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(&key)?;
        file.sync_all()?;
        // A second server that starts at the same moment must not get another key.
        let linked = std::fs::hard_link(&draft, &path);
        std::fs::remove_file(&draft)?;
        std::fs::File::open(directory)?.sync_all()?;
        match linked {
            Ok(()) => Ok(Self { key }),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                std::fs::File::open(&path)?.read_exact(&mut key)?;
                Ok(Self { key })
            }
            Err(error) => Err(error),
        }
    }

    /// Stands for an export by its name, not by its place in the configuration.
    pub fn export_id(&self, name: &str) -> u64 {
        self.hash(b"export", name.as_bytes())
    }

    /// Eight octets that go with a handle and tell nothing of the key.
    pub fn verifier(&self, handle: &FileHandle) -> [u8; 8] {
        self.hash(b"cookie", &handle.0).to_le_bytes()
    }

    pub fn seal(&self, parts: &Parts) -> FileHandle {
        let mut fs = [0; 16];
        fs[..8].copy_from_slice(&parts.export.to_le_bytes());
        fs[8..].copy_from_slice(&parts.file_system.to_le_bytes());
        let mut id = [0; 48];
        match parts.identity {
            Identity::Kernel(handle) => {
                id[0] = FORM_KERNEL;
                id[1] = handle.bytes().len() as u8;
                id[4..8].copy_from_slice(&handle.kind().to_le_bytes());
                id[8..8 + handle.bytes().len()].copy_from_slice(handle.bytes());
            }
            Identity::Inode { number, birth } => {
                id[0] = FORM_INODE;
                id[8..16].copy_from_slice(&number.to_le_bytes());
                id[16..24].copy_from_slice(&birth.seconds.to_le_bytes());
                id[24..28].copy_from_slice(&birth.nanoseconds.to_le_bytes());
            }
            Identity::VirtualRoot => id[0] = FORM_VIRTUAL_ROOT,
        }
        let unsealed = FileHandle::new(FsHandle(fs), id);
        let seal = self.hash(b"handle", &unsealed.0[..SEALED]);
        id[40..].copy_from_slice(&seal.to_le_bytes());
        FileHandle::new(FsHandle(fs), id)
    }

    /// `None` for whatever this key did not seal.
    pub fn open(&self, handle: &FileHandle) -> Option<Parts> {
        let seal = self.hash(b"handle", &handle.0[..SEALED]).to_le_bytes();
        let differing = seal.iter().zip(&handle.0[SEALED..]).fold(0, |sum, (a, b)| sum | (a ^ b));
        if differing != 0 {
            return None;
        }
        let (fs, id) = (handle.fs().0, handle.file_id());
        let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).ok();
        let identity = match id[0] {
            FORM_KERNEL => {
                let kind = i32::from_le_bytes(id[4..8].try_into().ok()?);
                let bytes = id[8..40].get(..usize::from(id[1]))?;
                Identity::Kernel(KernelHandle::from_parts(kind, bytes)?)
            }
            FORM_INODE => Identity::Inode {
                number: number(&id[8..16])?,
                birth: Timestamp {
                    seconds: number(&id[16..24])? as i64,
                    nanoseconds: u32::from_le_bytes(id[24..28].try_into().ok()?),
                },
            },
            FORM_VIRTUAL_ROOT => Identity::VirtualRoot,
            _ => return None,
        };
        Some(Parts { export: number(&fs[..8])?, file_system: number(&fs[8..])?, identity })
    }

    fn hash(&self, purpose: &[u8], bytes: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(purpose);
        hasher.write(bytes);
        hasher.finish()
    }
}

const KEY_FILE: &str = "handle.key";
const SEALED: usize = 56;
const FORM_KERNEL: u8 = 1;
const FORM_INODE: u8 = 2;
const FORM_VIRTUAL_ROOT: u8 = 3;
