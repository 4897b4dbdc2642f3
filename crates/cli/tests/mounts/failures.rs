//! Tests what programs see of a mount when something fails, and that they can continue afterwards.

use std::fs::File;
use std::io::{BufRead, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use crate::mounts::host::{Host, have, run, shell};
use crate::program::{await_that, dafs};

/// True if the process waits for a reply of the mount.
fn waits_in_fuse(child: &Child) -> bool {
    let read = |name: &str| {
        std::fs::read_to_string(format!("/proc/{}/{name}", child.id())).unwrap_or_default()
    };
    ["wchan", "stack"].iter().any(|name| {
        let text = read(name);
        text.contains("fuse") || text.contains("request_wait_answer")
    })
}

#[test]
fn programs_go_on_when_a_killed_server_is_back() {
    let Some(mut host) = Host::mounted("attr_timeout=0,entry_timeout=0") else { return };
    const RECORD: usize = 4096;
    let record = |number: u64| [number as u8; RECORD];
    let path = host.at("records");
    let written = AtomicU64::new(0);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (written, is_over, path) = (&written, &is_over, &path);
        scope.spawn(move || {
            let file = File::create(path).unwrap();
            let mut number = 0;
            while !is_over.load(Ordering::Relaxed) {
                // The last write must be the one that is visible.
                file.write_all_at(&[0xEE; 2 * RECORD], number * RECORD as u64).unwrap();
                file.write_all_at(&record(number), number * RECORD as u64).unwrap();
                if number % 64 == 0 {
                    file.sync_data().unwrap();
                }
                number += 1;
                written.store(number, Ordering::Relaxed);
            }
            file.sync_all().unwrap();
        });
        for _ in 1..=4 {
            let before = written.load(Ordering::Relaxed);
            await_that("some records", || written.load(Ordering::Relaxed) > before + 20);
            host.kill_server();
            host.serve();
        }
        let before = written.load(Ordering::Relaxed);
        await_that("records after all", || written.load(Ordering::Relaxed) > before + 20);
        is_over.store(true, Ordering::Relaxed);
    });
    let content = std::fs::read(host.exported("records")).unwrap();
    for number in 0..written.load(Ordering::Relaxed) {
        let at = number as usize * RECORD;
        assert!(content[at..at + RECORD] == record(number), "record {number}");
    }
}

#[test]
fn a_file_is_neither_shorter_nor_older_when_a_killed_server_is_back() {
    let Some(mut host) = Host::mounted("attr_timeout=0,entry_timeout=0,direct_io") else { return };
    let file = File::options().read(true).write(true).create_new(true).open(host.at("file"));
    let file = file.unwrap();
    for round in 1..=5_u8 {
        // Several pieces, so that writing them again takes a while.
        for piece in 0..64 {
            file.write_all_at(&[round; 4096], piece * 8192 * u64::from(round)).unwrap();
        }
        host.kill_server();
        host.serve();
        let wanted = 63 * 8192 * u64::from(round) + 4096;
        assert!(file.metadata().unwrap().len() >= wanted, "round {round}");
        let mut found = [0; 4096];
        file.read_exact_at(&mut found, wanted - 4096).unwrap();
        assert_eq!(found, [round; 4096]);
    }
    file.sync_all().unwrap();
}

#[test]
fn what_a_close_handed_over_is_neither_lost_nor_written_over() {
    let Some(mut host) = Host::mounted("attr_timeout=0,entry_timeout=0") else { return };
    let file = File::create_new(host.at("file")).unwrap();
    let write_and_close_one_of_two = |text: &[u8]| {
        file.write_all_at(text, 0).unwrap();
        drop(file.try_clone().unwrap());
    };
    write_and_close_one_of_two(b"first");
    host.kill_server();
    host.serve();
    file.sync_all().unwrap();
    let others = File::options().write(true).open(host.at("file")).unwrap();
    write_and_close_one_of_two(b"again");
    host.kill_server();
    std::fs::write(host.exported("file"), "other").unwrap();
    host.serve();
    // The written data is missing, and it is unknown whether it was lost or replaced. A close of a
    // duplicate, such as in every program started meanwhile, reports the loss, but does not replace
    // the report of fsync.
    await_that("a close that tells", || {
        nix::unistd::close(file.try_clone().unwrap()) == Err(nix::errno::Errno::EIO)
    });
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(5));
    file.sync_all().unwrap();
    // The loss is reported once to each open that existed then, and to no later one.
    let later = File::options().write(true).open(host.at("file")).unwrap();
    assert_eq!(others.sync_all().unwrap_err().raw_os_error(), Some(5));
    others.sync_all().unwrap();
    later.sync_all().unwrap();
    assert_eq!(std::fs::read(host.exported("file")).unwrap(), b"other");
}

