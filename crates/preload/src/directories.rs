//! Reads directories as streams of entries.
//!
//! Invariants:
//! - A stream shows the contents of the directory at the time it was opened or rewound.
//! - A stream of this library is distinguished from a stream of the C library by its first words,
//!   which no stream of the C library can have.

use std::cell::UnsafeCell;
use std::ffi::{OsString, c_int};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dafs_client::{Metadata, Outcome as Brought, Session};
use dafs_posix::stat::type_bits;
use dafs_types::FileHandle;
use libc::dirent64;

use crate::errors::{Outcome, fail};
use crate::page::Kind;
use crate::state::{Description, State};
use crate::waiting::wait_result;
use crate::walk::attributes;

/// A directory stream. The program has a pointer to it.
#[repr(C)]
pub(crate) struct Stream {
    /// A value that is not a valid descriptor number ([`MARK`]). The C library's streams have their
    /// descriptor here.
    mark: c_int,
    number: RawFd,
    /// The address of this stream itself, as a second mark.
    own: *const Stream,
    cursor: Mutex<Cursor>,
    /// The entry that `readdir` returned last. Written only while the cursor is locked.
    shown: UnsafeCell<dirent64>,
}

/// The contents of a stream, and the next entry.
struct Cursor {
    entries: Vec<Entry>,
    next: usize,
}

/// A directory entry as a stream shows it.
pub(crate) struct Entry {
    name: OsString,
    inode: u64,
    kind: u8,
}

impl Stream {
    /// True if this library made the stream at an address.
    ///
    /// # Safety
    /// The address is null or that of a directory stream. A stream of the C library is longer than
    /// the marks that are read.
    pub(crate) unsafe fn is_ours(stream: *const Stream) -> bool {
        if stream.is_null() {
            return false;
        }
        // SAFETY: the caller guarantees that the marks can be read.
        unsafe {
            let own = &raw const (*stream).own;
            (&raw const (*stream).mark).read() == MARK && own.read() == stream
        }
    }

    /// Makes a stream for an open directory. `number` is the directory's descriptor.
    pub(crate) fn open(state: &mut State, number: RawFd) -> Outcome<*mut Stream> {
        let entries = state.entries(number)?;
        // SAFETY: all-zero bytes are a valid entry.
        let shown = UnsafeCell::new(unsafe { std::mem::zeroed() });
        let (own, cursor) = (std::ptr::null(), Mutex::new(Cursor { entries, next: 0 }));
        let stream = Self { mark: MARK, number, own, cursor, shown };
        let stream = Box::into_raw(Box::new(stream));
        // SAFETY: the stream was just allocated.
        unsafe { (*stream).own = stream };
        Ok(stream)
    }

    fn cursor(&self) -> MutexGuard<'_, Cursor> {
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next entry, or null at the end. The next call overwrites the entry.
    pub(crate) fn next(&self) -> *mut dirent64 {
        let Some((record, _)) = self.cursor().next() else { return std::ptr::null_mut() };
        // SAFETY: this library has no reference to the entry. As the manual says, the program must
        // not call `readdir` for one stream in two threads at once, because it reads the entry.
        unsafe { self.shown.get().write(record) };
        self.shown.get()
    }

    /// Writes the next entry to memory of the program, no byte beyond the end of its name: the
    /// program's memory may be shorter than the type. Returns false at the end.
    ///
    /// # Safety
    /// The memory has room for an entry with a name of NAME_MAX bytes.
    pub(crate) unsafe fn next_into(&self, to: *mut dirent64) -> bool {
        let Some((record, length)) = self.cursor().next() else { return false };
        // SAFETY: the caller guarantees the memory, and an entry is not shorter than its name.
        unsafe {
            std::ptr::copy_nonoverlapping((&raw const record).cast::<u8>(), to.cast(), length)
        };
        true
    }

    /// Returns the position of the next entry.
    pub(crate) fn tell(&self) -> i64 {
        self.cursor().next as i64
    }

    /// Moves to a position that `tell` returned.
    pub(crate) fn seek(&self, position: i64) {
        self.cursor().next = usize::try_from(position).unwrap_or(0);
    }

    /// Returns the descriptor of the stream.
    pub(crate) fn number(&self) -> RawFd {
        self.number
    }

    /// Starts again with the current contents of the directory.
    pub(crate) fn rewind(&self, entries: Vec<Entry>) {
        *self.cursor() = Cursor { entries, next: 0 };
    }
}

