//! Tests sessions that reconnect: broken connections, killed and stopped servers, partitioned
//! networks; single operations, under load, and request by request with a scripted server.

mod chains;
pub mod child;
mod lanes;
mod lives;
pub mod proxy;
pub mod script;
pub mod scripted;
mod storm;
