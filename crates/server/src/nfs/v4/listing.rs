//! Directory listings: the operation READDIR.
//!
//! A listing of version 4 does not contain the entries `.` and `..`. The cookies 1 and 2, which
//! stand for these entries in other versions, are not valid.

use dafs_nfs_wire::nfs4::attributes::number;
use dafs_nfs_wire::nfs4::directory::ReadDirArgs;
use dafs_nfs_wire::nfs4::types::Verifier;
use dafs_nfs_wire::nfs4::{ListingWriter, OperationKind, Status};
use dafs_nfs_wire::xdr::Opaque;
use dafs_store::{FileVersion, ListEntry, ListRequest};
use dafs_types::{CookieVerifier, FileSystemAttributes, ReaddirCookie};

use super::attributes::{Texts, WRITE_ONLY, shown};
use super::compound::Service;
use super::fault::{Result, failed};
use super::waiting::Did;

impl Service<'_, '_, '_> {
    pub(super) fn list(&mut self, asked: &ReadDirArgs) -> Result<Did> {
        let directory = self.plain_directory()?;
        if asked.attributes.iter().any(|number| WRITE_ONLY.contains(&number)) {
            return Err(Status::Inval);
        }
        if matches!(asked.cookie, 1 | 2) {
            return Err(Status::BadCookie);
        }
        let limit = (asked.bytes_max as usize).min(self.desk.writer.room()).min(PAGE_BYTES_MAX);
        if limit < PAGE_BYTES_MIN {
            return Err(Status::TooSmall);
        }
        let wants_objects = asked.attributes.iter().any(|wanted| {
            !matches!(wanted, number::fileid | number::mounted_on_fileid | number::rdattr_error)
        });
        let entry_bytes = if wants_objects { ENTRY_PLUS_BYTES } else { ENTRY_BYTES };
        let request = ListRequest {
            cookie: ReaddirCookie(asked.cookie),
            verifier: CookieVerifier(asked.verifier.0),
            entry_count_max: (limit / entry_bytes).clamp(1, ENTRIES_MAX),
            name_bytes_max: limit,
            want_objects: wants_objects,
        };
        let by = self.by()?;
        let page = match by.store().readdir(&by, &directory, &request) {
            Ok(page) => page,
            Err(error) => return Err(failed(self.reactor, &directory, error)),
        };
        let of_file_system = self.file_system(&directory, &asked.attributes)?;
        let lease = self.lease();
        let Some(reply) = self.c.reply_writer() else { return Err(Status::ServerFault) };
        reply.begin(self.desk.writer, OperationKind::ReadDir, Status::Ok);
        let verifier = Verifier(page.verifier.0);
        let mut listing = ListingWriter::new(self.desk.writer, verifier, limit);
        let (mut is_end, mut count) = (page.is_end, 0);
        for entry in &page.entries {
            if !self.put(&mut listing, asked, entry, of_file_system.as_ref(), lease) {
                is_end = false;
                break;
            }
            count += 1;
        }
        if count == 0 && !is_end {
            // The caller removes what was written, and writes the status instead.
            self.c.takes_back = true;
            return Err(Status::TooSmall);
        }
        listing.finish(self.desk.writer, is_end);
        Ok(Did::Written)
    }

    /// Writes an entry. Returns false, and writes nothing, if there is no room for the entry.
    fn put(
        &mut self,
        listing: &mut ListingWriter,
        asked: &ReadDirArgs,
        entry: &ListEntry,
        of_file_system: Option<&FileSystemAttributes>,
        lease: u32,
    ) -> bool {
        let mut texts = Texts::default();
        let name = Opaque(&entry.name[..]);
        let Some(object) = &entry.object else {
            let attributes = dafs_nfs_wire::nfs4::Attributes {
                fileid: Some(entry.file_id),
                mounted_on_fileid: Some(entry.file_id),
                rdattr_error: Some(Status::Ok),
                ..Default::default()
            };
            let wanted = &asked.attributes;
            return listing.push(self.desk.writer, entry.cookie.0, name, &attributes, wanted);
        };
        let mut found = object.attributes;
        let cache = &mut *self.reactor.files().cache;
        if let Some(file) = cache.find(&object.handle) {
            cache.revalidate(file, FileVersion::from(&found));
            cache.overlay(file, &mut found);
        }
        let attributes = shown(&object.handle, &found, of_file_system, lease, &mut texts);
        listing.push(self.desk.writer, entry.cookie.0, name, &attributes, &asked.attributes)
    }
}

/// The size of the largest page in bytes.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// The size of the smallest page in bytes, in which an entry with a short name fits.
const PAGE_BYTES_MIN: usize = 64;
/// The size in bytes of an entry with a short name, without attributes and (in the next constant)
/// with attributes.
const ENTRY_BYTES: usize = 48;
const ENTRY_PLUS_BYTES: usize = 200;
const ENTRIES_MAX: usize = 4096;
