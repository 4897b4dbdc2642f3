//! Calls whose right the kernel decides, for the asker.
//!
//! Invariant: in a directory with the sticky bit the kernel compares the owner of what is removed
//! or replaced with the asker in the very call that does it. A look of ours beforehand would hold
//! for what had the name then.

use rustix::process::Uid;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities, set_thread_res_uid};

/// While it lives, this thread is the asker for the kernel, with the rights to directories that
/// were checked beforehand.
pub(super) struct Acting(());

impl Acting {
    /// Begins to act for a user; `None` if this process may not.
    pub fn begin(uid: u32) -> Option<Self> {
        let mut sets = capabilities(None).ok()?;
        set_thread_res_uid(None, Some(Uid::from_raw(uid)), None).ok()?;
        let acting = Self(());
        // The change of user took all of them. Those over owners and their modes stay away.
        sets.effective = sets.permitted & DIRECTORY_RIGHTS;
        set_capabilities(None, sets).ok()?;
        Some(acting)
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        // Who was root may be root again: it is the thread's real user still. With any other
        // outcome the thread would serve others as this user.
        if set_thread_res_uid(None, Some(Uid::ROOT), None).is_err() {
            std::process::abort();
        }
    }
}

/// What lets root into every directory.
const DIRECTORY_RIGHTS: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH);
