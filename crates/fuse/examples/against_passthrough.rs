//! Reads through a mount of a server against reads through a plain passthrough file system over
//! the same file, in turns, in one run.
//!
//!     against_passthrough DAFS PASSTHROUGH [DIRECTORY] [MIB] [SECONDS] [OPTIONS]
//!
//! DAFS and PASSTHROUGH are the programs, and OPTIONS those of `dafs mount -o`. Both serve a file of MIB in DIRECTORY, which is in
//! memory on both sides: in the kernel's page cache here, in the server's cache there. Reads are
//! O_DIRECT, so that the page cache above the mounts has no part in them, and once through it,
//! dropped before each pass. First the file is read whole through both, and compared.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dafs_memory::{Memory, Pages};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [dafs, passthrough, rest @ ..] = &arguments[..] else {
        eprintln!(
            "usage: against_passthrough DAFS PASSTHROUGH [DIRECTORY] [MIB] [SECONDS] [OPTIONS]"
        );
        std::process::exit(2);
    };
    let base = rest.first().map_or_else(std::env::temp_dir, PathBuf::from);
    let mib: usize = rest.get(1).map_or(Ok(256), |text| text.parse())?;
    let seconds: f64 = rest.get(2).map_or(Ok(2.0), |text| text.parse())?;
    let options = rest.get(3).map_or("", String::as_str);
    let place = base.join(format!("against_passthrough.{}", std::process::id()));
    std::fs::create_dir_all(&place)?;
    let outcome =
        measure([dafs, options, passthrough], &place, mib, Duration::from_secs_f64(seconds));
    std::fs::remove_dir_all(&place)?;
    outcome
}

/// A way to read, and what is counted.
struct Way {
    name: &'static str,
    block_bytes: usize,
    threads: usize,
    is_random: bool,
    is_direct: bool,
    unit: &'static str,
    per: f64,
}

const WAYS: [Way; 4] = [
    Way {
        name: "sequential 1 MiB, O_DIRECT",
        block_bytes: 1 << 20,
        threads: 1,
        is_random: false,
        is_direct: true,
        unit: "MiB/s",
        per: (1 << 20) as f64,
    },
    Way {
        name: "sequential 1 MiB, page cache (cold)",
        block_bytes: 1 << 20,
        threads: 1,
        is_random: false,
        is_direct: false,
        unit: "MiB/s",
        per: (1 << 20) as f64,
    },
    Way {
        name: "random 4 KiB, 32 in flight, O_DIRECT",
        block_bytes: 4096,
        threads: 32,
        is_random: true,
        is_direct: true,
        unit: "1000/s",
        per: 4096.0 * 1000.0,
    },
    Way {
        name: "random 4 KiB, 1 in flight, O_DIRECT",
        block_bytes: 4096,
        threads: 1,
        is_random: true,
        is_direct: true,
        unit: "1000/s",
        per: 4096.0 * 1000.0,
    },
];

/// Processes of a measurement, and what they have mounted; all end with it.
#[derive(Default)]
struct Started {
    children: Vec<Child>,
    mounts: Vec<PathBuf>,
}

impl Started {
    fn start(&mut self, command: &mut Command) -> Result<(), Failure> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or("no output")?;
        self.children.push(child);
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        if line.is_empty() { Err(format!("{command:?} did not start").into()) } else { Ok(()) }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        for mount in &self.mounts {
            let _ = dafs_fuse::unmount(mount, true);
        }
        for child in self.children.iter_mut().rev() {
            drop(child.stdin.take());
            if child.stdout.is_none() {
                let _ = child.kill();
            }
            let _ = child.wait();
        }
    }
}

