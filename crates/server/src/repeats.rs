//! The replies that are kept for calls of NFSv3 that are sent again.
//!
//! A client of NFSv3 has no session. It sends a call again if it gets no reply, with the same
//! number (xid). If the first call has removed a file, a second execution would fail, so the second
//! call must get the reply to the first.
//!
//! Invariants:
//! - A call is executed once as long as its entry is in the table.
//! - The number of entries is limited, for each machine and for all machines together. The oldest
//!   entries go first.

use std::collections::{BTreeMap, HashMap, VecDeque};

use dafs_ops::{Origin, OwnedDone};

use crate::nfs::gss::route::Route;

/// The calls that may be sent again.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    entries: HashMap<Origin, Entry>,
    /// The entries by age.
    by_age: BTreeMap<u64, Origin>,
    /// The ages of the entries of each machine.
    by_machine: HashMap<u32, VecDeque<u64>>,
    last: u64,
}

#[derive(Debug)]
struct Entry {
    age: u64,
    state: State,
}

/// The state of a call.
#[derive(Debug)]
enum State {
    /// The call is being executed. Its reply goes to where it was received from last. If the
    /// journal has the reply, it is here, too: a checkpoint drops the journal's copy.
    Running(Route, Option<Box<[u8]>>),
    /// The call has this reply, without the header.
    Replied(Box<[u8]>),
    /// The call was executed by a server that was killed before it replied.
    Executed(Box<OwnedDone>),
}

/// What is known of a call that has arrived.
#[derive(Debug)]
pub(crate) enum Known<'a> {
    /// The call is new, and must be executed.
    New,
    /// The call is being executed. Nothing must be done.
    Running,
    /// The call has this reply, without the header.
    Replied(&'a [u8]),
    /// The call was executed with this result. Its reply must be made from the result.
    Executed(&'a OwnedDone),
}

impl Repeats {
    /// Notes the arrival of a call.
    pub(crate) fn begin(&mut self, call: Origin, to: Route) -> Known<'_> {
        if !self.entries.contains_key(&call) {
            self.insert(call, State::Running(to, None));
            return Known::New;
        }
        match self.entries.get_mut(&call).map(|entry| &mut entry.state) {
            Some(State::Running(last, _)) => {
                *last = to;
                Known::Running
            }
            Some(State::Replied(reply)) => Known::Replied(reply),
            Some(State::Executed(done)) => Known::Executed(done),
            None => Known::New,
        }
    }

    /// Keeps the reply to a call that the journal has, and that is about to be sent.
    pub(crate) fn note(&mut self, call: &Origin, reply: &[u8]) {
        if let Some(Entry { state: State::Running(_, noted), .. }) = self.entries.get_mut(call) {
            *noted = Some(reply.into());
        }
    }

    /// Keeps the reply to a call, without its header. Returns where the call was received from
    /// last. `None` if the call has no entry any more.
    pub(crate) fn end(&mut self, call: &Origin, reply: &[u8]) -> Option<Route> {
        let entry = self.entries.get_mut(call)?;
        let ended = std::mem::replace(&mut entry.state, State::Replied(reply.into()));
        if let State::Running(to, _) = ended { Some(to) } else { None }
    }

    /// Removes the entry of a call that was not executed, so that it is executed when it is sent
    /// again. Returns where the call was received from last.
    pub(crate) fn forget(&mut self, call: &Origin) -> Option<Route> {
        let entry = self.entries.remove(call)?;
        self.by_age.remove(&entry.age);
        if let Some(ages) = self.by_machine.get_mut(&machine_of(call)) {
            match ages.front() {
                Some(age) if *age == entry.age => drop(ages.pop_front()),
                _ => ages.retain(|age| *age != entry.age),
            }
            if ages.is_empty() {
                self.by_machine.remove(&machine_of(call));
            }
        }
        if let State::Running(to, _) = entry.state { Some(to) } else { None }
    }

    /// Adds a call of the previous server with its reply.
    pub(crate) fn restore_reply(&mut self, call: Origin, reply: &[u8]) {
        self.forget(&call);
        self.insert(call, State::Replied(reply.into()));
    }

    /// Adds a call that the previous server has executed without a reply.
    pub(crate) fn restore_result(&mut self, call: Origin, done: OwnedDone) {
        self.forget(&call);
        self.insert(call, State::Executed(Box::new(done)));
    }

    /// Returns the replies, the oldest first.
    pub(crate) fn replies(&self) -> impl Iterator<Item = (&Origin, &[u8])> {
        self.in_order().filter_map(|(call, entry)| match &entry.state {
            State::Replied(reply) | State::Running(_, Some(reply)) => Some((call, &reply[..])),
            _ => None,
        })
    }

    /// Returns the results for which no reply was made yet, the oldest first.
    pub(crate) fn results(&self) -> impl Iterator<Item = (&Origin, &OwnedDone)> {
        self.in_order().filter_map(|(call, entry)| match &entry.state {
            State::Executed(done) => Some((call, &**done)),
            _ => None,
        })
    }

    fn in_order(&self) -> impl Iterator<Item = (&Origin, &Entry)> {
        self.by_age.values().filter_map(|call| Some((call, self.entries.get(call)?)))
    }

    fn insert(&mut self, call: Origin, state: State) {
        let is_full = |ages: &VecDeque<u64>| ages.len() >= CALLS_OF_MACHINE_MAX;
        let of_machine = self.by_machine.get(&machine_of(&call));
        let oldest = match of_machine.filter(|ages| is_full(ages)) {
            Some(ages) => ages.front(),
            None if self.entries.len() >= CALLS_MAX => self.by_age.keys().next(),
            None => None,
        };
        let oldest = oldest.and_then(|age| self.by_age.get(age)).copied();
        if let Some(oldest) = oldest {
            self.forget(&oldest);
        }
        self.last += 1;
        let age = self.last;
        self.by_age.insert(age, call);
        self.by_machine.entry(machine_of(&call)).or_default().push_back(age);
        self.entries.insert(call, Entry { age, state });
    }
}

