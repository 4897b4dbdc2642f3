//! Hooks for the start, fork and end of a program.
//!
//! Invariant: nothing here connects to a server. If nothing is mapped, nothing is done.

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
    // A panic must not reach the edge of an `extern "C"` function, where it would abort the
    // program. None is expected here; after one, the program continues without DAFS.
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
        // SAFETY: the functions exist as long as the program, and take no arguments.
        unsafe {
            libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child));
            libc::atexit(end);
        }
        streams::follow(0);
        streams::follow(1);
        streams::follow(2);
    });
}

/// Finds inherited descriptors.
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

/// Shares descriptors before a process is created without a fork handler of the C library.
pub fn before(heir: Heir) {
    let _ = guard::with(|state| {
        state.share(heir);
        Ok(())
    });
}

/// Prepares for `exec`.
pub fn before_exec() {
    leave();
    before(Heir::Program);
}

/// Writes back mapped memory and the report before the program ends or calls `exec`.
fn leave() {
    let _ = guard::with(|state| {
        state.write_back(0, usize::MAX, false)?;
        Ok(())
    });
    guard::aside(report::tell);
}

/// Runs before the process ends.
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
