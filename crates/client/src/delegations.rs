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
//! Invariants: nothing is kept of a file whose delegation is not held; nothing is kept that was
//! asked for while this session had a change under way, or before one that began since; what is
//! kept is within [`BYTES_MAX`]; a delegation that is not kept is given back at once.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use dafs_dat::coarse_now;
use dafs_types::{
    CacheHint, CreateMode, FileAttributes, FileHandle, ShareAccess, StateId, Status, limits,
};
use dafs_wire::messages::{DelegReturn, Delegation, FileAttributesResult, GetAttributes, LockType};
use dafs_wire::{
    ByteOrder, EncodeError, FileAttributeBlock, Procedure, Request, Response, ResponseHeader,
    decode_request, encode_response,
};

use crate::batch::table::BatchTable;
use crate::buffer::Slice;
use crate::core::{Core, Pending, SessionState, Transferred};
use crate::data::{Destination, TransferJob, TransferKind};
use crate::error::Result;
use crate::file::File;
use crate::names::Metadata;
use crate::opens::Opened;
use crate::session::Session;

/// What one session keeps.
#[derive(Default)]
pub(crate) struct Delegated {
    files: HashMap<FileHandle, Kept>,
    /// Octets kept.
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
}

/// What is kept of one file.
struct Kept {
    delegation: StateId,
    /// When the last READ was sent that proved it.
    proved: Option<Duration>,
    /// Whole blocks, but for one at the end of the file.
    blocks: BTreeMap<u64, Box<[u8]>>,
    metadata: Option<Metadata>,
}

/// A question whose answer is kept if nothing comes between.
#[derive(Clone, Copy)]
struct Fill {
    delegation: StateId,
    epoch: u64,
    asked: Duration,
    /// Nothing is under way that would make the answer old.
    is_quiet: bool,
}

impl Delegated {
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
    fn forget(&mut self, file: &FileHandle) -> Option<StateId> {
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
    }

