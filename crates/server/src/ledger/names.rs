//! Tracks the names that requests are changing (busy names), and queues other requests for these
//! names.
//!
//! Invariant: each queued request waits for at least one busy name, or is about to be served.

use std::collections::{HashSet, VecDeque};

use dafs_files::ledger::plan::{Place, Places};

/// The busy names, and the requests that wait for them in order of arrival.
#[derive(Debug)]
pub(super) struct BusyNames<T> {
    busy: HashSet<Place>,
    held: VecDeque<(T, Places)>,
}

impl<T> Default for BusyNames<T> {
    fn default() -> Self {
        Self { busy: HashSet::new(), held: VecDeque::new() }
    }
}

impl<T> BusyNames<T> {
    /// Returns true if at least one of these names is busy: a request is changing it.
    pub(super) fn is_busy(&self, places: &Places) -> bool {
        !self.busy.is_empty() && places.iter().any(|place| self.busy.contains(place))
    }

    /// Marks these names as busy, until [`BusyNames::free`].
    pub(super) fn take(&mut self, places: &Places) {
        self.busy.extend(places.iter().cloned());
    }

    /// Marks these names as free.
    pub(super) fn free(&mut self, places: &Places) {
        for place in places {
            self.busy.remove(place);
        }
    }

    /// Queues a request until these names are free.
    pub(super) fn hold(&mut self, who: T, places: Places) {
        self.held.push_back((who, places));
    }

    /// Removes and returns the first request whose names are all free. The caller starts the
    /// request before the next call, so that its names are busy again. So if many requests wait for
    /// one name, only the next of them is examined, not all.
    pub(super) fn next_free(&mut self) -> Option<T> {
        let place = self.held.iter().position(|(_, places)| !self.is_busy(places))?;
        self.held.remove(place).map(|(who, _)| who)
    }

    /// Returns the number of queued requests.
    pub(super) fn held_count(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use dafs_types::FileHandle;

    use super::*;

    fn places(names: &[&str]) -> Places {
        let directory = FileHandle([0; FileHandle::LENGTH]);
        names.iter().map(|name| (directory, name.as_bytes().into())).collect()
    }

    #[test]
    fn of_those_who_wait_for_one_name_only_the_first_is_begun_again() {
        let mut names = BusyNames::default();
        names.take(&places(&["a", "b"]));
        (0..1000).for_each(|number| names.hold(number, places(&["a"])));
        names.hold(1000, places(&["b"]));
        names.hold(1001, places(&["a", "b"]));
        assert_eq!(names.next_free(), None, "both names are busy");
        names.free(&places(&["b"]));
        assert_eq!(names.next_free(), Some(1000));
        assert_eq!(names.next_free(), None, "the others wait for the other name");
        for number in 0..1000 {
            names.free(&places(&["a"]));
            assert_eq!(names.next_free(), Some(number), "each in its turn");
            names.take(&places(&["a"]));
            assert_eq!(names.next_free(), None, "it has the name");
        }
        names.free(&places(&["a"]));
        assert_eq!(names.next_free(), Some(1001));
        assert_eq!(names.held_count(), 0);
    }
}
