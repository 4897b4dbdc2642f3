//! A call to the server. A thread waits for the call, or an event loop drives it.
//!
//! Invariant: a call that a signal interrupts continues in the background, and its memory stays in
//! use.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::core::{Begin, Core, State};
use crate::tasks::{Outcome, Waiter, Work};

/// A call that has not started.
#[pyclass(frozen, module = "dafs._dafs")]
pub struct Operation {
    core: Arc<Core>,
    begin: Mutex<Option<Begin>>,
}

impl Operation {
    /// Makes a call. `begin` starts it, with the client's lock held and without the interpreter's
    /// lock.
    pub fn new<F>(
        core: &Arc<Core>,
        begin: impl FnOnce(std::rc::Rc<State>) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = Outcome> + 'static,
    {
        let begin: Begin = Box::new(|state| Box::pin(begin(state)) as Work);
        Self { core: core.clone(), begin: Mutex::new(Some(begin)) }
    }

    /// Takes the function that starts the call. Fails if it was taken before.
    pub fn take(&self) -> PyResult<Begin> {
        let begin = self.begin.lock().unwrap_or_else(PoisonError::into_inner).take();
        begin.ok_or_else(|| PyRuntimeError::new_err("an operation can be started only once"))
    }
}

#[pymethods]
impl Operation {
    /// Runs the call and waits for its end. Raises the exception of a signal, such as
    /// KeyboardInterrupt.
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let mut begin = Some(self.take()?);
        let mut task = None;
        loop {
            let outcome = py.detach(|| self.core.wait_for(&mut task, &mut begin, SLICE))?;
            if let Some(outcome) = outcome {
                return outcome?.into_python(py, &self.core);
            }
            if let (Err(interrupt), Some(task)) = (py.check_signals(), task) {
                py.detach(|| self.core.abandon(task));
                return Err(interrupt);
            }
        }
    }

    /// Starts the call without waiting. Its result is discarded.
    fn begin(&self, py: Python<'_>) -> PyResult<()> {
        let begin = self.take()?;
        py.detach(|| {
            self.core.visit(|client, state| {
                state.tasks.spawn(begin(state.clone()), Waiter::Nobody);
                // Send the request now, because there may be no later call.
                client.process_events(Some(Duration::ZERO));
                state.tasks.poll_ready();
            })
        })?;
        Ok(())
    }
}

/// The longest wait before signals are checked.
const SLICE: Duration = Duration::from_millis(50);
