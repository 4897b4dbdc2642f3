//! Sessions that come back by themselves: broken connections, killed and frozen servers,
//! parted networks, one thing at a time, under load, and word for word before a scripted
//! server.

mod chains;
pub mod child;
mod lanes;
mod lives;
pub mod proxy;
pub mod script;
pub mod scripted;
mod storm;
