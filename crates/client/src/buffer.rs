//! Registered memory that the application reads and writes between transfers.
//!
//! Invariant: memory stays registered until its buffer is dropped and no transfer uses the memory.
//! Memory that a server might still write, because its session ended with a transfer in flight, is
//! never used again.

use std::cell::Cell;
use std::rc::{Rc, Weak};

use dafs_dat::Region;
use dafs_memory::Memory;

use crate::error::{ClientError, Result};

/// The client that memory is registered with, which takes the memory back after its last use.
pub(crate) trait Home {
    /// Takes back unused memory: keeps it in the pool if `is_reusable`, or deregisters it.
    fn let_go(&self, memory: &Memory, region: Region, is_reusable: bool);
}

/// A buffer of registered memory that servers can read and write while a transfer names it. Cheap
/// to clone; clones share the memory.
#[derive(Clone, Debug)]
pub struct Buffer(pub(crate) Rc<RegisteredMemory>);

/// A range of a buffer's bytes that a transfer reads or writes.
#[derive(Clone, Debug)]
pub struct Slice {
    pub(crate) buffer: Rc<RegisteredMemory>,
    pub(crate) offset: usize,
    pub(crate) length: u32,
}

pub(crate) struct RegisteredMemory {
    pub memory: Memory,
    pub region: Region,
    /// The number of bytes that the owner requested; the memory may be larger.
    length: usize,
    home: Weak<dyn Home>,
    /// True if a server may still write this memory, so that it must not be reused.
    is_exposed: Cell<bool>,
    /// True for memory of a device such as a GPU ([`crate::device`]); `memory` is then empty.
    pub is_device: bool,
}

impl std::fmt::Debug for RegisteredMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegisteredMemory").field("region", &self.region).finish_non_exhaustive()
    }
}

impl Drop for RegisteredMemory {
    fn drop(&mut self) {
        // Lent memory is not in any table of regions.
        if self.region.is_lent() {
            return;
        }
        if let Some(home) = self.home.upgrade() {
            home.let_go(&self.memory, self.region, !self.is_exposed.get());
        }
    }
}

impl RegisteredMemory {
    /// Wraps memory of a device such as a GPU, whose bytes only RDMA devices can access.
    pub(crate) fn device<H: Home + 'static>(region: Region, length: usize, home: &Rc<H>) -> Self {
        let (memory, home) = (Memory::from_heap(Box::default()), weak(home));
        let is_exposed = Cell::new(false);
        Self { memory, region, length, home, is_exposed, is_device: true }
    }

    /// Returns the slice of `length` bytes at `offset`.
    pub(crate) fn slice(self: &Rc<Self>, offset: usize, length: usize) -> Result<Slice> {
        match u32::try_from(length) {
            Ok(bytes) if self.contains(offset, length) => {
                Ok(Slice { buffer: Rc::clone(self), offset, length: bytes })
            }
            _ => Err(ClientError::Range { offset, length }),
        }
    }

    fn contains(&self, offset: usize, length: usize) -> bool {
        offset <= self.length && length <= self.length - offset
    }

    /// Returns the number of bytes that the owner requested.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Marks the memory as exposed: a session ended with a transfer of the memory in flight, so
    /// that the memory must not be reused.
    pub(crate) fn note_exposed(&self) {
        self.is_exposed.set(true);
    }

    /// Returns true if this memory is registered with the client `home`.
    #[inline]
    pub(crate) fn belongs_to<H: Home>(&self, home: &Rc<H>) -> bool {
        std::ptr::addr_eq(self.home.as_ptr(), Rc::as_ptr(home))
    }
}

impl Buffer {
    pub(crate) fn new<H: Home + 'static>(
        memory: Memory,
        region: Region,
        length: usize,
        home: &Rc<H>,
    ) -> Self {
        let (is_exposed, home, is_device) = (Cell::new(false), weak(home), false);
        Self(Rc::new(RegisteredMemory { memory, region, length, home, is_exposed, is_device }))
    }

    /// Wraps memory of the application itself, lent for one call to an RDMA device.
    pub(crate) fn lent<H: Home + 'static>(region: Region, home: &Rc<H>) -> Self {
        let nothing = Memory::from_heap(Box::default());
        Self::new(nothing, region, usize::try_from(region.length).unwrap_or(0), home)
    }

    /// Returns the buffer's length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.length
    }

    /// Returns false, because a buffer has at least one byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the slice of `length` bytes that begins at byte `offset`.
    ///
    /// # Errors
    /// [`ClientError::Range`] if the slice does not lie inside the buffer, or exceeds 4 GiB.
    pub fn slice(&self, offset: usize, length: usize) -> Result<Slice> {
        self.0.slice(offset, length)
    }

    /// Copies `bytes` into the buffer at byte `offset`.
    ///
    /// # Panics
    /// If `bytes` does not fit between `offset` and the end of the buffer.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(self.0.contains(offset, bytes.len()), "writing beyond the buffer");
        self.0.memory.write(offset, bytes);
    }

    /// Fills `bytes` from the buffer, starting at byte `offset`. If a transfer is writing that
    /// range at the same time, the result may mix old and new data.
    ///
    /// # Panics
    /// If the range does not lie inside the buffer.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        assert!(self.0.contains(offset, bytes.len()), "reading beyond the buffer");
        self.0.memory.read(offset, bytes);
    }

    /// Returns the underlying memory, for file I/O to and from it without a copy. The memory may be
    /// longer than the buffer.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.0.memory
    }
}

fn weak<H: Home + 'static>(home: &Rc<H>) -> Weak<dyn Home> {
    let home: Weak<H> = Rc::downgrade(home);
    home
}

impl Slice {
    /// Returns the slice's length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Returns true if the slice has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the remainder of the slice after its first `length` bytes.
    pub(crate) fn behind(&self, length: u32) -> Self {
        let length = length.min(self.length);
        Self {
            buffer: self.buffer.clone(),
            offset: self.offset + length as usize,
            length: self.length - length,
        }
    }
}
