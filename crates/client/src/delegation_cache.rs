//! The cache of files under delegation, and its invalidation (draft 6.5.11, 6.6.3, 6.6.4).
//!
//! Writes go to the server immediately, even under a write delegation. The cache holds only data
//! that the server has sent, and the reply to BC_GETATTR contains nothing new for the server. So
//! handling a recall only requires discarding the cached data.
//!
//! Cached data is valid for half a lease after the most recent proof that the delegation is in
//! force. The proof is a successful READ under the delegation's own state id: the server refuses
//! such a READ once the delegation has ended. Because a server keeps the delegations of an
//! unreachable client for a whole lease, no other client can have changed the file within half a
//! lease, whatever happens to the connections.
//!
//! On the server's own host the file itself can be read instead (`direct_reads.rs`).
//!
//! Invariants:
//!
//! - Nothing is cached for a file without a delegation.
//! - A reply is not cached if this session had a change in flight when it sent the request, or has
//!   requested a change since.
//! - The cache is limited to [`BYTES_MAX`].
//! - A delegation that is not kept is returned immediately.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use dafs_dat::coarse_now;
use dafs_types::{FileAttributes, FileHandle, ShareAccess, StateId, Status};
use dafs_wire::messages::{Delegation, FileAttributesResult, GetAttributes};
use dafs_wire::{
    ByteOrder, EncodeError, FileAttributeBlock, Response, ResponseHeader, encode_response,
};

use crate::direct::{Direct, FILES_HELD_MAX};
use crate::metadata::Metadata;

/// The cached files of one session.
#[derive(Default)]
pub(crate) struct DelegationCache {
    files: HashMap<FileHandle, CachedFile>,
    /// The total number of cached bytes.
    bytes: usize,
    /// The cached blocks in the order in which they were cached; some may have been removed from
    /// the cache since.
    order: VecDeque<(FileHandle, u64)>,
    /// The number of changes that this session has requested.
    epoch: u64,
    /// The time for which cached data is valid after a READ has proved that the delegation is in
    /// force; zero until the length of the lease is known.
    window: Duration,
    /// The delegations of a lost connection, to be returned over the next connection.
    to_return: Vec<StateId>,
    /// The delegations that were recalled and returned before the replies that grant them arrived.
    returned_early: VecDeque<StateId>,
    hits: u64,
    /// The number of reads that used this process's own file descriptors instead of the server.
    direct_reads: Rc<Cell<u64>>,
    /// True if the server is known not to hand over file descriptors.
    has_no_files: bool,
}

/// The cached data and attributes of one file.
struct CachedFile {
    delegation: StateId,
    /// The time at which the client sent the most recent READ that proved the delegation.
    proved: Option<Duration>,
    /// The cached blocks by number. Each is whole, except for a short block at the end of the file.
    blocks: BTreeMap<u64, Box<[u8]>>,
    metadata: Option<Metadata>,
    direct: Direct,
}

/// A request whose reply will be cached, unless the file is changed before the reply arrives.
#[derive(Clone, Copy)]
pub(crate) struct CacheFill {
    delegation: StateId,
    epoch: u64,
    asked: Duration,
    /// True if no change that would make the reply stale was in flight when this request was sent.
    is_quiet: bool,
}

/// The fate of a delegation that an OPEN granted.
pub(crate) enum GrantOutcome {
    Kept,
    /// The server recalled the delegation before the grant arrived, and the client has returned it.
    GivenBack,
    /// The delegation is not kept: the caller must return it.
    Unwanted,
}

impl CacheFill {
    /// Returns true if no change that would make the reply stale was in flight when this request
    /// was sent.
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// Returns the time at which this request was sent.
    pub(crate) fn asked(&self) -> Duration {
        self.asked
    }
}

impl DelegationCache {
    /// Returns the number of reads served from the cache or through this process's file
    /// descriptors.
    pub(crate) fn hits(&self) -> u64 {
        self.hits + self.direct_reads.get()
    }

    /// Returns the counter of reads through this process's own file descriptors.
    pub(crate) fn direct_reads(&self) -> Rc<Cell<u64>> {
        self.direct_reads.clone()
    }

    /// Returns the direct-read state of a file; `None` unless the file is held under this
    /// delegation.
    pub(crate) fn direct_of(
        &mut self,
        file: &FileHandle,
        delegation: StateId,
    ) -> Option<&mut Direct> {
        let kept = self.files.get_mut(file).filter(|kept| kept.delegation == delegation);
        kept.map(|kept| &mut kept.direct)
    }

    /// Records that the server does not hand over file descriptors to this session.
    pub(crate) fn note_no_files(&mut self) {
        self.has_no_files = true;
    }

    /// Returns true unless the server is known to hand over no file descriptors.
    pub(crate) fn may_have_files(&self) -> bool {
        !self.has_no_files
    }

    /// Returns true if this session may hold another file descriptor from the server.
    pub(crate) fn has_room_for_files(&self) -> bool {
        self.files.values().filter(|kept| kept.direct.is_held()).count() < FILES_HELD_MAX
    }

