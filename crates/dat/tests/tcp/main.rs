//! The tcp provider against what its own peers never do.
//!
//! `mispredicted`: what arrives is not what was foretold; `growing`: frames change their
//! size; `setup`: MPA start-up frames
//! over a plain socket.

mod growing;
mod mispredicted;
mod setup;
