//! Runs one future to completion on the calling thread.
//!
//! Invariant: between two polls of the future the driver waits exactly once, as the caller's
//! [`Waiting`] defines.

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Defines how a thread waits between two polls of its future.
pub trait Waiting {
    /// The reason to stop before the future is ready; [`std::convert::Infallible`] if that never
    /// happens.
    type Stopped;

    /// Waits until the future may be able to continue, and makes the progress that it needs. It may
    /// return early, which only means that the future is polled more often than necessary.
    fn wait(&mut self) -> ControlFlow<Self::Stopped>;

    /// Returns the waker for the future. The default waker has no effect, which is right if only
    /// [`Waiting::wait`] makes progress.
    fn waker(&self) -> Waker {
        Waker::noop().clone()
    }
}

/// Runs a future to completion, calling [`Waiting::wait`] whenever it is not ready.
///
/// # Errors
/// The reason that `waiting` returned for stopping. The future is then dropped.
///
/// ```
/// use std::convert::Infallible;
/// use std::ops::ControlFlow;
///
/// struct Spin;
/// impl dafs_base::Waiting for Spin {
///     type Stopped = Infallible;
///     fn wait(&mut self) -> ControlFlow<Infallible> {
///         std::hint::spin_loop();
///         ControlFlow::Continue(())
///     }
/// }
/// let Ok(sum) = dafs_base::drive(async { 1 + 1 }, &mut Spin);
/// assert_eq!(sum, 2);
/// ```
#[inline]
pub fn drive<F: Future, W: Waiting>(future: F, waiting: &mut W) -> Result<F::Output, W::Stopped> {
    let mut future = pin!(future);
    let waker = waiting.waker();
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Ok(output);
        }
        if let ControlFlow::Break(reason) = waiting.wait() {
            return Err(reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits the given number of times, and then stops.
    struct Times(u32);

    impl Waiting for Times {
        type Stopped = &'static str;

        fn wait(&mut self) -> ControlFlow<Self::Stopped> {
            match self.0.checked_sub(1) {
                Some(left) => {
                    self.0 = left;
                    ControlFlow::Continue(())
                }
                None => ControlFlow::Break("no time left"),
            }
        }
    }

    fn ready_at_look(number: u32) -> impl Future<Output = u32> {
        let mut looks = 0;
        std::future::poll_fn(move |_| {
            looks += 1;
            if looks == number { Poll::Ready(looks) } else { Poll::Pending }
        })
    }

    #[test]
    fn a_future_is_looked_at_once_more_after_each_wait() {
        let mut times = Times(5);
        assert_eq!(drive(ready_at_look(1), &mut times), Ok(1));
        assert_eq!(times.0, 5, "one that is ready is not waited for");
        assert_eq!(drive(ready_at_look(4), &mut times), Ok(4));
        assert_eq!(times.0, 2);
    }

    #[test]
    fn whoever_waits_may_stop() {
        assert_eq!(drive(ready_at_look(4), &mut Times(2)), Err("no time left"));
    }
}
