//! The peer's regions and the three ways into them.
//!
//! Invariant: nothing is moved before the range is inside the announced region and
//! the right is there. A mapped region stays mapped until it is withdrawn or the
//! connection ends; its memory file is sealed, so it cannot shrink under a copy.

use std::os::fd::OwnedFd;

use dafs_memory::Memory;

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
    mapping: Option<Memory>,
}

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
                Some(Memory::import(file, length, writable).map_err(|e| e.to_string())?)
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
            (Some(memory), _) => {
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
