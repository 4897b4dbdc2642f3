//! The tables of cases, one per group.

use anyhow::Result;

use crate::script::{self, Case};

macro_rules! tables {
    ($($group:literal)*) => {
        const TABLES: &[(&str, &str)] =
            &[$(($group, include_str!(concat!("tables/", $group, ".txt")))),*];
    };
}

tables! {
    "access" "chmod" "chown" "data" "directories" "errors" "fallocate" "groups" "link" "locks"
    "maps" "mkdir" "mknod" "open" "readlink" "rename" "rmdir" "stat" "symlink" "times" "truncate"
    "unlink" "utimens" "xattr"
}

/// Returns all cases in the order of the groups.
pub fn all() -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for (group, text) in TABLES {
        cases.extend(script::read(group, text)?);
    }
    Ok(cases)
}

/// Returns the names of the groups.
pub fn groups() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|(group, _)| *group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_enough_and_all_are_different() {
        let cases = all().unwrap();
        assert!(cases.len() >= 400, "{}", cases.len());
        let mut bodies: Vec<String> =
            cases.iter().map(|case| format!("{:?}", said(case))).collect();
        bodies.sort();
        for pair in bodies.windows(2) {
            assert!(pair[0] != pair[1], "twice: {}", pair[0]);
        }
    }

    fn said(case: &Case) -> Vec<(&str, &[String], String)> {
        let steps = case.steps.iter();
        steps.map(|s| (&s.actor[..], &s.words[..], format!("{:?}", s.expected))).collect()
    }
}
