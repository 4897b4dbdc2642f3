//! The conformance suite of all stores, run on the store that can lose power.

use dafs_sim::disk::CrashStore;
use dafs_store::Store;
use dafs_store::memory::MemoryLimits;

#[path = "../../../store/tests/conformance/suite.rs"]
mod suite;

/// Every test here may act as any user.
fn is_privileged() -> bool {
    true
}

fn everywhere(check: impl Fn(&dyn Store)) {
    let limits = MemoryLimits { bytes_max: 64 << 20, object_count_max: 10_000 };
    check(&CrashStore::new(limits));
}
