//! Runs futures on the calling thread.
//!
//! Invariant: if a server sends nothing for the reply timeout of a session, the session ends or
//! reconnects, so that a future that waits for the session becomes ready.

use std::convert::Infallible;
use std::future::Future;
use std::ops::ControlFlow;
use std::time::Duration;

use dafs_base::{Waiting, drive};

use crate::client::{Client, Shared};
use crate::ids::SessionKey;

/// Waits for events of one session while a future of that session runs.
struct ForSession<'s> {
    shared: &'s Shared,
    session: SessionKey,
    heard: Option<Duration>,
}

/// Waits for events of all sessions of a client while a future runs.
struct ForAll<'c> {
    client: &'c Client,
    heard: Option<Duration>,
}

impl Waiting for ForSession<'_> {
    type Stopped = Infallible;

    fn wait(&mut self) -> ControlFlow<Infallible> {
        self.shared.borrow_mut().turn_patiently(self.session, &mut self.heard);
        self.shared.deliver_events();
        ControlFlow::Continue(())
    }
}

impl Waiting for ForAll<'_> {
    type Stopped = Infallible;

    fn wait(&mut self) -> ControlFlow<Infallible> {
        self.client.0.borrow_mut().turn_patiently_for_all(&mut self.heard);
        self.client.0.deliver_events();
        ControlFlow::Continue(())
    }
}

/// Runs a future that waits for one session on this thread. If the server sends nothing for the
/// session's reply timeout, the session ends or reconnects, so that the future becomes ready.
pub(crate) fn run<F: Future>(shared: &Shared, session: SessionKey, future: F) -> F::Output {
    let Ok(output) = drive(future, &mut ForSession { shared, session, heard: None });
    output
}

/// Runs a future on this thread, making progress for the client until the future is ready. A
/// session that waits for a reply ends or reconnects if its server sends nothing for its
/// [`answer_timeout`](crate::SessionOptions::answer_timeout).
pub fn block_on<F: Future>(client: &Client, future: F) -> F::Output {
    let Ok(output) = drive(future, &mut ForAll { client, heard: None });
    output
}
