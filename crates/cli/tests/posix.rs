//! Runs the POSIX tests on `dafs mount` with a real server: the table of cases, random calls on a
//! file, and random calls on trees. Skipped where FUSE is not available.
//!
//! This is a separate program without the test harness, because cases run it again as other users.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dafs_posix_suite::fsx::{self, Fsx};
use dafs_posix_suite::many::{self, Plan};
use dafs_posix_suite::suite::{Suite, Verdict};
use dafs_posix_suite::{stress, tables, worker};

const DAFS: &str = env!("CARGO_BIN_EXE_dafs");

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let outcome = match &words[..] {
        [_, first, actor] if first == worker::ARGUMENT => worker::serve(actor),
        [_, first, rest @ ..] if first == many::CHILD => {
            many::child(rest).map(|said| println!("{said}"))
        }
        _ => tests(&words[1..]),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The parent reads the output of children from their standard output.
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs every test whose name is in the arguments; all tests without arguments.
fn tests(arguments: &[String]) -> Result<()> {
    let all: [Test; 6] = [
        ("the_suite_passes_over_shared_memory", || suite(Transport::Memory, UNCACHED, &[])),
        ("the_suite_passes_over_tcp", || suite(Transport::Tcp, UNCACHED, &[])),
        ("a_page_cache_that_keeps_writes_passes", || {
            suite(Transport::Memory, "writeback", ABOUT_DATA)
        }),
        ("no_page_cache_passes", || suite(Transport::Memory, "direct_io", ABOUT_DATA)),
        ("random_calls_on_a_file_agree_with_memory", random_file),
        ("random_calls_on_trees_agree_with_a_model", random_trees),
    ];
    let names: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let is_list = arguments.iter().any(|word| word == "--list");
    for (name, test) in all {
        if !names.is_empty() && !names.iter().any(|part| name.contains(&part[..])) {
            continue;
        }
        if is_list {
            println!("{name}: test");
            continue;
        }
        if !can_mount()? {
            dafs_tests::skip_named(name, "a mount needs /dev/fuse and root");
            continue;
        }
        test().context(name)?;
        println!("test {name} ... ok");
    }
    Ok(())
}

/// The name and function of a test.
type Test = (&'static str, fn() -> Result<()>);

fn can_mount() -> Result<bool> {
    let can = dafs_tests::has_fuse();
    let is_required = dafs_tests::Required::Faces.is_set();
    ensure!(can || !is_required, "DAFS_REQUIRE_FACES=1, and /dev/fuse cannot be used as root");
    Ok(can)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Memory,
    Tcp,
}

/// A server and a mount of it; both end when this is dropped.
struct Mounted {
    server: Child,
    mount: Child,
    directory: tempfile::TempDir,
}

impl Mounted {
    fn new(transport: Transport, options: &str) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at("export"))?;
        std::fs::create_dir(at("mnt"))?;
        let mut serve = Command::new(DAFS);
        serve.args(["serve", "--squash", "none", "--cache", "32M", "--state"]).arg(at("state"));
        match transport {
            Transport::Memory => serve.arg("--no-tcp").arg("--socket").arg(at("socket")),
            // All clients act as root.
            Transport::Tcp => {
                serve.args(["--no-socket", "--tcp", "127.0.0.1:0", "--anonymous", "0:0"])
            }
        };
        let mut server = serve.arg(at("export")).stdout(Stdio::piped()).spawn()?;
        let line = first_line(&mut server)?;
        let url = match transport {
            Transport::Memory => format!("dafs+shm://{}!/", at("socket").display()),
            Transport::Tcp => {
                let address = line.split_once("tcp:").context(line.clone())?.1.trim();
                format!("dafs://{address}/")
            }
        };
        let mut mount = Command::new(DAFS)
            .args(["mount", "--foreground", "-o", options, &url])
            .arg(at("mnt"))
            .stdout(Stdio::piped())
            .spawn()?;
        let line = first_line(&mut mount)?;
        ensure!(line.contains("is mounted on"), "{line:?}");
        Ok(Self { server, mount, directory })
    }

    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("mnt")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new(DAFS).args(["unmount", "--lazy"]).arg(self.path()).status();
        // A mount namespace that was made meanwhile keeps the file system, and would keep the
        // process.
        let _ = self.mount.kill();
        let _ = self.mount.wait();
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn first_line(child: &mut Child) -> Result<String> {
    let mut line = String::new();
    let output = child.stdout.take().context("no output")?;
    BufReader::new(output).read_line(&mut line)?;
    Ok(line)
}

/// Runs the cases whose names begin with one of these texts; all cases without texts.
fn suite(transport: Transport, options: &str, groups: &[&str]) -> Result<()> {
    let mounted = Mounted::new(transport, options)?;
    let program = std::env::current_exe()?;
    let served = Suite::new(&program, &mounted.directory.path().join("export"))?;
    let mut suite = Suite::new(&program, &mounted.path())?;
    for (lack, why) in suite.lacks() {
        let is_known = LACKS.contains(lack) || served.lacks().contains_key(lack);
        ensure!(is_known, "a mount has no {lack}: {why}");
    }
    let is_wanted = |name: &str| groups.iter().any(|group| name.starts_with(group));
    let mut cases = tables::all()?;
    cases.retain(|case| groups.is_empty() || is_wanted(&case.name));
    let mut failures = Vec::new();
    for case in cases {
        if let Verdict::Failed(how) = suite.run(&case)? {
            failures.push(format!("{}: {how}", case.name));
        }
    }
    ensure!(failures.is_empty(), "{} cases differ:\n{}", failures.len(), failures.join("\n"));
    Ok(())
}

fn random_file() -> Result<()> {
    let mounted = Mounted::new(Transport::Memory, "attr_timeout=1")?;
    let file = mounted.path().join("file").display().to_string();
    let limits = fsx::Limits { calls: u64::MAX, time: Some(TIME), length_max: 1 << 20 };
    println!("{}", Fsx::new(&file, 1, limits)?.run()?);
    Ok(())
}

fn random_trees() -> Result<()> {
    let mounted = Mounted::new(Transport::Memory, "attr_timeout=1")?;
    let limits = stress::Limits { calls: u64::MAX, time: Some(TIME) };
    let plan = Plan { processes: 2, limits, seed: 1 };
    let directory = mounted.path().display().to_string();
    println!("{}", many::lead(Path::new(&std::env::current_exe()?), &directory, &plan)?);
    Ok(())
}

/// How long the random tests run.
const TIME: Duration = Duration::from_secs(20);
/// Features that a mount need not support; `docs/operating/mount.md` gives the reasons.
const LACKS: &[&str] = &["exchange", "fallocate", "punch", "zero-range", "tmpfile"];
/// The kernel caches nothing.
const UNCACHED: &str = "attr_timeout=0,entry_timeout=0";
/// The cases for which the page cache matters.
const ABOUT_DATA: &[&str] = &["chown/", "data/", "maps/", "open/", "stat/", "times/", "truncate/"];
