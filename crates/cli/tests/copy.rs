//! Tests `dafs cp`: what it copies, what stays as it is, and what happens if the server is killed
//! and restarted during a copy.

use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};

use crate::place::Place;
use crate::program::{await_that, dafs};

impl Place {
    fn copy(&self, from: &str, to: &str) -> Child {
        dafs().args(["cp", "-r", from, to]).stderr(Stdio::piped()).spawn().unwrap()
    }
}

fn content(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 8 * 31 + seed) as u8 | 1).collect()
}

fn count(directory: &Path) -> usize {
    directory.read_dir().map_or(0, Iterator::count)
}

#[test]
fn what_a_killed_server_has_lost_is_copied_again() {
    let mut place = Place::new();
    std::fs::create_dir(place.path("tree")).unwrap();
    let length = |index: usize| if index.is_multiple_of(8) { 4 << 20 } else { index * 100 };
    for index in 0..FILES {
        let path = place.path("tree").join(index.to_string());
        std::fs::write(path, content(index, length(index))).unwrap();
    }
    let tree = place.path("tree");
    let copy = place.copy(tree.to_str().unwrap(), &place.url(""));
    let copied = place.path("export/tree");
    for enough in [FILES / 8, FILES / 2] {
        await_that("some files", || count(&copied) >= enough);
        place.kill_server();
        place.serve();
    }
    let output = copy.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for index in 0..FILES {
        let bytes = std::fs::read(copied.join(index.to_string())).unwrap();
        assert!(bytes == content(index, length(index)), "{index} differs");
    }
}

const FILES: usize = 200;

impl Place {
    fn served(&self, path: &str) -> PathBuf {
        self.path("export").join(path)
    }

    /// Returns the names of a served path: local, over shared memory, over TCP.
    fn spellings(&self, path: &str) -> [String; 3] {
        [self.served(path).to_str().unwrap().to_owned(), self.url(path), self.tcp_url(path)]
    }
}

