//! The RDMA writes and messages that the peer is likely to send next, according to the
//! application's forecasts.
//!
//! Invariant: a group of expected writes is stored only while its reply is certainly outstanding. A
//! stale group would let bytes be placed in memory that the application has taken back. A message
//! ends a group only if it follows all of the group's writes and no others, and has the announced
//! length. Any other message may have been the reply to any group. Then all groups are discarded
//! and only counted as `unknown`, and nothing is expected until the unknown replies have arrived.
//!
//! So prediction works best with peers that send a reply directly after its writes. With other
//! peers, only speed is lost. There is one exception: if a peer sends the failure of one request
//! between the writes and the message of another, in a message of the same length, the failure
//! is mistaken for the other request's reply.
//!
//! A message may come before a group's writes. It is distinguished from a reply by its length: it
//! is longer than the message that ends any group.

use std::collections::VecDeque;

use crate::{Forecast, RemoteSegment, Stag};

/// The groups of expected writes, each with the message that ends it.
#[derive(Debug, Default)]
pub(super) struct Expectations {
    groups: VecDeque<Group>,
    /// The number of outstanding replies that `groups` does not describe.
    unknown: u32,
    /// The length in bytes of the longest message that ends a group.
    answer_max: u32,
    /// True if, since its latest message, the peer has written data that belongs to the first
    /// group.
    is_active: bool,
    /// True if, since its latest message, the peer has written data that does not belong to the
    /// first group.
    is_foreign: bool,
}

/// The writes and the message that form the reply to one request, or to one member of a chain.
#[derive(Debug)]
pub(super) struct Group {
    /// The length in bytes of the message that comes first; 0 if there is none or it has arrived.
    pub before: u32,
    writes: [RemoteSegment; WRITES_MAX],
    count: usize,
    pub message_length: u32,
    /// The number of messages that are expected after this group.
    behind: u32,
    /// The index of the write that is in progress.
    present: usize,
    /// The number of bytes of that write that have arrived.
    done: u32,
}

impl Group {
    fn new(forecast: &Forecast<'_>) -> Option<Self> {
        let Forecast { before, message: message_length, behind, .. } = *forecast;
        let empty = RemoteSegment { stag: Stag(0), address: 0, length: 0 };
        let writes = [empty; WRITES_MAX];
        let mut group =
            Self { before, writes, count: 0, message_length, behind, present: 0, done: 0 };
        for write in forecast.writes.iter().filter(|write| write.length > 0) {
            *group.writes.get_mut(group.count)? = *write;
            group.count += 1;
        }
        (group.count > 0).then_some(group)
    }

    /// Returns the ranges of the writes that have not arrived.
    pub(super) fn rest(&self) -> impl Iterator<Item = RemoteSegment> {
        let first = self.writes[self.present..self.count].first().map(|write| RemoteSegment {
            address: write.address.wrapping_add(u64::from(self.done)),
            length: write.length - self.done,
            ..*write
        });
        let others = self.writes[..self.count].iter().skip(self.present + 1).copied();
        first.into_iter().chain(others)
    }

    /// Returns the number of bytes of the writes and the message that have not arrived.
    pub(super) fn bytes_left(&self) -> usize {
        let writes: usize = self.rest().map(|write| write.length as usize).sum();
        self.before as usize + writes + self.message_length as usize
    }

    fn is_done(&self) -> bool {
        self.present == self.count
    }

    /// If the bytes continue this group, counts them and returns true.
    fn takes(&mut self, stag: Stag, address: u64, length: u32) -> bool {
        let Some(write) = self.writes[..self.count].get(self.present) else { return false };
        let fits = write.stag == stag
            && write.address.wrapping_add(u64::from(self.done)) == address
            && length <= write.length - self.done;
        if fits {
            self.before = 0;
            self.done += length;
            if self.done == write.length {
                self.present += 1;
                self.done = 0;
            }
        }
        fits
    }
}

