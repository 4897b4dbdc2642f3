//! Tests the applications as a user runs them: `dafs gzip` compared with GNU gzip, `dafs postmark`,
//! and small versions of every figure of the papers.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use dafs_tests::Required;

fn dafs() -> Command {
    Command::new(env!("CARGO_BIN_EXE_dafs"))
}

/// A served directory, and the URLs of its root over shared memory and TCP.
struct Served {
    server: Child,
    directory: tempfile::TempDir,
    urls: [String; 2],
}

impl Served {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("export")).unwrap();
        let mut server = dafs()
            .arg("serve")
            .arg(directory.path().join("export"))
            .args(["--tcp", "127.0.0.1:0", "--anonymous"])
            .arg(format!(
                "{}:{}",
                rustix::process::getuid().as_raw(),
                rustix::process::getgid().as_raw()
            ))
            .args(["--squash", "none", "--while-stdin", "--socket"])
            .arg(directory.path().join("socket"))
            .arg("--state")
            .arg(directory.path().join("state"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let tcp = line.split(' ').find_map(|word| word.trim().strip_prefix("tcp:")).expect(&line);
        let shm = format!("dafs+shm://{}!", directory.path().join("socket").display());
        let urls = [shm, format!("dafs://{tcp}")];
        Self { server, directory, urls }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("export").join(name)
    }

    /// Returns the names in the directory, among which must be no leftovers.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.server.stdin.take();
        let _ = self.server.wait();
    }
}

fn run(arguments: &[&str]) -> Output {
    dafs().args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn ok(arguments: &[&str]) -> Vec<u8> {
    let output = run(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "dafs {arguments:?}: {said}");
    output.stdout
}

/// Returns the error of a command that must fail.
fn refused(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(!output.status.success(), "dafs {arguments:?} should have failed");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns GNU gzip's output for this input.
fn gnu(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("gzip")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "gzip {arguments:?}");
    output.stdout
}

/// Returns bytes with some repetition.
fn content(length: usize) -> Vec<u8> {
    let mut state = 7_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 16
    };
    let mut content = Vec::with_capacity(length + 8);
    while content.len() < length {
        let number = next();
        let text = format!("{} ", if number % 3 == 0 { number } else { number % 10 });
        content.extend(text.into_bytes());
    }
    content.truncate(length);
    content
}

#[test]
fn files_go_to_gnu_gzip_and_back_over_every_transport() {
    let served = Served::start();
    for (index, url) in served.urls.iter().enumerate() {
        for (length, workers) in [(0, "1"), (5, "3"), (3_000_001, "1"), (2_000_000, "2")] {
            let plain = content(length);
            let name = format!("file-{index}-{length}");
            let path = served.path(&name);
            std::fs::write(&path, &plain).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
            let modified = SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 123_000_000);
            std::fs::File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_modified(modified)
                .unwrap();

            let remote = format!("{url}/{name}");
            ok(&["gzip", "--workers", workers, &remote]);
            assert!(!path.exists(), "the input goes when its output is there");
            let packed = served.path(&format!("{name}.gz"));
            let bytes = std::fs::read(&packed).unwrap();
            assert!(gnu(&["-dc"], &bytes) == plain, "GNU gzip finds what was compressed");
            let metadata = packed.metadata().unwrap();
            assert_eq!(metadata.mode() & 0o7777, 0o640);
            assert_eq!(metadata.modified().unwrap(), modified);
            // The name and the time are where RFC 1952 specifies.
            assert_eq!(bytes[4..8], 1_234_567_890_u32.to_le_bytes());
            assert_eq!(&bytes[10..10 + name.len()], name.as_bytes());

            // Output of GNU gzip can be decompressed; here it has several members.
            let halves = plain.split_at(length / 2);
            let theirs = [gnu(&["-9"], halves.0), gnu(&["-1"], halves.1)].concat();
            std::fs::write(&packed, theirs).unwrap();
            ok(&["gunzip", "--keep", &format!("{remote}.gz")]);
            assert!(std::fs::read(&path).unwrap() == plain, "{name}");
            assert!(ok(&["gzip", "-dc", &format!("{remote}.gz")]) == plain, "{name}");
            std::fs::remove_file(packed).unwrap();
            std::fs::remove_file(path).unwrap();
        }
    }
    assert_eq!(served.names(), Vec::<String>::new());
}

