//! A reserved descriptor for the time when the process has no other descriptor left.
//!
//! A listener without free descriptors cannot accept, and a waiting peer keeps its socket readable.
//! The listener's owner would loop for ever, and the peer would wait as long. Instead the owner
//! closes the reserved descriptor for a moment, accepts the peer, and closes the connection
//! immediately.
//!
//! Invariant: the spare descriptor is open whenever the system can provide one.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

#[derive(Debug)]
pub(crate) struct Spare {
    descriptor: Option<OwnedFd>,
    /// The number of peers that were turned away.
    turned_away: u64,
}

impl Spare {
    pub(crate) fn new() -> Self {
        Self { descriptor: placeholder(), turned_away: 0 }
    }

    pub(crate) fn turned_away(&self) -> u64 {
        self.turned_away
    }

    /// Returns the result of `accept`; `None` if no peer waits. If the process has no free
    /// descriptor, uses the spare one to accept the peer and then calls `discard`, which closes the
    /// connection.
    pub(crate) fn accept<T>(
        &mut self,
        accept: impl Fn() -> Result<T, Errno>,
        discard: impl Fn(T),
    ) -> Option<T> {
        if self.descriptor.is_none() {
            self.descriptor = placeholder();
        }
        match accept() {
            Ok(accepted) => Some(accepted),
            Err(Errno::MFILE | Errno::NFILE) => {
                self.turned_away += 1;
                self.descriptor = None;
                if let Ok(accepted) = accept() {
                    discard(accepted);
                }
                self.descriptor = placeholder();
                None
            }
            Err(_) => None,
        }
    }
}

fn placeholder() -> Option<OwnedFd> {
    rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_peer_without_a_descriptor_is_accepted_once_and_let_go() {
        let (mut spare, calls) = (Spare::new(), Cell::new(0));
        let discarded = Cell::new(0);
        let discard = |number: i32| discarded.set(discarded.get() + number);
        let accepted = spare.accept(
            || {
                calls.set(calls.get() + 1);
                if calls.get() == 1 { Err(Errno::MFILE) } else { Ok(5) }
            },
            discard,
        );
        assert_eq!((accepted, calls.get(), discarded.get()), (None, 2, 5));
        assert!(spare.descriptor.is_some() && spare.turned_away() == 1);
        assert_eq!(spare.accept(|| Ok(7), discard), Some(7));
        assert_eq!(spare.accept(|| Err::<i32, _>(Errno::AGAIN), discard), None);
        assert_eq!(discarded.get(), 5);
    }
}
