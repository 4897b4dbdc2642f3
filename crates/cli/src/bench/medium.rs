//! A typical file system without the cost of a disk: ext4 with a journal, in memory.
//!
//! A journaling file system, which most local directories are on, needs about twice as much time
//! for many small files as tmpfs. A disk would hide the differences that the benchmark compares. A
//! file system that is in use would hide them too, because its speed depends on its history.
//!
//! Invariant: the file system is mounted in a namespace that only this process and its children
//! see, so the kernel unmounts it when the last of them ends.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::mount::{MntFlags, MsFlags};
use nix::sched::CloneFlags;

use super::host::has;
use crate::cleanup::Scratch;

/// A directory to measure in.
pub(super) struct Medium {
    directory: PathBuf,
    /// A description of the file system that the directory is on, for the report.
    pub kind: String,
    mounted: Option<Scratch>,
}

impl Medium {
    /// Uses an existing directory.
    pub(super) fn at(directory: &Path) -> Self {
        let kind = directory.display().to_string();
        Self { directory: directory.to_owned(), kind, mounted: None }
    }

    /// Makes a new file system with a journal. If the file system cannot be mounted, prints the
    /// reason and uses a memory file system, or else the directory for temporary files.
    pub(super) fn journaled() -> Self {
        mounted().unwrap_or_else(|error| {
            let other = memory().unwrap_or_else(std::env::temp_dir);
            println!(
                "cannot make a file system with a journal, using {} instead: {error:#}",
                other.display()
            );
            Self::at(&other)
        })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Medium {
    fn drop(&mut self) {
        if self.mounted.is_some() {
            // A lazy unmount: the file system stays until the last process closes its files.
            let _ = nix::mount::umount2(&self.directory, MntFlags::MNT_DETACH);
        }
    }
}

/// Returns the directory of a memory file system, if there is one.
pub(super) fn memory() -> Option<PathBuf> {
    let memory = Path::new("/dev/shm");
    memory.is_dir().then(|| memory.to_owned())
}

fn mounted() -> Result<Medium> {
    let mkfs = ["mkfs.ext4", "/sbin/mkfs.ext4"];
    let Some(mkfs) = mkfs.into_iter().find(|name| has(name) || Path::new(name).is_file()) else {
        bail!("there is no mkfs.ext4: install the package e2fsprogs");
    };
    let memory = memory().context("there is no /dev/shm")?;
    let scratch = Scratch::new("dafs-medium-", Some(&memory))?;
    let (image, directory) = (scratch.path().join("image"), scratch.path().join("mount"));
    std::fs::create_dir(&directory)?;
    std::fs::File::create(&image)?.set_len(IMAGE_BYTES)?;
    let image = image.as_os_str();
    quietly(Command::new(mkfs).args(MKFS_OPTIONS).arg(image))?;
    nix::sched::unshare(CloneFlags::CLONE_NEWNS)
        .context("making a mount namespace (needs root)")?;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    nix::mount::mount(None::<&str>, "/", None::<&str>, private, None::<&str>)?;
    quietly(Command::new("mount").args(["-t", "ext4", "-o", "loop"]).arg(image).arg(&directory))?;
    // The mount keeps the image alive, so an interrupted run leaves no memory allocated.
    std::fs::remove_file(image)?;
    let kind = "ext4 with a journal".to_owned();
    Ok(Medium { directory, kind, mounted: Some(scratch) })
}

fn quietly(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?}: {}", said.trim());
    }
    Ok(())
}

/// The size of the file system in bytes, larger than any benchmark needs. The image of the file
/// system is a sparse file, which only takes the memory that is written.
const IMAGE_BYTES: u64 = 2 << 30;
/// Options of mkfs that initialize everything immediately, so that the kernel does no background
/// work during a measurement.
const MKFS_OPTIONS: [&str; 5] =
    ["-q", "-F", "-O", "has_journal", "-Elazy_itable_init=0,lazy_journal_init=0"];
