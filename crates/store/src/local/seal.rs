//! File handles that only this server can make.
//!
//! Invariant: nothing in a handle is used before its seal is verified: SipHash-2-4 over the other
//! 56 bytes, with a 128-bit key that never leaves the state directory.
//!
//! A handle consists of:
//! - 6 bytes: the export.
//! - 2 bytes: the number of the server node that created the object; 0 if the server has no other
//!   nodes.
//! - 8 bytes: the file system; 0 for the file system of the export's root.
//! - 4 bytes: one byte each: the form, the length of a kernel handle, the facet, and zero.
//! - 4 bytes: the type of a kernel handle, or zero.
//! - 32 bytes: the body. For a named attribute, its last 8 bytes are the hash of the name.
//! - 8 bytes: the seal.
//!
//! Handles of older versions have 8 bytes for the export and no node number. They remain valid
//! without a time limit, but replies contain handles in the new form.

use std::hash::Hasher;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use dafs_memory::kernel_handle::KernelHandle;
use dafs_types::{FileHandle, FsHandle, Timestamp, check_secret};
use siphasher::sip::SipHasher24;

/// The way in which an object is found from its handle.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Identity {
    /// By a file handle of the kernel.
    Kernel(KernelHandle),
    /// By inode number and creation time, because an inode number is reused after a removal.
    Inode { number: u64, birth: Timestamp },
    /// A virtual directory that leads to exports. The integer is a hash of its path; 0 is the root.
    Virtual(u64),
}

/// What a handle names: an object, the directory of the object's named attributes, or one named
/// attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Facet {
    /// The object itself.
    Object,
    /// The directory of the object's named attributes.
    AttributeDirectory,
    /// A named attribute. The integer is the hash of its name; see [`Sealer::name_number`].
    Attribute(u64),
}

impl Identity {
    /// Returns true if a handle has room for both this identity and the hash of an attribute's
    /// name.
    pub(super) fn leaves_room(&self) -> bool {
        match self {
            Self::Kernel(handle) => handle.bytes().len() <= ATTRIBUTE_AT - 8,
            Self::Inode { .. } => true,
            Self::Virtual(_) => false,
        }
    }
}

/// The decoded parts of a handle.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Parts {
    /// The number of the export, with the server's node number in the upper 16 bits; see
    /// [`Sealer::export_id`].
    pub export: u64,
    /// The number of the file system beneath the export; 0 for the file system of the export's
    /// root.
    pub file_system: u64,
    pub identity: Identity,
    pub facet: Facet,
}

/// The key with which handles are signed.
pub(super) struct Sealer {
    key: [u8; 16],
}

impl Sealer {
    /// Reads the key, or creates one that only this user can read.
    pub(super) fn load(directory: &Path) -> std::io::Result<Self> {
        let path = directory.join(KEY_FILE);
        let mut key = [0; 16];
        match std::fs::File::open(&path) {
            Ok(mut file) => {
                let (metadata, user) = (file.metadata()?, rustix::process::geteuid().as_raw());
                check_secret(metadata.uid(), metadata.mode(), user).map_err(|exposed| {
                    let text = format!("the key of handles, {}: {exposed}", path.display());
                    std::io::Error::new(std::io::ErrorKind::PermissionDenied, text)
                })?;
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
        // If a second server starts at the same time, both must use the key that was linked first.
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

    /// Returns the number that stands for an export in handles. It depends on the export's name,
    /// not on the export's position in the configuration.
    ///
    /// The upper 16 bits of the number are 0; handles have the node number there. The number 0
    /// means the virtual root.
    pub(super) fn export_id(&self, name: &[u8]) -> u64 {
        (self.old_export_id(name) & EXPORT_MASK).max(1)
    }

    /// Returns the 64-bit number that stands for an export in handles of older versions, which
    /// contain no node number.
    pub(super) fn old_export_id(&self, name: &[u8]) -> u64 {
        self.hash(b"export", name)
    }

    /// Returns the number that stands for a virtual directory in handles. It is not 0, which stands
    /// for the root.
    pub(super) fn virtual_number(&self, path: &[u8]) -> u64 {
        self.hash(b"virtual", path).max(1)
    }

    /// Returns a hash of the name of a named attribute. A handle has no room for the name itself.
    pub(super) fn name_number(&self, name: &[u8]) -> u64 {
        self.hash(b"attribute", name)
    }

    /// Returns a file number for an object without an inode number. It has 52 bits, which is the
    /// range of file numbers of one server.
    pub(super) fn file_number(&self, handle: &FileHandle) -> u64 {
        // Set the top bit: no local file system uses inode numbers as high as this.
        self.hash(b"number", &handle.0) & (FILE_NUMBER_TOP - 1) | FILE_NUMBER_TOP
    }

    /// Returns eight bytes that depend on a handle and reveal nothing about the key.
    pub(super) fn verifier(&self, handle: &FileHandle) -> [u8; 8] {
        self.hash(b"cookie", &handle.0).to_le_bytes()
    }

    pub(super) fn seal(&self, parts: &Parts) -> FileHandle {
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
            Identity::Virtual(number) => {
                id[0] = FORM_VIRTUAL;
                id[8..16].copy_from_slice(&number.to_le_bytes());
            }
        }
        match parts.facet {
            Facet::Object => {}
            Facet::AttributeDirectory => id[2] = FACET_DIRECTORY,
            Facet::Attribute(number) => {
                id[2] = FACET_ATTRIBUTE;
                id[ATTRIBUTE_AT..40].copy_from_slice(&number.to_le_bytes());
            }
        }
        let unsealed = FileHandle::new(FsHandle(fs), id);
        let seal = self.hash(b"handle", &unsealed.0[..SEALED]);
        id[40..].copy_from_slice(&seal.to_le_bytes());
        FileHandle::new(FsHandle(fs), id)
    }

    /// Verifies and decodes a handle. Returns `None` if the handle was not signed with this key.
    pub(super) fn open(&self, handle: &FileHandle) -> Option<Parts> {
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
            FORM_VIRTUAL => Identity::Virtual(number(&id[8..16])?),
            _ => return None,
        };
        let facet = match id[2] {
            0 => Facet::Object,
            FACET_DIRECTORY => Facet::AttributeDirectory,
            FACET_ATTRIBUTE => Facet::Attribute(number(&id[ATTRIBUTE_AT..40])?),
            _ => return None,
        };
        Some(Parts { export: number(&fs[..8])?, file_system: number(&fs[8..])?, identity, facet })
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
/// The lower 48 bits of the first word of a handle, which hold the export's number. The upper 16
/// bits hold the server's node number.
const EXPORT_MASK: u64 = (1 << 48) - 1;
/// The highest bit of a file number below the bits of the server's node number.
const FILE_NUMBER_TOP: u64 = 1 << 51;
const FORM_KERNEL: u8 = 1;
const FORM_INODE: u8 = 2;
const FORM_VIRTUAL: u8 = 3;
const FACET_DIRECTORY: u8 = 1;
const FACET_ATTRIBUTE: u8 = 2;
/// The offset of the hash of an attribute's name in the last 48 bytes of a handle.
const ATTRIBUTE_AT: usize = 32;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_that_others_can_read_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        Sealer::load(directory.path()).unwrap();
        let key = directory.path().join(KEY_FILE);
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
        let error = Sealer::load(directory.path()).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("mode 644"), "{error}");
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o400)).unwrap();
        Sealer::load(directory.path()).unwrap();
    }
}