#[test]
fn manners_are_those_of_gzip() {
    let served = Served::start();
    let place = tempfile::tempdir().unwrap();
    let plain = content(100_000);
    let local = place.path().join("file").display().to_string();
    std::fs::write(&local, &plain).unwrap();
    for url in [format!("{}/file", served.urls[0]), local] {
        if url.starts_with("dafs") {
            std::fs::write(served.path("file"), &plain).unwrap();
        }
        let packed = format!("{url}.gz");
        ok(&["gzip", "-k", &url]);
        // An existing file stays.
        let said = refused(&["gzip", "-k", &url]);
        assert!(said.contains("--force"), "{said}");
        ok(&["gzip", "-k", "-f", "-9", &url]);
        let said = refused(&["gunzip", "-k", &packed]);
        assert!(said.contains("exists already"), "{said}");
        ok(&["gzip", "-t", &packed]);
        let listed = String::from_utf8(ok(&["gzip", "-l", &packed])).unwrap();
        assert!(listed.contains(" 100000 "), "{listed}");
        // A file without the suffix is skipped with a warning.
        let warned = run(&["gunzip", &url]);
        assert_eq!(warned.status.code(), Some(2), "{}", String::from_utf8_lossy(&warned.stderr));
        assert_eq!(run(&["gzip", "-k", &packed]).status.code(), Some(2));
        // From one place to another.
        let other = place.path().join("other").display().to_string();
        ok(&["gunzip", "--output", &other, &packed]);
        assert_eq!(std::fs::read(&other).unwrap(), plain);
        std::fs::remove_file(&other).unwrap();
        ok(&["gunzip", "-f", &packed]);
    }
    let said = refused(&["gzip", place.path().to_str().unwrap()]);
    assert!(said.contains("directory"), "{said}");
    assert!(refused(&["gzip", &format!("{}/none", served.urls[1])]).contains("none"));
    assert_eq!(served.names(), ["file"]);
}

#[test]
fn what_was_saved_and_what_it_took_is_told_on_request() {
    let served = Served::start();
    let url = format!("{}/file", served.urls[1]);
    for workers in ["1", "3"] {
        std::fs::write(served.path("file"), content(1 << 20)).unwrap();
        let told = run(&["gzip", "-v", "--workers", workers, &url]);
        let told = String::from_utf8_lossy(&told.stderr).into_owned();
        // FILE: SHARE% saved; processor: compressing SECONDS s, else SECONDS s
        let figures = told.strip_prefix(&format!("{url}: ")).expect(&told);
        let figure = |what: &str| {
            let word = figures.split(what).nth(1).expect(&told).split([' ', '%']).next();
            word.unwrap().parse::<f64>().expect(&told)
        };
        assert!(figure("compressing ") > 0.0 && figure("else ") > 0.0, "{told}");
        let (plain, packed) = (1_048_576.0, std::fs::read(served.path("file.gz")).unwrap().len());
        let saved: f64 = figures.split('%').next().unwrap().parse().expect(&told);
        assert!((saved - (100.0 - 100.0 * packed as f64 / plain)).abs() < 0.1, "{told}");
        let told = run(&["gunzip", "-v", &format!("{url}.gz")]);
        let told = String::from_utf8_lossy(&told.stderr).into_owned();
        assert!(told.contains(&format!(": {saved:.1}% had been saved; processor: ")), "{told}");
    }
}

#[test]
fn standard_input_goes_through() {
    let plain = content(300_000);
    let pass = |arguments: &[&str], input: &[u8]| {
        let mut child =
            dafs().args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert!(output.status.success());
        output.stdout
    };
    let packed = pass(&["gzip", "-1"], &plain);
    assert_eq!(gnu(&["-dc"], &packed), plain);
    assert_eq!(pass(&["gunzip"], &gnu(&[], &plain)), plain);
}

#[test]
fn whatever_signal_ends_gzip_nothing_half_is_left_behind() {
    use rustix::process::{Pid, Signal, kill_process};
    let served = Served::start();
    let output = format!("{}/out.gz", served.urls[0]);
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM] {
        let mut gzip = dafs();
        gzip.args(["gzip", "--output", &output]).stdin(Stdio::piped()).stderr(Stdio::null());
        let mut gzip = gzip.spawn().unwrap();
        crate::program::await_that("an output is begun", || !served.names().is_empty());
        let _stdin = gzip.stdin.take();
        kill_process(Pid::from_child(&gzip), signal).unwrap();
        assert_eq!(gzip.wait().unwrap().code(), Some(1), "{signal:?}");
        assert!(served.names().is_empty(), "{signal:?}: {:?}", served.names());
    }
}

