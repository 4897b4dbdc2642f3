//! Monitoring of a running server: metrics for Prometheus, a web page, a terminal screen, and spans
//! for OpenTelemetry.
//!
//! Invariant: viewers get copies of the state ([`dafs_server::Inspector`]) and cannot change it.
//! The server makes at most ten copies a second, however many viewers there are and however slow.
#![forbid(unsafe_code)]

pub mod document;
mod fetch;
mod http;
mod metrics;
mod otlp;
pub mod top;

pub use fetch::status as fetch_status;
pub use http::{Page, PageError};
pub use metrics::text as metrics_text;
pub use otlp::{SpanNumbers, Traces, TracesError, TracesOptions};
