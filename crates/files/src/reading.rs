//! Reading: where in the cache the bytes of a file are.
//!
//! Invariant: what is found is pinned, and whoever asked gives each pin back once; what is not
//! there is told as what it needs, and nothing is held meanwhile.

use dafs_ops::{Fault, Hint};
use dafs_store::cache::{CachedFile, FillJob, Pieces, Planned, Read};
use dafs_types::CacheHint;

use crate::Files;
use crate::caller::Caller;
use crate::io::IoFile;
use crate::needs::Need;

/// A read, as far as it has come.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The file, as the cache knows it.
    pub file: CachedFile,
    /// Where in the file it begins.
    pub offset: u64,
    /// How many bytes it is.
    pub length: u32,
    /// How many of them are done.
    pub done: u32,
    /// How the bytes will be used.
    pub hint: CacheHint,
    /// The file is open for this request alone.
    pub borrowed: bool,
}

impl Reading {
    /// One that has not begun.
    pub fn new(io: IoFile, offset: u64, length: u32, hint: CacheHint) -> Self {
        Self { file: io.file, offset, length, done: 0, hint, borrowed: io.borrowed }
    }

    /// Where in the file it goes on.
    pub fn place(&self) -> u64 {
        self.offset + u64::from(self.done)
    }

    /// Bytes that it still has to find.
    pub fn left(&self) -> u32 {
        self.length - self.done
    }
}

/// What was found of a read: the pieces that were added hold so many bytes, and the file ends with
/// them or does not.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// How many bytes it is.
    pub length: u32,
    /// Whether the file ends with them.
    pub is_end: bool,
}

/// Whether anything was found of a read.
#[derive(Debug)]
pub enum Look {
    /// This was found.
    Hit(Found),
    /// Nothing yet: this comes first.
    Needs(Need),
}

impl Files<'_> {
    /// Looks for what is left of a read. What a sequential reader will want next is put into
    /// `ahead`: nobody waits for it.
    pub fn look(
        &mut self,
        reading: &Reading,
        pieces: &mut Pieces,
        ahead: &mut Vec<FillJob>,
    ) -> Look {
        let found = self.read(reading, pieces);
        self.look_on(reading, found, pieces, ahead)
    }

    /// As [`Files::look`], with what the cache has said already.
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

    /// As [`Files::look`] for somebody who does not want what is not there yet.
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

    /// What a read needs that has found nothing. `None` if it is there now.
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

    /// Says how part of a file will be used. What is to be read for that.
    pub fn hint(&mut self, by: &Caller, ask: &Hint) -> Result<Vec<FillJob>, Fault> {
        self.check_use(by, &ask.file)?;
        let mut jobs = Vec::new();
        if let Some(file) = self.cache.find(&ask.file) {
            self.cache.hint(file, ask.offset, ask.length, ask.pattern, ask.hint, &mut jobs);
        }
        Ok(jobs)
    }
}
