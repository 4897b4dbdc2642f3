//! The peer's regions and the three ways into them.
//!
//! Invariant: nothing is moved before the range is inside the announced region and
//! the right is there. A mapped region stays mapped until it is withdrawn or the
//! connection ends; its memory file is sealed, so it cannot shrink under a copy.

use std::error::Error;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use dafs_memory::{ImportError, Memory};

use super::control::ExposedRegion;
use crate::{RegionPath, RemoteSegment, Stag};

/// The peer's regions, by STag.
#[derive(Debug)]
pub struct PeerRegions {
    /// Sorted by STag.
    regions: Vec<PeerRegion>,
    /// Index of the region used last: requests come in runs.
    recent: usize,
    /// Process to reach for regions without a memory file, if that is allowed.
    process: Option<rustix::process::RawPid>,
}

/// One region of the peer.
#[derive(Debug)]
pub struct PeerRegion {
    announced: ExposedRegion,
    mapping: Option<Mapping>,
}

/// A mapping of a peer's file, counted while it stands: the kernel grants a process so
/// many, and a process that has none left cannot even allocate.
#[derive(Debug)]
struct Mapping(Memory);

impl Mapping {
    fn new(file: OwnedFd, length: usize, writable: bool, most: usize) -> Result<Self, String> {
        if MAPPINGS.fetch_add(1, Ordering::Relaxed) >= most {
            MAPPINGS.fetch_sub(1, Ordering::Relaxed);
            return Err(format!("more than {most} regions of all peers are mapped"));
        }
        match Memory::import(file, length, writable) {
            Ok(memory) => Ok(Self(memory)),
            Err(error) => {
                MAPPINGS.fetch_sub(1, Ordering::Relaxed);
                Err(import_failure(&error))
            }
        }
    }
}

/// Why memory could not be mapped, with the cause: a connection keeps its end as text.
pub(super) fn import_failure(error: &ImportError) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        MAPPINGS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Mappings of all connections of this process.
static MAPPINGS: AtomicUsize = AtomicUsize::new(0);

/// How the bytes of a checked range are reached.
#[derive(Debug)]
pub enum Reach<'a> {
    /// Here, at this offset.
    Mapped(&'a Memory, usize),
    /// In another process.
    Process(rustix::process::RawPid),
    /// Through the ring.
    Staged,
}

impl PeerRegions {
    pub fn new() -> Self {
        Self { regions: Vec::new(), recent: 0, process: None }
    }

    /// From now on regions without a memory file are reached in this process.
    pub fn set_process(&mut self, pid: rustix::process::RawPid) {
        self.process = Some(pid);
    }

    /// Whether such regions are reachable.
    pub fn has_process(&self) -> bool {
        self.process.is_some()
    }

    /// Takes an announced region in, mapping its file.
    pub fn insert(
        &mut self,
        announced: ExposedRegion,
        file: Option<OwnedFd>,
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
                let writable = announced.remote_write;
                Some(Mapping::new(file, length, writable, MAPPINGS_MAX)?)
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

    pub fn remove(&mut self, stag: Stag) {
        if let Ok(place) = self.regions.binary_search_by_key(&stag, |r| r.announced.stag) {
            self.regions.remove(place);
        }
    }

    #[inline]
    pub fn knows(&mut self, stag: Stag) -> bool {
        self.find(stag).is_some()
    }

    /// Checks a range and says how to reach it.
    #[inline]
    pub fn reach(&mut self, remote: &RemoteSegment, write: bool) -> Result<Reach<'_>, String> {
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
            return Err(format!("{length} octets at {:#x} leave the region", remote.address));
        }
        if !(if write { announced.remote_write } else { announced.remote_read }) {
            return Err(format!("STag {:#x} lacks the right", remote.stag.0));
        }
        match (&region.mapping, process) {
            (Some(Mapping(memory)), _) => {
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

/// How the owner of `memory` must expect a peer to reach it.
pub fn path_of(memory: &Memory, peer_reaches_process: bool) -> RegionPath {
    match (memory.file().is_some(), peer_reaches_process) {
        (true, _) => RegionPath::Mapped,
        (false, true) => RegionPath::ProcessVm,
        (false, false) => RegionPath::Staged,
    }
}

/// Copies between our memory and another process. `write` is towards the process.
pub fn copy_process(
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
        // SAFETY: the local vector covers a checked range of memory that lives for
        // the call; the remote one is only interpreted in the other process, and
        // the kernel refuses what is not mapped there.
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

/// Most regions one peer may expose: each costs a mapping.
const REGIONS_MAX: usize = 1024;
/// Most mappings for all peers together: half of what Linux grants a process unless told
/// otherwise (vm.max_map_count).
const MAPPINGS_MAX: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use dafs_memory::Pages;

    use super::*;

    #[test]
    fn mappings_of_all_peers_together_are_bounded() {
        let memory = Memory::shared(4096, Pages::Small).unwrap();
        let file = || memory.file().unwrap().as_fd().try_clone_to_owned().unwrap();
        let first = Mapping::new(file(), 4096, true, 1).unwrap();
        assert!(Mapping::new(file(), 4096, true, 1).is_err());
        assert!(Mapping::new(file(), 8192, true, 2).is_err(), "the file is too short");
        drop(first);
        assert!(Mapping::new(file(), 4096, true, 1).is_ok());
    }
}
