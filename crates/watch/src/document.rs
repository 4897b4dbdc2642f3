//! The JSON document of a server's state.
//!
//! Invariant: names and values keep their meaning in later versions. New names may be added.

use std::time::SystemTime;

use dafs_filer::locks::{LockCondition, LockMode};
use dafs_server::{
    FenceView, FileView, Histogram, Inspection, LockView, NfsClientNumbers, NfsNumbers,
    NfsProcedureNumbers, ProcedureNumbers, RequestNumber, RequestRecord, SessionInspection,
    TransportNumbers, WaiterView,
};
use dafs_sessions::LimitedBy;
use dafs_wire::Procedure;
use serde_json::{Map, Value, json};

/// Returns the complete state of a server as JSON.
#[must_use]
pub fn of(found: &Inspection) -> Value {
    let Inspection { stats, lock_counters, fence_counters, .. } = found;
    let bounds: Vec<f64> = Histogram::bounds().map(|bound| bound.as_secs_f64()).collect();
    json!({
        "uptime_seconds": found.uptime.as_secs_f64(),
        "procedures": found.procedures.iter().map(procedure).collect::<Vec<_>>(),
        "bucket_bounds_seconds": bounds,
        "transports": found.transports.iter().map(transport).collect::<Vec<_>>(),
        "nfs": nfs(&found.nfs),
        "fences": found.fences.iter().map(fence).collect::<Vec<_>>(),
        "fence_counters": {
            "changing": fence_counters.changing, "completed": fence_counters.completed,
            "fenced_out": fence_counters.fenced_out,
        },
        "regions": { "registered": stats.regions, "lent": stats.loans },
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
        "journal": { "records": stats.journal_records, "requests": stats.journaled_requests },
        "reactors": { "count": stats.reactors, "messages": stats.reactor_messages },
        "requests": stats.requests, "connections": stats.channels,
        "requests_parked": stats.parked_requests, "open_files": stats.open_files,
        "clients": stats.filer.clients, "opens": stats.filer.opens,
        "cache": {
            "hits": stats.cache.hit_count, "misses": stats.cache.miss_count,
            "dirty_bytes": stats.cache.dirty_bytes, "used_bytes": stats.cache.used_bytes,
            "bytes": found.cache_bytes, "files": stats.cache.file_count,
        },
    })
}

/// Returns the state with at most `rows_max` rows of each table: the busiest sessions and machines
/// of NFS clients, and the first rows of other tables. The total number of rows of each table is
/// included.
#[must_use]
pub fn shown(found: &Inspection, rows_max: usize) -> Value {
    let mut all = of(found);
    let mut counts = Map::new();
    for table in ["sessions", "locks", "waiters", "fences"] {
        let Some(rows) = all[table].as_array_mut() else { continue };
        counts.insert(table.into(), rows.len().into());
        if table == "sessions" {
            let throttled = rows.iter().filter(|row| row["throttled"] == true).count();
            counts.insert("throttled".into(), throttled.into());
            rows.sort_by_key(|row| std::cmp::Reverse(row["requests"].as_u64()));
        }
        rows.truncate(rows_max);
    }
    if let Some(machines) = all["nfs"]["clients"].as_array_mut() {
        counts.insert("nfs_clients".into(), machines.len().into());
        machines.sort_by_key(|row| std::cmp::Reverse(row["calls"].as_u64()));
        machines.truncate(rows_max);
    }
    all["counts"] = counts.into();
    all
}

fn session(session: &SessionInspection) -> Value {
    let SessionInspection { view, silent_ns, traffic, .. } = session;
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
        "silent_seconds": *silent_ns as f64 / 1e9,
        "reactor": session.reactor,
        "transport": session.transport.to_string(),
        "address": session.address.map(|address| address.to_string()),
        "requests": traffic.requests,
        "read_bytes": traffic.read_bytes, "written_bytes": traffic.written_bytes,
        "throttled": is_throttled(credits.limited_by),
        "credits": credits.credits, "credits_target": credits.target,
        "credits_desired": credits.desired, "outstanding": credits.outstanding,
        "weight": credits.weight.get(), "limited_by": limit(credits.limited_by),
    })
}

