//! The worker pool: threads for work that may block.
//!
//! Invariants:
//! - The number of jobs in progress is known. The result of each job is returned exactly once by
//!   [`Pool::take`], and the reactor is woken for it.
//! - A job that panics is returned as failed, and its thread continues with the next job.
//! - Jobs that clients can cause before they have logged in have threads of their own, so that they
//!   delay no other jobs.
//! - A pool without threads executes jobs only within calls.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dafs_dat::{EndpointId, Waker};
use dafs_files::ledger::{LedgerDone, LedgerJob};
use dafs_files::undo::{UndoTask, UndoTaskDone};
use dafs_store::cache::{
    ClearDone, ClearJob, FillDone, FillJob, FlushDone, FlushJob, RangeDone, RangeJob, SizeDone,
    SizeJob, SyncDone, SyncJob,
};
use dafs_store::{Store, StoreError};
use dafs_types::{Credentials, Entropy, Moment, Status};

use crate::access::credentials::{LookupDone, LookupJob};
use crate::access::gss::{TokenJob, TokenOutcome};
use crate::access::passwords::PasswordFile;
use crate::moving::sums::{SumDone, SumJob};
use crate::pool::load_hint::LoadHint;
use crate::pool::queue::Queue;
use crate::pool::reactor_cpu::ReactorCpu;
use crate::reply_to::TaskId;
use crate::waiting::SearchJob;

/// A job: work that may block.
pub(crate) enum Job {
    Fill(FillJob),
    Flush(FlushJob),
    Sync(SyncJob),
    Size(SizeJob),
    Range(TaskId, Box<RangeJob>),
    Clear(ClearJob),
    Ledger(LedgerJob),
    Undo(UndoTask),
    Login { endpoint: EndpointId, user: String, password: String, file: Arc<PasswordFile> },
    Token { endpoint: EndpointId, job: Box<TokenJob> },
    Lookup(Box<LookupJob>),
    Sum(Box<SumJob>),
    CloseRemoved(Arc<dyn Store>),
    Search(SearchJob),
}

/// The result of a job.
pub(crate) enum Done {
    Filled(FillDone),
    Flushed(FlushDone),
    Synced(SyncDone),
    Sized(SizeDone),
    Ranged(TaskId, Box<RangeDone>),
    Cleared(ClearDone),
    Ledger(LedgerDone),
    Undo(UndoTaskDone),
    Login { endpoint: EndpointId, outcome: Result<Credentials, Status> },
    Token { endpoint: EndpointId, outcome: Box<TokenOutcome> },
    LookedUp(Box<LookupDone>),
    Summed(SumDone),
    RemovedClosed,
    Searched,
}

impl Done {
    /// Returns true for a failed read of a file into the cache.
    fn is_failed_fill(&self) -> bool {
        matches!(self, Self::Filled(done) if done.has_failed())
    }
}

impl Job {
    /// Runs the job on the current thread. `pause` is called before each chunk of long work.
    fn run_in_parts(self, pause: impl Fn()) -> Done {
        match self {
            Job::Fill(job) => Done::Filled(job.run_in_parts(pause)),
            Job::Flush(job) => Done::Flushed(job.run_in_parts(pause)),
            Job::Sync(job) => Done::Synced(job.run()),
            Job::Size(job) => Done::Sized(job.run()),
            Job::Range(task, job) => Done::Ranged(task, Box::new(job.run_in_parts(pause))),
            Job::Clear(job) => Done::Cleared(job.run()),
            Job::Ledger(job) => Done::Ledger(job.run()),
            Job::Undo(task) => Done::Undo(task.run()),
            Job::Login { endpoint, user, password, file } => {
                let found = file.verify(&user, &password);
                Done::Login { endpoint, outcome: found.ok_or(Status::NotAuthorized) }
            }
            Job::Token { endpoint, job } => Done::Token { endpoint, outcome: Box::new(job.run()) },
            Job::Lookup(job) => Done::LookedUp(Box::new(job.run())),
            Job::Sum(job) => Done::Summed(job.run_in_parts(pause)),
            Job::CloseRemoved(store) => {
                store.close_removed();
                Done::RemovedClosed
            }
            Job::Search(job) => {
                job.run();
                Done::Searched
            }
        }
    }

    /// Runs the job. If the job panics, logs the panic and returns a failed result.
    fn run_guarded(self, pause: impl Fn()) -> Done {
        let (name, failed) = (self.name(), self.failed());
        match catch_unwind(AssertUnwindSafe(|| self.run_in_parts(pause))) {
            Ok(done) => done,
            Err(panic) => {
                let reason = text_of(&*panic);
                tracing::error!(
                    job = name,
                    reason,
                    "a job panicked; the request that needs it fails"
                );
                failed
            }
        }
    }

