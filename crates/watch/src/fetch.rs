//! Fetches the state of a server over HTTP, for `dafs top` on another machine.
//!
//! Invariant: the bytes read from a server and the time spent on it are limited.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// Fetches `/api/status` from `http://HOST:PORT`.
///
/// # Errors
/// If there is no reply, or the peer is not a DAFS server.
pub fn status(url: &str) -> Result<Value> {
    let host = url.strip_prefix("http://").context("write http://HOST:PORT")?;
    let host = host.split('/').next().unwrap_or(host);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked = runtime.block_on(async { tokio::time::timeout(PATIENCE, ask(host)).await });
    let bytes = asked.context("no reply before the timeout").flatten();
    let bytes = bytes.with_context(|| format!("asking http://{host}/"))?;
    serde_json::from_slice(&bytes)
        .with_context(|| format!("the reply of http://{host}/ is not JSON"))
}

async fn ask(host: &str) -> Result<Bytes> {
    let stream = TcpStream::connect(host).await?;
    // Use the address as the host name: the server replies only to the names it is configured with.
    let address = stream.peer_addr()?.to_string();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let request = Request::get("/api/status")
        .header(header::HOST, address)
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    if !answer.status().is_success() {
        bail!("the reply has status {}", answer.status());
    }
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    driver.abort();
    Ok(body.map_err(|error| anyhow::anyhow!(error))?.to_bytes())
}

const PATIENCE: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: usize = 64 << 20;
