//! Tests monitoring of a real server: metrics, HTTP, `dafs top`, `dafs follow`, traces.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use dafs_client::OpenOptions;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::Value;

use crate::program::{await_that, dafs};
use crate::watched::{Server, has};

/// Returns the metrics by name and labels.
fn metrics(server: &Server) -> BTreeMap<String, f64> {
    let answer = server.get("/metrics");
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.head.contains("content-type: text/plain; version=0.0.4"), "{}", answer.head);
    let lines = answer.body.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

#[test]
fn metrics_count_what_was_done() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path(), "127.0.0.1:0", &[]);
    std::fs::write(place.path().join("export/file"), [7; 10_000]).unwrap();
    let (_client, session) = server.session(0);
    let before = metrics(&server);
    let file = session.open("/file", &OpenOptions::read()).unwrap();
    for _ in 0..5 {
        assert_eq!(file.read_at(&mut [0; 4096], 0).unwrap(), 4096);
    }
    assert!(session.open("/nothing", &OpenOptions::read()).is_err());
    // A request that follows at once gets the same copy.
    let mut after = BTreeMap::new();
    await_that("there is another copy", || {
        after = metrics(&server);
        after["dafs_uptime_seconds"] > before["dafs_uptime_seconds"]
    });
    let grown = |name: &str| {
        after.get(name).copied().unwrap_or(0.0) - before.get(name).copied().unwrap_or(0.0)
    };
    assert_eq!(grown(r#"dafs_requests_total{procedure="READ_DIRECT",status="Ok"}"#), 5.0);
    assert_eq!(grown(r#"dafs_requests_total{procedure="OPEN",status="Ok"}"#), 1.0);
    let failed: f64 = after
        .iter()
        .filter(|(name, _)| name.starts_with("dafs_requests_total") && name.contains("NoEnt"))
        .map(|(_, count)| count)
        .sum();
    assert_eq!(failed, 1.0, "{after:#?}");
    assert_eq!(grown(r#"dafs_request_bytes_total{procedure="READ_DIRECT"}"#), 5.0 * 4096.0);
    let timed = r#"dafs_request_duration_seconds_count{procedure="READ_DIRECT"}"#;
    assert_eq!(grown(timed), 5.0);
    assert_eq!(
        grown(r#"dafs_transport_bytes_total{transport="shm",direction="read"}"#),
        5.0 * 4096.0
    );
    assert_eq!(after["dafs_sessions"], 1.0);
    assert_eq!(after[r#"dafs_connections{transport="shm"}"#], 1.0);
    // A file holds its session, too.
    drop((file, session));
    // Counts of ended sessions remain.
    await_that("the session has left", || metrics(&server)["dafs_sessions"] == 0.0);
    let left = metrics(&server);
    assert!(left[r#"dafs_transport_requests_total{transport="shm"}"#] >= 7.0);
    server.stop();
}

#[test]
fn promtool_accepts_the_metrics() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path(), "127.0.0.1:0", &["--otlp", "http://127.0.0.1:9"]);
    let (_client, session) = server.session(1);
    session.metadata("/").unwrap();
    let text = server.get("/metrics").body;
    check_strictly(&text);
    if has("promtool") {
        let mut promtool = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = promtool.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.is_empty(), "{said}\n{text}");
    }
}

/// Checks the rules that parsers enforce: each family occurs once, with help and type before its
/// samples; bucket counts increase up to the total.
fn check_strictly(text: &str) {
    let mut families = BTreeSet::new();
    let mut current = String::new();
    let mut buckets = (String::new(), 0.0);
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            current = rest.split(' ').next().unwrap().to_owned();
            assert!(families.insert(current.clone()), "{current} comes twice");
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, current);
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap();
        assert!(value >= 0.0, "{line}");
        let bare = name.split('{').next().unwrap();
        assert!(bare.starts_with(&current), "{line} stands under {current}");
        if bare.ends_with("_bucket") {
            let labels = name.split("le=").next().unwrap().to_owned();
            if buckets.0 == labels {
                assert!(value >= buckets.1, "{line} falls");
            }
            buckets = (labels, value);
        } else if bare.ends_with("_count") {
            assert_eq!(value, buckets.1, "{line}");
        }
    }
    assert!(families.len() > 40, "{families:?}");
}

#[test]
fn the_dashboard_names_only_metrics_that_are_exported() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let text = std::fs::read_to_string(format!("{root}/dist/grafana/dafs.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path(), "127.0.0.1:0", &[]);
    let (_client, session) = server.session(0);
    std::fs::write(place.path().join("export/file"), "some").unwrap();
    let file = session.open("/file", &OpenOptions::read()).unwrap();
    file.read_at(&mut [0; 4], 0).unwrap();
    let exported: BTreeSet<String> =
        metrics(&server).into_keys().map(|name| name.split('{').next().unwrap().into()).collect();
    let mut named = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().unwrap();
            for word in query.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')) {
                if word.starts_with("dafs_") {
                    assert!(exported.contains(word), "{word} in {query} is not exported");
                    named += 1;
                }
            }
        }
    }
    assert!(named > 15, "{named}");
}

#[test]
fn only_reading_is_served_and_only_to_names_of_this_machine() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path(), "127.0.0.1:0", &[]);
    let post = "POST /api/status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\
                Connection: close\r\n\r\n";
    assert_eq!(server.ask(post).status, 405);
    let foreign = "GET / HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n";
    assert_eq!(server.ask(foreign).status, 421);
    assert_eq!(server.get("/../etc/passwd").status, 404);
    let page = server.get("/");
    assert_eq!(page.status, 200);
    assert!(page.head.contains("content-security-policy: default-src 'none'"), "{}", page.head);
    assert!(!page.head.contains("access-control"), "{}", page.head);
    for path in ["/watch.js", "/watch.css", "/healthz", "/api/status"] {
        let answer = server.get(path);
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.head.contains("cache-control: no-store"), "{path}: {}", answer.head);
    }
    for path in ["/", "/watch.js", "/watch.css"] {
        let body = server.get(path).body.replace("http://www.w3.org/2000/svg", "");
        assert!(!body.contains("http://") && !body.contains("https://"), "{path}");
    }
    // Idle connections must not block others.
    let idle: Vec<TcpStream> =
        (0..20).map(|_| TcpStream::connect(server.http()).unwrap()).collect();
    assert_eq!(server.get("/healthz").body, "ok\n");
    drop(idle);
}

