//! Tests sessions that reconnect: broken connections, killed and stopped servers, partitioned
//! networks; single operations, under load, and request by request with a scripted server.

mod chains;
pub(crate) mod child;
mod lanes;
mod lives;
pub(crate) mod proxy;
pub(crate) mod script;
pub(crate) mod scripted;
mod storm;
