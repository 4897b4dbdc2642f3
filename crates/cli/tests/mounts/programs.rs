//! Tests unmodified programs: sqlite3, git, tar, rsync.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::mounts::host::{Host, have, run, shell};

/// Runs processes that concurrently add rows to a table, one transaction per row.
fn write_rows(places: &[&Path], writers: usize, rows: usize) {
    let start = |writer: usize| -> Child {
        let insert = format!("insert into rows values ({writer}, 'text of a row');");
        let script = format!(".timeout 120000\n{}", insert.repeat(rows));
        let mut sqlite = Command::new("sqlite3");
        let place = places[writer % places.len()];
        sqlite.arg("-bail").arg(place.join("data.db")).stdin(Stdio::piped());
        let mut child = sqlite.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        child
    };
    let children: Vec<_> = (0..writers).map(start).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{complained}");
    }
}

fn check_rows(place: &Path, count: usize) {
    let found = run(place, "sqlite3 data.db 'pragma integrity_check; select count(*) from rows'");
    assert_eq!(found, format!("ok\n{count}\n"));
}

#[test]
fn sqlite_journals_with_many_writers_of_two_mounts() {
    if !have(&["sqlite3"]) {
        return;
    }
    let Some(mut host) = Host::new() else { return };
    // Changes through one mount must be visible in the other at once, so nothing is cached.
    let uncached = "attr_timeout=0,entry_timeout=0";
    let (one, other) = (host.mount(uncached), host.mount(uncached));
    for mode in ["delete", "truncate", "persist"] {
        let create =
            format!("pragma journal_mode={mode}; create table rows (writer int, text text)");
        run(&one, &format!("rm -f data.db*; sqlite3 data.db '{create}'"));
        write_rows(&[&one, &other], 4, 10);
        check_rows(&one, 40);
        check_rows(&other, 40);
    }
    check_rows(&host.exported(""), 40);
}

#[test]
fn sqlite_logs_ahead_with_many_writers() {
    if !have(&["sqlite3"]) {
        return;
    }
    let Some(host) = Host::mounted("") else { return };
    let create = "pragma journal_mode=wal; create table rows (writer int, text text)";
    assert_eq!(run(&host.at(""), &format!("sqlite3 data.db '{create}'")), "wal\n");
    write_rows(&[&host.at("")], 4, 25);
    check_rows(&host.at(""), 100);
    run(&host.at(""), "sqlite3 data.db 'pragma wal_checkpoint(truncate)'");
    check_rows(&host.at(""), 100);
    check_rows(&host.exported(""), 100);
}

/// The number of files in git's test; `DAFS_GIT_FILES=10000` for the large test.
fn git_files() -> usize {
    let asked = std::env::var("DAFS_GIT_FILES").ok();
    asked.map_or(300, |count| count.parse().expect("DAFS_GIT_FILES is a number"))
}

#[test]
fn git_commits_clones_and_checks() {
    if !have(&["git"]) {
        return;
    }
    let Some(host) = Host::mounted("") else { return };
    let count = git_files();
    std::fs::create_dir(host.at("work")).unwrap();
    for number in 0..count {
        let directory = host.at("work").join(format!("d{}", number / 100));
        if number % 100 == 0 {
            std::fs::create_dir(&directory).unwrap();
        }
        std::fs::write(directory.join(format!("f{number}")), format!("{number}\n")).unwrap();
    }
    let step = |directory: &str, command: &str| {
        let begun = std::time::Instant::now();
        let git = "export HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1; git -c user.name=a \
                   -c user.email=a@b -c init.defaultBranch=main -c gc.auto=0 \
                   -c safe.directory=*";
        let said = run(&host.at(directory), &format!("{git} {command}"));
        eprintln!("{count} files: git {command}: {:.1} s", begun.elapsed().as_secs_f64());
        said
    };
    step("work", "init -q");
    step("work", "add .");
    step("work", "commit -qm all");
    step("", "clone -q --no-local work cloned");
    step("cloned", "fsck --full --strict");
    assert_eq!(step("cloned", "status --porcelain"), "");
    assert_eq!(step("cloned", "ls-files").lines().count(), count);
    let differences = run(&host.at(""), "diff -r --exclude=.git work cloned");
    assert_eq!(differences, "");
}