    /// Returns the name of the job's kind, for the log.
    fn name(&self) -> &'static str {
        match self {
            Job::Fill(_) => "reading a file",
            Job::Flush(_) => "writing a file",
            Job::Sync(_) => "syncing a file",
            Job::Size(_) => "changing a file's size",
            Job::Range(..) => "changing a range of a file",
            Job::Clear(_) => "clearing memory",
            Job::Ledger(_) => "writing the journal",
            Job::Undo(_) => "writing undo data",
            Job::Login { .. } => "checking a password",
            Job::Token { .. } => "checking a token",
            Job::Lookup(_) => "looking up a user",
            Job::Sum(_) => "computing checksums",
            Job::CloseRemoved(_) => "closing removed files",
            Job::Search(_) => "searching for a file",
        }
    }

    /// Returns the result to report if the job panics. It is created before the job runs, because
    /// running consumes the job.
    fn failed(&self) -> Done {
        match self {
            Job::Fill(job) => Done::Filled(job.failed(StoreError::Fault)),
            Job::Flush(job) => Done::Flushed(job.failed(StoreError::Fault)),
            Job::Sync(job) => Done::Synced(job.failed(StoreError::Fault)),
            Job::Size(job) => Done::Sized(job.failed(StoreError::Fault)),
            Job::Range(task, job) => Done::Ranged(*task, Box::new(job.failed(StoreError::Fault))),
            Job::Clear(job) => Done::Cleared(job.skipped()),
            Job::Ledger(job) => Done::Ledger(job.failed(PANICKED)),
            Job::Undo(task) => Done::Undo(task.failed(PANICKED)),
            Job::Login { endpoint, .. } => {
                Done::Login { endpoint: *endpoint, outcome: Err(Status::ServerFault) }
            }
            Job::Token { endpoint, .. } => {
                Done::Token { endpoint: *endpoint, outcome: Box::new(TokenOutcome::Panicked) }
            }
            Job::Lookup(job) => Done::LookedUp(Box::new(job.failed())),
            Job::Sum(job) => Done::Summed(job.failed()),
            Job::CloseRemoved(_) => Done::RemovedClosed,
            Job::Search(_) => Done::Searched,
        }
    }
}

