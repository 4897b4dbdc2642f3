//! The rates between two documents of a server.
//!
//! Invariant: no rate is negative. If the server has restarted in between, the rates are 0.

use std::collections::HashMap;

use serde_json::{Value, json};

/// The latest state document of a server, and the rates since the previous document.
#[derive(Clone, Debug)]
pub struct Rates {
    /// The latest state document, as the server sent it.
    pub now: Value,
    /// Requests per second of all sessions.
    pub requests: f64,
    /// Requests and notices per second that reactors passed to each other.
    pub messages: f64,
    /// Bytes per second that clients have read.
    pub read: f64,
    /// Bytes per second that clients have written.
    pub written: f64,
    /// The fraction of reads whose first block was in the cache; `None` if there were no reads.
    pub hits: Option<f64>,
    /// The rates of each procedure.
    pub procedures: Vec<ProcedureRate>,
    /// The rates of each session.
    pub sessions: Vec<SessionRate>,
    /// The rates of each machine of NFS clients.
    pub nfs_clients: Vec<SessionRate>,
}

/// The rates of one procedure.
#[derive(Clone, Debug)]
pub struct ProcedureRate {
    /// The name of the procedure. For NFS clients, the program and the procedure: `nfs3 READ`. A
    /// compound of version 4 has the name of its main operation.
    pub name: String,
    /// Requests of this procedure per second.
    pub requests: f64,
    /// Bytes read or written per second.
    pub bytes: f64,
    /// The median latency in seconds during the interval. If the interval had no requests, the
    /// median of all requests since the start of the server; `None` if there were none.
    pub p50: Option<f64>,
    /// The 99th percentile of the latency in seconds, over the same requests as `p50`.
    pub p99: Option<f64>,
    /// The number of requests since the start of the server.
    pub total: u64,
    /// The number of requests that failed since the start of the server.
    pub failed: u64,
}

/// The rates of one session, or of one machine of NFS clients.
#[derive(Clone, Debug)]
pub struct SessionRate {
    /// The row of the session or machine in the state document.
    pub row: Value,
    /// The number of requests per second.
    pub requests: f64,
    /// Bytes read per second.
    pub read: f64,
    /// Bytes written per second.
    pub written: f64,
}

impl Rates {
    /// Computes the rates between two documents. Without an earlier document, all rates are zero.
    #[must_use]
    pub fn between(before: Option<Value>, now: Value) -> Self {
        let is_same =
            |before: &Value| before["uptime_seconds"].as_f64() <= now["uptime_seconds"].as_f64();
        let before = before.filter(is_same).unwrap_or_else(|| now.clone());
        let uptime = |value: &Value| value["uptime_seconds"].as_f64().unwrap_or(0.0);
        let seconds = (uptime(&now) - uptime(&before)).max(1e-3);
        let sum = |key: &str| {
            let all = |value: &Value| rows(value, "transports").map(|row| number(row, key)).sum();
            let (now, before): (u64, u64) = (all(&now), all(&before));
            now.saturating_sub(before) as f64 / seconds
        };
        let cache = |key: &str| {
            number(&now["cache"], key).saturating_sub(number(&before["cache"], key)) as f64
        };
        let (hits, misses) = (cache("hits"), cache("misses"));
        let messages = |value: &Value| number(&value["reactors"], "messages");
        Self {
            requests: sum("requests"),
            messages: messages(&now).saturating_sub(messages(&before)) as f64 / seconds,
            read: sum("read_bytes"),
            written: sum("written_bytes"),
            hits: (hits + misses > 0.0).then(|| hits / (hits + misses)),
            procedures: procedures(&before, &now, seconds),
            sessions: traffic((&before, &now), ("sessions", "session", "requests"), seconds),
            nfs_clients: traffic(
                (&before["nfs"], &now["nfs"]),
                ("clients", "address", "calls"),
                seconds,
            ),
            now,
        }
    }

    /// Returns the document as JSON, with the rates added as `rates`, for scripts.
    #[must_use]
    pub fn document(&self) -> Value {
        let procedures = self.procedures.iter().map(|rate| {
            json!({
                "procedure": rate.name, "requests_per_second": rate.requests,
                "bytes_per_second": rate.bytes, "p50_seconds": rate.p50,
                "p99_seconds": rate.p99,
            })
        });
        let sessions = self.sessions.iter().map(|rate| {
            json!({
                "session": rate.row["session"], "requests_per_second": rate.requests,
                "read_bytes_per_second": rate.read, "written_bytes_per_second": rate.written,
            })
        });
        let nfs_clients = self.nfs_clients.iter().map(|rate| {
            json!({
                "address": rate.row["address"], "calls_per_second": rate.requests,
                "read_bytes_per_second": rate.read, "written_bytes_per_second": rate.written,
            })
        });
        let mut document = self.now.clone();
        document["rates"] = json!({
            "requests_per_second": self.requests,
            "reactor_messages_per_second": self.messages, "read_bytes_per_second": self.read,
            "written_bytes_per_second": self.written, "cache_hit_share": self.hits,
            "procedures": procedures.collect::<Vec<_>>(),
            "sessions": sessions.collect::<Vec<_>>(),
            "nfs_clients": nfs_clients.collect::<Vec<_>>(),
        });
        document
    }
}

