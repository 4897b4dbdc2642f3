//! Failures outside of a program: servers that restart, refused identities, signals.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::support::{Served, TRANSPORTS, Transport, compile, crate_path, succeed};

/// An example program that announces each step and waits before it.
struct Staged {
    child: Child,
    said: BufReader<ChildStdout>,
    _place: tempfile::TempDir,
}

impl Staged {
    fn start(name: &str, url: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let program = compile(&crate_path("examples").join(name), place.path());
        let mut command = Command::new(program);
        command.arg(url).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said, _place: place }
    }

    fn expect(&mut self, what: &str) {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), what);
    }

    fn go_on(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn end(mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn a_server_that_goes_is_told_of_and_one_that_comes_back_is_used() {
    for transport in TRANSPORTS {
        eprintln!("over {transport:?}");
        let mut served = Served::start(transport);
        let mut outage = Staged::start("outage.c", &served.url);
        outage.expect("stop the server");
        served.stop();
        outage.go_on();
        outage.expect("start it again");
        served.run();
        outage.go_on();
        outage.end();
        assert_eq!(std::fs::read(served.local("log")).unwrap(), b"beforeafter");
    }
}

#[test]
fn a_full_disk_is_told_of_and_room_again_is_used() {
    for transport in TRANSPORTS {
        let served = Served::of_memory(transport, 4 << 20);
        let place = tempfile::tempdir().unwrap();
        let program = compile(&crate_path("examples/full.c"), place.path());
        succeed(Command::new(program).arg(&served.url));
    }
}

#[test]
fn a_callback_proves_who_a_program_is() {
    let served = Served::start(Transport::Tcp);
    let place = tempfile::tempdir().unwrap();
    let program = compile(&crate_path("examples/auth.c"), place.path());
    let url = served.url.replace("dafs://", "dafs://ann@");
    succeed(Command::new(program).arg(url));
}

/// The handler of a signal runs, and the wait continues.
#[test]
fn a_signal_does_not_end_a_wait() {
    let served = Served::start(Transport::SharedMemory);
    let mut waiting = Staged::start("signals.c", &served.url);
    waiting.expect("waiting");
    let pid = rustix::process::Pid::from_raw(waiting.child.id().cast_signed()).unwrap();
    for _ in 0..3 {
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        waiting.expect("interrupted");
    }
    waiting.go_on();
    waiting.end();
}
