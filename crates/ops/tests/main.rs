//! Operations and outcomes as bytes: round trips, the corpus and the document about them.
//!
//! One binary for all of them: linking many takes longer than running them.

mod corpus;
mod documents;
mod material;
mod round_trip;
