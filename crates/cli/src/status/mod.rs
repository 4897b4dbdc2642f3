//! Shows the state of a running server to the operator of its machine: `dafs sessions`, `dafs
//! locks`, `dafs top`, `dafs follow`.
//!
//! A server offers its state on a Unix socket next to the one for shared memory. A client that
//! connects and sends nothing gets one JSON document. A client that first sends a selection
//! ([`follow`]) gets one line per request. Only the server's own user and root can connect.
//!
//! Invariant: the state that is shown is consistent, and was taken after the client's request.

pub(crate) mod follow;
pub(crate) mod locks;
pub(crate) mod sessions;
pub(crate) mod top;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use dafs_client::local_socket_candidates;
use dafs_dat::Address;
use dafs_dat::shm::{Distrust, FoundSocket, listen_privately};
use dafs_server::Inspector;
use serde_json::Value;

use dafs_watch::document;

use crate::nfs::exports;
use crate::place::DEFAULT_PORT;
use crate::reload::Reload;
use crate::terminal_text;

/// Arguments of `dafs sessions` and `dafs locks`: the server, and the output format.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The server's socket for shared memory, as `dafs serve` prints it. Default: the usual places
    /// for port 2050.
    #[arg(value_name = "SOCKET")]
    socket: Option<PathBuf>,
    /// Print JSON with all details.
    #[arg(long)]
    json: bool,
}

/// Offers the state of a server next to its socket.
pub(crate) fn offer(addresses: &[Address], inspector: &Inspector, reload: &Arc<Reload>) {
    let sockets = addresses.iter().filter_map(|address| match address {
        Address::Shm(path) => Some(status_path(path)),
        Address::Tcp(_) | Address::Verbs(_) | Address::Sim { .. } => None,
    });
    for path in sockets {
        if let Err(error) = listen(&path, inspector.clone(), reload.clone()) {
            tracing::warn!(
                path = %path.display(), %error,
                "`dafs sessions` and `dafs locks` will not find this server"
            );
        }
    }
}

fn listen(path: &Path, inspector: Inspector, reload: Arc<Reload>) -> std::io::Result<()> {
    let listener = listen_privately(path)?;
    std::thread::Builder::new().name("dafs-status".into()).spawn(move || {
        for stream in listener.incoming().flatten() {
            // A panic while answering one client must not keep later ones from being answered.
            let answered = catch_unwind(AssertUnwindSafe(|| answer(stream, &inspector, &reload)));
            if answered.is_err() {
                tracing::error!("a request for the server's state caused a panic");
            }
        }
    })?;
    Ok(())
}

/// Reads the request of a connected client, and sends the state or the records that it selects.
fn answer(stream: UnixStream, inspector: &Inspector, reload: &Reload) -> std::io::Result<()> {
    // A client that does not read or write within this time is disconnected.
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(&stream).take(LINE_BYTES_MAX).read_line(&mut line)?;
    match line.trim() {
        "" => tell(stream, inspector),
        asked => match exports::answer(asked, reload) {
            Some(told) => serde_json::to_writer(&stream, &told).map_err(Into::into),
            None => follow::begin(asked, stream, inspector),
        },
    }
}

fn tell(mut stream: UnixStream, inspector: &Inspector) -> std::io::Result<()> {
    let Some(found) = inspector.look(PATIENCE) else { return Ok(()) };
    serde_json::to_writer(&mut stream, &document::of(&found))?;
    stream.flush()
}

/// Gets the state of a server and prints it as a table or as JSON.
fn print(target: &Target, print_table: fn(&Value)) -> Result<()> {
    let found = ask(target.socket.as_deref())?;
    if target.json {
        println!("{}", terminal_text::json(&found));
    } else {
        print_table(&found);
    }
    Ok(())
}

/// Connects to the state socket next to the named socket. If no socket is named, connects to a
/// state socket in the usual places that belongs to root or to this user.
fn reach(socket: Option<&Path>) -> Result<(UnixStream, PathBuf)> {
    if let Some(socket) = socket {
        let path = status_path(&socket_of(socket));
        let connected = match UnixStream::connect(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => bail!(none_at(&[path], "")),
            connected => connected.with_context(|| asking(&path))?,
        };
        return Ok((connected, path));
    }
    let candidates = local_socket_candidates(DEFAULT_PORT);
    let mut passed_over = String::new();
    for path in candidates.iter().map(|socket| status_path(socket)) {
        match believed(&path) {
            Ok(Some(stream)) => return Ok((stream, path)),
            Ok(None) => {}
            Err(distrust) => passed_over.push_str(&format!("; {distrust}")),
        }
    }
    bail!(none_at(&candidates, &passed_over))
}

fn none_at(places: &[PathBuf], more: &str) -> String {
    let places: Vec<_> = places.iter().map(|path| path.display().to_string()).collect();
    let places = places.join(", ");
    format!(
        "no server offers its state at {places}; name the socket that `dafs serve` has \
         printed{more}"
    )
}

/// Connects to a socket that was found. Returns `None` if the socket does not exist, and an error
/// if it is not trusted.
fn believed(path: &Path) -> Result<Option<UnixStream>, Distrust> {
    let Some(found) = FoundSocket::look(path)? else { return Ok(None) };
    let system = |source| Distrust::System { path: path.into(), source };
    let stream = UnixStream::connect(found.path()).map_err(system)?;
    found.judge(&stream, path)?;
    Ok(Some(stream))
}

fn asking(path: &Path) -> String {
    format!("asking the server at {}; only its user and root are allowed to", path.display())
}

/// Gets the state of a server as JSON.
pub(crate) fn ask(socket: Option<&Path>) -> Result<Value> {
    request(socket, "")
}

/// Sends a request to a server, and returns its answer. An empty request asks for the state.
pub(crate) fn request(socket: Option<&Path>, asked: &str) -> Result<Value> {
    let (mut stream, path) = reach(socket)?;
    let mut told = || -> std::io::Result<Vec<u8>> {
        stream.write_all(asked.as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        // A request may look up names, which takes longer than a copy of the state.
        let patience = if asked.is_empty() { PATIENCE * 2 } else { LOOKUP_PATIENCE };
        stream.set_read_timeout(Some(patience))?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = told().with_context(|| asking(&path))?;
    if bytes.is_empty() {
        bail!("the server at {} does not answer: it is ending, or stuck", path.display());
    }
    serde_json::from_slice(&bytes).context("the server's state is not JSON")
}

/// Returns the socket path for a path or a URL as `dafs serve` prints it.
fn socket_of(text: &Path) -> PathBuf {
    let shown = text.to_string_lossy();
    let path = shown.strip_prefix("dafs+shm://").unwrap_or(&shown);
    let path = path.strip_prefix("shm:").unwrap_or(path);
    PathBuf::from(path.split_once('!').map_or(path, |(path, _)| path))
}

fn status_path(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".status");
    PathBuf::from(name)
}

/// Returns a text from the server, escaped because it may contain names from any user.
fn text(value: &Value, key: &str) -> String {
    terminal_text::printable(value[key].as_str().unwrap_or("-"))
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}

/// The time limit for a request that looks up names.
const LOOKUP_PATIENCE: Duration = Duration::from_secs(120);
/// The maximum length of a request in bytes.
const LINE_BYTES_MAX: u64 = 4096;
/// The time limit for a read from or a write to a client, and for collecting the state. A client
/// waits twice as long for the state.
const PATIENCE: Duration = Duration::from_secs(5);
