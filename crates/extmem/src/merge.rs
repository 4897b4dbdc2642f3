//! Merges sorted streams, in as many passes as the limit of memory requires.
//!
//! Invariant: a pass merges only neighbouring streams, so equal records stay in the order of their
//! streams. The blocks of all streams of a pass and of its output fit the limit.

use std::rc::Rc;

use crate::budget::Budget;
use crate::engine::BlockFile;
use crate::error::{Error, Result};
use crate::order::{LineOrder, RecordLayout};
use crate::source::{LineSource, RecordSource, Source};
use crate::stream::{Flow, Stream, Watch};
use crate::tree::LoserTree;
use crate::writer::Writer;

/// The format of streams.
#[derive(Clone, Debug)]
pub enum Format {
    /// The streams consist of records of a fixed size.
    Records(RecordLayout),
    /// The streams consist of lines of text.
    Lines(Rc<LineOrder>),
}

/// The options of a merge.
#[derive(Clone)]
pub struct MergeOptions {
    /// The size and number of blocks. Blocks shrink if the limit requires it.
    pub flow: Flow,
    /// The limit of memory.
    pub budget: Budget,
    /// True to keep only the first record of those with the same key.
    pub is_unique: bool,
    /// An observer that gets the progress of the merge and may stop it.
    pub watch: Watch,
}

/// The results of a merge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// The number of records written.
    pub records: u64,
    /// The number of bytes written.
    pub bytes: u64,
    /// The number of passes over all or some of the records.
    pub passes: u32,
    /// The maximum number of streams merged in one step.
    pub order: usize,
}

/// Merges sorted streams into a file. `temporary` creates the files for intermediate passes.
///
/// # Errors
/// The errors of the engines; [`Error::OutOfOrder`] if a stream is found not to be sorted;
/// [`Error::Memory`] if not even two streams fit the limit.
pub fn merge(
    streams: &[Stream],
    format: &Format,
    temporary: &dyn Fn() -> Result<Rc<dyn BlockFile>>,
    output: Rc<dyn BlockFile>,
    options: &MergeOptions,
) -> Result<Merged> {
    let plan = Plan::make(streams.len(), format, options)?;
    let mut merged = Merged::default();
    let mut streams = streams.to_vec();
    while streams.len() > plan.order {
        streams = pass(&streams, format, temporary()?, &plan, options)?;
        merged.passes += 1;
    }
    merged.order = plan.order.min(streams.len().max(1));
    merged.passes += 1;
    let mut writer = Writer::new(output, 0, plan.flow);
    merged.records = merge_at_once(&streams, format, &mut writer, plan.flow, options)?;
    merged.bytes = writer.finish()?;
    Ok(merged)
}

/// Merges neighbouring streams until the remaining ones can be merged in one step. A stream that
/// needs no intermediate merge is not copied.
fn pass(
    streams: &[Stream],
    format: &Format,
    file: Rc<dyn BlockFile>,
    plan: &Plan,
    options: &MergeOptions,
) -> Result<Vec<Stream>> {
    let mut writer = Writer::new(file.clone(), 0, plan.flow);
    let (mut made, mut left) = (Vec::new(), streams);
    while made.len() + left.len() > plan.order && left.len() > 1 {
        let surplus = made.len() + left.len() - plan.order;
        let (now, later) = left.split_at((surplus + 1).min(plan.order).min(left.len()));
        let start = writer.position();
        merge_at_once(now, format, &mut writer, plan.flow, options)?;
        made.push(start..writer.position());
        left = later;
    }
    writer.finish()?;
    let made = made.into_iter().map(|range| Stream::new(file.clone(), range));
    Ok(made.chain(left.iter().cloned()).collect())
}

/// Merges streams that can be merged in one step. Returns the number of records.
fn merge_at_once(
    streams: &[Stream],
    format: &Format,
    writer: &mut Writer,
    flow: Flow,
    options: &MergeOptions,
) -> Result<u64> {
    let watch = &options.watch;
    match format {
        Format::Records(layout) => {
            let source = |stream| RecordSource::new(stream, *layout, flow, watch);
            let sources = streams.iter().map(source).collect::<Result<_>>()?;
            drain(LoserTree::new(sources)?, writer, options.is_unique)
        }
        Format::Lines(order) => {
            let source = |stream| LineSource::new(stream, order.clone(), flow, watch);
            let sources = streams.iter().map(source).collect::<Result<_>>()?;
            drain(LoserTree::new(sources)?, writer, options.is_unique)
        }
    }
}

/// Writes all records of a tree. Returns their number.
fn drain<S: Source>(mut tree: LoserTree<S>, writer: &mut Writer, is_unique: bool) -> Result<u64> {
    let (mut count, mut last) = (0, None);
    while let Some(source) = tree.first() {
        if !is_unique || !last.as_ref().is_some_and(|last: &Vec<u8>| source.repeats(last)) {
            source.put(writer)?;
            count += 1;
            if is_unique {
                source.remember(last.get_or_insert_default());
            }
        }
        tree.advance()?;
    }
    Ok(count)
}

/// The number of streams and the block size that fit the limit.
struct Plan {
    /// The number of streams merged in one step.
    order: usize,
    flow: Flow,
}

impl Plan {
    fn make(count: usize, format: &Format, options: &MergeOptions) -> Result<Self> {
        let mut flow = options.flow.checked();
        let (least, windows) = match format {
            Format::Records(layout) => (layout.record_bytes().max(BLOCK_BYTES_MIN), 0),
            // Lines are copied from their blocks to a window with room for one block and the rest
            // of another.
            Format::Lines(_) => (BLOCK_BYTES_MIN, 2),
        };
        if let Format::Records(layout) = format {
            flow.block_bytes = flow.block_bytes.max(layout.record_bytes());
        }
        let needed = |order: usize, flow: Flow| {
            let blocks = order.saturating_mul(flow.depth + windows).saturating_add(flow.depth);
            blocks.saturating_mul(flow.block_bytes)
        };
        let limit = options.budget.bytes();
        while needed(count, flow) > limit && flow.block_bytes / 2 >= least {
            flow.block_bytes /= 2;
        }
        let mut order = count.max(1);
        while order > 2 && needed(order, flow) > limit {
            order -= 1;
        }
        if needed(order, flow) > limit {
            let (needed, limit) = (needed(order, flow) as u64, limit as u64);
            return Err(Error::Memory { what: "merging two streams", needed, limit });
        }
        Ok(Self { order, flow })
    }
}

/// The smallest block size in bytes to which blocks shrink so that more streams can be merged in
/// one step.
const BLOCK_BYTES_MIN: usize = 64 << 10;
