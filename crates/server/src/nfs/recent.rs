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

use std::collections::VecDeque;
use std::time::Duration;

use dafs_dat::EndpointId;
use dafs_filer::{FileKey, IoKind};
use dafs_files::caller::Caller;
use dafs_files::io::IoFile;
use dafs_files::outcome::NotDone;
use dafs_store::Attributes;
use dafs_store::cache::CachedFile;
use dafs_types::{FileHandle, Moment, QuickMap};

use crate::reactor::Reactor;

/// The files that were used recently.
#[derive(Debug, Default)]
pub(super) struct Recent {
    files: QuickMap<FileHandle, QuickMap<Use, Opened>>,
    /// The entries with the times at which they were added, the oldest first. Entries that were
    /// removed stay here until their time.
    queue: VecDeque<(Moment, FileHandle, Use)>,
}

/// The user who accesses a file, and the kind of access (reading or writing).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Use {
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
        let wanted = Use { user, writes: kind == IoKind::Write };
        if let Some(opened) = self.find(handle, wanted)
            && now.since(opened.since) < LIFETIME
        {
            let file = opened.file;
            let mut files = reactor.files();
            files.check_anonymous(by, handle, opened.key, kind)?;
            files.cache.hold(file);
            let undo_seen = files.undo_seen();
            return Ok(IoFile { file, borrowed: true, undo_seen });
        }
        self.remove(reactor, handle, wanted);
        if self.queue.len() >= FILES_MAX {
            self.end_old(reactor, now);
        }
        let (io, key) = reactor.files().open_anonymous(by, handle, kind)?;
        if self.queue.len() < FILES_MAX {
            reactor.shared.cache.hold(io.file);
            let opened = Opened { file: io.file, key, since: now, attributes: None };
            self.files.entry(*handle).or_default().insert(wanted, opened);
            self.queue.push_back((now, *handle, wanted));
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
        let opened = self.find(handle, Use { user, writes: false })?;
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
        let users = self.files.get_mut(handle);
        if let Some(opened) = users.and_then(|users| users.get_mut(&Use { user, writes: false })) {
            opened.attributes = Some(attributes);
        }
    }

    /// Closes the files that were opened too long ago.
    pub(super) fn end_old(&mut self, reactor: &mut Reactor<'_>, now: Moment) {
        while let Some((since, handle, wanted)) = self.queue.front().copied()
            && now.since(since) >= LIFETIME
        {
            self.queue.pop_front();
            if self.find(&handle, wanted).is_some_and(|opened| opened.since == since) {
                self.remove(reactor, &handle, wanted);
            }
        }
    }

    /// Closes all entries of a file whose attributes were set, so that permissions are checked
    /// again.
    pub(super) fn forget(&mut self, reactor: &mut Reactor<'_>, handle: &FileHandle) {
        for opened in self.files.remove(handle).into_iter().flat_map(QuickMap::into_values) {
            reactor.shared.cache.close(opened.file);
        }
    }

    fn find(&self, handle: &FileHandle, wanted: Use) -> Option<&Opened> {
        self.files.get(handle)?.get(&wanted)
    }

    fn remove(&mut self, reactor: &mut Reactor<'_>, handle: &FileHandle, wanted: Use) {
        let Some(users) = self.files.get_mut(handle) else { return };
        if let Some(opened) = users.remove(&wanted) {
            reactor.shared.cache.close(opened.file);
        }
        if users.is_empty() {
            self.files.remove(handle);
        }
    }
}

/// The time for which a file stays open.
const LIFETIME: Duration = Duration::from_secs(1);
/// The maximum number of files that stay open, and of entries in the queue.
const FILES_MAX: usize = 4096;
