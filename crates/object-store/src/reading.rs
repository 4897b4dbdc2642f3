//! Reads objects: the whole object, one range, or several ranges in one call.
//!
//! Invariant: an object that is read with several requests stays open meanwhile, so that all
//! requests read the same version even if another client replaces or deletes the object.

use std::ops::Range;
use std::rc::Rc;

use dafs_client::{Buffer, ClientError, File, OpenOptions, Outcome, Slice, Status};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta};

use crate::error::{Fault, StoreError, about, generic};
use crate::names::{Place, walk};
use crate::objects::{Landed, RemoteFile, length_of, object_meta, regular};
use crate::worker::{Site, Worker};

/// The result of a get.
pub(crate) struct Got {
    pub meta: ObjectMeta,
    pub range: Range<u64>,
    /// The first bytes of the range, if the chain that opened the object has also read them.
    pub first: Option<Landed>,
    /// The open object, if more of the range must be read.
    pub file: Option<RemoteFile>,
}

/// An object that was opened to read several ranges.
pub(crate) struct Ranged {
    pub file: RemoteFile,
    pub plan: Plan,
    /// The bytes of the first batch, if the chain that opened the object has also read them.
    pub first: Option<Landed>,
}

/// The plan for reading ranges: the ranges are read in segments, several of which form one batch of
/// requests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The requested ranges, cut off at the end of the object.
    pub ranges: Vec<Range<u64>>,
    /// The segments in order, without overlaps. Each range lies within adjacent segments.
    pub segments: Vec<Range<u64>>,
    /// For each batch, the indexes of its segments.
    pub batches: Vec<Range<usize>>,
}

struct Opened {
    file: File,
    meta: ObjectMeta,
    /// The number of bytes that the chain has read after the open.
    moved: usize,
}

impl Worker {
    pub(crate) async fn get(
        self: Rc<Self>,
        place: Place,
        location: Path,
        options: GetOptions,
    ) -> Result<Got, Fault> {
        let site = self.site().await?;
        if let Some(range) = &options.range {
            range.is_valid().map_err(generic)?;
        }
        let resolve = |meta: &ObjectMeta| -> Result<Range<u64>, Fault> {
            options.check_preconditions(meta)?;
            match &options.range {
                Some(range) => Ok(range.as_range(meta.size).map_err(generic)?),
                None => Ok(0..meta.size),
            }
        };
        if options.head {
            let meta = object_meta(location, &self.look_up(&site, &place).await?);
            let range = resolve(&meta)?;
            return Ok(Got { meta, range, first: None, file: None });
        }
        let (offset, wanted) = first_read(options.range.as_ref());
        let buffer = site.session.client().allocate(wanted)?;
        let slice = match wanted {
            0 => None,
            _ => Some((offset, buffer.slice(0, wanted)?)),
        };
        let Opened { file, meta, moved } =
            self.open_and_read(&site, &place, location, slice).await?;
        let range = resolve(&meta)?;
        let length = length_of(&range);
        let here = if offset == range.start { moved.min(length) } else { 0 };
        let file = (here < length)
            .then(|| RemoteFile::new(self.keep_file(Rc::new(file)), self.bell.clone()));
        let first = (here > 0).then(|| Landed::new(&self, buffer, vec![here]));
        Ok(Got { meta, range, first, file })
    }

    /// Opens an object, gets its attributes and reads its first bytes, in one round trip.
    async fn open_and_read(
        &self,
        site: &Site,
        place: &Place,
        location: Path,
        read: Option<(u64, Slice)>,
    ) -> Result<Opened, Fault> {
        let existing = |error| Fault::of_existing(about(error, &place.shown));
        let (here, rest) = self.near(site, &place.parents).await.map_err(existing)?;
        let (chain, walked) = walk(&site.session, here, rest);
        let options = OpenOptions::read();
        let mut chain = chain.open_in(&place.name, &place.shown, &options).getattr();
        if let Some((offset, slice)) = read {
            chain = chain.read_into(offset, slice);
        }
        let run = chain.run_async().await;
        let (done, failure) = match run {
            Ok(done) => (done, None),
            Err(failure) => (failure.done, Some(failure.error)),
        };
        let mut brought = done.into_iter().skip(walked);
        // Dropping the file closes it.
        let file = match brought.next() {
            Some(Outcome::Opened { file, state }) => {
                Some(site.session.opened(file, state, &place.shown))
            }
            _ => None,
        };
        if let Some(error) = failure {
            return Err(existing(error));
        }
        let file = file.ok_or(Fault::Refused(StoreError::NotAnObject))?;
        let metadata = regular(brought.next(), &place.shown).map_err(existing)?;
        let moved = brought.next().and_then(|outcome| outcome.transferred());
        let moved = moved.map_or(0, |moved| moved.length as usize);
        Ok(Opened { file, meta: object_meta(location, &metadata), moved })
    }

