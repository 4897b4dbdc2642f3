//! Makes sorted runs: fills the memory with records, sorts them and writes them.
//!
//! Invariant: the runs are consecutive in one file, in the order in which their records arrived.

use std::rc::Rc;

use crate::engine::BlockFile;
use crate::error::{Error, Result};
use crate::merge::{Format, MergeOptions};
use crate::order::{LineOrder, Order, RecordLayout};
use crate::source::{Lines, check_whole, whole_records};
use crate::stream::{Flow, Stream};
use crate::writer::Writer;

use super::arena::{Arena, Compare};

/// Makes the runs of a sort.
pub(super) struct Former<'f> {
    format: &'f Format,
    options: &'f MergeOptions,
    flow: Flow,
    arena: Arena,
}

/// The runs that were made.
pub(super) struct Formed {
    pub runs: Vec<Stream>,
    /// True if there was at most one run, which was written directly to the output.
    pub is_whole: bool,
    pub records: u64,
    pub bytes: u64,
}

/// The destination of runs.
struct Sink<'s> {
    temporary: &'s dyn Fn() -> Result<Rc<dyn BlockFile>>,
    flow: Flow,
    open: Option<(Rc<dyn BlockFile>, Writer)>,
    runs: Vec<Stream>,
}

impl<'f> Former<'f> {
    pub(super) fn new(format: &'f Format, options: &'f MergeOptions) -> Result<Self> {
        let limit = options.budget.bytes();
        let mut flow = options.flow.checked();
        let windows = match format {
            Format::Records(layout) => {
                flow = whole_records(flow, layout.record_bytes());
                0
            }
            Format::Lines(_) => 2,
        };
        let blocks = 2 * flow.depth + windows;
        // Most of the memory is for the records.
        while flow.block_bytes * blocks > limit / 4 && flow.block_bytes / 2 >= BLOCK_BYTES_MIN {
            flow.block_bytes /= 2;
        }
        if let Format::Records(layout) = format {
            flow = whole_records(flow, layout.record_bytes());
        }
        let needed = flow.block_bytes.saturating_mul(blocks + 1);
        let Some(left) = limit.checked_sub(flow.block_bytes.saturating_mul(blocks)) else {
            let (needed, limit) = (needed as u64, limit as u64);
            return Err(Error::Memory { what: "sorting", needed, limit });
        };
        Ok(Self { format, options, flow, arena: Arena::new(left) })
    }

    /// Makes the runs of streams. A single run is written to the output.
    pub(super) fn form(
        mut self,
        streams: &[Stream],
        temporary: &dyn Fn() -> Result<Rc<dyn BlockFile>>,
        output: &Rc<dyn BlockFile>,
    ) -> Result<Formed> {
        let flow = self.flow;
        let mut sink = Sink { temporary, flow, open: None, runs: Vec::new() };
        for stream in streams {
            match self.format {
                Format::Records(layout) => self.take_records(stream, *layout, &mut sink)?,
                Format::Lines(order) => self.take_lines(stream, order, &mut sink)?,
            }
        }
        if sink.runs.is_empty() {
            let mut writer = Writer::new(output.clone(), 0, self.flow);
            let records = self.write(&mut writer)?;
            let bytes = writer.finish()?;
            return Ok(Formed { runs: Vec::new(), is_whole: true, records, bytes });
        }
        if !self.arena.is_empty() {
            self.spill(&mut sink)?;
        }
        if let Some((_, writer)) = sink.open.take() {
            writer.finish()?;
        }
        Ok(Formed { runs: sink.runs, is_whole: false, records: 0, bytes: 0 })
    }

    fn take_records(
        &mut self,
        stream: &Stream,
        layout: RecordLayout,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        check_whole(stream, layout)?;
        let record_bytes = layout.record_bytes();
        let mut blocks = stream.blocks(self.flow, &self.options.watch)?;
        while let Some((memory, length)) = blocks.next_block()? {
            let mut at = 0;
            while at < length {
                let room = self.arena.room(record_bytes);
                if room == 0 {
                    self.make_room(record_bytes, sink)?;
                    continue;
                }
                let count = room.min((length - at) / record_bytes);
                let start = self.arena.filled();
                memory.read(at, self.arena.extend(count * record_bytes));
                at += count * record_bytes;
                for index in 0..count {
                    let place = start + index * record_bytes;
                    let prefix = layout.prefix(self.arena.bytes_at(place, record_bytes));
                    self.arena.note(prefix, place, record_bytes);
                }
            }
        }
        Ok(())
    }

    fn take_lines(
        &mut self,
        stream: &Stream,
        order: &LineOrder,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        let watch = &self.options.watch;
        let mut lines = Lines::new(stream, order.terminator, self.flow, watch)?;
        while lines.advance()? {
            let line = lines.line();
            while self.arena.room(line.len()) == 0 {
                self.make_room(line.len(), sink)?;
            }
            let start = self.arena.filled();
            self.arena.extend(line.len()).copy_from_slice(line);
            self.arena.note(order.prefix(line), start, line.len());
        }
        Ok(())
    }

    /// Writes the current run if a record of this size does not fit.
    fn make_room(&mut self, record_bytes: usize, sink: &mut Sink<'_>) -> Result<()> {
        if self.arena.is_empty() {
            let (needed, limit) = (record_bytes as u64, self.arena.bytes() as u64);
            return Err(Error::Memory { what: "one record", needed, limit });
        }
        self.spill(sink)
    }

    fn spill(&mut self, sink: &mut Sink<'_>) -> Result<()> {
        let (file, writer) = match &mut sink.open {
            Some(open) => open,
            open => {
                let file = (sink.temporary)()?;
                let writer = Writer::new(file.clone(), 0, sink.flow);
                open.insert((file, writer))
            }
        };
        let start = writer.position();
        self.write(writer)?;
        sink.runs.push(Stream::new(file.clone(), start..writer.position()));
        self.arena.clear();
        Ok(())
    }

    /// Sorts and writes the current records. Returns their number.
    fn write(&mut self, writer: &mut Writer) -> Result<u64> {
        let is_unique = self.options.is_unique;
        let watch = &self.options.watch;
        watch.check()?;
        match self.format {
            Format::Records(layout) => {
                let compare = |left: &[u8], right: &[u8]| layout.compare(left, right);
                let compare: &Compare<'_> = &compare;
                self.arena.sort((!layout.is_in_prefix()).then_some(compare));
                write_all(&self.arena, layout, is_unique, writer, &[])
            }
            Format::Lines(order) => {
                let compare = |left: &[u8], right: &[u8]| order.compare(left, right);
                self.arena.sort(Some(&compare));
                write_all(&self.arena, &**order, is_unique, writer, &[order.terminator])
            }
        }
    }
}

fn write_all(
    arena: &Arena,
    order: &impl Order,
    is_unique: bool,
    writer: &mut Writer,
    end: &[u8],
) -> Result<u64> {
    let (mut count, mut last) = (0, None);
    for record in arena.records() {
        if is_unique && last.is_some_and(|last| order.is_same(last, record)) {
            continue;
        }
        last = Some(record);
        writer.put(record)?;
        writer.put(end)?;
        count += 1;
    }
    Ok(count)
}

/// The smallest block size in bytes to which blocks shrink to leave more memory for records.
const BLOCK_BYTES_MIN: usize = 64 << 10;
