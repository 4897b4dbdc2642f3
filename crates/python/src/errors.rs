//! Converts failures to the exceptions that Python programs expect.
//!
//! Invariant: every failure becomes an `OSError` with its errno. `python/dafs/_errors.py` selects
//! the class.

use std::ffi::{OsStr, OsString};

use dafs_client::{ClientError, Status, shown_path};
use dafs_share::Forked;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// The reason why a call failed.
#[derive(Clone, Debug)]
pub enum Failure {
    /// An error of the client.
    Client(ClientError),
    /// An error of the client about this path, which is not UTF-8 and therefore missing from the
    /// error's text.
    About(ClientError, OsString),
    /// The process was forked after it connected.
    Forked,
    /// The file was closed.
    Closed,
    /// The session was closed.
    NoSession,
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<Forked> for Failure {
    fn from(_: Forked) -> Self {
        Self::Forked
    }
}

impl Failure {
    /// Makes a failure for a path from an error.
    pub fn of(error: ClientError, path: &(impl AsRef<OsStr> + ?Sized)) -> Self {
        match error {
            ClientError::Status { status, .. } => {
                Self::Client(ClientError::Status { what: shown_path(path).into_owned(), status })
            }
            other => Self::Client(other),
        }
    }

    /// Adds the path, which Python uses for the exception's `filename`.
    #[must_use]
    pub fn with_path(self, path: &OsStr) -> Self {
        match self {
            Self::Client(error) => {
                let shown = shown_path(path);
                match subject_of(&error) {
                    Some(what) if what == shown && path != OsStr::new(&*shown) => {
                        Self::About(error, path.to_owned())
                    }
                    _ => Self::Client(error),
                }
            }
            other => other,
        }
    }

    /// Returns the name that selects the class in `_errors.py`.
    fn kind(&self) -> &'static str {
        match self {
            Self::Client(error) | Self::About(error, _) => match error {
                ClientError::Status { .. } => "status",
                ClientError::Connect { .. } => "connect",
                ClientError::Login { .. }
                | ClientError::Kerberos { .. }
                | ClientError::NoLogin { .. } => "login",
                ClientError::SessionEnded { .. } => "lost",
                ClientError::OutcomeUnknown { .. } => "unknown",
                ClientError::Protocol { .. } => "protocol",
                ClientError::Cancelled => "cancelled",
                ClientError::TimedOut => "timeout",
                ClientError::Range { .. } | ClientError::Foreign { .. } => "argument",
                ClientError::DataLost { .. } => "data_lost",
                ClientError::OutOfReach { .. }
                | ClientError::TooManyLinks(_)
                | ClientError::CannotRemove { .. }
                | ClientError::System { .. } => "system",
                // A later version of the client may have more kinds of errors.
                _ => "system",
            },
            Self::Forked => "forked",
            Self::Closed | Self::NoSession => "closed",
        }
    }

    fn errno(&self) -> i32 {
        match self {
            Self::Client(error) | Self::About(error, _) => error.errno(),
            // EBADF: the descriptors belong to another process or were closed.
            Self::Forked | Self::Closed | Self::NoSession => 9,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Client(ClientError::Status { status, .. })
            | Self::About(ClientError::Status { status, .. }, _) => status.text().to_owned(),
            Self::Client(error) | Self::About(error, _) => error.in_full(),
            Self::Forked => Forked.to_string(),
            Self::Closed => "the file is closed".to_owned(),
            Self::NoSession => "the session is closed".to_owned(),
        }
    }

    fn status(&self) -> Option<Status> {
        match self {
            Self::Client(error) | Self::About(error, _) => error.status(),
            Self::Forked | Self::Closed | Self::NoSession => None,
        }
    }

    fn subject(&self) -> Option<&OsStr> {
        match self {
            Self::Client(error) => subject_of(error).map(OsStr::new),
            Self::About(_, path) => Some(path),
            Self::Forked | Self::Closed | Self::NoSession => None,
        }
    }

    /// Returns the Python exception for this failure.
    pub fn to_exception(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let make = MAKE.get_or_try_init(py, || {
            PyResult::Ok(py.import("dafs._errors")?.getattr("make")?.unbind())
        })?;
        let status = self.status().map(|status| format!("{status:?}"));
        make.call1(py, (self.kind(), self.errno(), self.text(), self.subject(), status))
    }
}

/// Returns the path or address of an error, as the client shows it.
fn subject_of(error: &ClientError) -> Option<&str> {
    match error {
        ClientError::Status { what, .. } | ClientError::DataLost { what } => Some(what),
        ClientError::TooManyLinks(path) | ClientError::CannotRemove { path } => Some(path),
        _ => None,
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| match failure.to_exception(py) {
            Ok(exception) => PyErr::from_value(exception.into_bound(py)),
            Err(error) => error,
        })
    }
}
