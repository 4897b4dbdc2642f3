//! Tests `dafs sessions` and `dafs locks` against a real server.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use dafs_client::{Client, Location, Session, SessionOptions};
use serde_json::Value;

struct Server {
    child: Child,
    place: tempfile::TempDir,
    port: u16,
}

impl Server {
    fn start() -> Self {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("export")).unwrap();
        let at = |name: &str| place.path().join(name).into_os_string();
        let mut child = Command::new(env!("CARGO_BIN_EXE_dafs"))
            .arg("serve")
            .arg(at("export"))
            .args(["--tcp", "127.0.0.1:0", "--anonymous", "own", "--squash", "none"])
            .args(["--cache", "64M", "--socket"])
            .arg(at("socket"))
            .arg("--state")
            .arg(at("state"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.split("127.0.0.1:").nth(1).and_then(|rest| {
            rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
        });
        Self { child, place, port: port.unwrap_or_else(|| panic!("{line}")) }
    }

    fn socket(&self) -> String {
        self.place.path().join("socket").to_str().unwrap().to_owned()
    }

    fn session(&self, url: &str) -> (Client, Session) {
        let client = Client::new(dafs_client::ClientConfig::default()).unwrap();
        let location = Location::parse(url).unwrap();
        let session = client.connect(&location, &SessionOptions::default()).unwrap();
        (client, session)
    }

    fn dafs(&self, command: &str) -> Value {
        let ran = Command::new(env!("CARGO_BIN_EXE_dafs"))
            .args([command, "--json", &self.socket()])
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        serde_json::from_slice(&ran.stdout).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn sessions_are_shown_with_what_limits_them() {
    let server = Server::start();
    let local = server.session(&format!("dafs+shm://{}!/", server.socket()));
    let remote = server.session(&format!("dafs://127.0.0.1:{}/", server.port));
    let found = server.dafs("sessions");
    let sessions = found["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 2, "{found:#}");
    for session in sessions {
        assert!(session["credits"].as_u64().unwrap() > 0, "{session}");
        assert!(session["limited_by"].is_string(), "{session}");
        assert!(session["reactor"].is_u64(), "{session}");
    }
    let given = sessions.iter().map(|session| session["credits_target"].as_u64().unwrap());
    assert_eq!(found["credits"]["given"].as_u64().unwrap(), given.sum::<u64>(), "{found:#}");
    assert_eq!(found["in_grace"], Value::Bool(false));
    drop((local, remote));
    let shown = Command::new(env!("CARGO_BIN_EXE_dafs"))
        .args(["sessions", &format!("dafs+shm://{}!/", server.socket())])
        .output()
        .unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(text.contains("limited by") && text.contains("credits granted"), "{text}");
}

#[test]
fn nobody_there_is_said() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("socket");
    let ran = Command::new(env!("CARGO_BIN_EXE_dafs")).arg("locks").arg(&socket).output().unwrap();
    assert!(!ran.status.success());
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(said.contains(Path::new(&socket).to_str().unwrap()), "{said}");
    assert!(said.contains("dafs serve"), "{said}");
}
