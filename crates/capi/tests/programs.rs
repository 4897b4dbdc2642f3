//! Compiles the examples in C and C++, links them to the shared library, and runs them with real
//! servers.

use std::path::PathBuf;
use std::process::Command;

use crate::support::{Served, TRANSPORTS, Transport, compile, crate_path, has, succeed};

/// The examples that need only a server.
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

/// A child of fork leaks what belonged to other threads, which valgrind reports.
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
            // Rust refers to a thread's name by an interior pointer, which valgrind regards as a
            // possible leak.
            valgrind.args(["--leak-check=full", "--show-leak-kinds=definite,indirect"]);
            valgrind.arg("--errors-for-leak-kinds=definite,indirect");
            let output = succeed(valgrind.arg(&program.path).arg(&served.url));
            assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

/// The files that a C program has written are on the server.
#[test]
fn files_are_those_of_the_server() {
    let served = Served::start(Transport::SharedMemory);
    let program = example("raii.cpp");
    succeed(Command::new(&program.path).arg(&served.url));
    assert_eq!(std::fs::read(served.local("from-c++")).unwrap(), b"written from C++");
}
