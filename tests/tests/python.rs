//! Builds, installs and tests the wheel of the Python package with `crates/python/run`, if Python
//! is available.

use std::path::Path;
use std::process::{Command, Stdio};

/// The exit status of the script if Python or its packages are missing.
const SKIPPED: i32 = 77;

#[test]
fn the_python_package_passes_its_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let script = root.join("crates/python/run");
    let mut command = Command::new(script);
    command.arg("core").stdin(Stdio::null());
    // Cargo's variables for this test must not affect the builds that it starts.
    for (name, _) in std::env::vars() {
        let is_cargos = name.starts_with("CARGO_") && name != "CARGO_TARGET_DIR";
        if is_cargos && name != "CARGO_HOME" || name == "RUSTFLAGS" {
            command.env_remove(name);
        }
    }
    let output = command.output().unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    match output.status.code() {
        Some(0) => {}
        Some(SKIPPED) => dafs_tests::Required::Faces.skip(said.trim()),
        _ => panic!("{said}"),
    }
}
