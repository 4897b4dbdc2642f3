//! Connects to a server: the URL, its options, and the session.
//!
//! Invariant: a signal ends the wait but not the connection attempt. A session that is established
//! later is closed.

use std::ffi::OsString;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dafs_client::{
    ClientConfig, ClientError, Location, Login, Recovery, RecoveryOptions, SessionOptions,
    SystemCause, Tickets, TlsClient, TlsClientFiles, TransportChoice, Umask,
};
use dafs_share::SharedClient;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::core::{Core, OwnMemory};
use crate::errors::Failure;
use crate::session::Session;

/// Connects to the server of a URL.
#[pyfunction]
#[pyo3(signature = (
    url, *, transport="auto", login="auto", user=None, password=None, credits=64,
    channels=1, checksums=false, fence_id="", client_name="", delegations=false, own_memory="auto",
    recovery=Some(120.0), answer_timeout=Some(120.0), tls_ca=None, tls_certificate=None,
    tls_key=None, tls_name=None,
))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn connect(
    py: Python<'_>,
    url: OsString,
    transport: &str,
    login: &str,
    user: Option<String>,
    password: Option<String>,
    credits: u16,
    channels: u16,
    checksums: bool,
    fence_id: &str,
    client_name: &str,
    delegations: bool,
    own_memory: &str,
    recovery: Option<f64>,
    answer_timeout: Option<f64>,
    tls_ca: Option<String>,
    tls_certificate: Option<String>,
    tls_key: Option<String>,
    tls_name: Option<String>,
) -> PyResult<Session> {
    let wrong = |text: String| PyValueError::new_err(text);
    let mut location = Location::parse(&url).map_err(|error| wrong(error.to_string()))?;
    let transport = match transport {
        "auto" => TransportChoice::Automatic,
        "shm" => TransportChoice::SharedMemory,
        "tcp" => TransportChoice::Tcp,
        other => return Err(wrong(format!("transport must be auto, shm or tcp, not {other:?}"))),
    };
    let own_memory = match own_memory {
        "auto" => OwnMemory::Automatic,
        "straight" => OwnMemory::Straight,
        other => return Err(wrong(format!("own_memory must be auto or straight, not {other:?}"))),
    };
    let tls = match &tls_ca {
        Some(authorities) => {
            let identity = tls_certificate.zip(tls_key);
            let identity = identity.map(|(certificate, key)| (certificate.into(), key.into()));
            let files = TlsClientFiles::new(authorities).identity(identity);
            Some(TlsClient::load(&files).map_err(|error| wrong(error.to_string()))?)
        }
        None => None,
    };
    let options = SessionOptions::default()
        .transport(transport)
        .login(chosen_login(login, &location, user, password)?)
        .recovery(match seconds(recovery)? {
            Some(give_up_after) => {
                Recovery::On(RecoveryOptions::default().give_up_after(give_up_after))
            }
            None => Recovery::Off,
        })
        .checksums(checksums)
        .tls(tls)
        .tls_name(tls_name)
        .credits(credits)
        .channels(channels)
        .client_name(client_name.to_owned())
        .fence_id(fence_id.to_owned())
        .delegations(delegations)
        .answer_timeout(seconds(answer_timeout)?)
        .umask(Umask::Process);
    // The login contains the user, so the location need not.
    location.user = None;
    let path = location.path.clone();
    let core = establish(py, location, options, own_memory)?;
    Ok(Session::new(core, url, path))
}

fn chosen_login(
    login: &str,
    location: &Location,
    user: Option<String>,
    password: Option<String>,
) -> PyResult<Login> {
    let named = user.or_else(|| location.user.as_ref().map(|(user, _)| user.clone()));
    let password = password.or_else(|| location.user.as_ref()?.1.clone());
    match (login, named) {
        ("auto" | "password", Some(user)) => {
            Ok(Login::Password { user, password: password.unwrap_or_default() })
        }
        ("auto", None) => Ok(Login::Automatic),
        ("none", None) => Ok(Login::None),
        ("kerberos", None) => Ok(Login::Kerberos(Tickets::default())),
        ("password", None) => Err(PyValueError::new_err("a login by password needs a user")),
        ("none" | "kerberos", Some(user)) => {
            Err(PyValueError::new_err(format!("user {user} needs a password")))
        }
        (other, _) => Err(PyValueError::new_err(format!(
            "login must be auto, none, kerberos or password, not {other:?}"
        ))),
    }
}

fn seconds(value: Option<f64>) -> PyResult<Option<Duration>> {
    let checked = value.map(Duration::try_from_secs_f64).transpose();
    checked.map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Connects in a separate thread, so that the calling thread can handle signals.
fn establish(
    py: Python<'_>,
    location: Location,
    options: SessionOptions,
    own_memory: OwnMemory,
) -> PyResult<Core> {
    let (sender, receiver) = channel();
    let attempt = move || -> Result<Core, Failure> {
        let shared = SharedClient::new(ClientConfig::default())?;
        let keeps = options.delegations;
        Core::new(shared, |client| client.connect(&location, &options), keeps, own_memory)
    };
    let spawned = std::thread::Builder::new().name("dafs-connect".into()).spawn(move || {
        // Ignore an error: after a signal, no thread waits for the result.
        let _ = sender.send(attempt());
    });
    spawned.map_err(|error| {
        Failure::Client(ClientError::System { what: "starting a thread", source: error.into() })
    })?;
    let receiver = Mutex::new(receiver);
    let listen = || receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(SLICE);
    loop {
        match py.detach(listen) {
            Ok(core) => return Ok(core?),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::Client(ClientError::System {
                    what: "connecting",
                    source: SystemCause::new(EIO, "the connecting thread has ended"),
                })
                .into());
            }
        }
    }
}

/// The error number for failures without a more specific one.
const EIO: i32 = 5;
/// The longest wait before signals are checked.
const SLICE: Duration = Duration::from_millis(50);