/// Returns the message of a panic.
fn text_of(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// The number of threads that check logins. Each check of a password uses a processor core and 19
/// MiB of memory.
pub(crate) const LOGIN_THREADS: usize = 2;

/// The error text of a job that has panicked.
const PANICKED: &str = "the job panicked; the log says where";

/// The worker threads and their queues. The threads end when the pool is dropped.
pub(crate) struct Pool {
    workers: Workers,
    under_way: usize,
    /// The number of the reactor whose turn it is.
    reactor: usize,
    /// True if the machine has another processor core for jobs than the core that the reactor uses.
    has_core: bool,
    /// The hint whether several requests wait for the reactor.
    load_hint: LoadHint,
    /// The end of a period that a slow disk access starts. During the period the reactor itself
    /// reads no file.
    slow_until: Moment,
}

/// The threads that execute the jobs, or the queue from which the owner of a stepped server
/// executes them.
enum Workers {
    Threads {
        jobs: Arc<Queue<SubmittedJob>>,
        logins: Arc<Queue<SubmittedJob>>,
        done: Receiver<Done>,
        threads: Vec<JoinHandle<()>>,
        owner: ReactorCpu,
    },
    /// There are no threads. The owner of a stepped server executes the jobs within calls of
    /// [`Pool::take`], in an order that `entropy` decides. With the wakers of several reactors, the
    /// jobs are executed within calls of [`Pool::work`] instead.
    Owner { jobs: Vec<Waiting>, entropy: Box<dyn Entropy + Send>, wakers: Vec<Waker> },
}

/// A job, and the number of the reactor that submitted it. That reactor is woken when the job is
/// done.
type SubmittedJob = (Job, usize);

/// A job of a pool without threads.
enum Waiting {
    New(SubmittedJob),
    /// The job was executed, but no reactor has taken its result yet.
    Over(Done),
}

impl Pool {
    /// Starts a pool with `count` threads.
    pub(crate) fn new(count: usize, wakers: &[Waker]) -> std::io::Result<Self> {
        let count = count.max(1);
        let jobs = Arc::new(Queue::<SubmittedJob>::new(count));
        let logins = Arc::new(Queue::<SubmittedJob>::new(LOGIN_THREADS));
        let (outbox, done) = channel();
        let wakers: Arc<[Waker]> = wakers.into();
        let owner = ReactorCpu::unknown();
        let start = |queue: &Arc<Queue<SubmittedJob>>, name: &str, number: usize| {
            let (jobs, outbox, wakers) = (queue.clone(), outbox.clone(), wakers.clone());
            let owner = owner.clone();
            std::thread::Builder::new().name(format!("{name}-{number}")).spawn(move || {
                while let Some((job, reactor)) = jobs.next(number) {
                    if outbox.send(job.run_guarded(|| owner.yield_if_shared())).is_err() {
                        return;
                    }
                    if let Some(waker) = wakers.get(reactor) {
                        waker.wake();
                    }
                }
            })
        };
        let io = (0..count).map(|number| start(&jobs, "dafs-io", number));
        let checks = (0..LOGIN_THREADS).map(|number| start(&logins, "dafs-login", number));
        let threads = io.chain(checks).collect::<std::io::Result<_>>().inspect_err(|_| {
            jobs.end();
            logins.end();
        })?;
        let has_core = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
        Ok(Self::of(Workers::Threads { jobs, logins, done, threads, owner }, has_core))
    }

    /// Creates a pool without threads. Each call of [`Pool::take`] executes one job. `entropy`
    /// decides which job, because jobs on threads finish in any order, too. If there are several
    /// reactors, [`Pool::work`] executes the jobs instead and wakes a reactor.
    pub(crate) fn stepped(entropy: Box<dyn Entropy + Send>, wakers: Vec<Waker>) -> Self {
        let wakers = if wakers.len() > 1 { wakers } else { Vec::new() };
        Self::of(Workers::Owner { jobs: Vec::new(), entropy, wakers }, true)
    }

    /// Executes one job of a pool without threads, and wakes the reactor that submitted it. Used
    /// only with several reactors.
    pub(crate) fn work(&mut self) {
        let Workers::Owner { jobs, entropy, wakers } = &mut self.workers else { return };
        if wakers.is_empty() {
            return;
        }
        let Some(index) = draw(jobs, entropy.as_mut(), |job| matches!(job, Waiting::New(_))) else {
            return;
        };
        if let Waiting::New((job, reactor)) = jobs.swap_remove(index) {
            jobs.push(Waiting::Over(job.run_in_parts(|| ())));
            if let Some(waker) = wakers.get(reactor) {
                waker.wake();
            }
        }
    }

    fn of(workers: Workers, has_core: bool) -> Self {
        let (load_hint, slow_until) = (LoadHint::default(), Moment(0));
        Self { workers, under_way: 0, reactor: 0, has_core, load_hint, slow_until }
    }

    /// Records that a turn of this reactor begins.
    #[inline]
    pub(crate) fn begin_turn(&mut self, reactor: usize) {
        self.reactor = reactor;
        self.load_hint.begin_turn();
    }

    /// Records for the load hint that the reactor has a request to execute.
    #[inline]
    pub(crate) fn on_request(&mut self) {
        self.load_hint.on_request();
    }

    /// Submits a job to the worker threads. The queue needs no limit, because credits and the cache
    /// limit the number of jobs.
    pub(crate) fn submit(&mut self, job: Job) {
        self.under_way += 1;
        match &mut self.workers {
            Workers::Threads { jobs, .. } => jobs.push((job, self.reactor)),
            Workers::Owner { jobs, .. } => jobs.push(Waiting::New((job, self.reactor))),
        }
    }

    /// Submits a login check. At most [`LOGIN_THREADS`] may be in progress.
    pub(crate) fn submit_login(&mut self, job: Job) {
        self.under_way += 1;
        match &mut self.workers {
            Workers::Threads { logins, .. } => logins.push((job, self.reactor)),
            Workers::Owner { jobs, .. } => jobs.push(Waiting::New((job, self.reactor))),
        }
    }

    /// Executes a job on the reactor's thread.
    pub(crate) fn run_here(&self, job: Job) -> Done {
        match &self.workers {
            Workers::Threads { .. } => job.run_guarded(|| ()),
            // The owner of a stepped server must see a panic, so it is not caught.
            Workers::Owner { .. } => job.run_in_parts(|| ()),
        }
    }

    /// Records the processor on which this thread, the reactor, runs. Worker threads on the same
    /// processor yield to the reactor between the chunks of their work.
    #[inline]
    pub(crate) fn note_owner(&self) {
        if let Workers::Threads { owner, .. } = &self.workers
            && self.under_way > 0
        {
            owner.note();
        }
    }

    /// Returns true if it improves throughput to give even short jobs to the pool, because several
    /// requests wait for the reactor.
    #[inline]
    pub(crate) fn helps(&self) -> bool {
        self.has_core && self.load_hint.is_there()
    }

    /// Returns true if the disk was slow recently, so that jobs that read it must go to a worker
    /// thread.
    #[inline]
    pub(crate) fn has_slow_disk(&self, now: Moment) -> bool {
        now < self.slow_until
    }

    /// Executes a job on the reactor's thread if it is likely to be quick, otherwise submits it.
    /// Returns the result of a job that was executed here.
    pub(crate) fn do_or_submit(&mut self, job: Job, now: Moment) -> Option<Done> {
        let is_sync = matches!(job, Job::Sync(_));
        let drawn = self.draw_in_place();
        // A client waits for each single fill, so a fill is executed here. Flushes come in groups,
        // so they may go to the pool.
        let is_given = matches!(job, Job::Flush(_)) && self.helps();
        if is_sync || !drawn.unwrap_or(!self.has_slow_disk(now) && !is_given) {
            self.submit(job);
            return None;
        }
        let start = Instant::now();
        let done = self.run_here(job);
        // The data was not in the page cache, so a worker thread must wait for the disk. A failed
        // read is not reported here: the task submits the read again and gets the error from a
        // worker thread.
        if drawn.is_none() && (done.is_failed_fill() || start.elapsed() > SLOW_JOB) {
            self.slow_until = now.after(SLOW_PERIOD);
        }
        Some(done)
    }

    /// Removes and returns the result of a finished job. `None` if no job has finished.
    pub(crate) fn take(&mut self) -> Option<Done> {
        if self.under_way == 0 {
            return None;
        }
        let done = match &mut self.workers {
            Workers::Threads { done, .. } => done.try_recv().ok()?,
            Workers::Owner { jobs, entropy, wakers } if wakers.is_empty() => {
                step_one(jobs, entropy.as_mut())?
            }
            Workers::Owner { jobs, entropy, .. } => take_over(jobs, entropy.as_mut())?,
        };
        self.under_way -= 1;
        Some(done)
    }

    /// Returns the maximum number of results that one turn takes. A stepped server executes its
    /// jobs when it takes their results, so it has no limit.
    pub(crate) fn results_max(&self) -> usize {
        match &self.workers {
            Workers::Threads { .. } => self.under_way,
            Workers::Owner { .. } => usize::MAX,
        }
    }

    /// Returns the number of submitted jobs whose results no reactor has taken yet.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way
    }

    /// Decides by random numbers, for a stepped server, whether the reactor executes a quick job
    /// itself. `None` for a pool with threads, where the measured times decide.
    fn draw_in_place(&mut self) -> Option<bool> {
        match &mut self.workers {
            Workers::Threads { .. } => None,
            Workers::Owner { entropy, .. } => Some(entropy.next_u64().is_multiple_of(2)),
        }
    }
}

