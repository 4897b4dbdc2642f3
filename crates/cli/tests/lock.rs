//! Tests `dafs lock`, and the effects of a writer that is killed under an auto-recovery lock, with
//! separate processes.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::blocks::{BLOCK_BYTES, old_block};
use crate::place::Place;
use crate::program::{await_that, dafs};

impl Place {
    fn lock(&self, options: &[&str], name: &str, command: &[&str]) -> Command {
        let mut lock = dafs();
        lock.arg("lock").args(options).arg(self.url(name)).arg("--").args(command);
        lock
    }

    fn ran(&self, options: &[&str], name: &str, command: &[&str]) -> Output {
        self.lock(options, name, command).output().unwrap()
    }

    fn locks(&self) -> Vec<Value> {
        self.told_of("locks")
    }

    fn told_of(&self, table: &str) -> Vec<Value> {
        let told = dafs().args(["locks", "--json"]).arg(self.path("socket")).output().unwrap();
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        let told: Value = serde_json::from_slice(&told.stdout).unwrap();
        told[table].as_array().unwrap().clone()
    }

    /// Returns the bytes of undo data on the disk. With reflinks, all of it exists after the first
    /// change.
    fn undo_bytes(&self) -> u64 {
        fn sum(directory: &Path) -> u64 {
            let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
            entries
                .map(|entry| match entry.metadata() {
                    Ok(data) if data.is_dir() => sum(&entry.path()),
                    Ok(data) => {
                        let name = entry.file_name();
                        let name = name.to_string_lossy();
                        let is_undo = name.starts_with("undo-") || name.starts_with("clone-");
                        if is_undo { data.len() } else { 0 }
                    }
                    Err(_) => 0,
                })
                .sum()
        }
        sum(&self.path("state"))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_command_runs_under_the_lock_and_ends_it() {
    let place = Place::new();
    let holder = place.lock(&[], "file", &["cat"]).stdin(Stdio::piped()).spawn();
    let mut holder = holder.unwrap();
    await_that("the lock is held", || place.locks().len() == 1);
    let held = &place.locks()[0];
    assert_eq!(held["mode"], "exclusive", "{held}");
    assert!(held["file"].as_str().unwrap().ends_with("/export/file"), "{held}");
    let denied = place.ran(&["--nonblock"], "file", &["true"]);
    assert_eq!(denied.status.code(), Some(1));
    assert!(text(&denied.stderr).contains("another client"), "{}", text(&denied.stderr));
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    // The exit status is that of the command.
    assert_eq!(place.ran(&["--nonblock"], "file", &["sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(place.locks().len(), 0);
    let missing = place.ran(&[], "file", &["/no/such/command"]);
    assert!(text(&missing.stderr).contains("starting /no/such/command"));
}

#[test]
fn a_command_that_fails_changes_nothing_and_one_that_does_not_changes_all() {
    let place = Place::new();
    let local = place.path("export").join("file");
    for options in [&["--write"][..], &["--autorecover", "--write"], &["--persistent", "--write"]] {
        std::fs::write(&local, "the old content").unwrap();
        let failed = place.ran(options, "file", &["sh", "-c", "echo half; exit 3"]);
        let said = text(&failed.stderr);
        assert_eq!(failed.status.code(), Some(3), "{options:?}: {said}");
        assert!(said.contains("is unchanged"), "{options:?}: {said}");
        assert_eq!(std::fs::read_to_string(&local).unwrap(), "the old content", "{options:?}");
        if options.contains(&"--persistent") {
            // The lock was left to break.
            await_that("its lease is over", || place.locks()[0]["condition"] == "breakable");
            let told = place.ran(&["--nonblock"], "file", &["true"]);
            assert!(text(&told.stderr).contains("--repair"), "{}", text(&told.stderr));
            assert!(place.ran(&["--repair"], "file", &["true"]).status.success());
        }
        let done = place.ran(options, "file", &["echo", "new"]);
        assert!(done.status.success(), "{options:?}: {}", text(&done.stderr));
        assert_eq!(std::fs::read_to_string(&local).unwrap(), "new\n", "{options:?}");
    }
}

/// More output than is kept in memory, so it goes to a file.
const MUCH: &str = "head -c 20000000 /dev/zero";

#[test]
fn what_a_command_prints_reaches_the_file_when_the_command_has_succeeded_and_not_before() {
    let place = Place::new();
    let local = place.path("export").join("file");
    let old = || std::fs::read_to_string(&local).is_ok_and(|content| content == "the old content");
    for end in ["succeeds", "fails", "is killed", "dies with its lock"] {
        std::fs::write(&local, "the old content").unwrap();
        // The script prints its process id when its output is complete.
        let script = format!("{MUCH}; exec >&-; echo $$ >&2; read -r code; exit $code");
        let mut lock = place.lock(&["--write"], "file", &["sh", "-c", &script]);
        let mut lock = lock.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(lock.stderr.take().unwrap());
        let command = Pid::from_raw(line(&mut said).parse().unwrap()).unwrap();
        assert!(old(), "{end}: the command has not ended");
        let stdin = lock.stdin.as_mut().unwrap();
        match end {
            "succeeds" => stdin.write_all(b"0\n").unwrap(),
            "fails" => stdin.write_all(b"5\n").unwrap(),
            "is killed" => kill_process(command, Signal::KILL).unwrap(),
            _ => lock.kill().unwrap(),
        }
        let code = lock.wait().unwrap().code();
        said.read_to_end(&mut Vec::new()).unwrap();
        match end {
            "succeeds" => {
                assert_eq!(code, Some(0));
                let content = std::fs::read(&local).unwrap();
                assert!(content.len() == 20_000_000 && content.iter().all(|byte| *byte == 0));
            }
            _ => assert!(old() && code != Some(0), "{end}: {code:?}"),
        }
        await_that("the lock is gone", || place.locks().is_empty());
    }
}

#[test]
fn a_signal_does_not_end_the_replacing_of_a_file_and_a_second_one_does() {
    let mut place = Place::new();
    place.kill_server();
    // The lock must survive a pause of the server.
    place.lease = 10;
    place.serve();
    let local = place.path("export").join("file");
    let server = Pid::from_raw(place.server_id().cast_signed()).unwrap();
    for (signals, code, content) in [(1, 0, "new\n"), (2, 143, "the old content")] {
        std::fs::write(&local, "the old content").unwrap();
        let script = "echo new; exec >&-; echo $$ >&2; read -r _";
        let mut lock = place.lock(&["--write"], "file", &["sh", "-c", script]);
        let mut lock = lock.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(lock.stderr.take().unwrap());
        let command = format!("/proc/{}", line(&mut said));
        // Nothing is replaced while the server is stopped.
        kill_process(server, Signal::STOP).unwrap();
        lock.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        await_that("the command was waited for", || !Path::new(&command).exists());
        kill_process(Pid::from_child(&lock), Signal::TERM).unwrap();
        let told = line(&mut said);
        assert!(told.contains("is being replaced"), "{told}");
        if signals == 2 {
            kill_process(Pid::from_child(&lock), Signal::TERM).unwrap();
            lock.wait().unwrap();
        }
        kill_process(server, Signal::CONT).unwrap();
        assert_eq!(lock.wait().unwrap().code(), Some(code));
        assert_eq!(std::fs::read_to_string(&local).unwrap(), content);
        await_that("the lock is gone", || place.locks().is_empty());
    }
}

#[test]
fn a_file_that_is_replaced_by_less_has_nothing_of_the_old_content() {
    let place = Place::new();
    let local = place.path("export").join("file");
    let much = place.ran(&["--write"], "file", &["sh", "-c", MUCH]);
    assert!(much.status.success(), "{}", text(&much.stderr));
    assert_eq!(local.metadata().unwrap().len(), 20_000_000);
    assert!(place.ran(&["--write"], "file", &["echo", "little"]).status.success());
    assert_eq!(std::fs::read_to_string(&local).unwrap(), "little\n");
    assert!(place.ran(&["--write"], "file", &["true"]).status.success());
    assert_eq!(local.metadata().unwrap().len(), 0);
}

#[test]
fn a_lock_is_shown_by_a_name_that_the_file_has() {
    let place = Place::new();
    let local = place.path("export").join("file");
    std::fs::write(&local, "bytes").unwrap();
    // The output gets its final name as a second link, and then loses the first.
    assert!(dafs().arg("apps").arg("gzip").arg(place.url("file")).status().unwrap().success());
    let hold = |name: &str, is_removed: bool| {
        let mut holder = place.lock(&[], name, &["cat"]).stdin(Stdio::piped()).spawn().unwrap();
        await_that("the lock is held", || place.locks().len() == 1);
        if is_removed {
            std::fs::remove_file(place.path("export").join(name)).unwrap();
        }
        let shown = place.locks()[0]["file"].as_str().unwrap().to_owned();
        drop(holder.stdin.take());
        assert!(holder.wait().unwrap().success());
        shown
    };
    let shown = hold("file.gz", false);
    assert!(!shown.contains("(deleted)"), "{shown}");
    // Only users who can open files by handle see the new name.
    if rustix::process::geteuid().is_root() {
        assert!(shown.ends_with("/export/file.gz"), "{shown}");
    } else {
        dafs_tests::skip_part("only root can open files by handle");
    }
    // A removed file is shown with its former name.
    std::fs::write(place.path("export").join("removed"), "bytes").unwrap();
    let shown = hold("removed", true);
    assert!(shown.ends_with("/export/removed"), "{shown}");
}

#[test]
fn a_persistent_lock_breaks_with_its_holder_and_is_repaired() {
    let place = Place::new();
    let mut holder =
        place.lock(&["--persistent"], "file", &["cat"]).stdin(Stdio::piped()).spawn().unwrap();
    await_that("the lock is held", || place.locks().len() == 1);
    holder.kill().unwrap();
    holder.wait().unwrap();
    let is = |condition: &str| place.locks().first().is_some_and(|l| l["condition"] == condition);
    await_that("its lease is over", || is("breakable"));
    let told = place.ran(&["--nonblock"], "file", &["true"]);
    assert!(text(&told.stderr).contains("--repair"), "{}", text(&told.stderr));
    assert!(is("broken"));
    let repaired = place.ran(&["--repair"], "file", &["true"]);
    assert!(repaired.status.success(), "{}", text(&repaired.stderr));
    assert!(place.ran(&["--nonblock"], "file", &["true"]).status.success());
}

/// A writer or the server is killed while a large file is rewritten. Then the file has its old
/// contents. `DAFS_LARGE_MIB=1024` uses a file of 1 GiB (`make soak`).
#[test]
fn a_writer_that_dies_leaves_the_old_content() {
    for dies in ["writer", "server"] {
        let mut place = Place::new();
        let local = place.path("export").join("large");
        write_old(&local);
        let mut writer = place
            .lock(&["--autorecover", "--write"], "large", &["cat", "/dev/zero"])
            .spawn()
            .unwrap();
        await_that("half of it is overwritten", || place.undo_bytes() > large_bytes() / 2);
        if dies == "server" {
            place.kill_server();
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        if dies == "server" {
            place.serve();
        }
        await_that("the lock is gone", || place.locks().is_empty());
        assert_old(&local, dies);
        await_that("undo data is gone", || place.undo_bytes() == 0);
    }
}

fn large_bytes() -> u64 {
    let set = std::env::var("DAFS_LARGE_MIB").ok().and_then(|text| text.parse::<u64>().ok());
    set.unwrap_or(192) << 20
}
/// Starts a command under a lock that prints its process id and then executes lines of its input.
fn started(mut lock: Command) -> (Child, BufReader<ChildStdout>, Pid) {
    let mut child = lock.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let pid = line(&mut out).parse().unwrap();
    (child, out, Pid::from_raw(pid).unwrap())
}

fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// Waits until no process can write to the pipe any more.
fn await_end(mut out: BufReader<ChildStdout>) {
    out.read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn a_signal_to_the_lock_reaches_the_command_and_the_lock_is_given_back() {
    let place = Place::new();
    let command = ["sh", "-c", "echo $$; exec cat"];
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let (mut lock, out, _) = started(place.lock(&[], "file", &command));
        kill_process(Pid::from_child(&lock), signal).unwrap();
        await_end(out);
        assert_eq!(lock.wait().unwrap().code(), Some(128 + signal.as_raw()), "{signal:?}");
        assert_eq!(place.locks().len(), 0, "{signal:?}");
        assert!(place.ran(&["--nonblock"], "file", &["true"]).status.success(), "{signal:?}");
    }
}

#[test]
fn a_command_that_goes_on_after_a_signal_keeps_its_lock() {
    let place = Place::new();
    let command = ["sh", "-c", "trap 'echo got' TERM; echo $$; while read -r _ || :; do :; done"];
    let (mut lock, mut out, command) = started(place.lock(&[], "file", &command));
    kill_process(Pid::from_child(&lock), Signal::TERM).unwrap();
    // The shell handles the signal between two lines.
    lock.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    assert_eq!(line(&mut out), "got");
    let denied = place.ran(&["--nonblock"], "file", &["true"]);
    assert_eq!(denied.status.code(), Some(1), "{}", text(&denied.stderr));
    kill_process(command, Signal::KILL).unwrap();
    assert_eq!(lock.wait().unwrap().code(), Some(137));
    assert!(place.ran(&["--nonblock"], "file", &["true"]).status.success());
}

#[test]
fn a_command_ends_with_its_lock_when_that_is_killed() {
    let place = Place::new();
    let (mut lock, out, _) = started(place.lock(&[], "file", &["sh", "-c", "echo $$; exec cat"]));
    let stdin = lock.stdin.take();
    lock.kill().unwrap();
    await_end(out);
    drop(stdin);
    lock.wait().unwrap();
}

#[test]
fn a_command_ends_whenever_its_lock_is_killed() {
    let place = Place::new();
    // After the child exists, after it has become the command, and at once.
    for stage in ["begun", "forked", "runs"].into_iter().cycle().take(24) {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut lock = {
            let mut command = place.lock(&[], "file", &["cat"]);
            command.stdin(Stdio::piped()).stdout(writer).spawn().unwrap()
        };
        let stdin = lock.stdin.take();
        let children = format!("/proc/{0}/task/{0}/children", lock.id());
        let child = || std::fs::read_to_string(&children).unwrap_or_default();
        let name = || std::fs::read_to_string(format!("/proc/{}/comm", child().trim()));
        match stage {
            "begun" => {}
            "forked" => await_that("it has a child", || !child().is_empty()),
            _ => await_that("it runs", || name().is_ok_and(|name| name.trim() == "cat")),
        }
        lock.kill().unwrap();
        // Wait until all processes that inherited the pipe have ended.
        BufReader::new(reader).read_to_end(&mut Vec::new()).unwrap();
        drop(stdin);
        lock.wait().unwrap();
    }
}

#[test]
fn whoever_is_ended_while_it_waits_for_a_lock_leaves_nothing_behind() {
    let place = Place::new();
    let (mut holder, _out, _) =
        started(place.lock(&[], "file", &["sh", "-c", "echo $$; exec cat"]));
    let mut waiter = place.lock(&[], "file", &["true"]).spawn().unwrap();
    await_that("it waits", || place.told_of("waiters").len() == 1);
    kill_process(Pid::from_child(&waiter), Signal::TERM).unwrap();
    assert_eq!(waiter.wait().unwrap().code(), Some(143));
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    assert!(place.ran(&["--nonblock"], "file", &["true"]).status.success());
}

#[test]
fn a_signal_that_was_ignored_before_ends_no_wait_for_a_lock() {
    let place = Place::new();
    let (mut holder, _out, _) =
        started(place.lock(&[], "file", &["sh", "-c", "echo $$; exec cat"]));
    // Start the command as nohup and shells without job control do.
    let lock = place.lock(&[], "file", &["echo", "had it"]);
    let mut waiter = Command::new("sh");
    waiter.args(["-c", "trap '' HUP INT QUIT; exec \"$@\"", "sh"]).arg(lock.get_program());
    let waiter = waiter.args(lock.get_args()).stdout(Stdio::piped()).spawn().unwrap();
    await_that("it waits", || place.told_of("waiters").len() == 1);
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT] {
        kill_process(Pid::from_child(&waiter), signal).unwrap();
    }
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    let output = waiter.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "had it\n"));
}

#[test]
fn a_command_whose_lock_was_lost_is_ended_and_it_is_told() {
    let mut place = Place::new();
    let mut lock = place.lock(&[], "file", &["sh", "-c", "echo $$; exec cat"]);
    lock.stderr(Stdio::piped());
    let (mut lock, out, _) = started(lock);
    let stdin = lock.stdin.take();
    // Without its state, a server knows no handle that was returned before.
    place.kill_server();
    std::fs::remove_dir_all(place.path("state")).unwrap();
    place.serve();
    await_end(out);
    drop(stdin);
    let output = lock.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("forgotten the lock"), "{}", text(&output.stderr));
}

fn write_old(path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    for number in 0..large_bytes() / BLOCK_BYTES as u64 {
        file.write_all(&old_block(number)).unwrap();
    }
    file.sync_all().unwrap();
}

fn assert_old(path: &Path, dies: &str) {
    let mut file = std::fs::File::open(path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), large_bytes(), "the {dies} has died");
    let mut block = vec![0; BLOCK_BYTES];
    for number in 0..large_bytes() / BLOCK_BYTES as u64 {
        file.read_exact(&mut block).unwrap();
        assert!(block == old_block(number), "block {number} after the {dies} has died");
    }
}
