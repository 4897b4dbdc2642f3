//! The NFS clients of the crash world: members that speak NFSv4.1 in persistent sessions.
//!
//! They use the same files as the DAFS members, and the same checker judges them. A member that has
//! lost its connection sends the requests without a reply again, on the same slots, whether the
//! server was killed meanwhile or not. So each of them must be executed exactly once.
//!
//! The modules: `line` carries records over a simulated stream; `messages` encodes compounds and
//! decodes their results; `member` is the state of a member; `login` begins and ends its sessions;
//! `work` chooses its requests, sends them, and sends them again.
//!
//! Invariant: a request that changes something stays in the member's slot until its outcome is
//! known, or until the session has ended.

mod line;
mod login;
mod member;
mod messages;
#[cfg(test)]
mod tests;
mod work;

pub(super) use member::{NfsMember, NfsPhase};

/// The port at which the server serves NFS clients.
pub(super) const PORT: u16 = 2049;

/// Returns the fence identity of the NFS client on a node.
pub(super) fn fence_id(node: u32) -> String {
    format!("nfs:{}", dafs_dat::sim::address_of(node))
}
