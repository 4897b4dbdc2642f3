//! Watching a running server: numbers for Prometheus, a page for browsers, a screen for
//! terminals, spans for OpenTelemetry.
//!
//! Invariant: whoever watches gets copies ([`dafs_server::Inspector`]) and can change nothing;
//! however many watch, and however slowly, the server makes at most ten copies a second.
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
