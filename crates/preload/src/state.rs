//! All that this library knows: the connection, which descriptor stands for which open file, the
//! working directory, and memory that files were mapped to.
//!
//! Invariant: a descriptor's entry is there exactly as long as its number is open; whether there
//! is one can be seen without a lock.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, Ordering};

use dafs_client::{File, SetAttributes};
use dafs_posix::stat::Names;
use dafs_types::FileHandle;

use crate::connection::Connection;
use crate::directories::Entry;
use crate::errors::{Failure, Outcome};
use crate::mapping::Mappings;
use crate::page::{Identity, Kind, Page, Placeholder};
use crate::unstable::{AllUnstable, Key};

/// An open file, with all descriptors that share its offset.
pub struct Description {
    /// Which file.
    pub identity: Identity,
    /// Offset and flags.
    pub page: Page,
    /// This process's open; made when it is wanted.
    pub file: RefCell<Option<Rc<File>>>,
    /// Times that were set behind what was last written. The server writes that to its disk
    /// when the file is closed, which gives it others: they are set once more then.
    pub times: RefCell<Option<SetAttributes>>,
    /// What a directory held when it was last listed from its beginning by `getdents64`.
    pub listing: RefCell<Rc<Vec<Entry>>>,
    /// The open that `flock` and open-file-description locks stand on.
    pub locks: RefCell<Option<Rc<File>>>,
}

impl Description {
    /// One whose open is not made yet, if there is to be one.
    pub fn new(identity: Identity, page: Page, file: Option<File>) -> Rc<Self> {
        let (file, times) = (RefCell::new(file.map(Rc::new)), RefCell::new(None));
        let listing = RefCell::default();
        Rc::new(Self { identity, page, file, times, listing, locks: RefCell::new(None) })
    }

    /// Which file it is of.
    pub fn key(&self) -> Key {
        (self.identity.mount, self.identity.handle)
    }

    /// What fails with EBADF on a descriptor without an open.
    pub fn must_be_open(&self) -> Outcome<()> {
        if self.identity.kind == Kind::Object { Err(Failure::Errno(libc::EBADF)) } else { Ok(()) }
    }
}

/// All of it.
#[derive(Default)]
pub struct State {
    /// To the servers.
    pub connection: Connection,
    /// What new descriptors are copies of; made when it is wanted.
    pub placeholder: Option<Placeholder>,
    /// By number.
    table: Vec<Option<Rc<Description>>>,
    /// This process's locks by `fcntl`: the open they stand on.
    pub owned: HashMap<(usize, FileHandle), Rc<File>>,
    /// Users and groups.
    pub names: Names,
    /// Mapped memory.
    pub mappings: Mappings,
    /// What was written and may be lost with a server.
    pub unstable: AllUnstable,
}

impl State {
    /// What a descriptor stands for.
    pub fn get(&self, number: RawFd) -> Outcome<Rc<Description>> {
        let index = usize::try_from(number).map_err(|_| Failure::Errno(libc::EBADF))?;
        self.table.get(index).cloned().flatten().ok_or(Failure::Errno(libc::EBADF))
    }

    /// The same if there is something.
    pub fn look(&self, number: RawFd) -> Option<Rc<Description>> {
        self.get(number).ok()
    }

    /// Enters a descriptor. What it stood for before.
    pub fn enter(&mut self, number: RawFd, it: Rc<Description>) -> Option<Rc<Description>> {
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        if index >= DESCRIPTORS_MAX {
            return None;
        }
        if self.table.len() <= index {
            self.table.resize_with(index + 1, || None);
        }
        MARKS[index].store(OURS, Ordering::Release);
        self.table[index].replace(it)
    }

    /// Forgets a descriptor. What it stood for.
    pub fn take(&mut self, number: RawFd) -> Option<Rc<Description>> {
        let index = usize::try_from(number).ok()?;
        let taken = self.table.get_mut(index)?.take();
        MARKS[index].store(0, Ordering::Release);
        taken
    }

    /// All descriptors, and what they stand for.
    pub fn table(&self) -> impl Iterator<Item = (RawFd, &Rc<Description>)> {
        let entries = self.table.iter().enumerate();
        entries.filter_map(|(index, entry)| Some((index as RawFd, entry.as_ref()?)))
    }

    /// What descriptors stand for; what several share comes as often.
    pub fn descriptions(&self) -> impl Iterator<Item = &Rc<Description>> {
        self.table.iter().flatten()
    }

    /// The numbers of all descriptors.
    pub fn numbers(&self) -> Vec<RawFd> {
        self.table().map(|(number, _)| number).collect()
    }

    /// In a child: whatever stands on the parent's connection is let go without a word, for a
    /// word would go over that connection.
    pub fn forget_connection(&mut self) {
        for entry in self.table.iter().flatten() {
            std::mem::forget(entry.file.take());
            std::mem::forget(entry.locks.take());
        }
        std::mem::forget(std::mem::take(&mut self.owned));
        self.mappings.forget_claims();
        self.unstable = AllUnstable::default();
        std::mem::take(&mut self.connection).forget();
        self.placeholder = None;
    }
}

/// Whether a descriptor is one of ours.
#[inline]
pub fn is_ours(number: RawFd) -> bool {
    mark_of(number) == OURS
}

/// Whether a descriptor is the client's own, of which the program knows nothing.
#[inline]
pub fn is_own(number: RawFd) -> bool {
    mark_of(number) == OWN
}

/// A descriptor is the client's own from now on, or is not any more.
pub fn note_own(number: RawFd, is_own: bool) {
    if let Some(mark) = MARKS.get(number as usize) {
        mark.store(if is_own { OWN } else { 0 }, Ordering::Release);
    }
}

#[inline]
fn mark_of(number: RawFd) -> u8 {
    // A negative number is beyond all.
    MARKS.get(number as usize).map_or(0, |mark| mark.load(Ordering::Acquire))
}

/// Numbers beyond are refused with EMFILE.
pub const DESCRIPTORS_MAX: usize = 1 << 16;

const OURS: u8 = 1;
const OWN: u8 = 2;

static MARKS: [AtomicU8; DESCRIPTORS_MAX] = [const { AtomicU8::new(0) }; DESCRIPTORS_MAX];
