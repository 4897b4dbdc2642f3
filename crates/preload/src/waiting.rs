//! Waiting for the server.
//!
//! Invariant: a call ends with its answer, as one of a disk does, or fails when the server is given
//! up. A signal never ends it, whether the server is there or not: programs do not expect a disk's
//! calls to be interrupted. Its handler runs, and the call goes on.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use dafs_client::Client;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::errors::{Failure, Outcome};

/// Waits for what is under way. How it ended is in what it gives.
pub fn wait<T>(client: &Client, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Some(output) = drive(client, future.as_mut(), true) {
            return output;
        }
    }
}

/// The same, but only as long as the server is there; behind that it fails with EIO.
pub fn wait_while_there<T>(client: &Client, future: impl Future<Output = T>) -> Outcome<T> {
    drive(client, future, false).ok_or(Failure::Errno(libc::EIO))
}

/// What comes of it; nothing if the server is not there, and that is not waited for.
fn drive<T>(client: &Client, future: impl Future<Output = T>, is_patient: bool) -> Option<T> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    let mut heard: Option<Instant> = None;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        // Answers of a server that is there come within this time, mostly.
        let is_away = client.until_timer().is_some();
        if is_away && !is_patient {
            return None;
        }
        let count = if is_away { client.progress() } else { client.turn(Some(QUICK_MAX)) };
        if count > 0 {
            heard = None;
            continue;
        }
        let silence = heard.get_or_insert_with(Instant::now).elapsed();
        match client.patience() {
            Some(patience) if silence >= patience && !is_away => client.give_up_silent(silence),
            patience => rest(client, patience.map(|patience| patience.saturating_sub(silence))),
        }
    }
}

/// The same for what fails by itself.
pub fn settle<T, E: Into<Failure>>(
    client: &Client,
    future: impl Future<Output = Result<T, E>>,
) -> Outcome<T> {
    wait(client, future).map_err(Into::into)
}

/// Sleeps until something comes, or it is time to look.
fn rest(client: &Client, patience: Option<Duration>) {
    if !client.arm() {
        return;
    }
    let until = client.until_timer();
    let limits = [until, patience.filter(|_| until.is_none()), Some(SLEEP_MAX)];
    let limit = limits.into_iter().flatten().min().unwrap_or(SLEEP_MAX);
    let limit = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    // A signal ends it early, and its handler has run: whoever waits looks again, and goes on.
    let _ = client.with_fd(|fd| poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)));
}

/// Time that the client waits in its own way, which knows best when to spin.
const QUICK_MAX: Duration = Duration::from_millis(1);
/// Longest sleep.
const SLEEP_MAX: Duration = Duration::from_secs(5);
