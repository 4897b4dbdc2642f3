//! Calls in which the kernel checks the caller's permission.
//!
//! Invariant: in a directory with the sticky bit, the kernel compares the owner of a removed or
//! replaced object with the caller in the same call that removes the object. A check by the server
//! in advance would be made on the object that has the name at that time, which may be another
//! object.

use rustix::process::Uid;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities, set_thread_res_uid};

/// A guard. While it exists, the kernel checks this thread's calls with the caller's user id. The
/// thread can still access every directory, because that access was checked before.
pub(super) struct Acting(());

impl Acting {
    /// Starts to act for a user. `None` if this process may not act for other users.
    pub(super) fn begin(uid: u32) -> Option<Self> {
        let mut sets = capabilities(None).ok()?;
        set_thread_res_uid(None, Some(Uid::from_raw(uid)), None).ok()?;
        let acting = Self(());
        // The change of user cleared all effective capabilities. Restore those for access to
        // directories, but not those over owners and modes.
        sets.effective = sets.permitted & DIRECTORY_RIGHTS;
        set_capabilities(None, sets).ok()?;
        Some(acting)
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        // The thread's real user is still root, so the thread may become root again. If that
        // failed, the thread would serve other clients as this user, so abort.
        if set_thread_res_uid(None, Some(Uid::ROOT), None).is_err() {
            std::process::abort();
        }
    }
}

/// The capabilities that allow a thread to access every directory.
const DIRECTORY_RIGHTS: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH);
