//! Tests of operations and outcomes as bytes: round trips, the corpus and the document.
//!
//! They are in one binary, because linking many takes longer than running them.

mod corpus;
mod documents;
mod material;
mod round_trip;
