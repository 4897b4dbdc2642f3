//! Lists directories.
//!
//! Invariant: a cookie is the kernel's own directory offset plus 3, because the protocol reserves 0
//! to 2. Local file systems keep these offsets valid while entries are added and removed.

use std::mem::MaybeUninit;

use dafs_types::permission::{EXECUTE, READ};
use dafs_types::{CookieVerifier, Credentials, FileHandle, ReaddirCookie};
use rustix::fs::{RawDir, SeekFrom};

use super::node::Target;
use super::{LocalStore, sys};
use crate::error::{Result, StoreError};
use crate::store::{ListEntry, ListPage, ListRequest, Object};

impl LocalStore {
    pub(super) fn list(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        request: &ListRequest,
    ) -> Result<ListPage> {
        let verifier = CookieVerifier(self.sealer.verifier(directory));
        if request.cookie.0 != 0 && (request.verifier != verifier || request.cookie.0 < FIRST) {
            return Err(StoreError::BadCookie);
        }
        match self.resolve(directory)? {
            Target::Virtual(index) => self.list_virtual(index, request, verifier),
            Target::Attributes(node) => self.list_attributes(who, &node, request, verifier),
            Target::Attribute(..) => Err(StoreError::NotDirectory),
            Target::Node(node) => {
                let found = self.check_directory(who, &node, READ)?;
                // A caller that may not search a directory gets no attributes of its objects.
                let want_objects =
                    request.want_objects && self.allows(who, &node, &found, EXECUTE)?;
                let fd = sys::open_directory(node.fd())?;
                if request.cookie.0 != 0 {
                    rustix::fs::seek(&fd, SeekFrom::Start(request.cookie.0 - FIRST))
                        .map_err(|_| StoreError::BadCookie)?;
                }
                let mut page = ListPage { entries: Vec::new(), verifier, is_end: false };
                let mut budget = Budget::new(request);
                let mut are_known = true;
                // If few entries are requested, use a small buffer, so that the kernel does not
                // format thousands.
                let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
                let wanted = request.entry_count_max.saturating_mul(ENTRY_BYTES_MAX);
                let room = wanted.clamp(BUFFER_BYTES_MIN, BUFFER_BYTES);
                let mut entries = RawDir::new(fd, &mut buffer[..room]);
                while let Some(entry) = entries.next() {
                    let entry = entry?;
                    let name = entry.file_name().to_bytes();
                    if name == b"." || name == b".." {
                        continue;
                    }
                    if !budget.take(name.len()) {
                        return budget.end(page);
                    }
                    let object = if want_objects {
                        self.listed_child(&node, name, &mut are_known).ok().map(
                            |(child, status)| Object {
                                handle: child.handle,
                                attributes: status.attributes,
                            },
                        )
                    } else {
                        None
                    };
                    page.entries.push(ListEntry {
                        cookie: ReaddirCookie(entry.next_entry_cookie().wrapping_add(FIRST)),
                        name: name.to_vec(),
                        file_id: entry.ino(),
                        object,
                    });
                }
                page.is_end = true;
                Ok(page)
            }
        }
    }
}

/// The number of entries and of bytes for which a page still has room.
pub(super) struct Budget {
    entries: usize,
    bytes: usize,
}

impl Budget {
    pub(super) fn new(request: &ListRequest) -> Self {
        Self { entries: request.entry_count_max, bytes: request.name_bytes_max }
    }

    pub(super) fn take(&mut self, name_bytes: usize) -> bool {
        if self.entries == 0 || name_bytes > self.bytes {
            return false;
        }
        self.entries -= 1;
        self.bytes -= name_bytes;
        true
    }

    pub(super) fn end(&self, page: ListPage) -> Result<ListPage> {
        if page.entries.is_empty() { Err(StoreError::TooSmall) } else { Ok(page) }
    }
}

/// The first cookie that a store may use. The protocol reserves 0 to 2.
pub(super) const FIRST: u64 = 3;
const BUFFER_BYTES: usize = 32 << 10;
const BUFFER_BYTES_MIN: usize = 2 << 10;
/// The size in bytes of the kernel's buffer for one directory entry with the longest name.
const ENTRY_BYTES_MAX: usize = 280;
