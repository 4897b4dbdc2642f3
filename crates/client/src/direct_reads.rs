//! Files that this client reads by itself: on the server's host, while it holds a read delegation,
//! it has a descriptor of the file (`docs/decisions/0038`).
//!
//! A read of this kind ends before the thread that makes it turns the client again, so none is
//! under way when a delegation is given back. Before each there is a look at what the server has
//! sent over the back-control channel, which costs no system call; now and then, and when
//! something is there, the client turns, so that it hears of recalls and of lost connections.
//!
//! Invariants: a [`DirectFile`] that is over is never read again; it is over before its delegation
//! is given back, before this session sends anything that may change the file, and when the
//! connection is known to be lost. Nothing is read by a descriptor that was asked for while this
//! session had a change under way.

use std::ffi::OsStr;
use std::fs::File as SystemFile;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use dafs_dat::{Address, coarse_now};
use dafs_types::{FileHandle, StateId, Status};
use dafs_wire::messages::{HandOver, OpenTarget};
use dafs_wire::{Path, Request, Response};

use crate::core::Core;
use crate::delegated::{Fill, granted};
use crate::direct::{Direct, DirectFile};
use crate::error::{ClientError, Result};
use crate::file::{File, OpenOptions};
use crate::ids::SessionKey;
use crate::refusal::failed;
use crate::session::Session;

/// How a file that was handed over stands at the moment of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Good,
    /// Something has come that could not be taken in yet.
    Unsure,
    Over,
}

/// A file that is read out of mapped memory where that is possible, and as
/// [`File::read_at`] reads where it is not: [`File::map`].
#[derive(Clone, Copy)]
pub struct Mapping<'f> {
    file: &'f File,
}

impl Mapping<'_> {
    /// Whether reads are copies out of memory now, without a system call.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        let file = self.file.direct(true);
        file.is_some_and(|file| file.view().is_some())
    }

    /// As [`File::read_at`].
    ///
    /// # Errors
    /// As [`File::read_at`].
    #[inline]
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize> {
        match self.file.direct(false).and_then(|file| file.copy(bytes, offset)) {
            Some(read) => Ok(read),
            None => self.file.read_at(bytes, offset),
        }
    }
}