fn cp(arguments: &[&str]) -> Output {
    dafs().arg("cp").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_tree_is_not_copied_onto_hard_links_of_its_own_files() {
    let place = Place::new();
    for directory in ["src/deep", "dst/deep"] {
        std::fs::create_dir_all(place.served(directory)).unwrap();
    }
    for name in ["src/f", "src/deep/f"] {
        std::fs::write(place.served(name), "the only copy").unwrap();
        std::fs::hard_link(place.served(name), place.served(&name.replace("src", "dst"))).unwrap();
    }
    // A link that would replace its own target.
    std::fs::write(place.served("dst/led-to"), "the only copy").unwrap();
    std::os::unix::fs::symlink("../dst/led-to", place.served("src/led-to")).unwrap();
    std::fs::write(place.served("src/other"), "another file").unwrap();
    for from in place.spellings("src/./") {
        for to in place.spellings("dst") {
            let output = cp(&["-r", &from, &to]);
            let said = said(&output);
            assert_eq!(output.status.code(), Some(1), "{from} {to}: {said}");
            assert_eq!(said.matches("are the same file").count(), 3, "{from} {to}: {said}");
            for name in ["src/f", "src/deep/f", "dst/f", "dst/led-to"] {
                let content = std::fs::read_to_string(place.served(name)).unwrap();
                assert_eq!(content, "the only copy", "{from} {to}: {name}");
            }
            assert_eq!(std::fs::read(place.served("dst/other")).unwrap(), b"another file");
            std::fs::remove_file(place.served("dst/other")).unwrap();
        }
    }
}

#[test]
fn a_single_file_is_not_copied_onto_any_name_of_its_own() {
    let place = Place::new();
    std::fs::create_dir(place.served("d")).unwrap();
    std::fs::write(place.served("f"), "the only copy").unwrap();
    std::fs::hard_link(place.served("f"), place.served("d/hard")).unwrap();
    std::os::unix::fs::symlink("../f", place.served("d/symbolic")).unwrap();
    for from in place.spellings("f") {
        for name in ["f", "d/../f", "d/hard", "d/symbolic"] {
            for to in place.spellings(name) {
                let output = cp(&[&from, &to]);
                assert_eq!(output.status.code(), Some(1), "{from} {to}");
                assert!(said(&output).contains("are the same file"), "{}", said(&output));
                let content = std::fs::read_to_string(place.served("f")).unwrap();
                assert_eq!(content, "the only copy", "{from} {to}");
            }
        }
    }
}

#[test]
fn a_directory_is_not_copied_into_itself_and_another_operand_is_copied_all_the_same() {
    let place = Place::new();
    std::fs::create_dir_all(place.served("d/below")).unwrap();
    std::fs::write(place.served("d/f"), "f").unwrap();
    std::fs::write(place.served("other"), "other").unwrap();
    for from in place.spellings("d") {
        for to in place.spellings("d/below") {
            let output = cp(&["-r", &from, &place.url("missing"), &place.url("other"), &to]);
            let said = said(&output);
            assert_eq!(output.status.code(), Some(1), "{from} {to}: {said}");
            assert!(said.contains("into itself") && said.contains("missing"), "{said}");
            assert!(!place.served("d/below/d").exists(), "{from} {to}");
            assert_eq!(std::fs::read(place.served("d/below/other")).unwrap(), b"other");
        }
    }
}

/// Denies others read access to a file until the returned process's input is closed.
fn locked(place: &Place, name: &str) -> Child {
    let mut holder = dafs();
    let mut holder = holder
        .args(["lock", &place.url(name), "--", "sh", "-c", "echo held; cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut [0; 5]).unwrap();
    holder
}

#[test]
fn a_source_that_cannot_be_read_leaves_nothing_and_its_name_to_the_next_one() {
    let place = Place::new();
    for directory in ["one", "two", "links", "into"] {
        std::fs::create_dir(place.served(directory)).unwrap();
    }
    std::fs::write(place.served("two/f"), "two").unwrap();
    std::fs::write(place.served("led-to"), "led to").unwrap();
    std::os::unix::fs::symlink("../led-to", place.served("links/f")).unwrap();
    for length in [1, 4 << 20] {
        std::fs::write(place.served("one/f"), content(1, length)).unwrap();
        let mut holder = locked(&place, "one/f");
        let into = place.spellings("into");
        let from = [place.url("one/f"), place.tcp_url("one/f")];
        for (from, into) in from.iter().flat_map(|from| into.iter().map(move |into| (from, into))) {
            let output = cp(&[from, &place.url("two/f"), into]);
            let told = said(&output);
            assert_eq!(output.status.code(), Some(1), "{from} {into}: {told}");
            assert!(!told.contains("just-created"), "{from} {into}: {told}");
            assert_eq!(std::fs::read(place.served("into/f")).unwrap(), b"two", "{from} {into}");
            std::fs::remove_file(place.served("into/f")).unwrap();
            let output = cp(&[from, &format!("{into}/alone")]);
            assert_eq!(output.status.code(), Some(1), "{from} {into}");
            assert_eq!(count(&place.served("into")), 0, "{from} {into}: {}", said(&output));
        }
        for into in place.spellings("links") {
            let output = cp(&["-r", &place.url("one/"), &into]);
            assert_eq!(output.status.code(), Some(1), "{into}");
            let link = place.served("links/f").read_link();
            assert_eq!(link.unwrap(), Path::new("../led-to"), "{into}: {}", said(&output));
        }
        drop(holder.stdin.take());
        assert!(holder.wait().unwrap().success());
    }
    assert_eq!(std::fs::read(place.served("led-to")).unwrap(), b"led to");
}

#[test]
fn a_source_that_cannot_be_read_does_not_empty_what_it_would_be_copied_over() {
    let place = Place::new();
    std::fs::write(place.served("locked"), "new").unwrap();
    std::fs::write(place.served("target"), "old").unwrap();
    let mut holder = locked(&place, "locked");
    let output = cp(&[&place.url("locked"), &place.url("target")]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert_eq!(std::fs::read(place.served("target")).unwrap(), b"old");
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    assert!(cp(&[&place.url("locked"), &place.url("target")]).status.success());
    assert_eq!(std::fs::read(place.served("target")).unwrap(), b"new");
}

#[test]
fn what_has_no_size_beforehand_is_copied_to_its_end() {
    let place = Place::new();
    let content = content(7, 3 << 20);
    let mut child = dafs()
        .args(["cp", "/dev/stdin", &place.url("piped")])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&content).unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success());
    assert!(std::fs::read(place.served("piped")).unwrap() == content);
    let fifo = place.path("fifo");
    make_fifo(&fifo);
    let mut child = dafs();
    let mut child = child.arg("cp").arg(&fifo).arg(place.url("from-fifo")).spawn().unwrap();
    std::fs::write(&fifo, &content).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(std::fs::read(place.served("from-fifo")).unwrap() == content);
    assert!(cp(&["--verify", "/proc/version", &place.url("version")]).status.success());
    let version = std::fs::read("/proc/version").unwrap();
    assert_eq!(std::fs::read(place.served("version")).unwrap(), version);
    // Copy out again into a pipe, whose mode and times are not changed.
    let output = cp(&[&place.url("piped"), "/dev/stdout"]);
    assert!(output.status.success() && output.stdout == content, "{}", said(&output));
}

#[test]
fn special_files_come_along_with_a_tree_and_nothing_is_left_out_in_silence() {
    let place = Place::new();
    std::fs::create_dir(place.path("tree")).unwrap();
    make_fifo(&place.path("tree/fifo"));
    let _socket = std::os::unix::net::UnixListener::bind(place.path("tree/socket")).unwrap();
    let tree = place.path("tree");
    let back = place.path("back");
    // Twice: the second time, existing objects are replaced.
    for _ in 0..2 {
        for (from, to) in [
            (tree.to_str().unwrap().to_owned() + "/", place.url("tree")),
            (place.url("tree/"), place.tcp_url("again")),
            (place.tcp_url("again/"), back.to_str().unwrap().to_owned()),
        ] {
            let output = cp(&["-r", "--verify", &from, &to]);
            assert!(output.status.success(), "{from} {to}: {}", said(&output));
        }
        assert_eq!(count(&back), 2);
        let kind = |name: &str| back.join(name).symlink_metadata().unwrap().file_type();
        assert!(kind("fifo").is_fifo() && kind("socket").is_socket());
        assert_eq!(back.join("fifo").metadata().unwrap().mode(), 0o10640);
    }
    let output = cp(&[&place.url("tree/fifo"), place.path("alone").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("named pipe"), "{}", said(&output));
    let output = cp(&["-r", "/dev/null", &place.url("null")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("character device"), "{}", said(&output));
}

#[test]
fn a_copy_into_a_pipe_that_nobody_reads_to_its_end_is_no_success() {
    let place = Place::new();
    std::fs::write(place.served("large"), content(1, 8 << 20)).unwrap();
    let fifo = place.path("fifo");
    make_fifo(&fifo);
    let mut child = dafs();
    let child = child.arg("cp").arg(place.url("large")).arg(&fifo).stderr(Stdio::piped());
    let child = child.spawn().unwrap();
    let mut reader = std::fs::File::open(&fifo).unwrap();
    std::io::Read::read_exact(&mut reader, &mut [0; 1000]).unwrap();
    drop(reader);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("has closed the pipe"), "{}", said(&output));
}

fn make_fifo(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, chmod, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    chmod(path, Mode::from_bits_retain(0o640)).unwrap();
}