    /// Returns true if the delegation is still held and nothing has changed the file since the
    /// request.
    pub(crate) fn is_as_asked(&self, file: &FileHandle, asked: &CacheFill) -> bool {
        asked.epoch == self.epoch && self.holds(file, asked.delegation)
    }

    /// Invalidates a file's data before a lock is requested, because mandatory locks may exclude
    /// other opens of this session from reading.
    pub(crate) fn note_lock(&mut self, file: &FileHandle) {
        if let Some(kept) = self.files.get_mut(file) {
            kept.direct.give_up();
        }
    }

    /// Returns the time for which cached data is valid after a READ has proved that the delegation
    /// is in force; zero until the length of the lease is known.
    pub(crate) fn window(&self) -> Duration {
        self.window
    }

    /// Sets the time for which cached data is valid after a READ has proved that the delegation is
    /// in force. Called when the length of the lease becomes known.
    pub(crate) fn set_window(&mut self, window: Duration) {
        self.window = window;
    }

    /// Records a delegation that an OPEN has granted.
    pub(crate) fn take(
        &mut self,
        file: FileHandle,
        access: ShareAccess,
        delegation: StateId,
        is_recalled: bool,
    ) -> GrantOutcome {
        if let Some(place) =
            self.returned_early.iter().position(|returned_early| *returned_early == delegation)
        {
            self.returned_early.remove(place);
            return GrantOutcome::GivenBack;
        }
        let has_room = self.files.len() < FILES_MAX && !self.window.is_zero();
        if is_recalled || !access.reads() || !has_room {
            return GrantOutcome::Unwanted;
        }
        let (blocks, direct) = (BTreeMap::new(), Direct::default());
        let kept = CachedFile { delegation, proved: None, blocks, metadata: None, direct };
        self.forget(&file);
        self.files.insert(file, kept);
        GrantOutcome::Kept
    }

    /// Returns true if this delegation of a file is held.
    pub(crate) fn holds(&self, file: &FileHandle, delegation: StateId) -> bool {
        self.files.get(file).is_some_and(|kept| kept.delegation == delegation)
    }

    /// Removes and returns the delegations of a lost connection that must be returned to the
    /// server.
    pub(crate) fn take_owed(&mut self) -> Vec<StateId> {
        std::mem::take(&mut self.to_return)
    }

    /// Starts a request whose reply may be cached.
    pub(crate) fn begin_fill(&self, delegation: StateId, is_quiet: bool) -> CacheFill {
        CacheFill { delegation, epoch: self.epoch, asked: coarse_now(), is_quiet }
    }

    /// Returns the valid cached attributes of a file.
    pub(crate) fn metadata(&mut self, file: &FileHandle) -> Option<Metadata> {
        let kept = self.valid(file, coarse_now())?.metadata.clone();
        self.hits += u64::from(kept.is_some());
        kept
    }

    /// Caches the attributes of a file, unless the file may have changed since the request.
    pub(crate) fn keep_metadata(&mut self, file: &FileHandle, fill: CacheFill, found: &Metadata) {
        // The delegation was in force when the request was sent.
        let is_valid = self.valid(file, coarse_now()).is_some();
        if is_valid
            && fill.is_quiet
            && fill.epoch == self.epoch
            && let Some(kept) = self.files.get_mut(file)
            && kept.delegation == fill.delegation
        {
            kept.metadata = Some(found.clone());
        }
    }

    /// Invalidates the cached data of a file before this session changes it; `None` invalidates the
    /// data of all files.
    pub(crate) fn note_change(&mut self, file: Option<&FileHandle>) {
        self.epoch += 1;
        match file {
            Some(file) => {
                if let Some(kept) = self.files.get_mut(file) {
                    self.bytes -= kept.empty();
                }
            }
            None => {
                for kept in self.files.values_mut() {
                    kept.empty();
                }
                self.bytes = 0;
            }
        }
        if self.bytes == 0 {
            self.order.clear();
        }
    }

    /// Removes a file from the cache and returns its delegation, which must be returned to the
    /// server.
    pub(crate) fn forget(&mut self, file: &FileHandle) -> Option<StateId> {
        let mut kept = self.files.remove(file)?;
        self.bytes -= kept.empty();
        Some(kept.delegation)
    }

    /// Removes all files and returns their delegations.
    pub(crate) fn forget_all(&mut self) -> Vec<StateId> {
        self.order.clear();
        self.bytes = 0;
        self.files.drain().map(|(_, kept)| kept.delegation).collect()
    }

    /// Discards the cache after the session has lost its connection, and records the delegations to
    /// return.
    pub(crate) fn set_aside(&mut self) {
        let states = self.forget_all();
        self.to_return.extend(states);
        // The next connection may lead to another server, which may hand over descriptors.
        self.has_no_files = false;
    }