#[test]
fn whoever_waits_for_a_server_can_be_interrupted() {
    let Some(mut host) = Host::mounted("attr_timeout=0,entry_timeout=0") else { return };
    std::fs::write(host.at("file"), "text").unwrap();
    let open = File::open(host.at("file")).unwrap();
    host.kill_server();
    for command in ["cat file", "ls -l", "touch new", "rm file"] {
        let words: Vec<_> = command.split(' ').collect();
        let mut child = Command::new(words[0]);
        for word in &words[1..] {
            match word.starts_with('-') {
                true => child.arg(word),
                false => child.arg(host.at(word)),
            };
        }
        if words.len() == 2 && words[1].starts_with('-') {
            child.arg(host.at(""));
        }
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        await_that(command, || waits_in_fuse(&child));
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(15), "{command}");
    }
    host.serve();
    let mut text = [0; 4];
    open.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"text");
    assert_eq!(std::fs::read_to_string(host.at("file")).unwrap(), "text");
}

/// Starts the program of `signals.c` in a directory.
fn signalled(host: &Host) -> Option<Child> {
    if !have(&["cc"]) {
        return None;
    }
    let program = host.path("signals");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/signals.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Wextra", "-o"]).arg(&program).arg(source);
    assert!(compiler.status().unwrap().success());
    let mut child = Command::new(program);
    child.arg(host.at("")).stdin(Stdio::piped()).stdout(Stdio::piped());
    Some(child.spawn().unwrap())
}

/// Kills the server ten times while a program receives signals.
fn no_call_fails(mut host: Host) {
    host.mount("");
    let Some(mut child) = signalled(&host) else { return };
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    let mut failures = Vec::new();
    let mut rounds = |count: usize| {
        let mut left = count;
        while left > 0 {
            match lines.next() {
                Some(line) if line.as_ref().unwrap() == "round" => left -= 1,
                Some(line) => failures.push(line.unwrap()),
                None => break,
            }
        }
        failures.clone()
    };
    for _ in 0..10 {
        assert_eq!(rounds(3), [""; 0]);
        host.kill_server();
        host.serve();
    }
    assert_eq!(rounds(3), [""; 0]);
    drop(child.stdin.take());
    assert_eq!(rounds(usize::MAX), [""; 0]);
    assert!(child.wait().unwrap().success());
}

#[test]
fn no_signal_makes_a_call_fail_while_servers_come_and_go() {
    let Some(host) = Host::new() else { return };
    no_call_fails(host);
}

#[test]
fn no_signal_makes_a_call_fail_while_servers_come_and_go_over_tcp() {
    let Some(host) = Host::by_tcp() else { return };
    no_call_fails(host);
}

#[test]
fn who_is_killed_behind_a_harmless_signal_does_not_wait_for_a_server() {
    let Some(mut host) = Host::mounted("attr_timeout=0,entry_timeout=0") else { return };
    let Some(mut child) = signalled(&host) else { return };
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "round");
    host.kill_server();
    await_that("an answer is waited for", || waits_in_fuse(&child));
    // It must continue to wait, whatever signals with a handler arrive.
    for _ in 0..20 {
        kill_process(Pid::from_child(&child), Signal::ALARM).unwrap();
        assert!(child.try_wait().unwrap().is_none());
    }
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    host.serve();
}

#[test]
fn whoever_waits_for_a_lock_can_be_interrupted() {
    if !have(&["flock"]) {
        return;
    }
    let Some(host) = Host::mounted("") else { return };
    let holder = File::create(host.at("file")).unwrap();
    holder.lock().unwrap();
    let mut waiter = Command::new("flock").arg(host.at("file")).arg("true").spawn().unwrap();
    await_that("the lock is waited for", || waits_in_fuse(&waiter));
    kill_process(Pid::from_child(&waiter), Signal::TERM).unwrap();
    assert_eq!(waiter.wait().unwrap().signal(), Some(15));
    holder.unlock().unwrap();
    assert_eq!(run(&host.at(""), "flock -n file echo had"), "had\n");
}

/// A served directory on a disk of a few MiB.
struct Small(std::path::PathBuf, tempfile::TempDir);

impl Small {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return crate::mounts::host::missing("root, to mount a tmpfs");
        }
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("small");
        std::fs::create_dir(&place).unwrap();
        run(directory.path(), "mount -t tmpfs -o size=4m none small");
        Some(Self(place, directory))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = shell(self.1.path(), "umount -l small");
    }
}

