//! Sessions for Python.
//!
//! Invariant: the methods here only describe a call; [`crate::operation`] runs it.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dafs_client::{
    AccessMask, ClientError, DeleteDisposition, FenceAccess, FenceObject, FenceUpdate, OpenOptions,
    SetAttributes, SetTime, ShareAccess, ShareDeny, ShareKey, Timestamp,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::core::{Core, State};
use crate::errors::Failure;
use crate::file::File;
use crate::memory::Range;
use crate::names;
use crate::operation::Operation;
use crate::tasks::{Outcome, Waiter};
use crate::transfer::{self, Request};
use crate::value::Value;
use crate::whole;

/// A session with a server.
#[pyclass(frozen, module = "dafs._dafs")]
pub struct Session {
    core: Arc<Core>,
    url: OsString,
    path: OsString,
}

impl Session {
    /// Wraps an established session.
    pub fn new(core: Core, url: OsString, path: OsString) -> Self {
        Self { core: Arc::new(core), url, path }
    }

    fn operation<F>(
        &self,
        call: impl FnOnce(Rc<State>, dafs_client::Session) -> F + Send + 'static,
    ) -> Operation
    where
        F: Future<Output = Outcome> + 'static,
    {
        Operation::new(&self.core, move |state| async move {
            let session = state.session()?;
            call(state, session).await
        })
    }

    /// Makes an operation whose errors name a path.
    fn operation_on<F>(
        &self,
        path: &OsStr,
        call: impl FnOnce(Rc<State>, dafs_client::Session) -> F + Send + 'static,
    ) -> Operation
    where
        F: Future<Output = Outcome> + 'static,
    {
        let path = path.to_owned();
        self.operation(move |state, session| async move {
            call(state, session).await.map_err(|failure| failure.with_path(&path))
        })
    }
}

#[pymethods]
impl Session {
    #[getter]
    fn url(&self) -> &OsStr {
        &self.url
    }

    /// Returns the path in the session's URL.
    #[getter]
    fn root(&self) -> &OsStr {
        &self.path
    }

    #[getter]
    fn address(&self) -> PyResult<String> {
        let address = self
            .core
            .visit(|_, state| state.session().map(|session| session.address().to_string()));
        Ok(address??)
    }

