//! Runs several futures at once, on the thread that owns the client.

use std::future::Future;
use std::task::Poll;

use dafs_client::{Client, block_on};

use crate::common::Outcome;

/// Runs all workers concurrently, until the last ends or one fails.
pub(crate) fn together<W>(client: &Client, workers: impl IntoIterator<Item = W>) -> Outcome<()>
where
    W: Future<Output = Outcome<()>>,
{
    let mut workers: Vec<_> = workers.into_iter().map(|worker| Some(Box::pin(worker))).collect();
    let all = std::future::poll_fn(|context| {
        for place in &mut workers {
            let Some(worker) = place else { continue };
            match worker.as_mut().poll(context) {
                Poll::Ready(Ok(())) => *place = None,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {}
            }
        }
        if workers.iter().all(Option::is_none) { Poll::Ready(Ok(())) } else { Poll::Pending }
    });
    block_on(client, all)
}
