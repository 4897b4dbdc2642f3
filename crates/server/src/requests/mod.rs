//! DAFS requests: decoding, dispatch and replies.
//!
//! Invariant: every admitted request gets one reply, or its connection ends.

pub(crate) mod answers;
pub(crate) mod chain;
pub(crate) mod decode;
pub(crate) mod granting;
pub(crate) mod handles;
pub(crate) mod procedures;
pub(crate) mod respond;
pub(crate) mod serve;
pub(crate) mod set_aside;
pub(crate) mod translate;
