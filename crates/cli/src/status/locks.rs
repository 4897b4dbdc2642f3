//! `dafs locks`: shows which client holds which lock, which client waits for which other, and which
//! locks are broken.

use anyhow::Result;
use serde_json::Value;

use super::{Target, number, print, text};

pub(crate) fn run(target: &Target) -> Result<()> {
    print(target, print_table)
}

fn print_table(found: &Value) {
    println!("{:<10} {:<6} {:<14} {:<24} {:>25}  file", "mode", "kept", "is", "client", "bytes");
    for lock in found["locks"].as_array().into_iter().flatten() {
        println!(
            "{:<10} {:<6} {:<14} {:<24} {:>25}  {}",
            text(lock, "mode"),
            options(lock),
            text(lock, "condition"),
            text(lock, "client"),
            range(lock),
            text(lock, "file"),
        );
    }
    for waiter in found["waiters"].as_array().into_iter().flatten() {
        println!(
            "{:<10} {:<6} {:<14} {:<24} {:>25}  {}",
            text(waiter, "mode"),
            "",
            "waits",
            format!("client {}", number(waiter, "client_id")),
            range(waiter),
            text(waiter, "file"),
        );
    }
}

/// Returns the options of a lock as letters: P for persistent, A for auto-recovery.
fn options(lock: &Value) -> String {
    let is = |key: &str| lock[key].as_bool() == Some(true);
    [("persistent", 'P'), ("auto_recovery", 'A')]
        .into_iter()
        .filter_map(|(key, letter)| is(key).then_some(letter))
        .collect()
}

fn range(lock: &Value) -> String {
    let offset = number(lock, "offset");
    match lock["length"].as_u64() {
        Some(length) => format!("{offset}..{}", offset.saturating_add(length)),
        None => format!("{offset}.."),
    }
}
