//! The peer's regions and the three ways to access their bytes.
//!
//! Invariant: no byte is moved unless the range is inside the announced region and the right is
//! granted. A mapped region stays mapped until it is withdrawn or the connection ends. Its memory
//! file is sealed, so that it cannot shrink during a copy.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use dafs_memory::{ImportError, Memory};

use super::control::{ExposedRegion, PeerFile};
use crate::{RegionPath, RemoteSegment, Stag, disposal};

/// The regions that the peer has announced, by STag.
#[derive(Debug)]
pub(super) struct PeerRegions {
    /// The regions, sorted by STag.
    regions: Vec<PeerRegion>,
    /// The index of the region used most recently. It is tried first, because successive requests
    /// often use the same region.
    recent: usize,
    /// The process id for accessing regions without a memory file, if that is allowed.
    process: Option<rustix::process::RawPid>,
    /// The id of the user for whom these mappings count against the limits.
    user: Option<u32>,
}

/// One region of the peer.
#[derive(Debug)]
pub(super) struct PeerRegion {
    announced: ExposedRegion,
    mapping: Option<Mapping>,
}

/// A mapping of a peer's file. The memory is unmapped before its reservation is released.
#[derive(Debug)]
struct Mapping {
    memory: Memory,
    _claim: Claim,
}

/// A reservation of one mapping and its bytes, out of the limits for all peers.
#[derive(Debug)]
pub(super) struct Claim {
    user: Option<u32>,
    bytes: usize,
}

/// A number of mappings and their total size in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mapped {
    mappings: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Ledger {
    all: Mapped,
    of_users: BTreeMap<Option<u32>, Mapped>,
}

/// The limit that a reservation would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    Mappings,
    Bytes,
}

static LEDGER: Mutex<Ledger> = Mutex::new(Ledger::new());

impl Claim {
    fn new(user: Option<u32>, bytes: usize, most: Mapped) -> Result<Self, Full> {
        // The bytes of trusted users do not count against the limit.
        let bytes = if is_trusted(user) { 0 } else { bytes };
        lock().take(user, bytes, most)?;
        Ok(Self { user, bytes })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock().give_back(self.user, self.bytes);
    }
}

impl Ledger {
    const fn new() -> Self {
        Self { all: Mapped { mappings: 0, bytes: 0 }, of_users: BTreeMap::new() }
    }

    /// Reserves a mapping. Trusted users are subject only to the common limit. The total of any
    /// other user may not exceed what remains free after this reservation: a single user gets half,
    /// the next one half of the remainder. So users that use much leave something for later users.
    fn take(&mut self, user: Option<u32>, bytes: usize, most: Mapped) -> Result<(), Full> {
        let lost = dafs_memory::lost_mappings();
        let Mapped { mappings, bytes: mapped } = self.all;
        // The number of mappings that remain free after this one.
        let mappings_left = most.mappings.checked_sub(mappings + lost + 1).ok_or(Full::Mappings)?;
        let bytes_left = most.bytes.saturating_sub(mapped).checked_sub(bytes);
        let bytes_left = bytes_left.ok_or(Full::Bytes)?;
        let here = self.of_users.get(&user).copied().unwrap_or_default();
        if !is_trusted(user) {
            if here.mappings > mappings_left {
                return Err(Full::Mappings);
            }
            if here.bytes.saturating_add(bytes) > bytes_left {
                return Err(Full::Bytes);
            }
        }
        self.all.add(bytes);
        self.of_users.entry(user).or_default().add(bytes);
        Ok(())
    }

    fn give_back(&mut self, user: Option<u32>, bytes: usize) {
        self.all.remove(bytes);
        if let Some(here) = self.of_users.get_mut(&user) {
            here.remove(bytes);
            if here.mappings == 0 {
                self.of_users.remove(&user);
            }
        }
    }
}

impl Mapped {
    /// Returns the fraction of the limits that regions may use. The remainder is kept for the rings
    /// of later connections.
    fn of_regions(self) -> Self {
        Self { mappings: self.mappings / 8 * 7, bytes: self.bytes / 8 * 7 }
    }

