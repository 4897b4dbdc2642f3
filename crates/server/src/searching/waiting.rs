//! Requests that wait for searches.

use dafs_types::{FileHandle, StateId, Status};
use dafs_wire::{Request, RequestHeader};

use super::{Handles, SearchJob, WAITING_COUNT_MAX, WAITING_PER_CHANNEL_MAX, Waiting};
use crate::handles;
use crate::jobs::Job;
use crate::outcome::NotDone;
use crate::reactor::Reactor;
use crate::reply_to::ReplyTo;
use crate::set_aside::Asked;

impl Reactor {
    /// Whether a request waits until an object that it names has been looked for. It must not
    /// have had any effect yet.
    #[inline]
    pub(crate) fn awaits_search(
        &mut self,
        answer: ReplyTo,
        asked: Asked<'_>,
        named: [Option<&FileHandle>; 2],
    ) -> bool {
        if !self.searching.is_possible {
            return false;
        }
        let store = &self.whole_store;
        let named = named.into_iter().flatten().copied();
        let handles: Handles = named.filter(|handle| store.must_search(handle)).collect();
        !handles.is_empty() && self.wait_for_search(answer, asked, handles, false)
    }

    /// The same of a batch, whose transfers under an open need no search. False of what is none.
    pub(crate) fn batch_awaits_search(
        &mut self,
        answer: ReplyTo,
        request: &Request<'_>,
        message: &[u8],
    ) -> bool {
        let Request::BatchSubmit(batch) = request else { return false };
        if !self.searching.is_possible {
            return false;
        }
        let store = &*self.whole_store;
        let named = batch.requests.iter().filter(|request| request.state == StateId::ANONYMOUS);
        let present = named.map(|request| {
            let mut handle = request.file;
            handles::renew(store, &mut handle);
            handle
        });
        let handles: Handles = present.filter(|handle| store.must_search(handle)).collect();
        let mut waiting = self.searching.current.iter().chain(&self.searching.waiting);
        let is_behind = waiting.any(|it| it.is_batch && it.answer.endpoint == answer.endpoint);
        let asked = Asked::Message(message);
        (is_behind || !handles.is_empty()) && self.wait_for_search(answer, asked, handles, true)
    }

    /// The same of a request that has failed with DELAY.
    #[cold]
    pub(crate) fn awaits_search_after_all(&mut self, answer: ReplyTo, asked: Asked<'_>) -> bool {
        if !self.searching.is_possible {
            return false;
        }
        let message = match asked {
            Asked::Operation(operation) => {
                return self.awaits_search(answer, asked, operation.named());
            }
            Asked::Message(message) => message,
        };
        let Some(order) = self.order_of(answer.endpoint) else { return false };
        let Ok(header) = RequestHeader::decode(order, message) else { return false };
        let store = self.whole_store.clone();
        match handles::decode(&*store, order, &header, message) {
            Ok(request) => self.awaits_search(answer, asked, handles::named(&request)),
            Err(_) => false,
        }
    }

    #[cold]
    fn wait_for_search(
        &mut self,
        answer: ReplyTo,
        asked: Asked<'_>,
        handles: Handles,
        is_batch: bool,
    ) -> bool {
        let waiting = &self.searching.waiting;
        let of_it = waiting.iter().filter(|it| it.answer.endpoint == answer.endpoint).count();
        if waiting.len() >= WAITING_COUNT_MAX || of_it >= WAITING_PER_CHANNEL_MAX {
            return false;
        }
        let kept = asked.set_aside();
        self.searching.waiting.push(Waiting { answer, kept, handles, is_batch });
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
        for Waiting { answer, kept, .. } in std::mem::take(&mut self.searching.current) {
            if self.order_of(answer.endpoint).is_none() {
                self.abandon(answer);
                continue;
            }
            self.settle();
            match self.carry_again(answer, &kept, None) {
                Err(NotDone::Failed(Status::Delay)) => self.fail(answer, Status::Delay),
                Err(why) => self.refuse_again(answer, why, &kept),
                Ok(()) => {}
            }
            self.settle();
        }
        self.start_search();
    }
}
