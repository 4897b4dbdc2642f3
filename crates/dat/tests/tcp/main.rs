//! The tcp provider against what its own peers never do.
//!
//! `mispredicted`: what arrives is not what was foretold; `growing`: frames change their
//! size; `awaited`: waits for messages that come, come in part, or never; `revoked`: memory
//! is taken away meanwhile; `setup`: MPA start-up frames over a plain socket. `peer` is what
//! the middle three talk to.

mod awaited;
mod growing;
mod mispredicted;
mod peer;
mod revoked;
mod setup;
