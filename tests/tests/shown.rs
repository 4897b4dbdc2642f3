//! Checks the section "What shows it" of `docs/semantics.md`: every test that it names exists, and
//! every procedure and status has a row.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use dafs_types::Status;
use dafs_wire::Procedure;

const DOCUMENT: &str = "docs/semantics.md";
const HEADING: &str = "## What shows it";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// The beginnings of rows for which no test can be named.
const EXCUSES: &[&str] = &["never sent", "not in this version", "all of the above"];

/// Returns the section up to the next one.
fn section() -> String {
    let text = std::fs::read_to_string(root().join(DOCUMENT)).unwrap();
    let (_, section) = text.split_once(HEADING).expect("the section is there");
    section.split("\n## ").next().unwrap().to_owned()
}

/// Returns the texts between backquotes.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Returns the rows of the section's tables as cells.
fn rows(section: &str) -> Vec<Vec<&str>> {
    let rows = section.lines().filter(|line| line.starts_with('|') && !line.starts_with("|---"));
    rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Returns the files in which a module may be defined: for a crate's name followed by modules, or
/// for modules of the system tests.
fn places(modules: &[&str]) -> Vec<PathBuf> {
    let in_folder = |folder: PathBuf, modules: &[&str]| {
        let path = modules.iter().fold(folder, |path, module| path.join(module));
        [path.with_extension("rs"), path.join("mod.rs"), path.join("main.rs")]
    };
    let mut places = in_folder(root().join("tests/tests/system"), modules).to_vec();
    if let [package, modules @ ..] = modules {
        let package = root().join("crates").join(package);
        places.extend(in_folder(package.join("tests"), modules));
        places.extend(in_folder(package.join("src"), modules));
    }
    places
}

/// Returns the names of the tests in a file: functions directly after the attribute.
fn tests_of(text: &str) -> BTreeSet<&str> {
    let mut tests = BTreeSet::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("#[test]") {
            is_test = true;
        } else if let Some(function) = line.strip_prefix("fn ") {
            if is_test {
                tests.insert(function.split('(').next().unwrap_or(function));
            }
            is_test = false;
        }
    }
    tests
}

/// True if there is a test with this name.
fn is_there(test: &str) -> bool {
    let parts: Vec<&str> = test.split("::").collect();
    let Some((name, modules)) = parts.split_last() else { return false };
    places(modules).iter().any(|place| {
        std::fs::read_to_string(place).is_ok_and(|text| tests_of(&text).contains(name))
    })
}

#[test]
fn every_test_that_is_named_is_there() {
    let section = section();
    let named: BTreeSet<&str> =
        section.lines().flat_map(quoted).filter(|text| text.contains("::")).collect();
    assert!(named.len() > 150, "{} tests are named", named.len());
    let missing: Vec<_> = named.into_iter().filter(|test| !is_there(test)).collect();
    assert!(missing.is_empty(), "{DOCUMENT} names tests that are not there: {missing:#?}");
}

#[test]
fn a_wrong_name_would_be_noticed() {
    for there in ["locks::a_lock_can_be_looked_for", "types::random::numbers_stay_in_bounds"] {
        assert!(is_there(there), "{there}");
    }
    for wrong in [
        "locks::a_lock_can_be_found",
        "grace::a_lock_can_be_looked_for",
        // A function that is not a test.
        "locks::served",
        "nowhere::a_lock_can_be_looked_for",
        "a_lock_can_be_looked_for",
    ] {
        assert!(!is_there(wrong), "{wrong}");
    }
}

#[test]
fn every_row_names_what_shows_it_or_says_why_nothing_does() {
    let section = section();
    for row in rows(&section) {
        let is_head = matches!(row[0], "procedure" | "what" | "event" | "status");
        let (what, shown) = row.split_first().unwrap();
        let is_shown = |cell: &&str| quoted(cell).any(is_there);
        let is_excused = |cell: &&str| EXCUSES.iter().any(|excuse| cell.starts_with(excuse));
        let all_are = shown.iter().all(|cell| is_shown(cell) || is_excused(cell));
        assert!(is_head || (all_are && !shown.is_empty()), "{what}: {shown:?}");
    }
}

#[test]
fn no_procedure_is_without_a_row() {
    let section = section();
    let rows = rows(&section);
    for procedure in Procedure::ALL {
        let is_its = |row: &&Vec<&str>| quoted(row[0]).eq([procedure.name()]);
        let row = rows.iter().find(is_its);
        let row = row.unwrap_or_else(|| panic!("no row for {}", procedure.name()));
        assert!(quoted(row[1]).any(is_there), "no test of {}", procedure.name());
    }
}

#[test]
fn no_status_is_without_a_row() {
    let section = section();
    let mut numbers = BTreeMap::new();
    for row in rows(&section) {
        // A name and its number, and nothing else.
        if let Some((_, number)) = row[0].split_once(' ')
            && let Ok(number) = number.parse::<u32>()
        {
            assert_eq!(numbers.insert(number, row[0]), None, "{}", row[0]);
        }
    }
    for status in Status::ALL {
        let row = numbers.remove(&status.number());
        assert!(row.is_some(), "no row for {status:?}, {}", status.number());
    }
    assert!(numbers.is_empty(), "no status has these numbers: {numbers:?}");
}

/// The number of kinds of faults in `SECURITY.md`.
const KIND_COUNT: usize = 22;

#[test]
fn every_kind_of_fault_has_a_test_that_is_there() {
    let text = std::fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let (_, section) = text.split_once("## Kinds of faults").expect("the section is there");
    let rows: Vec<_> = rows(section).into_iter().filter(|row| !row[0].is_empty()).collect();
    assert_eq!(rows.len(), KIND_COUNT);
    for (index, row) in rows.iter().enumerate() {
        assert_eq!(row[0], (index + 1).to_string());
        let named: Vec<&str> = quoted(row[2]).collect();
        assert!(!named.is_empty(), "{}: no test", row[1]);
        let missing: Vec<_> = named.into_iter().filter(|test| !is_there(test)).collect();
        assert!(missing.is_empty(), "{}: these tests are not there: {missing:?}", row[1]);
    }
}
