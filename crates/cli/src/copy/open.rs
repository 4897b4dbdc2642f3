//! An open end of a copy, and the check whether two ends are the same object.
//!
//! Invariant: the check compares open files, never names, and happens before the target is
//! truncated.

use std::fs::File as LocalFile;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use anyhow::{Result, bail};
use dafs_client::{Client, File, FileHandle, SetAttributes, Timestamp, block_on};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// An open file, local or remote.
pub(crate) enum Open {
    /// A regular local file.
    Local(LocalFile),
    /// A local file that is read or written sequentially: a pipe, a terminal or a device.
    Stream(LocalFile),
    /// A file on a server.
    Remote(Box<File>),
}

/// The attributes that distinguish objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    /// The device of a local file's file system.
    device: Option<u64>,
    /// The handle of a remote file.
    handle: Option<FileHandle>,
    /// The inode number, for local and remote files.
    number: u64,
    /// The time of the last change of the inode (ctime).
    changed: Timestamp,
}

/// The result of comparing two identities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Same,
    Different,
    /// The inode numbers are equal but the change times differ: two objects on different file
    /// systems, or one that changed between the two queries.
    Unsure,
}

impl Identity {
    pub(super) fn of_local(metadata: &std::fs::Metadata) -> Self {
        Self {
            device: Some(metadata.dev()),
            handle: None,
            number: metadata.ino(),
            changed: Timestamp {
                seconds: metadata.ctime(),
                nanoseconds: u32::try_from(metadata.ctime_nsec()).unwrap_or(0),
            },
        }
    }

    pub(super) fn of_remote(metadata: &dafs_client::Metadata) -> Self {
        Self {
            device: None,
            handle: Some(metadata.handle),
            number: metadata.file_id,
            changed: metadata.time_metadata,
        }
    }

    /// True if both identities belong to the same object, as far as these two snapshots show.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.compare(other) == Verdict::Same
    }

    fn compare(&self, other: &Self) -> Verdict {
        let is_one = self.number == other.number;
        // A file that is seen through a mount of a server has another device number, although the
        // server may export a local file.
        let has_one_device = self.device.is_some() && self.device == other.device;
        let has_one_handle = self.handle.is_some() && self.handle == other.handle;
        if has_one_device {
            return if is_one { Verdict::Same } else { Verdict::Different };
        }
        match (has_one_handle, is_one, self.changed == other.changed) {
            (true, ..) | (_, true, true) => Verdict::Same,
            (false, false, _) => Verdict::Different,
            (false, true, false) => Verdict::Unsure,
        }
    }
}

impl Open {
    /// Wraps a local file that has been opened.
    pub(crate) fn of_local(file: LocalFile) -> std::io::Result<Self> {
        let is_file = file.metadata()?.is_file();
        Ok(if is_file { Self::Local(file) } else { Self::Stream(file) })
    }

    async fn identity(&self) -> Result<Identity> {
        match self {
            Self::Local(file) | Self::Stream(file) => Ok(Identity::of_local(&file.metadata()?)),
            Self::Remote(file) => {
                let found = file.session().metadata_async(file.handle(), file.path()).await?;
                Ok(Identity::of_remote(&found))
            }
        }
    }

    /// True if both files are the same object, whatever names or transports were used to open them.
    pub(crate) async fn is_same(&self, other: &Self) -> Result<bool> {
        let mut own = self.identity().await?;
        for _ in 0..LOOKS_MAX {
            let others = other.identity().await?;
            match own.compare(&others) {
                Verdict::Same => return Ok(true),
                Verdict::Different => return Ok(false),
                Verdict::Unsure => {}
            }
            // A change that a server has not written back yet would give different change times
            // locally and remotely.
            self.settle().await;
            other.settle().await;
            let again = self.identity().await?;
            if again == own && other.identity().await? == others {
                return Ok(false);
            }
            own = again;
        }
        bail!(
            "it changes all the time, so it is not possible to check whether source and target \
        are the same file"
        )
    }

    /// Makes a server write back pending changes of the file. An error is ignored, because a server
    /// that refuses has no pending change that this open could flush.
    async fn settle(&self) {
        match self {
            Self::Remote(file) => drop(file.commit_async().await),
            // The file may be on a mount of a server.
            Self::Local(file) => drop(file.sync_all()),
            Self::Stream(_) => {}
        }
    }

