//! Descriptors that another process may come to have as well: they get a page ([`crate::page`])
//! before it is made, or before this one's image is replaced.
//!
//! Invariant: a child, or the program that follows by `exec`, either shares offset and flags with
//! those it has a descriptor from, or finds nothing there; it never has an offset of its own.

use std::io::Write;
use std::os::fd::RawFd;
use std::rc::Rc;

use crate::connection;
use crate::errors::{Failure, Outcome, fail};
use crate::page::{Identity, Placeholder};
use crate::places;
use crate::state::{DESCRIPTORS_MAX, Description, State};

/// Who is to have the descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heir {
    /// A child with a copy of all there is, which it may copy further.
    Child,
    /// A program that is run, with what is not closed at `exec`.
    Program,
}

impl State {
    /// A new descriptor, which nothing else has. It stands for nothing yet.
    pub fn new_descriptor(&mut self, closes_at_exec: bool) -> Outcome<RawFd> {
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

    /// Gives a page to whatever an heir will have. What cannot get one, the heir will not have; a
    /// line on standard error says why.
    pub fn share(&mut self, heir: Heir) {
        self.unstable.share_all();
        let mut done: Vec<*const Description> = Vec::new();
        for (number, description) in self.table() {
            let address = Rc::as_ptr(description);
            if description.page.is_shared() || done.contains(&address) {
                continue;
            }
            if heir == Heir::Program && is_closed_at_exec(number) {
                continue;
            }
            done.push(address);
            if let Err(Failure::Errno(errno)) = self.share_one(description) {
                let error = std::io::Error::from_raw_os_error(errno);
                let Identity { mount, path, .. } = &description.identity;
                let path = places::shown(*mount, path);
                // Where nobody can hear it, the fork goes on all the same.
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
        // A number that was closed by a call that was not seen may be another file's by now.
        let is_there = |number: &RawFd| {
            self.placeholder.as_ref().is_some_and(|placeholder| placeholder.is_at(*number))
        };
        let numbers: Vec<RawFd> = of_it.map(|(number, _)| number).filter(is_there).collect();
        description.page.share(&description.identity, &numbers)
    }

    /// In a child: what could not be shared is not there.
    pub fn forget_unshared(&mut self) {
        let entries = self.table().filter(|(_, description)| !description.page.is_shared());
        let numbers: Vec<RawFd> = entries.map(|(number, _)| number).collect();
        for number in numbers {
            // Its open is the parent's.
            std::mem::forget(self.take(number));
        }
    }
}

fn is_closed_at_exec(number: RawFd) -> bool {
    let flags = real!(fcntl(number => RawFd, libc::F_GETFD => i32, 0 => usize) -> i32);
    flags == -1 || flags & libc::FD_CLOEXEC != 0
}
