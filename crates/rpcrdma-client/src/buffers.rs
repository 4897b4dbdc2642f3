//! Registered memory for chunks.
//!
//! Invariant: a buffer belongs to one call at a time. Its registration is kept for later calls.

use std::io;

use dafs_dat::{Domain, EndpointId, Interface, Region, Rights};
use dafs_memory::{Memory, Pages};
use dafs_rpcrdma::header::{Handle, Segment};

/// The buffers that no call uses.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    free: Vec<Buffer>,
}

/// Memory that the server can read and write.
#[derive(Debug)]
pub(crate) struct Buffer {
    memory: Memory,
    region: Region,
}

impl Buffers {
    /// Returns a buffer of at least this number of bytes.
    pub(crate) fn take(&mut self, interface: &mut Interface, bytes: usize) -> io::Result<Buffer> {
        let size = bytes.max(1).next_power_of_two().max(BYTES_MIN);
        let found = self.free.iter().position(|buffer| buffer.memory.length() == size);
        if let Some(found) = found {
            return Ok(self.free.swap_remove(found));
        }
        let memory = Memory::anonymous(size, Pages::Small)?;
        let region = interface.register(&memory, DOMAIN, Rights::REMOTE);
        let region = region.ok_or_else(|| io::Error::other("the table of regions is full"))?;
        Ok(Buffer { memory, region })
    }

    /// Takes back buffers that are no longer in use.
    pub(crate) fn give_back(&mut self, buffers: impl IntoIterator<Item = Buffer>) {
        self.free.extend(buffers);
    }
}

impl Buffer {
    /// Returns the first bytes of the buffer, as the server names them.
    pub(crate) fn segment(
        &self,
        (interface, endpoint): (&mut Interface, EndpointId),
        length: usize,
    ) -> Segment {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let remote = interface.remote(endpoint, &self.region, 0, length);
        Segment { handle: Handle(remote.stag.0), length, offset: remote.address }
    }

    /// Copies bytes to the start of the buffer.
    pub(crate) fn write(&self, bytes: &[u8]) {
        self.memory.write(0, bytes);
    }

    /// Returns a copy of the first bytes.
    pub(crate) fn read(&self, length: usize) -> Vec<u8> {
        self.memory.to_vec(0, length)
    }
}

/// The domain of all connections of an interface, which has one connection.
pub(crate) const DOMAIN: Domain = Domain(0);
/// The size of the smallest buffer in bytes.
const BYTES_MIN: usize = 64 << 10;
