//! Opens a log: recovers its records and starts a new segment after them.
//!
//! Invariant: when a log is open, everything that it has recovered is on stable storage, and the
//! header of a new segment durably records the end of the recovered data. So a torn group is never
//! read again, whatever crash follows. Until that header is durable, recovery changes nothing, so
//! it can be interrupted anywhere and started again.

use std::collections::BTreeSet;
use std::sync::Arc;

use dafs_types::Entropy;

use super::job::{make_slot, write_header};
use super::scan::{Chain, Scanned, Survey, chain_of};
use super::segment::SegmentHeader;
use super::{JournalId, Log, LogConfig, LogError, Recovered, Segment, Slot};
use super::{lowest_unused, slot_name};
use crate::group::{BLOCK_BYTES, Found, GroupBuffer, GroupRead};
use crate::storage::{Storage, StorageError};
use crate::test_hooks::{Mutation, is_on};

impl Log {
    /// Opens the log in a storage directory, or creates a log there, and returns the records that
    /// have survived. This blocks. The identity of a new journal is drawn from `entropy`.
    ///
    /// # Errors
    /// - [`LogError::Corrupt`], [`LogError::Foreign`] or [`LogError::Version`] if the directory
    ///   contains no complete journal of this format. A torn end is allowed.
    /// - [`LogError::Full`] if no segment is left.
    /// - [`LogError::Config`] or [`LogError::Storage`].
    ///
    /// The caller may try again.
    pub fn open(
        storage: Arc<dyn Storage>,
        config: LogConfig,
        entropy: &mut dyn Entropy,
    ) -> Result<(Self, Recovered), LogError> {
        config.check()?;
        let survey = Survey::make(&*storage)?;
        let chain = chain_of(&survey)?;
        if !is_on(Mutation::SkipRecoverySync) {
            make_durable(&chain)?;
            storage.sync_names()?;
        }
        let mut slots = Slots::sort(survey, &chain, &config)?;
        let last = chain.segments.last();
        let header = SegmentHeader {
            journal: last.map_or_else(|| JournalId(entropy.next_u64()), |l| l.header.journal),
            number: chain.next_segment,
            previous: last.map_or(0, |last| last.header.number),
            previous_end: last.map_or(0, |last| last.end),
            first_record: last.map_or(1, |last| last.next_record),
            segment_bytes: config.segment_bytes,
            checkpoint_below: None,
        };
        let slot = match slots.free.pop() {
            Some(slot) => slot,
            None => slots.make(&*storage, &config, chain.segments.len())?,
        };
        write_header(&*slot.blob, &header)?;
        slots.tidy(&*storage, &config, chain.segments.len())?;
        let bytes_since_checkpoint = chain.segments.iter().map(|s| s.record_bytes).sum();
        let mut segments: Vec<_> = chain.segments.iter().map(Scanned::as_segment).collect();
        segments.push(Segment { slot, header });
        let log = Self {
            storage,
            config,
            journal: header.journal,
            chain: segments,
            position: BLOCK_BYTES as u64,
            free: slots.free,
            slots: slots.numbers,
            next_record: header.first_record,
            durable: header.first_record - 1,
            filling_first: header.first_record,
            filling: GroupBuffer::default(),
            spare: GroupBuffer::default(),
            in_flight: None,
            checkpoint: None,
            bytes_since_checkpoint,
            last_checkpoint_bytes: 0,
            poison: None,
        };
        Ok((log, Recovered::new(chain)))
    }
}

impl Scanned {
    fn as_segment(&self) -> Segment {
        Segment { slot: self.slot.clone(), header: self.header }
    }
}

/// Makes the last group durable. The group may only be in the page cache, if the process was killed
/// before the group's sync or if that sync failed. After a failed sync, no later sync would write
/// these pages, so the group is written again. The groups before it are certainly durable, because
/// it was written after them.
fn make_durable(chain: &Chain) -> Result<(), LogError> {
    let Some(last) = chain.segments.last().filter(|_| chain.is_last_unproven) else {
        return Ok(());
    };
    let Some(at) = last.last_group else { return Ok(()) };
    let mut group = GroupRead::default();
    // Only the group itself states the number of its first record, so the number is not checked.
    match group.read_as_it_stands(&*last.slot.blob, last.header.lineage(), at, last.end)? {
        Found::Group(_) => last.slot.blob.write_at(at, group.bytes())?,
        Found::Nothing(what) => return Err(super::scan::corrupt(&last.slot, at, what)),
    }
    last.slot.blob.sync()?;
    Ok(())
}

/// The blobs that are not in use by a segment.
struct Slots {
    numbers: BTreeSet<u64>,
    free: Vec<Slot>,
    /// The blobs that cannot be used for segments, because they are incomplete or have another
    /// length than segments have now.
    useless: Vec<Slot>,
}

impl Slots {
    fn sort(survey: Survey, chain: &Chain, config: &LogConfig) -> Result<Self, LogError> {
        let used: BTreeSet<_> = chain.segments.iter().map(|s| s.header.number).collect();
        let (mut free, mut useless) = (Vec::new(), Vec::new());
        let unused = survey.segments.into_iter().filter(|(number, _)| !used.contains(number));
        for slot in survey.blank.into_iter().chain(unused.map(|(_, (slot, _))| slot)) {
            let fits = slot.blob.length()? == config.segment_bytes;
            if fits { &mut free } else { &mut useless }.push(slot);
        }
        Ok(Self { numbers: survey.slots, free, useless })
    }

    fn make(
        &mut self,
        storage: &dyn Storage,
        config: &LogConfig,
        in_use: usize,
    ) -> Result<Slot, LogError> {
        if (in_use + self.free.len()) as u64 >= u64::from(config.segment_count_max) {
            return Err(LogError::Full { count: in_use });
        }
        let number = lowest_unused(&self.numbers);
        // The number counts as used even if the creation fails half-way: the name may exist then.
        self.numbers.insert(number);
        Ok(make_slot(storage, &slot_name(number), config.segment_bytes)?)
    }

    /// Removes blobs that are not needed and creates those that will be needed. Called only after
    /// the new segment's number, which is above all others, is on stable storage. So if a crash
    /// restores a removed name, its segment is recognized as old.
    fn tidy(
        &mut self,
        storage: &dyn Storage,
        config: &LogConfig,
        in_use: usize,
    ) -> Result<(), LogError> {
        let cycle = config.checkpoint_after_bytes / config.segment_bytes + SPARE_COUNT;
        let kept = cycle.max(config.spare_segment_count.into()) as usize;
        let surplus = self.free.split_off(self.free.len().min(kept));
        for slot in surplus.into_iter().chain(std::mem::take(&mut self.useless)) {
            storage.remove(&slot.name)?;
            if let Some(number) = slot.name.number_behind(super::SLOT_PREFIX) {
                self.numbers.remove(&number);
            }
        }
        while self.free.len() < config.spare_segment_count as usize {
            match self.make(storage, config, in_use + 1) {
                Ok(slot) => self.free.push(slot),
                // The log can work without a spare blob until it needs one.
                Err(
                    LogError::Full { .. }
                    | LogError::Storage { source: StorageError::NoSpace { .. } },
                ) => {
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The number of free segments to keep in addition to the segments that are filled between two
/// checkpoints.
const SPARE_COUNT: u64 = 2;
