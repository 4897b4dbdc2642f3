//! Compares `dafs sort` and `dafs merge` with sort(1) and the standard library, locally and over
//! every transport.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::place::Place;
use crate::program::{await_that, dafs};
use rustix::process::{Pid, Signal, kill_process};

/// A generator of the same numbers every time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Generates all kinds of lines: empty, long, with few repeated words, with numbers, with all
    /// bytes.
    fn text(&mut self, bytes: usize) -> Vec<u8> {
        let words = ["", "a", "B", "ab c", " lead", "x\ty", "Zz:y:x", "10 9", "9 10", "-3.50 z"];
        let mut text = Vec::new();
        while text.len() < bytes {
            match self.below(8) {
                0 => {}
                1 => text.extend(words[self.below(10) as usize].bytes()),
                2 => text.extend(format!("{}.{}", self.below(200), self.below(50)).bytes()),
                3 => text.extend(format!("  -{} {}", self.below(30), self.below(9)).bytes()),
                4 => text.extend((0..self.below(40)).map(|_| (self.next() % 255 + 1) as u8)),
                5 if self.below(2000) == 0 => text.resize(text.len() + 300_000, b'y'),
                _ => {
                    let three = [self.below(9), self.below(1 << 40), self.below(3)];
                    text.extend(format!("{}:{}:{}", three[0], three[1], three[2]).bytes());
                }
            }
            text.push(b'\n');
        }
        text
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the output of sort(1) for these files.
fn reference(arguments: &[&str], files: &[&str]) -> Vec<u8> {
    let mut sort = Command::new("sort");
    let output = sort.env("LC_ALL", "C").args(arguments).args(files).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    output.stdout
}

fn run(verb: &str, arguments: &[&str], files: &[&str], output: &str) -> Output {
    let mut command = dafs();
    command.arg(verb).args(arguments).args(files).args(["--output", output]);
    command.stdin(Stdio::null()).output().unwrap()
}

fn ok(verb: &str, arguments: &[&str], files: &[&str], output: &str) -> String {
    let done = run(verb, arguments, files, output);
    assert!(done.status.success(), "{arguments:?}: {}", text(&done.stderr));
    text(&done.stderr)
}

fn fails(verb: &str, arguments: &[&str], files: &[&str], output: &str) -> String {
    let done = run(verb, arguments, files, output);
    assert_eq!(done.status.code(), Some(1), "{arguments:?}: {done:?}");
    text(&done.stderr)
}

fn names(directory: &Path) -> Vec<String> {
    let entries = directory.read_dir().unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Options that both programs support.
const CASES: [&[&str]; 14] = [
    &[],
    &["-r"],
    &["-u"],
    &["-n"],
    &["-n", "-r", "-u"],
    &["-n", "-s"],
    &["-b", "-u"],
    &["-t", ":", "-k", "2,2n", "-k", "1,1r"],
    &["-t", ":", "-k", "3"],
    &["-k", "2"],
    &["-k", "2b,2.3b", "-s"],
    &["-k", "1.2,1.4r", "-r"],
    &["-t", ":", "-k", "1,1n", "-u"],
    &["-z", "-k", "2,2n"],
];

#[test]
fn lines_are_sorted_as_sort_does() {
    let place = Place::new();
    let mut bytes = Numbers(7).text(400_000);
    // The last line need not end with a newline.
    bytes.pop();
    let (first, second) = (place.path("export/first"), place.path("export/second"));
    std::fs::write(&first, bytes).unwrap();
    std::fs::write(&second, "z\n\na\n").unwrap();
    let local = [first.to_str().unwrap(), second.to_str().unwrap()];
    let ways = [
        (local.map(str::to_owned), place.path("sorted").to_str().unwrap().to_owned()),
        (["first", "second"].map(|name| place.url(name)), place.url("sorted")),
        (["first", "second"].map(|name| place.tcp_url(name)), place.tcp_url("sorted")),
    ];
    for arguments in CASES {
        let expected = reference(arguments, &local);
        for (files, output) in &ways {
            let files = [files[0].as_str(), files[1].as_str()];
            ok("sort", arguments, &files, output);
            let inside = if output.contains("://") { "export/sorted" } else { "sorted" };
            let sorted = std::fs::read(place.path(inside)).unwrap();
            assert!(sorted == expected, "{arguments:?} to {output} differs");
        }
    }
    assert_eq!(names(&place.path("export")), ["first", "second", "sorted"]);
}

#[test]
fn sorted_files_are_merged_as_sort_does() {
    let place = Place::new();
    let mut numbers = Numbers(11);
    for arguments in CASES.iter().filter(|arguments| !arguments.contains(&"-z")) {
        let local: Vec<String> = (0..5)
            .map(|index| {
                let path = place.path(&format!("export/{index}"));
                std::fs::write(&path, numbers.text(20_000 * index)).unwrap();
                let sorted = reference(arguments, &[path.to_str().unwrap()]);
                std::fs::write(&path, sorted).unwrap();
                path.to_str().unwrap().to_owned()
            })
            .collect();
        let local: Vec<&str> = local.iter().map(String::as_str).collect();
        let expected = reference(&[&["-m"], *arguments].concat(), &local);
        // Local and remote files, with the output next to them.
        let mut files: Vec<String> = (0..5).map(|index| place.url(&index.to_string())).collect();
        files[1] = place.tcp_url("1");
        files[2] = local[2].to_owned();
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        for way in [&["--depth", "3"][..], &["--synchronous", "--block", "4K"]] {
            ok("merge", &[*arguments, way].concat(), &files, &place.tcp_url("merged"));
            let merged = std::fs::read(place.path("export/merged")).unwrap();
            assert!(merged == expected, "{arguments:?} {way:?} differs");
        }
    }
}

#[test]
fn records_are_sorted_by_their_keys() {
    let place = Place::new();
    let mut numbers = Numbers(3);
    let bytes: Vec<u8> =
        (0..30_000).flat_map(|_| (numbers.next() & 0x3f_ff3f_ff3f_ff3f).to_le_bytes()).collect();
    std::fs::write(place.path("export/records"), &bytes).unwrap();
    let expected = |order: &dyn Fn(&[u8; 24], &[u8; 24]) -> std::cmp::Ordering| {
        let mut all: Vec<&[u8; 24]> = bytes.as_chunks::<24>().0.iter().collect();
        all.sort_by(|left, right| order(left, right));
        all.into_iter().flatten().copied().collect::<Vec<u8>>()
    };
    let number = |record: &[u8; 24]| i16::from_be_bytes([record[5], record[6]]);
    let float = |record: &[u8; 24]| f64::from_le_bytes(record[8..16].try_into().unwrap());
    let cases = [
        ("3:10", expected(&|a, b| a[3..13].cmp(&b[3..13]))),
        ("5:2:i:be:r", expected(&|a, b| number(b).cmp(&number(a)))),
        ("8:8:f:le", expected(&|a, b| float(a).total_cmp(&float(b)))),
        ("0:24:b:r", expected(&|a, b| b.cmp(a))),
    ];
    for (key, expected) in cases {
        for url in [place.url("records"), place.tcp_url("records")] {
            ok("sort", &["--record", "24", "--key", key], &[&url], &place.url("sorted"));
            let sorted = std::fs::read(place.path("export/sorted")).unwrap();
            assert!(sorted == expected, "{key} of {url} differs");
        }
    }
}

#[test]
fn a_file_may_be_sorted_onto_itself() {
    let place = Place::new();
    let path = place.path("export/file");
    std::fs::write(&path, "b\na\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o640);
    std::fs::set_permissions(&path, mode).unwrap();
    std::os::unix::fs::symlink("file", place.path("export/link")).unwrap();
    ok("sort", &["--sync"], &[&place.url("file")], &place.url("link"));
    assert_eq!(std::fs::read(&path).unwrap(), b"a\nb\n");
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&metadata) & 0o777, 0o640);
    assert!(place.path("export/link").is_symlink());
    let local = path.to_str().unwrap();
    ok("sort", &["-r"], &[local], place.path("export/link").to_str().unwrap());
    assert_eq!(std::fs::read(&path).unwrap(), b"b\na\n");
    assert!(place.path("export/link").is_symlink());
}

/// The input is eight times the limit. The kernel's count of the process's memory must not exceed
/// the limit.
#[test]
fn the_limit_of_memory_is_kept() {
    let place = Place::new();
    let mut numbers = Numbers(5);
    let mut bytes = Vec::with_capacity(LIMIT_MIB * (8 << 20));
    while bytes.len() < LIMIT_MIB * (8 << 20) {
        bytes.extend(numbers.next().to_be_bytes());
        bytes.resize(bytes.len().next_multiple_of(128), 0);
    }
    std::fs::write(place.path("export/large"), &bytes).unwrap();
    let mut expected: Vec<&[u8; 128]> = bytes.as_chunks::<128>().0.iter().collect();
    expected.sort_unstable();
    let limit = format!("{LIMIT_MIB}M");
    for (from, to) in [("large", place.url("sorted")), ("large", place.tcp_url("sorted"))] {
        let url = to.replace("sorted", from);
        let options = ["--record", "128", "--key", "0:8", "--memory", &limit];
        let report = ok("sort", &options, &[&url], &to);
        let peak: usize = report
            .rsplit_once("; ")
            .and_then(|(_, rest)| rest.split(' ').next()?.parse().ok())
            .unwrap_or_else(|| panic!("no peak in {report}"));
        assert!(peak <= LIMIT_MIB, "{report}");
        let sorted = std::fs::read(place.path("export/sorted")).unwrap();
        let sorted = sorted.as_chunks::<128>().0.iter();
        assert!(sorted.eq(expected.iter().copied()), "{to} differs");
    }
}

const LIMIT_MIB: usize = 32;

#[test]
fn mistakes_are_named_and_leave_nothing() {
    let place = Place::new();
    std::fs::write(place.path("export/file"), "b\na\n").unwrap();
    let (file, output) = (place.url("file"), place.url("output"));
    let of = |verb: &str, arguments: &[&str]| fails(verb, arguments, &[&file], &output);
    assert!(of("merge", &[]).contains("file is not sorted: record 2 belongs before"));
    assert!(of("sort", &["--record", "3"]).contains("4 bytes, which is not a multiple"));
    assert!(of("sort", &["-k", "0:4:u"]).contains("give --record"));
    assert!(of("sort", &["--record", "4", "-k", "2:4"]).contains("within a record of 4 bytes"));
    assert!(of("sort", &["--memory", "1M"]).contains("raise the memory limit"));
    let error = fails("sort", &[], &[&place.url("missing")], &output);
    assert!(error.contains("opening /missing") && error.contains("no such"), "{error}");
    let error = fails("sort", &[], &[&file], &place.url("nowhere/output"));
    assert!(error.contains("making /nowhere/output"), "{error}");
    assert_eq!(names(&place.path("export")), ["file"]);
}

#[test]
fn a_full_disk_is_told() {
    let mut place = Place::new();
    place.kill_server();
    place.serve_memory("4M");
    let path = place.path("file");
    std::fs::write(&path, Numbers(1).text(8 << 20)).unwrap();
    let error = fails("sort", &[], &[path.to_str().unwrap()], &place.url("sorted"));
    assert!(error.contains("sorted") && error.contains("no space"), "{error}");
    let listed = dafs().args(["ls", &place.url("")]).output().unwrap();
    assert_eq!(text(&listed.stdout), "");
}

/// Waits for the output's temporary file. Other temporary files have no names.
fn await_part(place: &Place) {
    await_that("the output is begun", || {
        names(&place.path("export")).iter().any(|name| name.starts_with(".dafs-part-"))
    });
}

#[test]
fn a_signal_ends_the_work_in_order() {
    let place = Place::new();
    std::fs::write(place.path("export/file"), Numbers(2).text(64 << 20)).unwrap();
    for output in [place.url("sorted"), place.path("export/sorted").to_str().unwrap().to_owned()] {
        let mut command = dafs();
        command.args(["sort", "-n", &place.url("file"), "--output", &output]);
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        await_part(&place);
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let done = child.wait_with_output().unwrap();
        assert_eq!(done.status.code(), Some(1), "{done:?}");
        assert!(text(&done.stderr).contains("interrupted"), "{done:?}");
        assert_eq!(names(&place.path("export")), ["file"]);
    }
}

/// A server that restarts has lost the files without a name. The sort reports that and removes its
/// partial output.
#[test]
fn a_restart_of_the_server_fails_a_sort_or_changes_nothing() {
    let mut place = Place::new();
    let path = place.path("export/file");
    std::fs::write(&path, Numbers(4).text(64 << 20)).unwrap();
    let mut command = dafs();
    command.args(["sort", "--memory", "40M", &place.url("file"), "--output", &place.url("sorted")]);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    await_part(&place);
    place.kill_server();
    place.serve();
    let done = child.wait_with_output().unwrap();
    assert!(text(&done.stderr).contains("reconnecting"), "{done:?}");
    if done.status.success() {
        let expected = reference(&[], &[path.to_str().unwrap()]);
        assert!(std::fs::read(place.path("export/sorted")).unwrap() == expected);
    } else {
        let errors = text(&done.stderr);
        assert!(errors.contains("a temporary file in /") || errors.contains("sorted"), "{errors}");
        assert_eq!(names(&place.path("export")), ["file"]);
    }
}

#[test]
fn what_has_no_size_beforehand_is_sorted_to_its_end() {
    let place = tempfile::tempdir().unwrap();
    let output = place.path().join("sorted");
    let fifo = place.path().join("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let lines: String = (0..200_000).rev().map(|number| format!("{number:06}\n")).collect();
    let mut expected: Vec<&str> = lines.lines().collect();
    expected.sort_unstable();
    let expected = expected.join("\n") + "\n";
    for input in ["fifo", "-"] {
        std::fs::write(&output, "what was there").unwrap();
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_dafs"))
            .args(["sort", input, "-o"])
            .arg(&output)
            .current_dir(&place)
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        if input == "-" {
            std::io::Write::write_all(&mut stdin, lines.as_bytes()).unwrap();
        } else {
            std::fs::write(&fifo, &lines).unwrap();
        }
        drop(stdin);
        assert!(child.wait().unwrap().success(), "{input}");
        assert!(std::fs::read_to_string(&output).unwrap() == expected, "{input}");
    }
    let mut told = std::process::Command::new(env!("CARGO_BIN_EXE_dafs"));
    let told = told.args(["sort", "/proc/filesystems", "-o"]).arg(&output).output().unwrap();
    assert!(told.status.success(), "{told:?}");
    let all = std::fs::read_to_string("/proc/filesystems").unwrap();
    let mut expected: Vec<&str> = all.lines().collect();
    expected.sort_unstable();
    assert_eq!(std::fs::read_to_string(&output).unwrap(), expected.join("\n") + "\n");
}
