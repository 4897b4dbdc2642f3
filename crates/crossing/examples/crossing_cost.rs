//! What an ask and its answer cost between two reactors, each on a thread of its own.
//!
//! ```text
//! cargo run --release -p dafs-crossing --example crossing_cost
//! ```
//!
//! Nanoseconds for an ask and its answer, the median of five turns: with 1 and 32 under way, and
//! with reactors that look at their rings all the time or sleep when there is nothing. It wants two
//! cores at least, and says how many there are. `--asks N` sets how many asks a turn has.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use dafs_crossing::{Crossing, Event, Port, Rest};
use dafs_types::{Shard, ShardCount};
use rustix::event::{PollFd, PollFlags, poll};

/// As large as an operation with a handle.
type Ask = [u64; 12];
type Answer = [u64; 4];
type BenchPort = Port<Ask, Answer, ()>;

const TURNS: usize = 5;
const SLOTS: usize = 64;
const ASKER: Shard = Shard(0);
const ASKED: Shard = Shard(1);

/// What a reactor does when nothing has come.
#[derive(Clone, Copy, PartialEq)]
enum Idle {
    Looks,
    Sleeps,
}

fn main() {
    let asks = asks_wanted();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("{cores} cores; nanoseconds for an ask and its answer, and checksum of the answers");
    let arrangements = [
        ("awake, 1 under way", Idle::Looks, 1, asks),
        ("awake, 32 under way", Idle::Looks, 32, asks),
        ("asleep, 1 under way", Idle::Sleeps, 1, asks / 20),
        ("asleep, 32 under way", Idle::Sleeps, 32, asks / 20),
    ];
    let mut times = vec![Vec::new(); arrangements.len()];
    let mut sums = vec![0; arrangements.len()];
    for _ in 0..TURNS {
        for (index, (_, idle, depth, count)) in arrangements.into_iter().enumerate() {
            let (time, sum) = turn(idle, depth, count.max(1));
            times[index].push(time);
            sums[index] = sum;
        }
    }
    for ((name, ..), (times, sum)) in arrangements.iter().zip(times.iter_mut().zip(sums)) {
        times.sort_by(f64::total_cmp);
        println!("{name:24} {:10.0} {sum:016x}", times[TURNS / 2]);
    }
}

fn asks_wanted() -> u64 {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--asks");
    arguments.nth(1).and_then(|count| count.parse().ok()).unwrap_or(2_000_000)
}

/// Returns nanoseconds for each of `count` asks, and the sum of all answers.
fn turn(idle: Idle, depth: u64, count: u64) -> (f64, u64) {
    let count_of_reactors = ShardCount::new(2).expect("two");
    let ports = Crossing::open(count_of_reactors, SLOTS).expect("descriptors");
    let [mut asker, mut asked] = <[BenchPort; 2]>::try_from(ports).expect("two ports");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                serve(&mut asked);
                wait(&mut asked, idle, || is_over.load(Ordering::Acquire));
            }
        });
        let start = Instant::now();
        let sum = ask_all(&mut asker, idle, depth, count);
        let time = start.elapsed().as_nanos() as f64 / count as f64;
        is_over.store(true, Ordering::Release);
        asker.nudge(ASKED);
        (time, sum)
    })
}

fn serve(port: &mut BenchPort) {
    while let Some(event) = port.take() {
        if let Event::Asked { permit, ask } = event {
            let sum = ask.iter().fold(0, |sum: u64, word| sum.wrapping_add(*word));
            port.answer(permit, [sum; 4]);
        }
    }
    port.flush();
}

fn ask_all(port: &mut BenchPort, idle: Idle, depth: u64, count: u64) -> u64 {
    assert_eq!(port.own(), ASKER);
    let (mut sent, mut done, mut sum) = (0, 0, 0u64);
    while done < count {
        while sent < count && sent - done < depth && port.ask(ASKED, [sent; 12]).is_ok() {
            sent += 1;
        }
        port.flush();
        wait(port, idle, || false);
        while let Some(event) = port.take() {
            if let Event::Answered { answer, .. } = event {
                sum = sum.wrapping_add(answer[0]);
                done += 1;
            }
        }
    }
    sum
}

fn wait(port: &mut BenchPort, idle: Idle, has_more: impl FnOnce() -> bool) {
    match idle {
        Idle::Looks if port.has_any() => {}
        Idle::Looks => std::hint::spin_loop(),
        Idle::Sleeps => {
            if port.prepare_sleep_unless(has_more) == Rest::MaySleep {
                let fd = port.wake_fd().expect("an eventfd");
                poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).expect("poll");
                port.get_up();
            }
        }
    }
}
