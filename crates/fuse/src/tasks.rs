//! A small single-threaded executor for tasks that wait for replies of the server or for timers.
//!
//! Invariant: a task is polled only after it was woken, and its slot is reused only after it has
//! ended. A wakeup that arrives for an earlier task of the slot is harmless.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

type Work = Pin<Box<dyn Future<Output = ()>>>;

/// The tasks of one thread.
#[derive(Default)]
pub(crate) struct Tasks {
    places: RefCell<Places>,
    woken: Arc<Mutex<Vec<usize>>>,
    timers: RefCell<BinaryHeap<Reverse<(Instant, u64)>>>,
    sleepers: RefCell<Vec<(u64, Waker)>>,
    next_timer: std::cell::Cell<u64>,
}

#[derive(Default)]
struct Places {
    all: Vec<Place>,
    free: Vec<usize>,
    count: usize,
}

/// The process that waits for the result of a task or a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Requester {
    /// The kernel's number of the request; 0 for none.
    pub unique: u64,
    /// The id of the waiting thread; 0 if the thread is outside of this process id namespace.
    pub pid: u32,
}

impl Requester {
    /// The requester of work that no process waits for.
    pub(crate) const NONE: Self = Self { unique: 0, pid: 0 };
}

struct Place {
    requester: Requester,
    work: Option<Work>,
    waker: Waker,
}

struct Woken {
    index: usize,
    list: Arc<Mutex<Vec<usize>>>,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).push(self.index);
    }
}

impl Tasks {
    /// Starts a task for a request, and runs it until it first waits.
    pub(crate) fn spawn(&self, requester: Requester, work: impl Future<Output = ()> + 'static) {
        let mut places = self.places.borrow_mut();
        let index = match places.free.pop() {
            Some(index) => index,
            None => {
                let index = places.all.len();
                let waker = Arc::new(Woken { index, list: self.woken.clone() }).into();
                places.all.push(Place { requester: Requester::NONE, work: None, waker });
                index
            }
        };
        places.all[index].requester = requester;
        places.count += 1;
        drop(places);
        self.poll(index, Box::pin(work));
    }

    /// Polls the woken tasks. Returns true if there were any.
    pub(crate) fn run(&self) -> bool {
        let woken = std::mem::take(&mut *self.woken.lock().unwrap_or_else(PoisonError::into_inner));
        for index in &woken {
            let work = self.places.borrow_mut().all[*index].work.take();
            if let Some(work) = work {
                self.poll(*index, work);
            }
        }
        !woken.is_empty()
    }

    /// Drops the task of a request, wherever it waits. Returns false if there is none.
    pub(crate) fn cancel(&self, unique: u64) -> bool {
        let mut places = self.places.borrow_mut();
        let Some(index) = places.find(unique) else { return false };
        let work = places.all[index].work.take();
        places.give_back(index);
        drop(places);
        // Dropping the work may wait for a transfer, which delays only this thread.
        drop(work);
        true
    }

    /// Returns the process that waits for the task of a request.
    pub(crate) fn requester(&self, unique: u64) -> Option<Requester> {
        let places = self.places.borrow();
        places.find(unique).map(|index| places.all[index].requester)
    }

    /// Returns the number of tasks.
    pub(crate) fn count(&self) -> usize {
        self.places.borrow().count
    }

    fn poll(&self, index: usize, mut work: Work) {
        let waker = self.places.borrow().all[index].waker.clone();
        let polled = work.as_mut().poll(&mut Context::from_waker(&waker));
        let mut places = self.places.borrow_mut();
        match polled {
            Poll::Ready(()) => places.give_back(index),
            Poll::Pending => places.all[index].work = Some(work),
        }
    }

    /// Returns a future that completes after the given time.
    pub(crate) fn sleep(&self, time: Duration) -> Sleep<'_> {
        Sleep { tasks: self, until: Instant::now() + time, number: None }
    }

    /// Wakes tasks whose timers have expired. Returns the time until the next timer.
    pub(crate) fn tick(&self) -> Option<Duration> {
        let mut timers = self.timers.borrow_mut();
        while let Some(Reverse((until, number))) = timers.peek().copied() {
            let left = until.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                return Some(left);
            }
            timers.pop();
            let mut sleepers = self.sleepers.borrow_mut();
            if let Some(at) = sleepers.iter().position(|(other, _)| *other == number) {
                sleepers.swap_remove(at).1.wake();
            }
        }
        None
    }
}

impl Places {
    /// Returns the slot of a waiting request.
    fn find(&self, unique: u64) -> Option<usize> {
        self.all.iter().position(|place| place.requester.unique == unique && place.work.is_some())
    }

    fn give_back(&mut self, index: usize) {
        self.all[index].requester = Requester::NONE;
        self.free.push(index);
        self.count -= 1;
    }
}

/// The future that [`Tasks::sleep`] returns.
pub(crate) struct Sleep<'t> {
    tasks: &'t Tasks,
    until: Instant,
    number: Option<u64>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.until {
            return Poll::Ready(());
        }
        if self.number.is_none() {
            let number = self.tasks.next_timer.get();
            self.tasks.next_timer.set(number + 1);
            self.number = Some(number);
            self.tasks.timers.borrow_mut().push(Reverse((self.until, number)));
            self.tasks.sleepers.borrow_mut().push((number, context.waker().clone()));
        }
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.tasks.sleepers.borrow_mut().retain(|(other, _)| *other != number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn a_task_goes_on_when_its_time_has_come_and_ends_when_cancelled() {
        let tasks = Rc::new(Tasks::default());
        let done = Rc::new(Cell::new(0));
        for unique in [7, 8] {
            let (done, inner) = (done.clone(), tasks.clone());
            tasks.spawn(Requester { unique, pid: 1 }, async move {
                inner.sleep(Duration::from_millis(1)).await;
                done.set(done.get() + 1);
            });
        }
        assert_eq!(tasks.count(), 2);
        assert!(tasks.cancel(8) && !tasks.cancel(8));
        while tasks.count() > 0 {
            tasks.tick();
            tasks.run();
        }
        assert_eq!(done.get(), 1);
    }
}
