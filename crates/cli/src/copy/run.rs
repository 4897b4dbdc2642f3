//! One copy of one tree: directories first, then everything in them, many at once.
//!
//! Invariant: an object that fails is named and counted once, and does not keep others
//! from being copied; only the end of a session, or of the top, ends a copy.

use std::cell::RefCell;

use anyhow::{Context, Error, Result, bail};
use dafs_client::ObjectType;
use indicatif::ProgressBar;

use super::mover::Mover;
use super::side::{Copied, Side};
use super::tasks::for_each;
use super::walk::{Item, Tree};
use super::{Outcome, is_end, is_loss};

pub struct Run<'r> {
    mover: &'r Mover,
    source: &'r Side,
    target: &'r Side,
    items: &'r [Item],
    /// What came of each item.
    copies: RefCell<Vec<Copied>>,
    bar: &'r ProgressBar,
    outcome: RefCell<Outcome>,
}

impl<'r> Run<'r> {
    pub fn new(
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
            bar,
            outcome: RefCell::default(),
        };
        for failure in &tree.failures {
            run.count_failure(failure);
        }
        run
    }

    pub fn outcome(&self) -> Outcome {
        *self.outcome.borrow()
    }

    pub fn copy(&self, sync: bool) -> Result<()> {
        let client = &self.mover.client;
        let is_directory = |index: &usize| self.items[*index].kind == ObjectType::Directory;
        let (directories, others): (Vec<_>, Vec<_>) = (0..self.items.len()).partition(is_directory);
        let depth = |index: usize| self.items[index].depth;
        for level in directories.chunk_by(|a, b| depth(*a) == depth(*b)) {
            for_each(client, level, |index| self.copy_item(*index, sync))?;
        }
        for_each(client, others, |index| self.copy_item(index, sync))?;
        // Times of directories last: making what is in them changes them.
        for_each(client, directories.iter().rev(), |index| self.finish_directory(*index))
    }

    async fn copy_item(&self, index: usize, sync: bool) -> Result<()> {
        let item = &self.items[index];
        match self.make(index, sync).await {
            Ok(copied) => {
                self.copies.borrow_mut()[index] = copied;
                Ok(())
            }
            // What cannot hold anything would fail with all that is in it, one by one.
            Err(error) if item.path.is_empty() => {
                Err(error).context(format!("copying {}", self.source.name("")))
            }
            Err(error) => self.fail("copying", item, error),
        }
    }

    async fn make(&self, index: usize, sync: bool) -> Result<Copied> {
        let item = &self.items[index];
        let parent = self.copies.borrow()[item.parent];
        if parent == Copied::No && !item.path.is_empty() {
            bail!("its directory could not be made");
        }
        match item.kind {
            ObjectType::Directory => self.target.make_directory(item, parent).await,
            ObjectType::SymbolicLink => self.target.make_link(item, parent).await,
            ObjectType::Regular => {
                let mut losses = 0;
                let copied = loop {
                    match self.make_file(item, parent, sync).await {
                        // Its server has restarted.
                        Err(error) if is_loss(&error) && losses < LOSSES_MAX => losses += 1,
                        other => break other?,
                    }
                };
                self.bar.inc(item.size);
                let mut outcome = self.outcome.borrow_mut();
                outcome.files += 1;
                outcome.bytes += item.size;
                Ok(copied)
            }
            _ => {
                self.outcome.borrow_mut().skipped += 1;
                Ok(Copied::No)
            }
        }
    }

    async fn make_file(&self, item: &Item, parent: Copied, sync: bool) -> Result<Copied> {
        let directory = self.items[item.parent].handle;
        let from = self.source.open_to_read(item, item.handle, directory).await?;
        let to = self.target.open_to_write(item, parent).await?;
        let moved = self.mover.copy(&from, &to, item.size).await?;
        if moved < item.size {
            bail!("it had {} octets when it was listed, and {moved} now", item.size);
        }
        self.target.complete(item, to, sync).await
    }

    async fn finish_directory(&self, index: usize) -> Result<()> {
        let (item, copied) = (&self.items[index], self.copies.borrow()[index]);
        match self.target.set_attributes(item, copied).await {
            Ok(()) => Ok(()),
            Err(error) => self.fail("keeping mode and times of", item, error),
        }
    }

    /// Reads both sides again.
    pub fn compare(&self) -> Result<()> {
        for_each(&self.mover.client, 0..self.items.len(), |index| async move {
            let item = &self.items[index];
            match self.is_same(index).await {
                Ok(is_same) => {
                    self.bar.inc(item.size);
                    if !is_same {
                        let name = self.target.name(&item.path);
                        self.bar.suspend(|| eprintln!("differs: {name}"));
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
            // It failed before and was named then.
            _ if copied == Copied::No => Ok(true),
            ObjectType::SymbolicLink => Ok(self.target.read_link(item, copied).await? == item.link),
            ObjectType::Regular => {
                let directory = self.items[item.parent].handle;
                let from = self.source.open_to_read(item, item.handle, directory).await?;
                let to = self.target.open_to_read(item, copied.handle(), parent.handle()).await?;
                self.mover.compare(&from, &to, item.size).await
            }
            _ => Ok(true),
        }
    }

    /// Names an object that failed, to go on with the others; unless none can go on.
    fn fail(&self, doing: &str, item: &Item, error: Error) -> Result<()> {
        let error = error.context(format!("{doing} {}", self.source.name(&item.path)));
        if is_end(&error) {
            return Err(error).context("nothing more can be copied");
        }
        self.count_failure(&error);
        Ok(())
    }

    fn count_failure(&self, error: &Error) {
        self.bar.suspend(|| eprintln!("dafs: {error:#}"));
        self.outcome.borrow_mut().failed += 1;
    }
}

/// Times that one file is copied again because a server has lost what it was given.
const LOSSES_MAX: u32 = 16;
