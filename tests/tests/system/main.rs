//! Tests of the whole system: a real server with a real directory, real clients, every transport.
//!
//! Each case runs once for each transport, or over one that the fixture chooses. If
//! `DAFS_VERBS_ADDRESS` names an RDMA device, it runs over that alone. A few cases are about a
//! specific transport and name it. Those are left out when the suite runs over devices
//! (`tests/interop/dafs.sh`).

mod attributes;
mod auth;
mod batch;
mod bind;
mod bystander;
#[allow(dead_code, reason = "shared with the tests of the transports")]
#[path = "../../../crates/dat/tests/certificates/mod.rs"]
mod certificates;
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
mod nfs;
mod nfs_asked;
mod nfs_copies;
mod nfs_floods;
mod nfs_kerberos;
mod nfs_rdma;
mod nfs_restart;
mod nfs_side;
mod nfs_sparse;
mod nfs_state;
mod nfs_tls;
mod nfs_watched;
mod odd_names;
mod opens;
mod procedures;
mod ranges;
#[allow(dead_code, reason = "shared with the tests of the Kerberos library")]
#[path = "../../../crates/gss/tests/kerberos/realm.rs"]
mod realm;
mod reconnect;
mod recovery;
mod rogue;
mod sessions;
mod tunnel;
mod undo;
