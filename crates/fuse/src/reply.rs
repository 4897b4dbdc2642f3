//! Sends replies to the kernel.
//!
//! Invariant: every request that requires a reply gets exactly one. It is not a failure if the
//! kernel has dropped the request meanwhile (ENOENT).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use dafs_client::Buffer;
use dafs_posix::stat::Stat;
use rustix::io::Errno;

use crate::abi::{Message, OUT_HEADER_BYTES};

/// The kernel's side of a mount: `/dev/fuse`.
#[derive(Debug)]
pub(crate) struct Device(OwnedFd);

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Device {
    /// Wraps the device of a mount and makes its reads non-blocking.
    pub(crate) fn new(fd: OwnedFd) -> std::io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self(fd))
    }

    /// Replies with an error number.
    pub(crate) fn fail(&self, unique: u64, errno: i32) {
        self.put(unique, -errno, &[]);
    }

    /// Replies with success and no body.
    pub(crate) fn done(&self, unique: u64) {
        self.put(unique, 0, &[]);
    }

    /// Replies with a body. Returns false if the kernel has dropped the request.
    pub(crate) fn body(&self, unique: u64, body: &[u8]) -> bool {
        self.put(unique, 0, body)
    }

    /// Replies with bytes of a buffer that begin at `offset`. The header of the reply is written
    /// into the buffer before these bytes.
    pub(crate) fn data(&self, unique: u64, buffer: &Buffer, offset: usize, length: usize) {
        let header = header(unique, 0, length);
        let start = offset - OUT_HEADER_BYTES;
        buffer.write(start, &header);
        let sent = buffer.memory().send(start, OUT_HEADER_BYTES + length, self.as_fd());
        self.note(unique, sent);
    }

    fn put(&self, unique: u64, error: i32, body: &[u8]) -> bool {
        let header = header(unique, error, body.len());
        let sent = if body.is_empty() {
            rustix::io::write(self, &header)
        } else {
            let parts = [std::io::IoSlice::new(&header), std::io::IoSlice::new(body)];
            rustix::io::writev(self, &parts)
        };
        self.note(unique, sent)
    }

    fn note(&self, unique: u64, sent: Result<usize, Errno>) -> bool {
        match sent {
            Ok(_) => true,
            // The request was interrupted, or the mount has ended.
            Err(Errno::NOENT | Errno::NODEV) => false,
            Err(error) => {
                tracing::warn!(unique, %error, "the kernel refused a reply");
                false
            }
        }
    }
}

fn header(unique: u64, error: i32, length: usize) -> [u8; OUT_HEADER_BYTES] {
    let mut header = [0; OUT_HEADER_BYTES];
    let whole = u32::try_from(OUT_HEADER_BYTES + length).unwrap_or(u32::MAX);
    header[..4].copy_from_slice(&whole.to_ne_bytes());
    header[4..8].copy_from_slice(&error.to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

/// The times for which the kernel may cache the names and attributes of a reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetimes {
    /// The lifetime of names.
    pub entry: Duration,
    /// The lifetime of attributes.
    pub attributes: Duration,
}

impl Message {
    /// Appends a `struct fuse_attr`.
    pub(crate) fn attributes(&mut self, stat: &Stat, device: u32) -> &mut Self {
        self.u64(stat.ino).u64(stat.size).u64(stat.blocks);
        for time in [stat.accessed, stat.modified, stat.changed] {
            self.u64(time.seconds.cast_unsigned());
        }
        for time in [stat.accessed, stat.modified, stat.changed] {
            self.u32(time.nanoseconds);
        }
        self.u32(stat.mode).u32(stat.links).u32(stat.uid).u32(stat.gid);
        self.u32(device).u32(stat.block_bytes).u32(0)
    }

    /// Appends a `struct fuse_attr_out`.
    pub(crate) fn attributes_out(
        &mut self,
        stat: &Stat,
        device: u32,
        life: Lifetimes,
    ) -> &mut Self {
        let life = life.attributes;
        self.u64(life.as_secs()).u32(life.subsec_nanos()).u32(0).attributes(stat, device)
    }

    /// Appends a `struct fuse_entry_out`.
    pub(crate) fn entry(
        &mut self,
        node: u64,
        stat: &Stat,
        device: u32,
        life: Lifetimes,
    ) -> &mut Self {
        self.u64(node).u64(0).u64(life.entry.as_secs()).u64(life.attributes.as_secs());
        self.u32(life.entry.subsec_nanos()).u32(life.attributes.subsec_nanos());
        self.attributes(stat, device)
    }

    /// Appends an empty `struct fuse_entry_out`.
    pub(crate) fn no_entry(&mut self) -> &mut Self {
        self.0.resize(self.0.len() + ENTRY_BYTES, 0);
        self
    }

    /// Appends a `struct fuse_open_out`.
    pub(crate) fn opened(&mut self, handle: u64, flags: u32) -> &mut Self {
        self.u64(handle).u32(flags).u32(0)
    }

    /// Appends a `struct fuse_dirent`. `next` is the offset of the following entry.
    pub(crate) fn directory_entry(
        &mut self,
        ino: u64,
        next: u64,
        mode: u32,
        name: &[u8],
    ) -> &mut Self {
        let length = u32::try_from(name.len()).unwrap_or(u32::MAX);
        self.u64(ino).u64(next).u32(length).u32((mode >> 12) & 0o17).bytes(name).pad()
    }
}

/// The size of a `struct fuse_entry_out` in bytes.
pub(crate) const ENTRY_BYTES: usize = 128;
/// Returns the size of a `struct fuse_dirent` with this name in bytes.
pub(crate) fn directory_entry_bytes(name: &[u8]) -> usize {
    (24 + name.len()).next_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use dafs_client::Timestamp;

    use super::*;

    #[test]
    fn structures_have_the_sizes_the_kernel_wants() {
        let time = Timestamp { seconds: -1, nanoseconds: 5 };
        let stat = Stat {
            ino: 1,
            mode: 0o100_644,
            links: 1,
            uid: 2,
            gid: 3,
            size: 4,
            blocks: 8,
            block_bytes: 4096,
            accessed: time,
            modified: time,
            changed: time,
        };
        let life = Lifetimes { entry: Duration::ZERO, attributes: Duration::from_secs(1) };
        let mut message = Message::default();
        message.attributes(&stat, 0);
        assert_eq!(message.0.len(), 88);
        let mut message = Message::default();
        message.attributes_out(&stat, 0, life);
        assert_eq!(message.0.len(), 104);
        let mut message = Message::default();
        message.entry(1, &stat, 0, life);
        assert_eq!(message.0.len(), ENTRY_BYTES);
        let mut message = Message::default();
        message.directory_entry(1, 2, stat.mode, b"name");
        assert_eq!(message.0.len(), directory_entry_bytes(b"name"));
    }
}
