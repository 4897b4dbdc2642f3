//! The web page, the metrics and the state of a server over HTTP, read-only.
//!
//! Invariants: one thread serves all connections. The number of connections, requests and bytes at
//! a time is limited, and a peer that is slow or silent is disconnected. Requests within a short
//! time get the same copy of the server's state, so that many viewers cost the server no more than
//! one.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dafs_server::{Inspection, Inspector};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Semaphore};

use crate::otlp::SpanNumbers;
use crate::{document, metrics};

/// The running server of the web page with the statistics.
#[derive(Debug)]
pub struct Page {
    address: SocketAddr,
}

/// The reason why the page cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The address cannot be bound.
    #[error("cannot listen at http://{address}/; choose another --http ADDRESS")]
    Address {
        /// The address that was requested.
        address: SocketAddr,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The thread cannot be started.
    #[error("cannot start the thread that serves HTTP")]
    Thread(#[from] std::io::Error),
}

impl Page {
    /// Serves a running server's page at an address until the process ends. The page replies to
    /// requests for IP addresses, for `localhost` and for `names`, ignoring case.
    ///
    /// # Errors
    /// [`PageError`]: the address is in use, or the thread cannot be started.
    pub fn serve(
        address: SocketAddr,
        names: Vec<String>,
        inspector: Inspector,
        spans: Option<Arc<SpanNumbers>>,
    ) -> Result<Self, PageError> {
        let unusable = |source| PageError::Address { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(unusable)?;
        listener.set_nonblocking(true).map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .build()?;
        let watched = Arc::new(Watched { inspector, spans, names, latest: Mutex::default() });
        std::thread::Builder::new().name("dafs-http".into()).spawn(move || {
            let served = AssertUnwindSafe(|| runtime.block_on(accept_all(listener, watched)));
            match catch_unwind(served) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, "the web page is not served any more"),
                Err(_) => tracing::error!(
                    "the thread of the web page panicked: the page is not served any more"
                ),
            }
        })?;
        Ok(Self { address })
    }

    /// Returns the address at which the page is served.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A server whose state is shown.
struct Watched {
    inspector: Inspector,
    spans: Option<Arc<SpanNumbers>>,
    /// The host names that are accepted. Without this check, a web page from another site could
    /// make its own host name resolve to this server, and read the replies in the user's browser.
    names: Vec<String>,
    latest: Mutex<Option<(Instant, Arc<Inspection>)>>,
}

async fn accept_all(listener: std::net::TcpListener, watched: Arc<Watched>) -> std::io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // A connection without a permit waits in the kernel's queue.
        let Ok(place) = room.clone().acquire_owned().await else { return Ok(()) };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                // Most likely the process has no free descriptors, so wait until some are closed.
                tokio::time::sleep(RETRY_PAUSE).await;
                continue;
            }
        };
        let watched = watched.clone();
        tokio::spawn(async move {
            let answer = |request| {
                let watched = watched.clone();
                async move { Ok::<_, Infallible>(watched.answer(&request).await) }
            };
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_PATIENCE)
                .max_buf_size(REQUEST_BYTES_MAX)
                .serve_connection(TokioIo::new(stream), service_fn(answer));
            // Errors of a connection concern only its peer.
            let _ = tokio::time::timeout(CONNECTION_LIFE, connection).await;
            drop(place);
        });
    }
}

type Answer = Response<Full<Bytes>>;

impl Watched {
    async fn answer(&self, request: &Request<Incoming>) -> Answer {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are served\n");
        }
        let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        if !host.is_some_and(|host| is_this_machine(host, &self.names)) {
            let text = "this name is not answered to: ask by an IP address or by localhost, or \
                        start the server with --http-name NAME\n";
            return plain(StatusCode::MISDIRECTED_REQUEST, text);
        }
        match request.uri().path() {
            "/" => fixed("text/html; charset=utf-8", include_str!("page/index.html")),
            "/watch.css" => fixed("text/css; charset=utf-8", include_str!("page/watch.css")),
            "/watch.js" => fixed("text/javascript; charset=utf-8", include_str!("page/watch.js")),
            "/metrics" => match self.look().await.map(|found| self.metrics(&found)) {
                Some(Ok(text)) => body(StatusCode::OK, METRICS_TYPE, text.into()),
                Some(Err(error)) => plain(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n")),
                None => away(),
            },
            "/api/status" => match self.look().await {
                Some(found) => {
                    let text = document::shown(&found, ROWS_MAX).to_string();
                    body(StatusCode::OK, "application/json", text.into())
                }
                None => away(),
            },
            "/healthz" => match self.look().await {
                Some(_) => plain(StatusCode::OK, "ok\n"),
                None => away(),
            },
            _ => plain(
                StatusCode::NOT_FOUND,
                "not found; try /, /metrics, /api/status or /healthz\n",
            ),
        }
    }

    fn metrics(&self, found: &Inspection) -> prometheus::Result<String> {
        metrics::text(found, self.spans.as_ref())
    }

    /// Returns a recent copy of the server's state.
    async fn look(&self) -> Option<Arc<Inspection>> {
        let mut latest = self.latest.lock().await;
        if let Some((made, found)) = &*latest
            && made.elapsed() < COPY_AGE_MAX
        {
            return Some(found.clone());
        }
        let inspector = self.inspector.clone();
        let looked = tokio::task::spawn_blocking(move || inspector.look(PATIENCE)).await;
        let found = looked.ok().flatten()?;
        *latest = Some((Instant::now(), found.clone()));
        Some(found)
    }
}

/// Returns true if a Host header names this machine. An IP address is always accepted, because a
/// site cannot make it resolve to another host.
fn is_this_machine(host: &str, names: &[String]) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|known| name.eq_ignore_ascii_case(known))
}

fn away() -> Answer {
    plain(
        StatusCode::SERVICE_UNAVAILABLE,
        "the server does not respond: it is shutting down or stuck\n",
    )
}

fn plain(status: StatusCode, text: &str) -> Answer {
    body(status, "text/plain; charset=utf-8", text.to_owned().into())
}

fn fixed(kind: &'static str, text: &'static str) -> Answer {
    body(StatusCode::OK, kind, Bytes::from_static(text.as_bytes()))
}

fn body(status: StatusCode, kind: &'static str, bytes: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(bytes));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// The content security policy: the page loads nothing from other sites, and no site may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The maximum number of connections at a time.
const CONNECTIONS_MAX: usize = 64;
/// The maximum number of bytes of a request that are read.
const REQUEST_BYTES_MAX: usize = 16 * 1024;
/// The maximum time for the header of a request to arrive.
const HEADER_PATIENCE: Duration = Duration::from_secs(5);
/// The maximum duration of a connection. Browsers open a new connection after it.
const CONNECTION_LIFE: Duration = Duration::from_secs(60);
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// The maximum age of a copy of the state that is reused.
const COPY_AGE_MAX: Duration = Duration::from_millis(200);
/// The maximum time that a server may take to make a copy of its state.
const PATIENCE: Duration = Duration::from_secs(2);
/// The maximum number of rows of each table that the page shows, beside the total number.
const ROWS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_for_names_of_this_machine_get_replies() {
        let names = ["files.example.org".to_owned()];
        for host in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1:2051",
            "192.0.2.1",
            "[::1]:2051",
            "[::1]",
            "Files.Example.org:2051",
        ] {
            assert!(is_this_machine(host, &names), "{host}");
        }
        for host in ["example.org", "example.org:2051", "localhost.example.org", ""] {
            assert!(!is_this_machine(host, &names), "{host}");
        }
    }
}