#[test]
fn what_is_cut_or_corrupt_is_told_and_leaves_nothing_behind() {
    let served = Served::start();
    let packed = gnu(&[], &content(200_000));
    let mut corrupt = packed.clone();
    let middle = corrupt.len() / 2;
    corrupt[middle] ^= 0x55;
    for url in &served.urls {
        for (bytes, expected) in
            [(&packed[..middle], "cut off"), (&corrupt[..], "byte"), (b"text", "not a gzip file")]
        {
            std::fs::write(served.path("bad.gz"), bytes).unwrap();
            for task in ["gunzip", "gzip"] {
                let more: &[&str] = if task == "gzip" { &["-t"] } else { &[] };
                let file = format!("{url}/bad.gz");
                let said = refused(&[&[task], more, &[&file]].concat());
                assert!(said.contains(expected) && said.contains("byte"), "{said}");
                assert!(said.contains("bad.gz"), "{said}");
            }
            assert_eq!(served.names(), ["bad.gz"]);
        }
    }
    // Trailing garbage is ignored with a warning.
    std::fs::write(served.path("bad.gz"), [&packed[..], b"garbage"].concat()).unwrap();
    let warned = run(&["gunzip", &format!("{}/bad.gz", served.urls[0])]);
    assert_eq!(warned.status.code(), Some(2));
    assert_eq!(std::fs::read(served.path("bad")).unwrap(), content(200_000));
}

#[test]
fn what_gzip_leaves_alone_is_left_alone_here_and_on_servers() {
    let served = Served::start();
    let mode = |name: &str, mode: u32| {
        std::fs::set_permissions(served.path(name), PermissionsExt::from_mode(mode)).unwrap();
    };
    std::fs::write(served.path("target"), content(1000)).unwrap();
    std::os::unix::fs::symlink("target", served.path("link")).unwrap();
    for (name, bits) in [("owner", 0o4755), ("group", 0o2755), ("sticky", 0o1644)] {
        std::fs::write(served.path(name), content(1000)).unwrap();
        mode(name, bits);
    }
    std::fs::write(served.path("hard"), content(1000)).unwrap();
    std::fs::hard_link(served.path("hard"), served.path("harder")).unwrap();
    std::fs::create_dir(served.path("directory")).unwrap();
    let before = served.names();
    let here = served.path("").to_str().unwrap().trim_end_matches('/').to_owned();
    for place in served.urls.iter().chain([&here]) {
        for (name, code) in
            [("link", 1), ("owner", 2), ("group", 2), ("sticky", 2), ("hard", 2), ("directory", 2)]
        {
            for keep in [&[][..], &["-k"]] {
                let file = format!("{place}/{name}");
                let output = run(&[&["gzip"], keep, &[&file]].concat());
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert_eq!(output.status.code(), Some(code), "{file}: {said}");
                assert!(said.contains(name), "{file}: {said}");
                assert_eq!(served.names(), before, "{file}");
            }
            // Its bytes can still be compressed to standard output.
            if name != "directory" {
                ok(&["gzip", "-c", &format!("{place}/{name}")]);
            }
        }
    }
}

#[test]
fn a_name_without_its_suffix_is_found_and_what_is_no_gzip_file_can_be_handed_through() {
    let served = Served::start();
    let here = served.path("").to_str().unwrap().trim_end_matches('/').to_owned();
    for place in served.urls.iter().chain([&here]) {
        for suffix in [".gz", "-gz"] {
            std::fs::write(served.path(&format!("f{suffix}")), gnu(&["-c"], b"bytes")).unwrap();
            ok(&["gunzip", &format!("{place}/f")]);
            assert_eq!(served.names(), ["f"]);
            assert_eq!(ok(&["gunzip", "-cf", &format!("{place}/f")]), b"bytes");
            assert_eq!(std::fs::read(served.path("f")).unwrap(), b"bytes");
            assert!(refused(&["gunzip", "-c", &format!("{place}/f")]).contains("not a gzip file"));
            std::fs::remove_file(served.path("f")).unwrap();
        }
        assert!(refused(&["gunzip", &format!("{place}/f")]).contains('f'));
    }
}

