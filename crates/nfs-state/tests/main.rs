//! Tests of the machines: the tables of the RFC, scenarios, models and random histories.
//!
//! They are one binary, because linking many takes longer than running them.

mod callback_model;
mod callbacks;
mod clients;
mod common;
mod exchange_model;
mod sessions;
mod slot_model;
mod states;