    /// Truncates an existing file to zero bytes.
    pub(crate) async fn cut(&self) -> Result<()> {
        match self {
            Self::Local(file) => Ok(file.set_len(0)?),
            Self::Stream(_) => Ok(()),
            Self::Remote(file) => {
                let nothing = SetAttributes { size: Some(0), ..SetAttributes::default() };
                Ok(file.set_attributes_async(&nothing).await?)
            }
        }
    }

    /// Returns the size that the file reports, in bytes.
    pub(crate) async fn size(&self) -> Result<u64> {
        match self {
            Self::Local(file) | Self::Stream(file) => Ok(file.metadata()?.len()),
            Self::Remote(file) => {
                let found = file.session().metadata_async(file.handle(), file.path()).await?;
                Ok(found.size)
            }
        }
    }

    /// Sends a message to the server, so that the lease of this open does not expire.
    pub(crate) fn greet(&self) -> Result<()> {
        match self {
            Self::Local(_) | Self::Stream(_) => Ok(()),
            Self::Remote(file) => Ok(file.session().ping()?),
        }
    }
}

/// True if the remote file is the standard output of this process.
pub(crate) fn is_output(client: &Client, file: &File) -> Result<bool> {
    let output = std::io::stdout().as_fd().try_clone_to_owned()?;
    let Open::Local(output) = Open::of_local(output.into())? else { return Ok(false) };
    let found = block_on(client, file.session().metadata_async(file.handle(), file.path()))?;
    // An empty file is safe to read: it ends before anything is written to it.
    Ok(found.size > 0
        && Identity::of_local(&output.metadata()?).is_same(&Identity::of_remote(&found)))
}

/// Reads the next bytes of a stream into a buffer. Returns 0 at the end of the stream. Calls `idle`
/// regularly while there is no data.
pub(crate) fn read_next(
    mut from: &LocalFile,
    bytes: &mut [u8],
    mut idle: impl FnMut() -> Result<()>,
) -> Result<usize> {
    let patience = IDLE.try_into()?;
    loop {
        let mut fds = [PollFd::new(from, PollFlags::IN)];
        match poll(&mut fds, Some(&patience)) {
            // `idle` notices a signal that asks this process to end.
            Err(Errno::INTR) | Ok(0) => {
                idle()?;
                continue;
            }
            done => done?,
        };
        match from.read(bytes) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => idle()?,
            read => return Ok(read?),
        }
    }
}

/// The maximum number of times that two objects are compared again because they seem to change.
const LOOKS_MAX: u32 = 16;
/// The interval of calls to `idle`, shorter than any practical lease.
const IDLE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn here(device: u64, number: u64, seconds: i64) -> Identity {
        let changed = Timestamp { seconds, nanoseconds: 0 };
        Identity { device: Some(device), handle: None, number, changed }
    }

    fn there(handle: u8, number: u64, seconds: i64) -> Identity {
        let handle = Some(FileHandle([handle; FileHandle::LENGTH]));
        Identity { device: None, handle, ..here(0, number, seconds) }
    }

    #[test]
    fn objects_are_told_apart_by_what_both_sides_know() {
        assert_eq!(here(1, 2, 3).compare(&here(1, 2, 9)), Verdict::Same);
        assert_eq!(here(1, 2, 3).compare(&here(1, 4, 3)), Verdict::Different);
        // One file directly and through a mount, then two file systems with equal inode numbers.
        assert_eq!(here(1, 2, 3).compare(&here(2, 2, 3)), Verdict::Same);
        assert_eq!(here(1, 2, 3).compare(&here(2, 2, 9)), Verdict::Unsure);
        assert_eq!(here(1, 2, 3).compare(&here(2, 4, 3)), Verdict::Different);
        assert_eq!(there(1, 2, 3).compare(&there(1, 2, 9)), Verdict::Same);
        // Two exports of which one contains the other, then two file systems with equal inode
        // numbers.
        assert_eq!(there(1, 2, 3).compare(&there(7, 2, 3)), Verdict::Same);
        assert_eq!(there(1, 2, 3).compare(&there(7, 2, 9)), Verdict::Unsure);
        assert_eq!(here(1, 2, 3).compare(&there(1, 2, 3)), Verdict::Same);
        assert_eq!(here(1, 2, 3).compare(&there(1, 2, 9)), Verdict::Unsure);
        assert_eq!(here(1, 2, 3).compare(&there(1, 4, 3)), Verdict::Different);
    }
}
