//! Driver threads, each of which owns a client, and the calls from other threads to them.
//!
//! Invariants:
//! - A client and all objects that belong to it stay on their driver thread.
//! - A caller has at most one command in the queue, and at most [`OPERATIONS_MAX`] commands are in
//!   progress. A command stops counting as in progress when its reply is sent, so a caller that
//!   does not fetch its reply does not delay other callers.
//! - A started command runs to its end even if its caller has dropped the future, so a cancelled
//!   call never leaves a change of names half done. If the caller drops the future earlier, the
//!   command is not started.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};

use crate::bell::{Bell, Garbage};
use crate::builder::Settings;
use crate::error::{Fault, StoreError};
use crate::worker::Worker;

/// A command to a driver thread: a function that makes the task to run.
type Command = Box<dyn Ask + Send>;
/// A command that is being executed.
type Task = Pin<Box<dyn Future<Output = ()>>>;

/// A handle to a driver thread. The thread ends when the last handle is dropped.
pub(crate) struct Driver {
    commands: mpsc::UnboundedSender<Command>,
    bell: Arc<Bell>,
}

/// A command, independent of the type of its reply.
trait Ask {
    /// True if no caller waits for the reply.
    fn is_abandoned(&self) -> bool;

    fn start(self: Box<Self>, worker: Rc<Worker>) -> Task;
}

/// A command: the work to do, and the channel for its reply.
struct Asked<T, F> {
    work: F,
    reply: oneshot::Sender<Result<T, Fault>>,
    /// The time when the caller made the call.
    at: Instant,
}

impl<T, F, W> Ask for Asked<T, F>
where
    T: 'static,
    F: FnOnce(Rc<Worker>) -> W,
    W: Future<Output = Result<T, Fault>> + 'static,
{
    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    fn start(self: Box<Self>, worker: Rc<Worker>) -> Task {
        let Self { work, reply, at } = *self;
        let work = work(worker.clone());
        Box::pin(async move {
            let mut work = pin!(work);
            let outcome = poll_fn(|context| {
                worker.asked_at.set(at);
                work.as_mut().poll(context)
            });
            let outcome = outcome.await;
            if let Err(fault) = &outcome {
                worker.note_failure(fault);
            }
            // Ignore an error: the caller may be gone.
            let _ = reply.send(outcome);
        })
    }
}

