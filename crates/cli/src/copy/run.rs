//! Copies one tree: directories first, then everything in them, many objects concurrently.
//!
//! Invariants:
//! - An object that fails is reported and counted once, and does not keep others from being copied.
//!   Only the end of a session, or a failure of the top object, ends the copy.
//! - A file whose beginning cannot be read is not created, and does not replace anything.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::OsStr;

use anyhow::{Context, Error, Result, bail};
use dafs_client::ObjectType;
use indicatif::ProgressBar;

use super::mover::Mover;
use super::open::Open;
use super::side::{Copied, Mode, Side, Whole, same_file};
use super::tasks::for_each;
use super::walk::{Item, Tree};
use super::{Extras, Outcome, is_end, is_loss};
use crate::terminal_text::{complaint, message};

pub(super) struct Run<'r> {
    mover: &'r Mover,
    source: &'r Side,
    target: &'r Side,
    items: &'r [Item],
    /// The copy of each item, by the item's index.
    copies: RefCell<Vec<Copied>>,
    /// The indexes of the directories that existed before the copy.
    found: RefCell<HashSet<usize>>,
    /// The final size of each copied file in bytes.
    sizes: RefCell<Vec<u64>>,
    bar: &'r ProgressBar,
    outcome: RefCell<Outcome>,
}

impl<'r> Run<'r> {
    pub(super) fn new(
        mover: &'r Mover,
        (source, target): (&'r Side, &'r Side),
        tree: &'r Tree,
        bar: &'r ProgressBar,
    ) -> Self {
        let run = Self {
            mover,
            source,
            target,
            items: &tree.items,
            copies: RefCell::new(vec![Copied::No; tree.items.len()]),
            found: RefCell::default(),
            sizes: RefCell::new(vec![0; tree.items.len()]),
            bar,
            outcome: RefCell::default(),
        };
        for failure in &tree.failures {
            run.count_failure(failure);
        }
        run
    }

    pub(super) fn outcome(&self) -> Outcome {
        *self.outcome.borrow()
    }

    pub(super) fn copy(&self, extras: Extras) -> Result<()> {
        let client = &self.mover.client;
        let is_directory = |index: &usize| self.items[*index].kind == ObjectType::Directory;
        let (directories, others): (Vec<_>, Vec<_>) = (0..self.items.len()).partition(is_directory);
        let depth = |index: usize| self.items[index].depth;
        for level in directories.chunk_by(|a, b| depth(*a) == depth(*b)) {
            for_each(client, level, |index| self.copy_item(*index, extras))?;
        }
        for_each(client, others, |index| self.copy_item(index, extras))?;
        // Set the times of directories last, because creating their contents changes them.
        for_each(client, directories.iter().rev(), |index| self.finish_directory(*index, extras))
    }

    async fn copy_item(&self, index: usize, extras: Extras) -> Result<()> {
        let item = &self.items[index];
        match self.make(index, extras).await {
            Ok(copied) => {
                self.copies.borrow_mut()[index] = copied;
                Ok(())
            }
            // If the top directory cannot be made, everything below it would fail one by one.
            Err(error) if item.path.is_empty() => {
                Err(error).context(format!("copying {}", self.source.name(OsStr::new(""))))
            }
            Err(error) => self.fail("copying", item, error),
        }
    }

    async fn make(&self, index: usize, extras: Extras) -> Result<Copied> {
        let item = &self.items[index];
        let parent = self.copies.borrow()[item.parent];
        if parent == Copied::No && !item.path.is_empty() {
            bail!("its directory could not be created");
        }
        match item.kind {
            ObjectType::Directory => {
                let (copied, is_new) = self.target.make_directory(item, parent).await?;
                if !is_new {
                    self.found.borrow_mut().insert(index);
                }
                Ok(copied)
            }
            ObjectType::SymbolicLink => self.target.make_link(item, parent, self.source).await,
            ObjectType::Regular => self.make_file(index, parent, extras).await,
            // Without --recursive, a special file is read like a regular one, as with cp.
            _ if !extras.recursive && matches!(self.source, Side::Local(_)) => {
                self.make_file(index, parent, extras).await
            }
            _ if !extras.recursive => {
                bail!("it is a {}, which a server cannot read", kind_name(item.kind))
            }
            ObjectType::Fifo | ObjectType::Socket => self.target.make_special(item, parent).await,
            // A device node from a server would give anyone who can write to the server access to
            // this machine's devices.
            _ => bail!("it is a {}, which is not copied", kind_name(item.kind)),
        }
    }

    async fn make_file(&self, index: usize, parent: Copied, extras: Extras) -> Result<Copied> {
        let item = &self.items[index];
        let (mut losses, mut is_new) = (0, None);
        let copied = loop {
            match self.try_file(index, parent, extras, &mut is_new).await {
                // The server restarted and lost data. Copy the file again, unless the source is a
                // pipe, because the bytes read from a pipe are gone.
                Err(error)
                    if is_loss(&error)
                        && losses < LOSSES_MAX
                        && item.kind == ObjectType::Regular =>
                {
                    losses += 1;
                }
                other => break other?,
            }
        };
        self.bar.inc(item.size);
        let mut outcome = self.outcome.borrow_mut();
        outcome.files += 1;
        outcome.bytes += self.sizes.borrow()[index];
        Ok(copied)
    }

