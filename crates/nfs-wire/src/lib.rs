//! NFS and the protocols beside it: converts bytes to typed messages and back.
//!
//! Invariant: all functions are pure functions over bytes. No message from a peer can make them
//! panic, allocate without a limit, or read outside the message. Every count is checked against a
//! named bound and against the bytes that are left before memory is allocated.
//!
//! Every type is declared once, with the macro of [`xdr`]; codec and description follow from the
//! declaration. Every program has a [table](table::Program) of its procedures. The data of READ
//! and WRITE is never copied: see [`xdr::Payload`].
#![forbid(unsafe_code)]
#![recursion_limit = "1024"]

pub mod mount3;
pub mod nfs3;
pub mod rpc;
pub mod table;
pub mod xdr;
