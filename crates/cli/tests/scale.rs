//! Tests `dafs bench scale`, and that benchmarks leave nothing behind when they are killed.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::program::{await_that, dafs};

#[test]
fn what_servers_and_clients_cost_is_told_apart_and_nothing_concluded_where_clients_took_too_much() {
    let place = tempfile::tempdir().unwrap();
    let (said, report) = scale(place.path(), &["--reactors", "1", "--clients-share", "0"]);
    let points = report["points"].as_array().unwrap();
    // Works, transports, numbers of clients.
    assert_eq!(points.len(), 6 * 2 * 2, "{said}");
    assert!(report["cores"].as_u64().unwrap() > 0 && report["operations"].as_u64().unwrap() > 0);
    assert!(report["machine"].as_str().unwrap().contains("cores"), "{report}");
    assert_eq!(report["reactors_max"], 8);
    assert!(said.contains("A server has at most 8 reactors."), "{said}");
    for point in points {
        let number = |key: &str| point[key].as_f64().expect(key);
        for key in [
            "operations_per_second",
            "server_cpu_us",
            "reactor_cpu_us",
            "client_cpu_us",
            "server_cores",
            "client_cores",
        ] {
            assert!(number(key) > 0.0, "{key}: {point}");
        }
        let parts = number("reactor_cpu_us") + number("pool_cpu_us");
        assert!(parts <= number("server_cpu_us") * 1.001, "{point}");
        // Each read is one request, and so is each removal of a name.
        assert!(number("requests") >= 1.0, "{point}");
        assert_eq!(number("messages"), 0.0, "one reactor has nobody to tell: {point}");
        assert_eq!(point["is_conclusive"], false, "{point}");
    }
    let conclusions = report["conclusions"].as_array().unwrap();
    assert_eq!(conclusions.len(), 6 * 2, "{report}");
    for conclusion in conclusions {
        let why = conclusion["no_conclusion"].as_str().expect("a refusal");
        assert!(why.contains("clients took") && conclusion["speedup"].is_null(), "{conclusion}");
    }
    assert!(said.contains("no conclusion") && !said.contains("of linear"), "{said}");
    let plots = plots(place.path());
    assert_eq!(plots.len(), 6);
    for plot in &plots {
        let drawn = std::fs::read_to_string(plot).unwrap();
        assert!(drawn.contains("linear") && drawn.contains("no conclusion"), "{drawn}");
    }
    // The numbers alone produce the same plots.
    let drawn = || -> Vec<String> {
        plots.iter().map(|plot| std::fs::read_to_string(plot).unwrap()).collect()
    };
    let before = drawn();
    plots.iter().for_each(|plot| std::fs::remove_file(plot).unwrap());
    let place = place.path().join("output");
    let redrawn = dafs().args(["bench", "figures", "--redraw", "--output"]).arg(place).output();
    assert!(redrawn.unwrap().status.success());
    assert_eq!(drawn(), before);
}

#[test]
fn where_clients_leave_the_server_its_cores_growth_is_stated_as_a_part_of_linear() {
    let place = tempfile::tempdir().unwrap();
    let (said, report) =
        scale(place.path(), &[&["--reactors", "1", "--only", "4 KiB, many"], ANYHOW].concat());
    for conclusion in report["conclusions"].as_array().unwrap() {
        assert_eq!((&conclusion["from"], &conclusion["to"]), (&1.into(), &2.into()));
        let number = |key: &str| conclusion[key].as_f64().expect(key);
        let (speedup, part) = (number("speedup"), number("part_of_linear"));
        assert!(speedup > 0.0 && (part - speedup / 2.0).abs() < 1e-9, "{conclusion}");
        assert!(number("server_cpu_ratio") > 0.0, "{conclusion}");
    }
    assert!(said.contains("of linear"), "{said}");
    // The one reservation is that servers with more reactors were not measured.
    let reserved: Vec<_> = said.lines().filter(|line| line.contains(": no conclusion")).collect();
    assert!(matches!(reserved[..], [line] if line.contains("about more reactors")), "{said}");
}

#[test]
fn servers_with_more_reactors_are_held_against_one_reactor_with_the_same_clients() {
    let place = tempfile::tempdir().unwrap();
    let options = ["--reactors", "1,2", "--clients", "1,2", "--only", "shm read 4 KiB"];
    let (said, report) = scale(place.path(), &[&options, ANYHOW].concat());
    let points = report["points"].as_array().unwrap();
    // One client is not measured with two reactors, and nothing is measured over TCP.
    let of = |point: &Value| (point["reactors"].as_u64(), point["clients"].as_u64());
    let expected = [(Some(1), Some(1)), (Some(1), Some(2)), (Some(2), Some(2))];
    assert_eq!(points.iter().map(of).collect::<Vec<_>>(), [expected, expected].concat());
    for point in points {
        assert_eq!(point["transport"], "shm");
        let rounds = point["rounds"].as_array().unwrap();
        assert_eq!(rounds.len(), 1, "{point}");
        let busiest = point["busiest_reactor"].as_f64().unwrap();
        assert!(busiest > 0.0 && busiest <= point["server_cores"].as_f64().unwrap(), "{point}");
        assert_eq!(point["against"].is_null(), point["reactors"] == 1, "{point}");
    }
    let [_, one, two] = &points[..3] else { panic!("{report}") };
    for (key, of) in [("speedup", "operations_per_second"), ("server_cpu_ratio", "server_cpu_us")] {
        let figure = |point: &Value| point["rounds"][0][of].as_f64().unwrap();
        let expected = figure(two) / figure(one);
        assert!((two["against"][key].as_f64().unwrap() - expected).abs() < 1e-9, "{key}: {report}");
    }
    for conclusion in report["conclusions"].as_array().unwrap() {
        assert_eq!(conclusion["axis"], "reactors");
        assert!(conclusion["messages"].as_f64().is_some(), "{conclusion}");
    }
    assert!(said.contains("x op/s") && said.contains("1 to 2 reactors"), "{said}");
    assert!(!said.contains("nothing follows"), "{said}");
}

