//! A file of the server's that this client has open itself, and when it is worth asking for.
//!
//! Invariant: a [`DirectFile`] that is over stays so; one that is given up is over.

use std::cell::{Cell, OnceCell};
use std::fs::File as SystemFile;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::time::Duration;

use dafs_dat::EndpointId;
use dafs_memory::FileView;

/// A file of the server's, open here for reading.
pub(crate) struct DirectFile {
    pub file: SystemFile,
    /// The connection over which it would be called back.
    pub back: EndpointId,
    /// When it was asked for, and how long that is believed.
    pub asked: Duration,
    pub window: Duration,
    /// When all that may have come was last looked for.
    pub looked: Cell<Duration>,
    is_over: Cell<bool>,
    view: OnceCell<Option<FileView>>,
    reads: Rc<Cell<u64>>,
}

/// What is known of the file itself under one delegation.
#[derive(Default)]
pub(crate) struct Direct {
    held: Option<Rc<DirectFile>>,
    /// Reads since there is none.
    waiting: u32,
    /// How often in a row it had to be given up, or was not to be had.
    losses: u32,
    is_refused: bool,
}

impl DirectFile {
    /// A file that was asked for over a session whose server calls back over `back`.
    pub fn new(
        file: SystemFile,
        back: EndpointId,
        (asked, window): (Duration, Duration),
        reads: Rc<Cell<u64>>,
    ) -> Self {
        let (looked, is_over) = (Cell::new(asked), Cell::new(false));
        Self { file, back, asked, window, looked, is_over, view: OnceCell::new(), reads }
    }

    /// Whether it is read no more.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// It is read no more.
    pub fn end(&self) {
        self.is_over.set(true);
    }

    /// Reads what there is; `None` if the system cannot.
    pub fn read(&self, bytes: &mut [u8], offset: u64) -> Option<usize> {
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

    /// The same out of memory; `None` where nothing of the file is mapped.
    #[inline]
    pub fn copy(&self, bytes: &mut [u8], offset: u64) -> Option<usize> {
        let view = self.view()?;
        let offset = usize::try_from(offset).ok()?;
        if offset.checked_add(bytes.len())? > view.length() || view.read(offset, bytes).is_err() {
            return None;
        }
        self.reads.set(self.reads.get() + 1);
        Some(bytes.len())
    }

    /// The mapping, which is made when it is first asked for.
    #[inline]
    pub fn view(&self) -> Option<&FileView> {
        self.view.get_or_init(|| self.map()).as_ref()
    }

    #[cold]
    fn map(&self) -> Option<FileView> {
        let length = usize::try_from(self.file.metadata().ok()?.len()).ok()?;
        FileView::map(&self.file, length).ok()
    }
}

impl Direct {
    /// Whether there is a file.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// There is one.
    pub fn hold(&mut self, file: Rc<DirectFile>) {
        self.held = Some(file);
    }

    /// It is read no more; whoever reads on asks for it again, after the more reads the more
    /// often this has happened.
    pub fn give_up(&mut self) {
        if self.held.is_some() {
            self.expire();
            self.put_off();
        }
    }

    /// It is read no more, since it was asked for long ago.
    pub fn expire(&mut self) {
        if let Some(file) = self.held.take() {
            file.end();
        }
    }

    /// It was not to be had.
    pub fn put_off(&mut self) {
        self.waiting = 0;
        self.losses = (self.losses + 1).min(LOSSES_MAX);
    }

    /// It will not be had under this delegation.
    pub fn refuse(&mut self) {
        self.is_refused = true;
    }

    /// A read is about to be made without it. Whether it is to be asked for now.
    pub fn is_due(&mut self) -> bool {
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

/// Losses that count: after each the file is asked for after twice as many reads.
const LOSSES_MAX: u32 = 10;
/// Most files of one session that are open here.
pub(crate) const FILES_HELD_MAX: usize = 128;
