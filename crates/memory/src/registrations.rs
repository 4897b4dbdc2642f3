//! A cache of registrations of the application's own memory with devices.
//!
//! Invariant: [`RegistrationCache::begin`] returns only a registration of the pages that are at the
//! range's addresses now. If a range's pages may have been replaced since it was registered, it is
//! registered again, and its old registration is dropped when its last use ends. Memory that cannot
//! be watched ([`Watched`]) is registered for one use only.
//!
//! This module does not depend on devices: a registration is any value whose drop deregisters the
//! memory.

use std::collections::BTreeMap;
use std::io;

use crate::pages::PageNumbers;
use crate::{WatchError, Watched};

/// The limits of a cache of registrations.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// The maximum number of registrations, including those in use.
    pub entries_max: usize,
    /// The maximum number of registered bytes, including those in use.
    pub bytes_max: usize,
    /// True to let devices that support it follow changes of the memory themselves (on-demand
    /// paging).
    pub on_demand: bool,
    /// True to compare the memory's pages before each use with the registered pages, and to panic
    /// if they differ. For tests only: the comparison reads a file each time and requires
    /// `CAP_SYS_ADMIN`.
    pub checks_pages: bool,
}

impl Default for CacheLimits {
    /// Returns limits of 1000 registrations and 256 MiB in total. If half the memory that the
    /// process may lock is less than 256 MiB, it is the limit instead.
    fn default() -> Self {
        let locked = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
        let is_privileged = rustix::process::geteuid().is_root();
        let locked = locked.filter(|_| !is_privileged).unwrap_or(u64::MAX);
        let bytes_max = BYTES_MAX.min(usize::try_from(locked / 2).unwrap_or(BYTES_MAX));
        Self { entries_max: ENTRIES_MAX, bytes_max, on_demand: false, checks_pages: false }
    }
}

impl CacheLimits {
    /// Sets the field [`entries_max`](Self#structfield.entries_max).
    #[must_use]
    pub fn entries_max(mut self, entries_max: usize) -> Self {
        self.entries_max = entries_max;
        self
    }

    /// Sets the field [`bytes_max`](Self#structfield.bytes_max).
    #[must_use]
    pub fn bytes_max(mut self, bytes_max: usize) -> Self {
        self.bytes_max = bytes_max;
        self
    }

    /// Sets the field [`on_demand`](Self#structfield.on_demand).
    #[must_use]
    pub fn on_demand(mut self, on_demand: bool) -> Self {
        self.on_demand = on_demand;
        self
    }

    /// Sets the field [`checks_pages`](Self#structfield.checks_pages).
    #[must_use]
    pub fn checks_pages(mut self, checks_pages: bool) -> Self {
        self.checks_pages = checks_pages;
        self
    }
}

/// The statistics and the current size of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// The number of uses of a registration that already existed.
    pub hits: u64,
    /// The number of registrations made; each one was kept in the cache if possible.
    pub misses: u64,
    /// The number of registrations made for one use, because the memory could not be watched or was
    /// being changed, or because the cache had no room. They are included in the misses.
    pub passing: u64,
    /// The number of registrations dropped to make room for others.
    pub evictions: u64,
    /// The number of registrations dropped because the memory was unmapped, moved or discarded.
    pub invalidations: u64,
    /// The current number of registrations.
    pub entries: usize,
    /// The current number of registered bytes.
    pub bytes: usize,
}

/// A range of this process's memory that the caller wants registered with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The device and the access rights of the registration.
    pub purpose: Purpose,
    /// The address of the first byte of the range.
    pub address: usize,
    /// The length of the range in bytes.
    pub length: usize,
}

/// The device with which memory is registered, and the access rights that the device gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Purpose {
    /// The device, as a number that the caller chooses.
    pub device: u64,
    /// The rights, as a number that the caller chooses.
    pub rights: u32,
}

/// The result of registering memory.
#[derive(Debug)]
pub struct Made<R> {
    /// The value whose drop deregisters the memory.
    pub registration: R,
    /// True if the registration always refers to the memory that is at these addresses now.
    pub follows_memory: bool,
}

/// One use of a registration. The caller must pass it to [`RegistrationCache::end`] or
/// [`RegistrationCache::revoke`].
#[derive(Debug)]
#[must_use]
pub struct Use {
    place: usize,
}

