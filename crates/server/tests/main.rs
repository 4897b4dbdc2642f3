//! The fuzz corpus, journals of earlier versions, and turns of several reactors.
//!
//! One binary for all of them: linking many takes longer than running them.

mod corpus;
mod old_journal;
mod reactors;
