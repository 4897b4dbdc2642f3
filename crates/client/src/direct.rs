//! A file of a server on this host that the client reads through its own descriptor, and the policy
//! for requesting that descriptor.
//!
//! Invariant: a [`DirectFile`] that is marked as unusable stays unusable. Giving up its descriptor
//! marks it as unusable.

use std::cell::{Cell, OnceCell};
use std::fs::File as SystemFile;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::time::Duration;

use dafs_dat::EndpointId;
use dafs_memory::FileView;

/// A file of a server on this host that is open in this process for reading.
pub(crate) struct DirectFile {
    pub file: SystemFile,
    /// The back-control connection over which the server would recall the file's delegation.
    pub back: EndpointId,
    /// The time at which the file descriptor was requested. The descriptor may be used for the
    /// duration `window` from that time on.
    pub asked: Duration,
    pub window: Duration,
    /// The most recent time at which all pending messages had been processed.
    pub looked: Cell<Duration>,
    is_over: Cell<bool>,
    view: OnceCell<Option<FileView>>,
    reads: Rc<Cell<u64>>,
}

/// The direct-read state of a file under one delegation.
#[derive(Default)]
pub(crate) struct Direct {
    held: Option<Rc<DirectFile>>,
    /// The number of reads since the client last had a file descriptor.
    waiting: u32,
    /// The number of consecutive times that a file descriptor was given up or could not be
    /// obtained.
    losses: u32,
    is_refused: bool,
}

impl DirectFile {
    /// Wraps a descriptor that was requested from a server that recalls delegations over the
    /// connection `back`.
    pub(crate) fn new(
        file: SystemFile,
        back: EndpointId,
        (asked, window): (Duration, Duration),
        reads: Rc<Cell<u64>>,
    ) -> Self {
        let (looked, is_over) = (Cell::new(asked), Cell::new(false));
        Self { file, back, asked, window, looked, is_over, view: OnceCell::new(), reads }
    }

    /// Returns true if the file must no longer be read through this descriptor.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Marks this file as unusable: it must no longer be read through this descriptor.
    pub(crate) fn end(&self) {
        self.is_over.set(true);
    }

    /// Reads from byte `offset` until `bytes` is full or the file ends. Returns `None` if the
    /// system reports an error.
    pub(crate) fn read(&self, bytes: &mut [u8], offset: u64) -> Option<usize> {
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        self.reads.set(self.reads.get() + 1);
        Some(done)
    }

    /// Copies bytes of the file from its mapping. Returns `None` unless the whole range is mapped.
    #[inline]
    pub(crate) fn copy(&self, bytes: &mut [u8], offset: u64) -> Option<usize> {
        let view = self.view()?;
        let offset = usize::try_from(offset).ok()?;
        if offset.checked_add(bytes.len())? > view.length() || view.read(offset, bytes).is_err() {
            return None;
        }
        self.reads.set(self.reads.get() + 1);
        Some(bytes.len())
    }

    /// Returns the mapping of the file, which the first call creates; `None` if the file cannot be
    /// mapped.
    #[inline]
    pub(crate) fn view(&self) -> Option<&FileView> {
        self.view.get_or_init(|| self.map()).as_ref()
    }

    #[cold]
    fn map(&self) -> Option<FileView> {
        let length = usize::try_from(self.file.metadata().ok()?.len()).ok()?;
        FileView::map(&self.file, length).ok()
    }
}

impl Direct {
    /// Returns true if the client holds a file descriptor of the file.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Stores the file descriptor of a file for later reads.
    pub(crate) fn hold(&mut self, file: Rc<DirectFile>) {
        self.held = Some(file);
    }

    /// Gives up the file descriptor. The client requests another one after a number of reads that
    /// doubles with each consecutive loss.
    pub(crate) fn give_up(&mut self) {
        if self.held.is_some() {
            self.expire();
            self.defer();
        }
    }

    /// Gives up a file descriptor whose period of validity has expired.
    pub(crate) fn expire(&mut self) {
        if let Some(file) = self.held.take() {
            file.end();
        }
    }

    /// Records that no file descriptor was available, so that the client requests one again later.
    pub(crate) fn defer(&mut self) {
        self.waiting = 0;
        self.losses = (self.losses + 1).min(LOSSES_MAX);
    }

    /// Records that no file descriptor will be available while this delegation lasts.
    pub(crate) fn refuse(&mut self) {
        self.is_refused = true;
    }

    /// Counts a read made without a file descriptor. Returns true if the client should request one
    /// now.
    pub(crate) fn is_due(&mut self) -> bool {
        if self.is_refused {
            return false;
        }
        self.waiting = self.waiting.saturating_add(1);
        self.waiting > 1 << self.losses
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        self.expire();
    }
}

/// The limit for the number of counted losses of a file descriptor. Each loss doubles the number of
/// reads before the next request for one.
const LOSSES_MAX: u32 = 10;
/// The limit for the number of file descriptors from the server that one session holds.
pub(crate) const FILES_HELD_MAX: usize = 128;