impl File {
    /// The file as memory. On the server's host, under a read delegation
    /// ([`SessionOptions::delegations`](crate::SessionOptions::delegations)), it is mapped, until
    /// the server calls the delegation back; elsewhere, and from then on, reads are as any others.
    /// A file that a local process cuts meanwhile is read as such, and kills nobody: the first
    /// mapping of a process installs a handler of SIGBUS, which passes on what is not its own.
    #[must_use]
    pub fn map(&self) -> Mapping<'_> {
        // What is refused now may be given later.
        let _ = self.direct(true);
        Mapping { file: self }
    }

    /// A descriptor of the file itself for reading, where [`File::map`] maps it. No recall reaches
    /// it: what it shows from then on is what local processes see of the file.
    #[must_use]
    pub fn descriptor(&self) -> Option<OwnedFd> {
        self.direct(true)?.file.try_clone().ok().map(OwnedFd::from)
    }

    /// Reads from the file itself, if this client has it.
    pub(crate) fn read_directly(&self, bytes: &mut [u8], offset: u64) -> Option<usize> {
        self.direct(false)?.read(bytes, offset)
    }

    /// The file itself, if it may be read now. If this client does not have it, it is asked for
    /// when that is due, or at once if `now`.
    #[inline]
    fn direct(&self, now: bool) -> Option<Rc<DirectFile>> {
        let delegation = self.delegation()?;
        let held = self.direct.borrow().clone();
        if let Some(file) = held {
            match self.standing(&file) {
                Standing::Good => return Some(file),
                Standing::Unsure => return None,
                Standing::Over => *self.direct.borrow_mut() = None,
            }
        }
        self.obtain(delegation, now)
    }

    #[inline]
    fn standing(&self, file: &DirectFile) -> Standing {
        if file.is_over() {
            return Standing::Over;
        }
        let now = coarse_now();
        let is_recent = now.saturating_sub(file.looked.get()) < LOOK_PERIOD;
        let is_quiet = !self.session().shared.borrow().transport.interface().has_arrived(file.back);
        if is_recent & is_quiet { Standing::Good } else { self.look(file, now) }
    }

    /// Looks at all that has come.
    #[cold]
    fn look(&self, file: &DirectFile, now: Duration) -> Standing {
        let shared = &self.session().shared;
        let count = shared.borrow_mut().turn(0, Some(Duration::ZERO));
        shared.tell();
        if file.is_over() {
            return Standing::Over;
        }
        if count == 0 {
            // Descriptors were looked at, too.
            file.looked.set(now);
        }
        let mut core = shared.borrow_mut();
        if core.transport.interface().has_arrived(file.back) {
            return Standing::Unsure;
        }
        if now.saturating_sub(file.asked) < file.window {
            return Standing::Good;
        }
        // What a server said half a lease ago is asked for anew.
        let delegation = self.delegation();
        let direct = delegation
            .and_then(|delegation| core.direct_of(self.session().key, &self.handle(), delegation));
        if let Some(direct) = direct {
            direct.expire();
        }
        file.end();
        Standing::Over
    }

    /// HAND_OVER. The name of what has come.
    fn ask_for_itself(&self, delegation: StateId) -> Result<u64> {
        let (file, state) = (self.handle(), self.state());
        let request = Request::HandOver(HandOver { file, state, delegation });
        self.session().call(&request, |status, response| match response {
            Response::HandOver(result) if status == Status::Ok => Ok(result.token),
            _ => Err(self.refused(status)),
        })
    }

    /// Asks for the file if that is due.
    #[cold]
    fn obtain(&self, delegation: StateId, now: bool) -> Option<Rc<DirectFile>> {
        let (shared, key) = (&self.session().shared, self.session().key);
        let (fill, back, window) = {
            let mut core = shared.borrow_mut();
            if !core.may_ask_for_files(self.session()) {
                return None;
            }
            let is_due = core.direct_of(key, &self.handle(), delegation)?.is_due();
            let delegated = core.sessions[key].delegated.as_ref()?;
            if !(is_due || now) || !delegated.has_room_for_files() {
                return None;
            }
            let fill = core.begin_fill(key, delegation).filter(Fill::is_quiet)?;
            let back = core.backs.of(key).filter(|_| core.backs.listens(key))?.endpoint;
            (fill, back, core.sessions[key].delegated.as_ref()?.window())
        };
        let file = self.handle();
        let name = self.ask_for_itself(delegation);
        let mut core = shared.borrow_mut();
        let handed_over = match name {
            Ok(name) => core.take_handed_over(key, name),
            Err(error) => {
                core.note_refused(key, (&file, delegation), &error);
                return None;
            }
        };
        let reads = core.sessions[key].delegated.as_ref()?.direct_reads();
        // Of a delegation that came back to the server meanwhile nothing is left.
        let is_held = core.holds(key, &file, &fill);
        let direct = core.direct_of(key, &file, delegation).filter(|_| is_held)?;
        let Some(handed_over) = handed_over else {
            direct.put_off();
            return None;
        };
        let believed = (fill.asked(), window);
        let made = Rc::new(DirectFile::new(handed_over, back, believed, reads));
        direct.hold(made.clone());
        drop(core);
        *self.direct.borrow_mut() = Some(made.clone());
        // What has come with the answer is not known yet.
        (self.standing(&made) == Standing::Good).then_some(made)
    }
}