/// A tree with all types of objects.
const MAKE_TREE: &str = "mkdir -p t/deep/er; cd t
    echo text > plain; head -c 300000 /dev/urandom > deep/big; : > empty
    ln plain deep/hard; ln -s ../plain deep/soft; ln -s nowhere dangling
    mkfifo pipe; mknod null c 1 3; mknod disk b 7 300
    chmod 4755 plain; chmod 600 empty; chmod 1777 deep; chmod 2750 deep/er
    chown 1234:5678 empty deep; chown -h 12:34 dangling
    touch -d '2001-02-03 04:05:06.789012345' plain; touch -h -d '2002-02-02 2:2:2.2' dangling
    truncate -s 5M sparse; touch -d '1969-12-31 23:59:58.5' sparse
    touch -d '2003-03-03 03:03:03.333333333' deep/er deep";

/// Lists all attributes that `find` can print.
const SHOW_TREE: &str = "find . -mindepth 1 -printf '%P %y %#m %U:%G %n %s %l %T@\\n' | sort |
    sed 's/^\\(.* d .* [0-9]*\\) [0-9]* \\( [0-9.-]*\\)$/\\1 \\2/'";

#[test]
fn tar_brings_a_tree_there_and_back() {
    if !have(&["tar", "find"]) {
        return;
    }
    let Some(host) = Host::mounted("dev,suid") else { return };
    let local = host.path("local");
    std::fs::create_dir(&local).unwrap();
    run(&local, MAKE_TREE);
    run(&host.path(""), "tar -C local/t --sparse --format=posix -cf there.tar .");
    run(&host.path(""), "mkdir mnt0/t && tar -C mnt0/t --numeric-owner -xpf there.tar");
    let shown = run(&host.at("t"), SHOW_TREE);
    assert_eq!(shown, run(&local.join("t"), SHOW_TREE));
    run(&host.path(""), "tar -C mnt0/t --format=posix -cf back.tar .");
    run(&host.path(""), "mkdir back && tar -C back --numeric-owner -xpf back.tar");
    assert_eq!(shown, run(&host.path("back"), SHOW_TREE));
    run(&host.path(""), "cmp back/deep/big local/t/deep/big && cmp back/sparse local/t/sparse");
    run(&host.at("t"), "echo gone > null");
}

#[test]
fn rsync_copies_nothing_the_second_time() {
    if !have(&["rsync", "find"]) {
        return;
    }
    let Some(host) = Host::mounted("dev,suid") else { return };
    let local = host.path("local");
    std::fs::create_dir(&local).unwrap();
    run(&local, MAKE_TREE);
    let _ = shell(&local, "setfattr -n user.mark -v value t/plain t/deep");
    let there = "rsync -aHX --numeric-ids --itemize-changes local/t/ mnt0/t/";
    assert_ne!(run(&host.path(""), there), "");
    assert_eq!(run(&host.path(""), there), "");
    let back = "rsync -aHX --numeric-ids --itemize-changes mnt0/t/ back/";
    assert_ne!(run(&host.path(""), back), "");
    assert_eq!(run(&host.path(""), back), "");
    // The program does not set the times of special files.
    let show = format!("{SHOW_TREE} | sed '/^[^ ]* [bclp] /s/ [0-9.]*$//'");
    assert_eq!(run(&host.path("back"), &show), run(&local.join("t"), &show));
    assert_eq!(run(&host.path(""), "rsync -aHX --checksum -i local/t/ back/"), "");
    run(&host.path(""), "touch local/t/empty && rsync -aHX local/t/ mnt0/t/");
}