    /// The server wants a delegation back.
    fn recalled(&mut self, file: &FileHandle, delegation: StateId) {
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

    /// Copies what is kept from `offset` on. Octets copied, and whether the file ends there.
    fn copy(&mut self, file: &FileHandle, offset: u64, bytes: &mut [u8]) -> (usize, bool) {
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
    fn keep(&mut self, file: &FileHandle, fill: Fill, offset: u64, octets: &[u8], is_end: bool) {
        let Some(kept) = self.files.get_mut(file) else { return };
        if kept.delegation != fill.delegation {
            return;
        }
        kept.proved = Some(fill.asked);
        if !fill.is_quiet || fill.epoch != self.epoch {
            return;
        }
        for (number, block) in (offset / BLOCK..).zip(octets.chunks(BLOCK as usize)) {
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
    /// Forgets all but the delegation. Octets that were kept.
    fn empty(&mut self) -> usize {
        self.metadata = None;
        std::mem::take(&mut self.blocks).values().map(|block| block.len()).sum()
    }
}

impl Session {
    /// Reads that were answered, in part at least, out of what is kept under delegations.
    #[must_use]
    pub fn delegated_reads(&self) -> u64 {
        let core = self.shared.borrow();
        core.sessions[self.index].delegated.as_ref().map_or(0, |delegated| delegated.hits)
    }

    /// Sees to it that the server can call delegations back, if the session wants any
    /// ([`SessionOptions::delegations`](crate::SessionOptions::delegations)): opens that wait do so
    /// by themselves, [`Session::open_async`] does not.
    pub fn prepare_delegations(&self) {
        let window = {
            let core = self.shared.borrow();
            match &core.sessions[self.index].delegated {
                Some(delegated) => delegated.window,
                None => return,
            }
        };
        if self.listen().is_err() {
            // It goes on without.
            self.shared.borrow_mut().sessions[self.index].delegated = None;
            return;
        }
        if window.is_zero() {
            let file = self.root;
            let wanted = dafs_wire::attributes::file_system::bits::ALL;
            let request = Request::GetFsAttr(GetAttributes { file, wanted });
            let lease = self.call(&request, |_, response| match response {
                Response::GetFsAttr(result) => Ok(result.attributes.file_system().lease_time),
                _ => Ok(None),
            });
            let lease = lease.ok().flatten().unwrap_or(0);
            let window = Duration::from_secs(u64::from(lease)) / 2;
            if let Some(delegated) = &mut self.shared.borrow_mut().sessions[self.index].delegated {
                delegated.window = window;
            }
        }
    }

    /// An OPEN has brought a delegation. True if it is kept.
    pub(crate) fn take_delegation(
        &self,
        file: FileHandle,
        access: ShareAccess,
        granted: Option<(StateId, bool)>,
    ) -> Option<StateId> {
        let (delegation, is_recalled) = granted?;
        let mut core = self.shared.borrow_mut();
        core.take_delegation(self.index, file, access, delegation, is_recalled)
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

impl File {
    /// Reads what is kept under the file's delegation, and fetches what is not. `None` if this
    /// is a read like any other.
    pub(crate) fn read_delegated(&self, bytes: &mut [u8], offset: u64) -> Option<Result<usize>> {
        let delegation = self.delegation()?;
        if offset > limits::FILE_OFFSET_MAX - bytes.len() as u64 {
            return None;
        }
        let mut done = 0;
        loop {
            let (copied, is_end) = self.copy_kept(&mut bytes[done..], offset + done as u64)?;
            done += copied;
            if is_end || done == bytes.len() {
                return Some(Ok(done));
            }
            let place = offset + done as u64;
            let from = place - place % BLOCK;
            let wanted = (place - from) as usize + bytes.len() - done;
            let wanted = wanted.next_multiple_of(BLOCK as usize).min(FETCH_MAX);
            let fetched = self.fetch(delegation, from, wanted)?;
            let behind = fetched.get((place - from) as usize..).unwrap_or(&[]);
            let there = behind.len().min(bytes.len() - done);
            bytes[done..done + there].copy_from_slice(&behind[..there]);
            done += there;
            if fetched.len() < wanted || done == bytes.len() {
                return Some(Ok(done));
            }
        }
    }

    fn copy_kept(&self, bytes: &mut [u8], offset: u64) -> Option<(usize, bool)> {
        let mut core = self.session().shared.borrow_mut();
        let delegated = core.sessions[self.session().index].delegated.as_mut()?;
        let kept = delegated.files.get(&self.handle());
        if kept.map(|kept| kept.delegation) != self.delegation() {
            // It was called back.
            self.note_delegation(None);
            return None;
        }
        Some(delegated.copy(&self.handle(), offset, bytes))
    }

    /// Reads whole blocks under the delegation's state id. `None` if the server does not have
    /// it so; a read like any other tells why.
    fn fetch(&self, delegation: StateId, offset: u64, wanted: usize) -> Option<Vec<u8>> {
        let (shared, index) = (&self.session().shared, self.session().index);
        let (slice, buffer) = self.stage_exactly(wanted).ok()?;
        let fill = shared.borrow().begin_fill(index, delegation)?;
        let opened = Rc::new(Opened::plain(self.handle(), delegation));
        let mut done = 0;
        let mut is_end = false;
        while done < slice.length && !is_end {
            let rest = slice.behind(done);
            let moved = match self.fetch_once(&opened, offset + u64::from(done), rest) {
                Ok(moved) => moved,
                Err(_) => {
                    let mut core = shared.borrow_mut();
                    core.give_back(index, &self.handle(), delegation);
                    return None;
                }
            };
            done += moved.length;
            is_end = moved.end_of_file;
            if moved.length == 0 && !is_end {
                return None;
            }
        }
        let mut octets = vec![0; done as usize];
        buffer.read(0, &mut octets);
        if let Some(delegated) = &mut shared.borrow_mut().sessions[index].delegated {
            delegated.keep(&self.handle(), fill, offset, &octets, is_end);
        }
        Some(octets)
    }

    fn fetch_once(&self, opened: &Rc<Opened>, offset: u64, slice: Slice) -> Result<Transferred> {
        let (shared, index) = (&self.session().shared, self.session().index);
        let job = TransferJob {
            file: opened.clone(),
            offset,
            kind: TransferKind::Read,
            length: slice.length,
            hint: CacheHint::default(),
        };
        let ticket = {
            let mut core = shared.borrow_mut();
            core.check_open(index)?;
            let ticket = core.transfers.make();
            core.submit(index, job, Some(slice), Destination::Waiter(ticket), 0)?;
            ticket
        };
        shared.turn_until(index, |core| core.transfers.take(ticket))
    }

    /// Attributes that are kept under the file's delegation.
    pub(crate) fn kept_metadata(&self) -> Option<Metadata> {
        self.delegation()?;
        let mut core = self.session().shared.borrow_mut();
        let delegated = core.sessions[self.session().index].delegated.as_mut()?;
        let kept = delegated.valid(&self.handle(), coarse_now())?.metadata.clone();
        delegated.hits += u64::from(kept.is_some());
        kept
    }

    /// Asks for attributes, and keeps them if they may be kept.
    pub(crate) fn fetch_metadata(&self) -> Result<Metadata> {
        let (shared, index) = (&self.session().shared, self.session().index);
        let asked = self.delegation().and_then(|delegation| {
            let core = shared.borrow();
            core.begin_fill(index, delegation)
        });
        let found =
            self.session().run(self.session().metadata_async(self.handle(), self.path()))?;
        let mut core = shared.borrow_mut();
        if let (Some(fill), Some(delegated)) = (asked, core.sessions[index].delegated.as_mut())
            && fill.is_quiet
            && fill.epoch == delegated.epoch
            // The delegation was in force when the server was asked.
            && delegated.valid(&self.handle(), coarse_now()).is_some()
            && let Some(kept) = delegated.files.get_mut(&self.handle())
            && kept.delegation == fill.delegation
        {
            kept.metadata = Some(found.clone());
        }
        Ok(found)
    }

    /// The file is closed: what was kept for it goes.
    pub(crate) fn let_go(&self) {
        if let Some(delegation) = self.delegation() {
            let mut core = self.session().shared.borrow_mut();
            core.give_back(self.session().index, &self.handle(), delegation);
        }
    }
}

impl Core {
    fn take_delegation(
        &mut self,
        index: usize,
        file: FileHandle,
        access: ShareAccess,
        delegation: StateId,
        is_recalled: bool,
    ) -> Option<StateId> {
        let Some(delegated) = &mut self.sessions[index].delegated else {
            self.return_delegation(index, delegation);
            return None;
        };
        if let Some(place) = delegated.early.iter().position(|early| *early == delegation) {
            // It was given back by the time it came.
            delegated.early.remove(place);
            return None;
        }
        let has_room = delegated.files.len() < FILES_MAX && !delegated.window.is_zero();
        if is_recalled || !access.reads() || !has_room {
            self.return_delegation(index, delegation);
            return None;
        }
        let kept = Kept { delegation, proved: None, blocks: BTreeMap::new(), metadata: None };
        delegated.forget(&file);
        delegated.files.insert(file, kept);
        Some(delegation)
    }

    fn begin_fill(&self, index: usize, delegation: StateId) -> Option<Fill> {
        let session = &self.sessions[index];
        let is_quiet = !session.has_changes_under_way(&self.batches, index);
        let epoch = session.delegated.as_ref()?.epoch;
        Some(Fill { delegation, epoch, asked: coarse_now(), is_quiet })
    }

    fn give_back(&mut self, index: usize, file: &FileHandle, delegation: StateId) {
        let Some(delegated) = &mut self.sessions[index].delegated else { return };
        if delegated.files.get(file).is_some_and(|kept| kept.delegation == delegation) {
            delegated.forget(file);
            self.return_delegation(index, delegation);
        }
    }

    fn return_delegation(&mut self, index: usize, state: StateId) {
        // Nobody waits; a session that has ended has given back everything.
        let _ = self.cast(index, &Request::DelegReturn(DelegReturn { state }));
    }

    /// The server cannot call back any more: everything goes back to it.
    pub fn return_all(&mut self, index: usize) {
        let Some(delegated) = &mut self.sessions[index].delegated else { return };
        for delegation in delegated.forget_all() {
            self.return_delegation(index, delegation);
        }
    }

    /// The session has come back, and gives back what it has forgotten.
    pub fn return_owed(&mut self, index: usize) {
        let Some(delegated) = &mut self.sessions[index].delegated else { return };
        for state in std::mem::take(&mut delegated.owed) {
            self.return_delegation(index, state);
        }
    }

    /// BC_RECALL. What was kept is forgotten before the delegation is given back. One that is
    /// not known is not wanted, or its grant is yet to come: it is given back, too.
    pub fn on_recall(&mut self, index: usize, file: &FileHandle, delegation: StateId) {
        if let Some(delegated) = &mut self.sessions[index].delegated {
            delegated.recalled(file, delegation);
        }
        self.return_delegation(index, delegation);
    }

    /// A request is about to be sent: what it may change is not kept.
    #[inline]
    pub fn note_request(&mut self, index: usize, request: &Request<'_>) {
        if let Some(delegated) = &mut self.sessions[index].delegated {
            match changed_by(request) {
                Changed::Nothing => {}
                Changed::File(file) => delegated.note_change(Some(file)),
                Changed::Anything => delegated.note_change(None),
            }
        }
    }

    /// Several requests are, and may change anything.
    #[inline]
    pub fn note_changes(&mut self, index: usize) {
        if let Some(delegated) = &mut self.sessions[index].delegated {
            delegated.note_change(None);
        }
    }
}

/// What a request may change of what is kept.
enum Changed<'r> {
    Nothing,
    File(&'r FileHandle),
    Anything,
}

fn changed_by<'r>(request: &'r Request<'_>) -> Changed<'r> {
    match request {
        Request::SetAttrInline(r) => Changed::File(&r.file),
        Request::SetAttrDirect(r) => Changed::File(&r.file),
        Request::AppendInline(r) => Changed::File(&r.file),
        Request::AppendDirect(r) => Changed::File(&r.file),
        Request::WriteInline(r) => Changed::File(&r.file),
        Request::WriteDirect(r) => Changed::File(&r.file),
        Request::Link(r) => Changed::File(&r.source),
        Request::Open(r) if r.creation.mode() == CreateMode::NoCreate => Changed::Nothing,
        Request::Lock(r) if r.lock_type != LockType::Abort => Changed::Nothing,
        request if is_harmless(request.procedure()) => Changed::Nothing,
        _ => Changed::Anything,
    }
}

/// Whether a request changes neither data nor attributes of any file, whatever it says. An
/// OPEN that creates may cut a file, and LOCK that aborts undoes what was written.
fn is_harmless(procedure: Procedure) -> bool {
    matches!(
        procedure,
        Procedure::Null
            | Procedure::Access
            | Procedure::CacheHint
            | Procedure::Close
            | Procedure::Commit
            | Procedure::DelegReturn
            | Procedure::DelegPurge
            | Procedure::GetAttrInline
            | Procedure::GetAttrDirect
            | Procedure::GetFsAttr
            | Procedure::GetRootHandle
            | Procedure::LockT
            | Procedure::LockU
            | Procedure::Lookup
            | Procedure::LookupP
            | Procedure::ReadInline
            | Procedure::ReadDirect
            | Procedure::ReadDirInline
            | Procedure::ReadDirDirect
            | Procedure::ReadLinkInline
            | Procedure::ReadLinkDirect
            | Procedure::Verify
            | Procedure::NVerify
    )
}

impl SessionState {
    /// Whether something under way may change a file.
    fn has_changes_under_way(&self, batches: &BatchTable, index: usize) -> bool {
        let writes = |kind: TransferKind| matches!(kind, TransferKind::Write(_));
        let changes = |message: &[u8]| match decode_request(ByteOrder::NATIVE, message) {
            Ok((_, request)) => !matches!(changed_by(&request), Changed::Nothing),
            Err(_) => true,
        };
        let is_pending = self.pending.iter().flatten().any(|pending| match pending {
            Pending::Transfer(transfer) => writes(transfer.job.kind),
            Pending::Call(call) => changes(&call.message),
            Pending::Member(_) | Pending::Rescue(_) => true,
            Pending::Silent => false,
        });
        is_pending
            || self.queue.iter().any(|transfer| writes(transfer.job.kind))
            || self.calls.iter().any(|call| changes(&call.message))
            || !self.chains.is_empty()
            || self.keeper.as_ref().is_some_and(|keeper| keeper.has_work())
            || !batches.submitted(index).is_empty()
    }
}

/// The answer to BC_GETATTR: the server knows all there is.
pub(crate) fn encode_told(
    header: &ResponseHeader,
    request: &GetAttributes,
    octets: &mut [u8],
) -> std::result::Result<usize, EncodeError> {
    let mut buffer = [0; TOLD_BYTES_MAX];
    let nothing = FileAttributes::default();
    let block =
        FileAttributeBlock::encode_file(ByteOrder::NATIVE, request.wanted, &nothing, &mut buffer);
    let (header, response) = match block {
        Ok(attributes) => (*header, Response::BcGetAttr(FileAttributesResult { attributes })),
        Err(_) => (ResponseHeader { status: Status::NotSupp, ..*header }, Response::Failed),
    };
    encode_response(ByteOrder::NATIVE, &header, &response, octets)
}

/// Octets of a block.
const BLOCK: u64 = 64 << 10;
/// Most octets kept in one session.
const BYTES_MAX: usize = 16 << 20;
/// Most blocks remembered in one session, small ones included.
const BLOCKS_MAX: usize = 16 << 10;
/// Most files of which anything is kept.
const FILES_MAX: usize = 1024;
/// Most octets fetched at a time.
const FETCH_MAX: usize = 1 << 20;
/// Delegations remembered that were given back before they came.
const EARLY_MAX: usize = 64;
/// Room for any attributes of fixed length.
const TOLD_BYTES_MAX: usize = 512;
