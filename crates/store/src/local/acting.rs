//! Calls for which the kernel decides about the caller's right.
//!
//! Invariant: in a directory with the sticky bit, the kernel compares the owner of a removed or
//! replaced object with the caller in the same call that removes it. A check by the server in
//! advance would only apply to the object that had the name at that time.

use rustix::process::Uid;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities, set_thread_res_uid};

/// While it exists, this thread acts as the caller for the kernel. It keeps the rights to
/// directories, which were checked before.
pub(super) struct Acting(());

impl Acting {
    /// Starts to act for a user; `None` if this process may not.
    pub(super) fn begin(uid: u32) -> Option<Self> {
        let mut sets = capabilities(None).ok()?;
        set_thread_res_uid(None, Some(Uid::from_raw(uid)), None).ok()?;
        let acting = Self(());
        // The change of user cleared all capabilities. Those over owners and modes stay cleared.
        sets.effective = sets.permitted & DIRECTORY_RIGHTS;
        set_capabilities(None, sets).ok()?;
        Some(acting)
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        // The thread's real user is still root, so it may become root again. If that failed, the
        // thread would serve other clients as this user.
        if set_thread_res_uid(None, Some(Uid::ROOT), None).is_err() {
            std::process::abort();
        }
    }
}

/// The capabilities that let root use every directory.
const DIRECTORY_RIGHTS: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH);
