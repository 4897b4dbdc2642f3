//! Share reservations and shared keys of one file (draft 4.4.2).
//!
//! Invariant: each count is the number of opens whose reservation has the corresponding bit.

use dafs_ops::Fault;
use dafs_types::ShareKey;

/// The bit that stands for reading in access and deny modes.
pub(super) const READ: u8 = 1;
/// The bit that stands for writing in access and deny modes.
pub(super) const WRITE: u8 = 2;

/// The share reservation of one open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reservation {
    pub access: u8,
    pub deny: u8,
    pub deny_remove: bool,
    pub key: Option<ShareKey>,
}

impl Reservation {
    /// Returns the union of two reservations of one owner.
    pub(super) fn join(&self, more: &Self) -> Self {
        Self {
            access: self.access | more.access,
            deny: self.deny | more.deny,
            deny_remove: self.deny_remove || more.deny_remove,
            key: self.key.or(more.key),
        }
    }
}

/// The sums over the reservations of all opens of a file.
#[derive(Debug, Default)]
pub(super) struct FileShares {
    pub opens: u32,
    pub unlinked: bool,
    readers: u32,
    writers: u32,
    deny_read: u32,
    deny_write: u32,
    deny_remove: u32,
    keyed: u32,
    key: Option<ShareKey>,
}

impl FileShares {
    /// Checks whether a reservation is compatible with the opens counted here. The first shared key
    /// is in force until the last open with that key ends, and opens without a key bypass the
    /// check. These rules follow the draft's prose, because the comparison in its pseudo-code is
    /// inverted.
    pub(super) fn check(&self, wanted: &Reservation) -> Result<(), Fault> {
        let held = bits(self.readers, self.writers);
        let denied = bits(self.deny_read, self.deny_write);
        if wanted.access & denied != 0 || wanted.deny & held != 0 {
            return Err(Fault::ShareDenied);
        }
        match (wanted.key, self.key) {
            (Some(shown), Some(in_force)) if shown != in_force => Err(Fault::KeyMismatch),
            _ => Ok(()),
        }
    }

    /// Returns true if an open denies this access.
    pub(super) fn denies(&self, access: u8) -> bool {
        bits(self.deny_read, self.deny_write) & access != 0
    }

    /// Returns true if an open forbids the removal of the file.
    pub(super) fn denies_remove(&self) -> bool {
        self.deny_remove != 0
    }

    /// Adds an open to the counts.
    pub(super) fn add(&mut self, held: &Reservation) {
        self.opens += 1;
        for (count, amount) in self.counts(held) {
            *count += amount;
        }
        self.key = self.key.or(held.key);
    }

    /// Removes an open from the counts.
    pub(super) fn remove(&mut self, held: &Reservation) {
        self.opens -= 1;
        for (count, amount) in self.counts(held) {
            *count -= amount;
        }
        if self.keyed == 0 {
            self.key = None;
        }
    }

    fn counts(&mut self, held: &Reservation) -> [(&mut u32, u32); 6] {
        [
            (&mut self.readers, u32::from(held.access & READ != 0)),
            (&mut self.writers, u32::from(held.access & WRITE != 0)),
            (&mut self.deny_read, u32::from(held.deny & READ != 0)),
            (&mut self.deny_write, u32::from(held.deny & WRITE != 0)),
            (&mut self.deny_remove, u32::from(held.deny_remove)),
            (&mut self.keyed, u32::from(held.key.is_some())),
        ]
    }
}

fn bits(read: u32, write: u32) -> u8 {
    (if read != 0 { READ } else { 0 }) | (if write != 0 { WRITE } else { 0 })
}