impl Driver {
    /// Starts a driver thread. The thread connects when it gets its first command.
    ///
    /// # Errors
    /// If the system has no more threads or descriptors.
    pub(crate) fn start(settings: Arc<Settings>) -> std::io::Result<Arc<Self>> {
        let bell = Arc::new(Bell::new()?);
        let (commands, queue) = mpsc::unbounded_channel();
        let own = bell.clone();
        std::thread::Builder::new()
            .name("dafs-object-store".into())
            .spawn(move || run(&settings, queue, &own))?;
        Ok(Arc::new(Self { commands, bell }))
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Runs `work` on the driver thread, and returns its result.
    pub(crate) async fn call<T, F, W>(&self, work: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Worker>) -> W + Send + 'static,
        W: Future<Output = Result<T, Fault>> + 'static,
    {
        let stopped = || Fault::Refused(StoreError::Stopped);
        let (reply, receiver) = oneshot::channel();
        let asked = Asked { work, reply, at: Instant::now() };
        self.commands.send(Box::new(asked)).map_err(|_| stopped())?;
        receiver.await.map_err(|_| stopped())?
    }
}

/// Runs in the driver thread until the queue of commands is closed.
fn run(settings: &Arc<Settings>, queue: mpsc::UnboundedReceiver<Command>, bell: &Arc<Bell>) {
    match Worker::new(settings.clone(), bell.clone()) {
        Ok(worker) => {
            let (worker, waiting) = (Rc::new(worker), Waiting::default());
            Loop { worker, queue, waiting, tasks: FuturesUnordered::new() }.run(bell)
        }
        Err(error) => refuse_all(settings, queue, bell, &error),
    }
}

/// Fails every command with the error that kept the thread from making its client.
fn refuse_all(
    settings: &Arc<Settings>,
    mut queue: mpsc::UnboundedReceiver<Command>,
    bell: &Arc<Bell>,
    error: &dafs_client::ClientError,
) {
    let worker = Rc::new(Worker::broken(settings.clone(), bell.clone(), error.clone()));
    while let Some(command) = queue.blocking_recv() {
        let mut task = command.start(worker.clone());
        // Every command requests the session first, and that request fails immediately.
        let _ = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
}

struct Loop {
    worker: Rc<Worker>,
    queue: mpsc::UnboundedReceiver<Command>,
    waiting: Waiting,
    tasks: FuturesUnordered<Task>,
}

impl Loop {
    fn run(mut self, bell: &Arc<Bell>) {
        let waker = Waker::from(bell.clone());
        let mut context = Context::from_waker(&waker);
        let mut silence = Silence::default();
        loop {
            bell.clear();
            let is_closed = self.take_commands(&mut context);
            self.sweep(bell);
            self.worker.timers.fire();
            self.start_commands();
            while let Poll::Ready(Some(())) = self.tasks.poll_next_unpin(&mut context) {
                self.start_commands();
            }
            if is_closed && self.tasks.is_empty() {
                return self.worker.leave();
            }
            let Some(client) = self.worker.client() else { return };
            let count = client.process_pending_events();
            silence.note(client, count);
            if count > 0 || bell.is_rung() {
                continue;
            }
            let limits =
                [client.next_timer(), self.worker.timers.until_next(), silence.left(client)];
            bell.sleep(client, limits.into_iter().flatten().min());
        }
    }

    /// Takes all commands out of the queue. Returns true if the queue is closed.
    fn take_commands(&mut self, context: &mut Context<'_>) -> bool {
        loop {
            match self.queue.poll_recv(context) {
                Poll::Ready(Some(command)) => self.waiting.push(command),
                Poll::Ready(None) => return true,
                Poll::Pending => return false,
            }
        }
    }

    /// Starts waiting commands until the maximum number is in progress.
    fn start_commands(&mut self) {
        while self.tasks.len() < OPERATIONS_MAX {
            let Some(command) = self.waiting.pop() else { return };
            self.tasks.push(command.start(self.worker.clone()));
        }
    }

    fn sweep(&mut self, bell: &Bell) {
        for garbage in bell.take_garbage() {
            match garbage {
                Garbage::File(number) => self.worker.close_file(number),
                Garbage::Buffer(number) => self.worker.free_buffer(number),
                Garbage::Upload(number) => {
                    let worker = self.worker.clone();
                    self.tasks.push(Box::pin(async move {
                        // Ignore an error: `DafsStore::remove_leftovers` removes the file later.
                        let _ = worker.abort_upload(number).await;
                    }));
                }
            }
        }
    }
}

/// The commands that were not started yet, in order of arrival. Their number is bounded by the
/// number of callers: abandoned commands are removed before they outnumber the others.
#[derive(Default)]
struct Waiting {
    commands: VecDeque<Command>,
    /// The number of commands at which abandoned commands are removed.
    pruned_at: usize,
}

impl Waiting {
    fn push(&mut self, command: Command) {
        if self.commands.len() >= self.pruned_at.max(OPERATIONS_MAX) {
            self.commands.retain(|command| !command.is_abandoned());
            self.pruned_at = 2 * self.commands.len();
        }
        self.commands.push_back(command);
    }

    /// Removes and returns the next command that a caller still waits for.
    fn pop(&mut self) -> Option<Command> {
        while let Some(command) = self.commands.pop_front() {
            if !command.is_abandoned() {
                return Some(command);
            }
        }
        None
    }
}

/// Measures how long the server has sent nothing while at least one reply is outstanding.
struct Silence {
    heard: Instant,
    was_owed: bool,
}

impl Default for Silence {
    fn default() -> Self {
        Self { heard: Instant::now(), was_owed: false }
    }
}

impl Silence {
    /// Notes that `count` events have arrived. Ends sessions that have been silent for too long.
    fn note(&mut self, client: &dafs_client::Client, count: usize) {
        let patience = client.min_answer_timeout();
        if count > 0 || !self.was_owed {
            self.heard = Instant::now();
        }
        self.was_owed = patience.is_some();
        let silence = self.heard.elapsed();
        if patience.is_some_and(|patience| silence >= patience) {
            client.end_silent_sessions(silence);
        }
    }

    fn left(&self, client: &dafs_client::Client) -> Option<Duration> {
        client.min_answer_timeout().map(|patience| patience.saturating_sub(self.heard.elapsed()))
    }
}

/// The maximum number of operations in progress on one driver thread. Further commands wait in its
/// queue.
const OPERATIONS_MAX: usize = 64;
