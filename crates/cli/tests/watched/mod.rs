//! A monitored server, and the requests to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use dafs_client::{Client, ClientConfig, Label, Location, Session, SessionOptions};
use dafs_tests::Required;

/// `dafs serve --http` in a separate process.
pub(crate) struct Server {
    child: Child,
    _stdout: BufReader<ChildStdout>,
    socket: String,
    http: SocketAddr,
}

impl Server {
    /// Serves the contents of `place`, with the page at this address and more options.
    pub(crate) fn start(place: &Path, http: &str, more: &[&str]) -> Self {
        std::fs::create_dir_all(place.join("export")).unwrap();
        let at = |name: &str| place.join(name).into_os_string();
        let mut child = Command::new(env!("CARGO_BIN_EXE_dafs"))
            .arg("serve")
            .arg(at("export"))
            .args(["--while-stdin", "--tcp", "127.0.0.1:0", "--cache", "64M"])
            .args(["--http", http, "--socket"])
            .arg(at("socket"))
            .arg("--state")
            .arg(at("state"))
            .args(more)
            .env_remove("OTEL_EXPORTER_OTLP_ENDPOINT")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let http = loop {
            let mut line = String::new();
            assert!(stdout.read_line(&mut line).unwrap() > 0, "the server did not start");
            if let Some(url) = line.strip_prefix("watch: http://") {
                break url.trim().trim_end_matches('/').parse().unwrap();
            }
        };
        let socket = place.join("socket").to_str().unwrap().to_owned();
        Self { child, _stdout: stdout, socket, http }
    }

    pub(crate) fn http(&self) -> SocketAddr {
        self.http
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn socket(&self) -> &str {
        &self.socket
    }

    /// Starts a session whose requests have a label.
    pub(crate) fn session(&self, label: u64) -> (Client, Session) {
        let client = Client::new(ClientConfig::default()).unwrap();
        let location = Location::parse(format!("dafs+shm://{}!/", self.socket)).unwrap();
        let label = Label::new(label).unwrap();
        let options = SessionOptions::default().label(label);
        let session = client.connect(&location, &options).unwrap();
        (client, session)
    }

    /// Returns the response to a GET request.
    pub(crate) fn get(&self, path: &str) -> Answer {
        let host = self.http.to_string();
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
    }

    pub(crate) fn ask(&self, request: &str) -> Answer {
        let mut stream = TcpStream::connect(self.http).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    /// Stops the server cleanly.
    pub(crate) fn stop(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }

    /// Kills the server.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// An HTTP response.
pub(crate) struct Answer {
    pub status: u16,
    /// The headers in lower case.
    pub head: String,
    pub body: String,
}

/// True if a program that the tests need is available. `DAFS_REQUIRE_WATCH=1` makes a missing one a
/// failure.
pub(crate) fn has(program: &str) -> bool {
    Required::Watch.has_programs(&[program])
}
