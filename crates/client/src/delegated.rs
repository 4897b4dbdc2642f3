//! What a session keeps of files that it holds a delegation of, and how it gives that back
//! (draft 6.5.11, 6.6.3, 6.6.4).
//!
//! Writes go through to the server, also under a write delegation: what is kept is what a server
//! has said, and BC_GETATTR is answered with nothing to add. So a recall costs no more than
//! to forget.
//!
//! What is kept is believed for half a lease after the last proof: a READ under the
//! delegation's own state id, which the server refuses once the delegation is not in force.
//! A server keeps delegations of a client it cannot reach for a whole lease, so whatever
//! happens to the connections, nobody else has changed the file by then.
//!
//! On the server's host the file itself may be had, and is read instead (`direct_reads.rs`).
//!
//! Invariants: nothing is kept of a file whose delegation is not held; nothing is kept that was
//! asked for while this session had a change under way, or before one that began since; what is
//! kept is within [`BYTES_MAX`]; a delegation that is not kept is given back at once.

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

/// What one session keeps.
#[derive(Default)]
pub(crate) struct Delegated {
    files: HashMap<FileHandle, Kept>,
    /// Bytes kept.
    bytes: usize,
    /// Blocks in the order of their coming, some of them gone.
    order: VecDeque<(FileHandle, u64)>,
    /// Goes on with every change this session asks for.
    epoch: u64,
    /// How long a proof is believed; zero before the lease is known.
    window: Duration,
    /// Delegations of a connection that was lost, to be given back over the next.
    owed: Vec<StateId>,
    /// Delegations given back before the answer that grants them was here.
    early: VecDeque<StateId>,
    hits: u64,
    /// Reads of files that this client has open itself.
    direct_reads: Rc<Cell<u64>>,
    /// The server hands no files over.
    has_no_files: bool,
}

/// What is kept of one file.
struct Kept {
    delegation: StateId,
    /// When the last READ was sent that proved it.
    proved: Option<Duration>,
    /// Whole blocks, but for one at the end of the file.
    blocks: BTreeMap<u64, Box<[u8]>>,
    metadata: Option<Metadata>,
    direct: Direct,
}

/// A question whose answer is kept if nothing comes between.
#[derive(Clone, Copy)]
pub(crate) struct Fill {
    delegation: StateId,
    epoch: u64,
    asked: Duration,
    /// Nothing is under way that would make the answer old.
    is_quiet: bool,
}

/// What becomes of a delegation that an OPEN has brought.
pub(crate) enum Taken {
    Kept,
    /// It was given back by the time it came.
    GivenBack,
    /// It is to be given back.
    Unwanted,
}

impl Fill {
    /// Whether nothing was under way that would have made the answer old.
    pub fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// When it was asked.
    pub fn asked(&self) -> Duration {
        self.asked
    }
}

impl Delegated {
    /// Questions that were answered out of what is kept, or by this client itself.
    pub fn hits(&self) -> u64 {
        self.hits + self.direct_reads.get()
    }

    /// Counts reads of files that this client has open itself.
    pub fn direct_reads(&self) -> Rc<Cell<u64>> {
        self.direct_reads.clone()
    }

    /// What is known of a file itself, if this delegation of it is held.
    pub fn direct_of(&mut self, file: &FileHandle, delegation: StateId) -> Option<&mut Direct> {
        let kept = self.files.get_mut(file).filter(|kept| kept.delegation == delegation);
        kept.map(|kept| &mut kept.direct)
    }

    /// The server hands no files over to this session.
    pub fn note_no_files(&mut self) {
        self.has_no_files = true;
    }

    /// Whether the server may hand files over, as far as is known.
    pub fn may_have_files(&self) -> bool {
        !self.has_no_files
    }

    /// Whether there is room for one more.
    pub fn has_room_for_files(&self) -> bool {
        self.files.values().filter(|kept| kept.direct.is_held()).count() < FILES_HELD_MAX
    }

    /// Whether a delegation is held, and nothing was changed since the server was asked.
    pub fn is_as_asked(&self, file: &FileHandle, asked: &Fill) -> bool {
        asked.epoch == self.epoch && self.holds(file, asked.delegation)
    }

    /// A lock is about to be asked for: where locks are mandatory it may keep other opens of this
    /// session from reading.
    pub fn note_lock(&mut self, file: &FileHandle) {
        if let Some(kept) = self.files.get_mut(file) {
            kept.direct.give_up();
        }
    }

    /// How long a proof is believed; zero before the lease is known.
    pub fn window(&self) -> Duration {
        self.window
    }

    /// The lease is known.
    pub fn set_window(&mut self, window: Duration) {
        self.window = window;
    }

