//! Wakes the peer of a connection when it sleeps.
//!
//! Invariant: the acceptor never writes to a descriptor that its peer holds. The non-blocking flag
//! belongs to the open file, which all holders share, so a peer could clear the flag, fill the
//! counter, and block the next writer. Therefore the acceptor creates both event descriptors. It
//! gives the peer the descriptor that the peer writes to, and an epoll instance that watches the
//! other one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;

/// The wakeup descriptors that one side of a connection holds.
#[derive(Debug)]
pub(super) struct WakeEvents {
    /// The descriptor that is written to wake the peer.
    peer: OwnedFd,
    /// The descriptor that becomes readable when the peer wakes this side.
    own: OwnedFd,
}

impl WakeEvents {
    /// Creates the acceptor's side and the initiator's two descriptors: the one that the initiator
    /// writes to, and the one that it watches.
    pub(super) fn new() -> io::Result<(Self, [OwnedFd; 2])> {
        let (peer, own) = (event_descriptor()?, event_descriptor()?);
        let watched = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&watched, &peer, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        let written = rustix::io::fcntl_dupfd_cloexec(&own, 0)?;
        Ok((Self { peer, own }, [written, watched]))
    }

    /// Creates the initiator's side from the acceptor's descriptors.
    pub(super) fn imported([peer, own]: [OwnedFd; 2]) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&peer, true)?;
        Ok(Self { peer, own })
    }

    /// Returns the descriptor to watch edge-triggered. No read is needed to reset it.
    pub(super) fn watched(&self) -> BorrowedFd<'_> {
        self.own.as_fd()
    }

    /// Wakes the peer if it sleeps.
    pub(super) fn wake_peer(&self) {
        // A full counter means that the peer already has a pending wake-up.
        let _ = rustix::io::write(&self.peer, &1u64.to_ne_bytes());
    }
}

fn event_descriptor() -> io::Result<OwnedFd> {
    let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
    Ok(rustix::event::eventfd(0, flags)?)
}