/// Returns the part of a call's origin that stands for the client's machine.
fn machine_of(call: &Origin) -> u32 {
    (call.session >> 32) as u32
}

/// The maximum number of calls of one machine.
const CALLS_OF_MACHINE_MAX: usize = 1024;
/// The maximum number of calls of all machines.
const CALLS_MAX: usize = 16_384;

#[cfg(test)]
mod tests {
    use dafs_dat::records::LinkId;
    use dafs_ops::FrontId;

    use super::*;

    fn call(machine: u32, sequence: u32) -> Origin {
        let session = u64::from(machine) << 32;
        Origin { front: FrontId::NFS3, session, slot: 1, sequence, index: 12 }
    }

    fn link(bits: u64) -> Route {
        Route::plain(LinkId::from_bits(bits))
    }

    fn bits(to: Option<Route>) -> Option<u64> {
        to.map(|to| to.link.to_bits())
    }

    #[test]
    fn a_call_is_executed_once_and_its_reply_goes_where_it_came_from_last() {
        let mut repeats = Repeats::default();
        assert!(matches!(repeats.begin(call(1, 1), link(1)), Known::New));
        assert!(matches!(repeats.begin(call(1, 1), link(2)), Known::Running));
        assert!(matches!(repeats.begin(call(1, 2), link(2)), Known::New));
        assert_eq!(bits(repeats.end(&call(1, 1), b"one")), Some(2));
        assert!(matches!(repeats.begin(call(1, 1), link(3)), Known::Replied(b"one")));
        assert_eq!(bits(repeats.forget(&call(1, 2))), Some(2));
        assert!(matches!(repeats.begin(call(1, 2), link(2)), Known::New));
    }

    #[test]
    fn a_reply_that_is_about_to_be_sent_is_in_a_checkpoint() {
        let mut repeats = Repeats::default();
        repeats.begin(call(1, 1), link(1));
        assert_eq!(repeats.replies().count(), 0);
        repeats.note(&call(1, 1), b"one");
        repeats.note(&call(1, 2), b"not a call");
        let kept: Vec<_> = repeats.replies().collect();
        assert_eq!(kept, [(&call(1, 1), &b"one"[..])]);
        // The call still waits for its reply.
        assert!(matches!(repeats.begin(call(1, 1), link(2)), Known::Running));
        assert_eq!(bits(repeats.end(&call(1, 1), b"one")), Some(2));
        assert!(matches!(repeats.begin(call(1, 1), link(3)), Known::Replied(b"one")));
        assert_eq!(repeats.replies().count(), 1);
    }

    #[test]
    fn a_machine_with_many_calls_pushes_out_only_its_own() {
        let mut repeats = Repeats::default();
        repeats.restore_reply(call(1, 0), b"first");
        for sequence in 0..2 * CALLS_OF_MACHINE_MAX as u32 {
            repeats.restore_reply(call(2, sequence), b"many");
        }
        assert!(matches!(repeats.begin(call(1, 0), link(1)), Known::Replied(b"first")));
        assert!(matches!(repeats.begin(call(2, 0), link(1)), Known::New));
        assert_eq!(repeats.entries.len(), CALLS_OF_MACHINE_MAX + 1);
    }

    #[test]
    fn many_machines_together_stay_below_the_limit() {
        let mut repeats = Repeats::default();
        for machine in 0..2 * CALLS_MAX as u32 {
            repeats.restore_reply(call(machine, 1), b"reply");
        }
        assert_eq!(repeats.entries.len(), CALLS_MAX);
        assert_eq!(repeats.by_age.len(), CALLS_MAX);
        assert_eq!(repeats.by_machine.len(), CALLS_MAX);
        assert_eq!(repeats.replies().count(), CALLS_MAX);
    }
}
