//! Tests of messages: round trips, fixtures, corpora and the document.
//!
//! They are in one binary, because linking many takes longer than running them.

mod corpus;
mod documents;
mod fixtures;
mod material;
mod round_trip;
