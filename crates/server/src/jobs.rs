//! The pool: threads for what may block.
//!
//! Invariant: the number of jobs under way is known; each comes back exactly once
//! through [`Pool::take`], and the reactor is woken when one does.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use dafs_dat::{EndpointId, Waker};
use dafs_store::cache::{
    FillDone, FillJob, FlushDone, FlushJob, SizeDone, SizeJob, SyncDone, SyncJob,
};
use dafs_types::Credentials;

use crate::passwords::PasswordFile;

/// Something that may block.
pub enum Job {
    Fill(FillJob),
    Flush(FlushJob),
    Sync(SyncJob),
    Size(SizeJob),
    Login { endpoint: EndpointId, user: String, password: String, file: Arc<PasswordFile> },
}

/// What came of it.
pub enum Done {
    Filled(FillDone),
    Flushed(FlushDone),
    Synced(SyncDone),
    Sized(SizeDone),
    Login { endpoint: EndpointId, credentials: Option<Credentials> },
}

impl Job {
    /// Does it, on this thread.
    pub fn run(self) -> Done {
        match self {
            Job::Fill(job) => Done::Filled(job.run()),
            Job::Flush(job) => Done::Flushed(job.run()),
            Job::Sync(job) => Done::Synced(job.run()),
            Job::Size(job) => Done::Sized(job.run()),
            Job::Login { endpoint, user, password, file } => {
                Done::Login { endpoint, credentials: file.verify(&user, &password) }
            }
        }
    }
}

/// The threads. They end when the pool is dropped.
pub struct Pool {
    jobs: Option<Sender<Job>>,
    done: Receiver<Done>,
    under_way: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts `count` threads.
    pub fn new(count: usize, waker: &Waker) -> std::io::Result<Self> {
        let (jobs, inbox) = channel::<Job>();
        let (outbox, done) = channel();
        let inbox = Arc::new(Mutex::new(inbox));
        let threads = (0..count.max(1))
            .map(|number| {
                let (inbox, outbox, waker) = (inbox.clone(), outbox.clone(), waker.clone());
                std::thread::Builder::new().name(format!("dafs-io-{number}")).spawn(move || {
                    while let Some(job) = next(&inbox) {
                        if outbox.send(job.run()).is_err() {
                            return;
                        }
                        waker.wake();
                    }
                })
            })
            .collect::<std::io::Result<_>>()?;
        Ok(Self { jobs: Some(jobs), done, under_way: Arc::default(), threads })
    }

    /// Gives a job away. What calls this is bounded by credits and by the cache.
    pub fn submit(&self, job: Job) {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        if let Some(jobs) = &self.jobs {
            // The threads live as long as the sender.
            let _ = jobs.send(job);
        }
    }

    /// A job that has come back, if any.
    pub fn take(&self) -> Option<Done> {
        if self.under_way() == 0 {
            return None;
        }
        let done = self.done.try_recv().ok()?;
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        Some(done)
    }

    /// Jobs given away and not come back.
    pub fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }
}

fn next(inbox: &Mutex<Receiver<Job>>) -> Option<Job> {
    inbox.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
