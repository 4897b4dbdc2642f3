//! Tests unusual operations on descriptors with a C program, and checks the report.

use std::process::Command;

use crate::common::{Place, has, library, printed};

#[test]
fn a_program_finds_the_kernels_ways() {
    if !has(&["cc"]) {
        return;
    }
    let place = Place::new();
    let program = place.beside("corners");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corners.c");
    let built =
        Command::new("cc").args(["-Wall", "-O1", "-o"]).arg(&program).arg(source).output().unwrap();
    printed(&built);
    let output = place.program(&program).output().unwrap();
    assert_eq!(printed(&output), "all is well\n");
}

#[test]
fn a_report_says_what_was_served_and_what_was_not() {
    if !has(&["cat", "ln"]) {
        return;
    }
    let place = Place::new();
    std::fs::write(place.local("file"), "text").unwrap();
    let report = place.beside("report");
    for arguments in [["cat", "/dafs/file"], ["cat", "/dafs/none"]] {
        let mut program = place.program(arguments[0]);
        program.arg(arguments[1]).env("DAFS_PRELOAD_REPORT", &report).output().unwrap();
    }
    let told = std::fs::read_to_string(&report).unwrap();
    assert_eq!(told.matches("dafs: cat, process").count(), 2, "{told}");
    assert!(told.contains("open") && told.contains("read"), "{told}");
    assert!(told.contains("not served") && told.contains("error number"), "{told}");
}

#[test]
fn nothing_connects_before_it_is_needed() {
    // There is no server at all.
    let mut program = Command::new("true");
    program.env("LD_PRELOAD", library()).env("DAFS_PRELOAD_MAP", "/dafs=dafs+shm:///none!/");
    assert_eq!(printed(&program.output().unwrap()), "");
    let mut program = Command::new("cat");
    program.env("LD_PRELOAD", library()).env("DAFS_PRELOAD_MAP", "/dafs=dafs+shm:///none!/");
    let output = program.arg("/dafs/file").output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("dafs: /dafs: cannot connect"), "{told}");
    assert!(told.contains("Input/output error"), "{told}");
}