    fn add(&mut self, bytes: usize) {
        self.mappings += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, bytes: usize) {
        self.mappings = self.mappings.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

fn lock() -> MutexGuard<'static, Ledger> {
    LEDGER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true for a user that could harm this process in worse ways than by filling its memory.
pub(crate) fn is_trusted(user: Option<u32>) -> bool {
    user.is_some_and(|user| user == 0 || user == rustix::process::geteuid().as_raw())
}

/// Maps a file that a peer has sent.
fn import(file: PeerFile, length: usize, writable: bool) -> Result<Memory, String> {
    let fd = file.fd().map_err(|error| error.to_string())?;
    let memory = Memory::import(fd, length, writable).map_err(|e| import_failure(&e))?;
    // The mapping keeps a reference to the file, so closing the descriptor here does not free the
    // file.
    drop(file.take());
    Ok(memory)
}

/// Returns the text of an error including its cause, because a connection stores the reason of its
/// end as text.
fn import_failure(error: &ImportError) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn too_many_mappings() -> String {
    format!("the limit of {MAPPINGS_MAX} mapped regions, or this user's share of it, is reached")
}

/// The way to access the bytes of a checked range.
#[derive(Debug)]
pub(super) enum Reach<'a> {
    /// Copy to or from a mapping in this process, at this offset in the mapping.
    Mapped(&'a Memory, usize),
    /// Copy to or from the memory of the process with this id by `process_vm_writev` and
    /// `process_vm_readv`.
    Process(rustix::process::RawPid),
    /// Send the bytes through the connection's ring.
    Staged,
}

impl PeerRegions {
    /// Creates an empty table for a peer whose process belongs to this user.
    pub(super) fn new(user: Option<u32>) -> Self {
        Self { regions: Vec::new(), recent: 0, process: None, user }
    }

    /// Maps the ring memory that the peer has created.
    pub(super) fn map_ring(
        &self,
        file: PeerFile,
        length: usize,
    ) -> Result<(Memory, Claim), String> {
        let claim = Claim::new(self.user, length, limits()).map_err(|full| match full {
            Full::Mappings => too_many_mappings(),
            Full::Bytes => "the memory exceeds this user's share of all mapped memory".into(),
        })?;
        Ok((import(file, length, true)?, claim))
    }

    /// Sets the process id for accessing regions without a memory file.
    pub(super) fn set_process(&mut self, pid: rustix::process::RawPid) {
        self.process = Some(pid);
    }

    /// Returns true if regions without a memory file are accessible.
    pub(super) fn has_process(&self) -> bool {
        self.process.is_some()
    }

    /// Adds an announced region and maps its file. If the mapping would exceed the limit of the
    /// peer's user, the region is not mapped but accessed through the ring: copies into a mapping
    /// could allocate missing pages, for which this process is charged.
    pub(super) fn insert(
        &mut self,
        announced: ExposedRegion,
        file: Option<PeerFile>,
    ) -> Result<(), String> {
        self.insert_within(announced, file, limits().of_regions())
    }

    fn insert_within(
        &mut self,
        announced: ExposedRegion,
        file: Option<PeerFile>,
        most: Mapped,
    ) -> Result<(), String> {
        if self.regions.len() >= REGIONS_MAX {
            return Err(format!("more than {REGIONS_MAX} regions exposed"));
        }
        if announced.address.checked_add(announced.length).is_none() {
            return Err("exposed region wraps around the address space".into());
        }
        let mapping = match file {
            Some(file) => {
                let length = usize::try_from(announced.length).map_err(|e| e.to_string())?;
                match Claim::new(self.user, length, most) {
                    Ok(claim) => {
                        let memory = import(file, length, announced.remote_write)?;
                        Some(Mapping { memory, _claim: claim })
                    }
                    Err(Full::Bytes) => None,
                    Err(Full::Mappings) => return Err(too_many_mappings()),
                }
            }
            None => None,
        };
        match self.regions.binary_search_by_key(&announced.stag, |r| r.announced.stag) {
            Ok(_) => Err(format!("STag {:#x} exposed twice", announced.stag.0)),
            Err(place) => {
                self.regions.insert(place, PeerRegion { announced, mapping });
                Ok(())
            }
        }
    }

    pub(super) fn remove(&mut self, stag: Stag) {
        if let Ok(place) = self.regions.binary_search_by_key(&stag, |r| r.announced.stag) {
            let PeerRegion { mapping, .. } = self.regions.remove(place);
            if let Some(mapping) = mapping {
                disposal::memory(mapping);
            }
        }
    }

    #[inline]
    pub(super) fn knows(&mut self, stag: Stag) -> bool {
        self.find(stag).is_some()
    }

    /// Checks a range and returns the way to access it.
    #[inline]
    pub(super) fn reach(
        &mut self,
        remote: &RemoteSegment,
        write: bool,
    ) -> Result<Reach<'_>, String> {
        let process = self.process;
        let region = self
            .find(remote.stag)
            .ok_or_else(|| format!("STag {:#x} is not registered", remote.stag.0))?;
        let announced = &region.announced;
        let offset = remote.address.wrapping_sub(announced.address);
        let length = u64::from(remote.length);
        if remote.address < announced.address
            || offset > announced.length
            || length > announced.length - offset
        {
            return Err(format!("{length} bytes at {:#x} exceed the region", remote.address));
        }
        if !(if write { announced.remote_write } else { announced.remote_read }) {
            return Err(format!("STag {:#x} does not allow this access", remote.stag.0));
        }
        match (&region.mapping, process) {
            (Some(Mapping { memory, .. }), _) => {
                Ok(Reach::Mapped(memory, usize::try_from(offset).map_err(|e| e.to_string())?))
            }
            (None, Some(pid)) => Ok(Reach::Process(pid)),
            (None, None) => Ok(Reach::Staged),
        }
    }

    #[inline]
    fn find(&mut self, stag: Stag) -> Option<&PeerRegion> {
        if self.regions.get(self.recent).is_none_or(|r| r.announced.stag != stag) {
            self.recent = self.regions.binary_search_by_key(&stag, |r| r.announced.stag).ok()?;
        }
        self.regions.get(self.recent)
    }
}

impl Drop for PeerRegions {
    fn drop(&mut self) {
        let regions = std::mem::take(&mut self.regions);
        let mappings: Vec<Mapping> =
            regions.into_iter().filter_map(|region| region.mapping).collect();
        if !mappings.is_empty() {
            disposal::memory(mappings);
        }
    }
}

/// Returns the way in which a peer will access `memory`, for the owner of the memory.
pub(super) fn path_of(memory: &Memory, peer_reaches_process: bool) -> RegionPath {
    match (memory.file().is_some(), peer_reaches_process) {
        (true, _) => RegionPath::Mapped,
        (false, true) => RegionPath::ProcessVm,
        (false, false) => RegionPath::Staged,
    }
}

/// Copies between memory of this process and another process. If `write` is true, copies to that
/// process.
pub(super) fn copy_process(
    pid: rustix::process::RawPid,
    memory: &Memory,
    offset: usize,
    address: u64,
    length: usize,
    write: bool,
) -> Result<(), String> {
    let mut done = 0;
    while done < length {
        let local = libc::iovec {
            iov_base: memory.pointer(offset + done, length - done).cast(),
            iov_len: length - done,
        };
        let remote = libc::iovec {
            iov_base: (address + done as u64) as *mut libc::c_void,
            iov_len: length - done,
        };
        // SAFETY: the local vector covers a checked range of memory that lives during the call. The
        // remote vector is interpreted only in the other process, and the kernel refuses what is
        // not mapped there.
        let moved = unsafe {
            if write {
                libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0)
            } else {
                libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0)
            }
        };
        match usize::try_from(moved) {
            Ok(count) if count > 0 => done += count,
            _ => return Err(format!("process {pid}: {}", std::io::Error::last_os_error())),
        }
    }
    Ok(())
}

