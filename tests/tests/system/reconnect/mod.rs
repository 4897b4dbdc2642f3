//! Sessions that come back by themselves: broken connections, killed and frozen servers,
//! parted networks, one thing at a time, under load, and word for word before a scripted
//! server.

mod child;
mod lanes;
mod lives;
mod proxy;
mod script;
mod scripted;
mod storm;
