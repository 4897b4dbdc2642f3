//! The table of test cases. Each row is one case.
//!
//! Invariant: no two cases have the same protocol and name.

pub mod mount;
pub mod rpc;
pub mod v3;
pub mod v4;

use crate::suite::Case;

/// Returns the cases of all protocols.
#[must_use]
pub fn all() -> Vec<Case> {
    let tables = [rpc::CASES, mount::CASES];
    let versions = v3::TABLES.iter().chain(v4::TABLES).copied();
    tables.into_iter().chain(versions).flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    #[test]
    fn every_case_has_a_name_of_its_own() {
        let mut names = HashSet::new();
        for case in super::all() {
            assert!(names.insert(case.to_string()), "{case} is there twice");
        }
    }
}