    /// Tries once to copy a file. Sets `is_new` to true if this attempt creates the copy, so that a
    /// second attempt knows that the existing file is this copy.
    async fn try_file(
        &self,
        index: usize,
        parent: Copied,
        extras: Extras,
        is_new: &mut Option<bool>,
    ) -> Result<Copied> {
        let item = &self.items[index];
        let from = self.open_source(index).await?;
        // A successful open proves little, because a small file on a server is only opened by its
        // first read.
        let begun = self.mover.begin(&from, item.size).await?;
        if let (None, Some(begun)) = (*is_new, &begun)
            && let Some(content) = begun.whole(item.size)?
        {
            let mode = mode_of_new(extras);
            match self.target.make_whole(item, parent, content, extras.sync, mode).await? {
                Whole::Made(made) => {
                    self.sizes.borrow_mut()[index] = begun.count();
                    return Ok(made);
                }
                Whole::NotMade => {}
                // The file under this name is our copy.
                Whole::Unfinished => *is_new = Some(true),
            }
        }
        let created = self.target.create(item, parent).await?;
        let is_new = *is_new.get_or_insert(created.is_some());
        let to = match created {
            Some(to) => to,
            None => self.over_what_is_there(index, parent, &from).await?,
        };
        let moved = self.mover.copy(begun, &from, &to, item.size).await?;
        // Some kernel files report a size larger than their content, and keep reporting it.
        if moved < item.size && from.size().await? < item.size {
            bail!("it had {} bytes when it was listed, and {moved} now", item.size);
        }
        self.sizes.borrow_mut()[index] = moved;
        let mode = if is_new || extras.preserve { mode_of_new(extras) } else { Mode::Kept };
        self.target.complete(item, to, extras.sync, mode).await
    }

    async fn open_source(&self, index: usize) -> Result<Open> {
        let item = &self.items[index];
        let directory = self.items[item.parent].handle;
        self.source.open_to_read(item, item.handle, directory).await
    }

    /// Opens the existing target file. Truncates the file only after the source proved readable and
    /// after a check that source and target are different files.
    async fn over_what_is_there(&self, index: usize, parent: Copied, from: &Open) -> Result<Open> {
        let item = &self.items[index];
        let to = self.target.open_there(item, parent).await?;
        if from.is_same(&to).await? {
            return Err(same_file(self.source, self.target, &item.path));
        }
        to.cut().await?;
        Ok(to)
    }

    async fn finish_directory(&self, index: usize, extras: Extras) -> Result<()> {
        // Keep the attributes of directories that existed before the copy.
        if !extras.preserve && self.found.borrow().contains(&index) {
            return Ok(());
        }
        let (item, copied) = (&self.items[index], self.copies.borrow()[index]);
        match self.target.set_attributes(item, copied).await {
            Ok(()) => Ok(()),
            Err(error) => self.fail("setting the mode and times of the copy of", item, error),
        }
    }

    /// Reads both sides again and compares them.
    pub(super) fn compare(&self) -> Result<()> {
        for_each(&self.mover.client, 0..self.items.len(), |index| async move {
            let item = &self.items[index];
            match self.is_same(index).await {
                Ok(is_same) => {
                    self.bar.inc(item.size);
                    if !is_same {
                        let name = self.target.name(&item.path);
                        self.bar.suspend(|| eprintln!("differs: {}", message(&name)));
                        self.outcome.borrow_mut().differing += 1;
                    }
                    Ok(())
                }
                Err(error) => self.fail("comparing", item, error),
            }
        })
    }

    async fn is_same(&self, index: usize) -> Result<bool> {
        let item = &self.items[index];
        let (copied, parent) = {
            let copies = self.copies.borrow();
            (copies[index], copies[item.parent])
        };
        match item.kind {
            // This item failed before and was reported then.
            _ if copied == Copied::No => Ok(true),
            ObjectType::SymbolicLink => Ok(self.target.read_link(item, copied).await? == item.link),
            ObjectType::Regular => {
                let from = self.open_source(index).await?;
                let to = self.target.open_to_read(item, copied.handle(), parent.handle());
                let size = self.sizes.borrow()[index];
                self.mover.compare(&from, &to.await?, size).await
            }
            ObjectType::Directory | ObjectType::Fifo | ObjectType::Socket => Ok(true),
            _ => bail!("it can be read only once"),
        }
    }

    /// Reports an object that failed, so that the copy continues. Returns an error if the copy
    /// cannot continue.
    fn fail(&self, doing: &str, item: &Item, error: Error) -> Result<()> {
        let error = error.context(format!("{doing} {}", self.source.name(&item.path)));
        if is_end(&error) {
            return Err(error).context("nothing more can be copied");
        }
        self.count_failure(&error);
        Ok(())
    }

    fn count_failure(&self, error: &Error) {
        self.bar.suspend(|| eprintln!("dafs: {}", complaint(error)));
        self.outcome.borrow_mut().failed += 1;
    }
}

fn mode_of_new(extras: Extras) -> Mode {
    if extras.preserve { Mode::ToBeSet } else { Mode::Given }
}

fn kind_name(kind: ObjectType) -> &'static str {
    match kind {
        ObjectType::Fifo => "named pipe",
        ObjectType::Socket => "socket",
        ObjectType::BlockDevice => "block device",
        ObjectType::CharacterDevice => "character device",
        ObjectType::Directory | ObjectType::AttributeDirectory => "directory",
        ObjectType::SymbolicLink => "symbolic link",
        ObjectType::Regular | ObjectType::NamedAttribute => "file",
    }
}

/// The maximum number of attempts for one file when servers lose accepted data.
const LOSSES_MAX: u32 = 16;
