//! Tests clients that break the rules: each gets an error or loses its connection, and other
//! sessions are not affected.
//!
//! Modules by what is abused: `requests` (valid transport, invalid DAFS), `handles`, `buffers`
//! (memory that a client advertises), `withheld` (transfers that a client does not let complete).
//! Below them are the transports, implemented by hand: `control` and `rings` (shared memory, with
//! `shm`), `frames` (TCP, with `tcp` and `offences`). `flood` repeats offences and checks what the
//! server's process holds. `storm` sends very many at once; there the server is a separate process
//! (`process`). `shares` takes all of a resource. `closing` uses descriptors that block on close.

mod buffers;
mod closing;
mod control;
mod flood;
mod frames;
mod handles;
mod offences;
mod process;
mod requests;
mod rings;
mod shares;
mod shm;
mod storm;
pub(crate) mod tcp;
mod withheld;
