//! Tests programs under `dafs exec` when something fails: a killed server, a signal, a full disk, a
//! fence.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use crate::place::Place;
use crate::preloaded::{has, library};
use crate::program::dafs;
use rustix::process::{Pid, Signal, kill_process};

/// A program that executes commands and reports the results.
struct Told {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Told {
    /// Returns `None` if there is no compiler.
    fn new(place: &Place, fence_id: &str) -> Option<Self> {
        if !has(&["cc"]) {
            return None;
        }
        let program = place.path("trouble");
        if !program.exists() {
            let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/trouble.c");
            let mut compiler = Command::new("cc");
            compiler.args(["-Wall", "-Wextra", "-o"]).arg(&program).arg(source);
            assert!(compiler.status().unwrap().success());
        }
        let mut child = exec(place, &place.url(""))
            .args(["--".as_ref(), program.as_os_str(), "/here/file".as_ref()])
            .env("DAFS_FENCE_ID", fence_id)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = lines(child.stdout.take().unwrap());
        let mut told = Self { input: child.stdin.take(), child, answers };
        assert_eq!(told.next(), "0");
        Some(told)
    }

    fn begin(&mut self, what: &str) {
        writeln!(self.input.as_mut().unwrap(), "{what}").unwrap();
    }

    fn next(&mut self) -> String {
        self.answers.recv().unwrap()
    }

    fn does(&mut self, what: &str) -> String {
        self.begin(what);
        self.next()
    }

    fn signal(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    /// Returns a result if there is one already. `next` returns it again.
    fn answer(&self) -> Option<String> {
        match self.answers.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => panic!("it has ended"),
        }
    }

    fn ends_well(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

fn lines(output: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            let _ = sender.send(line.unwrap());
        }
    });
    receiver
}

/// Returns a command for `dafs exec` with a server's directory at `/here`.
fn exec(place: &Place, url: &str) -> Command {
    let mut command = dafs();
    command.current_dir(place.path("")).env("DAFS_PRELOAD_LIBRARY", library()).args([
        "exec",
        "--map",
        &format!("/here={url}"),
    ]);
    command
}

#[test]
fn a_call_waits_for_a_server_that_was_killed() {
    let mut place = Place::new();
    let Some(mut told) = Told::new(&place, "") else { return };
    assert_eq!([told.does("write"), told.does("sync"), told.does("lock")], ["8", "0", "0"]);
    for what in ["read", "stat", "lock", "sync", "write"] {
        place.kill_server();
        told.begin(what);
        assert_eq!(told.answer(), None, "nobody is there who could answer");
        place.serve();
        let wanted = if matches!(what, "read" | "write") { "8" } else { "0" };
        assert_eq!(told.next(), wanted, "{what}");
    }
    told.ends_well();
    assert_eq!(std::fs::read(place.path("export/file")).unwrap(), b"12345678");
}

#[test]
fn what_a_server_has_lost_is_written_again_to_the_next() {
    let mut place = Place::new();
    let Some(mut told) = Told::new(&place, "") else { return };
    let content = |place: &Place| std::fs::read(place.path("export/file")).unwrap();
    assert_eq!([told.does("write"), told.does("sync")], ["8", "0"]);
    for end in ["sync", "close"] {
        for (what, wanted) in [("other", b"abcdefgh"), ("write", b"12345678")] {
            assert_eq!(told.does(what), "8");
            place.kill_server();
            place.serve();
            if what == "write" || end == "sync" {
                assert_eq!(told.does(end), "0", "{what}");
                assert_eq!(&content(&place), wanted, "{end}");
            }
        }
    }
    told.ends_well();
    // A program that ends without closing a file has still written the data.
    let Some(mut told) = Told::new(&place, "") else { return };
    assert_eq!(told.does("other"), "8");
    place.kill_server();
    place.serve();
    told.ends_well();
    assert_eq!(&content(&place), b"abcdefgh");
}

#[test]
fn no_signal_ends_a_call_that_waits_for_a_server() {
    let mut place = Place::new();
    let Some(mut told) = Told::new(&place, "") else { return };
    assert_eq!([told.does("write"), told.does("sync"), told.does("handle")], ["8", "0", "0"]);
    for (what, wanted) in [("read", "8"), ("stat", "0"), ("write", "8"), ("sync", "0")] {
        place.kill_server();
        told.begin(what);
        for _ in 0..100 {
            told.signal();
            std::thread::yield_now();
            assert_eq!(told.answer(), None, "{what}");
        }
        place.serve();
        told.signal();
        assert_eq!(told.next(), wanted, "{what}");
        assert_eq!(told.does("read"), "8", "behind {what}");
        assert_eq!([told.does("write"), told.does("sync")], ["8", "0"]);
    }
    told.ends_well();
}

