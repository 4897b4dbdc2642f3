//! Exports requests as OpenTelemetry spans to a collector over HTTP.
//!
//! Invariant: the reactor puts records into a queue of limited length and never waits. Records that
//! are lost, here or at the collector, are counted.
//!
//! If the client has set the analyzer field in a request's header, the request belongs to the trace
//! whose id ends with that value ([`trace_of`]). So all requests with one value are in one trace.
//! Each other request has a trace of its own.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dafs_server::{
    Followed, Inspector, RequestNumber, RequestRecord, RequestStatus, Selection, ServerEnded,
};
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status as SpanStatus, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};

/// The parameters of the export.
#[derive(Clone, Debug, Default)]
pub struct TracesOptions {
    /// The URL of the collector, such as `http://127.0.0.1:4318`. If `None`, the environment
    /// decides (`OTEL_EXPORTER_OTLP_ENDPOINT` and related variables).
    pub collector: Option<String>,
    /// The sampling of requests without an analyzer value: one in this many is exported. 0 and 1
    /// export all requests.
    pub one_in: u32,
}

/// The reason why traces cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// The collector's URL is invalid.
    #[error("traces cannot be exported; check the collector's URL")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
    /// The thread cannot be started.
    #[error("traces cannot be exported: cannot start the thread")]
    Thread(#[from] std::io::Error),
}

/// Counters of exported and lost spans.
#[derive(Debug, Default)]
pub struct SpanNumbers {
    exported: AtomicU64,
    refused: AtomicU64,
    crowded_out: AtomicU64,
}

impl SpanNumbers {
    /// Returns the number of spans that the collector has accepted.
    pub fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }

    /// Returns the number of spans that were lost.
    pub fn dropped(&self) -> u64 {
        self.refused.load(Ordering::Relaxed) + self.crowded_out.load(Ordering::Relaxed)
    }
}

/// A thread that sends spans to a collector.
#[derive(Debug)]
pub struct Traces {
    thread: JoinHandle<()>,
    numbers: Arc<SpanNumbers>,
}

impl Traces {
    /// Starts to send spans for the requests of a server.
    ///
    /// # Errors
    /// [`TracesError`]: the collector's URL is invalid, or the thread cannot be started.
    pub fn start(inspector: &Inspector, options: &TracesOptions) -> Result<Self, TracesError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let builder = SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary);
        let builder = match &options.collector {
            Some(collector) => builder.with_endpoint(endpoint(collector)),
            None => builder,
        };
        let mut exporter = {
            let _inside = runtime.enter();
            builder.build()?
        };
        exporter.set_resource(&resource());
        let selection = Selection { one_in: options.one_in, ..Selection::default() };
        let followed = inspector.follow(selection, QUEUE_MAX);
        let numbers = Arc::<SpanNumbers>::default();
        let own = numbers.clone();
        let thread = std::thread::Builder::new().name("dafs-traces".into()).spawn(move || {
            let sent = AssertUnwindSafe(|| {
                runtime.block_on(send_all(&exporter, &followed, &own));
            });
            if catch_unwind(sent).is_err() {
                tracing::error!("the thread that sends spans panicked: no more spans are sent");
            }
        })?;
        Ok(Self { thread, numbers })
    }

    /// Returns the counters of spans.
    #[must_use]
    pub fn numbers(&self) -> Arc<SpanNumbers> {
        self.numbers.clone()
    }

    /// Sends the remaining records of a server that has ended. Waits for at most `patience`.
    pub fn finish(self, patience: Duration) {
        let end = Instant::now() + patience;
        while !self.thread.is_finished() && Instant::now() < end {
            std::thread::sleep(PAUSE / 10);
        }
    }
}

