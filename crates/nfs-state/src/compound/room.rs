//! The space that is left in a reply.

use crate::Nfs4Error;

/// The limits of a reply, and the number of bytes that it has already used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    used: u32,
    max: u32,
    /// The limit for a reply that must be kept.
    kept_max: Option<u32>,
}

impl Room {
    pub(super) fn unlimited() -> Self {
        Self::new(u32::MAX, None)
    }

    pub(super) fn new(max: u32, kept_max: Option<u32>) -> Self {
        Self { used: 0, max, kept_max }
    }

    pub(super) fn check(&self, bytes: u32) -> Result<(), Nfs4Error> {
        let end = self.used.saturating_add(bytes);
        if end > self.max {
            Err(Nfs4Error::RepTooBig)
        } else if self.kept_max.is_some_and(|kept_max| end > kept_max) {
            Err(Nfs4Error::RepTooBigToCache)
        } else {
            Ok(())
        }
    }

    pub(super) fn use_up(&mut self, bytes: u32) {
        self.used = self.used.saturating_add(bytes);
    }

    pub(super) fn used(&self) -> u32 {
        self.used
    }

    pub(super) fn left(&self) -> u32 {
        let max = self.kept_max.unwrap_or(self.max).min(self.max);
        max.saturating_sub(self.used)
    }
}
