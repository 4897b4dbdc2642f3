//! Hooks for the start, fork and end of a program.
//!
//! Invariant: these hooks never connect to a server, and have no effect if no prefix is mapped.

use std::rc::Rc;

use crate::config;
use crate::connection::descriptors;
use crate::guard;
use crate::opening;
use crate::page;
use crate::report;
use crate::sharing::Inheritor;
use crate::state::Description;
use crate::streams;
use crate::working_directory;

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    // A panic must not reach the edge of an `extern "C"` function, where it would abort the
    // program. No panic is expected here; after one, the program continues without DAFS.
    let _ = std::panic::catch_unwind(|| {
        guard::without_interception(config::read);
        if config::get().mounts.is_empty() {
            return;
        }
        guard::without_interception(|| {
            let mask = rustix::process::umask(rustix::fs::Mode::empty());
            rustix::process::umask(mask);
            opening::note_umask(mask.bits());
            let inherited = std::env::var_os(config::DIRECTORY).filter(|value| !value.is_empty());
            working_directory::prepare_environment();
            if let Some(directory) = inherited {
                working_directory::set_working_directory(Some(directory), None);
            }
        });
        find_inherited();
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

/// Enters inherited descriptors of DAFS files into the table.
fn find_inherited() {
    let _ = guard::with(|state| {
        let mut known: Vec<(u64, Rc<Description>)> = Vec::new();
        for number in descriptors() {
            let Some((inode, identity, page)) = page::inherited(number) else { continue };
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
    guard::before_fork(|state| state.share(Inheritor::Child));
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

/// Shares descriptors before the creation of a process for which the C library calls no fork
/// handler.
pub(crate) fn share_before(inheritor: Inheritor) {
    let _ = guard::with(|state| {
        state.share(inheritor);
        Ok(())
    });
}

/// Prepares this process for `exec`.
pub(crate) fn before_exec() {
    flush();
    share_before(Inheritor::Program);
}

/// Writes back mapped memory and the report before the program ends or calls `exec`.
fn flush() {
    let _ = guard::with(|state| {
        state.write_back(0, usize::MAX, false)?;
        Ok(())
    });
    guard::without_interception(report::write);
}

/// Runs before the process ends.
pub(crate) fn finish() {
    flush();
    let _ = guard::with(|state| {
        state.close_unstable_files();
        state.give_up_locks();
        state.connection.disconnect_all();
        Ok(())
    });
}

extern "C" fn end() {
    let _ = std::panic::catch_unwind(|| {
        streams::flush_all();
        finish();
    });
}