    /// Reads one range of an open object.
    pub(crate) async fn read_piece(
        self: Rc<Self>,
        number: u64,
        offset: u64,
        length: usize,
    ) -> Result<Landed, Fault> {
        let file = self.file(number).ok_or(Fault::Refused(StoreError::FileGone))?;
        let buffer = file.session().client().allocate(length)?;
        read_all(&file, offset, &buffer, 0, length).await.map_err(Fault::of_open)?;
        Ok(Landed::new(&self, buffer, vec![length]))
    }

    /// Opens an object for several ranges, and reads the first batch of them.
    pub(crate) async fn get_ranges(
        self: Rc<Self>,
        place: Place,
        location: Path,
        ranges: Vec<Range<u64>>,
    ) -> Result<Ranged, Fault> {
        let site = self.site().await?;
        let Opened { file, meta, .. } = self.open_and_read(&site, &place, location, None).await?;
        let plan = Plan::new(&ranges, meta.size).map_err(generic)?;
        let number = self.keep_file(Rc::new(file));
        let file = RemoteFile::new(number, self.bell.clone());
        let first = match plan.batches.first() {
            Some(batch) => {
                let segments = plan.segments[batch.clone()].to_vec();
                Some(self.read_batch(number, segments).await?)
            }
            None => None,
        };
        Ok(Ranged { file, plan, first })
    }

    /// Reads segments of an open object with one batch of requests.
    pub(crate) async fn read_batch(
        self: Rc<Self>,
        number: u64,
        segments: Vec<Range<u64>>,
    ) -> Result<Landed, Fault> {
        let file = self.file(number).ok_or(Fault::Refused(StoreError::FileGone))?;
        let lengths: Vec<usize> = segments.iter().map(length_of).collect();
        let buffer = file.session().client().allocate(lengths.iter().sum())?;
        fill(&file, &segments, &lengths, &buffer).await.map_err(Fault::of_open)?;
        Ok(Landed::new(&self, buffer, lengths))
    }
}

/// Reads segments of a file into adjacent parts of a buffer, with one batch of requests.
async fn fill(
    file: &File,
    segments: &[Range<u64>],
    lengths: &[usize],
    buffer: &Buffer,
) -> Result<(), Fault> {
    let (mut batch, mut at) = (file.session().batch(), 0);
    for (segment, length) in segments.iter().zip(lengths) {
        batch = batch.read(file, segment.start, buffer.slice(at, *length)?);
        at += length;
    }
    let outcomes = batch.start()?.await;
    at = 0;
    for ((segment, length), outcome) in segments.iter().zip(lengths).zip(outcomes) {
        let moved = outcome? as usize;
        if moved < *length {
            let offset = segment.start + moved as u64;
            read_all(file, offset, buffer, at + moved, length - moved).await?;
        }
        at += length;
    }
    Ok(())
}

/// Reads exactly `length` bytes. Fails if the file ends before.
pub(crate) async fn read_all(
    file: &File,
    offset: u64,
    buffer: &Buffer,
    at: usize,
    length: usize,
) -> Result<(), Fault> {
    let mut done = 0;
    while done < length {
        let slice = buffer.slice(at + done, length - done)?;
        let moved = file.read_async(offset + done as u64, slice).await?;
        if moved.length == 0 {
            return Err(match moved.end_of_file {
                true => Fault::Refused(StoreError::Cut),
                false => Fault::Client(ClientError::Status {
                    what: file.path().to_owned(),
                    status: Status::Io,
                }),
            });
        }
        done += moved.length as usize;
    }
    Ok(())
}

/// Returns the offset and the number of bytes to read in the chain that opens the object.
fn first_read(range: Option<&GetRange>) -> (u64, usize) {
    match range {
        None => (0, FIRST_BYTES),
        Some(GetRange::Offset(offset)) => (*offset, FIRST_BYTES),
        Some(GetRange::Bounded(range)) => (range.start, length_of(range).min(SINGLE_BYTES_MAX)),
        // The offset of a suffix is unknown until the size of the object is known.
        Some(GetRange::Suffix(_)) => (0, 0),
    }
}

