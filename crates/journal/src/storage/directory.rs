//! Storage in a directory of this machine.
//!
//! Invariant: every system call takes one path component relative to the directory's descriptor and
//! follows no symbolic link. Only one process at a time holds the lock of the directory.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dafs_types::CloneSource;
use reflink_copy::ReflinkBlockBuilder;
use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::{Blob, BlobName, CloneError, Result, Storage, StorageError, ZEROS};

/// A locked directory that stores blobs as files.
#[derive(Debug)]
pub struct DirectoryStorage {
    directory: File,
    /// The lock file, which stays locked until this value is dropped. The kernel releases the lock
    /// when the process ends.
    _lock: File,
    path: PathBuf,
}

impl DirectoryStorage {
    /// Opens a directory and locks it. Creates the directory if necessary, and sets its mode to
    /// 0700, because its files contain data of other users.
    ///
    /// # Errors
    /// [`StorageError::InUse`] if this or another process has it open; otherwise the system's
    /// error. A symbolic link in place of the directory is an error.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let failed = |action, errno: rustix::io::Errno| {
            StorageError::from_io(action, &path.display().to_string(), errno.into())
        };
        match rustix::fs::mkdir(&path, Mode::RWXU) {
            Ok(()) => sync_parent(&path)?,
            Err(rustix::io::Errno::EXIST) => (),
            Err(errno) => return Err(failed("make", errno)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory =
            rustix::fs::open(&path, flags, Mode::empty()).map_err(|e| failed("open", e))?;
        rustix::fs::fchmod(&directory, Mode::RWXU).map_err(|e| failed("restrict access to", e))?;
        let directory = File::from(directory);
        let lock = lock(&directory, &path)?;
        Ok(Self { directory, _lock: lock, path })
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that blobs in this directory can share blocks with files in another directory, by a
    /// trial with two unnamed files.
    ///
    /// # Errors
    /// The system's error in the first step that fails.
    pub fn try_reflink_from(&self, directory: &Path) -> io::Result<()> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let source = File::from(rustix::fs::open(directory, flags, mode)?);
        let target = File::from(rustix::fs::openat(&self.directory, c".", flags, mode)?);
        let length = rustix::fs::fstatvfs(&source)?.f_bsize.clamp(1, TRIAL_BYTES_MAX);
        source.write_all_at(&vec![1; length as usize], 0)?;
        clone(&source, &target, 0..length)
    }

    fn open_file(&self, name: &BlobName, extra: OFlags) -> io::Result<File> {
        open_regular(&self.directory, name.as_str(), extra)
    }

    fn blob(&self, name: &BlobName, file: File) -> Arc<dyn Blob> {
        Arc::new(FileBlob { file, name: name.clone() })
    }
}

impl Storage for DirectoryStorage {
    fn create(&self, name: &BlobName) -> Result<Arc<dyn Blob>> {
        match self.open_file(name, OFlags::CREATE | OFlags::EXCL) {
            Ok(file) => Ok(self.blob(name, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(StorageError::Exists { name: name.clone() })
            }
            Err(error) => Err(StorageError::from_io("make", name.as_str(), error)),
        }
    }

    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>> {
        match self.open_file(name, OFlags::empty()) {
            Ok(file) => Ok(self.blob(name, file)),
            Err(error) => Err(missing_or("open", name, error)),
        }
    }

    fn list(&self) -> Result<Vec<BlobName>> {
        let failed = |errno: rustix::io::Errno| {
            StorageError::from_io("list", &self.path.display().to_string(), errno.into())
        };
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_str().ok().and_then(BlobName::new);
            names.extend(name.filter(|name| name.as_str() != LOCK_NAME));
            if names.len() > NAME_COUNT_MAX {
                return Err(StorageError::TooManyNames { count_max: NAME_COUNT_MAX });
            }
        }
        names.sort();
        Ok(names)
    }

    fn remove(&self, name: &BlobName) -> Result<()> {
        let flags = rustix::fs::AtFlags::empty();
        rustix::fs::unlinkat(&self.directory, name.as_str(), flags)
            .map_err(|errno| missing_or("remove", name, errno.into()))
    }

    fn sync_names(&self) -> Result<()> {
        self.directory
            .sync_all()
            .map_err(|error| StorageError::from_io("sync", &self.path.display().to_string(), error))
    }

    fn has_reflinks(&self) -> bool {
        self.try_reflink_from(&self.path).is_ok()
    }
}

/// A regular file in the directory, open for reading and writing.
struct FileBlob {
    file: File,
    name: BlobName,
}

impl FileBlob {
    fn failed(&self, action: &'static str, error: io::Error) -> StorageError {
        StorageError::from_io(action, self.name.as_str(), error)
    }
}

