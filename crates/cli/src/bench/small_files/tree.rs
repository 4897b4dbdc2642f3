//! The trees to copy: one with files, and one with the same directories and no files.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use dafs_types::Random;

/// The paths of the two trees, and the size of the tree with files.
pub(super) struct Trees {
    pub full: PathBuf,
    /// The directories of `full`, without files.
    pub bare: PathBuf,
    pub size: Size,
}

/// The size of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    /// The number of regular files.
    pub files: usize,
    /// The total bytes of the regular files.
    pub bytes: u64,
}

impl Trees {
    /// Makes both trees in `scratch`. The full tree is a copy of the regular files and directories
    /// of `tree`, or is generated if `tree` is `None`.
    pub(super) fn make(tree: Option<&Path>, files: usize, scratch: &Path) -> Result<Self> {
        let trees =
            Self { full: scratch.join("full"), bare: scratch.join("bare"), size: Size::default() };
        match tree {
            Some(tree) => copy(tree, &trees.full, true)?,
            None => generate(files, &trees.full)?,
        }
        copy(&trees.full, &trees.bare, false)?;
        let size = size_of(&trees.full)?;
        if size.files == 0 {
            bail!("there is no file in the tree, so there is nothing to measure");
        }
        Ok(Self { size, ..trees })
    }

    /// Fails if a copy does not have the same number of files and bytes.
    pub(super) fn check(&self, copy: &Path) -> Result<()> {
        let found = size_of(copy)?;
        if found != self.size {
            bail!("{} contains {found:?} instead of {:?}", copy.display(), self.size);
        }
        Ok(())
    }
}

fn size_of(directory: &Path) -> Result<Size> {
    let mut size = Size::default();
    for entry in directory.read_dir().with_context(|| directory.display().to_string())? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            let below = size_of(&entry.path())?;
            (size.files, size.bytes) = (size.files + below.files, size.bytes + below.bytes);
        } else if metadata.is_file() {
            (size.files, size.bytes) = (size.files + 1, size.bytes + metadata.len());
        }
    }
    Ok(size)
}

/// Copies the directories of a tree, and its regular files if `has_files` is set.
fn copy(from: &Path, to: &Path, has_files: bool) -> Result<()> {
    std::fs::create_dir(to).with_context(|| format!("making {}", to.display()))?;
    for entry in from.read_dir().with_context(|| from.display().to_string())? {
        let entry = entry?;
        let (kind, to) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &to, has_files)?;
        } else if kind.is_file() && has_files {
            std::fs::copy(entry.path(), &to).with_context(|| entry.path().display().to_string())?;
        }
    }
    Ok(())
}

/// Generates a tree of small files.
fn generate(files: usize, to: &Path) -> Result<()> {
    let mut random = Random::new(1);
    std::fs::create_dir(to)?;
    for number in 0..files {
        let directory = to.join(format!("d{}", number / FILES_PER_DIRECTORY));
        if number % FILES_PER_DIRECTORY == 0 {
            std::fs::create_dir(&directory)?;
        }
        let length = BYTES_MIN + random.below(BYTES_MAX - BYTES_MIN + 1);
        std::fs::write(directory.join(format!("f{number}")), vec![number as u8; length])?;
    }
    Ok(())
}

const FILES_PER_DIRECTORY: usize = 100;
/// The size of the smallest generated files in bytes.
const BYTES_MIN: usize = 500;
/// The size of the largest generated files in bytes.
const BYTES_MAX: usize = 16_384;
