//! Runs the POSIX tests on the library with a real server: the table of cases, except those in
//! `posix.known`, which gives the reasons, random calls on a file, and random calls on trees.
//!
//! This is a separate program without the test harness, because it runs itself again with the
//! library, and cases run it again as other users.

#[allow(dead_code)]
mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use common::Place;
use dafs_posix_suite::fsx::{self, Fsx};
use dafs_posix_suite::many::{self, Plan};
use dafs_posix_suite::suite::{self, Suite, Verdict};
use dafs_posix_suite::{stress, tables, worker};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let outcome = match &words[..] {
        [_, first, actor] if first == worker::ARGUMENT => worker::serve(actor),
        [_, first, rest @ ..] if first == many::CHILD => {
            many::child(rest).map(|said| println!("{said}"))
        }
        [_, first, name] if first == WITHIN => within(name),
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
    let names: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let is_list = arguments.iter().any(|word| word == "--list");
    for (name, _) in TESTS {
        if !names.is_empty() && !names.iter().any(|part| name.contains(&part[..])) {
            continue;
        }
        if is_list {
            println!("{name}: test");
            continue;
        }
        with_the_library(name).context(name)?;
        println!("test {name} ... ok");
    }
    Ok(())
}

/// The name of a test, and the function that runs with the library.
type Test = (&'static str, fn() -> Result<()>);

const TESTS: [Test; 3] = [
    ("the_suite_passes", cases),
    ("random_calls_on_a_file_agree_with_memory", random_file),
    ("random_calls_on_trees_agree_with_a_model", random_trees),
];

/// Runs this program with the library for one test.
fn with_the_library(name: &str) -> Result<()> {
    let place = Place::new();
    // Other users reach the server's socket through its directory.
    for (path, mode) in [("", 0o711), ("socket", 0o666)] {
        std::fs::set_permissions(place.beside(path), std::fs::Permissions::from_mode(mode))?;
    }
    let mut command = place.program(std::env::current_exe()?);
    let status = command.args([WITHIN, name]).stdin(Stdio::null()).status()?;
    ensure!(status.success(), "{status}");
    Ok(())
}

/// Runs the test in a process that has loaded the library.
fn within(name: &str) -> Result<()> {
    match TESTS.iter().find(|test| test.0 == name) {
        Some((_, test)) => test(),
        None => bail!("no test {name}"),
    }
}

fn cases() -> Result<()> {
    let known = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/posix.known");
    let mut known = suite::known(&known)?;
    let mut suite = Suite::new(&std::env::current_exe()?, Path::new(DIRECTORY))?;
    for (lack, why) in suite.lacks() {
        let is_known = LACKS.contains(lack) || why == "only root can do it";
        ensure!(is_known, "the library has no {lack}: {why}");
    }
    let mut failures = Vec::new();
    for case in tables::all()? {
        match (suite.run(&case)?, known.remove(&case.name)) {
            (Verdict::Failed(how), None) => failures.push(format!("{}: {how}", case.name)),
            (Verdict::Passed, Some(_)) => {
                failures.push(format!("{}: known to differ, and passes", case.name));
            }
            _ => {}
        }
    }
    failures.extend(known.into_keys().map(|name| format!("{name}: known, and there is none")));
    ensure!(failures.is_empty(), "{} cases differ:\n{}", failures.len(), failures.join("\n"));
    Ok(())
}

fn random_file() -> Result<()> {
    let limits = fsx::Limits { calls: u64::MAX, time: Some(TIME), length_max: 1 << 20 };
    println!("{}", Fsx::new(&format!("{DIRECTORY}/file"), 1, limits)?.run()?);
    Ok(())
}

fn random_trees() -> Result<()> {
    let limits = stress::Limits { calls: u64::MAX, time: Some(TIME) };
    let plan = Plan { processes: 2, limits, seed: 1 };
    println!("{}", many::lead(&std::env::current_exe()?, DIRECTORY, &plan)?);
    Ok(())
}

/// The first argument of this program with the library. The second is the test's name.
const WITHIN: &str = "--within";
/// The path of the server's directory for programs with the library.
const DIRECTORY: &str = "/dafs";
/// How long the random tests run.
const TIME: Duration = Duration::from_secs(10);
/// Features that the library need not support; `docs/preload.md` gives the reasons.
const LACKS: &[&str] = &["exchange", "punch", "zero-range", "tmpfile"];
