//! Registered memory for the data of calls, and for replies that are written to clients' memory.
//!
//! Invariants:
//! - A buffer belongs to one call until it is given back. Free buffers are kept, because some
//!   devices need much time to register memory.
//! - All buffers together have a limit. A part of it is reserved for replies, so that clients whose
//!   calls occupy buffers do not delay the replies to others. The calls of one host have a limit of
//!   their own.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;

use dafs_dat::{LocalSegment, Region, ServingInterface};
use dafs_memory::{Memory, Pages};

use super::DOMAIN;

/// The buffers of an interface.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    free: Vec<Buffer>,
    /// The size of all buffers, in bytes.
    total: usize,
    /// The size of the free buffers, in bytes.
    idle: usize,
    /// The size of the buffers of calls, in bytes.
    of_calls: usize,
    of_hosts: HashMap<IpAddr, usize>,
}

/// Memory that is registered for this side.
#[derive(Debug)]
pub(super) struct Buffer {
    memory: Memory,
    region: Region,
    /// The host of the call. `None` if the buffer belongs to a reply.
    host: Option<IpAddr>,
}

/// The reason why there is no buffer.
#[derive(Debug)]
pub(super) enum NoBuffer {
    /// There is none now. There will be one when others are given back.
    Busy,
    /// The system has no memory, or the interface no room for another region.
    Failed(io::Error),
}

impl Buffers {
    /// Returns a buffer of at least this number of bytes, for a call of a host, or for a reply.
    pub(super) fn take(
        &mut self,
        interface: &mut ServingInterface,
        (host, bytes): (Option<IpAddr>, usize),
    ) -> Result<Buffer, NoBuffer> {
        let size = bytes.max(1).next_multiple_of(STEP_BYTES);
        let of_host = host.and_then(|host| self.of_hosts.get(&host)).copied().unwrap_or(0);
        let in_use = self.total - self.idle;
        let is_full = match host {
            None => in_use + size > TOTAL_BYTES_MAX,
            Some(_) => {
                in_use + size > TOTAL_BYTES_MAX
                    || self.of_calls + size > CALLS_BYTES_MAX
                    // A host may always have one call.
                    || of_host > 0 && of_host + size > HOST_BYTES_MAX
            }
        };
        if is_full {
            return Err(NoBuffer::Busy);
        }
        let fits = |buffer: &Buffer| (size..=2 * size).contains(&buffer.memory.length());
        let mut buffer = match self.free.iter().position(fits) {
            Some(found) => {
                let buffer = self.free.swap_remove(found);
                self.idle -= buffer.memory.length();
                buffer
            }
            None => self.allocate(interface, size).map_err(NoBuffer::Failed)?,
        };
        buffer.host = host;
        if let Some(host) = host {
            let size = buffer.memory.length();
            self.of_calls += size;
            *self.of_hosts.entry(host).or_default() += size;
        }
        Ok(buffer)
    }

    fn allocate(&mut self, interface: &mut ServingInterface, size: usize) -> io::Result<Buffer> {
        while self.total + size > TOTAL_BYTES_MAX {
            let Some(buffer) = self.free.pop() else { break };
            self.idle -= buffer.memory.length();
            self.total -= buffer.memory.length();
            interface.deregister(buffer.region.key);
        }
        let memory = Memory::anonymous(size, Pages::Small)?;
        let region = interface.register_local(&memory, DOMAIN);
        let region = region.ok_or_else(|| io::Error::other("the table of regions is full"))?;
        self.total += memory.length();
        Ok(Buffer { memory, region, host: None })
    }

    /// Takes back a buffer that is no longer in use.
    pub(super) fn give_back(&mut self, interface: &mut ServingInterface, buffer: Buffer) {
        let size = buffer.memory.length();
        if let Some(host) = buffer.host {
            self.of_calls -= size;
            if let Some(of_host) = self.of_hosts.get_mut(&host) {
                *of_host -= size;
                if *of_host == 0 {
                    self.of_hosts.remove(&host);
                }
            }
        }
        if self.idle + size > IDLE_BYTES_MAX {
            self.total -= size;
            return interface.deregister(buffer.region.key);
        }
        self.idle += size;
        self.free.push(buffer);
    }
}

impl Buffer {
    /// Returns a range as a segment for work requests.
    pub(super) fn segment(&self, offset: usize, length: u32) -> LocalSegment {
        self.region.local(offset as u64, length)
    }

    /// Appends a copy of a range to `bytes`.
    pub(super) fn append_to(&self, bytes: &mut Vec<u8>, offset: usize, length: usize) {
        let start = bytes.len();
        bytes.resize(start + length, 0);
        self.memory.read(offset, &mut bytes[start..]);
    }

    /// Copies bytes to the start of the buffer.
    pub(super) fn write(&self, bytes: &[u8]) {
        self.memory.write(0, bytes);
    }
}

/// The sizes of buffers are multiples of this number of bytes.
const STEP_BYTES: usize = 64 << 10;
/// The maximum number of bytes of all buffers that are in use.
const TOTAL_BYTES_MAX: usize = 256 << 20;
/// The maximum number of bytes of the buffers of calls.
const CALLS_BYTES_MAX: usize = TOTAL_BYTES_MAX / 4 * 3;
/// The maximum number of bytes of the buffers of the calls of one host.
const HOST_BYTES_MAX: usize = CALLS_BYTES_MAX / 3;
/// The maximum number of bytes of all free buffers.
const IDLE_BYTES_MAX: usize = 64 << 20;