#[test]
fn postmark_does_the_same_work_everywhere() {
    let served = Served::start();
    let place = tempfile::tempdir().unwrap();
    let numbers = [
        "--files",
        "30",
        "--transactions",
        "100",
        "--directories",
        "3",
        "--size",
        "2K-16K",
        "--in-flight",
        "4",
        "--json",
    ];
    let work = |place: &str, more: &[&str]| {
        let said = ok(&[&["postmark", place], &numbers[..], more].concat());
        let outcome: serde_json::Value = serde_json::from_slice(&said).unwrap();
        assert!(outcome["transactions_per_second"].as_f64().unwrap() > 0.0);
        outcome["work"].clone()
    };
    let local = work(place.path().to_str().unwrap(), &[]);
    assert_eq!(local["transactions"], 100);
    assert_eq!(local["created"], local["removed"]);
    for url in &served.urls {
        assert_eq!(work(url, &[]), local);
        assert_eq!(work(url, &["--stable"]), local);
        assert_eq!(work(url, &["--spin", "200"]), local);
    }
    assert_ne!(work(&served.urls[0], &["--seed", "2"]), local);
    assert_eq!(served.names(), Vec::<String>::new());
    let said = refused(&["postmark", &served.urls[0], "--files", "3"]);
    assert!(said.contains("too few"), "{said}");
    let said = refused(&["postmark", &served.urls[0], "--spin", "2s"]);
    assert!(said.contains("--spin") && said.contains("2s"), "{said}");
}

/// Ensures that the command, the peers and the plots keep working. The figures mean nothing.
#[test]
fn every_figure_is_drawn_in_little() {
    let place = tempfile::tempdir().unwrap();
    let figures = place.path().join("figures");
    let output = dafs()
        .args(["bench", "figures", "--tiny", "--output"])
        .arg(&figures)
        .env("DAFS_PRELOAD_LIBRARY", crate::preloaded::library())
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    assert!(output.status.success(), "{said}");
    let report = |name: &str| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(figures.join(name)).unwrap()).expect(name)
    };
    for plot in [
        "figure-4-throughput-synchronous.svg",
        "figure-5-throughput-in-flight.svg",
        "figure-6-client-cpu-synchronous.svg",
        "figure-7-client-cpu-in-flight.svg",
        "figure-8-gzip.svg",
        "figure-8-gzip-cpu.svg",
        "merge-order-2.svg",
        "merge-order-4.svg",
        "postmark.svg",
    ] {
        let drawn = std::fs::read_to_string(figures.join(plot)).expect(plot);
        assert!(drawn.contains("<svg") && drawn.contains("shm"), "{plot}");
    }
    let (gzip, postmark) = (report("gzip.json"), report("postmark.json"));
    assert!(gzip["compressed"].as_u64().unwrap() > 0);
    assert!(postmark["checksum"].as_u64().unwrap() > 0);
    let shows = |report: &serde_json::Value, who: &str| {
        report["rows"].as_array().unwrap().iter().any(|row| row["who"] == who)
    };
    assert!(shows(&gzip, "dafs gzip, tcp") && shows(&postmark, "dafs shm, journal"), "{said}");
    if Required::Peers.is_set() {
        let blocks = report("bench.json");
        for depth in [1, 32] {
            let is_read = |figure: &serde_json::Value| {
                figure["peer"] == "libnfs" && figure["kind"] == "read" && figure["depth"] == depth
            };
            let mut figures = blocks["figures"].as_array().unwrap().iter();
            let figure = figures.find(|figure| is_read(figure)).expect(&said);
            assert!(figure["throughput"].as_f64().unwrap() > 0.0, "{figure}");
            assert!(figure["server_cpu_us"].is_f64(), "{figure}");
        }
        for (plot, line) in [
            ("figure-4-throughput-synchronous.svg", "libnfs read x1"),
            ("figure-5-throughput-in-flight.svg", "libnfs read x32"),
            ("figure-6-client-cpu-synchronous.svg", "libnfs read x1"),
            ("figure-7-client-cpu-in-flight.svg", "libnfs read x32"),
        ] {
            let drawn = std::fs::read_to_string(figures.join(plot)).expect(plot);
            assert!(drawn.contains(line), "{plot}");
        }
        assert!(shows(&gzip, "GNU gzip, libnfs") && shows(&postmark, "libnfs"), "{said}");
    }
    if Required::Faces.is_set() {
        assert!(shows(&gzip, "GNU gzip, dafs mount"), "{said}");
    }
}

