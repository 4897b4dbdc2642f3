//! Encodes pages of directory listings for DAFS messages.

use dafs_files::Files;
use dafs_files::caller::Caller;
use dafs_store::{ListPage, ListRequest};
use dafs_types::names::to_wire;
use dafs_types::{CookieVerifier, FileHandle, ReaddirCookie, Status};
use dafs_wire::{AttributeBitmap, ByteOrder, ReaddirWriter};

use super::attributes::extras_in;

/// One page of a directory listing, encoded for a reply.
pub(super) struct Page {
    pub bytes: Vec<u8>,
    pub verifier: CookieVerifier,
    pub is_end: bool,
}

/// The directory of a listing, and the position at which the listing continues.
type Place<'p> = (&'p FileHandle, ReaddirCookie, CookieVerifier);

/// Encodes as many entries of a directory as fit into a page.
pub(super) fn page(
    files: &mut Files<'_>,
    by: &Caller,
    order: ByteOrder,
    (directory, cookie, verifier): Place<'_>,
    wanted: AttributeBitmap,
    room: usize,
) -> Result<Page, Status> {
    // Fetching the attributes of an object costs system calls, so only as many entries are fetched
    // as are likely to fit.
    let attribute_bytes = wanted.0.count_ones() as usize * ATTRIBUTE_BYTES_USUAL;
    let entry_bytes = ENTRY_BYTES_MIN + attribute_bytes;
    let request = ListRequest {
        cookie,
        verifier,
        entry_count_max: (room / entry_bytes).clamp(1, ENTRIES_PER_PAGE_MAX),
        name_bytes_max: room,
        want_objects: wanted != AttributeBitmap::NONE,
    };
    let listed = by.store().readdir(by, directory, &request)?;
    encode_page(files, by, order, &listed, wanted, room)
}

fn encode_page(
    files: &mut Files<'_>,
    by: &Caller,
    order: ByteOrder,
    listed: &ListPage,
    wanted: AttributeBitmap,
    room: usize,
) -> Result<Page, Status> {
    let mut bytes = vec![0; room];
    let mut writer = ReaddirWriter::new(order, wanted, &mut bytes).map_err(|_| Status::TooSmall)?;
    let mut is_end = listed.is_end;
    let extras = extras_in(wanted);
    for entry in &listed.entries {
        let attributes = files.attributes_of_entry(by, entry, extras);
        match writer.push(entry.cookie, &to_wire(&entry.name), &attributes) {
            Ok(true) => {}
            Ok(false) => {
                is_end = false;
                break;
            }
            Err(error) => return Err(error.status()),
        }
    }
    if writer.is_empty() && !is_end {
        return Err(Status::ReaddirNoSpc);
    }
    let length = writer.finish().bytes().len();
    bytes.truncate(length);
    Ok(Page { bytes, verifier: listed.verifier, is_end })
}

/// The length in bytes of the part of READDIR_INLINE's reply before the entries: the header and the
/// fixed section, including the offset of the array of entries.
pub(super) const LISTING_HEAD: usize = 64;
/// The size of the largest page in bytes.
pub(super) const LISTING_BYTES_MAX: usize = 1 << 20;
/// The size of the smallest entry in bytes.
const ENTRY_BYTES_MIN: usize = 40;
/// The usual size of one encoded attribute in bytes, for an estimate of how many entries fit.
const ATTRIBUTE_BYTES_USUAL: usize = 14;
const ENTRIES_PER_PAGE_MAX: usize = 4096;
