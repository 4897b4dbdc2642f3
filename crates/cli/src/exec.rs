//! `dafs exec`: runs a program whose calls beneath chosen paths go to DAFS, with the preload
//! library.
//!
//! Invariant: the program replaces this process unmodified, and is configured only by its
//! environment.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use dafs_client::{Location, shown_path, without_passwords};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Map a path prefix to a directory of a server: /dafs=dafs://host/path. May be given several
    /// times.
    #[arg(long, value_name = "PREFIX=URL", required_unless_present = "maps_there")]
    map: Vec<OsString>,
    /// The mappings set by an outer `dafs exec`.
    #[arg(id = "maps_there", long, hide = true, env = MAP)]
    maps_there: Option<OsString>,
    /// File whose first line is the password of the users in the URLs.
    #[arg(long, value_name = "FILE")]
    password_from: Option<PathBuf>,
    /// File to which every process, when it ends, appends a list of the calls that were served and
    /// of those that were not.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Place appended data at the end of the file as this program sees it. This is fast, but
    /// unsafe if several processes append to the same file.
    #[arg(long)]
    local_append: bool,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Replaces this process with the program.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    for map in &arguments.map {
        let shown = || format!("--map {}", without_passwords(&shown_path(map)));
        check(map).with_context(shown)?;
    }
    let library = library()?;
    let Some((program, rest)) = arguments.program.split_first() else { bail!("no program") };
    let mut command = Command::new(program);
    command.args(rest).env("LD_PRELOAD", preloaded(&library));
    if !arguments.map.is_empty() {
        command.env(MAP, arguments.map.join(OsStr::new("\n")));
    }
    if let Some(report) = &arguments.report {
        // Make the path absolute, because the program may change its working directory.
        let report = std::path::absolute(report).context("--report")?;
        command.env("DAFS_PRELOAD_REPORT", report);
    }
    if let Some(path) = &arguments.password_from {
        let path = std::path::absolute(path).context("--password-from")?;
        command.env("DAFS_PRELOAD_PASSWORD_FROM", path);
    }
    if arguments.local_append {
        command.env("DAFS_PRELOAD_LOCAL_APPEND", "1");
    }
    let error = command.exec();
    Err(error).with_context(|| format!("running {}", Path::new(program).display()))
}

/// Checks a mapping before the program starts, because an error inside the program would go
/// unnoticed.
fn check(map: &OsStr) -> Result<()> {
    let map = map.as_bytes();
    let equals = map.iter().position(|byte| *byte == b'=');
    let equals = equals.context("write PREFIX=URL, as /dafs=dafs://host/")?;
    let (prefix, url) = (&map[..equals], OsStr::from_bytes(&map[equals + 1..]));
    if !prefix.starts_with(b"/") || prefix.iter().all(|byte| *byte == b'/') {
        bail!("{:?} is not an absolute path below the root", OsStr::from_bytes(prefix));
    }
    if map.contains(&b';') || map.contains(&b'\n') {
        bail!("a mapping must not contain semicolons or newlines");
    }
    let location = Location::parse(url)?;
    if matches!(location.user, Some((_, Some(_)))) {
        bail!(
            "every program that is started would have the password in its environment; give the \
             URL without it, and --password-from FILE"
        );
    }
    Ok(())
}

/// Returns the value for LD_PRELOAD: the library, followed by the existing entries.
fn preloaded(library: &Path) -> OsString {
    let mut list = library.as_os_str().to_owned();
    match std::env::var_os("LD_PRELOAD") {
        Some(before) if before == library.as_os_str() => {}
        Some(before) if !before.is_empty() => {
            list.push(OsStr::new(":"));
            list.push(before);
        }
        _ => {}
    }
    list
}

/// Returns the path of the preload library.
fn library() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("DAFS_PRELOAD_LIBRARY").map(PathBuf::from) {
        if !named.is_file() {
            bail!("DAFS_PRELOAD_LIBRARY names {}, which is not a file", named.display());
        }
        return std::path::absolute(named).context("DAFS_PRELOAD_LIBRARY");
    }
    let binary = std::env::current_exe().context("finding this program")?;
    let beside = binary.parent().unwrap_or(Path::new("/"));
    let places = [beside.join(NAME), beside.join("../lib/dafs").join(NAME)];
    for place in &places {
        if place.is_file() {
            return place.canonicalize().context("finding the preload library");
        }
    }
    bail!(
        "{NAME} is neither at {} nor at {}; `make install-preload PREFIX=...` puts \
         it there for a dafs in PREFIX/bin; or set DAFS_PRELOAD_LIBRARY to its path",
        places[0].display(),
        places[1].display()
    )
}

const NAME: &str = "libdafs_preload.so";
const MAP: &str = "DAFS_PRELOAD_MAP";
