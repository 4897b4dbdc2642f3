//! The JSON document of a server's state.
//!
//! Invariant: names and numbers have the same meaning in later versions; new ones may come.

use dafs_filer::locks::{LockCondition, LockMode};
use dafs_filer::{LimitedBy, SessionView};
use dafs_server::{FileView, Inspection, LockView, WaiterView};
use serde_json::{Value, json};

pub fn of(found: &Inspection) -> Value {
    let Inspection { stats, lock_counters, .. } = found;
    json!({
        "sessions": found.sessions.iter().map(session).collect::<Vec<_>>(),
        "locks": found.locks.iter().map(lock).collect::<Vec<_>>(),
        "waiters": found.waiters.iter().map(waiter).collect::<Vec<_>>(),
        "in_grace": found.is_in_grace,
        "credits": { "budget": found.credits.0, "given": found.credits.1 },
        "lock_counters": {
            "granted": lock_counters.granted, "denied": lock_counters.denied,
            "broken": lock_counters.broken, "repaired": lock_counters.repaired,
            "deadlocks": lock_counters.deadlocks, "rollbacks": lock_counters.rollbacks,
            "rollbacks_running": lock_counters.rollbacks_running,
        },
        "requests": stats.requests, "connections": stats.channels,
        "requests_parked": stats.parked_requests, "open_files": stats.open_files,
        "clients": stats.filer.clients, "opens": stats.filer.opens,
        "cache": {
            "hits": stats.cache.hit_count, "misses": stats.cache.miss_count,
            "dirty_octets": stats.cache.dirty_bytes, "used_octets": stats.cache.used_bytes,
        },
    })
}

fn session((view, silent): &(SessionView, u64)) -> Value {
    let credits = &view.credits;
    json!({
        "session": format!("{:016x}", credits.session.0),
        "client": readable(&view.client_name),
        "client_id": view.client.0,
        "principal": view.principal,
        "fence_id": view.fence_id,
        "opens": view.opens,
        "keeps_results": view.keeps_results,
        "back_control": view.has_back_control,
        "silent_seconds": *silent as f64 / 1e9,
        "credits": credits.credits, "credits_target": credits.target,
        "credits_desired": credits.desired, "outstanding": credits.outstanding,
        "weight": credits.weight.get(), "limited_by": limit(credits.limited_by),
    })
}

/// Which limit keeps a session from more.
fn limit(limited_by: LimitedBy) -> &'static str {
    match limited_by {
        LimitedBy::Desire => "its own wish",
        LimitedBy::SessionMaximum => "the session's maximum",
        LimitedBy::Budget => "the server's budget",
        LimitedBy::Share => "its share of the budget",
        LimitedBy::Idle => "idleness",
        LimitedBy::Nothing => "nothing",
    }
}

fn lock(lock: &LockView) -> Value {
    json!({
        "file": file(&lock.file), "client": readable(&lock.client_name),
        "client_id": lock.client.0, "owner": readable(&lock.owner),
        "offset": lock.offset, "length": length(lock.length), "mode": mode(lock.mode),
        "persistent": lock.persist, "auto_recovery": lock.auto_recovery,
        "condition": condition(lock.condition),
    })
}

fn waiter(waiter: &WaiterView) -> Value {
    let waits_for: Vec<u64> = waiter.waits_for.iter().map(|client| client.0).collect();
    json!({
        "file": file(&waiter.file), "client_id": waiter.client.0,
        "owner": readable(&waiter.owner), "offset": waiter.offset,
        "length": length(waiter.length), "mode": mode(waiter.mode), "waits_for": waits_for,
    })
}

fn file(view: &FileView) -> Value {
    let handle = || view.handle.map(|handle| hex(&handle.0));
    view.place.clone().or_else(handle).map_or(Value::Null, Value::String)
}

/// `null` to the end of the file.
fn length(length: u64) -> Option<u64> {
    (length != u64::MAX).then_some(length)
}

fn mode(mode: LockMode) -> &'static str {
    match mode {
        LockMode::Read => "shared",
        LockMode::Write => "exclusive",
    }
}

fn condition(condition: LockCondition) -> &'static str {
    match condition {
        LockCondition::Held => "held",
        LockCondition::Unclaimed => "unclaimed",
        LockCondition::Breakable => "breakable",
        LockCondition::Broken => "broken",
        LockCondition::RollingBack => "rolling back",
    }
}

/// Text if it is, octets if it is not.
fn readable(octets: &[u8]) -> String {
    match std::str::from_utf8(octets) {
        Ok(text) if !text.is_empty() && !text.chars().any(char::is_control) => text.to_owned(),
        _ => hex(octets),
    }
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}
