//! `dafs sessions`: who is connected, and what keeps them from going faster.

use anyhow::Result;
use clap::Args;

use super::{Target, ask, number, text};

/// Arguments of `dafs sessions`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let found = ask(&arguments.target)?;
    if arguments.target.json {
        println!("{found:#}");
        return Ok(());
    }
    let sessions = found["sessions"].as_array().map_or(&[][..], Vec::as_slice);
    println!(
        "{:<16} {:<24} {:<16} {:>5} {:>9} {:>9} {:>6}  {:<24} {:>8}",
        "session",
        "client",
        "principal",
        "opens",
        "credits",
        "in flight",
        "weight",
        "limited by",
        "silent s"
    );
    for session in sessions {
        println!(
            "{:<16} {:<24} {:<16} {:>5} {:>9} {:>9} {:>6}  {:<24} {:>8.1}",
            text(session, "session"),
            text(session, "client"),
            text(session, "principal"),
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
        "{} sessions; {} of {} credits given",
        sessions.len(),
        number(credits, "given"),
        number(credits, "budget")
    );
    if found["in_grace"].as_bool() == Some(true) {
        println!("clients are taking back what they held before a restart; nothing new is granted");
    }
    Ok(())
}
