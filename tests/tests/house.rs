//! Checks rules of this repository: which crates may import each other, where `unsafe` is allowed,
//! and how long a file may be. `ARCHITECTURE.md` gives the reasons.

mod corpora;
mod knots;
mod named;
mod prose;
mod shown;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The other crates that each crate may import, except in tests and examples. Imports only lead
/// downwards: interfaces, drivers, state machines, foundations, formats, base.
const IMPORTS: &[(&str, &[&str])] = &[
    ("dafs-base", &[]),
    ("dafs-types", &[]),
    ("dafs-memory", &[]),
    ("dafs-iwarp", &[]),
    ("dafs-gss", &[]),
    ("dafs-wire", &["dafs-types"]),
    ("dafs-nfs-wire", &[]),
    ("dafs-ops", &["dafs-types"]),
    ("dafs-dat", &["dafs-memory", "dafs-iwarp"]),
    ("dafs-store", &["dafs-types", "dafs-memory", "dafs-ops"]),
    ("dafs-journal", &["dafs-types"]),
    ("dafs-filer", &["dafs-base", "dafs-types", "dafs-ops"]),
    ("dafs-sessions", &["dafs-base", "dafs-types", "dafs-wire", "dafs-filer"]),
    ("dafs-nfs-state", &["dafs-base", "dafs-types"]),
    ("dafs-rpcrdma", &["dafs-types", "dafs-nfs-wire"]),
    // A client for tests and benchmarks.
    ("dafs-rpcrdma-client", &["dafs-memory", "dafs-nfs-wire", "dafs-dat", "dafs-rpcrdma"]),
    (
        "dafs-files",
        &["dafs-types", "dafs-memory", "dafs-ops", "dafs-filer", "dafs-store", "dafs-journal"],
    ),
    (
        "dafs-server",
        &[
            "dafs-files",
            "dafs-base",
            "dafs-types",
            "dafs-memory",
            "dafs-wire",
            "dafs-nfs-wire",
            "dafs-rpcrdma",
            "dafs-nfs-state",
            "dafs-ops",
            "dafs-dat",
            "dafs-gss",
            "dafs-filer",
            "dafs-sessions",
            "dafs-store",
            "dafs-journal",
        ],
    ),
    (
        "dafs-client",
        &["dafs-base", "dafs-types", "dafs-memory", "dafs-wire", "dafs-dat", "dafs-gss"],
    ),
    ("dafs-share", &["dafs-base", "dafs-client"]),
    ("dafs-capi", &["dafs-client", "dafs-share"]),
    ("dafs-posix", &["dafs-client"]),
    ("dafs-extmem", &["dafs-memory", "dafs-client"]),
    ("dafs-python", &["dafs-client", "dafs-share"]),
    ("dafs-object-store", &["dafs-client"]),
    (
        "dafs-fuse",
        &["dafs-base", "dafs-types", "dafs-memory", "dafs-wire", "dafs-client", "dafs-posix"],
    ),
    ("dafs-preload", &["dafs-base", "dafs-types", "dafs-posix", "dafs-client"]),
    (
        "dafs-bench",
        &[
            "dafs-extmem",
            "dafs-types",
            "dafs-memory",
            "dafs-wire",
            "dafs-dat",
            "dafs-store",
            "dafs-filer",
            "dafs-sessions",
            "dafs-journal",
            "dafs-server",
            "dafs-client",
            "dafs-peers",
            "dafs-rpcrdma-client",
        ],
    ),
    ("dafs-watch", &["dafs-types", "dafs-wire", "dafs-filer", "dafs-sessions", "dafs-server"]),
    (
        "dafs-sim",
        &[
            "dafs-types",
            "dafs-memory",
            "dafs-memory",
            "dafs-wire",
            "dafs-nfs-wire",
            "dafs-dat",
            "dafs-store",
            "dafs-filer",
            "dafs-sessions",
            "dafs-journal",
            "dafs-server",
            "dafs-client",
        ],
    ),
    (
        "dafs-cli",
        &[
            "dafs-types",
            "dafs-memory",
            "dafs-wire",
            "dafs-nfs-wire",
            "dafs-dat",
            "dafs-gss",
            "dafs-filer",
            "dafs-sessions",
            "dafs-store",
            "dafs-journal",
            "dafs-server",
            "dafs-client",
            "dafs-bench",
            "dafs-extmem",
            "dafs-fuse",
            "dafs-watch",
            // The NFS clients of `dafs recover-test --nfs`, with encodings of their own.
            "dafs-nfs-suite",
        ],
    ),
    // Servers of other projects, for benchmarks and tests.
    ("dafs-peers", &["dafs-memory"]),
    ("dafs-posix-suite", &[]),
    ("dafs-nfs-suite", &[]),
    ("dafs-tests", &[]),
];

/// The crates that may contain `unsafe`.
const UNSAFE: &[&str] =
    &["memory", "dat", "gss", "share", "capi", "python", "preload", "posix-suite", "peers"];

/// The maximum number of code lines in a file before its tests.
const LINES_MAX: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

#[test]
fn imports_point_down() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let allowed: BTreeMap<&str, &[&str]> = IMPORTS.iter().copied().collect();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let allowed =
            allowed.get(name).unwrap_or_else(|| panic!("{name} is not in the table of imports"));
        for dependency in package["dependencies"].as_array().unwrap() {
            let import = dependency["name"].as_str().unwrap();
            let ships = dependency["kind"].is_null();
            if ships && import.starts_with("dafs-") {
                assert!(allowed.contains(&import), "{name} must not import {import}");
            }
        }
    }
}

