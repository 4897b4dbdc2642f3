//! Requests of DAFS: how they come in, what they ask for, and how they are answered.
//!
//! Invariant: every request that was let in is answered once, or its connection is gone.

pub(crate) mod answers;
pub(crate) mod asks;
pub(crate) mod chain;
pub(crate) mod decode;
pub(crate) mod granting;
pub(crate) mod handles;
pub(crate) mod respond;
pub(crate) mod serve;
pub(crate) mod set_aside;
pub(crate) mod translate;
