//! The table of test cases. Each row is one case.
//!
//! Invariant: no two cases have the same protocol and name.

pub mod mount;
pub mod rpc;
pub mod v3;

use crate::suite::Case;

/// Returns the cases of all protocols.
#[must_use]
pub fn all() -> Vec<Case> {
    let tables = [rpc::CASES, mount::CASES];
    tables.into_iter().chain(v3::TABLES.iter().copied()).flatten().copied().collect()
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
