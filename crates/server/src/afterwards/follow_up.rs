//! Doing what waits until the replies are out.

use dafs_filer::{ChannelId, FileKey};
use dafs_types::StateId;

use super::{Closing, SMALL_COUNT, name_of_write};
use crate::jobs::Job;
use crate::reactor::Reactor;
use crate::reply_to::ReplyTo;

impl Reactor {
    /// Does what waited for the answers to be out.
    #[inline]
    pub(crate) fn follow_up(&mut self) {
        if self.afterwards.is_any() {
            self.close_up();
            self.keep_up();
        }
    }

    /// Has removed objects closed, at the end of a turn: large ones before anybody can miss the
    /// room, and a single small one. While others ask at the same time, that is left to another
    /// thread, which is woken for many at once.
    #[inline]
    pub(crate) fn close_removed(&mut self) {
        if !self.afterwards.has_removed() {
            return;
        }
        let helps = self.pool.helps();
        let removed = &mut self.afterwards.removed;
        if removed.has_large || removed.small == 1 && !helps {
            (removed.small, removed.has_large) = (0, false);
            self.interface.flush();
            self.whole_store.close_removed();
        } else if removed.small >= SMALL_COUNT {
            self.close_small();
        }
    }

    /// Has small removed objects closed, however few there are.
    pub(crate) fn close_small(&mut self) {
        let removed = &mut self.afterwards.removed;
        if removed.small > 0 && !removed.is_under_way {
            (removed.small, removed.is_under_way) = (0, true);
            self.pool.submit(Job::CloseRemoved(self.whole_store.clone()));
        }
    }

    pub(crate) fn on_removed_closed(&mut self) {
        self.afterwards.removed.is_under_way = false;
    }

    /// Has an open end once the answer is out.
    pub(crate) fn close_later(&mut self, channel: ChannelId, state: StateId, key: FileKey) {
        self.close_up();
        self.afterwards.closing = Some(Closing { channel, state, key });
    }

    fn close_up(&mut self) {
        if let Some(Closing { channel, state, key }) = self.afterwards.closing.take()
            && let Ok(closed) = self.filer.close(channel, state, key)
        {
            self.files().release_open(&closed);
        }
    }

    #[inline]
    fn keep_up(&mut self) {
        // Where it is: a copy would wait for what was stored just now.
        if let Some(keeping) = &self.afterwards.keeping {
            keeping.keep(&mut self.filer);
            self.afterwards.keeping = None;
        }
    }

    /// A WRITE whose result was to be kept afterwards is not over at once: it is under way from
    /// here on, as any request is.
    #[inline]
    pub(crate) fn keep_begun(&mut self, answer: ReplyTo) -> ReplyTo {
        let session = answer.kept_later();
        if !session.is_some() {
            return answer;
        }
        self.filer.begin_request(session, name_of_write(answer));
        let mut answer = answer;
        answer.keep_in(session);
        answer
    }
}
