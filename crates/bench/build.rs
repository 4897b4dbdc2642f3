//! Says in reports which commit they measured.

use std::process::Command;

fn main() {
    let output = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let commit = output.ok().filter(|output| output.status.success());
    let commit = commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    println!("cargo::rustc-env=DAFS_COMMIT={}", commit.unwrap_or_default());
    // Each commit and each change of branch leaves a line there.
    println!("cargo::rerun-if-changed=../../.git/logs/HEAD");
    println!("cargo::rerun-if-changed=src");
}