fn measure(
    [dafs, options, passthrough]: [&str; 3],
    place: &Path,
    mib: usize,
    time: Duration,
) -> Result<(), Failure> {
    let at = |name: &str| place.join(name);
    for name in ["export", "through_server", "through_passthrough"] {
        std::fs::create_dir(at(name))?;
    }
    let bytes: Vec<u8> =
        (0..1_u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let file = File::create(at("export/file"))?;
    for block in 0..mib {
        file.write_all_at(&bytes, (block as u64) << 20)?;
    }
    file.sync_all()?;
    let mut started = Started::default();
    let cache = format!("{}M", mib + mib / 2 + 64);
    started.start(
        Command::new(dafs)
            .args(["serve", "--squash", "none", "--no-tcp", "--cache", &cache, "--socket"])
            .args([at("socket"), "--state".into(), at("state"), at("export")]),
    )?;
    started.mounts = vec![at("through_server"), at("through_passthrough")];
    let url = format!("dafs+shm://{}!/", at("socket").display());
    let mount = ["mount", "--foreground", "-o", options, &url];
    started.start(Command::new(dafs).args(mount).arg(at("through_server")))?;
    started.start(Command::new(passthrough).arg(at("export")).arg(at("through_passthrough")))?;
    let paths = [at("through_server/file"), at("through_passthrough/file")];
    for path in &paths {
        if std::fs::read(path)? != std::fs::read(at("export/file"))? {
            return Err(format!("{} is not what is served", path.display()).into());
        }
    }
    println!("{:<38} {:>10} {:>12} {:>7}", "", "server", "passthrough", "ratio");
    for way in &WAYS {
        // What is in no cache yet comes into one.
        for path in &paths {
            pass(way, path, mib, time / 10)?;
        }
        // In many short turns, and the best of each: whatever else the machine does has less part
        // in it.
        let mut best = [0.0_f64; 2];
        for _ in 0..ROUNDS {
            for (best, path) in best.iter_mut().zip(&paths) {
                *best = best.max(pass(way, path, mib, time / ROUNDS)? / way.per);
            }
        }
        let ratio = best[0] / best[1];
        println!(
            "{:<38} {:>10.1} {:>12.1} {:>7.2}  {}",
            way.name, best[0], best[1], ratio, way.unit
        );
    }
    Ok(())
}

/// Reads for a while. Bytes in a second.
fn pass(way: &Way, path: &Path, mib: usize, time: Duration) -> Result<f64, Failure> {
    let mut options = File::options();
    if way.is_direct {
        options.custom_flags(libc::O_DIRECT);
    }
    let file = options.read(true).open(path)?;
    let blocks = ((mib << 20) / way.block_bytes) as u64;
    let moved = AtomicU64::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..way.threads as u64)
            .map(|number| {
                let (file, moved) = (&file, &moved);
                scope.spawn(move || -> std::io::Result<()> {
                    let count = read(way, file, number, blocks, begun + time)?;
                    moved.fetch_add(count, Ordering::Relaxed);
                    Ok(())
                })
            })
            .collect();
        readers.into_iter().try_for_each(|reader| match reader.join() {
            Ok(done) => done,
            Err(_) => Err(std::io::Error::other("a reader panicked")),
        })
    })?;
    Ok(moved.into_inner() as f64 / begun.elapsed().as_secs_f64())
}

fn read(way: &Way, file: &File, number: u64, blocks: u64, until: Instant) -> std::io::Result<u64> {
    // Memory of its own begins at a page, as O_DIRECT wants it.
    let memory = Memory::anonymous(way.block_bytes, Pages::Small)?;
    let mut state = number * 7919 + 1;
    let (mut count, mut next) = (0, 0);
    while Instant::now() < until {
        let block = if way.is_random {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % blocks
        } else {
            if next == 0 && !way.is_direct {
                rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?;
            }
            next = (next + 1) % blocks;
            (next + blocks - 1) % blocks
        };
        let length =
            memory.read_file(0, way.block_bytes, file.as_fd(), block * way.block_bytes as u64)?;
        if length != way.block_bytes {
            return Err(std::io::Error::other("a read was short"));
        }
        count += length as u64;
    }
    Ok(count)
}

const ROUNDS: u32 = 40;
