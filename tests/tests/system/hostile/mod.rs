//! Clients that break the rules: each gets its error or loses its connection, and
//! neighbours' sessions notice nothing.
//!
//! By what is abused: `requests` (well-formed transport, bad DAFS), `handles`, `buffers`
//! (memory that a client advertises), `withheld` (transfers that a client does not let end); below
//! them the transports, spoken by hand: `control` and `rings` (shared memory, by `shm`), `frames`
//! (TCP, by `tcp`, with `offences`). `flood` repeats offences and watches what the server's process
//! holds, `storm` has very many come at once; there the server is in a process of its own
//! (`process`). `shares` takes all that there is to have. `closing` is about descriptors that do
//! not close.

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
