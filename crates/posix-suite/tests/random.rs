//! Runs the random tests on a local directory, which must show no difference.

use std::process::{Command, Output};

fn run(program: &str, arguments: &[&str]) -> (Output, String) {
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, text)
}

#[test]
fn a_local_file_is_as_it_must_be() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    let arguments = [file.to_str().unwrap(), "--ops", "5000", "--seed", "7"];
    let (output, text) = run(env!("CARGO_BIN_EXE_posix-fsx"), &arguments);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("5000 calls") && text.contains("no difference"), "{text}");
    assert!(!file.exists());
}

#[test]
fn local_trees_are_as_they_must_be() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().to_str().unwrap();
    let arguments = [at, "--processes", "3", "--ops", "3000", "--seed", "7"];
    let (output, text) = run(env!("CARGO_BIN_EXE_posix-stress"), &arguments);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("18000 calls of 2 x 3 processes"), "{text}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn what_is_not_there_is_told() {
    let (output, text) = run(env!("CARGO_BIN_EXE_posix-fsx"), &["/nowhere/file", "--ops", "1"]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("ENOENT"), "{text}");
}
