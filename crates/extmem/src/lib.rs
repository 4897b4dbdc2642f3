//! External memory: streams of records that are larger than memory, merged and sorted, over a
//! block transfer engine that can be exchanged (after TPIE, whose engine for DAFS Duke University
//! has shown).
//!
//! An [`Engine`] opens files and makes them; a [`Channel`] moves the blocks of one stream, each
//! submitted and waited for. How many are under way is the stream's [`Flow`]: with one it is
//! synchronous, with two it is double buffered, by the same code. Engines are there for servers
//! of DAFS ([`DafsEngine`]), local files ([`LocalEngine`]) and memory ([`MemoryEngine`]).
//!
//! A [`Stream`] is a file or a range of one. Records have a fixed size ([`RecordLayout`]) or are
//! lines ([`LineOrder`]). [`merge`] makes one sorted stream of many, [`sort`] a sorted file of
//! any, both within a limit of memory ([`Budget`]). [`TypedReader`] and [`TypedWriter`] give
//! programs their own types.
//!
//! Invariant: a block that was submitted belongs to its channel until it was waited for, and the
//! types say so; a record is copied once, from the block it was read into to the one it is
//! written from.
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
