//! Random steps that can be replayed: each run has a seed, and a failure prints the command that
//! replays it.

use dafs_types::Random;

/// Runs a test once for each of `count` seeds, or for the one in `DAFS_SEED`.
pub(crate) fn for_seeds(test: &'static str, count: u64, run: impl Fn(&mut Random)) {
    let wanted = std::env::var("DAFS_SEED").ok();
    let seeds = match wanted.map(|seed| seed.parse().expect("DAFS_SEED is a number")) {
        Some(seed) => seed..=seed,
        None => 1..=count,
    };
    for seed in seeds {
        let command = Replay { test, seed };
        run(&mut Random::new(seed));
        drop(command);
    }
}

struct Replay {
    test: &'static str,
    seed: u64,
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let package = env!("CARGO_PKG_NAME");
            eprintln!("replay: DAFS_SEED={} cargo test -p {package} {}", self.seed, self.test);
        }
    }
}

/// Picks one element.
pub(crate) fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[random.below(from.len())]
}
