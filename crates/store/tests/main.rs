//! Tests of the stores: one conformance suite, models of the cache, and attacks on the local store.
//!
//! All are in one binary, because linking many binaries takes longer than running them.

mod cache_model;
mod conformance;
mod creation;
mod handles;
mod lists;
mod local_attack;
mod local_attributes;
mod removed_beside;
mod terms;
mod xattrs;
