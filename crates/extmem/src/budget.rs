//! A limit of memory, and what of it is left.
//!
//! Invariant: the limit is that of the whole process, as the kernel counts what is resident.

use crate::error::{Error, Result};

/// How much memory may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    bytes: usize,
}

impl Budget {
    /// So many bytes for blocks and records, whatever else there is.
    #[must_use]
    pub fn of(bytes: usize) -> Self {
        Self { bytes }
    }

    /// What is left of a limit for the process: less what is resident now, and a margin
    /// ([`MARGIN_BYTES`]) for code that was not run yet and small allocations.
    ///
    /// # Errors
    /// [`Error::Memory`] if less than a mebibyte is left.
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

    /// Bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Bytes of this process that are resident now; 0 if the system does not tell.
#[must_use]
pub fn resident_bytes() -> usize {
    status("VmRSS:")
}

/// The most bytes of this process that were resident at once; 0 if the system does not tell.
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

/// What is left aside for code that was not run yet, and what is too small to be counted.
pub const MARGIN_BYTES: usize = 6 << 20;
const BYTES_MIN: usize = 1 << 20;