#[test]
fn a_full_disk_is_told_as_such() {
    let Some(small) = Small::new() else { return };
    let Some(mut host) = Host::of(Some(small.0.clone())) else { return };
    host.mount("");
    for how in ["bs=1M", "bs=4k", "bs=64k conv=fsync", "bs=512k conv=fdatasync", "bs=700k"] {
        for round in 0..3 {
            let write = format!("dd if=/dev/zero of=big count=8M iflag=count_bytes {how}");
            let output = shell(&host.at(""), &write);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{how}, {round}: {said}");
            assert!(said.contains("No space left on device"), "{how}, {round}: {said}");
            assert!(!said.contains("Input/output"), "{how}, {round}: {said}");
            std::fs::remove_file(host.at("big")).unwrap();
        }
    }
    // There is space again.
    std::fs::write(host.at("little"), "text").unwrap();
    assert_eq!(std::fs::read_to_string(host.exported("little")).unwrap(), "text");
}

/// True if `fsync` or `close` reports a full disk.
fn is_told_of_full_disk(file: &File, syncs: bool) -> bool {
    let synced = if syncs { file.sync_all().map_err(|error| error.raw_os_error()) } else { Ok(()) };
    let copy = file.try_clone().unwrap();
    let closed = nix::unistd::close(copy).map_err(|errno| Some(errno as i32));
    let told = [synced, closed].into_iter().find_map(Result::err);
    assert!(told.is_none_or(|errno| errno == Some(28)), "{told:?}");
    told.is_some()
}

#[test]
fn a_write_that_comes_back_short_on_a_full_disk_is_told_by_fsync_and_close() {
    let Some(small) = Small::new() else { return };
    let Some(mut host) = Host::of(Some(small.0.clone())) else { return };
    host.mount("");
    let data = vec![7; 12 << 20];
    for syncs in [true, false, true, false] {
        let mut file = File::create(host.at("big")).unwrap();
        // A short count and an immediate failure are both correct.
        let taken = file.write(&data).unwrap_or(0);
        if !is_told_of_full_disk(&file, syncs) {
            let there = std::fs::metadata(host.exported("big")).unwrap().len();
            assert_eq!(there, taken as u64, "fsync: {syncs}; nothing was told");
            let content = std::fs::read(host.exported("big")).unwrap();
            assert!(content.iter().all(|byte| *byte == 7), "fsync: {syncs}; nothing was told");
        }
        drop(file);
        std::fs::remove_file(host.at("big")).unwrap();
        await_room(&small);
    }
}

#[test]
fn what_is_written_once_a_full_disk_has_room_again_is_there_or_told() {
    let Some(small) = Small::new() else { return };
    let Some(mut host) = Host::of(Some(small.0.clone())) else { return };
    host.mount("");
    let data: Vec<u8> = (0..3u32 << 20).map(|at| (at % 251) as u8 + 1).collect();
    for syncs in [true, false, true, false] {
        std::fs::write(host.exported("ballast"), vec![1; 3 << 20]).unwrap();
        let mut file = File::create(host.at("big")).unwrap();
        let (mut at, mut refused) = (0, None);
        while at < data.len() && refused.is_none() {
            match file.write(&data[at..]) {
                Ok(count) => at += count,
                Err(error) => refused = error.raw_os_error(),
            }
            if at < data.len() && std::fs::remove_file(host.exported("ballast")).is_ok() {
                await_room_of(&small, 2 << 20);
                // After the error was reported, writing can continue.
                refused = None;
            }
        }
        assert!(refused.is_none_or(|errno| errno == 28), "{refused:?}");
        if refused.is_none() && !is_told_of_full_disk(&file, syncs) {
            let content = std::fs::read(host.exported("big")).unwrap();
            assert!(content == data, "fsync: {syncs}; nothing was told, and bytes are missing");
        }
        drop(file);
        std::fs::remove_file(host.at("big")).unwrap();
        let _ = std::fs::remove_file(host.exported("ballast"));
        await_room(&small);
    }
}

/// Waits until removed files take no space any more.
fn await_room(small: &Small) {
    await_room_of(small, 4 << 20);
}

fn await_room_of(small: &Small, wanted: u64) {
    await_that("the room of what was removed", || {
        let room = rustix::fs::statvfs(&small.0).unwrap();
        // Minus the space of the directory itself.
        room.f_bfree * room.f_frsize + (64 << 10) >= wanted
    });
}

