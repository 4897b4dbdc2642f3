//! The messages of NFS and of its companion protocols: converts bytes to typed messages and back.
//!
//! Invariant: all functions are pure functions over bytes. A message from a peer can never make
//! them panic, allocate without a limit, or read outside the message. Before memory is allocated,
//! every count is checked against a named bound and against the number of bytes that are left.
//!
//! Every type is declared once, with the macro of [`xdr`]; codec and description follow from the
//! declaration. Every program has a [table](table::Program) of its procedures, and [`PROGRAMS`]
//! lists all of them. The data of READ and WRITE is never copied: see [`xdr::Payload`].
#![forbid(unsafe_code)]
#![recursion_limit = "1024"]

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod mount3;
pub mod nfs3;
pub mod nfs4;
pub mod nfsacl3;
pub mod nlm;
pub mod nsm;
pub mod rpc;
pub mod rpcbind;
pub mod rquota;
pub mod table;
pub mod xdr;

/// All versions of all programs in this crate, for code that documents, tests or fuzzes them.
pub const PROGRAMS: &[table::Program] = &[
    rpcbind::v2::RPCBIND2,
    rpcbind::v3::RPCBIND3,
    rpcbind::v4::RPCBIND4,
    mount3::MOUNT3,
    nfs3::NFS3,
    nfsacl3::NFSACL3,
    rquota::v1::RQUOTA1,
    rquota::v2::RQUOTA2,
    nlm::v3::NLM3,
    nlm::v4::NLM4,
    nsm::NSM1,
    nfs4::NFS4,
];
