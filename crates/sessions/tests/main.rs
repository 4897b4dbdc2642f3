//! Tests of sessions: scenarios, models and random histories.
//!
//! They are one binary, because linking many takes longer than running them.

mod acting;
mod batch;
mod batch_model;
mod bind;
mod common;
mod credentials;
#[path = "../../filer/tests/dice/mod.rs"]
mod dice;
mod model;
mod sessions;
