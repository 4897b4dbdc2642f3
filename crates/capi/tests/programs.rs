//! The examples in C and C++: compiled, linked to the shared library, and run with real servers.

use std::path::PathBuf;
use std::process::Command;

use crate::support::{Served, TRANSPORTS, Transport, compile, crate_path, has, succeed};

/// Examples that need nothing but a server.
const EXAMPLES: &[&str] = &[
    "files.c",
    "async.c",
    "batch.c",
    "locks.c",
    "fence.c",
    "fork.c",
    "threads.c",
    "errors.c",
    "names.c",
    "raii.cpp",
];

/// In a child of fork, what other threads had is lost, which valgrind tells of.
const NOT_UNDER_VALGRIND: &[&str] = &["fork_busy.c"];

struct Program {
    path: PathBuf,
    _place: tempfile::TempDir,
}

fn example(name: &str) -> Program {
    let place = tempfile::tempdir().unwrap();
    let path = compile(&crate_path("examples").join(name), place.path());
    Program { path, _place: place }
}

#[test]
fn examples_run_over_every_transport() {
    for name in EXAMPLES.iter().chain(NOT_UNDER_VALGRIND) {
        let program = example(name);
        for transport in TRANSPORTS {
            let served = Served::start(transport);
            eprintln!("{name} over {transport:?}");
            succeed(Command::new(&program.path).arg(&served.url));
        }
    }
}

#[test]
fn examples_are_clean_under_valgrind() {
    if !has("valgrind") {
        return;
    }
    for name in EXAMPLES {
        let program = example(name);
        for transport in TRANSPORTS {
            let served = Served::start(transport);
            eprintln!("{name} over {transport:?}");
            let mut valgrind = Command::new("valgrind");
            valgrind.args(["--quiet", "--error-exitcode=99", "--trace-children=no"]);
            // Rust keeps a thread's name by a pointer into it, which is a possible leak to valgrind.
            valgrind.args(["--leak-check=full", "--show-leak-kinds=definite,indirect"]);
            valgrind.arg("--errors-for-leak-kinds=definite,indirect");
            let output = succeed(valgrind.arg(&program.path).arg(&served.url));
            assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

/// What a program in C has written is what is there.
#[test]
fn files_are_those_of_the_server() {
    let served = Served::start(Transport::SharedMemory);
    let program = example("raii.cpp");
    succeed(Command::new(&program.path).arg(&served.url));
    assert_eq!(std::fs::read(served.local("from-c++")).unwrap(), b"written from C++");
}
