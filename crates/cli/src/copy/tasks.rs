//! Runs one future per file on one thread, and polls each future when an event that the future
//! waits for has occurred.
//!
//! Invariant: at most [`TASKS_MAX`] futures exist at a time, and each is polled again after every
//! wakeup. The thread sleeps only while all of them wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use anyhow::{Result, bail};
use dafs_client::Client;

/// The maximum number of concurrent futures.
pub(super) const TASKS_MAX: usize = 64;

/// Runs a future for each item, at most [`TASKS_MAX`] at a time, until all have ended or one fails.
pub(super) fn for_each<I, F>(
    client: &Client,
    items: impl IntoIterator<Item = I>,
    mut start: impl FnMut(I) -> F,
) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let mut items = items.into_iter();
    let mut tasks = Tasks::new();
    loop {
        while let Some(index) = tasks.free.last().copied() {
            let Some(item) = items.next() else { break };
            tasks.free.pop();
            tasks.running[index] = Some(Box::pin(start(item)));
            tasks.poll(index)?;
        }
        if tasks.count() == 0 {
            return Ok(());
        }
        let ready = tasks.take_ready();
        if ready.is_empty() && !client.wait_for_events((tasks.count() / 4).max(1)) {
            bail!("requests were lost; this is a fault of the client library");
        }
        for index in ready {
            tasks.poll(index)?;
        }
    }
}

struct Tasks<F> {
    running: Vec<Option<Pin<Box<F>>>>,
    wakers: Vec<Waker>,
    free: Vec<usize>,
    ready: Arc<Ready>,
}

/// The indexes of the tasks that were woken and must be polled.
type Ready = Mutex<Vec<usize>>;

struct Wakeup {
    index: usize,
    ready: Arc<Ready>,
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).push(self.index);
    }
}

impl<F: Future<Output = Result<()>>> Tasks<F> {
    fn new() -> Self {
        let ready = Arc::new(Ready::default());
        let waker = |index| Waker::from(Arc::new(Wakeup { index, ready: ready.clone() }));
        Self {
            running: (0..TASKS_MAX).map(|_| None).collect(),
            wakers: (0..TASKS_MAX).map(waker).collect(),
            free: (0..TASKS_MAX).rev().collect(),
            ready,
        }
    }

    fn count(&self) -> usize {
        self.running.len() - self.free.len()
    }

    fn take_ready(&self) -> Vec<usize> {
        std::mem::take(&mut *self.ready.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn poll(&mut self, index: usize) -> Result<()> {
        // A task that was woken twice may have ended already.
        let Some(task) = &mut self.running[index] else { return Ok(()) };
        let mut context = Context::from_waker(&self.wakers[index]);
        match task.as_mut().poll(&mut context) {
            Poll::Pending => Ok(()),
            Poll::Ready(result) => {
                self.running[index] = None;
                self.free.push(index);
                result
            }
        }
    }
}

/// Runs futures concurrently within one task until all have ended. Returns the first error.
pub(super) async fn join<F: Future<Output = Result<()>>>(futures: Vec<F>) -> Result<()> {
    let mut left: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut result = Ok(());
    std::future::poll_fn(move |context| {
        left.retain_mut(|future| match future.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(Ok(())) => false,
            Poll::Ready(error) => {
                if result.is_ok() {
                    result = error;
                }
                false
            }
        });
        if left.is_empty() {
            Poll::Ready(std::mem::replace(&mut result, Ok(())))
        } else {
            Poll::Pending
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use dafs_client::ClientConfig;
    use std::cell::{Cell, RefCell};

    #[test]
    fn all_items_are_run_some_at_a_time() {
        let client = Client::new(ClientConfig::default()).unwrap();
        let (running, most, done) = (Cell::new(0), Cell::new(0), Cell::new(0));
        for_each(&client, 0..1000, |_| async {
            running.set(running.get() + 1);
            most.set(running.get().max(most.get()));
            let mut polls = 0;
            std::future::poll_fn(|context| {
                context.waker().wake_by_ref();
                polls += 1;
                if polls < 3 { Poll::Pending } else { Poll::Ready(()) }
            })
            .await;
            running.set(running.get() - 1);
            done.set(done.get() + 1);
            Ok(())
        })
        .unwrap();
        assert_eq!((running.get(), most.get(), done.get()), (0, TASKS_MAX, 1000));
    }

    #[test]
    fn an_error_ends_it_and_a_wait_for_nothing_is_noticed() {
        let client = Client::new(ClientConfig::default()).unwrap();
        let ran = RefCell::new(Vec::new());
        let result = for_each(&client, 0..10, |number| {
            ran.borrow_mut().push(number);
            async move { if number == 3 { bail!("three") } else { Ok(()) } }
        });
        assert_eq!(result.unwrap_err().to_string(), "three");
        assert_eq!(*ran.borrow(), [0, 1, 2, 3]);
        let result = for_each(&client, 0..1, |_| std::future::pending());
        assert!(result.unwrap_err().to_string().contains("lost"));
    }
}
