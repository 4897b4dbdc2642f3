//! Directory listings: READDIR and READDIRPLUS.
//!
//! The store's listings do not contain `.` and `..`. This module adds them, with the cookies 1 and
//! 2, which the store does not use.

use dafs_nfs_wire::nfs3::{Attributes, Entry, EntryPlus, ReadDirArgs, ReadDirPlusArgs, Status};
use dafs_nfs_wire::xdr::{Opaque, Xdr};
use dafs_store::{FileVersion, ListEntry, ListRequest, StoreError};
use dafs_types::{CookieVerifier, FileHandle, ReaddirCookie};

use super::{Result, Service, convert, status_of};

/// A page of a directory listing.
struct Page {
    entries: Vec<Listed>,
    verifier: [u8; 8],
    is_end: bool,
}

/// An entry of a page.
struct Listed {
    file_id: u64,
    name: Vec<u8>,
    cookie: u64,
    /// The handle and the attributes of the object. `None` if they were not requested or could not
    /// be read.
    object: Option<(FileHandle, Attributes)>,
}

impl Service<'_, '_, '_> {
    pub(super) fn list(&mut self, asked: &ReadDirArgs<'_>) {
        let count = asked.count.min(self.transfer_bytes_max()) as usize;
        let page = self.page(asked.directory, asked.cookie, asked.verifier, count, false);
        let room = self.desk.writer.length() + count;
        let Some(page) = self.begin_page(asked.directory, page) else { return };
        let mut is_end = page.is_end;
        for listed in &page.entries {
            let entry = Entry {
                file_id: listed.file_id,
                name: Opaque(&listed.name),
                cookie: listed.cookie,
            };
            if !self.desk.writer.chain_item(&entry, room.saturating_sub(PAGE_TAIL)) {
                is_end = false;
                break;
            }
        }
        self.end_page(is_end);
    }

    pub(super) fn list_plus(&mut self, asked: &ReadDirPlusArgs<'_>) {
        let count = asked.count_max.min(self.transfer_bytes_max()) as usize;
        let page = self.page(asked.directory, asked.cookie, asked.verifier, count, true);
        let room = self.desk.writer.length() + count;
        let Some(page) = self.begin_page(asked.directory, page) else { return };
        let mut is_end = page.is_end;
        let mut names = 0;
        for listed in &page.entries {
            // The limit `directory_count` of the call covers only names, file ids and cookies.
            names += NAME_HEAD + listed.name.len();
            let entry = EntryPlus {
                file_id: listed.file_id,
                name: Opaque(&listed.name),
                cookie: listed.cookie,
                attributes: listed.object.as_ref().map(|(_, attributes)| *attributes),
                file: listed.object.as_ref().map(|(handle, _)| Opaque(&handle.0[..])),
            };
            if names > asked.directory_count as usize
                || !self.desk.writer.chain_item(&entry, room.saturating_sub(PAGE_TAIL))
            {
                is_end = false;
                break;
            }
        }
        self.end_page(is_end);
    }

    /// Writes the part of the reply that comes before the entries. Returns `None` if the listing
    /// has failed; the reply then contains the error and is complete.
    fn begin_page(
        &mut self,
        directory: dafs_nfs_wire::nfs3::Handle<'_>,
        page: Result<Page>,
    ) -> Option<Page> {
        let attributes = self.attributes_of_object(directory);
        match page {
            Ok(page) => {
                Status::Ok.encode(self.desk.writer);
                attributes.encode(self.desk.writer);
                page.verifier.encode(self.desk.writer);
                Some(page)
            }
            Err(status) => {
                status.encode(self.desk.writer);
                attributes.encode(self.desk.writer);
                None
            }
        }
    }

    fn end_page(&mut self, is_end: bool) {
        self.desk.writer.chain_end();
        is_end.encode(self.desk.writer);
    }

    /// Reads the entries after a cookie, as many as are likely to fit into `count` bytes.
    fn page(
        &mut self,
        directory: dafs_nfs_wire::nfs3::Handle<'_>,
        cookie: u64,
        verifier: [u8; 8],
        count: usize,
        wants_objects: bool,
    ) -> Result<Page> {
        let directory = self.object(directory)?;
        if count < PAGE_BYTES_MIN {
            return Err(Status::TooSmall);
        }
        let mut entries = Vec::new();
        if cookie < SELF {
            entries.push(self.dot(&directory, b".", SELF, wants_objects)?);
        }
        if cookie < PARENT {
            entries.push(self.dot(&directory, b"..", PARENT, wants_objects)?);
        }
        let entry_bytes = if wants_objects { ENTRY_PLUS_BYTES } else { ENTRY_BYTES };
        let request = ListRequest {
            cookie: ReaddirCookie(if cookie <= PARENT { 0 } else { cookie }),
            verifier: CookieVerifier(verifier),
            entry_count_max: (count / entry_bytes).clamp(1, ENTRIES_MAX),
            name_bytes_max: count,
            want_objects: wants_objects,
        };
        let by = self.by.clone();
        let page = by.store().readdir(&by, &directory, &request);
        let page = page.map_err(|error| self.failed(&directory, error))?;
        for entry in &page.entries {
            let listed = self.listed(entry);
            entries.push(listed);
        }
        Ok(Page { entries, verifier: page.verifier.0, is_end: page.is_end })
    }

    fn listed(&mut self, entry: &ListEntry) -> Listed {
        let object = entry.object.as_ref().map(|object| {
            let mut attributes = object.attributes;
            let cache = &mut *self.reactor.files().cache;
            if let Some(file) = cache.find(&object.handle) {
                cache.revalidate(file, FileVersion::from(&attributes));
                cache.overlay(file, &mut attributes);
            }
            (object.handle, convert::shown(&object.handle, &attributes))
        });
        let (name, cookie) = (entry.name.clone(), entry.cookie.0);
        Listed { file_id: entry.file_id, name, cookie, object }
    }

    /// Returns the entry `.` or `..` of a directory.
    fn dot(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        cookie: u64,
        wants_objects: bool,
    ) -> Result<Listed> {
        let by = self.by.clone();
        let found = match cookie {
            PARENT => match by.store().lookup_parent(&by, directory) {
                Err(StoreError::NotFound) => {
                    by.store().attributes(&by, directory).map(|found| (*directory, found))
                }
                found => found.map(|object| (object.handle, object.attributes)),
            },
            _ => by.store().attributes(&by, directory).map(|found| (*directory, found)),
        };
        let (handle, found) = found.map_err(status_of)?;
        let shown = convert::shown(&handle, &found);
        let object = wants_objects.then_some((handle, shown));
        Ok(Listed { file_id: shown.file_id, name: name.to_vec(), cookie, object })
    }
}

/// The cookie of the entry `.`.
const SELF: u64 = 1;
/// The cookie of the entry `..`.
const PARENT: u64 = 2;
/// The size of the smallest page in which an entry with a short name fits, in bytes.
const PAGE_BYTES_MIN: usize = 64;
/// The number of bytes after the entries: the end of the list, and the flag that marks the listing
/// as complete.
const PAGE_TAIL: usize = 8;
/// The size of an entry with a short name, without attributes and (in the next constant) with
/// attributes, in bytes.
const ENTRY_BYTES: usize = 32;
const ENTRY_PLUS_BYTES: usize = 200;
/// The number of bytes that an entry, in addition to its name, counts against the limit
/// `directory_count` of READDIRPLUS.
const NAME_HEAD: usize = 24;
const ENTRIES_MAX: usize = 4096;
