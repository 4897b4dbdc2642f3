//! Driver threads, each of which owns a client, and the calls that other threads make to them.
//!
//! Invariants:
//! - A client and all that belongs to it stays on its driver thread.
//! - A caller has at most one command in the queue, and no more than [`OPERATIONS_MAX`] commands are
//!   in progress. Only a command in progress occupies one of these places: a reply that its caller
//!   does not fetch holds up nobody.
//! - A command that was started runs to its end, even if its caller is gone: no change of names is
//!   left half done by a cancelled future. One whose caller is gone earlier is not started.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
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

/// What a driver thread is asked to do.
type Command = Box<dyn Ask + Send>;
/// A command that is being carried out.
type Task = Pin<Box<dyn Future<Output = ()>>>;

/// A handle of a driver thread. The thread ends when the last handle is dropped.
pub(crate) struct Driver {
    commands: mpsc::UnboundedSender<Command>,
    bell: Arc<Bell>,
}

/// A command whose kind of reply is left out.
trait Ask {
    /// True if nobody waits for the reply.
    fn is_abandoned(&self) -> bool;

    fn start(self: Box<Self>, worker: Rc<Worker>) -> Task;
}

/// Work, and where its reply goes.
struct Asked<T, F> {
    work: F,
    reply: oneshot::Sender<Result<T, Fault>>,
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
        let Self { work, reply } = *self;
        let work = work(worker.clone());
        Box::pin(async move {
            let outcome = work.await;
            if let Err(fault) = &outcome {
                worker.note_failure(fault);
            }
            // The caller may be gone.
            let _ = reply.send(outcome);
        })
    }
}

impl Driver {
    /// Starts a driver thread. It connects when it is first asked for something.
    ///
    /// # Errors
    /// If the system has no thread or descriptor left.
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

    /// Runs `work` on the driver thread.
    pub(crate) async fn call<T, F, W>(&self, work: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Worker>) -> W + Send + 'static,
        W: Future<Output = Result<T, Fault>> + 'static,
    {
        let stopped = || Fault::Refused(StoreError::Stopped);
        let (reply, receiver) = oneshot::channel();
        self.commands.send(Box::new(Asked { work, reply })).map_err(|_| stopped())?;
        receiver.await.map_err(|_| stopped())?
    }
}

/// The driver thread.
fn run(settings: &Arc<Settings>, queue: mpsc::UnboundedReceiver<Command>, bell: &Arc<Bell>) {
    match Worker::new(settings.clone(), bell.clone()) {
        Ok(worker) => {
            let (worker, waiting) = (Rc::new(worker), Waiting::default());
            Loop { worker, queue, waiting, tasks: FuturesUnordered::new() }.run(bell)
        }
        Err(error) => refuse_all(settings, queue, bell, &error),
    }
}

/// Without a client every command fails with the reason.
fn refuse_all(
    settings: &Arc<Settings>,
    mut queue: mpsc::UnboundedReceiver<Command>,
    bell: &Arc<Bell>,
    error: &dafs_client::ClientError,
) {
    let worker = Rc::new(Worker::broken(settings.clone(), bell.clone(), error.clone()));
    while let Some(command) = queue.blocking_recv() {
        let mut task = command.start(worker.clone());
        // Each of them asks for the session first, which fails at once.
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

    /// Takes the commands out of the queue. Returns true if the queue is closed.
    fn take_commands(&mut self, context: &mut Context<'_>) -> bool {
        loop {
            match self.queue.poll_recv(context) {
                Poll::Ready(Some(command)) => self.waiting.push(command),
                Poll::Ready(None) => return true,
                Poll::Pending => return false,
            }
        }
    }

    /// Starts as many commands as may be in progress.
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
                        // What is left of it is for `DafsStore::remove_leftovers`.
                        let _ = worker.abort_upload(number).await;
                    }));
                }
            }
        }
    }
}

/// The commands that were not started yet, in their order. Their number is bounded by that of their
/// callers: those of callers that are gone are removed before they are as many as the others.
#[derive(Default)]
struct Waiting {
    commands: VecDeque<Command>,
    /// The number of commands at which the abandoned ones are removed.
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

    /// Returns the next command that somebody waits for.
    fn pop(&mut self) -> Option<Command> {
        while let Some(command) = self.commands.pop_front() {
            if !command.is_abandoned() {
                return Some(command);
            }
        }
        None
    }
}

/// Measures how long a server that owes a reply has been silent.
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
    /// Takes note of `count` events. Gives up sessions that have been silent for too long.
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

/// The most operations in progress on one driver thread; further commands wait in its queue.
const OPERATIONS_MAX: usize = 64;
