//! Waking a sleeper at the other end.
//!
//! Invariant: the acceptor never writes to a descriptor that its peer holds. Whether a
//! write blocks is a flag of the open file, which all holders share: a peer could clear
//! it, fill the counter, and stall whoever writes next. So the acceptor makes both event
//! descriptors. The peer gets the one that it writes to, and of the other only an epoll
//! instance that watches it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;

/// One side's ends.
#[derive(Debug)]
pub struct Wakes {
    /// Written to wake the peer.
    peer: OwnedFd,
    /// Shows that the peer has something.
    own: OwnedFd,
}

impl Wakes {
    /// An acceptor's ends, and what the initiator is given: what it writes to, and what
    /// it watches.
    pub fn new() -> io::Result<(Self, [OwnedFd; 2])> {
        let (peer, own) = (event_descriptor()?, event_descriptor()?);
        let watched = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&watched, &peer, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        let written = rustix::io::fcntl_dupfd_cloexec(&own, 0)?;
        Ok((Self { peer, own }, [written, watched]))
    }

    /// An initiator's ends, as the acceptor gave them.
    pub fn imported([peer, own]: [OwnedFd; 2]) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&peer, true)?;
        Ok(Self { peer, own })
    }

    /// To be watched for edges; needs no read to reset.
    pub fn watched(&self) -> BorrowedFd<'_> {
        self.own.as_fd()
    }

    /// Ends the peer's sleep.
    pub fn wake_peer(&self) {
        // A full counter means that the peer has a wake-up to come already.
        let _ = rustix::io::write(&self.peer, &1u64.to_ne_bytes());
    }
}

fn event_descriptor() -> io::Result<OwnedFd> {
    let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
    Ok(rustix::event::eventfd(0, flags)?)
}
