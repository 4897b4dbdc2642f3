//! What a connection that carries records consists of: a socket, or a stream of a simulated
//! network.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::event::epoll;
use rustix::io::Errno;

use super::secure;
use crate::sim::{Stream, StreamEnd};

/// A socket of the operating system, or a simulated stream.
pub(super) enum Socket {
    System(OwnedFd),
    Simulated(Stream),
}

impl Socket {
    /// Returns the socket of the operating system; `None` for a simulated stream.
    pub(super) fn system(&self) -> Option<&OwnedFd> {
        match self {
            Self::System(socket) => Some(socket),
            Self::Simulated(_) => None,
        }
    }

    /// Reads bytes that have arrived. Returns their number; `None` if there are none.
    pub(super) fn read(&mut self, room: &mut [u8]) -> Result<Option<usize>, &'static str> {
        match self {
            Self::System(socket) => received(rustix::io::read(&*socket, room)),
            Self::Simulated(stream) => read_stream(stream, room),
        }
    }

    /// Reads bytes into memory that is not initialized. The returned number of bytes, from the
    /// first on, are initialized then.
    pub(super) fn read_uninitialized(
        &mut self,
        room: &mut [MaybeUninit<u8>],
    ) -> Result<Option<usize>, &'static str> {
        match self {
            Self::System(socket) => {
                received(rustix::io::read(&*socket, room).map(|(read, _)| read.len()))
            }
            Self::Simulated(stream) => {
                let mut bytes = vec![0; room.len()];
                let count = read_stream(stream, &mut bytes)?;
                for (byte, read) in room.iter_mut().zip(&bytes[..count.unwrap_or(0)]) {
                    byte.write(*read);
                }
                Ok(count)
            }
        }
    }

    /// Makes the epoll instance report other events of the socket. Returns false if the kernel has
    /// no memory for that.
    pub(super) fn watch(&self, epoll: &OwnedFd, token: u64, wanted: epoll::EventFlags) -> bool {
        let Some(socket) = self.system() else { return true };
        epoll::modify(epoll, socket, epoll::EventData::new_u64(token), wanted).is_ok()
    }

    /// Makes the epoll instance report nothing any more.
    pub(super) fn stop_watching(&self, epoll: &OwnedFd) {
        if let Some(socket) = self.system() {
            // Epoll would report the end again and again. If this call fails, the reports cost time
            // until the connection is closed, but nothing else.
            let _ = epoll::delete(epoll, socket);
        }
    }
}

fn read_stream(stream: &mut Stream, room: &mut [u8]) -> Result<Option<usize>, &'static str> {
    match stream.read(room) {
        Ok(0) => Ok(None),
        Ok(count) => Ok(Some(count)),
        Err(StreamEnd::Closed) => Err(secure::CLOSED),
        Err(StreamEnd::Broken) => Err(BROKEN),
    }
}

/// Returns the number of bytes that a read returned; `None` if no bytes have arrived.
fn received(read: rustix::io::Result<usize>) -> Result<Option<usize>, &'static str> {
    match read {
        Ok(0) => Err(secure::CLOSED),
        Ok(count) => Ok(Some(count)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(_) => Err(BROKEN),
    }
}

/// The reason for the end of a connection that broke.
pub(super) const BROKEN: &str = "the connection broke";
