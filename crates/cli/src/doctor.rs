//! `dafs doctor`: which transport would be used and why, and what stands in the way.

use anyhow::{Result, bail};
use clap::Args;
use dafs_client::{Location, RegionPath, local_socket_candidates};
use rustix::process::{Resource, getrlimit};

use crate::place::{Access, connect};

/// Arguments of `dafs doctor`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The server to reach.
    url: Option<String>,
    #[command(flatten)]
    access: Access,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let mut wrong = 0;
    let mut say = |good: bool, what: String| {
        println!("{} {what}", if good { "ok  " } else { "BAD " });
        wrong += u32::from(!good);
    };
    let files = getrlimit(Resource::Nofile);
    let maximum = files.maximum.unwrap_or(u64::MAX);
    say(
        maximum >= 4096,
        format!(
            "open files: at most {maximum} (a server needs one or two for each session and \
             file; raise LimitNOFILE or ulimit -Hn)"
        ),
    );
    let huge = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let huge = huge.unwrap_or_default();
    say(
        !huge.contains("[never]"),
        format!("huge pages: {} (madvise or always is faster)", huge.trim()),
    );
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let scope = scope.map_or(0, |text| text.trim().parse().unwrap_or(0));
    println!(
        "note ptrace scope {scope}: memory not allocated by the library is {}",
        if scope == 0 { "reached directly where users agree" } else { "copied through a ring" }
    );
    match &arguments.url {
        Some(url) => {
            let location = Location::parse(url)?;
            println!("note server {}", location.server);
            match connect(&location, &arguments.access) {
                Ok(session) => {
                    let buffer = session.client().allocate(4096)?;
                    let path = session.path_of(&buffer);
                    let why = match path {
                        Some(RegionPath::Mapped) => "the server maps this client's buffers",
                        Some(RegionPath::ProcessVm) => "the server copies into this process",
                        Some(RegionPath::Staged) => "bytes pass through a ring",
                        Some(RegionPath::Network) => "bytes pass through a socket",
                        None => "no session",
                    };
                    say(true, format!("connected over {}: {why}", session.address()));
                }
                Err(error) => say(false, format!("{error:#}")),
            }
        }
        None => {
            for path in local_socket_candidates(2050) {
                let there = if path.exists() { "a server's socket" } else { "nothing" };
                println!("note {}: {there}", path.display());
            }
        }
    }
    if wrong > 0 {
        bail!("{wrong} things are wrong");
    }
    Ok(())
}
