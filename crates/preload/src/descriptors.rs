//! Duplicates, closes, queries and configures descriptors.
//!
//! Invariants:
//! - The kernel assigns descriptor numbers and handles close-on-exec. The description of a DAFS
//!   file is found by the descriptor's number.
//! - The program never sees descriptors that the client uses.

use std::os::fd::RawFd;
use std::rc::Rc;

use dafs_client::ClientError;

use crate::errors::{self, Failure, Outcome, fail};
use crate::page::Kind;
use crate::state::{DESCRIPTORS_MAX, Description, State};
use crate::unstable::Key;
use crate::user_memory;
use crate::waiting::wait;

impl State {
    /// Closes a descriptor of the program.
    pub(crate) fn close(&mut self, number: RawFd) -> Outcome<i32> {
        let closed = self.release_description(number);
        let answer = real!(close(number => RawFd) -> i32);
        if answer == -1 {
            return fail(errors::get());
        }
        closed.map(|()| 0)
    }

    /// Releases everything that belongs to a closed descriptor. The number itself stays open.
    pub(crate) fn release_description(&mut self, number: RawFd) -> Outcome<()> {
        let Some(description) = self.take(number) else { return Ok(()) };
        // Closing any descriptor of a file releases the process's locks on it (POSIX).
        let of = description.key();
        if let Some(locks) = self.owned.remove(&of) {
            self.unstable.release(of);
            drop(locks);
        }
        let is_writer = description.identity.access != libc::O_RDONLY;
        let Some(description) = Rc::into_inner(description) else {
            // Report the error without clearing it, because the last close must report it too.
            return if is_writer { self.unstable.loss(of) } else { Ok(()) };
        };
        let is_last = is_writer && !self.is_open(of);
        if is_last { self.close_last(&description) } else { self.end(&description) }
    }

    /// True if this process has the file open.
    fn is_open(&self, key: Key) -> bool {
        let mut all = self.descriptions().chain(self.mappings.descriptions());
        all.any(|other| other.key() == key)
    }

    /// Closes all opens on the server that belong to a description.
    pub(crate) fn end(&mut self, description: &Description) -> Outcome<()> {
        drop(description.locks.take());
        let (identity, times) = (&description.identity, description.times.take());
        let closed = match description.file.take().and_then(Rc::into_inner) {
            Some(file) => {
                let client = file.session().client();
                match wait(&client, file.close_async()) {
                    // Data that a server restart has lost is written again from the held copy.
                    Err(ClientError::DataLost { .. }) => {
                        self.unstable.note_needs_rewrite(description.key());
                        Ok(())
                    }
                    closed => closed.map_err(Failure::from),
                }
            }
            None => Ok(()),
        };
        if let (Some(times), Ok(_)) = (times, &closed) {
            let (session, _) = self.connection.mount(identity.mount)?;
            // Ignore an error: if the file was removed, its times do not matter.
            let setting = session.set_attributes_async(identity.handle, &times, &identity.path);
            let _ = wait(&session.client(), setting);
        }
        closed
    }

    /// Implements `dup2` and `dup3` if one of the descriptors refers to a file in DAFS.
    pub(crate) fn copy_onto(&mut self, from: RawFd, onto: RawFd, flags: i32) -> Outcome<i32> {
        let is_same = from == onto;
        if self.connection.own().contains(&onto) {
            return fail(libc::EBUSY);
        }
        let answer = if is_same {
            from
        } else {
            real!(dup3(from => RawFd, onto => RawFd, flags => i32) -> i32)
        };
        if answer == -1 {
            return fail(errors::get());
        }
        if is_same {
            return Ok(answer);
        }
        let copied = self.look(from);
        // Errors of closing the file that `onto` referred to are not reported, as in Linux.
        let _ = self.release_description(onto);
        if let Some(description) = copied {
            self.enter(onto, description);
        }
        Ok(answer)
    }

