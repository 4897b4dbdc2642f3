//! Registered memory for the data of calls, and for replies that are written to clients' memory.
//!
//! Invariants:
//! - A buffer belongs to one call until it is given back. Free buffers are kept, because some
//!   devices need much time to register memory.
//! - All buffers together have a limit. A part of it is reserved for replies, so that clients whose
//!   calls occupy buffers do not delay the replies to others.
//! - The calls of one host have a limit of their own, and so do the replies to one host, so that no
//!   host occupies what others need. A host may always have one call.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;

use dafs_dat::{LocalSegment, Region, ServingInterface};
use dafs_memory::{Memory, Pages};

use super::DOMAIN;

/// The buffers of an interface.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    free: Vec<Buffer>,
    /// The size of all buffers, in bytes.
    total: usize,
    /// The size of the free buffers, in bytes.
    idle: usize,
    /// The size of the buffers of calls, in bytes.
    of_calls: usize,
    /// The sizes of the buffers in use, by their users, in bytes.
    of_users: HashMap<User, usize>,
}

/// The user of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum User {
    /// The calls of a host.
    CallsOf(IpAddr),
    /// The replies to a host.
    RepliesTo(IpAddr),
}

/// Memory that is registered for this side.
#[derive(Debug)]
pub(super) struct Buffer {
    memory: Memory,
    region: Region,
    /// The user of the buffer. `None` while the buffer is free.
    user: Option<User>,
}

/// The reason why there is no buffer.
#[derive(Debug)]
pub(super) enum NoBuffer {
    /// There is none now. There will be one when others are given back.
    Busy,
    /// The system has no memory, or the interface no room for another region.
    Failed(io::Error),
}

impl Buffers {
    /// Returns a buffer of at least this number of bytes.
    pub(super) fn take(
        &mut self,
        interface: &mut ServingInterface,
        (user, bytes): (User, usize),
    ) -> Result<Buffer, NoBuffer> {
        let size = bytes.max(1).next_multiple_of(STEP_BYTES);
        let of_user = self.of_users.get(&user).copied().unwrap_or(0);
        let in_use = self.total - self.idle;
        let is_full = match user {
            User::RepliesTo(_) => of_user > 0 && of_user + size > HOST_REPLY_BYTES_MAX,
            // The first call of a host has room even if other hosts occupy the room for calls.
            User::CallsOf(_) if of_user == 0 => in_use + size > TOTAL_BYTES_MAX - REPLY_BYTES_MIN,
            User::CallsOf(_) => {
                self.of_calls + size > CALLS_BYTES_MAX || of_user + size > HOST_BYTES_MAX
            }
        };
        if is_full || in_use + size > TOTAL_BYTES_MAX {
            return Err(NoBuffer::Busy);
        }
        let fits = |buffer: &Buffer| (size..=2 * size).contains(&buffer.memory.length());
        let mut buffer = match self.free.iter().position(fits) {
            Some(found) => {
                let buffer = self.free.swap_remove(found);
                self.idle -= buffer.memory.length();
                buffer
            }
            None => self.allocate(interface, size).map_err(NoBuffer::Failed)?,
        };
        buffer.user = Some(user);
        let size = buffer.memory.length();
        if matches!(user, User::CallsOf(_)) {
            self.of_calls += size;
        }
        *self.of_users.entry(user).or_default() += size;
        Ok(buffer)
    }

    fn allocate(&mut self, interface: &mut ServingInterface, size: usize) -> io::Result<Buffer> {
        while self.total + size > TOTAL_BYTES_MAX {
            let Some(buffer) = self.free.pop() else { break };
            self.idle -= buffer.memory.length();
            self.total -= buffer.memory.length();
            interface.deregister(buffer.region.key);
        }
        let memory = Memory::anonymous(size, Pages::Small)?;
        let region = interface.register_local(&memory, DOMAIN);
        let region = region.ok_or_else(|| io::Error::other("the table of regions is full"))?;
        self.total += memory.length();
        Ok(Buffer { memory, region, user: None })
    }

