//! Tests commands with several operands of which some fail, and what `dafs rm` removes.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::Output;

use crate::place::Place;
use crate::program::dafs;

impl Place {
    fn in_export(&self, path: &str) -> PathBuf {
        self.path("export").join(path)
    }

    /// Runs a command on paths of the server.
    fn run_on(&self, command: &[&str], paths: &[&str]) -> Output {
        let urls = paths.iter().map(|path| self.url(path));
        dafs().args(command).args(urls).output().unwrap()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_operand_that_fails_keeps_no_other_from_its_turn() {
    let place = Place::new();
    for name in ["a", "b"] {
        std::fs::write(place.in_export(name), name).unwrap();
    }
    for command in ["cat", "stat", "ls"] {
        let output = place.run_on(&[command], &["a", "missing", "b"]);
        assert_eq!(output.status.code(), Some(1), "{command}");
        assert!(said(&output).contains("missing"), "{command}: {}", said(&output));
        assert_eq!(said(&output).lines().count(), 1, "{command}: {}", said(&output));
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(printed.contains('a') && printed.contains('b'), "{command}: {printed}");
    }
    let output = place.run_on(&["mkdir"], &["new", "a", "newer"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(place.in_export("newer").is_dir());
    let output = place.run_on(&["mv"], &["missing", "a", "new"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(place.in_export("new/a").exists());
    let output = place.run_on(&["rm"], &["missing", "b", "newer", "new/a"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(said(&output).lines().count(), 2, "{}", said(&output));
    assert!(!place.in_export("b").exists() && !place.in_export("new/a").exists());
    // Without -r or -d a directory stays, even if it is empty.
    assert!(place.in_export("newer").is_dir());
    assert!(place.run_on(&["rm", "-d"], &["newer", "new"]).status.success());
    assert!(place.run_on(&["rm", "-f"], &["missing", "no/such"]).status.success());
}

#[test]
fn a_removal_says_what_it_has_left() {
    let place = Place::new();
    std::fs::create_dir_all(place.in_export("tree/held")).unwrap();
    std::fs::create_dir_all(place.in_export("tree/free/below")).unwrap();
    std::fs::write(place.in_export("tree/held/file"), "x").unwrap();
    let is_held = std::process::Command::new("chattr")
        .arg("+i")
        .arg(place.in_export("tree/held/file"))
        .output()
        .is_ok_and(|output| output.status.success());
    if !is_held {
        dafs_tests::skip("this file system has no files that root cannot remove");
        return;
    }
    let output = place.run_on(&["rm", "-rf"], &["tree"]);
    let freed = std::process::Command::new("chattr")
        .arg("-i")
        .arg(place.in_export("tree/held/file"))
        .status();
    assert!(freed.unwrap().success());
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("tree/held/file"), "{}", said(&output));
    assert!(place.in_export("tree/held/file").exists());
    assert!(!place.in_export("tree/free").exists(), "the rest is gone");
}

#[test]
fn a_tree_with_any_names_goes_whole_or_is_told() {
    let place = Place::new();
    std::fs::create_dir_all(place.in_export("tree/below")).unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"bad\xffname");
    std::fs::write(place.in_export("tree/below").join(odd), "x").unwrap();
    let output = place.run_on(&["rm", "-rf"], &["tree"]);
    assert_eq!(output.status.success(), !place.in_export("tree").exists(), "{}", said(&output));
    assert_eq!(output.status.success(), output.stderr.is_empty(), "{}", said(&output));
}

#[test]
fn a_tree_that_is_deeper_than_one_path_is_long_goes_whole() {
    use rustix::fs::{Mode, OFlags, mkdirat, openat};
    let place = Place::new();
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let mut here = rustix::fs::open(place.path("export"), flags, Mode::empty()).unwrap();
    for name in std::iter::once("tree").chain(std::iter::repeat_n(&*"n".repeat(200), 100)) {
        mkdirat(&here, name, Mode::RWXU).unwrap();
        here = openat(&here, name, flags, Mode::empty()).unwrap();
        openat(&here, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).unwrap();
    }
    drop(here);
    let output = place.run_on(&["rm", "-r"], &["tree"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(!place.in_export("tree").exists());
}

#[test]
fn what_is_the_root_of_an_export_is_not_emptied() {
    let mut place = Place::new();
    let other = place.path("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("kept"), "x").unwrap();
    std::fs::write(place.in_export("kept"), "x").unwrap();
    place.kill_server();
    place.serve_directories(&[place.path("export").as_os_str(), other.as_os_str()]);
    for path in ["", "/", "export", "other", "export/", "./other", "export/../other"] {
        for options in ["-r", "-rf"] {
            let output = place.run_on(&["rm", options], &[path]);
            assert_eq!(output.status.code(), Some(1), "{path}: {}", said(&output));
            assert!(said(&output).contains("name its entries"), "{path}: {}", said(&output));
            assert!(place.in_export("kept").exists() && other.join("kept").exists(), "{path}");
        }
    }
    assert!(place.run_on(&["rm", "-r"], &["export/kept"]).status.success());
}

#[test]
fn a_removal_does_not_follow_links_or_take_what_dots_stand_for() {
    let place = Place::new();
    std::fs::create_dir_all(place.in_export("precious")).unwrap();
    std::fs::write(place.in_export("precious/file"), "x").unwrap();
    std::fs::create_dir_all(place.in_export("tree/below")).unwrap();
    for (text, name) in
        [("../precious", "tree/link"), ("..", "tree/up"), ("/precious", "tree/below/link")]
    {
        std::os::unix::fs::symlink(text, place.in_export(name)).unwrap();
    }
    std::os::unix::fs::symlink("precious", place.in_export("link")).unwrap();
    for path in ["precious/.", "tree/..", "link/..", "link/", "."] {
        let output = place.run_on(&["rm", "-r"], &[path]);
        assert_eq!(output.status.code(), Some(1), "{path}");
        assert!(!output.stderr.is_empty(), "{path}");
    }
    assert!(place.run_on(&["rm", "-r"], &["tree", "link"]).status.success());
    assert_eq!(std::fs::read(place.in_export("precious/file")).unwrap(), b"x");
    assert!(!place.in_export("tree").exists());
}

#[test]
fn a_move_onto_another_name_of_the_same_file_is_refused() {
    let place = Place::new();
    std::fs::write(place.in_export("a"), "x").unwrap();
    std::fs::hard_link(place.in_export("a"), place.in_export("b")).unwrap();
    std::fs::create_dir(place.in_export("d")).unwrap();
    std::fs::hard_link(place.in_export("a"), place.in_export("d/a")).unwrap();
    for target in ["a", "b", "d/../a", "d", "d/a"] {
        let output = place.run_on(&["mv"], &["a", target]);
        assert_eq!(output.status.code(), Some(1), "{target}");
        assert!(said(&output).contains("are the same file"), "{target}: {}", said(&output));
    }
    assert!(place.in_export("a").exists() && place.in_export("b").exists());
    let output = place.run_on(&["mv"], &["a", "no-such-directory/"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(place.run_on(&["mv"], &["d", "e/"]).status.success());
    assert!(place.in_export("e/a").exists());
}

/// Runs a command with a umask.
fn under(umask: &str, arguments: &[&str]) {
    use std::io::Write;
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "umask \"$0\"; exec \"$@\"", umask, env!("CARGO_BIN_EXE_dafs")]);
    let mut child = shell.args(arguments).stdin(std::process::Stdio::piped()).spawn().unwrap();
    // A program that reads nothing may have ended already.
    let _ = child.stdin.take().unwrap().write_all(b"b\na\n");
    assert!(child.wait().unwrap().success(), "{arguments:?}");
}

#[test]
fn what_is_made_has_the_mode_that_the_umask_leaves() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let source = place.path("source");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("file"), "b\na\n").unwrap();
    let to = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    to(&source, 0o777);
    to(&source.join("file"), 0o666);
    let readable = source.join("readable");
    std::fs::write(&readable, "nobody writes it").unwrap();
    to(&readable, 0o444);
    let modified = |path: &std::path::Path| path.metadata().unwrap().modified().unwrap();
    let file = source.join("file").to_str().unwrap().to_owned();
    let source = source.to_str().unwrap();
    for (umask, directory, file_mode) in [("077", 0o700, 0o600), ("002", 0o775, 0o664)] {
        let at = |name: &str| format!("{umask}.{name}");
        let url = |name: &str| place.url(&at(name));
        let here = |name: &str| place.in_export(&at(name)).to_str().unwrap().to_owned();
        under(umask, &["mkdir", &url("mkdir")]);
        under(umask, &["mkdir", "-p", &url("p/below")]);
        under(umask, &["sort", &file, "-o", &url("sorted")]);
        under(umask, &["sort", &file, "-o", &here("sorted-here")]);
        under(umask, &["gzip", "-o", &url("gz"), "-"]);
        under(umask, &["gzip", "-o", &here("gz-here"), "-"]);
        under(umask, &["lock", &url("locked"), "--write", "--", "cat"]);
        under(umask, &["cp", "-r", source, &url("copy")]);
        under(umask, &["cp", "-r", source, &here("copy-here")]);
        under(umask, &["cp", "-r", "--sync", source, &url("stable")]);
        under(umask, &["cp", &file, &url("file")]);
        let mode = |name: &str| {
            let found = place.in_export(&at(name)).metadata();
            found.unwrap_or_else(|error| panic!("{name}: {error}")).permissions().mode() & 0o7777
        };
        for name in ["mkdir", "p", "p/below", "copy", "copy-here"] {
            assert_eq!(mode(name), directory, "{umask} {name}");
        }
        for name in [
            "sorted",
            "sorted-here",
            "gz",
            "gz-here",
            "locked",
            "copy/file",
            "copy-here/file",
            "file",
        ] {
            assert_eq!(mode(name), file_mode, "{umask} {name}");
        }
        // A mode without owner write permission is set last, and must not change the times.
        for name in ["copy/readable", "copy-here/readable", "stable/readable"] {
            assert_eq!(mode(name), 0o444 & file_mode, "{umask} {name}");
            assert_eq!(modified(&place.in_export(&at(name))), modified(&readable), "{name}");
        }
        // An existing file keeps its mode, unless modes are copied.
        to(&place.in_export(&at("file")), 0o640);
        to(&place.in_export(&at("sorted")), 0o646);
        under(umask, &["cp", &file, &url("file")]);
        under(umask, &["sort", &file, "-o", &url("sorted")]);
        assert_eq!((mode("file"), mode("sorted")), (0o640, 0o646), "{umask}");
        under(umask, &["cp", "--preserve", &file, &url("file")]);
        assert_eq!(mode("file"), 0o666, "{umask}");
    }
}

/// The kernel reduces the mode of a new file by the default access list and not by the umask.
#[test]
fn what_a_default_list_takes_from_a_mode_stays_away() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let (tree, directory) = (place.path("tree"), place.in_export("listed"));
    let file = tree.join("file");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(&file, "for some").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o666)).unwrap();
    std::fs::create_dir(&directory).unwrap();
    // The owner has all permissions, the group may read, others have none.
    let entries = [(1_u16, 7_u16), (4, 4), (0x20, 0)];
    let entry = |(tag, bits): (u16, u16)| {
        [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &u32::MAX.to_le_bytes()].concat()
    };
    let list = [2_u32.to_le_bytes().to_vec(), entries.map(entry).concat()].concat();
    let (name, flags) = ("system.posix_acl_default", rustix::fs::XattrFlags::empty());
    if rustix::fs::setxattr(&directory, name, &list, flags).is_err() {
        dafs_tests::skip("this file system keeps no access control lists");
        return;
    }
    let (file, tree) = (file.to_str().unwrap(), tree.to_str().unwrap());
    let there = directory.join("here");
    under("000", &["cp", file, there.to_str().unwrap()]);
    under("000", &["cp", file, &place.url("listed/there")]);
    under("000", &["cp", "-r", tree, &place.url("listed/tree")]);
    under("000", &["cp", "--preserve", file, &place.url("listed/preserved")]);
    for (name, expected) in
        [("here", 0o640), ("there", 0o640), ("tree/file", 0o640), ("preserved", 0o666)]
    {
        let found = directory.join(name).metadata().unwrap().permissions().mode();
        assert_eq!(found & 0o7777, expected, "{name}");
    }
}

#[test]
fn a_link_does_not_take_the_place_of_what_it_leads_to() {
    let place = Place::new();
    std::fs::write(place.in_export("a"), "the only copy").unwrap();
    std::os::unix::fs::symlink("a", place.in_export("link")).unwrap();
    let output = place.run_on(&["mv"], &["link", "a"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("are the same file"), "{}", said(&output));
    assert_eq!(std::fs::read(place.in_export("a")).unwrap(), b"the only copy");
    assert!(place.run_on(&["mv"], &["a", "link"]).status.success());
    assert_eq!(std::fs::read(place.in_export("link")).unwrap(), b"the only copy");
}

#[test]
fn what_one_operand_has_made_another_does_not_replace() {
    let place = Place::new();
    for directory in ["one", "two", "target"] {
        std::fs::create_dir(place.in_export(directory)).unwrap();
        std::fs::write(place.in_export(directory).join("f"), directory).unwrap();
    }
    let output = place.run_on(&["cp"], &["one/f", "two/f", "one/f", "target"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("just-created"), "{}", said(&output));
    assert!(said(&output).contains("more than once"), "{}", said(&output));
    assert_eq!(std::fs::read(place.in_export("target/f")).unwrap(), b"one");
}

#[test]
fn a_slash_at_the_end_says_that_it_is_a_directory() {
    let place = Place::new();
    std::fs::write(place.in_export("a"), "a").unwrap();
    std::os::unix::fs::symlink("a", place.in_export("link")).unwrap();
    for command in ["cp", "mv"] {
        for paths in [["a/", "new"], ["a", "new/"], ["link/", "new"]] {
            let output = place.run_on(&[command], &paths);
            assert_eq!(output.status.code(), Some(1), "{command} {paths:?}");
            assert!(!place.in_export("new").exists(), "{command} {paths:?}");
        }
    }
    std::fs::create_dir(place.in_export("d")).unwrap();
    assert!(place.run_on(&["ln"], &["a", "d"]).status.success());
    assert!(place.in_export("d/a").exists());
}

#[test]
fn what_is_wrong_with_a_url_is_told_with_the_form_that_it_should_have() {
    for (url, what) in [("dafs://[::1/x", "lacks its ']'"), ("dafs://::1/x", "[::1]:2050")] {
        let output = dafs().args(["ls", url]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{url}");
        assert!(said(&output).contains(what), "{}", said(&output));
        assert!(said(&output).contains("write dafs://host[:port]/path"), "{}", said(&output));
    }
}

#[test]
fn output_that_nobody_takes_is_told() {
    let place = Place::new();
    std::fs::write(place.in_export("a"), "a").unwrap();
    for command in ["cat", "ls", "stat", "df"] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = dafs().arg(command).arg(place.url("a")).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{command}");
        assert!(said(&output).contains("No space left"), "{command}: {}", said(&output));
    }
    let out = std::fs::File::options().append(true).open(place.in_export("a")).unwrap();
    let output = dafs().arg("cat").arg(place.url("a")).stdout(out).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(std::fs::read(place.in_export("a")).unwrap(), b"a");
}

#[test]
fn output_that_nobody_takes_is_an_error_or_the_end_and_never_a_panic() {
    let place = Place::new();
    std::fs::write(place.in_export("file"), "bytes").unwrap();
    let socket = place.path("socket");
    let socket = socket.to_str().unwrap();
    let url = place.url("");
    let commands: [&[&str]; 6] = [
        &["completions", "bash"],
        &["ls", &url],
        &["locks", "--json", socket],
        &["sessions", socket],
        &["doctor", &url],
        &["gzip", "--list", &url],
    ];
    for command in commands {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = dafs().args(command).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{command:?}: {}", said(&output));
        assert!(said(&output).contains("No space left on device"), "{}", said(&output));
        assert_eq!(said(&output).lines().count(), 1, "{command:?}: {}", said(&output));
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = dafs().args(command).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{command:?}: {}", said(&output));
        assert_eq!(said(&output), "", "{command:?}");
    }
}
