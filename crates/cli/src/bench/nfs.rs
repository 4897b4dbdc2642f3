//! `dafs bench nfs`: compares this server with nfs-ganesha. The same NFS client uses both.

use std::io::stdout;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use dafs_bench::{NfsOptions, NfsRdmaOptions, compare_nfs, compare_nfs_rdma};
use dafs_dat::Address;
use serde::Serialize;

use super::medium::memory;
use crate::child_server::{ANY_PORT, ChildServer, Pass};
use crate::cleanup::Scratch;
use crate::nfs::warn_of_any_port;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// File into which the results are written as JSON.
    #[arg(long)]
    output: Option<PathBuf>,
    /// Number of rounds for each median.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Length of a round in seconds.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Measure only this server, and not nfs-ganesha.
    #[arg(long)]
    alone: bool,
    /// Compare READ of NFS over RDMA with direct reads of DAFS, both over iWARP and by clients of
    /// this project, instead of servers.
    #[arg(long, conflicts_with = "alone")]
    rdma: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let place = memory();
    let scratch = Scratch::new("dafs-bench-", place.as_deref())?;
    let directory = scratch.path().join("files");
    std::fs::create_dir(&directory).context("making the directory to serve")?;
    let (port, pass) = (free_port()?, Pass::new()?);
    let address = format!("127.0.0.1:{port}");
    let mut more = vec!["--nfs", &address, "--nfs-any-port"];
    let rdma = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    let rdma_address = rdma.to_string();
    if arguments.rdma {
        more.extend(["--nfs-rdma", &rdma_address]);
    }
    let exports = [directory.as_os_str()];
    warn_of_any_port();
    let own = ChildServer::start_at(ANY_PORT, 1, scratch.path(), &exports, &more, &pass)?;
    let round = Duration::from_secs_f64(arguments.seconds);
    if arguments.rdma {
        let dafs = own.addresses.iter().find(|address| matches!(address, Address::Tcp(_)));
        let options = NfsRdmaOptions {
            directory,
            rdma: Address::Tcp(rdma),
            dafs: dafs.context("the server has no address of TCP")?.clone(),
            session: pass.options(),
            rounds: arguments.rounds,
            round,
        };
        let rows = compare_nfs_rdma(&mut stdout(), &options)?;
        own.stop()?;
        return keep(arguments, &rows);
    }
    let options = NfsOptions {
        directory,
        port,
        process: own.process(),
        rounds: arguments.rounds,
        round,
        is_alone: arguments.alone,
    };
    let rows = compare_nfs(&mut stdout(), &options)?;
    own.stop()?;
    keep(arguments, &rows)
}

/// Writes the results into the file that was asked for.
fn keep(arguments: &Arguments, rows: &impl Serialize) -> Result<()> {
    if let Some(path) = &arguments.output {
        let text = serde_json::to_string_pretty(rows)?;
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// Returns a port that is free now.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("looking for a free port")?;
    Ok(listener.local_addr()?.port())
}
