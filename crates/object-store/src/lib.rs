#![doc = include_str!("../README.md")]
//!
//! # How it is made
//!
//! A client of DAFS belongs to one thread. So each connection of a store has a driver thread, which
//! owns a client and makes all of its progress; callers send it what is to be done and wait for the
//! reply as a future. It needs no executor of its own, blocks none, and its queue is bounded: a
//! caller waits for a permit first.
//!
//! `docs/object-store.md` in the repository says how operations are done with files.
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