impl Expectations {
    /// Records that the application has sent a request for which this reply is expected.
    pub(super) fn add(&mut self, forecast: &Forecast<'_>) {
        let room = self.groups.len() < GROUPS_MAX;
        match Group::new(forecast).filter(|_| room) {
            Some(group) => {
                self.answer_max = self.answer_max.max(group.message_length);
                self.groups.push_back(group);
            }
            None => self.unknown = self.unknown.saturating_add(1),
        }
    }

    /// Returns the groups that are likely to come next, in order; none if the next group is
    /// unknown.
    pub(super) fn likely(&self) -> impl Iterator<Item = &Group> {
        let known = self.unknown == 0 && !self.is_foreign;
        let count = if known { self.groups.len() } else { 0 };
        self.groups.range(..count)
    }

    /// Returns the number of outstanding replies.
    #[inline]
    pub(super) fn outstanding(&self) -> usize {
        self.groups.len() + self.unknown as usize
    }

    /// Returns true if all writes of the first group have arrived but not its message.
    pub(super) fn awaits_message(&self) -> bool {
        self.is_active && self.groups.front().is_some_and(Group::is_done)
    }

    /// Records an arrived frame of an RDMA write.
    #[inline]
    pub(super) fn on_write(&mut self, stag: Stag, address: u64, length: u32) {
        if length == 0 || (self.groups.is_empty() && !self.is_active) {
            self.is_foreign |= length > 0;
            return;
        }
        if self.groups.front_mut().is_some_and(|group| group.takes(stag, address, length)) {
            self.is_active = true;
            return;
        }
        if self.is_active {
            self.is_foreign = true;
            return;
        }
        match self.groups.iter_mut().position(|group| group.takes(stag, address, length)) {
            Some(index) => {
                // The skipped groups belong to slow requests, whose replies are likely to come
                // after the others for a while.
                self.groups.rotate_left(index);
                self.is_active = true;
            }
            None => self.is_foreign = true,
        }
    }

    /// Returns true if a message of this length is the one that comes before the first group's
    /// writes.
    #[inline]
    fn comes_before(&self, length: u32) -> bool {
        length > self.answer_max
            && !(self.is_active || self.is_foreign)
            && self.unknown == 0
            && self.groups.front().is_some_and(|group| group.before == length)
    }

    /// Records that a message has arrived, which may end the first group.
    #[inline]
    pub(super) fn on_message(&mut self, length: u32) {
        let front = self.groups.front();
        let ends = |group: &Group| group.is_done() && group.message_length == length;
        if self.is_active && !self.is_foreign && front.is_some_and(ends) {
            let behind = self.groups.pop_front().map_or(0, |group| group.behind);
            self.unknown = self.unknown.saturating_add(behind);
        } else if self.comes_before(length) {
            self.groups[0].before = 0;
        } else if self.is_foreign && !self.is_active {
            self.unknown = self.unknown.saturating_sub(1);
        } else {
            let forgotten = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
            self.unknown = self.unknown.saturating_add(forgotten).saturating_sub(1);
            self.groups.clear();
        }
        self.is_active = false;
        self.is_foreign = false;
    }
}