impl Cursor {
    /// Returns the next entry in the C library's format, and its length in bytes up to the end of
    /// its name; `None` at the end.
    fn next(&mut self) -> Option<(dirent64, usize)> {
        let entry = self.entries.get(self.next)?;
        self.next += 1;
        // SAFETY: all-zero bytes are a valid entry.
        let mut record: dirent64 = unsafe { std::mem::zeroed() };
        let length = entry.name.len().min(record.d_name.len() - 1);
        record.d_ino = entry.inode;
        record.d_off = self.next as i64;
        record.d_type = entry.kind;
        record.d_reclen = (HEAD_BYTES + length + 1).next_multiple_of(8) as u16;
        for (to, from) in record.d_name.iter_mut().zip(&entry.name.as_bytes()[..length]) {
            *to = *from as _;
        }
        Some((record, HEAD_BYTES + length + 1))
    }
}

impl State {
    /// Lists an open directory.
    pub(crate) fn entries(&mut self, number: RawFd) -> Outcome<Vec<Entry>> {
        let description = self.get(number)?;
        let identity = &description.identity;
        if identity.kind != Kind::Directory {
            return fail(if identity.kind == Kind::File { libc::ENOTDIR } else { libc::EBADF });
        }
        let (session, root) = self.connection.mount(identity.mount)?;
        let client = session.client();
        let listed = wait_result(&client, session.list_async(identity.handle, &identity.path))?;
        let own = attributes(&session, identity.handle)?.file_id;
        let parent = match identity.handle == root {
            true => own,
            false => match parent(&session, identity.handle) {
                Ok(Some(parent)) => parent.file_id,
                // Without search permission, the parent is not known, so use the directory itself.
                Ok(None) | Err(_) => own,
            },
        };
        let kind = libc::DT_DIR;
        let mut entries = vec![
            Entry { name: ".".into(), inode: own, kind },
            Entry { name: "..".into(), inode: parent, kind },
        ];
        for entry in
            listed.into_iter().filter(|entry| !matches!(entry.name.as_bytes(), b"." | b".."))
        {
            let known = entry.metadata.as_ref();
            // Without search permission, only the names are known, and not the inodes and types.
            let inode = known.map_or(own, |metadata| metadata.file_id);
            let kind = known.map_or(libc::DT_UNKNOWN, |it| (type_bits(it.kind) >> 12) as u8);
            entries.push(Entry { name: entry.name, inode, kind });
        }
        Ok(entries)
    }
}

impl State {
    /// Implements `getdents64`: writes entries into memory in the kernel's format, starting at the
    /// descriptor's offset. Returns the number of bytes written.
    pub(crate) fn entries_into(
        &mut self,
        number: RawFd,
        of: &Description,
        room: &mut [u8],
    ) -> Outcome<isize> {
        let mut next = of.page.offset().load(Ordering::Acquire) as usize;
        if next == 0 {
            *of.listing.borrow_mut() = Rc::new(self.entries(number)?);
        } else if of.identity.kind != Kind::Directory {
            return fail(libc::ENOTDIR);
        }
        let listing = of.listing.borrow().clone();
        let mut put = 0;
        for entry in listing.iter().skip(next) {
            let length = (HEAD_BYTES + entry.name.len() + 1).next_multiple_of(8);
            let Some(record) = room.get_mut(put..put + length) else { break };
            next += 1;
            record.fill(0);
            record[..8].copy_from_slice(&entry.inode.to_ne_bytes());
            record[8..16].copy_from_slice(&(next as u64).to_ne_bytes());
            record[16..18].copy_from_slice(&(length as u16).to_ne_bytes());
            record[18] = entry.kind;
            record[HEAD_BYTES..][..entry.name.len()].copy_from_slice(entry.name.as_bytes());
            put += length;
        }
        if put == 0 && next < listing.len() {
            return fail(libc::EINVAL);
        }
        of.page.offset().store(next as u64, Ordering::Release);
        Ok(put as isize)
    }
}

/// Returns the attributes of a directory's parent; `None` if there is no parent.
fn parent(session: &Session, directory: FileHandle) -> Outcome<Option<Metadata>> {
    let asking = session.chain().at(directory).parent().getattr().run_async();
    Ok(match wait_result(&session.client(), asking)?.into_iter().last() {
        Some(Brought::Metadata(metadata)) => Some(*metadata),
        _ => None,
    })
}

/// The first word of a stream of this library, which is not a valid descriptor number.
const MARK: c_int = i32::MIN + 0x0da_f5d;
const HEAD_BYTES: usize = std::mem::offset_of!(dirent64, d_name);
