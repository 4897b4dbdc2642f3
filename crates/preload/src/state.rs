//! The state of this library: the connection, the table of descriptors and open files, the working
//! directory, and mapped memory.
//!
//! Invariant: a descriptor has an entry exactly as long as its number is open. Functions can check
//! without the lock whether a number has an entry.

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

/// An open file. All descriptors that share an offset refer to one description.
pub(crate) struct Description {
    /// The identity of the file, which stays the same as long as the file is open.
    pub identity: Identity,
    /// The offset and flags.
    pub page: Page,
    /// This process's open of the file on the server; `None` until the open is needed.
    pub file: RefCell<Option<Rc<File>>>,
    /// Times that the program set after its last write. When the file is closed, the server writes
    /// the data to its disk, which changes the times. So these times are set again after the close.
    pub times: RefCell<Option<SetAttributes>>,
    /// The contents of the directory when `getdents64` was last called with offset 0.
    pub listing: RefCell<Rc<Vec<Entry>>>,
    /// The open that owns the `flock` and open-file-description locks.
    pub locks: RefCell<Option<Rc<File>>>,
}

impl Description {
    /// Makes a description. Without a file, the open is made when needed.
    pub(crate) fn new(identity: Identity, page: Page, file: Option<File>) -> Rc<Self> {
        let (file, times) = (RefCell::new(file.map(Rc::new)), RefCell::new(None));
        let listing = RefCell::default();
        Rc::new(Self { identity, page, file, times, listing, locks: RefCell::new(None) })
    }

    /// Returns the key of the file.
    pub(crate) fn key(&self) -> Key {
        (self.identity.mount, self.identity.handle)
    }

    /// Fails with EBADF for an O_PATH descriptor, which has no open on the server.
    pub(crate) fn must_be_open(&self) -> Outcome<()> {
        if self.identity.kind == Kind::Object { Err(Failure::Errno(libc::EBADF)) } else { Ok(()) }
    }
}

/// The whole state of this library.
#[derive(Default)]
pub(crate) struct State {
    /// The connection to the servers.
    pub connection: Connection,
    /// The descriptor that new descriptors are duplicated from; `None` until the first one is
    /// needed.
    pub placeholder: Option<Placeholder>,
    /// The descriptions by descriptor number.
    table: Vec<Option<Rc<Description>>>,
    /// The opens that own this process's `fcntl` locks.
    pub owned: HashMap<(usize, FileHandle), Rc<File>>,
    /// The cache of user and group names.
    pub names: Names,
    /// The files that are mapped into memory.
    pub mappings: Mappings,
    /// Written data that a server restart may lose.
    pub unstable: AllUnstable,
}

impl State {
    /// Returns the description of a descriptor, or fails with EBADF.
    pub(crate) fn get(&self, number: RawFd) -> Outcome<Rc<Description>> {
        let index = usize::try_from(number).map_err(|_| Failure::Errno(libc::EBADF))?;
        self.table.get(index).cloned().flatten().ok_or(Failure::Errno(libc::EBADF))
    }

    /// Returns the description of a descriptor; `None` if it does not refer to a file in DAFS.
    pub(crate) fn look(&self, number: RawFd) -> Option<Rc<Description>> {
        self.get(number).ok()
    }

    /// Enters a descriptor into the table. Returns the description that had the number before.
    pub(crate) fn enter(&mut self, number: RawFd, it: Rc<Description>) -> Option<Rc<Description>> {
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

    /// Removes a descriptor and returns its description.
    pub(crate) fn take(&mut self, number: RawFd) -> Option<Rc<Description>> {
        let index = usize::try_from(number).ok()?;
        let taken = self.table.get_mut(index)?.take();
        MARKS[index].store(0, Ordering::Release);
        taken
    }

    /// Returns all descriptors with their descriptions.
    pub(crate) fn table(&self) -> impl Iterator<Item = (RawFd, &Rc<Description>)> {
        let entries = self.table.iter().enumerate();
        entries.filter_map(|(index, entry)| Some((index as RawFd, entry.as_ref()?)))
    }

    /// Returns the descriptions of all descriptors. A shared description appears once per
    /// descriptor.
    pub(crate) fn descriptions(&self) -> impl Iterator<Item = &Rc<Description>> {
        self.table.iter().flatten()
    }

    /// Returns the numbers of all descriptors.
    pub(crate) fn numbers(&self) -> Vec<RawFd> {
        self.table().map(|(number, _)| number).collect()
    }

    /// Drops, in a child, everything that belongs to the parent's connection. Sends nothing,
    /// because a message would go over the parent's connection.
    pub(crate) fn forget_connection(&mut self) {
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

/// True if a descriptor refers to a file in DAFS.
#[inline]
pub(crate) fn is_ours(number: RawFd) -> bool {
    mark_of(number) == OURS
}

/// True if a descriptor is the client's own, which the program must not see.
#[inline]
pub(crate) fn is_own(number: RawFd) -> bool {
    mark_of(number) == OWN
}

/// Records that a descriptor is the client's own, or no longer is.
pub(crate) fn note_own(number: RawFd, is_own: bool) {
    if let Some(mark) = MARKS.get(number as usize) {
        mark.store(if is_own { OWN } else { 0 }, Ordering::Release);
    }
}

#[inline]
fn mark_of(number: RawFd) -> u8 {
    // A negative number becomes an index beyond the table.
    MARKS.get(number as usize).map_or(0, |mark| mark.load(Ordering::Acquire))
}

/// The limit of descriptor numbers. Opens that would get a higher number fail with EMFILE.
pub(crate) const DESCRIPTORS_MAX: usize = 1 << 16;

const OURS: u8 = 1;
const OWN: u8 = 2;

static MARKS: [AtomicU8; DESCRIPTORS_MAX] = [const { AtomicU8::new(0) }; DESCRIPTORS_MAX];
