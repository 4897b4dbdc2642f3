//! Tests that loopback connections prove nothing: without authentication, no client gets in unless
//! that is configured.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::people::{OWNER, Person, STRANGER, Server, can_be_others, said};

/// Makes a directory with a file that only its owner can read.
fn home_with_a_secret(owner: &Person) -> PathBuf {
    let home = owner.directory("home");
    let secret = home.join("secret");
    std::fs::write(&secret, "mine\n").unwrap();
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(&secret, Some(owner.uid), Some(owner.uid)).unwrap();
    home
}

#[test]
fn another_user_of_the_host_is_not_served_as_the_servers_user() {
    if !can_be_others() {
        return;
    }
    let (owner, stranger) = (Person::new(OWNER), Person::new(STRANGER));
    let home = home_with_a_secret(&owner);
    let server = Server::start(&owner, &home, &[]);
    let url = format!("dafs://{}/", server.tcp);
    let stolen = stranger.run(&["cat", "--transport", "tcp", &format!("{url}secret")]);
    assert!(!stolen.status.success() && stolen.stdout.is_empty(), "{}", said(&stolen));
    assert!(said(&stolen).contains("without a proof"), "{}", said(&stolen));
    let made = stranger.run(&["mkdir", "--transport", "tcp", &format!("{url}theirs")]);
    assert!(!made.status.success() && !home.join("theirs").exists(), "{}", said(&made));
    let none = ["ls", "--login", "none", "--transport", "tcp", &url];
    assert!(!stranger.run(&none).status.success());
    // The kernel vouches for the owner.
    assert_eq!(said(&owner.run(&["cat", &server.url("secret")])), "mine\n");
}

#[test]
fn a_server_of_root_lets_nobody_in_without_a_proof() {
    if !can_be_others() {
        return;
    }
    let (root, stranger) = (Person::new(0), Person::new(STRANGER));
    let export = root.directory("export");
    std::fs::write(export.join("file"), "text\n").unwrap();
    let server = Server::start(&root, &export, &[]);
    let url = format!("dafs://{}/file", server.tcp);
    let read = stranger.run(&["cat", "--transport", "tcp", &url]);
    assert!(!read.status.success() && read.stdout.is_empty(), "{}", said(&read));
}

#[test]
fn whoever_lets_strangers_in_is_told_by_the_log_and_the_doctor() {
    let own = Person::new(rustix::process::geteuid().as_raw());
    let export = own.directory("export");
    let open = Server::start(&own, &export, &["--anonymous", "nobody"]);
    let url = format!("dafs://{}/", open.tcp);
    let doctor = |url: &str| said(&own.run(&["doctor", "--transport", "tcp", url]));
    let found = doctor(&url);
    assert!(found.contains("risk ") && found.contains("--anonymous"), "{found}");
    let log = open.end();
    assert!(log.contains("--anonymous") && log.contains("65534"), "{log}");

    let closed = Server::start(&own, &export, &[]);
    let found = doctor(&format!("dafs://{}/", closed.tcp));
    assert!(!found.contains("risk "), "{found}");
    assert!(!closed.end().contains("--anonymous"));
}

#[test]
fn servers_of_our_own_for_a_while_let_nobody_else_in() {
    if !can_be_others() {
        return;
    }
    let stranger = Person::new(STRANGER);
    let place = tempfile::tempdir().unwrap();
    let shown = place.path().join("shown");
    std::fs::create_dir(&shown).unwrap();
    std::fs::write(shown.join("file"), "text\n").unwrap();
    let (place, shown) = (place.path().to_str().unwrap(), shown.to_str().unwrap());
    for command in [
        &["demo", "--tiny", "--scratch", place, shown][..],
        &["bench", "--tiny", "--only", "tcp read", "--block", "4096"],
        &["bench", "gzip", "--megabytes", "1", "--rounds", "1", "--place", place],
        &["recover-test", "--rounds", "1", "--life", "60000", place],
    ] {
        let own = Own::start(command);
        let server = own.server();
        let listed =
            stranger.run(&["ls", "--transport", "tcp", &format!("dafs://{}/", server.tcp)]);
        assert!(!listed.status.success(), "{command:?}: {}", said(&listed));
        assert!(said(&listed).contains("USER@"), "{command:?}: {}", said(&listed));
        // The password for its own clients must not be visible, either.
        let arguments = std::fs::read_to_string(format!("/proc/{}/cmdline", server.pid)).unwrap();
        let environment = std::fs::read_to_string(format!("/proc/{}/environ", server.pid)).unwrap();
        assert!(arguments.contains("--one-time-password"), "{arguments}");
        let has_password = |text: &str| {
            text.split(|letter: char| !letter.is_ascii_hexdigit()).any(|word| word.len() == 64)
        };
        assert!(!has_password(&arguments) && !has_password(&environment), "{command:?}");
        if command[0] == "demo" {
            // Not even its own clients can change what is shown.
            let url = format!("dafs+shm://{}!/tree/made", server.socket);
            let made = Person::new(0).run(&["mkdir", &url]);
            assert!(said(&made).contains("read-only"), "{}", said(&made));
        }
    }
}

/// A command that starts its own server, and is stopped as soon as the server listens.
struct Own {
    child: Child,
}

/// The server that the command has started.
struct Found {
    pid: u32,
    tcp: String,
    socket: String,
}

impl Own {
    fn start(command: &[&str]) -> Self {
        let mut dafs = Command::new(env!("CARGO_BIN_EXE_dafs"));
        Self { child: dafs.args(command).stdout(Stdio::null()).spawn().unwrap() }
    }

    fn server(&self) -> Found {
        let mut found = None;
        crate::program::await_that("the server listens", || {
            found = self.listening();
            found.is_some()
        });
        let found = found.unwrap();
        // The server runs as long as the process that started it.
        kill_process(Pid::from_child(&self.child), Signal::STOP).unwrap();
        found
    }

    fn listening(&self) -> Option<Found> {
        let own = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).ok()?;
        for pid in children.split_whitespace() {
            let text = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<&str> = text.split('\0').collect();
            if words.get(1) != Some(&"serve") {
                continue;
            }
            let at = words.iter().position(|word| *word == "--socket")?;
            let pid = pid.parse().ok()?;
            let socket = words.get(at + 1)?.to_string();
            return Some(Found { pid, tcp: listener_of(pid)?, socket });
        }
        None
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the TCP address at which a process listens, from the tables of the kernel.
fn listener_of(pid: u32) -> Option<String> {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let open: Vec<String> = open
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|target| {
            Some(target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    table.lines().skip(1).find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let is_listening = columns.get(3) == Some(&"0A");
        let is_its_own = open.iter().any(|inode| columns.get(9) == Some(&inode.as_str()));
        let port = columns.get(1)?.split_once(':')?.1;
        let port = u16::from_str_radix(port, 16).ok()?;
        (is_listening && is_its_own).then(|| format!("127.0.0.1:{port}"))
    })
}
