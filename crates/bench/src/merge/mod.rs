//! The external merge benchmark (the graph of Duke University's DAFS demonstration). One program
//! merges sorted files of records into one, over DAFS, local files, and nfs-ganesha through libnfs,
//! for several merge orders and record sizes.
//!
//! Invariant: all competitors of a round run one after the other, with the same blocks on the same
//! files. In the first round the outputs are compared byte by byte.

mod files;
mod nfs;
mod plot;

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use dafs_client::{Client, ClientConfig, SessionOptions};
use dafs_dat::Address;
use dafs_extmem::{
    BlockFile, Budget, DafsEngine, Engine, Flow, Format, LocalEngine, MergeOptions, RecordLayout,
    Stream, Watch, merge,
};
use dafs_peers::Ganesha;
use serde::{Deserialize, Serialize};

use files::Inputs;
use nfs::NfsEngine;

pub use plot::plot_merge;

/// The parameters of the benchmark.
#[derive(Clone, Debug)]
pub struct MergeSettings {
    /// The directory that all servers export as their root. It should be on a file system in
    /// memory, unless disks are to be measured.
    pub directory: PathBuf,
    /// The DAFS servers, one for each transport.
    pub servers: Vec<Address>,
    /// The options of sessions with the DAFS servers.
    pub session: SessionOptions,
    /// True to compare with nfs-ganesha, if the machine has it.
    pub with_nfs: bool,
    /// The total size in bytes of the input files of a merge.
    pub input_bytes: u64,
    /// The merge orders to measure: the numbers of files in one merge.
    pub orders: Vec<usize>,
    /// The record sizes in bytes; the graph shows records per megabyte.
    pub record_sizes: Vec<usize>,
    /// The size of a transferred block in bytes.
    pub block_bytes: usize,
    /// The number of blocks of each file in memory, for asynchronous competitors.
    pub depth: usize,
    /// The number of rounds for each median.
    pub rounds: usize,
    /// If present, only competitors whose name contains this text are measured. An example is "shm
    /// asynchronous".
    pub only: Option<String>,
}

impl MergeSettings {
    /// Returns settings for the whole graph, which takes some minutes.
    #[must_use]
    pub fn full(directory: PathBuf) -> Self {
        Self {
            directory,
            servers: Vec::new(),
            session: SessionOptions::default(),
            with_nfs: true,
            input_bytes: 256 << 20,
            orders: vec![2, 4, 8],
            record_sizes: vec![64 << 10, 16 << 10, 4 << 10, 1 << 10, 256, 64],
            block_bytes: 64 << 10,
            depth: 16,
            rounds: 7,
            only: None,
        }
    }

    /// Returns minimal settings, which only show that everything works; the results mean nothing.
    #[must_use]
    pub fn tiny(directory: PathBuf) -> Self {
        let (orders, record_sizes) = (vec![2, 4], vec![16 << 10, 64]);
        Self { input_bytes: 4 << 20, orders, record_sizes, rounds: 1, ..Self::full(directory) }
    }
}

/// Merge throughputs and the parameters needed to compare them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MergeReport {
    /// The size of a transferred block in bytes.
    pub block_bytes: usize,
    /// The number of blocks of each file in memory, for asynchronous competitors.
    pub depth: usize,
    /// The total size in bytes of the input files of a merge.
    pub input_bytes: u64,
    /// The medians of the rounds, one point for each measured configuration.
    pub points: Vec<MergePoint>,
}

/// A point of the graph: the throughput of one competitor for one merge order and record size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MergePoint {
    /// The name of the competitor, such as "tcp asynchronous".
    pub peer: String,
    /// The number of files in one merge.
    pub order: usize,
    /// The size of a record in bytes.
    pub record_bytes: usize,
    /// The number of records per megabyte: the horizontal axis of the graph.
    pub records_per_mb: f64,
    /// The throughput, in megabytes of merged output per second. As many bytes are read as written.
    pub megabytes_per_s: f64,
    /// The throughputs of the slowest and the fastest round.
    pub spread: [f64; 2],
}

/// A line of the graph: the points of one competitor.
#[derive(Clone, Debug)]
pub struct MergeSeries {
    /// The name of the competitor.
    pub label: String,
    /// The points of the line: records per megabyte, and megabytes per second.
    pub points: Vec<(f64, f64)>,
}

