//! The whole system: a real server on a real directory, real clients, every transport.
//!
//! Each case runs once for each transport, or over one of them that the fixture chooses; where
//! `DAFS_VERBS_ADDRESS` names an RDMA device, over that alone. Few name a transport: what they
//! are about is in it. Those are left out where the suite runs over devices
//! (`tests/interop/dafs.sh`).

mod attributes;
mod auth;
mod batch;
mod bind;
mod bystander;
mod chains;
mod channels;
mod data;
mod delegations;
mod device_memory;
mod examples;
mod fencing;
mod fixture;
mod fragile;
mod grace;
mod hostile;
mod locks;
mod locks_client;
mod names;
mod odd_names;
mod opens;
mod procedures;
#[allow(dead_code, reason = "shared with the tests of the Kerberos library")]
#[path = "../../../crates/gss/tests/kerberos/realm.rs"]
mod realm;
mod reconnect;
mod recovery;
mod rogue;
mod sessions;
mod undo;
