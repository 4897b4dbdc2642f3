//! Tests of the fuzz corpus, of journals of earlier versions, and of turns of several reactors.
//!
//! All are in one binary, because linking many binaries takes longer than running them.

mod corpus;
mod old_journal;
mod reactors;
