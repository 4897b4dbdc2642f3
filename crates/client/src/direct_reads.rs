//! Direct reads: on the server's host, a client with a read delegation holds a descriptor of the
//! file and reads it without the server (`docs/decisions/0038`).
//!
//! A direct read ends before its thread calls the client again, so none is in progress when a
//! delegation is returned. Before each read the thread checks, without a system call, whether the
//! server has sent anything over the back-control channel. If so, and at regular intervals anyway,
//! the client processes its events, to learn of recalls and lost connections.
//!
//! Invariants:
//!
//! - A [`DirectFile`] that is marked as unusable is never read again. It is marked before its
//!   delegation is returned, before this session sends a request that may change the file, and as
//!   soon as the connection is known to be lost.
//! - A descriptor that was requested while this session had a change in flight is not used.

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
use crate::delegation_cache::{CacheFill, granted};
use crate::direct::{Direct, DirectFile};
use crate::error::{ClientError, Result};
use crate::file::File;
use crate::ids::SessionKey;
use crate::open_options::OpenOptions;
use crate::refusal::failed;
use crate::session::Session;

/// The state of a descriptor at the time of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DescriptorState {
    Good,
    /// It is unknown whether the descriptor may be used, because a message that has arrived could
    /// not be processed yet.
    Unsure,
    Over,
}

/// A file that is read from mapped memory where possible, and otherwise through [`File::read_at`].
/// Created by [`File::map`].
#[derive(Clone, Copy)]
pub struct Mapping<'f> {
    file: &'f File,
}

impl Mapping<'_> {
    /// Returns true if a read would currently copy from mapped memory, without a system call.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        let file = self.file.direct(true);
        file.is_some_and(|file| file.view().is_some())
    }

    /// Reads from byte `offset` into `bytes`, as [`File::read_at`] does.
    ///
    /// # Errors
    /// The errors of [`File::read_at`].
    #[inline]
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize> {
        match self.file.direct(false).and_then(|file| file.copy(bytes, offset)) {
            Some(read) => Ok(read),
            None => self.file.read_at(bytes, offset),
        }
    }
}

impl File {
    /// Maps the file into memory if this process is on the server's host and holds a read
    /// delegation ([`SessionOptions::delegations`](crate::SessionOptions::delegations)). The
    /// mapping lasts until the server recalls the delegation. Afterwards, and on other hosts, reads
    /// go to the server. If a local process truncates the mapped file, reads see the new size and
    /// this process is not killed: the first mapping in a process installs a SIGBUS handler, which
    /// passes on signals that do not concern mappings of this library.
    #[must_use]
    pub fn map(&self) -> Mapping<'_> {
        // A descriptor that the server refuses now may become available later, so the error is
        // ignored.
        let _ = self.direct(true);
        Mapping { file: self }
    }

    /// Returns a file descriptor of the file itself for reading, or `None` if [`File::map`] could
    /// not map the file. The descriptor stays valid after the delegation has been recalled, and
    /// reads through it see the changes of other processes.
    #[must_use]
    pub fn descriptor(&self) -> Option<OwnedFd> {
        self.direct(true)?.file.try_clone().ok().map(OwnedFd::from)
    }

    /// Reads through the file's descriptor; `None` if this client has no descriptor that may be
    /// used now.
    pub(crate) fn read_directly(&self, bytes: &mut [u8], offset: u64) -> Option<usize> {
        self.direct(false)?.read(bytes, offset)
    }

    /// Returns the file's descriptor, if it may be used now. If this client has no descriptor, it
    /// requests one as soon as the policy allows, or immediately if `now` is true.
    #[inline]
    fn direct(&self, now: bool) -> Option<Rc<DirectFile>> {
        let delegation = self.delegation()?;
        let held = self.direct.borrow().clone();
        if let Some(file) = held {
            match self.descriptor_state(&file) {
                DescriptorState::Good => return Some(file),
                DescriptorState::Unsure => return None,
                DescriptorState::Over => *self.direct.borrow_mut() = None,
            }
        }
        self.obtain(delegation, now)
    }

    #[inline]
    fn descriptor_state(&self, file: &DirectFile) -> DescriptorState {
        if file.is_over() {
            return DescriptorState::Over;
        }
        let now = coarse_now();
        let is_recent = now.saturating_sub(file.looked.get()) < LOOK_PERIOD;
        let is_quiet = !self.session().shared.borrow().transport.interface().has_arrived(file.back);
        if is_recent & is_quiet { DescriptorState::Good } else { self.look(file, now) }
    }

    /// Processes all messages that have arrived, and returns the resulting state of the descriptor.
    #[cold]
    fn look(&self, file: &DirectFile, now: Duration) -> DescriptorState {
        let shared = &self.session().shared;
        let count = shared.borrow_mut().turn(0, Some(Duration::ZERO));
        shared.deliver_events();
        if file.is_over() {
            return DescriptorState::Over;
        }
        if count == 0 {
            // Descriptors were polled too, so if there is no event, no message is pending.
            file.looked.set(now);
        }
        let mut core = shared.borrow_mut();
        if core.transport.interface().has_arrived(file.back) {
            return DescriptorState::Unsure;
        }
        if now.saturating_sub(file.asked) < file.window {
            return DescriptorState::Good;
        }
        // The server's permission lasts for half a lease and has expired; request another
        // descriptor.
        let delegation = self.delegation();
        let direct = delegation
            .and_then(|delegation| core.direct_of(self.session().key, &self.handle(), delegation));
        if let Some(direct) = direct {
            direct.expire();
        }
        file.end();
        DescriptorState::Over
    }

    /// Sends HAND_OVER. Returns the token that identifies the descriptor that the server hands
    /// over.
    fn ask_for_itself(&self, delegation: StateId) -> Result<u64> {
        let (file, state) = (self.handle(), self.state());
        let request = Request::HandOver(HandOver { file, state, delegation });
        self.session().call(&request, |status, response| match response {
            Response::HandOver(result) if status == Status::Ok => Ok(result.token),
            _ => Err(self.refused(status)),
        })
    }

    /// Requests the file descriptor if the policy allows a request now, or in any case if `now` is
    /// true.
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
            let fill = core.begin_fill(key, delegation).filter(CacheFill::is_quiet)?;
            let back =
                core.back_channels.of(key).filter(|_| core.back_channels.listens(key))?.endpoint;
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
        // If the delegation was returned in the meantime, its descriptor must not be used.
        let is_held = core.holds(key, &file, &fill);
        let direct = core.direct_of(key, &file, delegation).filter(|_| is_held)?;
        let Some(handed_over) = handed_over else {
            direct.defer();
            return None;
        };
        let believed = (fill.asked(), window);
        let made = Rc::new(DirectFile::new(handed_over, back, believed, reads));
        direct.hold(made.clone());
        drop(core);
        *self.direct.borrow_mut() = Some(made.clone());
        // Messages that arrived together with the reply, perhaps a recall, have not been processed
        // yet.
        (self.descriptor_state(&made) == DescriptorState::Good).then_some(made)
    }
}

