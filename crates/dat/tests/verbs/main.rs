//! What the conformance suite does not show of the verbs provider: that the C libraries'
//! structures are declared as they are, and what is said where there is no device.

mod absent;
mod device;
mod layout;
