//! The stores: one conformance suite, models of the cache, and attacks on the local store.
//!
//! One binary for all of them: linking many takes longer than running them.

mod cache_model;
mod conformance;
mod handles;
mod lists;
mod local_attack;
mod local_attributes;
mod removed_beside;
mod terms;