/// Ensures that the plots are redrawn after a change of their appearance: `dafs bench figures
/// --redraw`.
#[test]
fn the_plots_of_the_documentation_are_what_their_numbers_draw() {
    let kept = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/figures");
    let place = tempfile::tempdir().unwrap();
    let files = |ending: &str| -> Vec<std::path::PathBuf> {
        let all = std::fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().path());
        all.filter(|path| path.extension().is_some_and(|found| found == ending)).collect()
    };
    for numbers in files("json") {
        std::fs::copy(&numbers, place.path().join(numbers.file_name().unwrap())).unwrap();
    }
    let said = ok(&["bench", "figures", "--redraw", "--output", place.path().to_str().unwrap()]);
    let said = String::from_utf8(said).unwrap();
    let plots: Vec<_> =
        files("svg").into_iter().filter(|path| !path.ends_with("top.svg")).collect();
    assert_eq!(said.lines().count(), plots.len(), "{said}");
    for plot in plots {
        let name = plot.file_name().unwrap();
        let drawn = std::fs::read_to_string(place.path().join(name)).unwrap();
        let committed = std::fs::read_to_string(&plot).unwrap();
        assert!(drawn == committed, "{} is not what its numbers draw", plot.display());
        // Such as 10000.0 at an axis.
        assert!(!drawn.lines().any(|line| line.ends_with(".0")), "{}", plot.display());
    }
}

#[test]
fn where_there_are_no_numbers_nothing_is_drawn_again() {
    let place = tempfile::tempdir().unwrap();
    let redraw = |place: &str| refused(&["bench", "figures", "--redraw", "--output", place]);
    let said = redraw(place.path().to_str().unwrap());
    assert!(said.contains("no numbers") && said.contains("--output"), "{said}");
    std::fs::write(place.path().join("bench.json"), r#"{"figures": 1}"#).unwrap();
    let said = redraw(place.path().to_str().unwrap());
    assert!(said.contains("bench.json"), "{said}");
}

/// The cost of one file is the same in every run. A machine under load can add to the counts of one
/// run, but a change of the cost is in each of them.
#[test]
fn what_a_small_file_costs_is_counted() {
    for _ in 1..3 {
        if std::panic::catch_unwind(count_small_files).is_ok() {
            return;
        }
    }
    count_small_files();
}

fn count_small_files() {
    let place = tempfile::tempdir().unwrap();
    let output = place.path().join("figures");
    let said = dafs()
        .args(["bench", "small-files", "--files", "120", "--rounds", "1", "--place"])
        .arg(place.path())
        .arg("--output")
        .arg(&output)
        .output()
        .unwrap();
    let told = String::from_utf8([said.stdout, said.stderr].concat()).unwrap();
    assert!(said.status.success(), "{told}");
    let report = std::fs::read(output.join("small-files.json")).expect(&told);
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    assert_eq!(report["files"], 120);
    assert!(report["local_seconds"].as_f64().unwrap() > 0.0);
    let row = |exactly_once: &str, direction: &str| {
        let rows = report["rows"].as_array().unwrap().iter();
        let is_it = |row: &&serde_json::Value| {
            row["exactly_once"] == exactly_once && row["direction"] == direction
        };
        rows.clone().find(is_it).unwrap().clone()
    };
    let messages = |row: &serde_json::Value, expected: &[(&str, f64)]| {
        let counts = row["counts"]["messages"].as_object().unwrap();
        for (name, count) in expected {
            assert_eq!(counts[*name], *count, "{name} in {row:#}");
        }
    };
    let records = |row: &serde_json::Value| row["counts"]["journal_records"].as_f64().unwrap();
    let (memory, stable) = (row("memory", "in"), row("stable", "in"));
    let each = [("OPEN", 1.0), ("WRITE_DIRECT", 1.0), ("SETATTR_INLINE", 1.0), ("CLOSE", 1.0)];
    messages(&memory, &each);
    messages(&stable, &each);
    assert_eq!(records(&memory), 0.0);
    // One record for the intent of an OPEN and one for its outcome. A change of times is not
    // recorded.
    assert_eq!(records(&stable).round(), 2.0, "{stable:#}");
    messages(&row("memory", "out"), &[("READ_DIRECT", 1.0)]);
    let calls = &memory["counts"]["system_calls"];
    if calls.is_null() {
        assert!(told.contains("system calls are not counted: "), "{told}");
        dafs_tests::skip_part("system calls cannot be counted here");
        return;
    }
    for (name, count) in [
        ("openat", 1.0),
        ("open_tree", 1.0),
        ("name_to_handle_at", 1.0),
        ("pwrite64", 1.0),
        ("utimensat", 1.0),
    ] {
        assert_eq!(calls[name].as_f64().unwrap().round(), count, "{name} in {calls:#}");
    }
    // For the directory, the new file, the written data, and around the change of times. On a loaded
    // machine the clock of the stamps advances between them, and the directory, the file and its
    // times are queried again.
    let looks = calls["statx"].as_f64().unwrap();
    assert!((4.5..8.5).contains(&looks), "{looks} in {calls:#}");
}
