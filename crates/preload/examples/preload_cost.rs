//! What the library costs: the start of a program, and a read of 4 KiB, against the same without
//! it and against the Rust client over the same shared memory, in one run.
//!
//! `cargo run --release -p dafs-preload --example
//! preload_cost`

#[path = "../tests/common/mod.rs"]
#[allow(dead_code)]
mod common;

use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Place, printed};
use dafs_client::{Client, ClientConfig, Location, OpenOptions, SessionOptions};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("pread") => println!("{}", by_preload(&arguments[2])),
        Some("client") => println!("{}", by_client(&arguments[2])),
        _ => measure(),
    }
}

fn measure() {
    let place = Place::new();
    std::fs::write(place.local("file"), vec![7; FILE_BYTES]).unwrap();
    let own = std::env::current_exe().unwrap();
    let (mut ratios, mut client_ns, mut preload_ns) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let client = printed(&Command::new(&own).args(["client", &place.url()]).output().unwrap());
        let preload = printed(&place.program(&own).args(["pread", "/dafs/file"]).output().unwrap());
        let (client, preload): (f64, f64) =
            (client.trim().parse().unwrap(), preload.trim().parse().unwrap());
        ratios.push(preload / client);
        client_ns.push(client);
        preload_ns.push(preload);
    }
    println!(
        "pread of 4 KiB: Rust client {:.0} ns, preload {:.0} ns, ratio {:.2} (medians of {ROUNDS})",
        median(&mut client_ns),
        median(&mut preload_ns),
        median(&mut ratios)
    );
    let (mut plain, mut mapped, mut using) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..STARTS {
        plain.push(time(&mut Command::new("true")));
        mapped.push(time(&mut place.program("true")));
        using.push(time(place.program("stat").arg("/dafs/file")));
    }
    let (plain, mapped, using) = (median(&mut plain), median(&mut mapped), median(&mut using));
    println!(
        "start of `true`: {plain:.2} ms without, {mapped:.2} ms with the library: {:.2} ms for it",
        mapped - plain
    );
    println!("`stat` of a file, with its connection: {using:.2} ms");
}

/// Milliseconds that a program takes.
fn time(command: &mut Command) -> f64 {
    let begun = Instant::now();
    let status = command.stdout(Stdio::null()).status().unwrap();
    assert!(status.success());
    begun.elapsed().as_secs_f64() * 1e3
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nanoseconds of a read by the calls of the C library.
fn by_preload(path: &str) -> f64 {
    let file = std::fs::File::open(path).unwrap();
    let mut bytes = [0; READ_BYTES];
    per_read(|offset| {
        file.read_exact_at(&mut bytes, offset).unwrap();
        assert_eq!(bytes[READ_BYTES - 1], 7);
    })
}

/// The same by the client, straight into its buffer.
fn by_client(url: &str) -> f64 {
    let client = Client::new(ClientConfig::default()).unwrap();
    let location = Location::parse(url).unwrap();
    let session = client.connect(&location, &SessionOptions::default()).unwrap();
    let file = session.open("/file", &OpenOptions::read()).unwrap();
    let buffer = client.allocate(READ_BYTES).unwrap();
    let mut bytes = [0; 1];
    per_read(|offset| {
        file.read_into(offset, buffer.slice(0, READ_BYTES).unwrap()).unwrap();
        buffer.read(READ_BYTES - 1, &mut bytes);
        assert_eq!(bytes[0], 7);
    })
}

fn per_read(mut read: impl FnMut(u64)) -> f64 {
    let places = (FILE_BYTES / READ_BYTES) as u64;
    let mut place = 1;
    let mut next = || {
        // A multiplicative generator over the places of the file.
        place = place * 48271 % 2_147_483_647;
        place % places * READ_BYTES as u64
    };
    for _ in 0..WARM_UP {
        read(next());
    }
    let (begun, mut count) = (Instant::now(), 0_u32);
    while begun.elapsed() < RUN {
        for _ in 0..100 {
            read(next());
        }
        count += 100;
    }
    begun.elapsed().as_nanos() as f64 / f64::from(count)
}

const FILE_BYTES: usize = 16 << 20;
const READ_BYTES: usize = 4096;
const WARM_UP: u32 = 20_000;
const RUN: Duration = Duration::from_millis(500);
const ROUNDS: usize = 7;
const STARTS: usize = 50;
