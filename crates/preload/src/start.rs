//! What happens when a program begins, forks and ends.
//!
//! Invariant: nothing here connects; where nothing is mapped, nothing is done at all.

use std::rc::Rc;

use crate::config;
use crate::connection::descriptors;
use crate::guard;
use crate::opening;
use crate::page;
use crate::places;
use crate::report;
use crate::sharing::Heir;
use crate::state::Description;
use crate::streams;

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    // A panic that reaches the edge of an `extern "C"` function ends the program; nothing here
    // is expected to, and what may go wrong is answered by going on without.
    let _ = std::panic::catch_unwind(|| {
        guard::aside(config::read);
        if config::get().mounts.is_empty() {
            return;
        }
        guard::aside(|| {
            let mask = rustix::process::umask(rustix::fs::Mode::empty());
            rustix::process::umask(mask);
            opening::note_umask(mask.bits());
            if let Some(directory) = std::env::var_os(config::DIRECTORY) {
                places::stand(Some(directory), None);
            }
        });
        adopt();
        // SAFETY: the functions are there for as long as the program, and take no arguments.
        unsafe {
            libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child));
            libc::atexit(end);
        }
        streams::follow(0);
        streams::follow(1);
        streams::follow(2);
    });
}

/// Finds descriptors that were inherited.
fn adopt() {
    let _ = guard::with(|state| {
        let mut known: Vec<(u64, Rc<Description>)> = Vec::new();
        for number in descriptors() {
            let Some((inode, identity, page)) = page::adopt(number) else { continue };
            if identity.mount >= config::get().mounts.len() {
                continue;
            }
            let same = known.iter().find(|(other, _)| *other == inode);
            let description = match same {
                Some((_, description)) => description.clone(),
                None => Description::new(identity, page, None),
            };
            known.push((inode, description.clone()));
            drop(state.enter(number, description));
        }
        Ok(())
    });
}

unsafe extern "C" fn before_fork() {
    guard::before_fork(|state| state.share(Heir::Child));
}

unsafe extern "C" fn in_parent() {
    guard::after_fork();
}

unsafe extern "C" fn in_child() {
    guard::in_child(|state| {
        state.forget_connection();
        state.forget_unshared();
    });
}

/// Before somebody comes to have descriptors by a way that the C library does not tell of.
pub fn before(heir: Heir) {
    let _ = guard::with(|state| {
        state.share(heir);
        Ok(())
    });
}

/// Before this process's image is replaced.
pub fn before_exec() {
    leave();
    before(Heir::Program);
}

/// Before the program's image goes, be it at its end or by `exec`.
fn leave() {
    let _ = guard::with(|state| {
        state.write_back(0, usize::MAX, false)?;
        Ok(())
    });
    guard::aside(report::tell);
}

/// Before the process ends.
pub fn finish() {
    leave();
    let _ = guard::with(|state| {
        state.close_what_is_unstable();
        state.give_up_locks();
        state.connection.take_leave();
        Ok(())
    });
}

extern "C" fn end() {
    let _ = std::panic::catch_unwind(|| {
        streams::flush_all();
        finish();
    });
}
