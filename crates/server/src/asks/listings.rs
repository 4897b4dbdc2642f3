//! Listings and link texts, in the answer or in the client's memory.

use dafs_store::{ListPage, ListRequest};
use dafs_types::names::to_wire;
use dafs_types::{CookieVerifier, FileHandle, ReaddirCookie, Status};
use dafs_wire::messages::{
    DirectResult, LinkTextResult, OneHandle, ReadDirectory, ReadDirectoryDirect,
    ReadDirectoryDirectResult, ReadDirectoryResult, ReadLinkDirect,
};
use dafs_wire::{
    AttributeBitmap, ByteOrder, DirectoryEntries, ReaddirWriter, Response, encode_link_text,
};

use super::attributes::extras_in;
use crate::caller::Caller;
use crate::outcome::NotDone;
use crate::reactor::Reactor;
use crate::reply_to::ReplyTo;

/// One page of a directory, encoded.
struct Page {
    bytes: Vec<u8>,
    verifier: CookieVerifier,
    is_end: bool,
}

/// Where a listing goes on.
type Place<'p> = (&'p FileHandle, ReaddirCookie, CookieVerifier);

impl Reactor {
    pub(super) fn list(&mut self, to: ReplyTo, request: &ReadDirectory) -> Result<(), NotDone> {
        let room = self.response_bytes_max(to.endpoint).saturating_sub(LISTING_HEAD);
        let room = room.min(request.result_bytes_max as usize);
        let order = self.order_of(to.endpoint).ok_or(Status::BadSession)?;
        let place = (&request.directory, request.cookie, request.verifier);
        let page = self.page(to, order, place, request.wanted, room)?;
        let entries =
            DirectoryEntries::parse(order, &page.bytes).map_err(|_| Status::ServerFault)?;
        let result =
            ReadDirectoryResult { verifier: page.verifier, end_of_directory: page.is_end, entries };
        self.answer(to, &Response::ReadDirInline(result))
    }

    pub(super) fn list_direct(
        &mut self,
        to: ReplyTo,
        request: &ReadDirectoryDirect<'_>,
    ) -> Result<(), NotDone> {
        let room = usize::try_from(request.buffers.total_bytes()).unwrap_or(usize::MAX);
        let room = room.min(request.result_bytes_max as usize).min(LISTING_BYTES_MAX);
        let order = self.order_of(to.endpoint).ok_or(Status::BadSession)?;
        let place = (&request.directory, request.cookie, request.verifier);
        let page = self.page(to, order, place, request.wanted, room)?;
        let buffers: Vec<_> = request.buffers.iter().collect();
        let checksum = self.place_bytes(to, &page.bytes, &buffers)?;
        let result = ReadDirectoryDirectResult {
            verifier: page.verifier,
            end_of_directory: page.is_end,
            checksum,
        };
        self.answer(to, &Response::ReadDirDirect(result))
    }

    /// As many entries as fit.
    fn page(
        &mut self,
        to: ReplyTo,
        order: ByteOrder,
        (directory, cookie, verifier): Place<'_>,
        wanted: AttributeBitmap,
        room: usize,
    ) -> Result<Page, Status> {
        let by = self.caller(to)?;
        // Objects cost system calls: no more are asked for than are likely to fit.
        let attribute_bytes = wanted.0.count_ones() as usize * ATTRIBUTE_BYTES_USUAL;
        let entry_bytes = ENTRY_BYTES_MIN + attribute_bytes;
        let request = ListRequest {
            cookie,
            verifier,
            entry_count_max: (room / entry_bytes).clamp(1, ENTRIES_PER_PAGE_MAX),
            name_bytes_max: room,
            want_objects: wanted != AttributeBitmap::NONE,
        };
        let listed = by.store().readdir(&by, directory, &request)?;
        self.encode_page(&by, order, &listed, wanted, room)
    }

    fn encode_page(
        &mut self,
        by: &Caller,
        order: ByteOrder,
        listed: &ListPage,
        wanted: AttributeBitmap,
        room: usize,
    ) -> Result<Page, Status> {
        let mut bytes = vec![0; room];
        let mut writer =
            ReaddirWriter::new(order, wanted, &mut bytes).map_err(|_| Status::TooSmall)?;
        let mut is_end = listed.is_end;
        let extras = extras_in(wanted);
        let mut files = self.files();
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
        let length = writer.finish().octets().len();
        bytes.truncate(length);
        Ok(Page { bytes, verifier: listed.verifier, is_end })
    }

    pub(super) fn read_link(&mut self, to: ReplyTo, request: &OneHandle) -> Result<(), NotDone> {
        let by = self.caller(to)?;
        let text = by.store().readlink(&by, &request.file)?;
        self.answer(to, &Response::ReadLinkInline(LinkTextResult { text: &text }))
    }

    pub(super) fn read_link_direct(
        &mut self,
        to: ReplyTo,
        request: &ReadLinkDirect,
    ) -> Result<(), NotDone> {
        let by = self.caller(to)?;
        let text = by.store().readlink(&by, &request.file)?;
        let order = self.order_of(to.endpoint).ok_or(Status::BadSession)?;
        let mut bytes = vec![0; text.len() + 16];
        let length = encode_link_text(order, &text, &mut bytes).map_err(|error| error.status())?;
        let checksum = self.place_bytes(to, &bytes[..length], &[request.buffer])?;
        self.answer(to, &Response::ReadLinkDirect(DirectResult { checksum }))
    }
}

/// Header and fixed section of READDIR_INLINE's results, with the array's offset.
const LISTING_HEAD: usize = 64;
/// Most octets of one listing.
const LISTING_BYTES_MAX: usize = 1 << 20;
/// Octets an entry takes at least.
const ENTRY_BYTES_MIN: usize = 40;
/// Octets of one attribute in the mean.
const ATTRIBUTE_BYTES_USUAL: usize = 14;
const ENTRIES_PER_PAGE_MAX: usize = 4096;
