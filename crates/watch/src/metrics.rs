//! The metrics of a server in the text format of Prometheus.
//!
//! Invariant: a metric keeps its name, its meaning and its unit in later versions. Procedures,
//! transports and limits are labels, all taken from tables of the server.

use std::collections::BTreeMap;
use std::sync::Arc;

use dafs_server::{Histogram, Inspection, NfsConnections, NfsProcedureNumbers, NfsTransport};
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram as HistogramData, LabelPair, Metric, MetricFamily, MetricType,
};

use crate::document;
use crate::otlp::SpanNumbers;

/// Returns the contents of `/metrics`. `spans` are the counters of exported spans, if any.
///
/// # Errors
/// An error of the encoder. The encoder accepts all names and labels used here, so none is
/// expected.
pub fn text(found: &Inspection, spans: Option<&Arc<SpanNumbers>>) -> prometheus::Result<String> {
    let mut families = Families::default();
    server(&mut families, found);
    requests(&mut families, found);
    sessions(&mut families, found);
    transports(&mut families, found);
    nfs(&mut families, found);
    cache(&mut families, found);
    locks(&mut families, found);
    if let Some(spans) = spans {
        families
            .counter("dafs_trace_spans_exported_total", "Spans accepted by the collector.")
            .add(&[], spans.exported() as f64);
        families
            .counter(
                "dafs_trace_spans_dropped_total",
                "Spans lost because the queue was full or the collector did not accept them.",
            )
            .add(&[], spans.dropped() as f64);
    }
    // A metric without samples is an error for the encoder.
    families.0.retain(|family| !family.get_metric().is_empty());
    prometheus::TextEncoder::new().encode_to_string(&families.0)
}

fn server(families: &mut Families, found: &Inspection) {
    let stats = &found.stats;
    let info = [("version", env!("CARGO_PKG_VERSION"))];
    families
        .gauge("dafs_build_info", "Always 1; the label is the server's version.")
        .add(&info, 1.0);
    let mut gauge = |name, help, value: f64| {
        families.gauge(name, help).add(&[], value);
    };
    gauge("dafs_uptime_seconds", "Seconds since the server's start.", found.uptime.as_secs_f64());
    let in_grace = f64::from(u8::from(found.is_in_grace));
    gauge("dafs_in_grace", "1 during the grace period after a restart, else 0.", in_grace);
    gauge("dafs_opens", "Opens of all clients.", f64::from(stats.filer.opens));
    gauge("dafs_open_files", "Files with at least one open.", stats.open_files as f64);
    let reactors = stats.reactors as f64;
    gauge("dafs_reactors", "Threads that serve connections.", reactors);
    let parked = stats.parked_requests as f64;
    gauge("dafs_requests_parked", "Requests waiting for disks, transfers or locks.", parked);
    let journaled = stats.journaled_requests as f64;
    gauge("dafs_requests_journaled", "Requests waiting for the journal.", journaled);
    let batched = stats.batched_requests as f64;
    gauge(
        "dafs_requests_batched",
        "Batch requests whose completion was not reported yet.",
        batched,
    );
    let regions = stats.regions as f64;
    gauge("dafs_regions", "Memory regions registered with transports.", regions);
    gauge(
        "dafs_regions_lent",
        "Memory ranges that transports are reading now.",
        stats.loans as f64,
    );
    gauge("dafs_undo_files", "Files with undo data.", stats.undone_files as f64);
    let held = stats.held_requests as f64;
    gauge("dafs_requests_held", "Requests waiting for delegations to be returned.", held);
    families
        .counter("dafs_reactor_messages_total", "Requests and notices passed between reactors.")
        .add(&[], stats.reactor_messages as f64);
}

fn requests(families: &mut Families, found: &Inspection) {
    let all =
        || found.procedures.iter().map(|numbers| (document::name(numbers.procedure), numbers));
    let mut family = families.counter("dafs_requests_total", "Replies sent.");
    for (procedure, numbers) in all() {
        let failed: u64 = numbers.failures.iter().map(|(_, count)| count).sum();
        let succeeded = numbers.requests.saturating_sub(failed);
        family.add(&[("procedure", procedure), ("status", "Ok")], succeeded as f64);
        for (status, count) in &numbers.failures {
            let status = format!("{status:?}");
            family.add(&[("procedure", procedure), ("status", &status)], *count as f64);
        }
    }
    let mut family =
        families.counter("dafs_request_bytes_total", "File data moved by requests, in bytes.");
    for (procedure, numbers) in all().filter(|(_, numbers)| numbers.bytes > 0) {
        family.add(&[("procedure", procedure)], numbers.bytes as f64);
    }
    let mut family = families
        .histogram("dafs_request_duration_seconds", "Time from a request's arrival to its reply.");
    for (procedure, numbers) in all() {
        family.add_times(&[("procedure", procedure)], &numbers.times);
    }
}

