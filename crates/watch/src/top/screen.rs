//! The screen of `dafs top`.
//!
//! Invariant: a colour only repeats information that is also in the text.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use serde_json::Value;

use super::rates::{ProcedureRate, SessionRate, number, rows};
use super::{Order, Rates, Top};

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, top: &Top) {
    let Some(rates) = &top.rates else {
        let text = top.error.as_deref().unwrap_or("connecting to the server…");
        frame.render_widget(Paragraph::new(text), frame.area());
        return;
    };
    let procedures = u16::try_from(rates.procedures.len()).unwrap_or(u16::MAX).saturating_add(2);
    let areas = Layout::vertical([
        Constraint::Length(5),
        Constraint::Length(procedures.min(frame.area().height / 2)),
        Constraint::Min(3),
        Constraint::Length(1),
    ]);
    let [summary, upper, lower, foot] = areas.areas(frame.area());
    frame.render_widget(Paragraph::new(headline(rates)), summary);
    draw_procedures(frame, upper, rates, top.order);
    draw_sessions(frame, lower, rates, top.order);
    frame.render_widget(footer(top), foot);
}

fn headline(rates: &Rates) -> Vec<Line<'static>> {
    let now = &rates.now;
    let (sessions, credits, cache) = (&now["sessions"], &now["credits"], &now["cache"]);
    let count = sessions.as_array().map_or(0, Vec::len);
    let throttled = rows(now, "sessions").filter(|row| row["throttled"] == true).count();
    let hits = rates.hits.map_or_else(|| "-".into(), |hits| format!("{:.1} %", hits * 100.0));
    let uptime = now["uptime_seconds"].as_f64().unwrap_or(0.0);
    let grace =
        if now["in_grace"] == true { "; grace period: clients are reclaiming state" } else { "" };
    let reactors = match number(&now["reactors"], "count") {
        // The server does not report the number of reactors.
        0 => String::new(),
        1 => "; reactors 1".to_owned(),
        count => format!("; reactors {count}, {} messages/s", quantity(rates.messages)),
    };
    let machines = match rates.nfs_clients.len() {
        0 => String::new(),
        count => format!("   NFS clients {count}"),
    };
    let (locks, waiters) = (rows(now, "locks").count(), rows(now, "waiters").count());
    vec![
        Line::from(format!("dafs  up {}{reactors}{grace}", span(uptime))).style(bold()),
        Line::from(format!(
            "requests {:>9}/s   read {:>11}/s   written {:>11}/s",
            quantity(rates.requests),
            bytes(rates.read),
            bytes(rates.written)
        )),
        Line::from(format!(
            "cache    {hits:>9} hits  {} of {} used, {} dirty",
            bytes(number(cache, "used_bytes") as f64),
            bytes(number(cache, "bytes") as f64),
            bytes(number(cache, "dirty_bytes") as f64)
        )),
        Line::from(format!(
            "sessions {count:>9}, {throttled} throttled   credits {} of {}   locks {locks}, \
             {waiters} waiting   fences {}{machines}",
            number(credits, "given"),
            number(credits, "budget"),
            rows(now, "fences").count()
        )),
    ]
}

fn draw_procedures(frame: &mut Frame<'_>, area: Rect, rates: &Rates, order: Order) {
    let mut all: Vec<&ProcedureRate> = rates.procedures.iter().collect();
    all.sort_by(|left, right| match order {
        Order::Requests => right.requests.total_cmp(&left.requests),
        Order::Bytes => right.bytes.total_cmp(&left.bytes),
        Order::Time => right.p99.unwrap_or(0.0).total_cmp(&left.p99.unwrap_or(0.0)),
        Order::Name => left.name.cmp(&right.name),
    });
    let rows = all.into_iter().map(|rate| {
        Row::new([
            Cell::from(rate.name.clone()),
            right(quantity(rate.requests)),
            right(format!("{}/s", bytes(rate.bytes))),
            right(time(rate.p50)),
            right(time(rate.p99)),
            right(rate.total.to_string()),
            right(rate.failed.to_string()),
        ])
    });
    let widths = [20, 11, 13, 10, 10, 14, 9].map(Constraint::Length);
    let head = ["procedure", "requests/s", "bytes", "p50", "p99", "total", "failed"];
    frame.render_widget(Table::new(rows, widths).header(header(head)), area);
}

