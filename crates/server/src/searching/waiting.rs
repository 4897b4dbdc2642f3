//! Requests that wait for searches.

use dafs_types::{FileHandle, Status};
use dafs_wire::{Request, RequestHeader};

use super::{Handles, SearchJob, WAITING_COUNT_MAX, WAITING_PER_CHANNEL_MAX, Waiting};
use crate::fencing::touched;
use crate::handles;
use crate::jobs::Job;
use crate::outcome::NotDone;
use crate::reactor::Reactor;
use crate::reply_to::ReplyTo;

impl Reactor {
    /// Whether a request waits until an object that it names has been looked for. It must not
    /// have had any effect yet.
    #[inline]
    pub(crate) fn awaits_search(
        &mut self,
        answer: ReplyTo,
        request: &Request<'_>,
        message: &[u8],
    ) -> bool {
        if !self.searching.is_possible {
            return false;
        }
        let store = &self.whole_store;
        let named = touched(request).into_iter().flatten().copied();
        let handles: Handles = named.filter(|handle| store.must_search(handle)).collect();
        !handles.is_empty() && self.wait_for_search(answer, message, handles)
    }

    /// The same of a request that has failed with DELAY, by its message.
    #[cold]
    pub(crate) fn awaits_search_after_all(&mut self, answer: ReplyTo, message: &[u8]) -> bool {
        if !self.searching.is_possible {
            return false;
        }
        let Some(order) = self.order_of(answer.endpoint) else { return false };
        let Ok(header) = RequestHeader::decode(order, message) else { return false };
        let store = &*self.whole_store;
        let Ok(mut request) = handles::decode(store, order, &header, message) else { return false };
        let named = handles::named(&mut request).into_iter().flatten().map(|handle| *handle);
        let handles: Handles = named.filter(|handle| store.must_search(handle)).collect();
        !handles.is_empty() && self.wait_for_search(answer, message, handles)
    }

    #[cold]
    fn wait_for_search(&mut self, answer: ReplyTo, message: &[u8], handles: Handles) -> bool {
        let waiting = &self.searching.waiting;
        let of_it = waiting.iter().filter(|it| it.answer.endpoint == answer.endpoint).count();
        if waiting.len() >= WAITING_COUNT_MAX || of_it >= WAITING_PER_CHANNEL_MAX {
            return false;
        }
        self.searching.waiting.push(Waiting { answer, message: message.into(), handles });
        self.start_search();
        true
    }

    /// Has an object looked for, though no request waits for it: whoever asked was told DELAY.
    #[cold]
    pub(crate) fn search_later(&mut self, handle: &FileHandle) {
        let is_wanted = self.searching.is_possible
            && self.searching.wanted.len() < WAITING_COUNT_MAX
            && self.whole_store.must_search(handle);
        if is_wanted {
            self.searching.wanted.push(*handle);
            self.start_search();
        }
    }

    fn start_search(&mut self) {
        let searching = &mut self.searching;
        let is_idle = searching.waiting.is_empty() && searching.wanted.is_empty();
        if searching.is_under_way || is_idle {
            return;
        }
        searching.is_under_way = true;
        searching.current = std::mem::take(&mut searching.waiting);
        let mut handles = std::mem::take(&mut searching.wanted);
        handles.extend(searching.current.iter().flat_map(|it| it.handles.iter().copied()));
        handles.sort_unstable_by_key(|handle| handle.0);
        handles.dedup();
        let store = self.whole_store.clone();
        self.pool.submit(Job::Search(SearchJob { store, handles }));
    }

    /// A search is over, or has failed: those that waited for it are carried out, and fail with
    /// DELAY where they would have to wait once more.
    pub(crate) fn on_searched(&mut self) {
        self.searching.is_under_way = false;
        for Waiting { answer, message, .. } in std::mem::take(&mut self.searching.current) {
            let Some(order) = self.order_of(answer.endpoint) else {
                self.abandon(answer);
                continue;
            };
            // They were decoded before.
            let Ok(header) = RequestHeader::decode(order, &message) else { continue };
            let store = self.whole_store.clone();
            let Ok(request) = handles::decode(&*store, order, &header, &message) else { continue };
            self.settle();
            if answer.logged || !self.is_gated(answer, &request, &message) {
                match self.dispatch(answer, &header, &request) {
                    Err(NotDone::Failed(Status::Delay)) => self.fail(answer, Status::Delay),
                    Err(why) => self.refuse(answer, why, &message),
                    Ok(()) => {}
                }
            }
            self.settle();
        }
        self.start_search();
    }
}
