//! An open end of a copy, and whether two of them are one object.
//!
//! Invariant: whether two ends are one is asked of what is open, never of names, and before
//! anything of the target is cut.

use std::fs::File as LocalFile;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use anyhow::{Result, bail};
use dafs_client::{Client, File, FileHandle, SetAttributes, Timestamp, block_on};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// An open file of either side.
pub enum Open {
    /// A regular file here.
    Local(LocalFile),
    /// Something here that is read or written from front to back: a pipe, a terminal, a device.
    Stream(LocalFile),
    /// A file of a server.
    Remote(Box<File>),
}

/// What tells objects apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The file system, for what is here.
    device: Option<u64>,
    /// For what is on a server.
    handle: Option<FileHandle>,
    /// Its number in its file system, here as there.
    number: u64,
    /// When anything of it was changed last.
    changed: Timestamp,
}

/// What the comparison of two identities has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Same,
    Different,
    /// The same number and another time of change: two objects of different file systems, or one
    /// that was changed between the questions.
    Unsure,
}

impl Identity {
    pub fn of_local(metadata: &std::fs::Metadata) -> Self {
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

    pub fn of_remote(metadata: &dafs_client::Metadata) -> Self {
        Self {
            device: None,
            handle: Some(metadata.handle),
            number: metadata.file_id,
            changed: metadata.time_metadata,
        }
    }

    /// Whether both are one object, as far as these two looks tell.
    pub fn is_same(&self, other: &Self) -> bool {
        self.compare(other) == Verdict::Same
    }

    fn compare(&self, other: &Self) -> Verdict {
        let is_one = self.number == other.number;
        // A mount of a server shows another device for what may be a file of this machine.
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
    /// What was opened here.
    pub fn of_local(file: LocalFile) -> std::io::Result<Self> {
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

    /// Whether both are one object, by whatever names and ways they were opened.
    pub async fn is_same(&self, other: &Self) -> Result<bool> {
        let mut own = self.identity().await?;
        for _ in 0..LOOKS_MAX {
            let others = other.identity().await?;
            match own.compare(&others) {
                Verdict::Same => return Ok(true),
                Verdict::Different => return Ok(false),
                Verdict::Unsure => {}
            }
            // What a server holds back of changes would show another time there than here.
            self.settle().await;
            other.settle().await;
            let again = self.identity().await?;
            if again == own && other.identity().await? == others {
                return Ok(false);
            }
            own = again;
        }
        bail!("it is changed all the time, so that nobody can tell whether the copy is the file")
    }

    /// Has a server bring to its disk what it holds back. One that refuses holds back nothing
    /// that this open could change.
    async fn settle(&self) {
        match self {
            Self::Remote(file) => drop(file.commit_async().await),
            // It may be on a mount of a server.
            Self::Local(file) => drop(file.sync_all()),
            Self::Stream(_) => {}
        }
    }

    /// Cuts what is there already to nothing.
    pub async fn cut(&self) -> Result<()> {
        match self {
            Self::Local(file) => Ok(file.set_len(0)?),
            Self::Stream(_) => Ok(()),
            Self::Remote(file) => {
                let nothing = SetAttributes { size: Some(0), ..SetAttributes::default() };
                Ok(file.set_attributes_async(&nothing).await?)
            }
        }
    }

    /// How many bytes it says it has.
    pub async fn size(&self) -> Result<u64> {
        match self {
            Self::Local(file) | Self::Stream(file) => Ok(file.metadata()?.len()),
            Self::Remote(file) => {
                let found = file.session().metadata_async(file.handle(), file.path()).await?;
                Ok(found.size)
            }
        }
    }

    /// Lets a server hear of this client, so that it keeps what is open.
    pub fn greet(&self) -> Result<()> {
        match self {
            Self::Local(_) | Self::Stream(_) => Ok(()),
            Self::Remote(file) => Ok(file.session().ping()?),
        }
    }
}

/// Whether a file of a server is what this process writes its output to.
pub fn is_output(client: &Client, file: &File) -> Result<bool> {
    let output = std::io::stdout().as_fd().try_clone_to_owned()?;
    let Open::Local(output) = Open::of_local(output.into())? else { return Ok(false) };
    let found = block_on(client, file.session().metadata_async(file.handle(), file.path()))?;
    // An empty one ends before anything is written to it.
    Ok(found.size > 0
        && Identity::of_local(&output.metadata()?).is_same(&Identity::of_remote(&found)))
}

/// The next bytes of a stream; none at its end. `idle` is called now and then meanwhile.
pub fn read_next(
    mut from: &LocalFile,
    bytes: &mut [u8],
    mut idle: impl FnMut() -> Result<()>,
) -> Result<usize> {
    let patience = IDLE.try_into()?;
    loop {
        let mut fds = [PollFd::new(from, PollFlags::IN)];
        match poll(&mut fds, Some(&patience)) {
            // A signal may want an end.
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

/// Looks at two objects that seem to be changed while they are compared.
const LOOKS_MAX: u32 = 16;
/// Shorter than any lease that makes sense.
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
        // By itself and through a mount, and two file systems with equal numbers.
        assert_eq!(here(1, 2, 3).compare(&here(2, 2, 3)), Verdict::Same);
        assert_eq!(here(1, 2, 3).compare(&here(2, 2, 9)), Verdict::Unsure);
        assert_eq!(here(1, 2, 3).compare(&here(2, 4, 3)), Verdict::Different);
        assert_eq!(there(1, 2, 3).compare(&there(1, 2, 9)), Verdict::Same);
        // Two exports that lie in one another, and two file systems with equal numbers.
        assert_eq!(there(1, 2, 3).compare(&there(7, 2, 3)), Verdict::Same);
        assert_eq!(there(1, 2, 3).compare(&there(7, 2, 9)), Verdict::Unsure);
        assert_eq!(here(1, 2, 3).compare(&there(1, 2, 3)), Verdict::Same);
        assert_eq!(here(1, 2, 3).compare(&there(1, 2, 9)), Verdict::Unsure);
        assert_eq!(here(1, 2, 3).compare(&there(1, 4, 3)), Verdict::Different);
    }
}
