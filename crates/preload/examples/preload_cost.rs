//! What the library costs: the start of a program against the same without it, and a read of 4 KiB
//! against the Rust client over the same shared memory, in one run: by the call that does the same
//! (`File::read_at`, into memory of the program's own), and by the one that copies nothing
//! (`File::read_into`, into registered memory, which is not looked at but for a byte).
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
        Some("straight") => println!("{}", straight_by_client(&arguments[2])),
        _ => measure(),
    }
}

fn measure() {
    let place = Place::new();
    std::fs::write(place.local("file"), vec![7; FILE_BYTES]).unwrap();
    let own = std::env::current_exe().unwrap();
    let by = |how: &str| -> f64 {
        let output = match how {
            "pread" => place.program(&own).args([how, "/dafs/file"]).output(),
            _ => Command::new(&own).args([how, &place.url()]).output(),
        };
        printed(&output.unwrap()).trim().parse().unwrap()
    };
    let rounds: Vec<[f64; 3]> =
        (0..ROUNDS).map(|_| ["client", "straight", "pread"].map(by)).collect();
    let of =
        |value: fn(&[f64; 3]) -> f64| median(&mut rounds.iter().map(value).collect::<Vec<_>>());
    println!("pread of 4 KiB by the library: {:.0} ns (medians of {ROUNDS})", of(|ns| ns[2]));
    println!(
        "Rust client, the same: {:.0} ns, ratio {:.2}; into registered memory: {:.0} ns, ratio {:.2}",
        of(|ns| ns[0]),
        of(|ns| ns[2] / ns[0]),
        of(|ns| ns[1]),
        of(|ns| ns[2] / ns[1])
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

/// The same by the client.
fn by_client(url: &str) -> f64 {
    let client = Client::new(ClientConfig::default()).unwrap();
    let location = Location::parse(url).unwrap();
    let session = client.connect(&location, &SessionOptions::default()).unwrap();
    let file = session.open("/file", &OpenOptions::read()).unwrap();
    let mut bytes = [0; READ_BYTES];
    per_read(|offset| {
        assert_eq!(file.read_at(&mut bytes, offset).unwrap(), READ_BYTES);
        assert_eq!(bytes[READ_BYTES - 1], 7);
    })
}

/// By the client, straight into its buffer.
fn straight_by_client(url: &str) -> f64 {
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
