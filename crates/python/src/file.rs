//! Open files for Python.
//!
//! Invariant: a file that Python drops without closing it is closed by the session's next call.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use dafs_client::SetAttributes;
use dafs_client::{CacheHint, CachePattern, LockKind, LockOptions};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::core::{Core, Dropped, State};
use crate::errors::Failure;
use crate::memory::{Bytes, Range};
use crate::operation::Operation;
use crate::tasks::Outcome;
use crate::transfer;
use crate::value::Value;

/// An open file of a session.
#[pyclass(frozen, module = "dafs._dafs")]
pub struct File {
    core: Arc<Core>,
    pub(crate) number: usize,
    path: OsString,
    is_closed: AtomicBool,
}

impl File {
    /// Wraps a file of a session, given by its number.
    pub fn new(core: Arc<Core>, number: usize, path: OsString) -> Self {
        Self { core, number, path, is_closed: AtomicBool::new(false) }
    }

    /// Returns the number that identifies the file in its session.
    ///
    /// # Errors
    /// [`Failure::Closed`] if the file was closed.
    pub fn number(&self) -> Result<usize, Failure> {
        match self.is_closed.load(Ordering::Relaxed) {
            true => Err(Failure::Closed),
            false => Ok(self.number),
        }
    }

    /// True if the file belongs to this session.
    pub fn is_of(&self, core: &Arc<Core>) -> bool {
        Arc::ptr_eq(&self.core, core)
    }

    fn operation<F>(
        &self,
        call: impl FnOnce(std::rc::Rc<State>, std::rc::Rc<dafs_client::File>) -> F + Send + 'static,
    ) -> PyResult<Operation>
    where
        F: Future<Output = Outcome> + 'static,
    {
        let number = self.number()?;
        Ok(Operation::new(&self.core, move |state| async move {
            let file = state.file(number)?;
            call(state, file).await
        }))
    }
}

#[pymethods]
impl File {
    #[getter]
    fn path(&self) -> &OsStr {
        &self.path
    }

    #[getter]
    fn closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    fn read_into(&self, buffer: &Bound<'_, PyAny>, offset: u64) -> PyResult<Operation> {
        let range = Range::of(buffer, true)?;
        self.operation(move |state, file| async move {
            Ok(Value::Int(transfer::read(&state, &file, range, offset).await? as u64))
        })
    }

    fn read(&self, py: Python<'_>, length: usize, offset: u64) -> PyResult<Operation> {
        let (bytes, range) = Bytes::new(py, length)?;
        self.operation(move |state, file| async move {
            let count = transfer::read(&state, &file, range, offset).await?;
            Ok(Value::Bytes(bytes, count))
        })
    }

    fn write(&self, buffer: &Bound<'_, PyAny>, offset: u64) -> PyResult<Operation> {
        let range = Range::of(buffer, false)?;
        self.operation(move |state, file| async move {
            Ok(Value::Int(transfer::write(&state, &file, range, offset).await? as u64))
        })
    }

    fn append(&self, buffer: &Bound<'_, PyAny>) -> PyResult<Operation> {
        let range = Range::of(buffer, false)?;
        self.operation(move |state, file| async move {
            Ok(Value::Int(transfer::append(&state, &file, range).await?))
        })
    }

    fn commit(&self) -> PyResult<Operation> {
        self.operation(|_, file| async move {
            let committed = file.commit_async().await?;
            file.note_committed(committed.verifier)?;
            Ok(Value::None)
        })
    }

    /// Returns a file descriptor of the local file on this host, if the server passes one.
    fn descriptor(&self) -> PyResult<Operation> {
        self.operation(|_, file| async move {
            Ok(file.descriptor().map_or(Value::None, Value::Descriptor))
        })
    }

    fn stat(&self) -> PyResult<Operation> {
        self.operation(|state, file| async move {
            let session = state.session()?;
            let metadata = session.metadata_async(file.handle(), file.path()).await?;
            Ok(Value::Metadata(Box::new(metadata)))
        })
    }