/// The maximum number of writes in a group. A reply with more writes is received without
/// prediction.
const WRITES_MAX: usize = 4;
/// The maximum number of groups. Replies to further requests are received without prediction.
const GROUPS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn write(number: u32) -> RemoteSegment {
        RemoteSegment { stag: Stag(number), address: u64::from(number) * 1000, length: 100 }
    }

    fn expecting(numbers: &[u32]) -> Expectations {
        let mut expectations = Expectations::default();
        for number in numbers {
            expectations.add(&Forecast::answer(&[write(*number)], 56));
        }
        expectations
    }

    fn answer(expectations: &mut Expectations, number: u32) {
        let write = write(number);
        expectations.on_write(write.stag, write.address, 60);
        expectations.on_write(write.stag, write.address + 60, 40);
        expectations.on_message(56);
    }

    fn likely(expectations: &Expectations) -> Vec<u32> {
        expectations.likely().flat_map(Group::rest).map(|write| write.stag.0).collect()
    }

    #[test]
    fn answers_in_order_end_their_groups() {
        let mut expectations = expecting(&[1, 2, 3]);
        answer(&mut expectations, 1);
        assert_eq!(likely(&expectations), [2, 3]);
        expectations.on_write(Stag(2), 2000, 30);
        let rest: Vec<RemoteSegment> = expectations.likely().flat_map(Group::rest).collect();
        assert_eq!((rest[0].address, rest[0].length), (2030, 70));
    }

    #[test]
    fn one_that_is_passed_over_goes_to_the_end() {
        let mut expectations = expecting(&[1, 2, 3]);
        answer(&mut expectations, 2);
        assert_eq!(likely(&expectations), [3, 1]);
        answer(&mut expectations, 1);
        assert_eq!(likely(&expectations), [3]);
    }

    #[test]
    fn a_message_alone_may_have_answered_anything() {
        let mut expectations = expecting(&[1, 2, 3]);
        expectations.on_message(56);
        assert_eq!(likely(&expectations), [0; 0]);
        // Two replies are still outstanding. The reply to this request comes after them.
        expectations.add(&Forecast::answer(&[write(4)], 56));
        answer(&mut expectations, 2);
        assert_eq!(likely(&expectations), [0; 0]);
        answer(&mut expectations, 1);
        assert_eq!(likely(&expectations), [4]);
    }

    #[test]
    fn a_message_between_parts_or_of_another_length_ends_all_certainty() {
        for (count, length) in [(60, 56), (100, 57)] {
            let mut expectations = expecting(&[1, 2]);
            expectations.on_write(Stag(1), 1000, count);
            expectations.on_message(length);
            assert_eq!(likely(&expectations), [0; 0]);
        }
    }

    #[test]
    fn requests_answered_by_a_message_alone_are_never_foretold() {
        let mut expectations = Expectations::default();
        expectations.add(&Forecast::answer(&[], 56));
        expectations.add(&Forecast::answer(&[write(1)], 56));
        assert_eq!(likely(&expectations), [0; 0]);
        // The second request failed, so its memory belongs to the application again.
        expectations.on_message(56);
        assert_eq!(likely(&expectations), [0; 0]);
        expectations.on_message(56);
        expectations.add(&Forecast::answer(&[write(2)], 56));
        assert_eq!(likely(&expectations), [2]);
    }

    fn chain(number: u32, before: u32) -> Expectations {
        let mut expectations = Expectations::default();
        let writes = [write(number)];
        expectations.add(&Forecast { before, behind: 1, ..Forecast::answer(&writes, 56) });
        expectations
    }

    #[test]
    fn a_message_before_the_writes_ends_nothing_and_those_behind_are_awaited() {
        let mut expectations = chain(1, 192);
        let left = |expectations: &Expectations| {
            expectations.likely().next().map(Group::bytes_left).unwrap_or_default()
        };
        assert_eq!(left(&expectations), 192 + 100 + 56);
        expectations.on_message(192);
        assert_eq!(left(&expectations), 100 + 56);
        answer(&mut expectations, 1);
        assert_eq!(expectations.outstanding(), 1);
        expectations.add(&Forecast::answer(&[write(2)], 56));
        assert_eq!(likely(&expectations), [0; 0], "one is still out");
    }

    #[test]
    fn what_may_be_an_answer_is_none_before_the_writes() {
        // The first member of a chain fails, in a message as long as a reply.
        for (before, length) in [(192, 40), (40, 40), (56, 56)] {
            let mut expectations = chain(1, before);
            expectations.on_message(length);
            assert_eq!(likely(&expectations), [0; 0], "{before}, {length}");
        }
    }

    #[test]
    fn the_message_before_comes_once() {
        let mut expectations = chain(1, 192);
        expectations.on_message(192);
        expectations.on_message(192);
        assert_eq!(likely(&expectations), [0; 0]);
    }
}
