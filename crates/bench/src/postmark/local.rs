//! The Postmark workload in a local directory.
//!
//! Invariant: names are looked up relative to their directories, which stay open, as in the other
//! implementations. One thread runs the lanes in turns.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};

use super::lane::{Lane, Step, Target, directory_name};
use super::{SIZE_MAX, Store};

/// A local directory for the workload.
pub struct Directory {
    top: PathBuf,
    stable: bool,
    directories: Vec<OwnedFd>,
    buffer: Vec<u8>,
}

impl Directory {
    /// Creates a store that works beneath `top`, which must exist.
    ///
    /// # Errors
    /// If `top` does not exist.
    pub fn new(top: &Path, stable: bool) -> Result<Self> {
        let top = top.canonicalize().with_context(|| top.display().to_string())?;
        Ok(Self { top, stable, directories: Vec::new(), buffer: vec![0; SIZE_MAX + 1] })
    }

    fn read(&mut self, target: Target) -> Result<usize> {
        let mut file = self.open(target, OFlags::RDONLY)?;
        let count = file.read(&mut self.buffer[..target.size + 1])?;
        Ok(count)
    }

    fn open(&self, target: Target, flags: OFlags) -> Result<File> {
        let directory = &self.directories[target.directory];
        let mode = Mode::from_raw_mode(0o644);
        Ok(openat(directory, target.name(), flags | OFlags::CLOEXEC, mode)?.into())
    }
}

impl Store for Directory {
    fn make_directories(&mut self, count: usize) -> Result<()> {
        for index in 0..count {
            let path = self.top.join(directory_name(index));
            std::fs::create_dir(&path).with_context(|| path.display().to_string())?;
            self.directories.push(File::open(path)?.into());
        }
        Ok(())
    }

    fn run(&mut self, lanes: &mut [Lane]) -> Result<()> {
        let mut is_going = true;
        while is_going {
            is_going = false;
            for lane in &mut *lanes {
                let Some(step) = lane.next_step() else { continue };
                is_going = true;
                match step {
                    Step::Read(target) => {
                        let count = self.read(target)?;
                        lane.done(step, &self.buffer[..count])?;
                    }
                    Step::Create(target) => {
                        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
                        let mut file = self.open(target, flags)?;
                        file.write_all(lane.content(target))?;
                        if self.stable {
                            file.sync_all()?;
                        }
                        lane.done(step, &[])?;
                    }
                    Step::Remove(target) => {
                        let directory = &self.directories[target.directory];
                        unlinkat(directory, target.name(), AtFlags::empty())?;
                        lane.done(step, &[])?;
                    }
                }
            }
        }
        Ok(())
    }

    fn remove_directories(&mut self, count: usize) -> Result<()> {
        self.directories.clear();
        for index in 0..count {
            std::fs::remove_dir(self.top.join(directory_name(index)))?;
        }
        Ok(())
    }
}
