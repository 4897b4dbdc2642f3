//! Reads: finds the location of a file's bytes in the cache.
//!
//! Invariant: the pieces found are pinned, and the caller releases each pin once. If bytes are
//! missing, the result contains the work that must be done first, and no piece stays pinned.

use dafs_ops::{Fault, Hint};
use dafs_store::cache::{CachedFile, FillJob, Pieces, Planned, Read};
use dafs_types::CacheHint;

use crate::Files;
use crate::caller::Caller;
use crate::io::IoFile;
use crate::needs::Need;

/// The state of a read.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The cache's id of the file.
    pub file: CachedFile,
    /// The file offset of the read's first byte.
    pub offset: u64,
    /// The total number of bytes to read.
    pub length: u32,
    /// The number of bytes that have been found so far.
    pub done: u32,
    /// The client's hint about how it will use the bytes.
    pub hint: CacheHint,
    /// True if the server has opened the file for this request only.
    pub borrowed: bool,
}

impl Reading {
    /// Creates a read that has not started.
    pub fn new(io: IoFile, offset: u64, length: u32, hint: CacheHint) -> Self {
        Self { file: io.file, offset, length, done: 0, hint, borrowed: io.borrowed }
    }

    /// Returns the file offset of the next byte to find.
    pub fn place(&self) -> u64 {
        self.offset + u64::from(self.done)
    }

    /// Returns the number of bytes that were not found yet.
    pub fn left(&self) -> u32 {
        self.length - self.done
    }
}

/// The bytes that a cache lookup has found. Their pieces were added to the caller's list.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The number of bytes found.
    pub length: u32,
    /// True if the file ends after these bytes.
    pub is_end: bool,
}

/// The result of a cache lookup.
#[derive(Debug)]
pub enum Look {
    /// These bytes were found.
    Hit(Found),
    /// No bytes were found. The [`Need`] must be satisfied first.
    Needs(Need),
}

impl Files<'_> {
    /// Looks up the remaining part of a read in the cache. Adds jobs to `ahead` that prefetch the
    /// blocks that a sequential reader will read next; no request waits for these jobs.
    pub fn look(
        &mut self,
        reading: &Reading,
        pieces: &mut Pieces,
        ahead: &mut Vec<FillJob>,
    ) -> Look {
        let found = self.read(reading, pieces);
        self.look_on(reading, found, pieces, ahead)
    }

    /// Continues a read after a lookup in the cache that was already made. See [`Files::look`].
    pub fn look_on(
        &mut self,
        reading: &Reading,
        mut found: Read,
        pieces: &mut Pieces,
        ahead: &mut Vec<FillJob>,
    ) -> Look {
        let part = (reading.place(), reading.left());
        loop {
            if let Some(found) = self.found(reading.file, found, ahead) {
                return Look::Hit(found);
            }
            if let Some(need) = self.needs_of(reading.file, part, reading.hint) {
                return Look::Needs(need);
            }
            found = self.read(reading, pieces);
        }
    }

    /// Looks up a read for a caller that does not wait for missing bytes. See [`Files::look`].
    pub fn look_now(
        &mut self,
        reading: &Reading,
        pieces: &mut Pieces,
        ahead: &mut Vec<FillJob>,
    ) -> Option<Found> {
        let found = self.read(reading, pieces);
        self.found(reading.file, found, ahead)
    }

    fn read(&mut self, reading: &Reading, pieces: &mut Pieces) -> Read {
        self.cache.read(reading.file, reading.place(), reading.left(), pieces)
    }

    fn found(&mut self, file: CachedFile, found: Read, ahead: &mut Vec<FillJob>) -> Option<Found> {
        let Read::Hit { length, is_end, wants_more } = found else { return None };
        if wants_more {
            self.cache.plan_ahead(file, ahead);
        }
        Some(Found { length, is_end })
    }

    /// Returns the work that must be done before a read for which no bytes were cached can
    /// continue. `None` if bytes are cached by now.
    fn needs_of(
        &mut self,
        file: CachedFile,
        (place, left): (u64, u32),
        hint: CacheHint,
    ) -> Option<Need> {
        let mut jobs = Vec::new();
        match self.cache.plan_fill(file, place, left, hint, &mut jobs) {
            Planned::Ready => None,
            Planned::Wait => Some(Need::Progress(file)),
            Planned::Pressure => Some(Need::Room),
            Planned::Jobs => Some(Need::Fills(file, jobs)),
        }
    }

    /// Handles a client's hint about its future use of a range of a file. Returns the jobs that
    /// prefetch the range.
    pub fn hint(&mut self, by: &Caller, ask: &Hint) -> Result<Vec<FillJob>, Fault> {
        self.check_use(by, &ask.file)?;
        let mut jobs = Vec::new();
        if let Some(file) = self.cache.find(&ask.file) {
            self.cache.hint(file, ask.offset, ask.length, ask.pattern, ask.hint, &mut jobs);
        }
        Ok(jobs)
    }
}