#[test]
fn more_reactors_than_a_server_can_have_are_refused_before_anything_is_started() {
    let output = dafs().args(["bench", "scale", "--tiny", "--reactors", "1,9"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("a server has 1 to 8 reactors, not 9"), "{said}");
}

#[test]
fn a_benchmark_that_is_interrupted_leaves_neither_processes_nor_files() {
    let place = tempfile::tempdir().unwrap();
    let options = [
        "scale",
        "--reactors",
        "1",
        "--clients",
        "1,3",
        "--seconds",
        "60",
        "--only",
        "one directory",
    ];
    let mut bench = Marked::start("scale", place.path(), &options);
    let line = bench.line_with("ready:");
    assert!(line.contains("3 clients"), "{line}");
    // The benchmark, its keeper, a server and three clients.
    assert!(bench.processes().len() >= 6, "{:?}", bench.processes());
    for made in names(place.path()) {
        let mode = made.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{} can be entered by others", made.display());
    }
    bench.end_by(Signal::INT);
    await_that("the end of all that it has started", || bench.processes().is_empty());
    assert_eq!(names(place.path()), [] as [PathBuf; 0]);
}

#[test]
fn a_benchmark_that_is_killed_leaves_neither_its_mount_nor_its_server() {
    if !Path::new("/dev/fuse").exists() {
        dafs_tests::Required::Faces.skip("there is no /dev/fuse");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let options = ["gzip", "--megabytes", "4", "--rounds", "1000"];
    let mut bench = Marked::start("gzip", place.path(), &options);
    await_that("a mount", || mounts_below(place.path()) > 0);
    bench.end_by(Signal::KILL);
    await_that("the end of all that it has started", || bench.processes().is_empty());
    assert_eq!(mounts_below(place.path()), 0);
    assert_eq!(names(place.path()), [] as [PathBuf; 0]);
}

/// Runs a minimal benchmark with its report beneath `place`. Returns its output and the report.
fn scale(place: &Path, options: &[&str]) -> (String, Value) {
    let output = place.join("output");
    let ran = dafs()
        .args(["bench", "scale", "--tiny", "--output"])
        .arg(&output)
        .arg("--place")
        .arg(place)
        .args(options)
        .output()
        .unwrap();
    let said = String::from_utf8([ran.stdout, ran.stderr].concat()).unwrap();
    assert!(ran.status.success(), "{said}");
    assert_eq!(names(place), std::slice::from_ref(&output), "something was left behind");
    let report = std::fs::read(output.join("scale.json")).unwrap();
    (said, serde_json::from_slice(&report).unwrap())
}

fn plots(place: &Path) -> Vec<PathBuf> {
    let is_plot = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "svg");
    names(&place.join("output")).into_iter().filter(is_plot).collect()
}

fn names(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn mounts_below(directory: &Path) -> usize {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let directory = directory.to_str().unwrap();
    mounts.lines().filter(|line| line.contains(directory)).count()
}

/// A benchmark whose processes are identified by their environment.
struct Marked {
    mark: String,
    child: Child,
}

impl Marked {
    fn start(name: &str, place: &Path, options: &[&str]) -> Self {
        let mark = format!("{name}-{}", place.display());
        let mut command = dafs();
        command.arg("bench").args(options).arg("--place").arg(place);
        command.env(MARK, &mark).env("TMPDIR", place).stdout(Stdio::piped());
        Self { mark, child: command.spawn().unwrap() }
    }

    /// Reads the output up to a line that begins with this text.
    fn line_with(&mut self, beginning: &str) -> String {
        let output = BufReader::new(self.child.stdout.as_mut().unwrap());
        let mut lines = output.lines().map(Result::unwrap);
        lines.find(|line| line.starts_with(beginning)).expect("the line")
    }

    fn end_by(&mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        assert!(!self.child.wait().unwrap().success());
    }

    /// Returns all processes that it has started and that have not ended.
    fn processes(&self) -> Vec<u32> {
        let mark = format!("{MARK}={}", self.mark);
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_marked = |process: &u32| {
            let environment = std::fs::read(format!("/proc/{process}/environ"));
            let environment = environment.unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        };
        numbers.filter(is_marked).collect()
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Draws conclusions even if other programs use the cores, which does not matter here.
const ANYHOW: &[&str] = &["--clients-share", "1000", "--others-share", "1000"];
/// An environment variable that all child processes inherit.
const MARK: &str = "DAFS_TEST_MARK";