#[test]
fn a_page_from_elsewhere_reads_nothing_by_letting_its_name_lead_here() {
    let place = tempfile::tempdir().unwrap();
    let names = ["--http-name", "files.example.org"];
    let server = Server::start(place.path(), "0.0.0.0:0", &names);
    let port = server.http().port();
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let status = |host: &str| {
        let request =
            format!("GET /api/status HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n");
        server.ask(&request).status
    };
    for host in ["rebound.example.com", "files.example.org.example.com", "files"] {
        assert_eq!(status(host), 421, "{host}");
    }
    for host in ["files.example.org", own.trim(), "localhost", "192.0.2.1", "[2001:db8::1]"] {
        assert_eq!(status(host), 200, "{host}");
    }
    // Our own programs send the address as the host, whatever name they were given.
    let url = format!("http://localhost:{port}");
    let shown = dafs().args(["top", &url, "--once", "--interval", "0.1"]).output().unwrap();
    assert!(shown.status.success(), "{shown:?}");
}

#[test]
fn top_shows_rates_by_socket_and_by_http() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path(), "127.0.0.1:0", &[]);
    std::fs::write(place.path().join("export/file"), [7; 4096]).unwrap();
    let (_client, session) = server.session(0);
    let file = session.open("/file", &OpenOptions::read()).unwrap();
    let url = format!("http://{}", server.http());
    for target in [server.socket(), &url] {
        let mut top = dafs()
            .args(["top", target, "--json", "--interval", "0.5"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut asked = 0_u64;
        while top.try_wait().unwrap().is_none() {
            file.read_at(&mut [0; 4096], 0).unwrap();
            asked += 1;
        }
        let output = top.wait_with_output().unwrap();
        assert!(output.status.success());
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let rates = &found["rates"];
        let rate = rates["requests_per_second"].as_f64().unwrap();
        assert!(rate > 0.0 && rate <= asked as f64 / 0.25, "{rates:#} of {asked}");
        let read = |row: &&Value| row["procedure"] == "READ_DIRECT";
        let procedure = rates["procedures"].as_array().unwrap().iter().find(read).unwrap();
        assert!(procedure["p99_seconds"].as_f64() >= procedure["p50_seconds"].as_f64());
        assert!(procedure["p50_seconds"].as_f64() > Some(0.0), "{procedure}");
    }
    let shown = dafs().args(["top", server.socket(), "--once", "--interval", "0.1"]).output();
    let text = String::from_utf8(shown.unwrap().stdout).unwrap();
    for part in ["READ_DIRECT", "requests/s", "limited by", "p99"] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
}

#[test]
fn requests_are_followed_by_their_label() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path(), "127.0.0.1:0", &[]);
    std::fs::write(place.path().join("export/file"), [7; 4096]).unwrap();
    let mut follow = dafs()
        .args(["follow", server.socket(), "--label", "2a", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(follow.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "dafs: following\n");
    // Another client.
    let (_client, other) = server.session(0x2b);
    other.metadata("/file").unwrap();
    let url = format!("dafs+shm://{}!/file", server.socket());
    let cat = dafs().args(["cat", "--label", "2a", &url]).output().unwrap();
    assert_eq!(cat.stdout, [7; 4096], "{}", String::from_utf8_lossy(&cat.stderr));
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let mut procedures = Vec::new();
    while procedures.last().is_none_or(|last| last != "DISCONNECT") {
        let record: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(record["analyzer"], "0x2a", "{record}");
        assert!(record["seconds"].as_f64().unwrap() > 0.0, "{record}");
        procedures.push(record["procedure"].as_str().unwrap().to_owned());
    }
    for procedure in ["OPEN", "READ_DIRECT", "CLOSE"] {
        assert!(procedures.iter().any(|name| name == procedure), "{procedures:?}");
    }
    follow.kill().unwrap();
    follow.wait().unwrap();
}

#[test]
fn the_log_has_requests_where_it_is_asked_to() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("export")).unwrap();
    let at = |name: &str| place.path().join(name);
    let mut served = dafs()
        .args(["--log", "dafs::request=debug", "--log-json", "serve", "--no-tcp", "--socket"])
        .arg(at("socket"))
        .arg("--state")
        .arg(at("state"))
        .arg(at("export"))
        .arg("--while-stdin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(served.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let url = format!("dafs+shm://{}!/", at("socket").display());
    assert!(dafs().args(["ls", "--label", "beef", &url]).status().unwrap().success());
    drop(served.stdin.take());
    let output = served.wait_with_output().unwrap();
    let lines = String::from_utf8(output.stderr).unwrap();
    let records = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mine: Vec<Value> =
        records.filter(|record| record["fields"]["analyzer"] == "0xbeef").collect();
    let is_listing =
        |record: &&Value| record["fields"]["procedure"].as_str().unwrap().starts_with("READDIR");
    assert!(mine.iter().any(|record| is_listing(&record)), "{lines}");
}