fn draw_sessions(frame: &mut Frame<'_>, area: Rect, rates: &Rates, order: Order) {
    let mut all: Vec<&SessionRate> = rates.sessions.iter().chain(&rates.nfs_clients).collect();
    let silent = |rate: &SessionRate| rate.row["silent_seconds"].as_f64().unwrap_or(0.0);
    all.sort_by(|left, right| match order {
        Order::Requests => right.requests.total_cmp(&left.requests),
        Order::Bytes => (right.read + right.written).total_cmp(&(left.read + left.written)),
        Order::Time => silent(right).total_cmp(&silent(left)),
        Order::Name => name(left).cmp(&name(right)),
    });
    let rows = all.into_iter().map(|rate| {
        let row = &rate.row;
        if is_nfs(rate) {
            return Row::new([
                Cell::from(name(rate)),
                Cell::from("-"),
                Cell::from(transports(row)),
                right(quantity(rate.requests)),
                right(format!("{}/s", bytes(rate.read))),
                right(format!("{}/s", bytes(rate.written))),
                right("-".to_owned()),
                Cell::from(format!("{} connections", number(row, "connections"))),
            ]);
        }
        let text = |key: &str| row[key].as_str().unwrap_or("-").to_owned();
        let is_throttled = row["throttled"] == true;
        let limit = if is_throttled {
            format!("THROTTLED: {}", text("limited_by"))
        } else {
            text("limited_by")
        };
        let style = if is_throttled { Style::new().fg(Color::Yellow) } else { Style::new() };
        Row::new([
            Cell::from(text("client")),
            Cell::from(text("principal")),
            Cell::from(text("transport")),
            right(quantity(rate.requests)),
            right(format!("{}/s", bytes(rate.read))),
            right(format!("{}/s", bytes(rate.written))),
            right(format!("{}/{}", number(row, "credits"), number(row, "credits_target"))),
            Cell::from(limit),
        ])
        .style(style)
    });
    let widths = [24, 14, 12, 11, 13, 13, 9].map(Constraint::Length);
    let widths = widths.into_iter().chain([Constraint::Min(20)]);
    let head = ["client", "who", "by", "requests/s", "read", "written", "credits", "limited by"];
    frame.render_widget(Table::new(rows, widths).header(header(head)), area);
}

/// Returns what carries the calls of a machine of NFS clients: `nfs rdma`, for example.
fn transports(row: &Value) -> String {
    let names = row["transports"].as_object().map(|all| all.keys().map(String::as_str).collect());
    let names: Vec<&str> = names.unwrap_or_default();
    format!("nfs {}", names.join(","))
}

/// Returns true if the row is that of a machine of NFS clients.
fn is_nfs(rate: &SessionRate) -> bool {
    rate.row["session"].is_null()
}

/// Returns the name of a session's client, or the address of a machine of NFS clients.
fn name(rate: &SessionRate) -> String {
    rate.row[if is_nfs(rate) { "address" } else { "client" }].as_str().unwrap_or("").to_owned()
}

fn footer(top: &Top) -> Line<'static> {
    if top.is_page {
        return Line::default();
    }
    if let Some(error) = &top.error {
        let text = format!("server unreachable, trying again: {error}");
        return Line::from(Span::styled(text, Style::new().fg(Color::Red)));
    }
    let order = match top.order {
        Order::Requests => "requests",
        Order::Bytes => "bytes",
        Order::Time => "time",
        Order::Name => "name",
    };
    let text = if top.shows_help {
        "order by: r requests, o bytes, t time (sessions: silence), n name; q quits".to_owned()
    } else {
        format!("ordered by {order}; r o t n order, ? help, q quits")
    };
    Line::from(text).style(Style::new().add_modifier(Modifier::DIM))
}

fn header<const N: usize>(names: [&'static str; N]) -> Row<'static> {
    let cells = names.into_iter().map(|name| match name {
        "procedure" | "client" | "who" | "by" | "limited by" => Cell::from(name),
        _ => right(name.to_owned()),
    });
    Row::new(cells).style(bold()).top_margin(0)
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).right_aligned())
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// Formats a number with a suffix for thousands.
pub(super) fn quantity(number: f64) -> String {
    match number {
        n if n < 9_999.5 => format!("{n:.0}"),
        n if n < 9_999_500.0 => format!("{:.1}k", n / 1e3),
        n => format!("{:.1}M", n / 1e6),
    }
}

fn bytes(number: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = number;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} B") } else { format!("{value:.1} {}", units[unit]) }
}

fn time(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".into(),
        Some(s) if s < 1e-3 => format!("{:.1} µs", s * 1e6),
        Some(s) if s < 1.0 => format!("{:.1} ms", s * 1e3),
        Some(s) => format!("{s:.1} s"),
    }
}