async fn send_all(exporter: &SpanExporter, followed: &Followed, numbers: &SpanNumbers) {
    let mut ids = Ids::new();
    let scope = InstrumentationScope::builder("dafs").with_version(env!("CARGO_PKG_VERSION"));
    let scope = scope.build();
    let mut is_told = false;
    loop {
        let mut batch = Vec::new();
        let mut has_ended = false;
        while batch.len() < BATCH_MAX {
            match followed.take() {
                Ok(Some(record)) => batch.push(span(&record, &mut ids, &scope)),
                Ok(None) => break,
                Err(ServerEnded) => {
                    has_ended = true;
                    break;
                }
            }
        }
        numbers.crowded_out.store(followed.dropped(), Ordering::Relaxed);
        let count = batch.len() as u64;
        let sent = if batch.is_empty() { Ok(()) } else { exporter.export(batch).await };
        match sent {
            Ok(()) => {
                numbers.exported.fetch_add(count, Ordering::Relaxed);
                is_told &= count == 0;
            }
            Err(error) => {
                numbers.refused.fetch_add(count, Ordering::Relaxed);
                if !std::mem::replace(&mut is_told, true) {
                    let text = "the collector accepts no spans; they are dropped until it does";
                    tracing::warn!(%error, "{text}");
                }
            }
        }
        if has_ended {
            return;
        }
        if count < BATCH_MAX as u64 {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Makes the span of a request.
fn span(record: &RequestRecord, ids: &mut Ids, scope: &InstrumentationScope) -> SpanData {
    let trace = if record.analyzer == 0 { ids.trace() } else { trace_of(record.analyzer) };
    let context =
        SpanContext::new(trace, ids.span(), TraceFlags::SAMPLED, false, TraceState::default());
    let session = record.session.map_or_else(String::new, |id| format!("{:016x}", id.0));
    let address =
        record.address.map(|address| KeyValue::new("client.address", address.to_string()));
    let number = match record.number {
        RequestNumber::Dafs(stream, sequence) => vec![
            KeyValue::new("dafs.stream", i64::from(stream.0)),
            KeyValue::new("dafs.sequence", i64::from(sequence.0)),
        ],
        RequestNumber::Nfs(xid) => vec![KeyValue::new("dafs.xid", i64::from(xid))],
    };
    SpanData {
        span_context: context,
        parent_span_id: SpanId::INVALID,
        parent_span_is_remote: false,
        span_kind: SpanKind::Server,
        name: Cow::Borrowed(record.name.procedure()),
        start_time: record.ended.checked_sub(record.taken).unwrap_or(record.ended),
        end_time: record.ended,
        attributes: vec![
            KeyValue::new("rpc.system", record.name.protocol()),
            KeyValue::new("rpc.method", record.name.procedure()),
            KeyValue::new("dafs.analyzer", format!("{:#x}", record.analyzer)),
            KeyValue::new("dafs.session", session),
            KeyValue::new("dafs.bytes", i64::from(record.bytes)),
            KeyValue::new("dafs.status", record.status.to_string()),
            KeyValue::new("dafs.transport", record.transport.to_string()),
        ]
        .into_iter()
        .chain(number)
        .chain(address)
        .collect(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: match record.status {
            status if status.is_ok() => SpanStatus::Unset,
            RequestStatus::Dafs(failed) => SpanStatus::error(failed.text()),
            failed => SpanStatus::error(failed.to_string()),
        },
        instrumentation_scope: scope.clone(),
    }
}

/// Returns the trace id for an analyzer value: `dafs` in ASCII, four zero bytes, and the eight
/// bytes of the value, big endian.
#[must_use]
pub(crate) fn trace_of(analyzer: u64) -> TraceId {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(b"dafs");
    bytes[8..].copy_from_slice(&analyzer.to_be_bytes());
    TraceId::from_bytes(bytes)
}

/// A generator of ids that are almost certainly unique.
struct Ids(std::hash::RandomState, u64);

impl Ids {
    fn new() -> Self {
        Self(std::hash::RandomState::new(), 0)
    }

    fn next(&mut self) -> u64 {
        use std::hash::BuildHasher;
        self.1 += 1;
        self.0.hash_one(self.1).max(1)
    }

    fn span(&mut self) -> SpanId {
        SpanId::from_bytes(self.next().to_be_bytes())
    }

    fn trace(&mut self) -> TraceId {
        let [high, low] = [self.next(), self.next()];
        TraceId::from_bytes((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
    }
}

/// Returns the collector's URL with the path for spans appended, unless it has a path.
fn endpoint(collector: &str) -> String {
    let after_scheme = collector.find("://").map_or(0, |at| at + 3);
    let path = collector[after_scheme..].find('/').map(|at| &collector[after_scheme + at..]);
    match path {
        None | Some("/") => format!("{}/v1/traces", collector.trim_end_matches('/')),
        Some(_) => collector.to_owned(),
    }
}

/// Returns the description of this sender. `OTEL_SERVICE_NAME` takes precedence over the default.
fn resource() -> Resource {
    let builder = Resource::builder();
    let builder = match std::env::var_os("OTEL_SERVICE_NAME") {
        Some(_) => builder,
        None => builder.with_service_name("dafs"),
    };
    builder
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attribute(KeyValue::new("process.pid", i64::from(std::process::id())))
        .build()
}

/// The maximum number of records that wait for the collector.
const QUEUE_MAX: usize = 16 * 1024;
/// The maximum number of spans in one message.
const BATCH_MAX: usize = 512;
/// The pause between checks of an empty queue.
const PAUSE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_named_with_or_without_a_path() {
        assert_eq!(endpoint("http://127.0.0.1:4318"), "http://127.0.0.1:4318/v1/traces");
        assert_eq!(endpoint("http://collector/"), "http://collector/v1/traces");
        assert_eq!(endpoint("http://collector/x/y"), "http://collector/x/y");
    }

    #[test]
    fn an_analyzer_value_determines_its_trace() {
        assert_eq!(trace_of(0x2a).to_string(), "6461667300000000000000000000002a");
        let mut ids = Ids::new();
        assert_ne!(ids.trace(), ids.trace());
        assert_ne!(ids.span(), SpanId::INVALID);
    }
}
