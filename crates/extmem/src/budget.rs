//! A limit of memory, and the number of bytes that are still available.
//!
//! Invariant: the limit applies to the resident memory of the whole process, as the kernel counts
//! it.

use crate::error::{Error, Result};

/// The amount of memory that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    bytes: usize,
}

impl Budget {
    /// Allows `bytes` bytes for blocks and records, whatever the process uses otherwise.
    #[must_use]
    pub fn of(bytes: usize) -> Self {
        Self { bytes }
    }

    /// Returns what is left of a limit for the process, after the memory that is resident now and a
    /// margin ([`MARGIN_BYTES`]) for code that has not run yet and small allocations.
    ///
    /// # Errors
    /// [`Error::Memory`] if less than 1 MiB is left.
    pub fn of_process(limit: usize) -> Result<Self> {
        let used = resident_bytes() + MARGIN_BYTES;
        match limit.checked_sub(used).filter(|left| *left >= BYTES_MIN) {
            Some(bytes) => Ok(Self { bytes }),
            None => Err(Error::Memory {
                what: "the program itself",
                needed: (used + BYTES_MIN) as u64,
                limit: limit as u64,
            }),
        }
    }

    /// Returns the allowed number of bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Returns the number of resident bytes of this process; 0 if the system does not report it.
#[must_use]
pub fn resident_bytes() -> usize {
    status("VmRSS:")
}

/// Returns the peak number of resident bytes of this process; 0 if the system does not report it.
#[must_use]
pub fn peak_resident_bytes() -> usize {
    status("VmHWM:")
}

fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok());
    number.unwrap_or(0) * 1024
}

/// The bytes reserved for code that has not run yet and for small allocations.
pub const MARGIN_BYTES: usize = 6 << 20;
const BYTES_MIN: usize = 1 << 20;
