//! The metrics of a server in the text format of Prometheus.
//!
//! Invariant: a metric keeps its name, its meaning and its unit in later versions. Procedures,
//! transports and limits are labels, all taken from tables of the server.

use std::collections::BTreeMap;
use std::sync::Arc;

use dafs_server::{Histogram, Inspection};
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram as HistogramData, LabelPair, Metric, MetricFamily, MetricType,
};

use crate::document;
use crate::otlp::SpanNumbers;

/// Returns the contents of `/metrics`.
///
/// # Errors
/// An error of the encoder; it accepts all names and labels used here.
pub fn text(found: &Inspection, spans: Option<&Arc<SpanNumbers>>) -> prometheus::Result<String> {
    let mut families = Families::default();
    server(&mut families, found);
    requests(&mut families, found);
    sessions(&mut families, found);
    transports(&mut families, found);
    cache(&mut families, found);
    locks(&mut families, found);
    if let Some(spans) = spans {
        families
            .counter("dafs_trace_spans_exported_total", "Spans the collector has taken.")
            .add(&[], spans.exported() as f64);
        families
            .counter(
                "dafs_trace_spans_dropped_total",
                "Spans that were lost: the queue was full, or the collector did not take them.",
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
    families.gauge("dafs_build_info", "1, with the server's version.").add(&info, 1.0);
    let mut gauge = |name, help, value: f64| {
        families.gauge(name, help).add(&[], value);
    };
    gauge("dafs_uptime_seconds", "Seconds since the server's start.", found.uptime.as_secs_f64());
    let in_grace = f64::from(u8::from(found.is_in_grace));
    gauge("dafs_in_grace", "1 while clients take back what they held before a restart.", in_grace);
    gauge("dafs_opens", "Opens of all clients.", f64::from(stats.filer.opens));
    gauge("dafs_open_files", "Files that are open.", stats.open_files as f64);
    let reactors = stats.reactors as f64;
    gauge("dafs_reactors", "Threads that serve connections.", reactors);
    let parked = stats.parked_requests as f64;
    gauge("dafs_requests_parked", "Requests that wait for disks, transfers or locks.", parked);
    let journaled = stats.journaled_requests as f64;
    gauge("dafs_requests_journaled", "Requests on their way through the journal.", journaled);
    let batched = stats.batched_requests as f64;
    gauge("dafs_requests_batched", "Requests of batches that were not reported.", batched);
    let regions = stats.regions as f64;
    gauge("dafs_regions", "Memory regions registered with transports.", regions);
    gauge(
        "dafs_regions_lent",
        "Ranges of memory that transports read from now.",
        stats.loans as f64,
    );
    gauge("dafs_undo_files", "Files of which undo data is kept.", stats.undone_files as f64);
    let held = stats.held_requests as f64;
    gauge("dafs_requests_held", "Requests that wait for delegations.", held);
    families
        .counter(
            "dafs_reactor_messages_total",
            "Requests and notices that one reactor has handed to another.",
        )
        .add(&[], stats.reactor_messages as f64);
}

fn requests(families: &mut Families, found: &Inspection) {
    let all =
        || found.procedures.iter().map(|numbers| (document::name(numbers.procedure), numbers));
    let mut family = families.counter("dafs_requests_total", "Requests answered.");
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
        families.counter("dafs_request_bytes_total", "Bytes of files that requests have moved.");
    for (procedure, numbers) in all().filter(|(_, numbers)| numbers.bytes > 0) {
        family.add(&[("procedure", procedure)], numbers.bytes as f64);
    }
    let mut family = families
        .histogram("dafs_request_duration_seconds", "Time from a request's arrival to its answer.");
    for (procedure, numbers) in all() {
        family.add_times(&[("procedure", procedure)], &numbers.times);
    }
}

fn sessions(families: &mut Families, found: &Inspection) {
    let counters = &found.stats.sessions;
    let clients = found.stats.filer.clients;
    families.gauge("dafs_sessions", "Sessions.").add(&[], found.sessions.len() as f64);
    families.gauge("dafs_clients", "Clients that are known.").add(&[], f64::from(clients));
    let mut limited: BTreeMap<&str, usize> = LIMITS.iter().map(|limit| (*limit, 0)).collect();
    for session in &found.sessions {
        *limited.entry(document::limit(session.view.credits.limited_by)).or_default() += 1;
    }
    let help = "Sessions by what keeps them from more credits.";
    let mut family = families.gauge("dafs_sessions_limited", help);
    for (limit, count) in limited {
        family.add(&[("by", limit)], count as f64);
    }
    let outstanding: u64 =
        found.sessions.iter().map(|s| u64::from(s.view.credits.outstanding)).sum();
    let (budget, given) = (f64::from(found.credits.0), f64::from(found.credits.1));
    families.gauge("dafs_credits_budget", "Credits there are for all sessions.").add(&[], budget);
    families.gauge("dafs_credits_given", "Credits that sessions have.").add(&[], given);
    families
        .gauge("dafs_credits_used", "Requests in the server's hands.")
        .add(&[], outstanding as f64);
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
            "Connections broken since their clients broke the rules of credits.",
        )
        .add(&[], breaks as f64);
}

fn transports(families: &mut Families, found: &Inspection) {
    let names: Vec<String> = found.transports.iter().map(|t| t.transport.to_string()).collect();
    let all = || names.iter().map(String::as_str).zip(&found.transports);
    let mut family = families.gauge("dafs_connections", "Connections.");
    for (name, numbers) in all() {
        family.add(&[("transport", name)], numbers.connections as f64);
    }
    let mut family = families.counter("dafs_transport_requests_total", "Requests answered.");
    for (name, numbers) in all() {
        family.add(&[("transport", name)], numbers.traffic.requests as f64);
    }
    let mut family =
        families.counter("dafs_transport_bytes_total", "Bytes of files that were moved.");
    for (name, numbers) in all() {
        let traffic = numbers.traffic;
        family.add(&[("transport", name), ("direction", "read")], traffic.read_bytes as f64);
        family.add(&[("transport", name), ("direction", "write")], traffic.written_bytes as f64);
    }
}

fn cache(families: &mut Families, found: &Inspection) {
    let cache = &found.stats.cache;
    for (name, help, value) in [
        ("dafs_cache_size_bytes", "Bytes of the data cache.", found.cache_bytes),
        ("dafs_cache_used_bytes", "Bytes of it in use.", cache.used_bytes),
        ("dafs_cache_dirty_bytes", "Bytes of it not yet handed to files.", cache.dirty_bytes),
        ("dafs_cache_files", "Files it knows.", cache.file_count),
    ] {
        families.gauge(name, help).add(&[], value as f64);
    }
    for (name, help, value) in [
        ("dafs_cache_hits_total", "Reads answered from the data cache.", cache.hit_count),
        ("dafs_cache_misses_total", "Reads whose first block was missing.", cache.miss_count),
        ("dafs_cache_hit_bytes_total", "Bytes of hits.", cache.hit_bytes),
        ("dafs_cache_fill_bytes_total", "Bytes read from files.", cache.fill_bytes),
        ("dafs_cache_write_bytes_total", "Bytes taken in by writes.", cache.write_bytes),
        ("dafs_cache_flush_bytes_total", "Bytes written to files.", cache.flush_bytes),
        ("dafs_cache_evictions_total", "Blocks given up for others.", cache.evicted_block_count),
        ("dafs_cache_lost_bytes_total", "Bytes lost to write errors.", cache.lost_bytes),
    ] {
        families.counter(name, help).add(&[], value as f64);
    }
}

fn locks(families: &mut Families, found: &Inspection) {
    let (locks, fences) = (&found.lock_counters, &found.fence_counters);
    for (name, help, value) in [
        ("dafs_locks", "Locks, broken ones among them.", locks.locks),
        ("dafs_lock_waiters", "Requests that wait for locks.", locks.waiters),
        ("dafs_lock_rollbacks", "Rollbacks under way.", locks.rollbacks_running),
        ("dafs_fences", "Files and file systems with a fence.", fences.objects),
        ("dafs_fence_changes", "Changes of fences under way.", fences.changing),
    ] {
        families.gauge(name, help).add(&[], f64::from(value));
    }
    for (name, help, value) in [
        ("dafs_locks_granted_total", "Locks granted.", locks.granted),
        ("dafs_locks_denied_total", "Locks denied.", locks.denied),
        ("dafs_lock_deadlocks_total", "Locks refused as deadlocks.", locks.deadlocks),
        ("dafs_locks_broken_total", "Locks that broke.", locks.broken),
        ("dafs_locks_repaired_total", "Broken locks that were repaired.", locks.repaired),
        ("dafs_fence_changes_total", "Changes of fences completed.", fences.completed),
        ("dafs_fenced_out_total", "Operations fenced out.", fences.fenced_out),
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
