//! A file system as users have it, without their disk: ext4 with a journal, in memory.
//!
//! Many small files cost a file system that keeps a journal about twice what they cost one that
//! is in memory, and that is what a local directory usually is. A disk would hide what is compared;
//! so would a file system in use, which depends on what was done to it before.
//!
//! Invariant: it is mounted where only this process and its children see it, so that the system
//! lets go of it with the last of them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::mount::{MntFlags, MsFlags};
use nix::sched::CloneFlags;

use super::host::has;
use crate::keeper::Scratch;

/// A directory to measure in.
pub struct Medium {
    directory: PathBuf,
    /// What kind of file system it is on.
    pub kind: String,
    mounted: Option<Scratch>,
}

impl Medium {
    /// A directory that is there already.
    pub fn at(directory: &Path) -> Self {
        let kind = directory.display().to_string();
        Self { directory: directory.to_owned(), kind, mounted: None }
    }

    /// A new file system with a journal; in memory, or where temporary files go, if it cannot be
    /// mounted, and says why.
    pub fn journaled() -> Self {
        mounted().unwrap_or_else(|error| {
            let other = memory().unwrap_or_else(std::env::temp_dir);
            println!("no file system with a journal, {} instead: {error:#}", other.display());
            Self::at(&other)
        })
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Medium {
    fn drop(&mut self) {
        if self.mounted.is_some() {
            // Whoever still has a file open there keeps it as long.
            let _ = nix::mount::umount2(&self.directory, MntFlags::MNT_DETACH);
        }
    }
}

/// Where files are in memory, if there is such a place.
pub fn memory() -> Option<PathBuf> {
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
    nix::sched::unshare(CloneFlags::CLONE_NEWNS).context("a mount of one's own takes root")?;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    nix::mount::mount(None::<&str>, "/", None::<&str>, private, None::<&str>)?;
    quietly(Command::new("mount").args(["-t", "ext4", "-o", "loop"]).arg(image).arg(&directory))?;
    // The mount keeps it: an interrupted run leaves no memory behind.
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

/// More than is ever used: a file in memory takes what is written to it.
const IMAGE_BYTES: u64 = 2 << 30;
/// All of it is made at once: nothing is made later, while somebody is measured.
const MKFS_OPTIONS: [&str; 5] =
    ["-q", "-F", "-O", "has_journal", "-Elazy_itable_init=0,lazy_journal_init=0"];
