//! Driver threads, each of which owns a client, and the calls that other threads make to them.
//!
//! Invariants:
//! - A client and all that belongs to it stays on its driver thread.
//! - A caller has a permit before it sends a command, and keeps it until it has taken the reply. So
//!   the queue of commands, the tasks of the thread and the buffers of replies are bounded.
//! - A command that was sent runs to its end, even if its caller is gone: no change of names is
//!   left half done by a cancelled future.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::bell::{Bell, Garbage};
use crate::builder::Settings;
use crate::error::{Fault, StoreError};
use crate::worker::Worker;

/// What a driver thread is asked to do.
type Command = Box<dyn FnOnce(Rc<Worker>) -> Task + Send>;
/// A command that is being carried out.
type Task = Pin<Box<dyn Future<Output = ()>>>;

/// A handle of a driver thread. The thread ends when the last handle is dropped.
pub(crate) struct Driver {
    commands: mpsc::Sender<Command>,
    permits: Arc<Semaphore>,
    bell: Arc<Bell>,
}

/// A reply, with the permit of the call that asked for it.
pub(crate) struct Reply<T> {
    pub value: T,
    _permit: OwnedSemaphorePermit,
}

impl<T> Reply<T> {
    /// The reply alone. Its permit goes back.
    pub(crate) fn take(self) -> T {
        self.value
    }
}

impl Driver {
    /// Starts a driver thread. It connects when it is first asked for something.
    ///
    /// # Errors
    /// If the system has no thread or descriptor left.
    pub(crate) fn start(settings: Arc<Settings>) -> std::io::Result<Arc<Self>> {
        let bell = Arc::new(Bell::new()?);
        let (commands, queue) = mpsc::channel(OPERATIONS_MAX);
        let own = bell.clone();
        std::thread::Builder::new()
            .name("dafs-object-store".into())
            .spawn(move || run(&settings, queue, &own))?;
        let permits = Arc::new(Semaphore::new(OPERATIONS_MAX));
        Ok(Arc::new(Self { commands, permits, bell }))
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Runs `work` on the driver thread.
    pub(crate) async fn call<T, F, W>(&self, work: F) -> Result<Reply<T>, Fault>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Worker>) -> W + Send + 'static,
        W: Future<Output = Result<T, Fault>> + 'static,
    {
        let stopped = || Fault::Refused(StoreError::Stopped);
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| stopped())?;
        let (sender, receiver) = oneshot::channel();
        let command: Command = Box::new(move |worker| {
            let work = work(worker.clone());
            Box::pin(async move {
                let outcome = work.await;
                if let Err(fault) = &outcome {
                    worker.note_failure(fault);
                }
                // The caller may be gone.
                let _ = sender.send((outcome, permit));
            })
        });
        // There is room: permits are as many as the queue has places.
        self.commands.send(command).await.map_err(|_| stopped())?;
        let (outcome, permit) = receiver.await.map_err(|_| stopped())?;
        outcome.map(|value| Reply { value, _permit: permit })
    }
}

/// The driver thread.
fn run(settings: &Arc<Settings>, queue: mpsc::Receiver<Command>, bell: &Arc<Bell>) {
    match Worker::new(settings.clone(), bell.clone()) {
        Ok(worker) => {
            Loop { worker: Rc::new(worker), queue, tasks: FuturesUnordered::new() }.run(bell)
        }
        Err(error) => refuse_all(settings, queue, bell, &error),
    }
}

/// Without a client every command fails with the reason.
fn refuse_all(
    settings: &Arc<Settings>,
    mut queue: mpsc::Receiver<Command>,
    bell: &Arc<Bell>,
    error: &dafs_client::ClientError,
) {
    let worker = Rc::new(Worker::broken(settings.clone(), bell.clone(), error.clone()));
    while let Some(command) = queue.blocking_recv() {
        let mut task = command(worker.clone());
        // Each of them asks for the session first, which fails at once.
        let _ = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
}

struct Loop {
    worker: Rc<Worker>,
    queue: mpsc::Receiver<Command>,
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
            while let Poll::Ready(Some(())) = self.tasks.poll_next_unpin(&mut context) {}
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

    /// Starts the commands in the queue. Returns true if the queue is closed.
    fn take_commands(&mut self, context: &mut Context<'_>) -> bool {
        loop {
            match self.queue.poll_recv(context) {
                Poll::Ready(Some(command)) => self.tasks.push(command(self.worker.clone())),
                Poll::Ready(None) => return true,
                Poll::Pending => return false,
            }
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

/// The most operations in progress on one driver thread; further callers wait for a permit.
const OPERATIONS_MAX: usize = 64;