impl Blob for FileBlob {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut read = 0;
        while read < buffer.len() {
            match self.file.read_at(&mut buffer[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(count) => read += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => return Err(self.failed("read", error)),
            }
        }
        Ok(read)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(|error| self.failed("write", error))
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|error| self.failed("sync", error))
    }

    fn share_blocks(
        &self,
        source: &dyn CloneSource,
        range: Range<u64>,
    ) -> std::result::Result<(), CloneError> {
        let Some(file) = source.file() else {
            return Err(CloneError::Unable { source: io::ErrorKind::Unsupported.into() });
        };
        clone(file, &self.file, range).map_err(|error| {
            let is_for_good =
                NEVER.iter().any(|errno| Some(*errno) == Errno::from_io_error(&error));
            if is_for_good {
                CloneError::Unable { source: error }
            } else {
                self.failed("share blocks with", error).into()
            }
        })
    }

    fn length(&self) -> Result<u64> {
        let metadata = self.file.metadata().map_err(|error| self.failed("look at", error))?;
        Ok(metadata.len())
    }

    fn set_length(&self, length: u64) -> Result<()> {
        self.file.set_len(length).map_err(|error| self.failed("set the length of", error))
    }

    fn preallocate(&self, length: u64) -> Result<()> {
        // Allocate one long extent, and detect a full disk before anything is written. The zeros
        // are written nevertheless: converting an extent that was only reserved to a written one is
        // a change of metadata at the first write.
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, length) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => (),
            Err(errno) => return Err(self.failed("preallocate", errno.into())),
        }
        for offset in (0..length).step_by(ZEROS.len()) {
            let part = (length - offset).min(ZEROS.len() as u64) as usize;
            self.write_at(offset, &ZEROS[..part])?;
        }
        Ok(())
    }
}

/// Makes a file share blocks of another file at the same offsets (FICLONERANGE).
fn clone(from: &File, to: &File, range: Range<u64>) -> io::Result<()> {
    // A length of 0 would mean the rest of the file.
    let Some(length) = NonZeroU64::new(range.end.saturating_sub(range.start)) else {
        return Ok(());
    };
    let builder = ReflinkBlockBuilder::new(from, to, length);
    builder.from_offset(range.start).to_offset(range.start).reflink_block()
}

/// Locks the directory's lock file and writes a description of this process to it.
fn lock(directory: &File, path: &Path) -> Result<File> {
    let failed = |error| StorageError::from_io("lock", &path.display().to_string(), error);
    let lock = open_regular(directory, LOCK_NAME, OFlags::CREATE).map_err(failed)?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => (),
        Err(rustix::io::Errno::AGAIN) => {
            let mut word = [0; HOLDER_BYTES_MAX];
            let length = lock.read_at(&mut word, 0).unwrap_or(0);
            let word = String::from_utf8_lossy(&word[..length]);
            let holder = match word.trim() {
                "" => "an unknown process".to_owned(),
                word => word.to_owned(),
            };
            let process = holder.strip_prefix("process ").and_then(|number| number.parse().ok());
            return Err(StorageError::InUse { path: path.to_owned(), holder, process });
        }
        Err(errno) => return Err(failed(errno.into())),
    }
    let word = format!("process {}\n", std::process::id());
    lock.set_len(0).and_then(|()| lock.write_all_at(word.as_bytes(), 0)).map_err(failed)?;
    Ok(lock)
}

/// Opens or creates a regular file. Never blocks, unlike an open of a FIFO.
fn open_regular(directory: &File, name: &str, extra: OFlags) -> io::Result<File> {
    let flags =
        OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::openat(directory, name, flags | extra, Mode::RUSR | Mode::WUSR)?;
    let status = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Err(io::Error::from(rustix::io::Errno::LOOP));
    }
    Ok(File::from(file))
}

fn missing_or(action: &'static str, name: &BlobName, error: io::Error) -> StorageError {
    let is_not_regular = [rustix::io::Errno::LOOP, rustix::io::Errno::ISDIR]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()));
    match error.kind() {
        io::ErrorKind::NotFound => StorageError::NotFound { name: name.clone() },
        _ if is_not_regular => StorageError::NotRegular { name: name.to_string() },
        _ => StorageError::from_io(action, name.as_str(), error),
    }
}

/// Makes the name of a new directory durable.
fn sync_parent(path: &Path) -> Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    File::open(parent)
        .and_then(|parent| parent.sync_all())
        .map_err(|error| StorageError::from_io("sync", &parent.display().to_string(), error))
}

