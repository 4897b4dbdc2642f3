//! The tcp provider against what its own peers never do.
//!
//! `mispredicted`: what arrives is not what was foretold; `growing`: frames change their
//! size; `gone`: an end in the midst of the start; `awaited`: waits for messages that come,
//! come in part, or never; `revoked`: memory is taken away meanwhile; `setup`: MPA start-up
//! frames over a plain socket; `ready`: every way to get ready, and none; `crowd`: many at
//! once; `shared`: many at once, for interfaces that share them; `frames`: how long frames are;
//! `tls`: who gets in by it, and what else may come. `peer` is what `growing`, `awaited` and
//! `revoked` talk to.

mod awaited;
#[path = "../certificates/mod.rs"]
mod certificates;
mod crowd;
mod frames;
mod gone;
mod growing;
mod mispredicted;
mod peer;
mod ready;
mod revoked;
mod setup;
mod shared;
mod tls;
