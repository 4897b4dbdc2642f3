//! Measures the cost of copying a block out of 256 MiB that the processor's caches do not hold, and
//! into them: the C library's copy against the one that runs from front to back.
//!
//! `cargo run --release -p dafs-memory --example copy_cost [block] [buffers] [out|in]`

use std::time::Instant;

use dafs_memory::{Memory, Pages};
use dafs_types::Random;

type Copy = fn(&Memory, usize, &Memory, usize, usize);

fn main() -> std::io::Result<()> {
    let mut words = std::env::args().skip(1);
    let mut number = |default| words.next().and_then(|word| word.parse().ok()).unwrap_or(default);
    let (block, buffers): (usize, usize) = (number(4096), number(1));
    let is_in = words.next().is_some_and(|word| word == "in");
    let large = Memory::anonymous(FILE_BYTES, Pages::Huge)?;
    let small = Memory::anonymous(block * buffers, Pages::Huge)?;
    large.zero(0, FILE_BYTES);
    small.zero(0, block * buffers);
    let copies: [(&str, Copy); 2] =
        [("C library", Memory::copy), ("front to back", Memory::copy_forward)];
    let count = (ROUND_BYTES / block).max(1);
    let mut best = [f64::MAX; 2];
    let mut random = Random::new(1);
    for _ in 0..ROUNDS {
        for (best, (_, copy)) in best.iter_mut().zip(copies) {
            let start = Instant::now();
            let mut next = 0;
            for turn in 0..count {
                let here = next;
                next = random.below(FILE_BYTES / block) * block;
                // As a server does when it knows its next request.
                large.prefetch(next, block);
                let buffer = turn % buffers * block;
                if is_in {
                    copy(&small, buffer, &large, here, block);
                } else {
                    copy(&large, here, &small, buffer, block);
                }
            }
            *best = best.min(start.elapsed().as_secs_f64() * 1e9 / count as f64);
        }
    }
    for ((name, _), best) in copies.iter().zip(best) {
        println!("{name:14} {best:10.0} ns for {block} bytes");
    }
    println!("{:.2} of the C library's time", best[1] / best[0]);
    Ok(())
}

const FILE_BYTES: usize = 256 << 20;
const ROUND_BYTES: usize = 400 << 20;
const ROUNDS: usize = 15;