    /// Returns the credits, and how servers access registered memory and other memory.
    fn describe<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (credits, ours, others) = py.detach(|| {
            self.core.visit(|client, state| {
                let session = state.session()?;
                let ours = session.path_of(&client.allocate(4096)?);
                let others = session.path_of(&client.register(vec![0; 4096].into())?);
                let text = |path| format!("{path:?}");
                Ok::<_, Failure>((session.credits(), ours.map(text), others.map(text)))
            })
        })??;
        let described = PyDict::new(py);
        described.set_item("credits", credits)?;
        described.set_item("registered", ours)?;
        described.set_item("other", others)?;
        Ok(described)
    }

    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = &self.core.counters;
        let named = [
            ("straight", &counters.straight),
            ("straight_bytes", &counters.straight_bytes),
            ("copies", &counters.copies),
            ("copied_bytes", &counters.copied_bytes),
            ("registrations", &counters.registrations),
        ];
        let all = PyDict::new(py);
        for (name, count) in named {
            all.set_item(name, count.load(Ordering::Relaxed))?;
        }
        Ok(all)
    }

    // ---- for event loops ------------------------------------------------------------

    /// Returns a file descriptor that becomes readable when [`Session::drive`] has work to do.
    fn fileno(&self) -> i32 {
        self.core.shared().descriptor().as_raw_fd()
    }

    /// Starts a call for an event loop and returns its number.
    fn start(&self, py: Python<'_>, operation: &Operation) -> PyResult<usize> {
        let begin = operation.take()?;
        let number = py.detach(|| {
            self.core.visit(|_, state| state.tasks.spawn(begin(state.clone()), Waiter::Loop))
        })?;
        Ok(number)
    }

    /// Drops the event loop's interest in the result of a call.
    fn abandon(&self, py: Python<'_>, number: usize) {
        py.detach(|| self.core.abandon(number));
    }

    /// Makes progress without waiting. Returns the calls that have ended, each with its number,
    /// True if it succeeded, and its result or exception. Also returns True if there is more work
    /// to do now, and the seconds until the next timer.
    fn drive<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyList>, bool, Option<f64>)> {
        let (ended, has_more, timer) = py.detach(|| {
            self.core.visit(|client, state| {
                let mut has_more = true;
                for _ in 0..ROUNDS_MAX {
                    client.process_events_for_loop();
                    let is_woken = state.tasks.poll_ready();
                    if client.arm() && !is_woken {
                        has_more = false;
                        break;
                    }
                }
                let timer = client.until_next_turn().map(|left| left.as_secs_f64());
                (state.tasks.take_ended(), has_more, timer)
            })
        })?;
        let list = PyList::empty(py);
        for (number, outcome) in ended {
            self.core.note(&outcome);
            let (is_done, value) = match outcome
                .and_then(|value| value.into_python(py, &self.core).map_err(|_| Failure::Closed))
            {
                Ok(value) => (true, value),
                Err(failure) => (false, failure.to_exception(py)?),
            };
            list.append((number, is_done, value))?;
        }
        Ok((list, has_more, timer))
    }

    // ---- names and attributes ------------------------------------------------------------

    fn stat(&self, path: OsString, follow: bool) -> Operation {
        self.operation_on(&path.clone(), move |_, session| async move {
            Ok(Value::Metadata(Box::new(names::find(&session, &path, follow).await?)))
        })
    }

    fn list(&self, path: OsString) -> Operation {
        self.operation_on(&path.clone(), move |_, session| async move {
            let directory = names::find(&session, &path, true).await?;
            Ok(Value::Entries(session.list_async(directory.handle, &path).await?))
        })
    }

    fn mkdir(&self, path: OsString, mode: u32) -> Operation {
        self.operation_on(&path.clone(), move |_, session| async move {
            let (parent, name) = names::parent(&session, &path).await?;
            session.create_dir_in_async(parent.handle, name, &path, mode).await?;
            Ok(Value::None)
        })
    }

    fn remove(&self, path: OsString) -> Operation {
        self.operation_on(&path.clone(), move |_, session| async move {
            let (parent, name) = names::parent(&session, &path).await?;
            session.remove_in_async(parent.handle, name, &path).await?;
            Ok(Value::None)
        })
    }

    /// Removes a name, and for a directory everything in it, down to `depth_max` levels.
    #[pyo3(signature = (path, depth_max=None))]
    fn remove_tree(&self, path: OsString, depth_max: Option<usize>) -> Operation {
        self.operation_on(&path.clone(), move |_, session| async move {
            names::remove_tree(&session, &path, depth_max).await?;
            Ok(Value::None)
        })
    }

    fn symlink(&self, text: OsString, path: OsString) -> Operation {
        self.operation_on(&path.clone(), move |_, session| async move {
            let (parent, name) = names::parent(&session, &path).await?;
            session.symlink_in_async(parent.handle, name, &path, text.as_bytes()).await?;
            Ok(Value::None)
        })
    }

    fn read_link(&self, path: OsString) -> Operation {
        self.operation_on(&path.clone(), move |_, session| async move {
            let link = names::find(&session, &path, false).await?;
            Ok(Value::Raw(session.read_link_async(link.handle, &path).await?))
        })
    }

    fn rename(&self, path: OsString, new_path: OsString) -> Operation {
        self.operation_on(&path.clone(), move |_, session| async move {
            let (from, name) = names::parent(&session, &path).await?;
            let (to, new_name) = names::parent(&session, &new_path).await?;
            let (source, target) = ((from.handle, name), (to.handle, new_name));
            session.rename_in_async(source, target, &path).await?;
            Ok(Value::None)
        })
    }

    fn link(&self, path: OsString, new_path: OsString) -> Operation {
        self.operation_on(&path.clone(), move |_, session| async move {
            let source = names::find(&session, &path, false).await?;
            let (to, name) = names::parent(&session, &new_path).await?;
            session.link_in_async(source.handle, to.handle, name, &new_path).await?;
            Ok(Value::None)
        })
    }

    /// Sets the given attributes. Times are in nanoseconds since 1970.
    #[pyo3(signature = (path, follow, *, mode=None, size=None, atime=None, mtime=None, owner=None,
        group=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn set_attributes(
        &self,
        path: OsString,
        follow: bool,
        mode: Option<u32>,
        size: Option<u64>,
        atime: Option<i64>,
        mtime: Option<i64>,
        owner: Option<String>,
        group: Option<String>,
    ) -> Operation {
        let time = |nanoseconds: i64| {
            let seconds = nanoseconds.div_euclid(1_000_000_000);
            let nanoseconds = nanoseconds.rem_euclid(1_000_000_000) as u32;
            SetTime::Client(Timestamp { seconds, nanoseconds })
        };
        let wanted = SetAttributes {
            mode,
            size,
            time_access: atime.map(time),
            time_modify: mtime.map(time),
            owner,
            owner_group: group,
            ..SetAttributes::default()
        };
        self.operation_on(&path.clone(), move |_, session| async move {
            let object = names::find(&session, &path, follow).await?;
            session.set_attributes_async(object.handle, &wanted, &path).await?;
            Ok(Value::None)
        })
    }

    fn access(&self, path: OsString, mask: u32) -> Operation {
        self.operation_on(&path.clone(), move |_, session| async move {
            let object = names::find(&session, &path, true).await?;
            let asked = session.access_async(object.handle, AccessMask(mask), &path);
            let granted = asked.await?;
            Ok(Value::Int(u64::from(granted.0)))
        })
    }

    fn space(&self, path: OsString) -> Operation {
        self.operation_on(&path.clone(), move |_, session| async move {
            let object = names::find(&session, &path, true).await?;
            let system = session.file_system_async(object.handle, &path).await?;
            let values = [
                system.space_total,
                system.space_free,
                system.space_available,
                system.files_total,
                system.files_free,
                system.max_name.map(u64::from),
            ];
            Ok(Value::Space(values.map(Option::unwrap_or_default)))
        })
    }

    // ---- files and memory ----------------------------------------------------------------

    #[pyo3(signature = (path, access, *, create=false, exclusive=false, truncate=false,
        mode=0o666, deny=0, key=None, keep_name=false))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn open(
        &self,
        path: OsString,
        access: u8,
        create: bool,
        exclusive: bool,
        truncate: bool,
        mode: u32,
        deny: u8,
        key: Option<u64>,
        keep_name: bool,
    ) -> PyResult<Operation> {
        let options = OpenOptions::read()
            .access(match access {
                1 => ShareAccess::Read,
                2 => ShareAccess::Write,
                3 => ShareAccess::Both,
                _ => return Err(PyValueError::new_err("access must be 1, 2 or 3")),
            })
            .deny(match deny {
                0 => ShareDeny::None,
                1 => ShareDeny::Read,
                2 => ShareDeny::Write,
                3 => ShareDeny::Both,
                _ => return Err(PyValueError::new_err("deny must be 0 to 3")),
            })
            .create(create)
            .create_new(exclusive)
            .truncate(truncate)
            .mode(mode)
            .key(key.map(ShareKey))
            .delete_disposition(match keep_name {
                true => DeleteDisposition::Deny,
                false => DeleteDisposition::DontCare,
            });
        Ok(self.operation_on(&path.clone(), move |state, session| async move {
            let file = names::open(&session, &path, &options, state.keeps.get()).await?;
            Ok(Value::File(state.keep_file(file), path))
        }))
    }

    /// Creates a file without a name.
    fn open_unlinked(&self, directory: OsString, mode: u32) -> Operation {
        self.operation(move |state, session| async move {
            let options = OpenOptions::write().mode(mode);
            let file = session.create_unlinked_async(&directory, &options).await?;
            Ok(Value::File(state.keep_file(file), directory))
        })
    }

    fn read_files(&self, paths: Vec<OsString>) -> Operation {
        self.operation(move |state, _| async move {
            Ok(Value::Files(whole::read_files(&state, &paths).await?))
        })
    }

    fn write_file(
        &self,
        path: OsString,
        buffer: &Bound<'_, PyAny>,
        mode: u32,
        is_new: bool,
    ) -> PyResult<Operation> {
        let range = Range::of(buffer, false)?;
        Ok(self.operation_on(&path.clone(), move |state, _| async move {
            whole::write_file(&state, &path, range, mode, is_new).await?;
            Ok(Value::None)
        }))
    }

    /// Allocates registered memory. Without `zeroed`, it contains data of an earlier use in this
    /// session.
    #[pyo3(signature = (length, zeroed=true))]
    fn alloc(&self, length: usize, zeroed: bool) -> Operation {
        self.operation(move |state, session| async move {
            let buffer = session.client().allocate(length)?;
            if zeroed {
                buffer.memory().zero(0, length);
            }
            let (number, address) = state.keep_buffer(buffer)?;
            Ok(Value::Memory(number, address, length))
        })
    }

    /// Runs many reads and writes. Each request consists of a file, an offset, memory, and True for
    /// a write.
    #[pyo3(signature = (requests, window=None))]
    fn batch(
        &self,
        requests: Vec<(PyRef<'_, File>, u64, Bound<'_, PyAny>, bool)>,
        window: Option<f64>,
    ) -> PyResult<Operation> {
        let mut asked = Vec::with_capacity(requests.len());
        for (file, offset, buffer, is_write) in requests {
            if !file.is_of(&self.core) {
                let what = "a file".to_owned();
                return Err(Failure::Client(ClientError::Foreign { what }).into());
            }
            let range = Range::of(&buffer, !is_write)?;
            asked.push(Request { file: file.number()?, offset, range, is_write });
        }
        let window = window.map(Duration::try_from_secs_f64).transpose();
        let window = window.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(self.operation(move |state, _| async move {
            Ok(Value::Counts(transfer::batch(&state, asked, window).await?))
        }))
    }

    // ---- fencing, and the session itself -------------------------------------------------

    fn fencing_list(&self, path: OsString, file_system: bool) -> Operation {
        self.operation_on(&path.clone(), move |_, session| async move {
            let listed = session.fencing_list_async(&path, object_of(file_system));
            Ok(Value::Texts(listed.await?))
        })
    }

    fn set_fence(
        &self,
        path: OsString,
        file_system: bool,
        deny: bool,
        update: &str,
        fence_ids: Vec<String>,
    ) -> PyResult<Operation> {
        let access = if deny { FenceAccess::Deny } else { FenceAccess::Allow };
        let update = match update {
            "overwrite" => FenceUpdate::Overwrite,
            "append" => FenceUpdate::Append,
            "remove" => FenceUpdate::Remove,
            other => return Err(PyValueError::new_err(format!("there is no update {other:?}"))),
        };
        Ok(self.operation_on(&path.clone(), move |_, session| async move {
            let ids: Vec<&str> = fence_ids.iter().map(String::as_str).collect();
            let object = object_of(file_system);
            session.set_fence_async(&path, object, access, update, &ids).await?;
            Ok(Value::None)
        }))
    }

    /// Opens the channel for the server's notifications of locks.
    fn listen(&self) -> Operation {
        self.operation(|_, session| async move {
            session.listen()?;
            Ok(Value::None)
        })
    }

    fn ping(&self) -> Operation {
        self.operation(|_, session| async move {
            session.ping_async().await?;
            Ok(Value::None)
        })
    }

    /// Returns how the session was authenticated, and True if it may act for other users.
    fn identity(&self) -> Operation {
        self.operation(|_, session| async move {
            let method = session.identity().map(|identity| format!("{:?}", identity.method));
            Ok(Value::Text(method.unwrap_or_default()))
        })
    }

    /// Ends the session and disconnects.
    fn close(&self) -> Operation {
        Operation::new(&self.core, |state: Rc<State>| async move {
            let Some(session) = state.take_session() else { return Ok(Value::None) };
            // The server closes the opens with their session.
            drop(std::mem::take(&mut *state.files.borrow_mut()));
            session.disconnect_async().await?;
            Ok(Value::None)
        })
    }

    /// True if a call has found that the session has ended.
    #[getter]
    fn lost(&self) -> bool {
        self.core.is_lost()
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(self.core.visit(|_, state| state.session().is_err())?)
    }

    /// Returns the URL to connect to again, for `__reduce__` of derived objects.
    fn __getnewargs__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, [&self.url])
    }
}

fn object_of(file_system: bool) -> FenceObject {
    if file_system { FenceObject::FileSystem } else { FenceObject::File }
}

/// The maximum number of rounds of progress in one call, after which the event loop runs again.
const ROUNDS_MAX: usize = 16;