/// Returns the rates of the procedures of DAFS, then of NFS.
fn procedures(before: &Value, now: &Value, seconds: f64) -> Vec<ProcedureRate> {
    let bounds: Vec<f64> = floats(&now["bucket_bounds_seconds"]);
    let name = |row: &Value| row["procedure"].as_str().unwrap_or("?").to_owned();
    let failures = |row: &Value| {
        let failures = row["failures"].as_object();
        failures.into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum()
    };
    let old = by(before, "procedures", "procedure");
    let of_dafs = rows(now, "procedures").map(|row| {
        let name = name(row);
        let before = old.get(name.as_str()).copied().unwrap_or(&Value::Null);
        rate(name, (before, row), failures(row), &bounds, seconds)
    });
    let nfs_name =
        |row: &Value| format!("{} {}", row["program"].as_str().unwrap_or("nfs"), name(row));
    let old_nfs: HashMap<String, &Value> =
        rows(&before["nfs"], "procedures").map(|row| (nfs_name(row), row)).collect();
    // Operations that were never the main one of a compound have no times.
    let is_timed = |row: &&Value| counts(&row["buckets"]).iter().any(|count| *count > 0);
    let of_nfs = rows(&now["nfs"], "procedures").filter(is_timed).map(|row| {
        let name = nfs_name(row);
        let before = old_nfs.get(&name).copied().unwrap_or(&Value::Null);
        rate(name, (before, row), number(row, "failed"), &bounds, seconds)
    });
    of_dafs.chain(of_nfs).collect()
}

/// Returns the rates of one procedure between two rows.
fn rate(
    name: String,
    (before, now): (&Value, &Value),
    failed: u64,
    bounds: &[f64],
    seconds: f64,
) -> ProcedureRate {
    let all = counts(&now["buckets"]);
    let earlier = counts(&before["buckets"]).into_iter().chain(std::iter::repeat(0));
    let lately: Vec<u64> =
        all.iter().zip(earlier).map(|(now, before)| now.saturating_sub(before)).collect();
    let buckets = if lately.iter().any(|count| *count > 0) { &lately } else { &all };
    // Rows of NFS count operations, of which a compound has several.
    let requests = |row: &Value| match row["requests"].as_u64() {
        Some(requests) => requests,
        None => counts(&row["buckets"]).iter().sum(),
    };
    let bytes = number(now, "bytes").saturating_sub(number(before, "bytes"));
    ProcedureRate {
        requests: requests(now).saturating_sub(requests(before)) as f64 / seconds,
        bytes: bytes as f64 / seconds,
        p50: quantile(0.5, buckets, bounds),
        p99: quantile(0.99, buckets, bounds),
        total: requests(now),
        failed,
        name,
    }
}

/// Returns the rates of the rows of a table between two documents. `table` is the table's name, the
/// name of its key, and the name of its count of requests.
fn traffic(
    (before, now): (&Value, &Value),
    (table, key, requests): (&str, &str, &str),
    seconds: f64,
) -> Vec<SessionRate> {
    let old = by(before, table, key);
    let rate = |row: &Value| {
        let other = row[key].as_str().and_then(|id| old.get(id).copied());
        let since = |key: &str| {
            let earlier = other.map_or(0, |other| number(other, key));
            number(row, key).saturating_sub(earlier) as f64 / seconds
        };
        SessionRate {
            requests: since(requests),
            read: since("read_bytes"),
            written: since("written_bytes"),
            row: row.clone(),
        }
    };
    rows(now, table).map(rate).collect()
}

/// Returns the `part` quantile of the latencies in seconds, from the counts of histogram buckets.
/// Returns `None` if all counts are zero.
#[must_use]
pub fn quantile(part: f64, buckets: &[u64], bounds: &[f64]) -> Option<f64> {
    let all: u64 = buckets.iter().sum();
    let wanted = part * all as f64;
    let mut below = 0.0;
    for (index, &count) in buckets.iter().enumerate() {
        let count = count as f64;
        if count > 0.0 && below + count >= wanted {
            let Some(&upper) = bounds.get(index) else { return bounds.last().copied() };
            let lower = index.checked_sub(1).map_or(upper / 2.0, |below| bounds[below]);
            // Interpolate geometrically between the bounds.
            return Some(lower * (upper / lower).powf((wanted - below) / count));
        }
        below += count;
    }
    None
}

pub(super) fn rows<'v>(value: &'v Value, table: &str) -> impl Iterator<Item = &'v Value> {
    value[table].as_array().into_iter().flatten()
}

pub(super) fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}

fn by<'v>(value: &'v Value, table: &str, key: &str) -> HashMap<&'v str, &'v Value> {
    rows(value, table).filter_map(|row| Some((row[key].as_str()?, row))).collect()
}

fn counts(value: &Value) -> Vec<u64> {
    value.as_array().into_iter().flatten().map(|count| count.as_u64().unwrap_or(0)).collect()
}

fn floats(value: &Value) -> Vec<f64> {
    value.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_within_their_bucket() {
        let bounds = [1.0, 2.0, 4.0];
        assert_eq!(quantile(0.5, &[0, 0, 0, 0], &bounds), None);
        assert_eq!(quantile(1.0, &[0, 10, 0, 0], &bounds), Some(2.0));
        let half = quantile(0.5, &[0, 10, 0, 0], &bounds).unwrap();
        assert!((half - 2.0_f64.sqrt()).abs() < 1e-9, "{half}");
        assert_eq!(quantile(0.99, &[0, 0, 0, 3], &bounds), Some(4.0));
    }

    #[test]
    fn the_counters_of_a_restarted_server_start_from_zero() {
        let document = |uptime: f64, requests: u64| {
            json!({
                "uptime_seconds": uptime,
                "transports": [{ "transport": "tcp", "requests": requests }],
                "cache": { "hits": requests, "misses": 0 },
            })
        };
        let rates = Rates::between(Some(document(10.0, 100)), document(12.0, 300));
        assert_eq!((rates.requests, rates.hits), (100.0, Some(1.0)));
        let rates = Rates::between(Some(document(10.0, 100)), document(1.0, 3));
        assert_eq!((rates.requests, rates.hits), (0.0, None));
    }
}