fn span(seconds: f64) -> String {
    let whole = seconds as u64;
    let (days, hours, minutes) = (whole / 86400, whole / 3600 % 24, whole / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{whole} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyModifiers};
    use serde_json::json;

    use super::*;

    fn document(uptime: f64, reads: u64) -> Value {
        let mut buckets = [0; 29];
        let unused = buckets;
        let bounds: Vec<f64> = (0..28).map(|power| 256e-9 * f64::powi(2.0, power)).collect();
        buckets[3] = reads;
        json!({
            "uptime_seconds": uptime, "in_grace": false,
            "bucket_bounds_seconds": bounds,
            "procedures": [
                { "procedure": "READ_DIRECT", "requests": reads, "failures": { "Access": 2 },
                  "bytes": reads * 4096, "buckets": buckets },
                { "procedure": "OPEN", "requests": 5, "failures": {}, "bytes": 0,
                  "buckets": unused },
            ],
            "transports": [{ "transport": "shm", "connections": 2, "requests": reads + 5,
                "read_bytes": reads * 4096, "written_bytes": 0 }],
            "sessions": [
                { "session": "1", "client": "busy", "principal": "uid 7", "transport": "shm",
                  "requests": reads, "read_bytes": reads * 4096, "written_bytes": 0,
                  "credits": 3, "credits_target": 4, "throttled": true,
                  "limited_by": "its share of the budget", "silent_seconds": 0.0 },
                { "session": "2", "client": "asleep", "principal": "nobody", "transport": "tcp",
                  "requests": 5, "read_bytes": 0, "written_bytes": 0, "credits": 1,
                  "credits_target": 1, "throttled": false, "limited_by": "its own wish",
                  "silent_seconds": 60.0 },
            ],
            "credits": { "given": 5, "budget": 100 },
            "cache": { "hits": reads, "misses": 0, "used_bytes": 1 << 20, "bytes": 1 << 26,
                "dirty_bytes": 0 },
            "locks": [{}], "waiters": [], "fences": [],
            "reactors": { "count": 2, "messages": reads / 10 },
        })
    }

    fn shown(top: &Top) -> String {
        let mut terminal = Terminal::new(TestBackend::new(130, 20)).unwrap();
        terminal.draw(|frame| draw(frame, top)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn rates_latencies_and_the_throttled_are_shown() {
        let mut top = Top::default();
        top.update(Ok(document(10.0, 1000)));
        top.update(Ok(document(12.0, 21_000)));
        let text = shown(&top);
        for part in [
            "10.0k",
            "39.1 MiB/s",
            "100.0 %",
            "THROTTLED: its share",
            "1 throttled",
            "2.0 µs",
            "locks 1, 0 waiting",
            "reactors 2, 1000 messages/s",
            "ordered by requests",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        let place = |part: &str| text.find(part).unwrap();
        assert!(place("READ_DIRECT") < place("OPEN") && place("busy") < place("asleep"), "{text}");
    }

    #[test]
    fn nfs_clients_and_their_calls_are_shown() {
        let document = |uptime: f64, reads: u64| {
            let mut all = document(uptime, 1000);
            let mut buckets = [0; 29];
            let unused = buckets;
            buckets[5] = reads;
            all["nfs"] = json!({
                "procedures": [
                    { "program": "nfs4", "procedure": "READ", "calls": 2 * reads, "failed": 3,
                      "bytes": reads * 4096, "buckets": buckets },
                    { "program": "nfs4", "procedure": "SEQUENCE", "calls": reads, "failed": 0,
                      "bytes": 0, "buckets": unused },
                ],
                "clients": [{ "address": "10.0.0.7", "connections": 4,
                    "transports": { "rdma": 1, "tcp": 3 }, "calls": reads,
                    "call_bytes": 0, "read_bytes": reads * 4096, "written_bytes": 0 }],
            });
            all
        };
        let mut top = Top::default();
        top.update(Ok(document(10.0, 1000)));
        top.update(Ok(document(12.0, 21_000)));
        let text = shown(&top);
        for part in
            ["nfs4 READ", "10.0.0.7", "nfs rdma,tcp", "4 connections", "NFS clients 1", "5.8 µs"]
        {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        assert_eq!(text.matches("10.0k").count(), 2, "of the operation and of the client:\n{text}");
        assert!(!text.contains("SEQUENCE"), "no compound had it as its main operation:\n{text}");
        let rates = top.rates.unwrap().document();
        assert_eq!(rates["rates"]["nfs_clients"][0]["calls_per_second"], 10_000.0);
    }

    #[test]
    fn keys_choose_the_order_and_quit() {
        let mut top = Top::default();
        top.update(Ok(document(10.0, 1000)));
        let none = KeyModifiers::NONE;
        assert!(top.on_key(KeyCode::Char('n'), none) && top.on_key(KeyCode::Char('?'), none));
        let text = shown(&top);
        let place = |part: &str| text.find(part).unwrap();
        assert!(place("OPEN") < place("READ_DIRECT") && place("asleep") < place("busy"), "{text}");
        assert!(text.contains("order by: r requests"), "{text}");
        assert!(!top.on_key(KeyCode::Char('q'), none));
        assert!(!top.on_key(KeyCode::Char('c'), KeyModifiers::CONTROL));
    }

    #[test]
    fn an_unreachable_server_is_reported_and_the_last_state_stays() {
        let mut top = Top::default();
        top.update(Err(anyhow::anyhow!("nobody there")));
        assert!(shown(&top).contains("nobody there"));
        top.update(Ok(document(10.0, 1000)));
        top.update(Err(anyhow::anyhow!("nobody there")));
        let text = shown(&top);
        assert!(text.contains("server unreachable, trying again: nobody there"), "{text}");
        assert!(text.contains("READ_DIRECT"), "{text}");
    }
}