    /// An OPEN has brought a delegation of a file.
    pub fn take(
        &mut self,
        file: FileHandle,
        access: ShareAccess,
        delegation: StateId,
        is_recalled: bool,
    ) -> Taken {
        if let Some(place) = self.early.iter().position(|early| *early == delegation) {
            self.early.remove(place);
            return Taken::GivenBack;
        }
        let has_room = self.files.len() < FILES_MAX && !self.window.is_zero();
        if is_recalled || !access.reads() || !has_room {
            return Taken::Unwanted;
        }
        let (blocks, direct) = (BTreeMap::new(), Direct::default());
        let kept = Kept { delegation, proved: None, blocks, metadata: None, direct };
        self.forget(&file);
        self.files.insert(file, kept);
        Taken::Kept
    }

    /// Whether this delegation of a file is held.
    pub fn holds(&self, file: &FileHandle, delegation: StateId) -> bool {
        self.files.get(file).is_some_and(|kept| kept.delegation == delegation)
    }

    /// Delegations of a connection that was lost, which are to be given back.
    pub fn take_owed(&mut self) -> Vec<StateId> {
        std::mem::take(&mut self.owed)
    }

    /// A question is asked whose answer may be kept.
    pub fn begin_fill(&self, delegation: StateId, is_quiet: bool) -> Fill {
        Fill { delegation, epoch: self.epoch, asked: coarse_now(), is_quiet }
    }

    /// Attributes that are kept of a file.
    pub fn metadata(&mut self, file: &FileHandle) -> Option<Metadata> {
        let kept = self.valid(file, coarse_now())?.metadata.clone();
        self.hits += u64::from(kept.is_some());
        kept
    }

    /// Keeps attributes of a file, if they may be kept.
    pub fn keep_metadata(&mut self, file: &FileHandle, fill: Fill, found: &Metadata) {
        // The delegation was in force when the server was asked.
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

    /// A change of a file begins, or one of who knows which.
    pub fn note_change(&mut self, file: Option<&FileHandle>) {
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

    /// Forgets a file. Its delegation, which is to be given back.
    pub fn forget(&mut self, file: &FileHandle) -> Option<StateId> {
        let mut kept = self.files.remove(file)?;
        self.bytes -= kept.empty();
        Some(kept.delegation)
    }

    /// Forgets everything.
    pub fn forget_all(&mut self) -> Vec<StateId> {
        self.order.clear();
        self.bytes = 0;
        self.files.drain().map(|(_, kept)| kept.delegation).collect()
    }

    /// The connection is gone: nothing is kept.
    pub fn set_aside(&mut self) {
        let states = self.forget_all();
        self.owed.extend(states);
        // The next may be another server.
        self.has_no_files = false;
    }

    /// The server wants a delegation back.
    pub fn recalled(&mut self, file: &FileHandle, delegation: StateId) {
        if self.files.get(file).is_some_and(|kept| kept.delegation == delegation) {
            self.forget(file);
            return;
        }
        if self.early.len() == EARLY_MAX {
            self.early.pop_front();
        }
        self.early.push_back(delegation);
    }

    fn valid(&self, file: &FileHandle, now: Duration) -> Option<&Kept> {
        let kept = self.files.get(file)?;
        let age = now.saturating_sub(kept.proved?);
        (age < self.window).then_some(kept)
    }

    /// Copies what is kept from `offset` on. Bytes copied, and whether the file ends there.
    pub fn copy(&mut self, file: &FileHandle, offset: u64, bytes: &mut [u8]) -> (usize, bool) {
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

    /// Keeps what was read from a block's start on.
    pub fn keep(&mut self, file: &FileHandle, fill: Fill, offset: u64, bytes: &[u8], is_end: bool) {
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

impl Kept {
    /// Forgets all but the delegation. Bytes that were kept.
    fn empty(&mut self) -> usize {
        self.metadata = None;
        self.direct.give_up();
        std::mem::take(&mut self.blocks).values().map(|block| block.len()).sum()
    }
}

/// The state id of a delegation, and whether it is called back by the answer that grants it.
pub(crate) fn granted(delegation: &Delegation<'_>) -> Option<(StateId, bool)> {
    match delegation {
        Delegation::None => None,
        Delegation::Read { state, recall, .. } | Delegation::Write { state, recall, .. } => {
            Some((*state, *recall))
        }
    }
}

/// The answer to BC_GETATTR: the server knows all there is.
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

/// Bytes of a block.
pub(crate) const BLOCK: u64 = 64 << 10;

/// Most bytes kept in one session.
pub(crate) const BYTES_MAX: usize = 16 << 20;

/// Most blocks remembered in one session, small ones included.
pub(crate) const BLOCKS_MAX: usize = 16 << 10;

/// Most files of which anything is kept.
pub(crate) const FILES_MAX: usize = 1024;

/// Delegations remembered that were given back before they came.
pub(crate) const EARLY_MAX: usize = 64;

/// Room for any attributes of fixed length.
pub(crate) const TOLD_BYTES_MAX: usize = 512;