#[test]
fn no_signal_makes_a_call_fail_while_servers_come_and_go() {
    if !has(&["cc"]) {
        return;
    }
    let mut place = Place::new();
    let program = place.path("signals");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/signals.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Wextra", "-o"]).arg(&program).arg(source);
    assert!(compiler.status().unwrap().success());
    let mut child = exec(&place, &place.url(""))
        .args(["--".as_ref(), program.as_os_str(), "/here".as_ref()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let answers = lines(child.stdout.take().unwrap());
    let rounds = |count: usize| {
        for line in answers.iter().take(count) {
            assert_eq!(line, "round");
        }
    };
    for _ in 0..10 {
        rounds(3);
        place.kill_server();
        place.serve();
    }
    rounds(3);
    drop(child.stdin.take());
    rounds(usize::MAX);
    assert!(child.wait().unwrap().success());
}

#[test]
fn who_handles_no_signal_is_ended_by_one() {
    let mut place = Place::new();
    let Some(mut told) = Told::new(&place, "") else { return };
    assert_eq!(told.does("write"), "8");
    place.kill_server();
    told.begin("read");
    told.signal();
    let status = told.child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(2));
    // A program that exits while the server is down does not wait either.
    place.serve();
    let Some(mut told) = Told::new(&place, "") else { return };
    assert_eq!(told.does("lock"), "0");
    place.kill_server();
    told.ends_well();
}

#[test]
fn who_is_fenced_is_refused_until_the_fence_is_lifted() {
    let place = Place::new();
    let Some(mut told) = Told::new(&place, "one") else { return };
    assert_eq!([told.does("write"), told.does("sync")], ["8", "0"]);
    let fence = |verb: &str, more: &[&str]| {
        let output = dafs().args(["fence", verb, &place.url("file")]).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    fence("set", &["two"]);
    for what in ["read", "write", "stat"] {
        assert_eq!(told.does(what), "EACCES", "{what}");
    }
    fence("clear", &[]);
    for what in ["read", "write"] {
        assert_eq!(told.does(what), "8", "{what}");
    }
    assert_eq!(told.does("stat"), "0");
    told.ends_well();
}

#[test]
fn a_full_disk_is_told_and_is_of_use_again_when_there_is_room() {
    if !has(&["sh", "dd", "cp", "rm"]) {
        return;
    }
    let mut place = Place::new();
    place.kill_server();
    place.serve_memory("4M");
    std::fs::write(place.path("big"), vec![1; 8 << 20]).unwrap();
    let run = |script: &str| {
        let output = exec(&place, &place.url("")).args(["--", "sh", "-c", script]).output();
        let output = output.unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for script in [
        "LC_ALL=C dd if=/dev/zero of=/here/big bs=64k count=128",
        "LC_ALL=C cp big /here/big",
        "cat big > /here/big",
    ] {
        let (is_well, errors) = run(script);
        assert!(!is_well && errors.contains("No space left on device"), "{script}: {errors}");
        let (is_well, errors) = run("rm /here/big && echo text > /here/small && rm /here/small");
        assert!(is_well, "{errors}");
    }
}

#[test]
fn a_write_that_comes_back_short_on_a_full_disk_is_told_by_the_next_call() {
    const WHOLE: &str = "12582912";
    for end in ["sync", "write", "close"] {
        let Some(place) = Place::small() else { return };
        let Some(mut told) = Told::new(&place, "") else { return };
        let filled = told.does("fill");
        if filled != "ENOSPC" {
            let taken: u64 = filled.parse().unwrap();
            let mut next = told.does(end);
            if next == "8" {
                // The server had not noticed yet.
                next = told.does("sync");
            }
            let there = std::fs::metadata(place.path("export/file")).unwrap().len();
            assert!(next == "ENOSPC", "{filled} were taken, {end} said {next}, {there} are there");
            assert!(filled != WHOLE || taken > there);
        }
        told.ends_well();
    }
    let Some(place) = Place::small() else { return };
    let Some(mut told) = Told::new(&place, "") else { return };
    let (first, second) = (told.does("append"), told.next());
    assert!(first == "ENOSPC" || second == "ENOSPC", "{first} {second}");
    told.ends_well();
}

#[test]
fn a_full_disk_is_told_to_programs_as_such() {
    if !has(&["sh", "dd", "cp", "cat"]) {
        return;
    }
    let Some(place) = Place::small() else { return };
    std::fs::write(place.path("big"), vec![1; 20 << 20]).unwrap();
    for script in [
        "dd if=/dev/zero of=/here/big bs=64k count=320",
        "dd if=/dev/zero of=/here/big bs=1M count=20 conv=fsync",
        "cp big /here/big",
        "cat big > /here/big",
    ] {
        let mut run = exec(&place, &place.url(""));
        let output = run.args(["--", "sh", "-c", script]).env("LC_ALL", "C").output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{script}");
        assert!(errors.contains("No space left on device"), "{script}: {errors}");
        std::fs::remove_file(place.path("export/big")).unwrap();
    }
}

#[test]
fn a_program_that_starts_while_nobody_is_there_is_told() {
    if !has(&["cat"]) {
        return;
    }
    let mut place = Place::new();
    std::fs::write(place.path("export/file"), "text").unwrap();
    let run = |place: &Place| {
        let cat = ["--", "cat", "/here/file"];
        exec(place, &place.url("")).args(cat).env("LC_ALL", "C").output().unwrap()
    };
    place.kill_server();
    let output = run(&place);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(errors.contains("cannot connect") && errors.contains("Input/output error"), "{errors}");
    place.serve();
    assert_eq!(run(&place).stdout, b"text");
    assert!(Path::new(&place.path("export/file")).exists());
}

#[test]
fn who_has_ended_is_not_waited_for_after_a_restart() {
    if !has(&["cp"]) {
        return;
    }
    let mut place = Place::new();
    let copied = exec(&place, &place.url(""))
        .args(["--", "cp", "/proc/self/stat", "/here/file"])
        .output()
        .unwrap();
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    place.kill_server();
    place.serve();
    let socket = place.path("socket");
    let listed = dafs().args(["sessions", "--json"]).arg(&socket).output().unwrap();
    let found: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(found["in_grace"], serde_json::Value::Bool(false), "{found}");
}
