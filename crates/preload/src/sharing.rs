//! Shares descriptors with other processes: each descriptor gets a page ([`crate::page`]) before a
//! process is created that inherits it, or before `exec`.
//!
//! Invariant: a child, or the program after `exec`, shares the offset and flags of an inherited
//! descriptor with the process it inherits from, or finds no file under that number. It never has
//! a separate offset.

use std::io::Write;
use std::os::fd::RawFd;
use std::rc::Rc;

use crate::connection;
use crate::errors::{Failure, Outcome, fail};
use crate::page::{Identity, Placeholder};
use crate::state::{DESCRIPTORS_MAX, Description, State};
use crate::working_directory;

/// The process or program that will inherit the descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inheritor {
    /// A child process with a copy of all descriptors.
    Child,
    /// A program after `exec`, with the descriptors that are not closed then.
    Program,
}

impl State {
    /// Returns a new descriptor that represents no file yet.
    pub(crate) fn new_descriptor(&mut self, closes_at_exec: bool) -> Outcome<RawFd> {
        if self.placeholder.is_none() {
            let made = Placeholder::new(connection::floor())?;
            self.connection.keep(made.number());
            self.placeholder = Some(made);
        }
        let Some(placeholder) = &self.placeholder else { return fail(libc::EMFILE) };
        let number = placeholder.copy(closes_at_exec)?;
        if number as usize >= DESCRIPTORS_MAX {
            real!(close(number => RawFd) -> i32);
            return fail(libc::EMFILE);
        }
        Ok(number)
    }

    /// Gives a page to every descriptor that will be inherited. A descriptor for which that fails
    /// is not inherited, and a line on standard error gives the reason.
    pub(crate) fn share(&mut self, inheritor: Inheritor) {
        self.unstable.release_all();
        let mut done: Vec<*const Description> = Vec::new();
        for (number, description) in self.table() {
            let address = Rc::as_ptr(description);
            if description.page.is_shared() || done.contains(&address) {
                continue;
            }
            if inheritor == Inheritor::Program && is_closed_at_exec(number) {
                continue;
            }
            done.push(address);
            if let Err(Failure::Errno(errno)) = self.share_one(description) {
                let error = std::io::Error::from_raw_os_error(errno);
                let Identity { mount, path, .. } = &description.identity;
                let path = working_directory::shown(*mount, path);
                // Ignore a failure to print, so that the fork continues.
                let _ = writeln!(
                    std::io::stderr(),
                    "dafs: {}: descriptor {number} is not inherited: {error}",
                    dafs_client::shown_path(&path)
                );
            }
        }
    }

    fn share_one(&self, description: &Rc<Description>) -> Outcome<()> {
        let of_it = self.table().filter(|(_, other)| Rc::ptr_eq(other, description));
        // A number may belong to another file by now, if it was closed by a call that this library
        // did not see.
        let is_there = |number: &RawFd| {
            self.placeholder.as_ref().is_some_and(|placeholder| placeholder.is_at(*number))
        };
        let numbers: Vec<RawFd> = of_it.map(|(number, _)| number).filter(is_there).collect();
        description.page.share(&description.identity, &numbers)
    }

    /// Removes, in a child, the descriptors that could not be shared.
    pub(crate) fn forget_unshared(&mut self) {
        let entries = self.table().filter(|(_, description)| !description.page.is_shared());
        let numbers: Vec<RawFd> = entries.map(|(number, _)| number).collect();
        for number in numbers {
            // The open on the server belongs to the parent, so the child must not close it.
            std::mem::forget(self.take(number));
        }
    }
}

fn is_closed_at_exec(number: RawFd) -> bool {
    let flags = real!(fcntl(number => RawFd, libc::F_GETFD => i32, 0 => usize) -> i32);
    flags == -1 || flags & libc::FD_CLOEXEC != 0
}