/// The limit for the number of regions that one peer may expose. Each may need a mapping.
const REGIONS_MAX: usize = 1024;
/// The limit for the number of mappings for all peers together: half of the number that Linux
/// allows a process by default (vm.max_map_count). Without free mappings, a process cannot even
/// allocate memory.
const MAPPINGS_MAX: usize = 32 << 10;

/// Returns the limits for the mapped memory of all peers together.
fn limits() -> Mapped {
    Mapped { mappings: MAPPINGS_MAX, bytes: *BYTES_MAX.get_or_init(bytes_max) }
}

/// Determines the limits for mapped memory. This reads files, so a listener does it before it
/// accepts peers.
pub(super) fn learn_limits() {
    limits();
}

static BYTES_MAX: OnceLock<usize> = OnceLock::new();

/// Returns half of the memory in bytes that this process may use: that of the machine, or of the
/// process's control group, which is charged for every page that a copy allocates.
fn bytes_max() -> usize {
    let info = rustix::system::sysinfo();
    let machine = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let ours = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let least = Path::new(ours)
        .ancestors()
        .filter_map(|group| {
            let file = Path::new("/sys/fs/cgroup").join(group).join("memory.max");
            std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok()
        })
        .fold(machine, u64::min);
    usize::try_from(least / 2).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use dafs_memory::Pages;

    use super::*;

    const PAGE: usize = 4096;

    /// Held by each test that takes from the ledger of the process, whose shares depend on what
    /// others have taken.
    static LEDGER_IN_USE: Mutex<()> = Mutex::new(());

    fn alone() -> MutexGuard<'static, ()> {
        LEDGER_IN_USE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file_of(memory: &Memory) -> PeerFile {
        PeerFile::new(memory.file().unwrap().as_fd().try_clone_to_owned().unwrap())
    }

    fn region(stag: u32, length: usize) -> ExposedRegion {
        ExposedRegion {
            stag: Stag(stag),
            address: 0x10_0000,
            length: length as u64,
            remote_read: true,
            remote_write: true,
        }
    }

    fn whole(stag: u32, length: usize) -> RemoteSegment {
        RemoteSegment { stag: Stag(stag), address: 0x10_0000, length: length as u32 }
    }

    #[test]
    fn users_who_have_much_leave_memory_for_whoever_comes_next() {
        let most = Mapped { mappings: 1000, bytes: 64 * PAGE };
        let mut ledger = Ledger::new();
        let mut sizes = Vec::new();
        for user in 80_010..80_014 {
            let mut pages = 0;
            while ledger.take(Some(user), PAGE, most).is_ok() {
                pages += 1;
            }
            sizes.push(pages);
        }
        assert_eq!(sizes, [32, 16, 8, 4]);
        assert_eq!(ledger.take(Some(80_014), PAGE, most), Ok(()));
        assert_eq!(ledger.take(Some(0), 0, most), Ok(()));
    }

    #[test]
    fn no_user_has_more_than_half_of_all_mappings_and_all_together_have_a_limit() {
        let most = Mapped { mappings: 4, bytes: 100 * PAGE };
        let mut ledger = Ledger::new();
        let mut take = |user| ledger.take(Some(user), PAGE, most);
        assert_eq!([take(80_001), take(80_001)], [Ok(()); 2]);
        assert_eq!(take(80_001), Err(Full::Mappings));
        assert_eq!([take(80_002), take(80_003)], [Ok(()); 2]);
        assert_eq!(take(80_004), Err(Full::Mappings));
        ledger.give_back(Some(80_001), PAGE);
        assert_eq!(ledger.take(Some(80_004), PAGE, most), Ok(()));
    }

    #[test]
    fn memory_beyond_a_users_share_is_reached_through_the_ring() {
        let _alone = alone();
        let most = Mapped { mappings: 1000, bytes: 8 * PAGE };
        let mut regions = PeerRegions::new(Some(80_005));
        let memory = Memory::shared(4 * PAGE, Pages::Small).unwrap();
        for (stag, pages) in [(1, 3), (2, 2), (3, 1)] {
            let length = pages * PAGE;
            regions.insert_within(region(stag, length), Some(file_of(&memory)), most).unwrap();
        }
        assert!(matches!(regions.reach(&whole(1, 3 * PAGE), true), Ok(Reach::Mapped(..))));
        assert!(matches!(regions.reach(&whole(2, 2 * PAGE), true), Ok(Reach::Staged)));
        assert!(matches!(regions.reach(&whole(3, PAGE), true), Ok(Reach::Mapped(..))));
        // A share belongs to the user, however many connections the user has.
        let mut beside = PeerRegions::new(Some(80_005));
        beside.insert_within(region(1, PAGE), Some(file_of(&memory)), most).unwrap();
        assert!(matches!(beside.reach(&whole(1, PAGE), true), Ok(Reach::Staged)));
        // The share of the superuser is not limited.
        let mut trusted = PeerRegions::new(Some(0));
        trusted.insert_within(region(1, 4 * PAGE), Some(file_of(&memory)), most).unwrap();
        assert!(matches!(trusted.reach(&whole(1, PAGE), true), Ok(Reach::Mapped(..))));
    }

    #[test]
    fn a_file_that_cannot_be_mapped_takes_no_share() {
        let _alone = alone();
        let most = Mapped { mappings: 1000, bytes: 8 * PAGE };
        let mut regions = PeerRegions::new(Some(80_006));
        let memory = Memory::shared(PAGE, Pages::Small).unwrap();
        for _ in 0..10 {
            let (short, file) = (region(1, 2 * PAGE), file_of(&memory));
            assert!(regions.insert_within(short, Some(file), most).is_err());
        }
        assert!(!lock().of_users.contains_key(&Some(80_006)));
    }
}