fn sessions(families: &mut Families, found: &Inspection) {
    let counters = &found.stats.sessions;
    let clients = found.stats.filer.clients;
    families
        .gauge("dafs_sessions", "Authenticated sessions.")
        .add(&[], found.sessions.len() as f64);
    families.gauge("dafs_clients", "Known clients.").add(&[], f64::from(clients));
    let mut limited: BTreeMap<&str, usize> = LIMITS.iter().map(|limit| (*limit, 0)).collect();
    for session in &found.sessions {
        *limited.entry(document::limit(session.view.credits.limited_by)).or_default() += 1;
    }
    let help = "Sessions by the limit on their credits.";
    let mut family = families.gauge("dafs_sessions_limited", help);
    for (limit, count) in limited {
        family.add(&[("by", limit)], count as f64);
    }
    let outstanding: u64 =
        found.sessions.iter().map(|s| u64::from(s.view.credits.outstanding)).sum();
    let (budget, given) = (f64::from(found.credits.0), f64::from(found.credits.1));
    families
        .gauge("dafs_credits_budget", "Credits available to all sessions together.")
        .add(&[], budget);
    families.gauge("dafs_credits_given", "Credits granted to sessions.").add(&[], given);
    families.gauge("dafs_credits_used", "Requests in flight.").add(&[], outstanding as f64);
    let refused = counters.channels_refused + counters.connects_refused;
    families
        .counter("dafs_connections_refused_total", "Connections and sessions refused.")
        .add(&[], refused as f64);
    families
        .counter("dafs_authentications_refused_total", "Authentications refused.")
        .add(&[], counters.authentications_refused as f64);
    let breaks = counters.breaks_credits + counters.breaks_stream + counters.breaks_closing;
    families
        .counter(
            "dafs_connections_broken_total",
            "Connections broken because the client violated the credit rules.",
        )
        .add(&[], breaks as f64);
}

fn transports(families: &mut Families, found: &Inspection) {
    let names: Vec<String> = found.transports.iter().map(|t| t.transport.to_string()).collect();
    let all = || names.iter().map(String::as_str).zip(&found.transports);
    let mut family = families.gauge("dafs_connections", "Open connections.");
    for (name, numbers) in all() {
        family.add(&[("transport", name)], numbers.connections as f64);
    }
    let mut family = families.counter("dafs_transport_requests_total", "Replies sent.");
    for (name, numbers) in all() {
        family.add(&[("transport", name)], numbers.traffic.requests as f64);
    }
    let mut family = families.counter("dafs_transport_bytes_total", "File data moved, in bytes.");
    for (name, numbers) in all() {
        let traffic = numbers.traffic;
        family.add(&[("transport", name), ("direction", "read")], traffic.read_bytes as f64);
        family.add(&[("transport", name), ("direction", "write")], traffic.written_bytes as f64);
    }
}

fn nfs(families: &mut Families, found: &Inspection) {
    let labels = |numbers: &NfsProcedureNumbers| {
        [("program", numbers.program), ("procedure", numbers.procedure)]
    };
    let help = "Calls of NFS clients; for version 4, the operations in compounds.";
    let mut family = families.counter("dafs_nfs_calls_total", help);
    for numbers in &found.nfs.procedures {
        family.add(&labels(numbers), numbers.calls as f64);
    }
    let replied = || found.nfs.procedures.iter().filter(|numbers| numbers.times.count() > 0);
    let help = "Replies to NFS clients that report a failure; for version 4, by main operation.";
    let mut family = families.counter("dafs_nfs_failures_total", help);
    for numbers in replied().filter(|numbers| numbers.failed > 0) {
        family.add(&labels(numbers), numbers.failed as f64);
    }
    let help = "File data moved by calls of NFS clients, in bytes.";
    let mut family = families.counter("dafs_nfs_bytes_total", help);
    for numbers in replied().filter(|numbers| numbers.bytes > 0) {
        family.add(&labels(numbers), numbers.bytes as f64);
    }
    let help = "Time from a call's arrival to its reply; for version 4, by main operation.";
    let mut family = families.histogram("dafs_nfs_duration_seconds", help);
    for numbers in replied() {
        family.add_times(&labels(numbers), &numbers.times);
    }
    families
        .gauge("dafs_nfs_clients", "Machines that are connected as NFS clients.")
        .add(&[], found.nfs.clients.len() as f64);
    let mut all = NfsConnections::default();
    found.nfs.clients.iter().for_each(|client| all.add(&client.connections));
    let mut family =
        families.gauge("dafs_nfs_connections", "Connections of NFS clients, by transport.");
    for transport in NfsTransport::ALL {
        family.add(&[("transport", transport.name())], all.over(transport) as f64);
    }
}