/// The system's errors that mean that two files can never share blocks.
const NEVER: [Errno; 5] = [Errno::OPNOTSUPP, Errno::XDEV, Errno::NOTTY, Errno::NOSYS, Errno::PERM];
/// The size in bytes of the trial files. It is larger than a block of any file system.
const TRIAL_BYTES_MAX: u64 = 1 << 20;
/// The name of the file whose lock protects the directory.
const LOCK_NAME: &str = "lock";
/// The maximum number of bytes that are read of the lock holder's description.
const HOLDER_BYTES_MAX: usize = 128;
/// The maximum number of names that are read from the directory.
const NAME_COUNT_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn name(name: &str) -> BlobName {
        BlobName::new(name).unwrap()
    }

    #[test]
    fn blobs_keep_what_is_written() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("journal");
        let storage = DirectoryStorage::open(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let blob = storage.create(&name("a-1")).unwrap();
        assert!(matches!(storage.create(&name("a-1")), Err(StorageError::Exists { .. })));
        blob.preallocate(600_000).unwrap();
        blob.write_at(599_999, b"xyz").unwrap();
        blob.sync().unwrap();
        storage.sync_names().unwrap();
        drop(storage);
        // Files that do not belong to the journal are ignored.
        std::fs::write(path.join("Read.me"), b"").unwrap();
        let storage = DirectoryStorage::open(&path).unwrap();
        assert_eq!(storage.list().unwrap(), [name("a-1")]);
        let blob = storage.open(&name("a-1")).unwrap();
        assert_eq!(blob.length().unwrap(), 600_002);
        let mut buffer = [1; 10];
        assert_eq!(blob.read_at(599_997, &mut buffer).unwrap(), 5);
        assert_eq!(&buffer[..5], b"\0\0xyz");
        blob.set_length(3).unwrap();
        assert_eq!(blob.length().unwrap(), 3);
        storage.remove(&name("a-1")).unwrap();
        assert!(matches!(storage.open(&name("a-1")), Err(StorageError::NotFound { .. })));
        assert!(matches!(storage.remove(&name("a-1")), Err(StorageError::NotFound { .. })));
    }

    #[test]
    fn two_servers_never_share_a_directory() {
        let place = tempfile::tempdir().unwrap();
        let storage = DirectoryStorage::open(place.path()).unwrap();
        let error = DirectoryStorage::open(place.path()).unwrap_err();
        let holder = format!("process {}", std::process::id());
        assert!(error.to_string().contains(&holder), "{error}");
        drop(storage);
        DirectoryStorage::open(place.path()).unwrap();
    }

    struct Source(File);

    impl CloneSource for Source {
        fn file(&self) -> Option<&File> {
            Some(&self.0)
        }

        fn size(&self) -> io::Result<u64> {
            Ok(self.0.metadata()?.len())
        }

        fn block_bytes(&self) -> io::Result<u64> {
            Ok(4096)
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
            FileExt::read_at(&self.0, buffer, offset)
        }
    }

    /// Tests, on any file system, that sharing blocks works if the trial has succeeded.
    #[test]
    fn blocks_are_shared_or_it_is_said_that_they_never_will_be() {
        let place = tempfile::tempdir().unwrap();
        let storage = DirectoryStorage::open(place.path().join("journal")).unwrap();
        let names = storage.list().unwrap();
        let has_reflinks = storage.has_reflinks();
        assert_eq!(storage.list().unwrap(), names, "the trial leaves something");
        std::fs::write(place.path().join("source"), [7; 3 * 4096]).unwrap();
        let source = Source(File::open(place.path().join("source")).unwrap());
        let blob = storage.create(&name("clone")).unwrap();
        match blob.share_blocks(&source, 4096..8192) {
            Ok(()) => {
                let mut bytes = [1; 8192];
                assert_eq!(blob.read_at(0, &mut bytes).unwrap(), 8192);
                assert!(bytes[..4096] == [0; 4096] && bytes[4096..] == [7; 4096]);
                assert!(has_reflinks);
            }
            Err(CloneError::Unable { .. }) => assert!(!has_reflinks),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn links_and_pipes_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let storage = DirectoryStorage::open(place.path().join("journal")).unwrap();
        let outside = place.path().join("outside");
        std::fs::write(&outside, b"precious").unwrap();
        symlink(&outside, storage.path().join("log")).unwrap();
        assert!(matches!(storage.open(&name("log")), Err(StorageError::NotRegular { .. })));
        assert!(matches!(storage.create(&name("log")), Err(StorageError::Exists { .. })));
        let fifo = storage.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, fifo, Mode::RUSR | Mode::WUSR).unwrap();
        assert!(matches!(storage.open(&name("pipe")), Err(StorageError::NotRegular { .. })));
        // A symbolic link in place of the directory, or of its lock.
        let link = place.path().join("link");
        symlink(storage.path(), &link).unwrap();
        assert!(DirectoryStorage::open(&link).is_err());
        let other = place.path().join("other");
        std::fs::create_dir(&other).unwrap();
        symlink(&outside, other.join("lock")).unwrap();
        assert!(DirectoryStorage::open(&other).is_err());
        assert_eq!(std::fs::read(&outside).unwrap(), b"precious");
    }
}
