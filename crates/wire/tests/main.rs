//! The messages: round trips, fixtures, corpora and the documents about them.
//!
//! One binary for all of them: linking many takes longer than running them.

mod corpus;
mod documents;
mod fixtures;
mod material;
mod round_trip;
