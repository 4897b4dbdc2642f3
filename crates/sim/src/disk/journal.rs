//! The state of the disk that processes see, the state that is on the disk, and the journal of the
//! operations between them.
//!
//! Invariant: `durable` equals the state that `volatile` had `log.len()` operations ago. Operations
//! reach the disk in sequence, so that a crash always leaves a state that existed before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dafs_store::memory::MemoryLimits;
use dafs_store::{Attributes, Result, StoreError};
use dafs_types::attributes::DeviceNumber;
use dafs_types::{FileHandle, FsHandle, Moment, ObjectType, Random, Timestamp};

use super::fault::{Fault, FaultEffect, FaultOn};
use super::platter::{BLOCK_BYTES, BlockId, Platter};
use super::tree::{Change, Content, Entries, Inode, Meta, Number, ROOT, Tree};
use super::{Loss, Pending};

/// A position in the journal, as the number of operations before the position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position(u64);

/// An operation: the changes in it survive a crash together or not at all.
struct Operation(Vec<Change>);

/// The latest operations that touched an object.
#[derive(Clone, Copy, Default)]
struct Marks {
    /// The latest operation of any kind.
    all: Position,
    /// The latest operation that is needed to find the object's data.
    data: Position,
}

/// The simulated disk, with its volatile and its durable state.
pub(super) struct Disk {
    pub limits: MemoryLimits,
    pub volatile: Tree,
    pub platter: Platter,
    durable: Tree,
    log: VecDeque<Operation>,
    /// The number of operations in `durable`.
    base: Position,
    marks: BTreeMap<Number, Marks>,
    /// The number of opens of each open object.
    opens: BTreeMap<Number, u64>,
    /// A number that changes whenever the process dies. Opens with an earlier number are stale.
    pub epoch: u64,
    next: Number,
    clock_ns: u64,
    now_ns: u64,
    /// Objects for which a server must search after its start.
    pub unplaced: BTreeSet<Number>,
    pub faults: Vec<Fault>,
}

impl Disk {
    /// Creates a disk whose only object is a durable root directory.
    pub(super) fn new(limits: MemoryLimits) -> Self {
        let mut disk = Self {
            limits,
            volatile: Tree::default(),
            platter: Platter::new(),
            durable: Tree::default(),
            log: VecDeque::new(),
            base: Position::default(),
            marks: BTreeMap::new(),
            opens: BTreeMap::new(),
            epoch: 0,
            next: ROOT,
            clock_ns: 0,
            now_ns: START_NS,
            unplaced: BTreeSet::new(),
            faults: Vec::new(),
        };
        let mut meta = disk.new_meta(ObjectType::Directory);
        meta.attributes.mode = 0o755;
        meta.parent = ROOT;
        let content = Content::Directory(Entries::default());
        disk.commit(vec![Change::Make(Inode { meta, content })]);
        disk.advance(disk.end());
        disk
    }

    // ---- time, numbers, handles -------------------------------------------------------

    /// Sets the time. A time before the present time is ignored.
    pub(super) fn set_time(&mut self, now: Moment) {
        self.now_ns = self.now_ns.max(START_NS.saturating_add(now.0));
    }

    /// Returns a time stamp that is later than all stamps returned before.
    pub(super) fn stamp(&mut self) -> (Timestamp, u64) {
        self.clock_ns = self.now_ns.max(self.clock_ns + 1);
        let (seconds, rest) = (self.clock_ns / SECOND_NS, self.clock_ns % SECOND_NS);
        (Timestamp { seconds: seconds as i64, nanoseconds: rest as u32 }, self.clock_ns)
    }

    /// Returns the metadata of a new object, with a new number.
    pub(super) fn new_meta(&mut self, kind: ObjectType) -> Meta {
        let (now, change) = self.stamp();
        let number = self.next;
        self.next += 1;
        let attributes = Attributes {
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            link_count: if kind == ObjectType::Directory { 2 } else { 1 },
            change,
            size: 0,
            file_id: number,
            space_used: 0,
            time_access: now,
            time_create: Some(now),
            time_metadata: now,
            time_modify: now,
            device: DeviceNumber::default(),
        };
        Meta { attributes, parent: number, verifier: None }
    }

    pub(super) fn handle(number: Number) -> FileHandle {
        let mut id = [0; 48];
        id[..8].copy_from_slice(&number.to_le_bytes());
        FileHandle::new(FsHandle(*FS_NAME), id)
    }

    /// Returns the object that a handle names, if it still exists.
    pub(super) fn resolve(&self, handle: &FileHandle) -> Result<Number> {
        let id = handle.file_id();
        let is_ours = handle.fs().0 == *FS_NAME && id[8..] == [0; 40];
        let number = id[..8].try_into().map(u64::from_le_bytes).unwrap_or(0);
        if !is_ours || number < ROOT || number >= self.next {
            return Err(StoreError::BadHandle);
        }
        self.volatile.get(number).map(|_| number)
    }