/// Receives the spans that are sent to a collector.
fn receive(listener: &TcpListener) -> ExportTraceServiceRequest {
    let (stream, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(&stream);
    let mut length = 0;
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    assert!(first.starts_with("POST /v1/traces "), "{first}");
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim().to_lowercase();
        if let Some(bytes) = line.strip_prefix("content-length:") {
            length = bytes.trim().parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (&stream)
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        .unwrap();
    ExportTraceServiceRequest::decode(body.as_slice()).unwrap()
}

#[test]
fn a_collector_gets_a_span_for_each_request_with_its_label() {
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", collector.local_addr().unwrap());
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path(), "127.0.0.1:0", &["--otlp", &url]);
    std::fs::write(place.path().join("export/file"), [7; 4096]).unwrap();
    let (_client, session) = server.session(0xc0ffee);
    let file = session.open("/file", &OpenOptions::read()).unwrap();
    file.read_at(&mut [0; 4096], 0).unwrap();
    assert!(session.metadata("/nothing").is_err());
    let mut spans = Vec::new();
    let has_failed = |span: &Span| span.status.as_ref().is_some_and(|status| status.code == 2);
    let has_all = |spans: &[Span]| {
        spans.iter().any(has_failed) && spans.iter().any(|span| span.name == "READ_DIRECT")
    };
    while !has_all(&spans) {
        for resource in receive(&collector).resource_spans {
            let service = resource.resource.unwrap().attributes.into_iter();
            let names = service.filter(|pair| pair.key == "service.name").map(|pair| pair.value);
            let name = names.map(|value| value.unwrap().value.unwrap()).next();
            assert_eq!(name, Some(AnyValue::StringValue("dafs".into())));
            spans.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
    }
    let read = spans.iter().find(|span| span.name == "READ_DIRECT").unwrap();
    assert!(read.end_time_unix_nano > read.start_time_unix_nano);
    let attribute = |key: &str| {
        let pair = read.attributes.iter().find(|pair| pair.key == key).unwrap();
        pair.value.clone().unwrap().value.unwrap()
    };
    assert_eq!(attribute("dafs.analyzer"), AnyValue::StringValue("0xc0ffee".into()));
    assert_eq!(attribute("dafs.bytes"), AnyValue::IntValue(4096));
    assert_eq!(attribute("dafs.status"), AnyValue::StringValue("Ok".into()));
    assert_eq!(read.trace_id, *b"dafs\0\0\0\0\0\0\0\0\0\xc0\xff\xee");
    await_that("the collector's thanks are counted", || {
        metrics(&server)["dafs_trace_spans_exported_total"] >= spans.len() as f64
    });
    // Without a collector nothing blocks, and lost spans are counted.
    drop(collector);
    file.read_at(&mut [0; 4096], 0).unwrap();
    await_that("spans are lost", || metrics(&server)["dafs_trace_spans_dropped_total"] > 0.0);
    file.read_at(&mut [0; 4096], 0).unwrap();
}
