//! The protocol machines: connects, streams, terminations and captured traffic.
//!
//! One binary for all of them: linking many takes longer than running them.

mod captures;
mod connect;
mod pair;
mod streams;
mod terminate;