/// Returns the Rust files in one folder of every crate.
fn files_in(folder: &str, at_least: usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for package in std::fs::read_dir(root().join("crates")).unwrap() {
        walk(&package.unwrap().path().join(folder), &mut found);
    }
    assert!(found.len() > at_least, "the files of {folder} were not found");
    found
}

fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
    // Some crates have no tests of their own.
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn crate_of(path: &Path) -> String {
    let inside = path.strip_prefix(root().join("crates")).unwrap();
    inside.components().next().unwrap().as_os_str().to_string_lossy().into_owned()
}

#[test]
fn unsafe_lives_where_it_may() {
    for path in files_in("src", 50) {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = crate_of(&path);
        if UNSAFE.contains(&name.as_str()) {
            continue;
        }
        let is_root = path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
        if is_root {
            let forbids = text.contains("#![forbid(unsafe_code)]");
            assert!(forbids, "{} must forbid unsafe code", path.display());
        }
    }
}

#[test]
fn files_are_short_and_open_with_a_sentence() {
    for path in files_in("src", 50) {
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let lines = code.lines().count();
        assert!(lines <= LINES_MAX, "{} has {lines} lines", path.display());
        assert!(text.starts_with("//!"), "{} opens without a module comment", path.display());
        for (index, line) in text.lines().enumerate() {
            let width = line.chars().count();
            assert!(width <= 100, "{}:{} is {width} wide", path.display(), index + 1);
        }
    }
}

/// A module that a macro declares is compiled but never formatted.
#[test]
fn every_module_is_declared_where_rustfmt_sees_it() {
    let mut format = Command::new(env!("CARGO"));
    format.args(["fmt", "--all", "--", "--check", "--verbose"]).current_dir(root());
    let output = format.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let seen: Vec<_> = said.lines().filter_map(|line| line.strip_prefix("Formatting ")).collect();
    if seen.is_empty() {
        // A compiler may be installed without it.
        return dafs_tests::Required::Faces.skip("rustfmt is missing");
    }
    for path in files_in("src", 50) {
        // Templates are not modules, and build scripts and programs are found by their location.
        let is_seen = seen.iter().any(|seen| Path::new(seen) == path);
        assert!(is_seen, "{} is never formatted: declare it by a `mod` line", path.display());
    }
}

/// If a crate says `test = false`, the tests among its sources are never compiled.
#[test]
fn tests_among_the_sources_are_run() {
    for path in files_in("src", 50) {
        if !std::fs::read_to_string(&path).unwrap().contains("#[cfg(test)]") {
            continue;
        }
        let manifest = root().join("crates").join(crate_of(&path)).join("Cargo.toml");
        let leaves_out = std::fs::read_to_string(&manifest).unwrap().contains("\ntest = false");
        assert!(!leaves_out, "{} is never compiled: see {}", path.display(), manifest.display());
    }
}

/// The result of `guard::with` in the preload library is `Send`, so no reference-counted pointer of
/// the state leaves the lock. A thread-local variable could bypass that.
#[test]
fn the_preload_library_keeps_nothing_of_its_state_with_a_thread() {
    let guard = std::fs::read_to_string(root().join("crates/preload/src/guard.rs")).unwrap();
    assert!(guard.contains("pub(crate) fn with<T: Send>("), "`guard::with` hands out anything");
    let mut files = Vec::new();
    walk(&root().join("crates/preload/src"), &mut files);
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let own = text.matches("thread_local!").count();
        let allowed = usize::from(path.ends_with("guard.rs"));
        assert!(own <= allowed, "{} has a variable of each thread's", path.display());
    }
}

#[test]
fn no_test_sleeps() {
    // Compose the text, so that this file does not match it.
    let word = ["thread", "sleep("].join("::");
    let mut tests = files_in("tests", 20);
    walk(&root().join("tests/tests"), &mut tests);
    for path in tests {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&word), "{} waits by the clock", path.display());
    }
}

#[test]
fn a_skipped_test_is_counted() {
    let own_ways =
        ["(\"DAFS_REQUIRE", "println!(\"skipped", "println!(\"SKIP", "println!(\"\\n*** S"];
    let mut files = files_in("tests", 20);
    files.append(&mut files_in("src", 50));
    walk(&root().join("tests/tests/system"), &mut files);
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap().replace('\n', " ");
        let found = own_ways.iter().find(|way| text.contains(**way));
        assert!(found.is_none(), "{}: {found:?}; use dafs_tests::skip", path.display());
    }
}

/// An error states its cause once: in its own text or through `source()`.
#[test]
fn errors_leave_their_source_to_whoever_joins_the_chain() {
    for path in files_in("src", 50) {
        let text = std::fs::read_to_string(&path).unwrap();
        if !text.contains("thiserror::Error") {
            continue;
        }
        // Each part begins with the display text of one error, followed by its fields.
        for part in text.split("#[error(").skip(1) {
            let (shown, rest) = part.split_once(")]").unwrap();
            let fields = rest.split('}').next().unwrap();
            let has_source = fields.contains("source:") || fields.contains("#[from]");
            let shows_it = shown.contains("{source") || shown.contains("{0");
            assert!(!has_source || !shows_it, "{}: #[error({shown})]", path.display());
            let hides_one = fields.contains("#[source]");
            assert!(!hides_one, "{}: name the field `source`", path.display());
        }
    }
}

#[test]
fn nothing_is_left_to_do_by_panicking() {
    for path in files_in("src", 50) {
        let text = std::fs::read_to_string(&path).unwrap();
        for word in ["todo!(", "unimplemented!("] {
            assert!(!text.contains(word), "{} contains {word})", path.display());
        }
    }
}
