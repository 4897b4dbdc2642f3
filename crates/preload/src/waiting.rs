//! Waiting for the server.
//!
//! Invariant: a call ends with its answer, as one of a disk does, or fails when the server is given
//! up. A signal never ends it, whether the server is there or not: programs do not expect a disk's
//! calls to be interrupted. Its handler runs, and the call goes on.

use std::convert::Infallible;
use std::future::Future;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use dafs_base::{Waiting, drive};
use dafs_client::Client;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::errors::{Failure, Outcome};

/// Waits for what is under way. How it ended is in what it gives.
pub fn wait<T>(client: &Client, future: impl Future<Output = T>) -> T {
    let Ok(output) = drive(future, &mut Patiently(Listening::to(client)));
    output
}

/// The same, but only as long as the server is there; behind that it fails with EIO.
pub fn wait_while_there<T>(client: &Client, future: impl Future<Output = T>) -> Outcome<T> {
    drive(future, &mut WhileThere(Listening::to(client)))
}

/// Waits for the server, wherever it is.
struct Patiently<'c>(Listening<'c>);

/// Waits for a server that is there.
struct WhileThere<'c>(Listening<'c>);

impl Waiting for Patiently<'_> {
    type Stopped = Infallible;

    fn wait(&mut self) -> ControlFlow<Infallible> {
        let is_away = self.0.is_away();
        self.0.listen(is_away);
        ControlFlow::Continue(())
    }
}

impl Waiting for WhileThere<'_> {
    type Stopped = Failure;

    fn wait(&mut self) -> ControlFlow<Failure> {
        if self.0.is_away() {
            return ControlFlow::Break(Failure::Errno(libc::EIO));
        }
        self.0.listen(false);
        ControlFlow::Continue(())
    }
}

/// One wait, and since when nothing has come in it.
struct Listening<'c> {
    client: &'c Client,
    heard: Option<Instant>,
}

impl<'c> Listening<'c> {
    fn to(client: &'c Client) -> Self {
        Self { client, heard: None }
    }

    /// Whether the server is not there just now.
    fn is_away(&self) -> bool {
        self.client.until_timer().is_some()
    }

    /// Waits until something has come, or it is time to look.
    fn listen(&mut self, is_away: bool) {
        let client = self.client;
        // Answers of a server that is there come within this time, mostly.
        let count = if is_away { client.progress() } else { client.turn(Some(QUICK_MAX)) };
        if count > 0 {
            self.heard = None;
            return;
        }
        let silence = self.heard.get_or_insert_with(Instant::now).elapsed();
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
