//! Tests delegations end to end (draft 6.5.10, 6.5.11, 6.5.24, 6.6.3, 6.6.4).

mod coherence;
mod direct;
mod holder;
mod lives;
mod recalls;
