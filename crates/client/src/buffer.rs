//! RegisteredMemory memory that the application reads and writes between transfers.
//!
//! Invariant: a buffer's registration lives as long as the buffer or a transfer that
//! uses it, whichever is longer. Memory that a server might still write, because its
//! session ended with a transfer under way, is never used again.

use std::cell::Cell;
use std::rc::{Rc, Weak};

use dafs_dat::Region;
use dafs_memory::Memory;

use crate::error::{ClientError, Result};

/// Where registered memory goes when nobody uses it any more: its client.
pub(crate) trait Home {
    /// Memory is used no more: it is kept for the next who needs some, or its registration taken
    /// back.
    fn let_go(&self, memory: &Memory, region: Region, is_reusable: bool);
}

/// Memory that servers may read and write while a transfer names it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Buffer(pub(crate) Rc<RegisteredMemory>);

/// Part of a buffer.
#[derive(Clone, Debug)]
pub struct Slice {
    pub(crate) buffer: Rc<RegisteredMemory>,
    pub(crate) offset: usize,
    pub(crate) length: u32,
}

pub(crate) struct RegisteredMemory {
    pub memory: Memory,
    pub region: Region,
    /// Bytes the owner asked for; the memory may be larger.
    length: usize,
    home: Weak<dyn Home>,
    /// A server may still write it: not to be used for anything else.
    is_exposed: Cell<bool>,
    /// Its bytes are a device's, and `memory` is nothing ([`crate::device`]).
    pub is_device: bool,
}

impl std::fmt::Debug for RegisteredMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegisteredMemory").field("region", &self.region).finish_non_exhaustive()
    }
}

impl Drop for RegisteredMemory {
    fn drop(&mut self) {
        // What is lent is in no table.
        if self.region.is_lent() {
            return;
        }
        if let Some(home) = self.home.upgrade() {
            home.let_go(&self.memory, self.region, !self.is_exposed.get());
        }
    }
}

impl RegisteredMemory {
    /// Memory of a device.
    pub fn device<H: Home + 'static>(region: Region, length: usize, home: &Rc<H>) -> Self {
        let (memory, home) = (Memory::from_heap(Box::default()), weak(home));
        let is_exposed = Cell::new(false);
        Self { memory, region, length, home, is_exposed, is_device: true }
    }

    /// The part of `length` bytes at `offset`.
    pub fn slice(self: &Rc<Self>, offset: usize, length: usize) -> Result<Slice> {
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

    /// Bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// A session ended with a transfer of this memory under way.
    pub fn note_exposed(&self) {
        self.is_exposed.set(true);
    }

    /// Whether it is registered with this client.
    #[inline]
    pub fn belongs_to<H: Home>(&self, home: &Rc<H>) -> bool {
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

    /// Memory of the application's own that only a device gets at.
    pub(crate) fn lent<H: Home + 'static>(region: Region, home: &Rc<H>) -> Self {
        let nothing = Memory::from_heap(Box::default());
        Self::new(nothing, region, usize::try_from(region.length).unwrap_or(0), home)
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.length
    }

    /// Whether it has no bytes; never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The part of `length` bytes at `offset`.
    ///
    /// # Errors
    /// [`ClientError::Range`].
    pub fn slice(&self, offset: usize, length: usize) -> Result<Slice> {
        self.0.slice(offset, length)
    }

    /// Copies `bytes` into the buffer.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(self.0.contains(offset, bytes.len()), "writing beyond the buffer");
        self.0.memory.write(offset, bytes);
    }

    /// Copies out of the buffer. What a transfer under way writes may be torn.
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        assert!(self.0.contains(offset, bytes.len()), "reading beyond the buffer");
        self.0.memory.read(offset, bytes);
    }

    /// The memory itself, for file I/O into and out of it without a copy between. It may
    /// be larger than the buffer.
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
    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// What is left of it behind the first `length` bytes.
    pub(crate) fn behind(&self, length: u32) -> Self {
        let length = length.min(self.length);
        Self {
            buffer: self.buffer.clone(),
            offset: self.offset + length as usize,
            length: self.length - length,
        }
    }
}