    /// Takes back a buffer that is no longer in use.
    pub(super) fn give_back(&mut self, interface: &mut ServingInterface, mut buffer: Buffer) {
        let size = buffer.memory.length();
        if let Some(user) = buffer.user.take() {
            if matches!(user, User::CallsOf(_)) {
                self.of_calls -= size;
            }
            if let Some(of_user) = self.of_users.get_mut(&user) {
                *of_user -= size;
                if *of_user == 0 {
                    self.of_users.remove(&user);
                }
            }
        }
        if self.idle + size > IDLE_BYTES_MAX {
            self.total -= size;
            return interface.deregister(buffer.region.key);
        }
        self.idle += size;
        self.free.push(buffer);
    }
}

impl Buffer {
    /// Returns a range as a segment for work requests.
    pub(super) fn segment(&self, offset: usize, length: u32) -> LocalSegment {
        self.region.local(offset as u64, length)
    }

    /// Appends a copy of a range to `bytes`.
    pub(super) fn append_to(&self, bytes: &mut Vec<u8>, offset: usize, length: usize) {
        let start = bytes.len();
        bytes.resize(start + length, 0);
        self.memory.read(offset, &mut bytes[start..]);
    }

    /// Copies bytes to the start of the buffer.
    pub(super) fn write(&self, bytes: &[u8]) {
        self.memory.write(0, bytes);
    }
}

/// The sizes of buffers are multiples of this number of bytes.
const STEP_BYTES: usize = 64 << 10;
/// The maximum number of bytes of all buffers that are in use.
const TOTAL_BYTES_MAX: usize = 256 << 20;
/// The maximum number of bytes of the buffers of calls.
const CALLS_BYTES_MAX: usize = TOTAL_BYTES_MAX / 4 * 3;
/// The maximum number of bytes of the buffers of the calls of one host.
const HOST_BYTES_MAX: usize = CALLS_BYTES_MAX / 3;
/// The number of bytes that only replies can use.
const REPLY_BYTES_MIN: usize = (TOTAL_BYTES_MAX - CALLS_BYTES_MAX) / 2;
/// The maximum number of bytes of the buffers of the replies to one host.
const HOST_REPLY_BYTES_MAX: usize = REPLY_BYTES_MIN / 2;
/// The maximum number of bytes of all free buffers.
const IDLE_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use dafs_dat::InterfaceConfig;

    use super::*;

    const MIB: usize = 1 << 20;

    fn host(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    /// Takes buffers of 1 MiB until there are no more.
    fn take_all(
        interface: &mut ServingInterface,
        buffers: &mut Buffers,
        user: User,
    ) -> Vec<Buffer> {
        let mut taken = Vec::new();
        loop {
            match buffers.take(interface, (user, MIB)) {
                Ok(buffer) => taken.push(buffer),
                Err(NoBuffer::Busy) => return taken,
                Err(NoBuffer::Failed(error)) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn no_host_occupies_what_others_need() {
        let mut interface = ServingInterface::serving(InterfaceConfig::default()).unwrap();
        let mut buffers = Buffers::default();
        let mut taken = Vec::new();
        for number in 1..=3 {
            let of_host = take_all(&mut interface, &mut buffers, User::CallsOf(host(number)));
            assert_eq!(of_host.len() * MIB, HOST_BYTES_MAX);
            taken.extend(of_host);
        }
        // The room for calls is used up, but the first call of a host has room.
        let first = take_all(&mut interface, &mut buffers, User::CallsOf(host(4)));
        assert_eq!(first.len(), 1);
        taken.extend(first);
        for number in 1..=2 {
            let replies = take_all(&mut interface, &mut buffers, User::RepliesTo(host(number)));
            assert_eq!(replies.len() * MIB, HOST_REPLY_BYTES_MAX);
            taken.extend(replies);
        }
        let other = buffers.take(&mut interface, (User::RepliesTo(host(9)), MIB));
        taken.push(other.unwrap());
        for buffer in taken {
            buffers.give_back(&mut interface, buffer);
        }
        assert_eq!((buffers.of_calls, buffers.of_users.len()), (0, 0));
        assert!(buffers.total == buffers.idle && buffers.idle <= IDLE_BYTES_MAX);
    }
}