/// A cache of registrations of ranges of this process's memory.
#[derive(Debug)]
pub struct RegistrationCache<R> {
    limits: CacheLimits,
    slots: Vec<Option<Entry<R>>>,
    free: Vec<usize>,
    /// The registrations that are available for further uses, by purpose and first address.
    known: BTreeMap<(Purpose, usize), usize>,
    /// The number of uses so far, by which the least recently used registration is found.
    clock: u64,
    /// The value of [`Watched::changes`] at the time when all registrations were last checked.
    changes_seen: u64,
    counters: CacheCounters,
}

#[derive(Debug)]
struct Entry<R> {
    wanted: Wanted,
    /// The registration, which must be dropped before the watch; `None` if it was revoked while in
    /// use.
    registration: Option<R>,
    /// The watch of the range; `None` if the registration follows the memory or is for one use
    /// only.
    watched: Option<Watched>,
    pages: Option<PageNumbers>,
    uses: usize,
    used_at: u64,
    is_known: bool,
}

impl<R> RegistrationCache<R> {
    /// Creates an empty cache.
    #[must_use]
    pub fn new(limits: CacheLimits) -> Self {
        Self {
            limits,
            slots: Vec::new(),
            free: Vec::new(),
            known: BTreeMap::new(),
            clock: 0,
            changes_seen: 0,
            counters: CacheCounters::default(),
        }
    }

    /// Begins a use of a range, which must be mapped and stay mapped until the use ends. Calls
    /// `register` unless the cache has a suitable registration. If `register` reports lack of
    /// memory, drops other registrations and calls it again.
    ///
    /// # Errors
    /// The error of `register`.
    ///
    /// # Panics
    /// Panics if pages are checked and the pages of the range differ from the registered ones.
    pub fn begin(
        &mut self,
        wanted: Wanted,
        register: impl FnMut() -> io::Result<Made<R>>,
    ) -> io::Result<Use> {
        self.drop_changed();
        self.clock += 1;
        let mut is_settled = true;
        if let Some(place) = self.find(&wanted) {
            if self.is_current(place) {
                let clock = self.clock;
                if let Some(entry) = &mut self.slots[place] {
                    (entry.uses, entry.used_at) = (entry.uses + 1, clock);
                    entry.check_pages();
                }
                self.counters.hits += 1;
                return Ok(Use { place });
            }
            // Unless the registration is marked as changed, it may still be valid after the
            // changes.
            is_settled = self.forget_if_changed(place);
        }
        self.register(wanted, is_settled, register)
    }

    /// Returns the registration of a use, or `None` if the registration was revoked.
    #[must_use]
    pub fn registration(&self, of: &Use) -> Option<&R> {
        self.slots.get(of.place)?.as_ref()?.registration.as_ref()
    }

    /// Ends a use. The device must have stopped accessing the memory for this use.
    pub fn end(&mut self, of: Use) {
        let Some(Some(entry)) = self.slots.get_mut(of.place) else { return };
        entry.uses -= 1;
        if entry.uses == 0 && !entry.is_known {
            self.remove(of.place);
        }
    }

    /// Ends a use and drops the registration immediately, even if it has other uses, because the
    /// device may still be accessing the memory.
    pub fn revoke(&mut self, of: Use) {
        self.unlist(of.place);
        if let Some(Some(entry)) = self.slots.get_mut(of.place) {
            entry.registration = None;
        }
        self.end(of);
    }

    /// Drops all registrations with a device that was removed or is no longer used.
    pub fn forget_device(&mut self, device: u64) {
        self.forget_where(|entry| entry.wanted.purpose.device == device);
    }

    /// Drops all registrations that are not in use.
    pub fn clear(&mut self) {
        self.forget_where(|_| true);
    }

    /// Returns the statistics and the current size of the cache.
    #[must_use]
    pub fn counters(&self) -> CacheCounters {
        self.counters
    }

    // ---- private methods ------------------------------------------------------

    /// Finds a registration that contains the range and begins at the same address or shortly
    /// before it.
    fn find(&self, wanted: &Wanted) -> Option<usize> {
        let (purpose, end) = (wanted.purpose, wanted.address + wanted.length);
        let before = self.known.range((purpose, 0)..=(purpose, wanted.address)).rev();
        let mut places = before.take(NEIGHBOURS_MAX).map(|(_, place)| *place);
        places.find(|place| self.slots[*place].as_ref().is_some_and(|e| e.wanted.end() >= end))
    }

    fn is_current(&self, place: usize) -> bool {
        let Some(entry) = &self.slots[place] else { return false };
        entry.watched.as_ref().is_none_or(Watched::is_current)
    }