/// The execution time above which a job that ran on the reactor's thread is assumed to have waited
/// for a disk.
const SLOW_JOB: Duration = Duration::from_micros(400);
const SLOW_PERIOD: Duration = Duration::from_millis(20);

/// Chooses a job at random. If the job was executed before, returns its result. Otherwise executes
/// the job and returns `None`.
fn step_one(jobs: &mut Vec<Waiting>, entropy: &mut dyn Entropy) -> Option<Done> {
    let index = usize::try_from(entropy.next_u64() % jobs.len().max(1) as u64).ok()?;
    if index >= jobs.len() {
        return None;
    }
    match jobs.swap_remove(index) {
        Waiting::Over(done) => Some(done),
        Waiting::New((job, _)) => {
            jobs.push(Waiting::Over(job.run_in_parts(|| ())));
            None
        }
    }
}

/// Removes and returns the result of a random executed job.
fn take_over(jobs: &mut Vec<Waiting>, entropy: &mut dyn Entropy) -> Option<Done> {
    let index = draw(jobs, entropy, |job| matches!(job, Waiting::Over(_)))?;
    match jobs.swap_remove(index) {
        Waiting::Over(done) => Some(done),
        Waiting::New(_) => None,
    }
}

/// Returns the index of a random job among the jobs that `is_wanted` accepts.
fn draw(
    jobs: &[Waiting],
    entropy: &mut dyn Entropy,
    is_wanted: impl Fn(&Waiting) -> bool,
) -> Option<usize> {
    let places: Vec<usize> = (0..jobs.len()).filter(|place| is_wanted(&jobs[*place])).collect();
    let count = u64::try_from(places.len()).ok().filter(|count| *count > 0)?;
    places.get(usize::try_from(entropy.next_u64() % count).ok()?).copied()
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Workers::Threads { jobs, logins, threads, .. } = &mut self.workers {
            jobs.end();
            logins.end();
            for thread in threads.drain(..) {
                let _ = thread.join();
            }
        }
    }
}
