//! Runs the table on a local directory, which must pass, and with a wrong row, which must fail.

use std::path::Path;
use std::process::{Command, Output};

use dafs_posix_suite::script;
use dafs_posix_suite::suite::{Suite, Verdict};

const PROGRAM: &str = env!("CARGO_BIN_EXE_posix-suite");

fn run(directory: &Path, arguments: &[&str]) -> (Output, String) {
    let output = Command::new(PROGRAM).arg(directory).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, text)
}

#[test]
fn a_local_file_system_passes() {
    let directory = tempfile::tempdir().unwrap();
    let (output, text) = run(directory.path(), &[]);
    assert!(output.status.success(), "{text}");
    assert!(text.contains(" 0 failed"), "{text}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn a_wrong_row_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let mut suite = Suite::new(Path::new(PROGRAM), directory.path()).unwrap();
    let mut verdict = |text: &str| suite.run(&script::read("wrong", text).unwrap()[0]).unwrap();
    for (text, told) in [
        ("case a\nEISDIR mkdir d 0755", "line 2: mkdir d 0755: expected EISDIR, got success"),
        ("case a\nok rmdir d", "line 2: rmdir d: expected success, got ENOENT"),
        (
            "case a\n\nok mkdir d 0700\n=0755|ENOENT stat d mode",
            "line 4: stat d mode: expected \"0755\" or ENOENT, got \"0700\"",
        ),
        ("case a\nok close f", "line 2: close f: expected success, got misuse f is not open"),
    ] {
        assert_eq!(verdict(text), Verdict::Failed(told.into()));
    }
    assert_eq!(verdict("case a\nok mkdir d 0755"), Verdict::Passed);
}

#[test]
fn differences_that_are_known_are_none_until_they_are_gone() {
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("known");
    let only = "mkdir/makes an empty directory";
    std::fs::write(&list, format!("{only}  it is said to be\n")).unwrap();
    let arguments = ["--only", only, "--known", list.to_str().unwrap(), "--tap"];
    let (output, text) = run(directory.path(), &arguments);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("not ok 1 - mkdir/makes an empty directory"), "{text}");
}
