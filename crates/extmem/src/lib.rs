//! External memory algorithms: merges and sorts streams of records that are larger than memory,
//! through an exchangeable block transfer engine. (The model is TPIE, for which Duke University has
//! demonstrated a DAFS engine.)
//!
//! An [`Engine`] opens and creates files. A [`Channel`] moves the blocks of one stream: each is
//! submitted and waited for. The stream's [`Flow`] determines how many are in flight: one is
//! synchronous, two is double buffering, with the same code. There are engines for DAFS servers
//! ([`DafsEngine`]), local files ([`LocalEngine`]) and memory ([`MemoryEngine`]).
//!
//! A [`Stream`] is a file or a range of one. Records have a fixed size ([`RecordLayout`]) or are
//! lines ([`LineOrder`]). [`merge`] combines many sorted streams into one, and [`sort`] turns any
//! streams into a sorted file, both within a limit of memory ([`Budget`]). Programs read and write
//! their own types with [`TypedReader`] and [`TypedWriter`].
//!
//! Invariant: a submitted block belongs to its channel until the caller has waited for it, which
//! the types enforce. A record is copied once, from the block into which it was read to the block
//! from which it is written.
#![forbid(unsafe_code)]

mod budget;
mod engine;
mod error;
mod merge;
mod order;
mod sort;
mod source;
mod stream;
mod tree;
mod typed;
mod writer;

pub use budget::{Budget, MARGIN_BYTES, peak_resident_bytes, resident_bytes};
pub use engine::{
    Block, BlockFile, Channel, DafsEngine, Engine, LocalEngine, MemoryEngine, Moved, Output,
};
pub use error::{Error, Result};
pub use merge::{Format, MergeOptions, Merged, merge};
pub use order::{KeyKind, LineOrder, Order, RecordKey, RecordLayout, SpecificationError, TextKey};
pub use sort::{Sorted, sort};
pub use source::{LineSource, RecordSource, Source};
pub use stream::{BlockReader, Flow, Stream, Watch};
pub use tree::LoserTree;
pub use typed::{TypedReader, TypedWriter};
pub use writer::Writer;
