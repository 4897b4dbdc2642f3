//! The whole system: a real server on a real directory, real clients, every transport.
//!
//! Each case runs once for each transport.

mod bind;
mod bystander;
mod data;
mod fixture;
mod hostile;
mod names;
mod opens;
mod reconnect;
mod recovery;
mod rogue;
mod sessions;