impl MergeReport {
    /// Returns the lines of the graph for one merge order.
    #[must_use]
    pub fn series(&self, order: usize) -> Vec<MergeSeries> {
        let mut lines: Vec<MergeSeries> = Vec::new();
        for point in self.points.iter().filter(|point| point.order == order) {
            let place = (point.records_per_mb, point.megabytes_per_s);
            match lines.iter_mut().find(|line| line.label == point.peer) {
                Some(line) => line.points.push(place),
                None => lines.push(MergeSeries { label: point.peer.clone(), points: vec![place] }),
            }
        }
        lines
    }

    /// Returns the throughput of one competitor divided by that of another; `None` if either was
    /// not measured.
    #[must_use]
    pub fn ratio(&self, peer: &str, other: &str, order: usize, record_bytes: usize) -> Option<f64> {
        let of = |name: &str| {
            let is_it = |point: &&MergePoint| {
                point.peer == name && (point.order, point.record_bytes) == (order, record_bytes)
            };
            Some(self.points.iter().find(is_it)?.megabytes_per_s)
        };
        Some(of(peer)? / of(other)?)
    }

    /// Writes the results as a table.
    ///
    /// # Errors
    /// If the table cannot be written.
    pub fn print(&self, out: &mut impl std::io::Write) -> std::io::Result<()> {
        write!(out, "{:20} {:>6}", "MB/s merged", "order")?;
        let mut sizes: Vec<usize> = self.points.iter().map(|point| point.record_bytes).collect();
        sizes.sort_unstable_by(|left, right| right.cmp(left));
        sizes.dedup();
        for size in &sizes {
            write!(out, " {size:>9}")?;
        }
        writeln!(out, "   bytes per record")?;
        let mut rows: Vec<(&str, usize)> = Vec::new();
        for point in &self.points {
            let row = (point.peer.as_str(), point.order);
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        rows.sort_by_key(|row| row.1);
        for (peer, order) in rows {
            write!(out, "{peer:20} {order:>6}")?;
            for size in &sizes {
                let point = self.points.iter().find(|point| {
                    (point.peer.as_str(), point.order, point.record_bytes) == (peer, order, *size)
                });
                let speed = point.map_or(f64::NAN, |point| point.megabytes_per_s);
                write!(out, " {speed:>9.0}")?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

type Remove = Rc<dyn Fn(&str) -> Result<()>>;

/// A measured system: its engine, and the path at which the engine finds the files.
struct Peer {
    name: String,
    engine: Rc<dyn Engine>,
    /// The path of the directory, as the engine names it.
    root: String,
    depth: usize,
    /// Removes the output file through the competitor, so that the competitor's server has no
    /// cached data of it.
    remove: Remove,
}

/// Runs the benchmark.
///
/// # Errors
/// If files cannot be made, a server cannot be reached, or the outputs of two competitors differ.
pub fn merge_cost(settings: &MergeSettings) -> Result<MergeReport> {
    let ganesha = if settings.with_nfs { ganesha(settings)? } else { None };
    let peers = peers(settings, ganesha.as_ref())?;
    let mut points = Vec::new();
    for &order in &settings.orders {
        for &record_bytes in &settings.record_sizes {
            let inputs =
                Inputs::make(&settings.directory, order, record_bytes, settings.input_bytes)?;
            points.extend(measure(settings, &peers, &inputs)?);
        }
    }
    let MergeSettings { block_bytes, depth, input_bytes, .. } = *settings;
    Ok(MergeReport { block_bytes, depth, input_bytes, points })
}

fn ganesha(settings: &MergeSettings) -> Result<Option<Ganesha>> {
    match Ganesha::start(&settings.directory) {
        Ok(server) => Ok(Some(server)),
        Err(error) if error.is_missing() => {
            eprintln!("{error}");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn peers(settings: &MergeSettings, ganesha: Option<&Ganesha>) -> Result<Vec<Peer>> {
    let mut peers = Vec::new();
    let mut add = |name: &str, engine: Rc<dyn Engine>, root: &str, depth: usize, remove: Remove| {
        let how = if depth == 1 { "synchronous" } else { "asynchronous" };
        let (name, root) = (format!("{name} {how}"), root.to_owned());
        peers.push(Peer { name, engine, root, depth, remove });
    };
    let client = Client::new(ClientConfig::default())?;
    for address in &settings.servers {
        let session = client.connect_to(address, &settings.session)?;
        let name = match address {
            Address::Shm(_) => "shm",
            Address::Tcp(_) => "tcp",
            _ => "verbs",
        };
        let engine: Rc<dyn Engine> = Rc::new(DafsEngine::new(session.clone(), Watch::default()));
        let remove: Remove = Rc::new(move |path| Ok(session.remove(path)?));
        add(name, engine.clone(), "", settings.depth, remove.clone());
        add(name, engine, "", 1, remove);
    }
    let root = settings.directory.to_str().context("the directory's name is not UTF-8")?;
    let remove: Remove = Rc::new(|path| Ok(std::fs::remove_file(path)?));
    add("local", Rc::new(LocalEngine), root, settings.depth, remove);
    if let Some(server) = ganesha {
        let engine = NfsEngine::new(server.mount()?);
        let remove: Remove = {
            let engine = engine.clone();
            Rc::new(move |path| Ok(engine.remove(path)?))
        };
        let engine: Rc<dyn Engine> = Rc::new(engine);
        add("nfs", engine.clone(), "", settings.depth, remove.clone());
        add("nfs", engine, "", 1, remove);
    }
    if let Some(only) = &settings.only {
        peers.retain(|peer| peer.name.contains(only));
    }
    Ok(peers)
}

/// Measures all competitors for one order and record size.
fn measure(settings: &MergeSettings, peers: &[Peer], inputs: &Inputs) -> Result<Vec<MergePoint>> {
    let mut speeds: Vec<Vec<f64>> = vec![Vec::new(); peers.len()];
    // The first round fills caches, and its outputs are compared.
    for round in 0..=settings.rounds {
        // Reverse the order every other round, so that no competitor always follows the same other
        // competitor, whose server may still be freeing the storage of removed files.
        let mut order: Vec<usize> = (0..peers.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let (peer, speeds) = (&peers[index], &mut speeds[index]);
            let seconds = merge_once(settings, peer, inputs)
                .with_context(|| format!("merging over {}", peer.name))?;
            if round == 0 {
                inputs.check().with_context(|| format!("merging over {}", peer.name))?;
            } else {
                speeds.push(inputs.total_bytes as f64 / seconds / 1e6);
            }
            (peer.remove)(&format!("{}/{}", peer.root, Inputs::OUTPUT))
                .with_context(|| format!("removing the output over {}", peer.name))?;
        }
    }
    let point = |(peer, mut speeds): (&Peer, Vec<f64>)| {
        speeds.sort_by(f64::total_cmp);
        let [least, middle, most] = [0, speeds.len() / 2, speeds.len() - 1].map(|at| speeds[at]);
        MergePoint {
            peer: peer.name.clone(),
            order: inputs.names.len(),
            record_bytes: inputs.record_bytes,
            records_per_mb: f64::from(1 << 20) / inputs.record_bytes as f64,
            megabytes_per_s: middle,
            spread: [least, most],
        }
    };
    if settings.rounds == 0 {
        bail!("at least one round is needed for a median");
    }
    Ok(peers.iter().zip(speeds).map(point).collect())
}

/// Opens the files, merges them, and renames the output. Returns the elapsed seconds.
fn merge_once(settings: &MergeSettings, peer: &Peer, inputs: &Inputs) -> Result<f64> {
    let layout = RecordLayout::new(inputs.record_bytes, "0:8:u:be".parse()?)?;
    let flow = Flow { block_bytes: settings.block_bytes, depth: peer.depth };
    let (budget, watch) = (Budget::of(usize::MAX), Watch::default());
    let options = MergeOptions { flow, budget, is_unique: false, watch };
    let at = |name: &str| format!("{}/{name}", peer.root);
    let begun = Instant::now();
    let open = |name: &String| Ok(Stream::whole(peer.engine.open(at(name).as_ref())?)?);
    let streams = inputs.names.iter().map(open).collect::<Result<Vec<_>>>()?;
    let output = peer.engine.create(at(Inputs::OUTPUT).as_ref())?;
    let none: &dyn Fn() -> dafs_extmem::Result<Rc<dyn BlockFile>> =
        &|| peer.engine.temporary(peer.root.as_ref());
    merge(&streams, &Format::Records(layout), none, output.file(), &options)?;
    output.publish(false)?;
    Ok(begun.elapsed().as_secs_f64())
}