#[test]
fn a_session_that_has_ended_is_an_input_output_error_until_there_is_another() {
    let options = "attr_timeout=0,entry_timeout=0,giveup=1";
    let Some(mut host) = Host::mounted(options) else { return };
    std::fs::write(host.at("file"), "text").unwrap();
    let open = File::options().read(true).write(true).open(host.at("file")).unwrap();
    open.write_all_at(b"more", 4).unwrap();
    host.kill_server();
    let failed = std::fs::metadata(host.at("file")).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(5));
    let failed = File::open(host.at("file")).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(5));
    host.serve();
    // A server that has restarted accepts no new opens until its former clients have reconnected.
    await_that("another session", || File::open(host.at("file")).is_ok());
    open.write_all_at(b" yet", 8).unwrap();
    open.sync_all().unwrap();
    let mut text = [0; 12];
    open.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"textmore yet");
}

#[test]
fn a_mount_in_use_is_unmounted_lazily_alone() {
    let Some(mut host) = Host::mounted("") else { return };
    std::fs::write(host.at("file"), "text").unwrap();
    let mut open = File::open(host.at("file")).unwrap();
    let place = host.at("");
    let refused = dafs().arg("unmount").arg(&place).output().unwrap();
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("--lazy"), "{said}");
    assert!(dafs().args(["unmount", "--lazy"]).arg(&place).status().unwrap().success());
    assert!(!host.at("file").exists());
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "text");
    assert!(host.process(0).try_wait().unwrap().is_none());
    drop(open);
    assert!(host.process(0).wait().unwrap().success());
}

#[test]
fn a_mount_that_the_kernel_aborts_is_gone() {
    let Some(mut host) = Host::mounted("") else { return };
    let control = tempfile::tempdir().unwrap();
    let device = std::fs::metadata(host.at("")).unwrap().dev();
    // Some hosts have not mounted fusectl. Devices of FUSE have major number 0.
    let at = control.path().display();
    run(control.path(), &format!("mount -t fusectl none {at}"));
    let abort = control.path().join(rustix::fs::minor(device).to_string()).join("abort");
    let aborted = std::fs::write(abort, "1");
    run(Path::new("/"), &format!("umount {at}"));
    aborted.unwrap();
    assert!(host.process(0).wait().unwrap().success());
    assert!(!Path::new(&host.at("file")).exists());
    assert_eq!(std::fs::read_dir(host.at("")).unwrap().count(), 0);
}

#[test]
fn a_mount_can_be_taken_away_from_a_server_that_is_gone() {
    let Some(mut host) = Host::mounted("") else { return };
    std::fs::write(host.at("file"), "text").unwrap();
    host.kill_server();
    let place = host.at("");
    assert!(dafs().arg("unmount").arg(&place).status().unwrap().success());
    assert!(host.process(0).wait().unwrap().success());
    assert!(!Path::new(&host.at("file")).exists());
}

#[test]
fn what_lies_beneath_a_mount_stays_when_it_goes() {
    let Some(mut host) = Host::mounted("") else { return };
    std::fs::write(host.at("file"), "text").unwrap();
    let over = host.at("");
    let mut above = dafs()
        .args(["mount", "--foreground", &host.url()])
        .arg(&over)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0; 1];
    above.stdout.take().unwrap().read_exact(&mut line).unwrap();
    assert!(dafs().arg("unmount").arg(&over).status().unwrap().success());
    assert!(above.wait().unwrap().success());
    assert_eq!(std::fs::read_to_string(host.at("file")).unwrap(), "text");
    assert!(host.process(0).try_wait().unwrap().is_none());
}

#[test]
fn a_fenced_host_has_input_output_errors() {
    let Some(mut host) = Host::new() else { return };
    host.mount_with("attr_timeout=0,entry_timeout=0", &["--fence-id", "one"]);
    let mut file = File::create(host.at("file")).unwrap();
    file.write_all(b"before").unwrap();
    file.sync_all().unwrap();
    let fence = |verb: &str, who: &str| {
        let url = host.url();
        let mut fence = dafs();
        fence.args(["fence", verb, "--file-system", &url]).args(who.split_whitespace());
        let output = fence.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    fence("set", "two");
    let wrote = file.write_all(b"after").and_then(|()| file.sync_all());
    assert_eq!(wrote.unwrap_err().raw_os_error(), Some(5));
    fence("clear", "");
    file.write_all_at(b"lifted", 6).unwrap();
    file.sync_all().unwrap();
    assert_eq!(std::fs::read(host.exported("file")).unwrap(), b"beforelifted");
}

#[test]
fn a_copy_between_a_mount_and_what_it_shows_is_refused() {
    let Some(host) = Host::mounted("attr_timeout=0,entry_timeout=0") else { return };
    let (mounted, served) = (host.at("file"), host.exported("file"));
    std::fs::write(&served, "bytes").unwrap();
    for (source, target) in [(&mounted, &served), (&served, &mounted)] {
        let output = dafs().arg("cp").args([source, target]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("are the same file"), "{said}");
        assert_eq!(std::fs::read(&served).unwrap(), b"bytes");
    }
}
