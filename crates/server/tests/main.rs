//! The fuzz corpus, and journals of earlier versions.
//!
//! One binary for all of them: linking many takes longer than running them.

mod corpus;
mod old_journal;
