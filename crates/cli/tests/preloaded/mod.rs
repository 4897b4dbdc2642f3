//! The preload library, and the programs to run with it.

use std::path::{Path, PathBuf};

use dafs_tests::Required;

/// Returns the library that was built with the tests.
pub(crate) fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let built = own.parent().and_then(Path::parent).unwrap().join("deps/libdafs_preload.so");
    assert!(built.is_file(), "{} was not built", built.display());
    built
}

/// True if the programs are available. Otherwise says that the test is skipped.
pub(crate) fn has(programs: &[&str]) -> bool {
    Required::Faces.has_programs(programs)
}
