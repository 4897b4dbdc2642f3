//! The queue of jobs that wait for a worker thread.
//!
//! Invariants:
//! - A pushed job wakes exactly one thread if any thread is idle: the thread that became idle last,
//!   because its stack is still in the processor's cache.
//! - A thread sleeps only if, for every waiting job, another thread was woken.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The waiting jobs, and the idle threads.
pub(crate) struct Queue<J> {
    state: Mutex<State<J>>,
    /// The condition variable of each thread, by thread number.
    bells: Vec<Condvar>,
}

struct State<J> {
    jobs: VecDeque<J>,
    /// The numbers of the sleeping threads, in the order in which they fell asleep.
    idle: Vec<usize>,
    is_over: bool,
}

impl<J> Queue<J> {
    /// Creates a queue for this number of threads.
    pub(crate) fn new(threads: usize) -> Self {
        let idle = Vec::with_capacity(threads);
        let state = Mutex::new(State { jobs: VecDeque::new(), idle, is_over: false });
        Self { state, bells: (0..threads).map(|_| Condvar::new()).collect() }
    }

    /// Adds a job, and wakes an idle thread if there is one.
    pub(crate) fn push(&self, job: J) {
        let mut state = self.lock();
        state.jobs.push_back(job);
        let woken = state.idle.pop();
        drop(state);
        if let Some(thread) = woken {
            self.bells[thread].notify_one();
        }
    }

    /// Removes and returns the oldest job. The thread with this number sleeps until there is a job.
    /// Returns `None` after [`Queue::end`], when all jobs are done.
    pub(crate) fn next(&self, thread: usize) -> Option<J> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.is_over {
                return None;
            }
            state.idle.push(thread);
            let sleeps = |state: &mut State<J>| state.idle.contains(&thread) && !state.is_over;
            let woken = self.bells[thread].wait_while(state, sleeps);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the queue, so that sleeping threads wake up and end.
    pub(crate) fn end(&self) {
        self.lock().is_over = true;
        self.bells.iter().for_each(Condvar::notify_one);
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    impl<J> Queue<J> {
        fn until_idle(&self, count: usize) {
            while self.lock().idle.len() < count {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn every_job_is_done_once_and_the_end_comes_behind_the_last() {
        let (queue, done) = (Queue::new(4), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let (queue, done) = (&queue, &done);
            for thread in 0..4 {
                scope.spawn(move || {
                    while let Some(job) = queue.next(thread) {
                        done.fetch_add(job, Ordering::Relaxed);
                    }
                });
            }
            for job in 1..=10_000 {
                queue.push(job);
                if job % 100 == 0 {
                    queue.until_idle(4);
                }
            }
            queue.end();
        });
        assert_eq!(done.into_inner(), 10_000 * 10_001 / 2);
    }

    #[test]
    fn who_slept_last_is_woken_and_nobody_else() {
        let queue = Queue::new(3);
        let (told, heard) = channel();
        std::thread::scope(|scope| {
            let queue = &queue;
            for thread in 0..3 {
                let told = told.clone();
                scope.spawn(move || {
                    while let Some(()) = queue.next(thread) {
                        told.send(thread).unwrap();
                    }
                });
                queue.until_idle(thread + 1);
            }
            for _ in 0..100 {
                queue.push(());
                assert_eq!(heard.recv().unwrap(), 2, "the others sleep on");
                queue.until_idle(3);
            }
            queue.end();
        });
    }
}