impl Session {
    /// Returns a descriptor of a file for reading, as [`File::descriptor`] does, in a session that
    /// uses no delegations. The delegation that this requires is returned immediately, so that no
    /// other client has to wait for this one. Returns `None` if the server does not hand over the
    /// file, or cannot do so now.
    ///
    /// # Errors
    /// If the session has ended, and the errors of OPEN.
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
            // Dropping the file closes it.
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
    /// Returns true if a session may request descriptors: it uses shared memory and the client's
    /// own credentials.
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

    /// Returns true if the delegation is still held and nothing has changed the file since the
    /// request.
    fn holds(&self, key: SessionKey, file: &FileHandle, asked: &CacheFill) -> bool {
        let delegated = self.sessions[key].delegated.as_ref();
        delegated.is_some_and(|delegated| delegated.is_as_asked(file, asked))
    }

    /// Takes the descriptor that the server has handed over. Returns `None` if the descriptor does
    /// not refer to a regular file.
    fn take_handed_over(&mut self, key: SessionKey, name: u64) -> Option<SystemFile> {
        let endpoint = self.sessions[key].endpoint;
        let file: OwnedFd = self.transport.interface_mut().take_handed_over(endpoint, name)?;
        let file = SystemFile::from(file);
        file.metadata().is_ok_and(|found| found.is_file()).then_some(file)
    }

    /// Records that the server refused a file descriptor. The status determines when one is
    /// requested again.
    fn note_refused(
        &mut self,
        key: SessionKey,
        (file, delegation): (&FileHandle, StateId),
        error: &ClientError,
    ) {
        let Some(delegated) = &mut self.sessions[key].delegated else { return };
        // The server hands over no files at all, or does not know HAND_OVER.
        if error.status() == Some(Status::NotSupp) {
            delegated.note_no_files();
        } else if let Some(direct) = delegated.direct_of(file, delegation) {
            direct.defer();
            if matches!(error.status(), Some(Status::Access | Status::Inval)) {
                direct.refuse();
            }
        }
    }
}

/// The longest time between two checks for pending messages while files are read directly.
const LOOK_PERIOD: Duration = Duration::from_millis(10);
/// The limit for the number of attempts to open a file with a delegation. Several may be needed,
/// because a server grants no delegation until it knows that it can recall the delegation from this
/// client.
const ATTEMPTS_MAX: u32 = 3;
