//! One call: waited for, or given to an event loop.
//!
//! Invariant: a call that a signal has interrupted goes on unseen; what it was lent stays lent.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::core::{Begin, Core, State};
use crate::tasks::{Outcome, Whose, Work};

/// A call that has not begun.
#[pyclass(frozen, module = "dafs._dafs")]
pub struct Operation {
    core: Arc<Core>,
    begin: Mutex<Option<Begin>>,
}

impl Operation {
    /// A call that `begin` begins, with the client's lock held and without the interpreter's.
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

    /// What begins it, once.
    pub fn take(&self) -> PyResult<Begin> {
        let begin = self.begin.lock().unwrap_or_else(PoisonError::into_inner).take();
        begin.ok_or_else(|| PyRuntimeError::new_err("an operation is waited for once"))
    }
}

#[pymethods]
impl Operation {
    /// Does it and waits for the end; a signal's exception, such as KeyboardInterrupt, comes out
    /// of it.
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

    /// Begins it, and does not wait: nobody hears how it ends.
    fn begin(&self, py: Python<'_>) -> PyResult<()> {
        let begin = self.take()?;
        py.detach(|| {
            self.core.visit(|client, state| {
                state.tasks.spawn(begin(state.clone()), Whose::Nobody);
                // It goes out now: there may be no call behind it.
                client.turn(Some(Duration::ZERO));
                state.tasks.poll_ready();
            })
        })?;
        Ok(())
    }
}

/// Longest wait before signals are looked for.
const SLICE: Duration = Duration::from_millis(50);
