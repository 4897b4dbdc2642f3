//! The processor time of another process by thread, which separates a server's reactors from its
//! pool. Also the time that all programs used on the cores available to this process.
//!
//! Invariant: two readings are compared by thread id. A thread that started between them counts
//! from its start, and a thread that has ended does not count.

use std::time::Duration;

/// The processor time of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadTime {
    /// The id of the thread. The first thread has the id of its process.
    pub id: u32,
    /// The name of the thread, of which the kernel keeps 15 bytes.
    pub name: String,
    /// The processor time that the thread has used so far.
    pub time: Duration,
}

/// Returns the processor time of each thread of a process, from the scheduler's statistics; `None`
/// if there is no such process.
#[must_use]
pub fn thread_times(process: u32) -> Option<Vec<ThreadTime>> {
    let mut times = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{process}/task")).ok()? {
        let path = task.ok()?.path();
        let id = path.file_name()?.to_str()?.parse().ok()?;
        // A thread may end between the listing and the read.
        let Ok(statistics) = std::fs::read_to_string(path.join("schedstat")) else { continue };
        let Ok(name) = std::fs::read_to_string(path.join("comm")) else { continue };
        let nanoseconds = statistics.split_whitespace().next()?.parse().ok()?;
        let (name, time) = (name.trim_end().to_owned(), Duration::from_nanos(nanoseconds));
        times.push(ThreadTime { id, name, time });
    }
    Some(times)
}

/// Returns the processor time that each thread has used between two readings.
#[must_use]
pub fn spent(before: &[ThreadTime], after: &[ThreadTime]) -> Vec<ThreadTime> {
    let earlier = |id| before.iter().find(|thread| thread.id == id).map(|thread| thread.time);
    let spent = after.iter().map(|thread| {
        let time = thread.time.saturating_sub(earlier(thread.id).unwrap_or_default());
        ThreadTime { time, ..thread.clone() }
    });
    spent.collect()
}

/// Returns the time for which the cores available to this process have been busy in total, for any
/// program, including time that a hypervisor took. The resolution is a hundredth of a second.
/// Returns `None` if the system does not report this time, or if a quota gives this process only a
/// fraction of the cores' time.
#[must_use]
pub fn busy_time() -> Option<Duration> {
    let allowed = rustix::thread::sched_getaffinity(None).ok()?;
    let cores = std::thread::available_parallelism().ok()?;
    if allowed.count() as usize > cores.get() {
        return None;
    }
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let ticks = text.lines().filter_map(core_in).filter(|(core, _)| allowed.is_set(*core));
    let ticks: u64 = ticks.map(|(_, ticks)| ticks).sum();
    Some(Duration::from_micros(ticks * 1_000_000 / rustix::param::clock_ticks_per_second()))
}

/// Parses a line of `/proc/stat` for one core. Returns the core's number and its busy ticks.
fn core_in(line: &str) -> Option<(usize, u64)> {
    let mut words = line.strip_prefix("cpu")?.split_whitespace();
    let core = words.next().filter(|_| !line.starts_with("cpu "))?.parse().ok()?;
    // The fields: user, nice, system, idle, iowait, irq, softirq, steal. User time includes guests.
    let ticks: Vec<u64> = words.take(8).map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some((core, ticks.iter().sum::<u64>() - idle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_found_by_its_name_and_its_time_grows() {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let busy = std::thread::Builder::new().name("busy-thread".into()).spawn(move || {
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                std::hint::spin_loop();
            }
        });
        let look = || thread_times(std::process::id()).unwrap();
        let before = look();
        let is_busy = |thread: &ThreadTime| thread.name == "busy-thread" && !thread.time.is_zero();
        while !spent(&before, &look()).iter().any(is_busy) {
            std::thread::yield_now();
        }
        drop(stop);
        busy.unwrap().join().unwrap();
    }

    #[test]
    fn a_core_is_busy_when_it_neither_idles_nor_waits_for_a_disk() {
        assert_eq!(core_in("cpu3 1 2 4 100 200 8 16 32 1 0"), Some((3, 63)));
        assert_eq!(core_in("cpu  1 2 4 100 200 8 16 32 1 0"), None);
        assert_eq!(core_in("ctxt 12"), None);
    }

    #[test]
    fn time_from_before_the_interval_is_subtracted() {
        let at = |id, milliseconds| {
            let time = Duration::from_millis(milliseconds);
            ThreadTime { id, name: format!("thread-{id}"), time }
        };
        let spent = spent(&[at(1, 5), at(2, 7)], &[at(1, 8), at(3, 2)]);
        assert_eq!(spent, [at(1, 3), at(3, 2)]);
    }
}