    // ---- opens ------------------------------------------------------------------------

    pub(super) fn open(&mut self, number: Number) {
        *self.opens.entry(number).or_default() += 1;
    }

    pub(super) fn is_open(&self, number: Number) -> bool {
        self.opens.contains_key(&number)
    }

    /// Closes an open. Closing the last open of an object without a name removes the object.
    pub(super) fn close(&mut self, number: Number) {
        let Some(count) = self.opens.get_mut(&number) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.opens.remove(&number);
        if self.volatile.attributes(number).is_ok_and(|found| found.link_count == 0) {
            self.commit(vec![Change::Free(number)]);
        }
    }

    // ---- the journal ------------------------------------------------------------------

    fn end(&self) -> Position {
        Position(self.base.0 + self.log.len() as u64)
    }

    pub(super) fn pending(&self) -> Pending {
        Pending { operations: self.log.len(), blocks: self.platter.dirty_count() }
    }

    /// Executes an operation on the volatile state and appends it to the journal.
    pub(super) fn commit(&mut self, changes: Vec<Change>) {
        let position = Position(self.end().0 + 1);
        for change in &changes {
            self.mark(change, position);
            let file = match change {
                Change::Cut(number) | Change::Free(number) => *number,
                _ => 0,
            };
            let after = self.volatile.apply(change);
            for id in after.freed {
                self.platter.drop_dirty(file, id);
            }
            if let Some((id, within)) = after.tail {
                self.platter.write(file, id, |bytes| bytes[within..].fill(0));
            }
        }
        self.log.push_back(Operation(changes));
        if self.log.len() > OPERATIONS_PENDING_MAX {
            // The journal is full, so its oldest operation is written to the disk.
            self.advance(Position(self.base.0 + 1));
        }
    }

    /// Records which objects a change touches.
    fn mark(&mut self, change: &Change, position: Position) {
        let (number, finds_data) = match change {
            Change::Make(inode) => (inode.meta.attributes.file_id, true),
            Change::Cut(number) | Change::Map { number, .. } => (*number, true),
            Change::Set(number, meta) => {
                let before = self.volatile.attributes(*number).map(|found| found.size);
                (*number, before != Ok(meta.attributes.size))
            }
            Change::Enter { directory, .. } | Change::Leave { directory, .. } => {
                (*directory, false)
            }
            Change::Free(number) => (*number, false),
        };
        let marks = self.marks.entry(number).or_default();
        marks.all = position;
        if finds_data {
            marks.data = position;
        }
    }

    /// Writes operations to the disk, up to a position.
    fn advance(&mut self, to: Position) {
        while self.base < to
            && let Some(operation) = self.log.pop_front()
        {
            self.base.0 += 1;
            for change in &operation.0 {
                if let Change::Free(number) = change {
                    self.marks.remove(number);
                }
                let after = self.durable.apply(change);
                for id in after.freed {
                    self.platter.free(id);
                }
                if let Some((id, within)) = after.tail {
                    self.platter.zero_durable(id, within, self.base);
                }
            }
        }
    }

    /// Writes every operation that touched an object to the disk, with all earlier operations.
    pub(super) fn sync_metadata(&mut self, number: Number, data_only: bool) {
        let marks = self.marks.get(&number).copied().unwrap_or_default();
        self.advance(if data_only { marks.data } else { marks.all });
    }

    /// Writes the first `count` dirty blocks of a file to the disk.
    pub(super) fn sync_data(&mut self, number: Number, count: usize) {
        let end = self.end();
        for id in self.platter.dirty_of(number).into_iter().take(count) {
            self.platter.write_back(number, id, end);
        }
    }

    /// Marks the dirty blocks of a file as clean without writing them. Linux does the same with
    /// pages that it could not write.
    pub(super) fn forget_data(&mut self, number: Number) {
        for id in self.platter.dirty_of(number) {
            self.platter.drop_dirty(number, id);
        }
    }

    // ---- faults -----------------------------------------------------------------------

    /// Returns the fault that hits this operation, if any.
    pub(super) fn strike(&mut self, on: FaultOn) -> Option<(FaultEffect, StoreError)> {
        let mut struck = None;
        for (index, fault) in self.faults.iter_mut().enumerate() {
            if fault.on == on && fault.skip == 0 && struck.is_none() {
                struck = Some(index);
            } else if fault.on == on {
                fault.skip = fault.skip.saturating_sub(1);
            }
        }
        struck.map(|index| self.faults.remove(index)).map(|fault| (fault.effect, fault.error))
    }

    // ---- crashes ----------------------------------------------------------------------