    /// Drops a registration whose memory has changed. Returns false if it cannot be determined now
    /// whether the memory has changed.
    fn forget_if_changed(&mut self, place: usize) -> bool {
        let watched = self.slots[place].as_ref().and_then(|entry| entry.watched.as_ref());
        let is_changed = watched.is_some_and(|watched| !watched.is_unmarked());
        if is_changed {
            self.counters.invalidations += 1;
            self.forget(place);
        }
        is_changed
    }

    fn register(
        &mut self,
        wanted: Wanted,
        is_settled: bool,
        mut register: impl FnMut() -> io::Result<Made<R>>,
    ) -> io::Result<Use> {
        let mut is_kept = is_settled && self.make_room(wanted.length);
        // The watch begins before the registration is made, so that no change is missed.
        let watched = match is_kept.then(|| Watched::new(wanted.address, wanted.length)) {
            Some(Err(WatchError::Full)) => {
                self.evict();
                Watched::new(wanted.address, wanted.length).ok()
            }
            outcome => outcome.and_then(Result::ok),
        };
        let made = loop {
            match register() {
                Ok(made) => break made,
                Err(error) if is_for_want_of_memory(&error) && self.evict() => {}
                Err(error) => return Err(error),
            }
        };
        is_kept &= made.follows_memory || watched.is_some();
        self.counters.misses += 1;
        self.counters.passing += u64::from(!is_kept);
        let checks = is_kept && self.limits.checks_pages && !made.follows_memory;
        let entry = Entry {
            wanted,
            registration: Some(made.registration),
            watched: watched.filter(|_| !made.follows_memory),
            pages: checks.then(|| PageNumbers::of(wanted.address, wanted.length)).flatten(),
            uses: 1,
            used_at: self.clock,
            is_known: is_kept,
        };
        let place = self.insert(entry);
        if is_kept {
            self.list(place, &wanted);
        }
        Ok(Use { place })
    }

    fn insert(&mut self, entry: Entry<R>) -> usize {
        self.counters.entries += 1;
        self.counters.bytes += entry.wanted.length;
        match self.free.pop() {
            Some(place) => {
                self.slots[place] = Some(entry);
                place
            }
            None => {
                self.slots.push(Some(entry));
                self.slots.len() - 1
            }
        }
    }

    /// Makes a registration available for further uses. Replaces a shorter one at the same address.
    fn list(&mut self, place: usize, wanted: &Wanted) {
        if let Some(former) = self.known.insert((wanted.purpose, wanted.address), place) {
            self.unlisted(former);
        }
    }

    fn unlist(&mut self, place: usize) {
        let Some(entry) = self.slots[place].as_mut().filter(|entry| entry.is_known) else { return };
        entry.is_known = false;
        let wanted = entry.wanted;
        self.known.remove(&(wanted.purpose, wanted.address));
    }

    /// Handles a registration that is no longer available for further uses: it is dropped when its
    /// last use ends.
    fn unlisted(&mut self, place: usize) {
        let Some(entry) = &mut self.slots[place] else { return };
        entry.is_known = false;
        if entry.uses == 0 {
            self.remove(place);
        }
    }

    fn forget(&mut self, place: usize) {
        self.unlist(place);
        self.unlisted(place);
    }

    fn forget_where(&mut self, is_it: impl Fn(&Entry<R>) -> bool) {
        for place in 0..self.slots.len() {
            if self.slots[place].as_ref().is_some_and(&is_it) {
                self.forget(place);
            }
        }
    }

    fn remove(&mut self, place: usize) {
        let Some(entry) = self.slots[place].take() else { return };
        self.counters.entries -= 1;
        self.counters.bytes -= entry.wanted.length;
        self.free.push(place);
    }

    /// Drops all registrations of memory that has changed, so that no unused pages stay pinned.
    fn drop_changed(&mut self) {
        let changes = Watched::changes();
        if std::mem::replace(&mut self.changes_seen, changes) == changes {
            return;
        }
        for place in 0..self.slots.len() {
            if self.slots[place].as_ref().is_some_and(|entry| entry.is_known) {
                self.forget_if_changed(place);
            }
        }
    }

    /// Drops registrations until there is room for one of `length` bytes. Returns false if that is
    /// impossible.
    fn make_room(&mut self, length: usize) -> bool {
        while self.counters.entries >= self.limits.entries_max
            || self.counters.bytes.saturating_add(length) > self.limits.bytes_max
        {
            if length > self.limits.bytes_max || !self.evict() {
                return false;
            }
        }
        true
    }

