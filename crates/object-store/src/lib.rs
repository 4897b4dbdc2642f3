//! Implements the `object_store` traits with files of a DAFS server.
//!
#![doc = include_str!("../README.md")]
//!
//! # Implementation
//!
//! A client of DAFS belongs to one thread. Therefore each connection of a store has a driver
//! thread, which owns the connection's client and executes all of its operations. Callers send
//! operations to the driver thread and wait for each reply as a future. The crate needs no executor
//! of its own and never blocks the caller's executor. The queue of a driver thread is bounded,
//! because a caller has at most one operation in it.
//!
//! `docs/object-store.md` in the repository describes how operations map to file requests.
#![forbid(unsafe_code)]

mod bell;
mod builder;
mod driver;
mod error;
mod listing;
mod moving;
mod names;
mod objects;
mod publishing;
mod reading;
mod store;
mod upload;
mod worker;
mod writing;

pub use builder::{CONNECTIONS_MAX, DafsStoreBuilder, Durability};
pub use error::StoreError;
pub use store::DafsStore;

pub use dafs_client::{ClientError, Location, SessionOptions, UrlError};