/// Returns true if the session would use more credits, but a limit or other sessions prevent that.
#[must_use]
pub fn is_throttled(limited_by: LimitedBy) -> bool {
    match limited_by {
        LimitedBy::Budget | LimitedBy::Share => true,
        LimitedBy::Desire | LimitedBy::SessionMaximum | LimitedBy::Idle | LimitedBy::Nothing => {
            false
        }
    }
}

/// Returns the name of a procedure.
#[must_use]
pub fn name(procedure: Option<Procedure>) -> &'static str {
    procedure.map_or("unknown", Procedure::name)
}

fn procedure(numbers: &ProcedureNumbers) -> Value {
    let failures: Map<String, Value> = numbers
        .failures
        .iter()
        .map(|(status, count)| (format!("{status:?}"), (*count).into()))
        .collect();
    json!({
        "procedure": name(numbers.procedure), "requests": numbers.requests,
        "failures": failures, "bytes": numbers.bytes,
        "seconds": numbers.times.sum().as_secs_f64(), "buckets": numbers.times.counts(),
    })
}

/// Describes a completed request as JSON.
#[must_use]
pub fn record(record: &RequestRecord) -> Value {
    let ended = record.ended.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (stream, sequence, xid) = match record.number {
        RequestNumber::Dafs(stream, sequence) => (Some(stream.0), Some(sequence.0), None),
        RequestNumber::Nfs(xid) => (None, None, Some(xid)),
    };
    json!({
        "time": ended.as_secs_f64(), "analyzer": format!("{:#x}", record.analyzer),
        "procedure": record.name.to_string(), "status": record.status.to_string(),
        "session": record.session.map(|session| format!("{:016x}", session.0)),
        "address": record.address.map(|address| address.to_string()),
        "transport": record.transport.to_string(), "stream": stream, "sequence": sequence,
        "xid": xid, "bytes": record.bytes, "seconds": record.taken.as_secs_f64(),
    })
}

fn nfs_procedure(one: &NfsProcedureNumbers) -> Value {
    json!({
        "program": one.program, "procedure": one.procedure, "calls": one.calls,
        "failed": one.failed, "bytes": one.bytes,
        "seconds": one.times.sum().as_secs_f64(), "buckets": one.times.counts(),
    })
}

fn nfs(found: &NfsNumbers) -> Value {
    let client = |one: &NfsClientNumbers| {
        let transports = one.connections.iter();
        json!({
            "address": one.address.to_string(), "connections": one.connections.total(),
            "transports": transports
                .map(|(transport, count)| (transport.name().to_owned(), count.into()))
                .collect::<Map<String, Value>>(),
            "calls": one.calls, "call_bytes": one.call_bytes,
            "read_bytes": one.read_bytes, "written_bytes": one.written_bytes,
        })
    };
    json!({
        "procedures": found.procedures.iter().map(nfs_procedure).collect::<Vec<_>>(),
        "clients": found.clients.iter().map(client).collect::<Vec<_>>(),
    })
}

fn transport(numbers: &TransportNumbers) -> Value {
    let traffic = numbers.traffic;
    json!({
        "transport": numbers.transport.to_string(), "connections": numbers.connections,
        "requests": traffic.requests, "read_bytes": traffic.read_bytes,
        "written_bytes": traffic.written_bytes,
    })
}

fn fence(fence: &FenceView) -> Value {
    json!({
        "file": fence.file.as_ref().map_or(Value::Null, file), "handle": hex(&fence.handle),
        "file_system": fence.file.is_none(), "let_in": fence.fence_ids,
        "waits_for": fence.waits_for,
    })
}

/// Returns the name of the limit that keeps a session from having more credits.
#[must_use]
pub fn limit(limited_by: LimitedBy) -> &'static str {
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

/// Returns the length of a range; `None` (JSON `null`) if it extends to the end of the file.
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

/// Formats bytes as text if they are valid text, else in hexadecimal.
fn readable(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && !text.chars().any(char::is_control) => text.to_owned(),
        _ => hex(bytes),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
