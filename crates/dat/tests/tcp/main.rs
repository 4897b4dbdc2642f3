//! Tests the tcp provider with behaviour that its own peers never show.
//!
//! - `mispredicted`: other data arrives than was announced; `growing`: frames change their size.
//! - `gone`: the connection ends during the start-up; `ready`: every way to become ready, and none.
//! - `awaited`: waits for messages that arrive completely, partly, or never.
//! - `revoked`: memory is invalidated meanwhile.
//! - `setup`: MPA start-up frames over a plain socket; `frames`: the length of frames.
//! - `crowd`: many connections at once; `shared`: the same for interfaces that share them.
//! - `records`: connections that carry records instead of DAFS messages; `secure_records`: the same
//!   with TLS.
//! - `tls`: authentication by certificates, and hostile peers.
//!
//! `peer` is the peer of `growing`, `awaited` and `revoked`.

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
mod records;
mod revoked;
mod secure_records;
mod setup;
mod shared;
mod tls;
