//! A cache of what devices know of the application's own memory.
//!
//! Invariant: what [`RegistrationCache::begin`] hands out is a registration of the pages that the
//! range has now. A range that may have got other pages since it was registered is registered
//! anew, and its old registration goes when its last use ends. Whatever cannot be watched
//! ([`Watched`]) is registered for one use.
//!
//! It knows no devices: a registration is any value whose drop takes it back.

use std::collections::BTreeMap;
use std::io;

use crate::pages::PageNumbers;
use crate::{WatchError, Watched};

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Most registrations, those in use included.
    pub entries_max: usize,
    /// Most bytes registered, those in use included.
    pub bytes_max: usize,
    /// Devices that can are to follow what becomes of the memory themselves.
    pub on_demand: bool,
    /// Before each use the memory's pages are compared with those that were registered, and the
    /// process panics if they differ. For tests: it costs a read of a file each time, and needs
    /// CAP_SYS_ADMIN.
    pub checks_pages: bool,
}

impl Default for CacheLimits {
    /// A thousand registrations of 256 MiB together, or of half of what may be locked.
    fn default() -> Self {
        let locked = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
        let is_privileged = rustix::process::geteuid().is_root();
        let locked = locked.filter(|_| !is_privileged).unwrap_or(u64::MAX);
        let bytes_max = BYTES_MAX.min(usize::try_from(locked / 2).unwrap_or(BYTES_MAX));
        Self { entries_max: ENTRIES_MAX, bytes_max, on_demand: false, checks_pages: false }
    }
}

/// What a cache has done, and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Uses of what was registered already.
    pub hits: u64,
    /// Registrations that were made, and kept if they could be.
    pub misses: u64,
    /// Registrations made for one use, of memory that could not be watched or was being changed,
    /// or for want of room. They are among the misses.
    pub passing: u64,
    /// Registrations that made room for others.
    pub evictions: u64,
    /// Registrations of memory that was unmapped, moved or given back.
    pub invalidations: u64,
    /// Registrations now.
    pub entries: usize,
    /// Bytes of them.
    pub bytes: usize,
}

/// A range of this process's memory, as some device is to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Which device, and what it may do: registrations serve no other.
    pub purpose: Purpose,
    /// First byte.
    pub address: usize,
    /// Bytes.
    pub length: usize,
}

/// For whom memory is registered, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Purpose {
    /// The device, by a number of the caller's.
    pub device: u64,
    /// The rights, by a number of the caller's.
    pub rights: u32,
}

/// A registration that has been made.
#[derive(Debug)]
pub struct Made<R> {
    /// What takes it back when it is dropped.
    pub registration: R,
    /// It means whatever memory is at these addresses, for ever.
    pub follows_memory: bool,
}

/// One use of a registration. It must be given back to its cache.
#[derive(Debug)]
#[must_use]
pub struct Use {
    place: usize,
}

/// Registrations of ranges of this process's memory.
#[derive(Debug)]
pub struct RegistrationCache<R> {
    limits: CacheLimits,
    slots: Vec<Option<Entry<R>>>,
    free: Vec<usize>,
    /// Those that may be used again, by purpose and first byte.
    known: BTreeMap<(Purpose, usize), usize>,
    /// Counts uses, for who was used longest ago.
    clock: u64,
    /// Of [`Watched::changes`], when all were looked at last.
    changes_seen: u64,
    counters: CacheCounters,
}

#[derive(Debug)]
struct Entry<R> {
    wanted: Wanted,
    /// Goes before the watch. `None` once it was taken back although it is in use.
    registration: Option<R>,
    /// `None` if it follows the memory, or is of one use.
    watched: Option<Watched>,
    pages: Option<PageNumbers>,
    uses: usize,
    used_at: u64,
    is_known: bool,
}

impl<R> RegistrationCache<R> {
    /// An empty cache.
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

    /// Begins a use of a range, which must be mapped and stay so until the use ends. It is
    /// registered by `register` unless it is known; if that says that there is no memory, it is
    /// asked again when others have been let go.
    ///
    /// # Errors
    /// What `register` says.
    ///
    /// # Panics
    /// If pages are checked, and a range has others than were registered.
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
            // Unless it was told of, it may still be good when the changes are over.
            is_settled = self.forget_if_changed(place);
        }
        self.register(wanted, is_settled, register)
    }

    /// The registration that a use is of. `None` if it was taken back meanwhile.
    #[must_use]
    pub fn registration(&self, of: &Use) -> Option<&R> {
        self.slots.get(of.place)?.as_ref()?.registration.as_ref()
    }

    /// Ends a use; the device has nothing to do with the memory any more.
    pub fn end(&mut self, of: Use) {
        let Some(Some(entry)) = self.slots.get_mut(of.place) else { return };
        entry.uses -= 1;
        if entry.uses == 0 && !entry.is_known {
            self.remove(of.place);
        }
    }

    /// Ends a use, and takes the registration back at once, whoever else uses it: the device may
    /// still be at work on the memory.
    pub fn revoke(&mut self, of: Use) {
        self.unlist(of.place);
        if let Some(Some(entry)) = self.slots.get_mut(of.place) {
            entry.registration = None;
        }
        self.end(of);
    }

    /// A device is gone, or none of its registrations is wanted any more.
    pub fn forget_device(&mut self, device: u64) {
        self.forget_where(|entry| entry.wanted.purpose.device == device);
    }

    /// Lets everything go that is not in use.
    pub fn clear(&mut self) {
        self.forget_where(|_| true);
    }

    /// What it has done, and holds.
    #[must_use]
    pub fn counters(&self) -> CacheCounters {
        self.counters
    }

    // ---- inside ---------------------------------------------------------------

    /// A registration that the range is in: that which begins there, or close before.
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

    /// Whether it was.
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
        // From before it is registered, so that no change goes unseen.
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

    /// Makes it known, in the place of a shorter one.
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

    /// It is not among the known any more, and goes with its last use.
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

    /// Lets everything go that was told of, so that no pages stay pinned that nobody has.
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

    /// Whether there is room for so many bytes more.
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

    /// Lets the one go that was used longest ago, of those that nobody uses.
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
/// How many registrations are looked at, from that which begins closest before a range.
const NEIGHBOURS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use crate::{Memory, PAGE_BYTES, Pages};

    /// What a device knows: ranges, in the order that they were registered.
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
        /// `None` where the kernel watches nothing.
        fn new(entries_max: usize, bytes_max: usize) -> Option<Self> {
            let memory = Memory::anonymous(64 * PAGE_BYTES, Pages::Small).unwrap();
            let watched = Watched::new(memory.address() as usize, 1);
            if matches!(watched, Err(WatchError::Unavailable { .. })) {
                eprintln!("\n*** SKIPPED: this kernel watches no memory\n");
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

        /// Whether it was registered for this use. Other tests change memory meanwhile, which
        /// makes some uses pass; these are tried again.
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
        // A longer one takes the place of a shorter one.
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
        // By bytes, too.
        assert!(setting.misses(20, 10));
        assert_eq!(setting.cache.counters().bytes, 14 * PAGE_BYTES);
        // What is in use stays, and what has no room is of one use.
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
        // What was given back is kept by its last user alone.
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
