//! `dafs bench`: runs the measurements of `dafs_bench` against a server that it starts, or against
//! an existing one.

mod figures;
mod gzip;
mod host;
mod medium;
mod nfs;
mod nfs_pipe;
mod postmark;
mod scale;
mod small_files;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use dafs_bench::Options;
use dafs_client::Location;

use crate::child_server::{ChildServer, Pass};
use crate::cleanup::{self, Scratch};
use crate::place::{self, Access};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    application: Option<Application>,
    #[command(flatten)]
    blocks: Blocks,
}

/// Benchmarks other than block reads and writes.
#[derive(Debug, Subcommand)]
enum Application {
    /// Compress files locally, on a DAFS server that this command starts, and through NFS.
    Gzip(gzip::Arguments),
    /// Read, create and remove small files locally, on a DAFS server that this command starts, and
    /// through NFS.
    Postmark(postmark::Arguments),
    /// Copy a tree of small files in and out, compare with `cp -r`, and count the cost of each
    /// file.
    SmallFiles(small_files::Arguments),
    /// Measure how throughput and cost per operation change with the numbers of reactors and
    /// clients.
    Scale(scale::Arguments),
    /// Compare this server with nfs-ganesha, for a client of NFS version 3.
    Nfs(nfs::Arguments),
    /// Draw every figure of the DAFS papers that can be measured on one machine.
    Figures(figures::Arguments),
}

/// Reads and writes of blocks.
#[derive(Debug, Args)]
pub(crate) struct Blocks {
    /// Directory on an existing server to measure instead of starting one. It needs space for a
    /// file of 256 MiB.
    url: Option<String>,
    /// Directory for the report as JSON and for the plots.
    #[arg(long)]
    output: Option<PathBuf>,
    /// Measure only the block sizes that the performance goals mention. Takes about a minute.
    #[arg(long)]
    quick: bool,
    /// Only check that everything works; the figures mean nothing.
    #[arg(long, hide = true, conflicts_with = "quick")]
    tiny: bool,
    /// Measure only competitors whose name contains this text, such as "shm read".
    #[arg(long)]
    only: Option<String>,
    /// Block sizes in bytes, at most 1 MiB each.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    block: Vec<u64>,
    /// Number of rounds for each median.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: Option<u64>,
    #[command(flatten)]
    access: Access,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let _kept = cleanup::start()?;
    match &arguments.application {
        None => blocks(&arguments.blocks).map(drop),
        Some(Application::Gzip(arguments)) => gzip::run(arguments).map(drop),
        Some(Application::Postmark(arguments)) => postmark::run(arguments).map(drop),
        Some(Application::SmallFiles(arguments)) => small_files::run(arguments).map(drop),
        Some(Application::Scale(arguments)) => scale::run(arguments).map(drop),
        Some(Application::Nfs(arguments)) => nfs::run(arguments),
        Some(Application::Figures(arguments)) => figures::run(arguments),
    }
}

/// Measures, prints the results and writes the requested files. Returns the paths of the plots.
fn blocks(arguments: &Blocks) -> Result<Vec<PathBuf>> {
    let scratch = Scratch::new("dafs-bench-", None)?;
    let mut options = options(arguments)?;
    let _servers = match &arguments.url {
        Some(url) => {
            // Opening the URL asks for the password and chooses the transport.
            let location = arguments.access.tls.applied(&Location::parse(url)?);
            let client = place::client(&arguments.access)?;
            options.session = place::options(&location, &arguments.access)?;
            let session = client.connect(&location, &options.session)?;
            options.servers = vec![session.address()];
            options.directory = place::text(&location.path)?.to_owned();
            options.idle_sessions = 0;
            Vec::new()
        }
        None => own(scratch.path(), &mut options)?,
    };
    let report = dafs_bench::report(&mut std::io::stdout(), &options)?;
    let mut plots = Vec::new();
    if let Some(directory) = &arguments.output {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("making {}", directory.display()))?;
        let path = directory.join("bench.json");
        std::fs::write(&path, serde_json::to_vec_pretty(&report)?)
            .with_context(|| format!("writing {}", path.display()))?;
        println!("\nwritten: {}", path.display());
        plots = dafs_bench::plot(&report.figures, directory)?;
        for path in &plots {
            println!("written: {}", path.display());
        }
    }
    Ok(plots)
}

/// Starts two servers for the benchmarks: one for the load and one that stays idle.
fn own(scratch: &Path, options: &mut Options) -> Result<Vec<ChildServer>> {
    let pass = Pass::new()?;
    options.session = pass.options();
    let busy = start(&scratch.join("busy"), &pass)?;
    options.servers.clone_from(&busy.addresses);
    options.server_process = Some(busy.process());
    let idle = start(&scratch.join("idle"), &pass)?;
    options.idle_servers.clone_from(&idle.addresses);
    options.idle_process = Some(idle.process());
    let nfs = scratch.join("nfs");
    std::fs::create_dir(&nfs).with_context(|| format!("making {}", nfs.display()))?;
    options.nfs_directory = Some(nfs);
    Ok(vec![busy, idle])
}

fn options(arguments: &Blocks) -> Result<Options> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut options = match arguments {
        Blocks { tiny: true, .. } => Options::tiny(program),
        Blocks { quick: true, .. } => Options::quick(program),
        _ => Options::full(program),
    };
    if !arguments.block.is_empty() {
        let blocks = arguments.block.iter().map(|&block| usize::try_from(block));
        options.block_sizes = blocks.collect::<Result<_, _>>()?;
    }
    if let Some(rounds) = arguments.rounds {
        options.rounds = usize::try_from(rounds)?;
    }
    options.wait = place::client_config(&arguments.access).wait;
    options.only.clone_from(&arguments.only);
    if options.only.is_some() {
        options.idle_sessions = 0;
        options.contends = false;
    }
    Ok(options)
}

/// Starts a server for an empty directory beneath `place`.
fn start(place: &Path, pass: &Pass) -> Result<ChildServer> {
    let exported = place.join("export");
    std::fs::create_dir_all(&exported).with_context(|| format!("making {}", exported.display()))?;
    ChildServer::start(place, &[exported], pass)
}

/// Arguments of `dafs bench-peer`, a hidden command that runs one of the processes with which a
/// benchmark compares DAFS.
#[derive(Debug, Args)]
pub(crate) struct PeerArguments {
    /// The task of the process: echo, stream, blocks, busy, nfs-read, nfs-write, nfs-gzip,
    /// gzip-memory, scale-client or keep.
    work: String,
    /// For nfs-read and nfs-write: the id of a process in the server's network namespace, and a
    /// path on the server. For nfs-gzip: that process id, a level and paths. For gzip-memory: a
    /// level and files. For scale-client: the client's number, the number of files, and the
    /// servers' addresses.
    #[arg(allow_hyphen_values = true)]
    more: Vec<String>,
}

pub(crate) fn serve_peer(arguments: &PeerArguments) -> Result<()> {
    match (arguments.work.as_str(), arguments.more.as_slice()) {
        ("gzip-memory", [level, paths @ ..]) => return gzip::in_memory(level, paths),
        ("nfs-gzip", [process, level, paths @ ..]) => {
            return nfs_pipe::gzip(process, level, paths);
        }
        (work @ ("nfs-read" | "nfs-write"), [process, path]) => {
            return nfs_pipe::run(work, process, path);
        }
        ("scale-client", [number, files, addresses @ ..]) => {
            return scale::serve_client(number, files, addresses);
        }
        ("keep", []) => return cleanup::serve(),
        _ => {}
    }
    dafs_bench::serve_child(&arguments.work)
}
