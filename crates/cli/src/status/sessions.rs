//! `dafs sessions`: shows the connected clients, and what limits their speed.

use anyhow::Result;
use serde_json::Value;

use super::{Target, number, print, text};

pub(crate) fn run(target: &Target) -> Result<()> {
    print(target, print_table)
}

fn print_table(found: &Value) {
    let sessions = found["sessions"].as_array().map_or(&[][..], Vec::as_slice);
    println!(
        "{:<16} {:<24} {:<16} {:>7} {:>5} {:>9} {:>9} {:>6}  {:<24} {:>8}",
        "session",
        "client",
        "principal",
        "reactor",
        "opens",
        "credits",
        "in flight",
        "weight",
        "limited by",
        "silent s"
    );
    for session in sessions {
        println!(
            "{:<16} {:<24} {:<16} {:>7} {:>5} {:>9} {:>9} {:>6}  {:<24} {:>8.1}",
            text(session, "session"),
            text(session, "client"),
            text(session, "principal"),
            number(session, "reactor"),
            number(session, "opens"),
            format!("{}/{}", number(session, "credits"), number(session, "credits_target")),
            number(session, "outstanding"),
            number(session, "weight"),
            text(session, "limited_by"),
            session["silent_seconds"].as_f64().unwrap_or(0.0),
        );
    }
    let credits = &found["credits"];
    println!(
        "{} sessions; {} of {} credits granted; {} reactors",
        sessions.len(),
        number(credits, "given"),
        number(credits, "budget"),
        number(&found["reactors"], "count")
    );
    for client in found["nfs"]["clients"].as_array().into_iter().flatten() {
        let transports = client["transports"].as_object().into_iter().flatten();
        let transports: Vec<_> =
            transports.map(|(name, count)| format!("{count} {name}")).collect();
        println!(
            "NFS client {}: {} connections ({}), {} calls, {} bytes read, {} bytes written",
            text(client, "address"),
            number(client, "connections"),
            transports.join(", "),
            number(client, "calls"),
            number(client, "read_bytes"),
            number(client, "written_bytes")
        );
    }
    if found["in_grace"].as_bool() == Some(true) {
        println!(
            "grace period: clients reclaim their opens and locks after a restart; no new \
        ones are granted"
        );
    }
}
