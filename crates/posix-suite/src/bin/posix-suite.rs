//! `posix-suite DIR`: runs the cases in a directory and reports the differences.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use dafs_posix_suite::suite::{self, Suite, Verdict};
use dafs_posix_suite::{tables, worker};

/// Checks that a file system behaves as POSIX requires. Exits with 1 if anything differs.
#[derive(Debug, Parser)]
struct Arguments {
    /// A directory of the file system. Each case makes a directory of its own in it.
    #[arg(required_unless_present = "list")]
    directory: Option<PathBuf>,
    /// Run only groups or cases whose names begin with this text. May be repeated.
    #[arg(long, value_name = "GROUP")]
    only: Vec<String>,
    /// List the cases.
    #[arg(long)]
    list: bool,
    /// Report the result of each case in the TAP format.
    #[arg(long)]
    tap: bool,
    /// Report which cases were skipped, and why.
    #[arg(long)]
    skipped: bool,
    /// File of cases that are known to differ, one per line: NAME, two spaces, reason. If one of
    /// them passes, that is also a failure.
    #[arg(long, value_name = "FILE")]
    known: Option<PathBuf>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let outcome = match &words[..] {
        [_, first, actor] if first == worker::ARGUMENT => worker::serve(actor).map(|()| true),
        _ => run(&Arguments::parse()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("posix-suite: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// The number of cases with each result.
#[derive(Debug, Default)]
struct Counts {
    passed: usize,
    failed: usize,
    known: usize,
    skipped: usize,
}

fn run(arguments: &Arguments) -> Result<bool> {
    let is_wanted = |name: &str| {
        arguments.only.is_empty() || arguments.only.iter().any(|only| name.starts_with(&only[..]))
    };
    let mut cases = tables::all()?;
    cases.retain(|case| is_wanted(&case.name));
    if cases.is_empty() {
        let groups: Vec<_> = tables::groups().collect();
        bail!("no such cases; the groups are {}", groups.join(", "));
    }
    if arguments.list {
        cases.iter().for_each(|case| println!("{}", case.name));
        return Ok(true);
    }
    let known = arguments.known.as_deref().map_or_else(|| Ok(BTreeMap::new()), suite::known)?;
    for name in known.keys() {
        if is_wanted(name) && !cases.iter().any(|case| case.name == *name) {
            bail!("{name} is known to differ, and there is no such case");
        }
    }
    let directory = arguments.directory.as_ref().context("no directory")?;
    let mut suite = Suite::new(&std::env::current_exe()?, directory)?;
    if arguments.tap {
        println!("1..{}", cases.len());
    }
    let mut counts = Counts::default();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for (index, case) in cases.iter().enumerate() {
        let verdict = suite.run(case)?;
        let verdict = match (verdict, known.get(&case.name)) {
            (Verdict::Failed(how), Some(why)) => {
                counts.known += 1;
                say(
                    arguments,
                    index,
                    &case.name,
                    &Verdict::Skipped(format!("known ({why}): {how}")),
                );
                continue;
            }
            (Verdict::Passed, Some(_)) => Verdict::Failed("known to differ, and passes".into()),
            (verdict, _) => verdict,
        };
        match &verdict {
            Verdict::Passed => counts.passed += 1,
            Verdict::Failed(_) => counts.failed += 1,
            Verdict::Skipped(why) => {
                counts.skipped += 1;
                *reasons.entry(why.clone()).or_default() += 1;
            }
        }
        say(arguments, index, &case.name, &verdict);
    }
    for (why, count) in &reasons {
        println!("# {count} skipped: {why}");
    }
    let Counts { passed, failed, known, skipped } = counts;
    println!("# {passed} passed, {failed} failed, {known} known to differ, {skipped} skipped");
    Ok(failed == 0)
}

fn say(arguments: &Arguments, index: usize, name: &str, verdict: &Verdict) {
    let number = index + 1;
    match (arguments.tap, verdict) {
        (true, Verdict::Passed) => println!("ok {number} - {name}"),
        (true, Verdict::Failed(how)) => println!("not ok {number} - {name}\n# {how}"),
        (true, Verdict::Skipped(why)) => println!("ok {number} - {name} # SKIP {why}"),
        (false, Verdict::Failed(how)) => println!("FAIL {name}: {how}"),
        (false, Verdict::Skipped(why)) if arguments.skipped => println!("skip {name}: {why}"),
        (false, _) => {}
    }
}
