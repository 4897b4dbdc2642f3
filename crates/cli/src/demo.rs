//! `dafs demo`: serves a directory of the user, copies it whole over every transport, verifies the
//! copies, and compares the time with local file access.
//!
//! Invariant: there is never more than one copy on the disk, and each copy is made in a directory
//! from which no other copy was removed.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use dafs_client::{Client, ClientConfig, Session};
use dafs_dat::Address;
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use crate::child_server::{ANY_PORT, ChildServer, Pass};
use crate::cleanup::{self, Scratch};
use crate::copy::{Extras, Mover, Side, copy};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The directory to serve. Default: the libraries of the Rust toolchain, about 90 files.
    directory: Option<PathBuf>,
    /// Where to put copies. It needs space for one copy of the directory at a time.
    #[arg(long)]
    scratch: Option<PathBuf>,
    /// Use a small file and short rounds for the table. Shows that it works, not how fast.
    #[arg(long)]
    tiny: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let start = Instant::now();
    let directory = match &arguments.directory {
        Some(directory) => directory.clone(),
        None => default_directory(),
    };
    let _kept = cleanup::start()?;
    let scratch = Scratch::new("dafs-demo-", arguments.scratch.as_deref());
    let scratch = scratch.context("give --scratch DIR")?;
    let inbox = scratch.path().join("in");
    std::fs::create_dir(&inbox)?;
    for parent in [scratch.path(), inbox.as_path()] {
        keep_copies_apart(parent);
    }
    println!("serving {}", directory.display());
    let exports = [export("tree", &directory), export("in", &inbox)];
    // Export the user's files read-only, so that nothing can change them.
    let config = scratch.path().join("serve.toml");
    std::fs::write(&config, "[[export]]\nname = \"tree\"\nread-only = true\n")?;
    let pass = Pass::new()?;
    let more = [OsStr::new("--config"), config.as_os_str()];
    let served = ChildServer::start_at(ANY_PORT, 1, scratch.path(), &exports, &more, &pass)?;
    let local = time_local(&directory, scratch.path())?;
    println!("{:28} {:>8} {:>10} {:>8} {:>8}", "", "files", "MB", "seconds", "MB/s");
    let mut differing = 0;
    for address in &served.addresses {
        let session = Client::new(ClientConfig::default())?.connect_to(address, &pass.options())?;
        differing += there_and_back(session, &directory, scratch.path(), &inbox, local)?;
    }
    println!("{:28} {:>8} {:>10} {local:>8.2}", "cp -r, local", "", "");
    println!();
    dafs_bench::report(&mut std::io::stdout(), &bench_options(&served, &pass, arguments.tiny)?)?;
    if differing > 0 {
        bail!("{differing} files differ or failed; they are named above");
    }
    println!("\nEvery byte was read back and compared: no difference.");
    println!("The whole demo took {:.0} s.", start.elapsed().as_secs_f64());
    println!("Next: dafs serve DIR              serve a directory of your own");
    println!("      dafs ls dafs://localhost/   list it from another terminal");
    println!("      dafs bench --output DIR     all block sizes, as JSON and plots");
    Ok(())
}

/// Returns the argument that makes `dafs serve` export a directory under a name.
fn export(name: &str, directory: &Path) -> OsString {
    [OsStr::new(name), OsStr::new("="), directory.as_os_str()].into_iter().collect()
}

fn bench_options(served: &ChildServer, pass: &Pass, tiny: bool) -> Result<dafs_bench::Options> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut options =
        if tiny { dafs_bench::Options::tiny(program) } else { dafs_bench::Options::quick(program) };
    options.servers = served.addresses.clone();
    options.session = pass.options();
    options.server_process = Some(served.process());
    options.directory = "/in".into();
    options.idle_sessions = 0;
    options.contends = false;
    Ok(options)
}

/// Copies the served tree to the local disk and the local tree to the server, and verifies both
/// copies. Returns the number of files that differ or failed.
fn there_and_back(
    session: Session,
    directory: &Path,
    scratch: &Path,
    inbox: &Path,
    local: f64,
) -> Result<u64> {
    let mover = Mover::new(&session.client())?;
    let (kind, name) = match session.address() {
        Address::Shm(_) => ("shared memory", "shm"),
        Address::Verbs(_) => ("RDMA", "verbs"),
        Address::Tcp(_) | Address::Sim { .. } => ("tcp", "tcp"),
    };
    let extras = Extras { recursive: true, verify: true, ..Extras::default() };
    let name = unique(scratch, name);
    let out = scratch.join(format!("out-{name}"));
    let tree = Side::Remote(session.clone(), "/tree".into());
    let first = copy(&mover, &tree, &Side::Local(out.clone()), extras)?;
    print_row(&format!("out over {kind}"), &first, local);
    // Remove the copy immediately: deleting data that is not on the disk yet costs almost nothing.
    std::fs::remove_dir_all(&out)?;
    let here = Side::Local(directory.to_owned());
    let there = Side::Remote(session, format!("/in/{name}").into());
    let second = copy(&mover, &here, &there, extras)?;
    print_row(&format!("in over {kind}"), &second, local);
    std::fs::remove_dir_all(inbox.join(&name))?;
    Ok(first.differing + first.failed + second.differing + second.failed)
}

/// Returns a directory name that no earlier run has used. A new name gets a new block group of
/// ext4, which chooses the block group by the name.
fn unique(scratch: &Path, name: &str) -> String {
    let own = scratch.file_name().unwrap_or_default().to_string_lossy();
    format!("{name}{own}")
}

/// Asks the file system to put new directories in `parent` into separate block groups. Before ext4
/// without a journal creates an inode, it checks every inode that was freed in the group during the
/// last minutes. That would make the next copy ten times slower.
fn keep_copies_apart(parent: &Path) {
    let Ok(opened) = std::fs::File::open(parent) else { return };
    // Other file systems do not have this flag or this problem.
    if let Ok(flags) = ioctl_getflags(&opened) {
        let _ = ioctl_setflags(&opened, flags | IFlags::TOPDIR);
    }
}

fn print_row(name: &str, outcome: &crate::copy::Outcome, local: f64) {
    let seconds = outcome.copying.as_secs_f64();
    println!(
        "{name:28} {:>8} {:>10.1} {seconds:>8.2} {:>8.0}   {:.2} x cp -r, compared in {:.2} s",
        outcome.files,
        outcome.bytes as f64 / 1e6,
        outcome.bytes as f64 / 1e6 / seconds,
        seconds / local,
        outcome.verifying.as_secs_f64()
    );
}

/// Measures `cp -r` of the same tree, with an equally warm page cache.
fn time_local(from: &Path, scratch: &Path) -> Result<f64> {
    let mut seconds = 0.0;
    // The first copy brings the tree into the page cache.
    for name in ["warm", "local"] {
        let to = scratch.join(unique(scratch, name));
        let start = Instant::now();
        let status = Command::new("cp").arg("-r").arg(from).arg(&to).status();
        if !status.context("running cp")?.success() {
            bail!("cp -r {} failed", from.display());
        }
        seconds = start.elapsed().as_secs_f64();
        std::fs::remove_dir_all(&to)?;
    }
    Ok(seconds)
}

fn default_directory() -> PathBuf {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output();
    output
        .ok()
        .filter(|output| output.status.success())
        .map(|output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()).join("lib"))
        .unwrap_or_else(|| PathBuf::from("/usr/share"))
}