    /// Lets the kernel write back some dirty data.
    pub(super) fn settle(&mut self, random: &mut Random) {
        let count = random.below(3) * random.below(self.log.len() + 1) / 2;
        self.advance(Position(self.base.0 + count as u64));
        let count = match random.below(20) {
            0 => self.platter.dirty_count(),
            _ => random.below(SETTLED_BLOCKS_MAX),
        };
        let end = self.end();
        for (file, id) in self.platter.some_dirty(count, random) {
            self.platter.write_back(file, id, end);
        }
    }

    /// Ends the process. Its opens end, and objects that existed only because of them are removed.
    pub(super) fn kill(&mut self) {
        self.epoch += 1;
        for number in std::mem::take(&mut self.opens).into_keys() {
            if self.volatile.attributes(number).is_ok_and(|found| found.link_count == 0) {
                self.commit(vec![Change::Free(number)]);
            }
        }
    }

    /// Simulates a power failure of the machine: only the contents of the disk survive.
    pub(super) fn power_loss(&mut self, random: &mut Random) -> Loss {
        self.epoch += 1;
        self.opens.clear();
        let end = self.end();
        let kept = match random.below(4) {
            0 => 0,
            1 => self.log.len(),
            _ => random.below(self.log.len() + 1),
        };
        self.advance(Position(self.base.0 + kept as u64));
        let operations_lost = self.log.len() as u64;
        self.log.clear();
        self.marks.clear();
        // Positions continue to grow, because blocks on the disk refer to earlier ones.
        self.base = end;
        let fates = self.platter.strike(random);
        self.recover();
        Loss {
            operations_kept: kept as u64,
            operations_lost,
            blocks_kept: fates.kept,
            blocks_lost: fates.lost,
            blocks_torn: fates.torn,
        }
    }

    /// Recovers the file system as a mount does: removes objects without a name, and data beyond
    /// the end of files.
    fn recover(&mut self) {
        let is_orphan = |inode: &Inode| inode.meta.attributes.link_count == 0;
        let inodes = self.durable.inodes.iter();
        let orphans: Vec<_> = inodes.filter(|(_, i)| is_orphan(i)).map(|(n, _)| *n).collect();
        for number in orphans {
            self.durable.free(number);
        }
        let mut wanted = BTreeSet::<BlockId>::new();
        for inode in self.durable.inodes.values() {
            let Content::Data(blocks) = &inode.content else { continue };
            wanted.extend(blocks.values());
            let size = inode.meta.attributes.size;
            if let Some(last) = blocks.get(&(size / BLOCK_BYTES as u64)) {
                self.platter.trim(*last, (size % BLOCK_BYTES as u64) as usize);
            }
        }
        self.platter.restart(&wanted);
        self.volatile = self.durable.clone();
    }
}

/// The maximum number of operations in the journal. When there are more, the oldest is written to
/// the disk.
const OPERATIONS_PENDING_MAX: usize = 4096;
/// The usual number of blocks written back together.
const SETTLED_BLOCKS_MAX: usize = 8;
/// The time at which the store's clock starts: 9 September 2001.
const START_NS: u64 = 1_000_000_000 * SECOND_NS;
const SECOND_NS: u64 = 1_000_000_000;
const FS_NAME: &[u8; 16] = b"dafs-crash-store";

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const FILE: Number = ROOT + 1;

    /// Creates a file of one block and removes it again.
    fn make_and_free(disk: &mut Disk) -> Number {
        let meta = disk.new_meta(ObjectType::Regular);
        let number = meta.attributes.file_id;
        let block = disk.platter.allocate();
        let content = Content::Data(BTreeMap::new());
        disk.platter.write(number, block, |bytes| bytes.fill(1));
        let name: Arc<[u8]> = Arc::from(&b"f"[..]);
        disk.commit(vec![
            Change::Make(Inode { meta, content }),
            Change::Enter { directory: ROOT, name: name.clone(), number },
        ]);
        disk.commit(vec![Change::Map { number, index: 0, block }]);
        disk.commit(vec![Change::Leave { directory: ROOT, name }, Change::Free(number)]);
        number
    }

    #[test]
    fn removed_objects_take_no_space() {
        let limits = MemoryLimits { bytes_max: 1 << 20, object_count_max: 10 };
        for ends_by_power_loss in [false, true] {
            let mut disk = Disk::new(limits);
            assert_eq!(make_and_free(&mut disk), FILE);
            assert_eq!(disk.pending(), Pending { operations: 3, blocks: 0 });
            assert_eq!(disk.platter.count(), 1, "the disk may still need the block");
            if ends_by_power_loss {
                disk.power_loss(&mut Random::new(1));
            } else {
                disk.sync_metadata(ROOT, false);
            }
            assert_eq!(disk.pending(), Pending::default());
            assert_eq!((disk.platter.count(), disk.durable.bytes), (0, 0));
            let left = [&disk.volatile, &disk.durable].map(|tree| tree.inodes.len());
            assert_eq!((left, disk.marks.contains_key(&FILE)), ([1, 1], false));
        }
    }
}
