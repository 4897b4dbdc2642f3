//! The tcp provider against what its own peers never do.
//!
//! `mispredicted`: what arrives is not what was foretold; `setup`: MPA start-up frames
//! over a plain socket.

mod mispredicted;
mod setup;
