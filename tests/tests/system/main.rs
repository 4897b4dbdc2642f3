//! The whole system: a real server on a real directory, real clients, every transport.
//!
//! Each case runs once for each transport.

mod attributes;
mod bind;
mod bystander;
mod chains;
mod data;
mod fencing;
mod fixture;
mod grace;
mod hostile;
mod locks;
mod names;
mod opens;
mod reconnect;
mod recovery;
mod rogue;
mod sessions;
mod undo;
