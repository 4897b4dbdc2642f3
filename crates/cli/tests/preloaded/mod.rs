//! The preload library, and the programs to run with it.

use std::path::{Path, PathBuf};

/// Returns the library that was built with the tests.
pub(crate) fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let built = own.parent().and_then(Path::parent).unwrap().join("deps/libdafs_preload.so");
    assert!(built.is_file(), "{} was not built", built.display());
    built
}

/// True if the programs are available. Otherwise prints that the test is skipped.
pub(crate) fn has(programs: &[&str]) -> bool {
    let is_there = |name: &&str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
    };
    let missing: Vec<_> = programs.iter().filter(|name| !is_there(name)).collect();
    if missing.is_empty() {
        return true;
    }
    let is_required = std::env::var("DAFS_REQUIRE_FACES").is_ok_and(|value| value == "1");
    assert!(!is_required, "these programs are missing: {missing:?}");
    eprintln!("\n*** SKIPPED: these programs are missing: {missing:?}\n");
    false
}
