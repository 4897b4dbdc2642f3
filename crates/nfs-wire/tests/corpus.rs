//! Runs the bodies of the fuzz targets over their committed seeds and many mutations of them. Set
//! `DAFS_WRITE_CORPUS=1` to write the seeds again.

use std::fs;
use std::path::PathBuf;

use dafs_nfs_wire::{PROGRAMS, fuzzing};
use dafs_types::Random;

/// The number of mutations tried per target.
const MUTATIONS: usize = 20_000;

fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

fn mutate(seed: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes.truncate(at),
            1 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            2 if !bytes.is_empty() => bytes[at] = [0, 1, 8, 0x7f, 0x80, 0xff][random.below(6)],
            3 => bytes.insert(at, random.below(256) as u8),
            4 => bytes.extend_from_slice(&other[random.below(other.len())..]),
            _ => {
                let aligned = at / 4 * 4;
                if let Some(word) = bytes.get_mut(aligned..aligned + 4) {
                    word.copy_from_slice(&(random.below(300) as u32).to_be_bytes());
                }
            }
        }
    }
    bytes
}

fn run(target: &str, body: fn(&[u8])) {
    let mut files: Vec<_> = fs::read_dir(folder(target))
        .unwrap_or_else(|error| panic!("corpus of {target}: {error}"))
        .map(|entry| entry.expect("a readable folder").path())
        .collect();
    files.sort();
    let seeds: Vec<_> = files.iter().map(|file| fs::read(file).expect("a readable seed")).collect();
    assert!(!seeds.is_empty(), "no seeds for {target}");
    seeds.iter().for_each(|seed| body(seed));
    let mut random = Random::new(1);
    for _ in 0..MUTATIONS {
        let (seed, other) = (random.below(seeds.len()), random.below(seeds.len()));
        body(&mutate(&seeds[seed], &seeds[other], &mut random));
    }
}

#[test]
fn calls_do_not_panic() {
    run("nfs_wire_call", fuzzing::call);
}

#[test]
fn values_do_not_panic() {
    run("nfs_wire_value", fuzzing::value);
}

#[test]
fn compounds_do_not_panic() {
    run("nfs_wire_compound", fuzzing::nfs4::compound);
}

#[test]
fn callbacks_do_not_panic() {
    run("nfs_wire_callback", fuzzing::nfs4::callback);
}

#[test]
fn attributes_do_not_panic() {
    run("nfs_wire_fattr", fuzzing::nfs4::fattr);
}

/// Writes one seed for each call and for each other type if asked to.
#[test]
fn seeds_can_be_written() {
    if std::env::var_os("DAFS_WRITE_CORPUS").is_none() {
        return;
    }
    let write = |target: &str, name: &str, bytes: &[u8]| {
        fs::create_dir_all(folder(target)).expect("a folder");
        fs::write(folder(target).join(name.replace(' ', "-")), bytes).expect("a seed");
    };
    for program in PROGRAMS {
        for (index, row) in program.rows.iter().enumerate() {
            let call = fuzzing::generated_call(program, index, 3);
            write("nfs_wire_call", &format!("{} {}", program.name, row.name), &call);
        }
    }
    for (target, name, bytes) in fuzzing::nfs4::seeds(3) {
        write(target, &name, &bytes);
    }
    for (index, (name, codec)) in fuzzing::codecs().into_iter().enumerate() {
        let mut bytes = (index as u16).to_be_bytes().to_vec();
        fuzzing::generate(codec.shape, 5, &mut bytes);
        // Other targets have the seeds of arguments and of attributes.
        let is_elsewhere = name.ends_with(" arguments") || name.starts_with("attribute ");
        if bytes.len() > 2 && !is_elsewhere {
            write("nfs_wire_value", &name, &bytes);
        }
    }
}
