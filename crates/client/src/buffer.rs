//! Registered memory that the application reads and writes between transfers.
//!
//! Invariant: a buffer's registration lives as long as the buffer or a transfer that
//! uses it, whichever is longer.

use std::rc::{Rc, Weak};

use dafs_dat::Region;
use dafs_memory::Memory;

use crate::core::Shared;
use crate::error::{ClientError, Result};

/// Memory that servers may read and write while a transfer names it.
#[derive(Clone, Debug)]
pub struct Buffer(pub(crate) Rc<Registered>);

/// Part of a buffer.
#[derive(Clone, Debug)]
pub struct Slice {
    pub(crate) buffer: Rc<Registered>,
    pub(crate) offset: usize,
    pub(crate) length: u32,
}

pub(crate) struct Registered {
    pub memory: Memory,
    pub region: Region,
    core: Weak<Shared>,
}

impl std::fmt::Debug for Registered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registered").field("region", &self.region).finish_non_exhaustive()
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade() {
            core.let_go(self.region.key);
        }
    }
}

impl Buffer {
    pub(crate) fn new(memory: Memory, region: Region, core: &Rc<Shared>) -> Self {
        Self(Rc::new(Registered { memory, region, core: Rc::downgrade(core) }))
    }

    /// Octets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.memory.length()
    }

    /// Whether it has no octets; never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The part of `length` octets at `offset`.
    ///
    /// # Errors
    /// [`ClientError::Range`].
    pub fn slice(&self, offset: usize, length: usize) -> Result<Slice> {
        let fits = self.0.memory.contains(offset, length);
        match u32::try_from(length) {
            Ok(octets) if fits => Ok(Slice { buffer: self.0.clone(), offset, length: octets }),
            _ => Err(ClientError::Range { offset, length }),
        }
    }

    /// Copies `bytes` into the buffer.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.0.memory.write(offset, bytes);
    }

    /// Copies out of the buffer. What a transfer under way writes may be torn.
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.0.memory.read(offset, bytes);
    }

    /// The memory itself, for file I/O into and out of it without a copy between.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.0.memory
    }
}