impl Plan {
    pub(crate) fn new(
        wanted: &[Range<u64>],
        size: u64,
    ) -> Result<Self, impl std::error::Error + Send + Sync + 'static> {
        let mut ranges = Vec::with_capacity(wanted.len());
        for range in wanted {
            match GetRange::Bounded(range.clone()).as_range(size) {
                Ok(range) => ranges.push(range),
                Err(error) => return Err(error),
            }
        }
        let mut sorted = ranges.clone();
        sorted.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in sorted {
            match merged.last_mut() {
                Some(last) if range.start <= last.end.saturating_add(GAP_BYTES_MAX) => {
                    last.end = last.end.max(range.end);
                }
                _ => merged.push(range),
            }
        }
        let cut = |range: Range<u64>| {
            let starts = (range.start..range.end).step_by(SEGMENT_BYTES_MAX as usize);
            starts.map(move |start| start..range.end.min(start + SEGMENT_BYTES_MAX))
        };
        let segments: Vec<Range<u64>> = merged.into_iter().flat_map(cut).collect();
        let (mut batches, mut start, mut bytes) = (Vec::new(), 0, 0);
        for (index, segment) in segments.iter().enumerate() {
            let length = segment.end - segment.start;
            let is_full = bytes + length > BATCH_BYTES_MAX || index - start >= BATCH_READS_MAX;
            if index > start && is_full {
                batches.push(start..index);
                (start, bytes) = (index, 0);
            }
            bytes += length;
        }
        if start < segments.len() {
            batches.push(start..segments.len());
        }
        Ok(Self { ranges, segments, batches })
    }
}

/// The number of bytes to read in the chain that opens the object, if the length of the range is
/// not known yet.
const FIRST_BYTES: usize = 256 << 10;
/// The longest range, in bytes, that is read with one request, without a copy to join pieces.
const SINGLE_BYTES_MAX: usize = 8 << 20;
/// The largest gap in bytes between two ranges that are read together, because reading the gap is
/// cheaper than another request.
const GAP_BYTES_MAX: u64 = 32 << 10;
/// The maximum length of a segment in bytes.
const SEGMENT_BYTES_MAX: u64 = 4 << 20;
/// The maximum number of bytes in one batch.
const BATCH_BYTES_MAX: u64 = 16 << 20;
/// The maximum number of requests in one batch.
const BATCH_READS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_lie_close_together_are_read_together() {
        let far = 10 * GAP_BYTES_MAX;
        let wanted = [far..far + 5, 0..10, 2..4, 20..30];
        let plan = Plan::new(&wanted, u64::MAX).unwrap();
        assert_eq!(plan.segments, [0..30, far..far + 5]);
        assert_eq!((plan.batches.len(), &plan.batches[0]), (1, &(0..2)));
        assert_eq!(plan.ranges, wanted);
    }

    #[test]
    fn long_ranges_are_cut_and_batches_are_bounded() {
        let long = 3 * BATCH_BYTES_MAX + 1;
        let whole = 0..long;
        let plan = Plan::new(std::slice::from_ref(&whole), u64::MAX).unwrap();
        assert_eq!(plan.segments.len() as u64, long.div_ceil(SEGMENT_BYTES_MAX));
        assert_eq!(plan.batches.len(), 4);
        for batch in &plan.batches {
            let bytes: u64 = plan.segments[batch.clone()].iter().map(|s| s.end - s.start).sum();
            assert!(bytes <= BATCH_BYTES_MAX);
        }
        let one = |n: u64| 2 * n * GAP_BYTES_MAX..2 * n * GAP_BYTES_MAX + 1;
        let many: Vec<_> = (0..200).map(one).collect();
        assert_eq!(Plan::new(&many, u64::MAX).unwrap().batches.len(), 4);
    }

    #[test]
    fn ranges_end_with_the_object() {
        let behind = 5..100;
        let plan = Plan::new(std::slice::from_ref(&behind), 10).unwrap();
        assert_eq!((plan.ranges.len(), &plan.ranges[0]), (1, &(5..10)));
        for bad in [10..11, 3..3] {
            assert!(Plan::new(std::slice::from_ref(&bad), 10).is_err());
        }
        assert_eq!(Plan::new(&[], 10).unwrap(), Plan::default());
    }
}
