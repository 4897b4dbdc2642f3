//! The physical page numbers of memory, as reported by the kernel.
//!
//! Invariant: page numbers are returned only if the kernel reports them, which requires a
//! privilege. Nothing is concluded from missing numbers.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::PAGE_BYTES;

/// The page numbers of a range.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PageNumbers(Box<[u64]>);

impl PageNumbers {
    /// Returns the current page numbers, or `None` if the kernel does not report them or some pages
    /// are not in physical memory.
    pub(crate) fn of(address: usize, length: usize) -> Option<Self> {
        let first = address / PAGE_BYTES;
        let count = (address + length).div_ceil(PAGE_BYTES) - first;
        let mut bytes = vec![0; count * ENTRY_BYTES];
        let file = File::open("/proc/self/pagemap").ok()?;
        file.read_exact_at(&mut bytes, (first * ENTRY_BYTES) as u64).ok()?;
        let entries = bytes.chunks_exact(ENTRY_BYTES).map(|entry| {
            let entry = u64::from_ne_bytes(entry.try_into().ok()?);
            let number = entry & NUMBER;
            (entry & PRESENT != 0 && number != 0).then_some(number)
        });
        entries.collect::<Option<_>>().map(Self)
    }
}

/// The size in bytes of the entry for one page in `/proc/self/pagemap`.
const ENTRY_BYTES: usize = 8;
const PRESENT: u64 = 1 << 63;
const NUMBER: u64 = (1 << 55) - 1;
