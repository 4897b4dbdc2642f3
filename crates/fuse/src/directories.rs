//! Directory listings.
//!
//! Invariant: a directory is listed completely when it is read from its beginning. So an offset
//! refers to the same entry until the directory is closed or is read from its beginning again.

use std::cell::RefCell;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::time::Instant;

use dafs_base::Key;
use dafs_client::{DirectoryEntry, ObjectType};

use crate::abi::Message;
use crate::attributes::{device_number, last_metadata};
use crate::engine::{Engine, ErrnoResult, Reply};
use crate::reply::{ENTRY_BYTES, directory_entry_bytes};

/// An open directory of the kernel.
#[derive(Default)]
pub(crate) struct OpenDirectory {
    listing: RefCell<Option<Listing>>,
}

struct Listing {
    entries: Vec<DirectoryEntry>,
    /// The inode number of the directory.
    own: u64,
    /// The inode number of the directory's parent.
    parent: u64,
    taken: Instant,
}

impl Engine {
    pub(crate) async fn opendir(self: Rc<Self>, node: u64) -> ErrnoResult<Reply> {
        self.node(node)?;
        let number = self.directories.borrow_mut().insert(Rc::default()).to_bits();
        let mut message = Message::default();
        message.opened(number, 0);
        Ok(Reply::Body(message.0))
    }

    pub(crate) async fn readdir(
        self: Rc<Self>,
        node: u64,
        number: u64,
        offset: u64,
        size: usize,
        plus: bool,
    ) -> ErrnoResult<Reply> {
        let handle = self.node(node)?.handle;
        let open = self.directories.borrow().get(Key::from_bits(number)).cloned();
        let open = open.ok_or(EBADF)?;
        if offset == 0 || open.listing.borrow().is_none() {
            let (session, _) = self.session();
            let entries = session.list_async(handle, "").await;
            let entries = entries.map_err(|error| self.failed(&error))?;
            let own = self.metadata(handle).await?.file_id;
            let parent = session.chain().at(handle).parent().getattr().run_async().await;
            // The root has no parent.
            let parent = parent.ok().and_then(|found| last_metadata(found).ok());
            let parent = parent.map_or(own, |parent| parent.file_id);
            let taken = Instant::now();
            *open.listing.borrow_mut() = Some(Listing { entries, own, parent, taken });
        }
        let listing = open.listing.borrow();
        let listing = listing.as_ref().ok_or(EIO)?;
        Ok(self.page(listing, offset, size, plus))
    }

    /// Returns a page of a listing, with as many entries as fit in `size` bytes.
    fn page(&self, listing: &Listing, offset: u64, size: usize, plus: bool) -> Reply {
        let is_fresh = listing.taken.elapsed() < FRESH;
        let (mut message, mut nodes) = (Message::default(), Vec::new());
        let mut at = offset;
        loop {
            let (name, ino, mode, metadata) = match at {
                0 => (&b"."[..], listing.own, DIRECTORY, None),
                1 => (&b".."[..], listing.parent, DIRECTORY, None),
                _ => {
                    let entry = usize::try_from(at - 2).ok();
                    let Some(entry) = entry.and_then(|at| listing.entries.get(at)) else { break };
                    let metadata = entry.metadata.as_ref();
                    let ino = metadata.map_or(UNKNOWN, |metadata| metadata.file_id);
                    let mode = metadata.map_or(0, |m| dafs_posix::stat::type_bits(m.kind));
                    (entry.name.as_bytes(), ino, mode, metadata)
                }
            };
            let length = directory_entry_bytes(name) + if plus { ENTRY_BYTES } else { 0 };
            if message.0.len() + length > size {
                break;
            }
            at += 1;
            if plus {
                match metadata
                    .filter(|metadata| is_fresh && metadata.kind != ObjectType::AttributeDirectory)
                {
                    Some(metadata) => {
                        let stat = self.stat(metadata);
                        let node = self.nodes.borrow_mut().look_up(metadata, &stat);
                        nodes.push(node);
                        message.entry(node, &stat, device_number(metadata), self.lifetimes());
                    }
                    None => drop(message.no_entry()),
                }
            }
            message.directory_entry(ino, at, mode, name);
        }
        Reply::Entries(message.0, nodes)
    }
}

/// The maximum age at which attributes of a listing may be reported.
const FRESH: std::time::Duration = std::time::Duration::from_secs(1);
const DIRECTORY: u32 = 0o040_000;
/// The inode number to report for an entry without attributes. Zero would hide the entry.
const UNKNOWN: u64 = 0xffff_ffff;
const EIO: i32 = 5;
const EBADF: i32 = 9;