fn cache(families: &mut Families, found: &Inspection) {
    let cache = &found.stats.cache;
    for (name, help, value) in [
        ("dafs_cache_size_bytes", "Size of the data cache in bytes.", found.cache_bytes),
        ("dafs_cache_used_bytes", "Cache bytes in use.", cache.used_bytes),
        ("dafs_cache_dirty_bytes", "Cache bytes not yet written to files.", cache.dirty_bytes),
        ("dafs_cache_files", "Files in the cache.", cache.file_count),
    ] {
        families.gauge(name, help).add(&[], value as f64);
    }
    for (name, help, value) in [
        ("dafs_cache_hits_total", "Reads served from the data cache.", cache.hit_count),
        ("dafs_cache_misses_total", "Reads whose first block was missing.", cache.miss_count),
        ("dafs_cache_hit_bytes_total", "Bytes served from the cache.", cache.hit_bytes),
        ("dafs_cache_fill_bytes_total", "Bytes read from files.", cache.fill_bytes),
        ("dafs_cache_write_bytes_total", "Bytes written into the cache.", cache.write_bytes),
        ("dafs_cache_flush_bytes_total", "Bytes written to files.", cache.flush_bytes),
        ("dafs_cache_evictions_total", "Blocks evicted from the cache.", cache.evicted_block_count),
        ("dafs_cache_lost_bytes_total", "Bytes lost to write errors.", cache.lost_bytes),
    ] {
        families.counter(name, help).add(&[], value as f64);
    }
}

fn locks(families: &mut Families, found: &Inspection) {
    let (locks, fences) = (&found.lock_counters, &found.fence_counters);
    for (name, help, value) in [
        ("dafs_locks", "Locks, including broken ones.", locks.locks),
        ("dafs_lock_waiters", "Requests waiting for locks.", locks.waiters),
        ("dafs_lock_rollbacks", "Rollbacks running now.", locks.rollbacks_running),
        ("dafs_fences", "Files and file systems with a fence.", fences.objects),
        ("dafs_fence_changes", "Fence changes in progress.", fences.changing),
    ] {
        families.gauge(name, help).add(&[], f64::from(value));
    }
    for (name, help, value) in [
        ("dafs_locks_granted_total", "Locks granted.", locks.granted),
        ("dafs_locks_denied_total", "Locks denied.", locks.denied),
        ("dafs_lock_deadlocks_total", "Locks refused because of a deadlock.", locks.deadlocks),
        ("dafs_locks_broken_total", "Locks that broke.", locks.broken),
        ("dafs_locks_repaired_total", "Broken locks that were repaired.", locks.repaired),
        ("dafs_fence_changes_total", "Fence changes completed.", fences.completed),
        ("dafs_fenced_out_total", "Operations refused by a fence.", fences.fenced_out),
    ] {
        families.counter(name, help).add(&[], value as f64);
    }
}

/// The metrics to encode.
#[derive(Default)]
struct Families(Vec<MetricFamily>);

/// One metric with all its labels.
struct Family<'a>(&'a mut MetricFamily);

impl Families {
    fn counter(&mut self, name: &str, help: &str) -> Family<'_> {
        self.family(name, help, MetricType::COUNTER)
    }

    fn gauge(&mut self, name: &str, help: &str) -> Family<'_> {
        self.family(name, help, MetricType::GAUGE)
    }

    fn histogram(&mut self, name: &str, help: &str) -> Family<'_> {
        self.family(name, help, MetricType::HISTOGRAM)
    }

    fn family(&mut self, name: &str, help: &str, kind: MetricType) -> Family<'_> {
        let mut family = MetricFamily::default();
        family.set_name(name.into());
        family.set_help(help.into());
        family.set_field_type(kind);
        self.0.push(family);
        let last = self.0.len() - 1;
        Family(&mut self.0[last])
    }
}

impl Family<'_> {
    fn add(&mut self, labels: &[(&str, &str)], value: f64) {
        let mut metric = Metric::from_label(pairs(labels));
        if self.0.get_field_type() == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        self.0.mut_metric().push(metric);
    }

    fn add_times(&mut self, labels: &[(&str, &str)], times: &Histogram) {
        let mut sum = 0;
        let buckets = Histogram::bounds().zip(times.counts()).map(|(bound, count)| {
            sum += count;
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(bound.as_secs_f64());
            bucket.set_cumulative_count(sum);
            bucket
        });
        let mut data = HistogramData::default();
        data.set_bucket(buckets.collect());
        data.set_sample_count(times.count());
        data.set_sample_sum(times.sum().as_secs_f64());
        let mut metric = Metric::from_label(pairs(labels));
        metric.set_histogram(data);
        self.0.mut_metric().push(metric);
    }
}

fn pairs(labels: &[(&str, &str)]) -> Vec<LabelPair> {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).into());
        pair.set_value((*value).into());
        pair
    };
    labels.iter().map(pair).collect()
}

/// The labels of `dafs_sessions_limited` that are present even if no session has them.
const LIMITS: [&str; 6] = [
    "its own wish",
    "the session's maximum",
    "the server's budget",
    "its share of the budget",
    "idleness",
    "nothing",
];
