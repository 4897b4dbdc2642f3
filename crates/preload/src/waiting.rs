//! Waits for replies of the server.
//!
//! Invariant: a call ends when its reply arrives, like a call to a disk, or fails when the client
//! gives up on the server. A signal never ends the call, because programs do not expect EINTR from
//! disk files: the signal's handler runs, and the call continues.

use std::convert::Infallible;
use std::future::Future;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use dafs_base::{Waiting, drive};
use dafs_client::Client;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::errors::{Failure, Outcome};

/// Waits for a future and returns its output.
pub(crate) fn wait<T>(client: &Client, future: impl Future<Output = T>) -> T {
    let Ok(output) = drive(future, &mut WhateverHappens(Wait::to(client)));
    output
}

/// Waits for a future while the server is reachable. Fails with EIO if the server is not.
pub(crate) fn wait_while_reachable<T>(
    client: &Client,
    future: impl Future<Output = T>,
) -> Outcome<T> {
    drive(future, &mut WhileReachable(Wait::to(client)))
}

/// Waits even while the server is unreachable.
struct WhateverHappens<'c>(Wait<'c>);

/// Waits only while the server is reachable.
struct WhileReachable<'c>(Wait<'c>);

impl Waiting for WhateverHappens<'_> {
    type Stopped = Infallible;

    fn wait(&mut self) -> ControlFlow<Infallible> {
        let is_reconnecting = self.0.is_reconnecting();
        self.0.listen(is_reconnecting);
        ControlFlow::Continue(())
    }
}

impl Waiting for WhileReachable<'_> {
    type Stopped = Failure;

    fn wait(&mut self) -> ControlFlow<Failure> {
        if self.0.is_reconnecting() {
            return ControlFlow::Break(Failure::Errno(libc::EIO));
        }
        self.0.listen(false);
        ControlFlow::Continue(())
    }
}

/// A wait for replies, with the time since which the server has been silent.
struct Wait<'c> {
    client: &'c Client,
    silent_since: Option<Instant>,
}

impl<'c> Wait<'c> {
    fn to(client: &'c Client) -> Self {
        Self { client, silent_since: None }
    }

    /// True if the client is currently reconnecting.
    fn is_reconnecting(&self) -> bool {
        self.client.next_timer().is_some()
    }

    /// Waits until a message arrives, or until the next check is due.
    fn listen(&mut self, is_reconnecting: bool) {
        let client = self.client;
        // Most replies of a reachable server arrive within this time.
        let count = if is_reconnecting {
            client.process_pending_events()
        } else {
            client.process_events(Some(QUICK_MAX))
        };
        if count > 0 {
            self.silent_since = None;
            return;
        }
        let silence = self.silent_since.get_or_insert_with(Instant::now).elapsed();
        match client.min_answer_timeout() {
            Some(patience) if silence >= patience && !is_reconnecting => {
                client.end_silent_sessions(silence)
            }
            patience => sleep(client, patience.map(|patience| patience.saturating_sub(silence))),
        }
    }
}

/// Waits for a future that can fail.
pub(crate) fn wait_result<T, E: Into<Failure>>(
    client: &Client,
    future: impl Future<Output = Result<T, E>>,
) -> Outcome<T> {
    wait(client, future).map_err(Into::into)
}

/// Sleeps until a message arrives, or until the next check is due.
fn sleep(client: &Client, patience: Option<Duration>) {
    if !client.arm() {
        return;
    }
    let until = client.next_timer();
    let limits = [until, patience.filter(|_| until.is_none()), Some(SLEEP_MAX)];
    let limit = limits.into_iter().flatten().min().unwrap_or(SLEEP_MAX);
    let limit = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    // A signal ends the sleep early, after its handler has run. The caller checks and waits again.
    let _ = client.with_fd(|fd| poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)));
}

/// The time for which the client itself waits for events, with polling, before this thread sleeps.
const QUICK_MAX: Duration = Duration::from_millis(1);
/// The longest sleep.
const SLEEP_MAX: Duration = Duration::from_secs(5);
