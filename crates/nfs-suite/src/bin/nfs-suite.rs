//! `nfs-suite URL`: runs the test cases against a server and reports the differences from the
//! standards.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use dafs_nfs_suite::bench::Target;
use dafs_nfs_suite::cases;
use dafs_nfs_suite::suite::{self, Verdict};

/// Checks that a server behaves as the standards of NFS require. Exits with 1 if anything differs.
#[derive(Debug, Parser)]
struct Arguments {
    /// The server and an export that user 0 may change without being squashed:
    /// nfs://HOST:PORT/PATH.
    #[arg(required_unless_present = "list")]
    url: Option<String>,
    /// The port of the mount service. Default: the port of the URL.
    #[arg(long, value_name = "PORT")]
    mount_port: Option<u16>,
    /// The path of a read-only export, which contains a file named "file".
    #[arg(long, value_name = "PATH")]
    read_only: Option<String>,
    /// The path of an export that squashes user 0 (maps it to another user).
    #[arg(long, value_name = "PATH")]
    squashed: Option<String>,
    /// Run only cases with this text in their names, or of the protocol with this name: rpc, mount,
    /// v3, v4.1, v4.2. May be given several times.
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// Leave out cases with this text in their names. May be given several times.
    #[arg(long, value_name = "TEXT")]
    without: Vec<String>,
    /// The number of seconds to wait for a server that restarts after a case has stopped it.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    restart: u64,
    /// Print the names of the cases, and run none.
    #[arg(long)]
    list: bool,
    /// Report the cases that pass, too.
    #[arg(long, short)]
    verbose: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("nfs-suite: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool> {
    let mut cases = cases::all();
    let filters = &arguments.filter;
    cases.retain(|case| filters.is_empty() || filters.iter().any(|text| case.matches(text)));
    cases.retain(|case| !arguments.without.iter().any(|text| case.matches(text)));
    if cases.is_empty() {
        bail!("no case matches the filter; --list shows all");
    }
    if arguments.list {
        cases.iter().for_each(|case| println!("{case}"));
        println!("{} cases", cases.len());
        return Ok(true);
    }
    let target = target(arguments)?;
    let counts = suite::run_all(&cases, &target, |case, verdict| match verdict {
        Verdict::Passed if arguments.verbose => println!("passed   {case}"),
        Verdict::Passed => {}
        Verdict::Failed(text) => println!("FAILED   {case}\n         {text}"),
        Verdict::Known(text, reason) => println!("known    {case}\n         {text} ({reason})"),
        Verdict::Skipped(reason) => println!("left out {case}\n         {reason}"),
    });
    println!(
        "{} passed, {} failed, {} known, {} left out",
        counts.passed,
        counts.failed.len(),
        counts.known.len(),
        counts.skipped.len()
    );
    Ok(counts.failed.is_empty())
}

fn target(arguments: &Arguments) -> Result<Target> {
    let mut target = Target::of(arguments.url.as_deref().unwrap_or_default())?;
    if let Some(port) = arguments.mount_port {
        target.mount.set_port(port);
    }
    target.read_only.clone_from(&arguments.read_only);
    target.squashed.clone_from(&arguments.squashed);
    target.restart_seconds = arguments.restart;
    Ok(target)
}
