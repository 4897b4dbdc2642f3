//! `dafs follow`: shows the requests of a running server one by one, as they are answered.
//!
//! Invariant: a follower (a connection that receives records of requests) costs the server at most
//! one record in a bounded queue per request. Records that do not fit are counted, and the count is
//! reported.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use dafs_client::Label;
use dafs_server::{Followed, Inspector, Selection};
use dafs_types::SessionId;
use dafs_watch::document;
use serde_json::{Value, json};

use super::{asking, number, reach, text};
use crate::terminal_text;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The server's socket for shared memory, as `dafs serve` prints it. Default: the usual places
    /// for port 2050.
    #[arg(value_name = "SOCKET")]
    socket: Option<PathBuf>,
    /// Show only requests with this hexadecimal label (`dafs --label`, `Session::set_label`). A
    /// value of more than 10 digits is compared with the whole analyzer field.
    #[arg(long, value_name = "HEX", value_parser = hexadecimal)]
    label: Option<u64>,
    /// Show only requests of this session, as `dafs sessions` names it. NFS clients have none.
    #[arg(long, value_name = "HEX", value_parser = hexadecimal)]
    session: Option<u64>,
    /// Show only requests that took at least this many milliseconds.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 0.0)]
    slower_than: f64,
    /// Show only requests that failed.
    #[arg(long)]
    failed: bool,
    /// Stop after this many requests.
    #[arg(long, value_name = "NUMBER")]
    count: Option<u64>,
    /// Print JSON, one line per request.
    #[arg(long)]
    json: bool,
}

fn hexadecimal(text: &str) -> Result<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16)
        .with_context(|| format!("{text:?} is not a hexadecimal number"))
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if !(0.0..=1e9).contains(&arguments.slower_than) {
        bail!("--slower-than {}: give milliseconds", arguments.slower_than);
    }
    let (mut stream, path) = reach(arguments.socket.as_deref())?;
    let asking = || asking(&path);
    let asked = json!({
        "follow": true, "label": arguments.label, "session": arguments.session,
        "slower_than_ms": arguments.slower_than, "failed": arguments.failed,
    });
    writeln!(stream, "{asked}").with_context(asking)?;
    if !arguments.json {
        println!(
            "{:<13} {:<18} {:<18} {:<10} {:<16} {:<5} {:>9} {:>11}",
            "at", "analyzer", "procedure", "status", "session", "by", "bytes", "µs"
        );
    }
    let mut shown = 0;
    for line in BufReader::new(stream).lines() {
        let line = line.context("the server has ended")?;
        let found: Value = serde_json::from_str(&line).context("the server did not send JSON")?;
        if let Some(dropped) = found["dropped"].as_u64() {
            eprintln!("dafs: {dropped} requests so far were dropped, because they came too fast");
            continue;
        }
        if found["following"] == true {
            eprintln!("dafs: following");
            continue;
        }
        let printed = if arguments.json {
            writeln!(std::io::stdout(), "{}", terminal_text::one_line(&found))
        } else {
            writeln!(std::io::stdout(), "{}", row(&found))
        };
        printed?;
        shown += 1;
        if arguments.count.is_some_and(|count| shown >= count) {
            return Ok(());
        }
    }
    Ok(())
}

fn row(found: &Value) -> String {
    let time = found["time"].as_f64().unwrap_or(0.0);
    format!(
        "{:<13.2} {:<18} {:<18} {:<10} {:<16} {:<5} {:>9} {:>11.1}",
        time,
        text(found, "analyzer"),
        text(found, "procedure"),
        text(found, "status"),
        // An NFS client has no session, and is named by its address.
        text(found, if found["session"].is_null() { "address" } else { "session" }),
        text(found, "transport"),
        number(found, "bytes"),
        found["seconds"].as_f64().unwrap_or(0.0) * 1e6,
    )
}

/// Starts a thread that sends records of requests to a follower. `asked` is the selection as JSON.
pub(super) fn begin(asked: &str, stream: UnixStream, inspector: &Inspector) -> std::io::Result<()> {
    let Some(selection) = serde_json::from_str(asked).ok().and_then(|value| understand(&value))
    else {
        return (&stream).write_all(b"{\"error\":\"the request is not a valid selection\"}\n");
    };
    let Some(place) = Place::take() else {
        return (&stream).write_all(
            b"{\"error\":\"too many clients follow this server \
        already\"}\n",
        );
    };
    let followed = inspector.follow(selection, RECORDS_MAX);
    // When this call returns, the reactor knows the new queue.
    let _ = inspector.look(super::PATIENCE);
    let told = std::thread::Builder::new().name("dafs-follow".into()).spawn(move || {
        let _place = place;
        let _ = tell(&stream, &followed);
    });
    told.map(drop)
}

fn understand(asked: &Value) -> Option<Selection> {
    asked["follow"].as_bool().filter(|follow| *follow)?;
    let slower_than = asked["slower_than_ms"].as_f64().unwrap_or(0.0) / 1e3;
    Some(Selection {
        analyzer: asked["label"].as_u64().map(|label| match Label::new(label) {
            Some(label) => (label.get(), u64::MAX >> (64 - Label::BITS)),
            None => (label, u64::MAX),
        }),
        session: asked["session"].as_u64().map(SessionId),
        slower_than: Duration::try_from_secs_f64(slower_than).ok()?,
        failed_only: asked["failed"] == true,
        one_in: 1,
    })
}

fn tell(mut stream: &UnixStream, followed: &Followed) -> std::io::Result<()> {
    stream.write_all(b"{\"following\":true}\n")?;
    stream.set_read_timeout(Some(PAUSE))?;
    let mut dropped = 0;
    loop {
        let mut lines = Vec::new();
        while lines.len() < BURST_BYTES_MAX
            && let Some(record) = followed.take().map_err(std::io::Error::other)?
        {
            writeln!(lines, "{}", document::record(&record))?;
        }
        if followed.dropped() > dropped {
            dropped = followed.dropped();
            writeln!(lines, "{}", json!({ "dropped": dropped }))?;
        }
        stream.write_all(&lines)?;
        // Pause, but end immediately if the follower closes the connection.
        match stream.read(&mut [0]) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
}

/// A slot for one follower; their number is limited. Dropping the value releases the slot, however
/// the thread ends.
struct Place;

impl Place {
    fn take() -> Option<Self> {
        // If there are too many followers, dropping this value releases the slot.
        let taken = Self;
        (FOLLOWERS.fetch_add(1, Ordering::Relaxed) < FOLLOWERS_MAX).then_some(taken)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        FOLLOWERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The current number of followers.
static FOLLOWERS: AtomicUsize = AtomicUsize::new(0);
const FOLLOWERS_MAX: usize = 8;
/// The maximum number of queued records per follower.
const RECORDS_MAX: usize = 16 * 1024;
/// The maximum number of bytes per write.
const BURST_BYTES_MAX: usize = 1 << 20;
/// The pause between two checks for records.
const PAUSE: Duration = Duration::from_millis(20);