impl Session {
    /// A descriptor of a file itself for reading, as [`File::descriptor`] gives, in a session that
    /// keeps no delegations: the one it takes is given back at once, so that nobody waits for a
    /// program that rests. `None` where the server hands it over to nobody, or not now.
    ///
    /// # Errors
    /// If the session has ended; as OPEN.
    pub fn descriptor_of(
        &self,
        handle: FileHandle,
        path: impl AsRef<OsStr>,
    ) -> Result<Option<OwnedFd>> {
        let path = path.as_ref();
        if self.acting.is_some() || !self.is_on_this_host() || self.listen().is_err() {
            return Ok(None);
        }
        for _ in 0..ATTEMPTS_MAX {
            let target = OpenTarget::Null { directory: handle, path: Path::new(&["."]) };
            let read = |status, response: &Response<'_>| match response {
                Response::Open(opened) if status == Status::Ok => {
                    Ok((opened.state, granted(&opened.delegation)))
                }
                _ => Err(failed(path, status)),
            };
            let options = OpenOptions::read();
            let opening = self.with_open(target, path, &options, |request| -> Result<_> {
                Ok(self.ask(request?, read))
            });
            let (state, granted) = self.run(opening?)?;
            // Closed when this is over.
            let file = self.file(handle, state, path);
            let Some((delegation, is_recalled)) = granted else { continue };
            let name = if is_recalled { None } else { file.ask_for_itself(delegation).ok() };
            let mut core = self.shared.borrow_mut();
            let found = name.and_then(|name| core.take_handed_over(self.key, name));
            core.return_delegation(self.key, delegation);
            return Ok(found.map(OwnedFd::from));
        }
        Ok(None)
    }

    fn is_on_this_host(&self) -> bool {
        let core = self.shared.borrow();
        matches!(core.sessions[self.key].place.address, Address::Shm(_))
    }
}

impl Core {
    /// Whether a session may ask for files at all: in shared memory, as itself.
    fn may_ask_for_files(&self, session: &Session) -> bool {
        let state = &self.sessions[session.key];
        let is_here = matches!(state.place.address, Address::Shm(_));
        let delegated = state.delegated.as_ref();
        is_here
            && session.acting.is_none()
            && state.options.direct_reads
            && delegated.is_some_and(|delegated| delegated.may_have_files())
    }

    fn direct_of(
        &mut self,
        key: SessionKey,
        file: &FileHandle,
        delegation: StateId,
    ) -> Option<&mut Direct> {
        self.sessions[key].delegated.as_mut()?.direct_of(file, delegation)
    }

    /// Whether a delegation is held, and nothing was changed since the server was asked.
    fn holds(&self, key: SessionKey, file: &FileHandle, asked: &Fill) -> bool {
        let delegated = self.sessions[key].delegated.as_ref();
        delegated.is_some_and(|delegated| delegated.is_as_asked(file, asked))
    }

    /// The descriptor that the server has handed over, if it is one of a regular file.
    fn take_handed_over(&mut self, key: SessionKey, name: u64) -> Option<SystemFile> {
        let endpoint = self.sessions[key].endpoint;
        let file: OwnedFd = self.transport.interface_mut().take_handed_over(endpoint, name)?;
        let file = SystemFile::from(file);
        file.metadata().is_ok_and(|found| found.is_file()).then_some(file)
    }

    /// What a refusal means for whoever would ask again.
    fn note_refused(
        &mut self,
        key: SessionKey,
        (file, delegation): (&FileHandle, StateId),
        error: &ClientError,
    ) {
        let Some(delegated) = &mut self.sessions[key].delegated else { return };
        // It hands no file over, or knows no such request.
        if error.status() == Some(Status::NotSupp) {
            delegated.note_no_files();
        } else if let Some(direct) = delegated.direct_of(file, delegation) {
            direct.put_off();
            if matches!(error.status(), Some(Status::Access | Status::Inval)) {
                direct.refuse();
            }
        }
    }
}

/// Longest time between two looks at whether the connection stands, while files are read.
const LOOK_PERIOD: Duration = Duration::from_millis(10);
/// Opens until a server has heard that it can call this client back.
const ATTEMPTS_MAX: u32 = 3;