    /// Duplicates a descriptor to the lowest free number that is at least `lowest`.
    pub(crate) fn copy(&mut self, from: RawFd, lowest: i32, command: i32) -> Outcome<i32> {
        let description = self.get(from)?;
        let number = real!(fcntl(from => RawFd, command => i32, lowest => i32) -> i32);
        if number == -1 {
            return fail(errors::get());
        }
        if number as usize >= DESCRIPTORS_MAX {
            real!(close(number => RawFd) -> i32);
            return fail(libc::EMFILE);
        }
        self.enter(number, description);
        Ok(number)
    }

    /// Implements all `fcntl` commands except those for locks.
    pub(crate) fn control(&mut self, number: RawFd, command: i32, argument: usize) -> Outcome<i32> {
        let description = self.get(number)?;
        match command {
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => self.copy(number, argument as i32, command),
            libc::F_GETFL => Ok(flags(&description)),
            libc::F_SETFL => {
                let kept = description.page.flags() & !SETTABLE;
                description.page.set_flags(kept | argument as i32 & SETTABLE);
                Ok(0)
            }
            libc::F_GETFD | libc::F_SETFD => {
                let answer =
                    real!(fcntl(number => RawFd, command => i32, argument => usize) -> i32);
                if answer == -1 { fail(errors::get()) } else { Ok(answer) }
            }
            _ => fail(libc::EINVAL),
        }
    }

    /// Implements the `ioctl` requests that every file supports.
    pub(crate) fn ioctl(&mut self, number: RawFd, request: u64, argument: usize) -> Outcome<i32> {
        let description = self.get(number)?;
        match request {
            libc::FIOCLEX => self.control(number, libc::F_SETFD, libc::FD_CLOEXEC as usize),
            FIONCLEX => self.control(number, libc::F_SETFD, 0),
            libc::FIONREAD if description.identity.kind == Kind::File => {
                let size = self.metadata_of(&description)?.size;
                let at = description.page.offset().load(std::sync::atomic::Ordering::Acquire);
                let left = i32::try_from(size.saturating_sub(at)).unwrap_or(i32::MAX);
                // SAFETY: the program passes the address of an int with this request.
                unsafe { user_memory::put(argument as *mut i32, left) }.map(|()| 0)
            }
            FICLONE | FICLONERANGE => fail(libc::EOPNOTSUPP),
            libc::FIONBIO => Ok(0),
            _ => fail(libc::ENOTTY),
        }
    }

    /// Implements `close_range`: closes a range of descriptors or marks them close-on-exec. Leaves
    /// out the client's own descriptors.
    pub(crate) fn close_range(&mut self, first: u32, last: u32, flags: i32) -> Outcome<i32> {
        if first > last {
            return fail(libc::EINVAL);
        }
        if flags & CLOSE_RANGE_CLOEXEC == 0 {
            for number in self.numbers() {
                if (first..=last).contains(&(number as u32)) {
                    let _ = self.release_description(number);
                }
            }
        }
        let mut from = first;
        let kept: Vec<u32> = self.connection.own().iter().map(|number| *number as u32).collect();
        for kept in kept.into_iter().filter(|kept| (first..=last).contains(kept)) {
            if from < kept {
                close_between(from, kept - 1, flags)?;
            }
            from = kept + 1;
        }
        if from <= last {
            close_between(from, last, flags)?;
        }
        Ok(0)
    }
}

fn close_between(first: u32, last: u32, flags: i32) -> Outcome<()> {
    let answer = real!(close_range(first => u32, last => u32, flags => i32) -> i32);
    if answer == -1 { Err(Failure::Errno(errors::get())) } else { Ok(()) }
}

/// Returns the flags that a program can query. They include O_LARGEFILE, as from the kernel.
fn flags(description: &Description) -> i32 {
    description.page.flags() | LARGE_FILE
}

/// The flags that F_SETFL can change.
const SETTABLE: i32 =
    libc::O_APPEND | libc::O_ASYNC | libc::O_DIRECT | libc::O_NOATIME | libc::O_NONBLOCK;
const LARGE_FILE: i32 = 0o100_000;
const FIONCLEX: u64 = 0x5450;
const FICLONE: u64 = 0x4004_9409;
const FICLONERANGE: u64 = 0x4020_940d;
const CLOSE_RANGE_CLOEXEC: i32 = 4;
