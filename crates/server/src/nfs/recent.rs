//! Files that calls without an open have used recently.
//!
//! A READ of NFSv3 names a file by its handle, without an open. Opening the file for each READ
//! would take several system calls. So the server keeps the file open for a short time, for calls
//! of the same user.
//!
//! Invariants:
//! - An entry is used for at most [`LIFETIME`], so a change of permissions by a process of this
//!   host or a DAFS client takes effect within that time. A change by an NFS client takes effect
//!   immediately.
//! - Opens, locks, delegations and fences of other clients are checked for each call.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use dafs_dat::EndpointId;
use dafs_filer::{FileKey, IoKind};
use dafs_files::caller::Caller;
use dafs_files::io::IoFile;
use dafs_files::outcome::NotDone;
use dafs_store::Attributes;
use dafs_store::cache::CachedFile;
use dafs_types::{FileHandle, Moment};

use crate::reactor::Reactor;

/// The files that were used recently.
#[derive(Debug, Default)]
pub(super) struct Recent {
    files: HashMap<Use, Opened>,
    /// The entries with the times at which they were added, the oldest first.
    queue: VecDeque<(Moment, Use)>,
}

/// A file, the user who accesses it, and the kind of access (reading or writing).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Use {
    file: FileHandle,
    user: EndpointId,
    writes: bool,
}

/// A file that is open in the cache.
#[derive(Debug)]
struct Opened {
    file: CachedFile,
    key: FileKey,
    since: Moment,
    attributes: Option<Attributes>,
}

impl Recent {
    /// Returns the file of a READ or WRITE that uses no open.
    ///
    /// # Errors
    /// See [`dafs_files::Files::open_anonymous`].
    pub(super) fn file_for(
        &mut self,
        reactor: &mut Reactor<'_>,
        (by, user): (&Caller, EndpointId),
        handle: &FileHandle,
        kind: IoKind,
    ) -> Result<IoFile, NotDone> {
        let now = reactor.shared.life.now();
        let wanted = Use { file: *handle, user, writes: kind == IoKind::Write };
        if let Some(opened) = self.files.get(&wanted)
            && now.since(opened.since) < LIFETIME
        {
            let file = opened.file;
            let mut files = reactor.files();
            files.check_anonymous(by, handle, opened.key, kind)?;
            files.cache.hold(file);
            let undo_seen = files.undo_seen();
            return Ok(IoFile { file, borrowed: true, undo_seen });
        }
        self.remove(reactor, &wanted);
        if self.files.len() >= FILES_MAX {
            self.end_old(reactor, now);
        }
        let (io, key) = reactor.files().open_anonymous(by, handle, kind)?;
        if self.files.len() < FILES_MAX {
            reactor.shared.cache.hold(io.file);
            self.files.insert(wanted, Opened { file: io.file, key, since: now, attributes: None });
            self.queue.push_back((now, wanted));
        }
        Ok(io)
    }

    /// Returns the attributes of a file that was used recently. `None` if they must be read.
    pub(super) fn attributes(
        &self,
        reactor: &Reactor<'_>,
        user: EndpointId,
        handle: &FileHandle,
    ) -> Option<Attributes> {
        let wanted = Use { file: *handle, user, writes: false };
        let opened = self.files.get(&wanted)?;
        let attributes = opened.attributes?;
        reactor.shared.cache.is_as_shown(opened.file, &attributes).then_some(attributes)
    }

    /// Stores the attributes of a file that was used recently, for later calls.
    pub(super) fn note_attributes(
        &mut self,
        user: EndpointId,
        handle: &FileHandle,
        attributes: Attributes,
    ) {
        let wanted = Use { file: *handle, user, writes: false };
        if let Some(opened) = self.files.get_mut(&wanted) {
            opened.attributes = Some(attributes);
        }
    }

    /// Closes the files that were opened too long ago.
    pub(super) fn end_old(&mut self, reactor: &mut Reactor<'_>, now: Moment) {
        while let Some((since, wanted)) = self.queue.front().copied()
            && now.since(since) >= LIFETIME
        {
            self.queue.pop_front();
            if self.files.get(&wanted).is_some_and(|opened| opened.since == since) {
                self.remove(reactor, &wanted);
            }
        }
    }

    /// Closes all entries of a file whose attributes were set, so that permissions are checked
    /// again.
    pub(super) fn forget(&mut self, reactor: &mut Reactor<'_>, handle: &FileHandle) {
        let of_file: Vec<Use> =
            self.files.keys().filter(|wanted| wanted.file == *handle).copied().collect();
        for wanted in of_file {
            self.remove(reactor, &wanted);
        }
    }

    fn remove(&mut self, reactor: &mut Reactor<'_>, wanted: &Use) {
        if let Some(opened) = self.files.remove(wanted) {
            reactor.shared.cache.close(opened.file);
        }
    }
}

/// The time for which a file stays open.
const LIFETIME: Duration = Duration::from_secs(1);
/// The maximum number of files that stay open.
const FILES_MAX: usize = 4096;