    fn truncate(&self, size: u64) -> PyResult<Operation> {
        self.operation(move |_, file| async move {
            let wanted = SetAttributes { size: Some(size), ..SetAttributes::default() };
            let setting = file.session().chain().of(&file).setattr(&wanted).run_async();
            match setting.await {
                Ok(_) => Ok(Value::None),
                Err(failure) => Err(Failure::of(failure.error, file.path())),
            }
        })
    }

    fn hint(&self, offset: u64, length: u32, pattern: &str) -> PyResult<Operation> {
        let pattern = match pattern {
            "normal" => CachePattern::Normal,
            "random" => CachePattern::Random,
            "sequential" => CachePattern::Sequential,
            "willneed" => CachePattern::WillNeed,
            "dontneed" => CachePattern::DontNeed,
            other => return Err(PyValueError::new_err(format!("there is no pattern {other:?}"))),
        };
        self.operation(move |_, file| async move {
            file.hint_async(offset, length, pattern, CacheHint::default()).await?;
            Ok(Value::None)
        })
    }

    /// Requests a lock once. Returns False if another lock conflicts. With `waits`, the server
    /// keeps the request in the lock's queue, so that a caller that retries soon keeps its
    /// position.
    #[pyo3(signature = (exclusive, offset, length, options, waits))]
    fn lock(
        &self,
        exclusive: bool,
        offset: u64,
        length: u64,
        options: u32,
        waits: bool,
    ) -> PyResult<Operation> {
        let options = LockOptions::from_bits(options)
            .ok_or_else(|| PyValueError::new_err("invalid options of a lock"))?;
        let kind = kind_of(exclusive);
        self.operation(move |_, file| async move {
            let holder = match waits {
                true => file.queue_lock_async(kind, offset, length, options).await?,
                false => file.try_lock_async(kind, offset, length, options).await?,
            };
            Ok(Value::Bool(holder.is_none()))
        })
    }

    fn test_lock(&self, exclusive: bool, offset: u64, length: u64) -> PyResult<Operation> {
        let kind = kind_of(exclusive);
        self.operation(move |_, file| async move {
            Ok(Value::Holder(file.test_lock_async(kind, offset, length).await?))
        })
    }

    fn unlock(&self, offset: u64, length: u64) -> PyResult<Operation> {
        self.operation(move |_, file| async move {
            file.unlock_async(offset, length).await?;
            Ok(Value::None)
        })
    }

    fn abort_lock(&self, offset: u64, length: u64) -> PyResult<Operation> {
        self.operation(move |_, file| async move {
            file.abort_lock_async(offset, length).await?;
            Ok(Value::None)
        })
    }

    /// Closes the file after all operations on it have ended.
    fn close(&self) -> PyResult<Operation> {
        let number = self.number()?;
        self.is_closed.store(true, Ordering::Relaxed);
        Ok(Operation::new(&self.core, move |state| async move {
            let removed = state.files.borrow_mut().remove(&number);
            let mut shared = Some(removed.ok_or(Failure::Closed)?);
            let file = std::future::poll_fn(|context| {
                let Some(file) = shared.take() else { return Poll::Pending };
                match std::rc::Rc::try_unwrap(file) {
                    Ok(file) => Poll::Ready(file),
                    Err(file) => {
                        shared = Some(file);
                        // Poll again: no notification arrives when the last other reference is
                        // dropped.
                        context.waker().wake_by_ref();
                        Poll::Pending
                    }
                }
            })
            .await;
            file.close_async().await?;
            Ok(Value::None)
        }))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if !self.is_closed.load(Ordering::Relaxed) {
            self.core.discard(Dropped::File(self.number));
        }
    }
}

fn kind_of(exclusive: bool) -> LockKind {
    if exclusive { LockKind::Exclusive } else { LockKind::Shared }
}