    /// Removes a file whose delegation the server recalls.
    pub(crate) fn recalled(&mut self, file: &FileHandle, delegation: StateId) {
        if self.files.get(file).is_some_and(|kept| kept.delegation == delegation) {
            self.forget(file);
            return;
        }
        if self.returned_early.len() == RETURNED_EARLY_MAX {
            self.returned_early.pop_front();
        }
        self.returned_early.push_back(delegation);
    }

    fn valid(&self, file: &FileHandle, now: Duration) -> Option<&CachedFile> {
        let kept = self.files.get(file)?;
        let age = now.saturating_sub(kept.proved?);
        (age < self.window).then_some(kept)
    }

    /// Copies cached data from byte `offset` on into the caller's buffer. Returns the number of
    /// bytes copied, and true if the file ends there.
    pub(crate) fn copy(
        &mut self,
        file: &FileHandle,
        offset: u64,
        bytes: &mut [u8],
    ) -> (usize, bool) {
        let Some(kept) = self.valid(file, coarse_now()) else { return (0, false) };
        let mut done = 0;
        while done < bytes.len() {
            let place = offset + done as u64;
            let Some(block) = kept.blocks.get(&(place / BLOCK)) else { break };
            let at = (place % BLOCK) as usize;
            let behind = block.get(at..).unwrap_or(&[]);
            let there = behind.len().min(bytes.len() - done);
            bytes[done..done + there].copy_from_slice(&behind[..there]);
            done += there;
            if done < bytes.len() && (block.len() as u64) < BLOCK {
                self.hits += 1;
                return (done, true);
            }
        }
        self.hits += u64::from(done > 0);
        (done, false)
    }

    /// Caches data that was read from the file, starting at a block boundary.
    pub(crate) fn keep(
        &mut self,
        file: &FileHandle,
        fill: CacheFill,
        offset: u64,
        bytes: &[u8],
        is_end: bool,
    ) {
        let Some(kept) = self.files.get_mut(file) else { return };
        if kept.delegation != fill.delegation {
            return;
        }
        kept.proved = Some(fill.asked);
        if !fill.is_quiet || fill.epoch != self.epoch {
            return;
        }
        for (number, block) in (offset / BLOCK..).zip(bytes.chunks(BLOCK as usize)) {
            if (block.len() as u64) < BLOCK && !is_end {
                break;
            }
            self.bytes += block.len();
            if let Some(before) = kept.blocks.insert(number, block.into()) {
                self.bytes -= before.len();
            } else {
                self.order.push_back((*file, number));
            }
        }
        while self.bytes > BYTES_MAX || self.order.len() > BLOCKS_MAX {
            let Some((file, number)) = self.order.pop_front() else { break };
            let kept = self.files.get_mut(&file);
            if let Some(block) = kept.and_then(|kept| kept.blocks.remove(&number)) {
                self.bytes -= block.len();
            }
        }
    }
}

impl CachedFile {
    /// Discards the file's cached data and attributes, but keeps the delegation. Returns the number
    /// of bytes discarded.
    fn empty(&mut self) -> usize {
        self.metadata = None;
        self.direct.give_up();
        std::mem::take(&mut self.blocks).values().map(|block| block.len()).sum()
    }
}

/// Returns the state id of a granted delegation, and true if the server recalls the delegation in
/// the grant itself.
pub(crate) fn granted(delegation: &Delegation<'_>) -> Option<(StateId, bool)> {
    match delegation {
        Delegation::None => None,
        Delegation::Read { state, recall, .. } | Delegation::Write { state, recall, .. } => {
            Some((*state, *recall))
        }
    }
}

/// Encodes the reply to BC_GETATTR, which contains only attributes that the server knows already.
pub(crate) fn encode_told(
    header: &ResponseHeader,
    request: &GetAttributes,
    bytes: &mut [u8],
) -> std::result::Result<usize, EncodeError> {
    let mut buffer = [0; TOLD_BYTES_MAX];
    let nothing = FileAttributes::default();
    let block =
        FileAttributeBlock::encode_file(ByteOrder::NATIVE, request.wanted, &nothing, &mut buffer);
    let (header, response) = match block {
        Ok(attributes) => (*header, Response::BcGetAttr(FileAttributesResult { attributes })),
        Err(_) => (ResponseHeader { status: Status::NotSupp, ..*header }, Response::Failed),
    };
    encode_response(ByteOrder::NATIVE, &header, &response, bytes)
}

/// The size in bytes of a cached block.
pub(crate) const BLOCK: u64 = 64 << 10;

/// The limit for the number of cached bytes in one session.
pub(crate) const BYTES_MAX: usize = 16 << 20;

/// The limit for the number of cached blocks in one session; short blocks count as whole ones.
pub(crate) const BLOCKS_MAX: usize = 16 << 10;

/// The limit for the number of cached files in one session.
pub(crate) const FILES_MAX: usize = 1024;

/// The limit for the number of remembered delegations that were returned before their grants
/// arrived.
pub(crate) const RETURNED_EARLY_MAX: usize = 64;

/// A size in bytes that is sufficient for a reply with all attributes of fixed length.
pub(crate) const TOLD_BYTES_MAX: usize = 512;