    /// Drops the least recently used registration that is not in use. Returns false if all are in
    /// use.
    fn evict(&mut self) -> bool {
        let idle = self.known.values().filter_map(|place| {
            let entry = self.slots[*place].as_ref().filter(|entry| entry.uses == 0)?;
            Some((entry.used_at, *place))
        });
        let Some((_, place)) = idle.min() else { return false };
        self.counters.evictions += 1;
        self.forget(place);
        true
    }
}

impl Wanted {
    fn end(&self) -> usize {
        self.address + self.length
    }
}

impl<R> Entry<R> {
    fn check_pages(&self) {
        let Some(registered) = &self.pages else { return };
        let now = PageNumbers::of(self.wanted.address, self.wanted.length);
        let is_same = now.as_ref() == Some(registered);
        assert!(is_same, "{:?} has other pages than were registered", self.wanted);
    }
}

fn is_for_want_of_memory(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EAGAIN | libc::ENOSPC))
}

const ENTRIES_MAX: usize = 1024;
const BYTES_MAX: usize = 256 << 20;
/// The maximum number of registrations examined, starting with the one that begins closest before a
/// range.
const NEIGHBOURS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use crate::{Memory, PAGE_BYTES, Pages};

    /// The ranges registered with a simulated device, in order of registration.
    type Known = Rc<RefCell<Vec<Wanted>>>;

    struct Registration(Known, Wanted);

    impl Drop for Registration {
        fn drop(&mut self) {
            self.0.borrow_mut().retain(|wanted| *wanted != self.1);
        }
    }

    struct Setting {
        memory: Memory,
        known: Known,
        cache: RegistrationCache<Registration>,
    }

    impl Setting {
        /// Creates a cache and memory for a test; `None` if the kernel cannot watch memory.
        fn new(entries_max: usize, bytes_max: usize) -> Option<Self> {
            let memory = Memory::anonymous(64 * PAGE_BYTES, Pages::Small).unwrap();
            let watched = Watched::new(memory.address() as usize, 1);
            if matches!(watched, Err(WatchError::Unavailable { .. })) {
                dafs_tests::skip("this kernel watches no memory");
                return None;
            }
            let limits = CacheLimits { entries_max, bytes_max, ..CacheLimits::default() };
            Some(Self { memory, known: Known::default(), cache: RegistrationCache::new(limits) })
        }

        fn wanted(&self, page: usize, count: usize) -> Wanted {
            let address = self.memory.address() as usize + page * PAGE_BYTES;
            let purpose = Purpose { device: 1, rights: 2 };
            Wanted { purpose, address, length: count * PAGE_BYTES }
        }

        fn begin(&mut self, wanted: Wanted) -> Use {
            let known = &self.known;
            let register = || {
                known.borrow_mut().push(wanted);
                let registration = Registration(Rc::clone(known), wanted);
                Ok(Made { registration, follows_memory: false })
            };
            self.cache.begin(wanted, register).unwrap()
        }

        /// Returns true if a use of these pages made a registration. Other tests change memory at
        /// the same time, so a registration may be made for one use only; the use is then repeated.
        fn misses(&mut self, page: usize, count: usize) -> bool {
            loop {
                let before = self.cache.counters();
                let of = self.begin(self.wanted(page, count));
                self.cache.end(of);
                let after = self.cache.counters();
                if after.passing == before.passing {
                    return after.misses > before.misses;
                }
            }
        }
    }

    #[test]
    fn what_is_known_is_not_registered_again() {
        let Some(mut setting) = Setting::new(8, 1 << 20) else { return };
        assert!(setting.misses(0, 8));
        assert!(!setting.misses(0, 8) && !setting.misses(2, 6) && !setting.misses(7, 1));
        assert!(setting.misses(7, 2), "a page more than is known");
        let other = Purpose { device: 1, rights: 3 };
        let of = setting.begin(Wanted { purpose: other, ..setting.wanted(0, 8) });
        assert_eq!(setting.known.borrow().len(), 3);
        setting.cache.end(of);
        // A longer registration replaces a shorter one.
        assert!(setting.misses(0, 16) && !setting.misses(0, 8));
        assert_eq!(setting.known.borrow().len(), 3);
        setting.cache.forget_device(1);
        assert!(setting.known.borrow().is_empty() && setting.cache.counters().bytes == 0);
    }

    #[test]
    fn what_was_unused_longest_makes_room() {
        let Some(mut setting) = Setting::new(3, 16 * PAGE_BYTES) else { return };
        assert!((0..3).all(|number| setting.misses(number * 4, 4)));
        assert!(!setting.misses(0, 4) && setting.misses(12, 4));
        assert!(!setting.misses(0, 4) && setting.misses(4, 4), "the second had to go");
        // The limit of bytes also evicts.
        assert!(setting.misses(20, 10));
        assert_eq!(setting.cache.counters().bytes, 14 * PAGE_BYTES);
        // Registrations in use are not evicted. If there is no room for another, it has one use.
        let wanted = [setting.wanted(4, 4), setting.wanted(20, 10)];
        let uses = wanted.map(|wanted| setting.begin(wanted));
        let passing = setting.begin(setting.wanted(40, 4));
        assert_eq!(setting.known.borrow().len(), 3);
        setting.cache.end(passing);
        assert_eq!(setting.known.borrow().len(), 2);
        uses.into_iter().for_each(|of| setting.cache.end(of));
        assert!(setting.cache.counters().evictions >= 4);
    }

    #[test]
    fn changed_memory_is_registered_anew_and_its_pages_are_let_go() {
        let Some(mut setting) = Setting::new(8, 1 << 20) else { return };
        assert!(setting.misses(0, 4) && setting.misses(8, 4));
        let of = setting.begin(setting.wanted(0, 4));
        setting.memory.discard(0, PAGE_BYTES);
        // A registration whose memory was discarded remains only until its last use ends.
        assert!(!setting.misses(8, 4));
        assert_eq!(setting.known.borrow().len(), 2);
        setting.cache.end(of);
        assert_eq!(setting.known.borrow().len(), 1);
        assert_eq!(setting.cache.counters().invalidations, 1);
        let of = setting.begin(setting.wanted(0, 4));
        setting.cache.end(of);
        assert_eq!(setting.known.borrow().len(), 1, "kept although it may still be under way");
    }

    #[test]
    fn what_is_revoked_is_taken_back_at_once() {
        let Some(mut setting) = Setting::new(8, 1 << 20) else { return };
        assert!(setting.misses(0, 4));
        let uses = [0, 1].map(|page| setting.begin(setting.wanted(page, 3)));
        let [first, second] = uses;
        setting.cache.revoke(first);
        assert!(setting.known.borrow().is_empty());
        assert!(setting.cache.registration(&second).is_none());
        setting.cache.end(second);
        assert!(setting.misses(0, 4));
        assert_eq!(setting.cache.counters().entries, 1);
    }

    #[test]
    fn a_device_without_memory_is_asked_again_when_another_has_gone() {
        let Some(mut setting) = Setting::new(8, 1 << 20) else { return };
        assert!(setting.misses(0, 4) && setting.misses(4, 4));
        let wanted = setting.wanted(8, 4);
        let full = || Err(io::Error::from_raw_os_error(libc::ENOMEM));
        assert!(setting.cache.begin(wanted, full).is_err());
        assert_eq!(setting.cache.counters().evictions, 2);
        assert!(setting.known.borrow().is_empty());
        let refused = || Err(io::Error::from_raw_os_error(libc::EFAULT));
        assert!(setting.misses(0, 4));
        assert!(setting.cache.begin(wanted, refused).is_err());
        assert_eq!(setting.known.borrow().len(), 1, "another's room is of no use");
    }

    #[test]
    fn memory_that_cannot_be_watched_is_of_one_use_unless_the_device_follows_it() {
        let Some(mut setting) = Setting::new(8, 1 << 20) else { return };
        setting.memory = Memory::shared(4 * PAGE_BYTES, Pages::Small).unwrap();
        let wanted = setting.wanted(0, 4);
        let of = setting.begin(wanted);
        setting.cache.end(of);
        assert!(setting.known.borrow().is_empty());
        let known = Rc::clone(&setting.known);
        let register = || {
            let registration = Registration(Rc::clone(&known), wanted);
            Ok(Made { registration, follows_memory: true })
        };
        let of = setting.cache.begin(wanted, register).unwrap();
        setting.cache.end(of);
        let of = setting.begin(wanted);
        setting.cache.end(of);
        assert_eq!((setting.cache.counters().hits, setting.cache.counters().passing), (1, 1));
    }
}
