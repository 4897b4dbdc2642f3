//! `systemctl reload`: a running server takes over rules, passwords and certificates.

use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::program::dafs;
use crate::tls::certificates::Authority;

/// A server with a configuration file, and its log.
struct Server {
    child: Child,
    log: Lines<BufReader<ChildStderr>>,
    directory: tempfile::TempDir,
    port: String,
}

impl Server {
    fn start(configure: impl FnOnce(&Path) -> String) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        std::fs::create_dir(place.join("export")).unwrap();
        std::fs::write(place.join("export/file"), "content").unwrap();
        let all = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(place.join("export/file"), all).unwrap();
        std::fs::write(place.join("dafs.toml"), configure(place)).unwrap();
        let mut child = dafs()
            .args(["--log", "info", "serve"])
            .arg(place.join("export"))
            .args(["--tcp", "127.0.0.1:0", "--no-socket", "--cache", "32M", "--state"])
            .arg(place.join("state"))
            .arg("--config")
            .arg(place.join("dafs.toml"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let ready = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        let port = ready.rsplit(':').next().unwrap().to_owned();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, log, directory, port }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Sends SIGHUP; returns what the log says of it.
    fn reload(&mut self) -> String {
        kill_process(Pid::from_child(&self.child), Signal::HUP).unwrap();
        let mut lines = self.log.by_ref().map(Result::unwrap);
        lines.find(|line| line.contains("reloaded")).expect("the server is still there")
    }

    fn can_list(&self, user: &str, password: &str) -> bool {
        let url = format!("dafs://{user}@127.0.0.1:{}/", self.port);
        let mut list = dafs();
        list.args(["ls", "--password-from", "/dev/stdin", &url]);
        given(list.stdout(Stdio::null()).stderr(Stdio::null()), password)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command with a line on its standard input; true if it succeeds.
fn given(command: &mut std::process::Command, line: &str) -> bool {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{line}").unwrap();
    child.wait().unwrap().success()
}

fn set_password(file: &Path, user: &str, password: &str) {
    assert!(given(
        dafs().args(["passwd", user, "--file"]).arg(file).stdout(Stdio::null()),
        password
    ));
}

#[test]
fn users_passwords_and_rules_change_without_a_restart() {
    let mut server = Server::start(|place| {
        set_password(&place.join("passwords"), "ann", "old");
        format!("password-file = {:?}\n", place.join("passwords"))
    });
    assert!(server.can_list("ann", "old"));
    // A session that is open stays.
    let held = format!("dafs://ann@127.0.0.1:{}/file", server.port);
    std::fs::write(server.file("old"), "old\n").unwrap();
    std::fs::set_permissions(server.file("old"), PermissionsExt::from_mode(0o600)).unwrap();
    let mut holder = dafs()
        .args(["lock", "--password-from"])
        .arg(server.file("old"))
        .args([&held, "--", "sh", "-c", "echo held; read -r line; echo still"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "held");

    set_password(&server.file("passwords"), "ann", "new");
    set_password(&server.file("passwords"), "bob", "bobs");
    assert!(server.can_list("ann", "old") && !server.can_list("bob", "bobs"), "not asked to yet");
    let said_of_it = server.reload();
    assert!(said_of_it.contains("configuration reloaded"), "{said_of_it}");
    assert!(server.can_list("ann", "new") && server.can_list("bob", "bobs"));
    assert!(!server.can_list("ann", "old"));

    let text = std::fs::read_to_string(server.file("dafs.toml")).unwrap();
    let rule = "[[connect]]\naction = \"deny\"\nprincipals = [\"user:bob\"]\n\
                [[connect]]\naction = \"allow\"\n";
    std::fs::write(server.file("dafs.toml"), format!("{text}{rule}")).unwrap();
    server.reload();
    assert!(server.can_list("ann", "new") && !server.can_list("bob", "bobs"));

    drop(holder.stdin.take());
    assert_eq!(said.next().unwrap().unwrap(), "still");
    assert!(holder.wait().unwrap().success(), "its session has gone on");
}

#[test]
fn the_first_users_come_by_a_reload() {
    let mut server = Server::start(|_| String::new());
    set_password(&server.file("passwords"), "ann", "right");
    assert!(!server.can_list("ann", "right"));
    let line = format!("password-file = {:?}\n", server.file("passwords"));
    std::fs::write(server.file("dafs.toml"), line).unwrap();
    let said = server.reload();
    assert!(said.contains("configuration reloaded"), "{said}");
    assert!(server.can_list("ann", "right") && !server.can_list("ann", "wrong"));
    // And go by one.
    std::fs::write(server.file("dafs.toml"), "").unwrap();
    server.reload();
    assert!(!server.can_list("ann", "right"));
}

#[test]
fn a_configuration_that_cannot_be_used_changes_nothing() {
    let mut server = Server::start(|place| {
        set_password(&place.join("passwords"), "ann", "right");
        format!("password-file = {:?}\n", place.join("passwords"))
    });
    let good = std::fs::read_to_string(server.file("dafs.toml")).unwrap();
    let check = |server: &Server| {
        let checked =
            dafs().args(["serve", "--check", "--config"]).arg(server.file("dafs.toml")).output();
        let checked = checked.unwrap();
        (checked.status.success(), String::from_utf8_lossy(&checked.stderr).into_owned())
    };
    assert!(check(&server).0);
    for (bad, what) in [
        ("allow-from = [\"nowhere\"]\n", "nowhere"),
        ("allow-form = []\n", "allow-form"),
        ("password-file = \"/nonexistent/passwords\"\n", "/nonexistent/passwords"),
        ("[[export]]\nname = \"other\"\n", "export"),
    ] {
        let kept = if bad.starts_with("password-file") { "" } else { &good };
        std::fs::write(server.file("dafs.toml"), format!("{kept}{bad}")).unwrap();
        let said = server.reload();
        assert!(said.contains("configuration not reloaded") && said.contains(what), "{said}");
        assert!(server.can_list("ann", "right"), "after {bad:?}");
        let (is_good, said) = check(&server);
        assert!(!is_good && said.contains(what), "{said}");
    }
    std::fs::write(server.file("dafs.toml"), &good).unwrap();
    assert!(server.reload().contains("configuration reloaded"));
}

/// Half of a change can admit a client that both configurations keep out.
#[test]
fn a_change_that_needs_a_restart_is_applied_neither_as_a_whole_nor_in_part() {
    let export = |name: &str, place: &Path| {
        std::fs::create_dir(place.join(name)).unwrap();
        std::fs::write(place.join(name).join("content"), name).unwrap();
        format!("[[export]]\nname = {name:?}\npath = {:?}\n", place.join(name))
    };
    let mut server = Server::start(|place| {
        let closed = export("closed", place) + "clients = [{ principals = [\"user:ann\"] }]\n";
        set_password(&place.join("passwords"), "ann", "right");
        let file = format!("password-file = {:?}\n", place.join("passwords"));
        format!(
            "{file}anonymous = \"own\"\nsquash = \"none\"\nallow-from = [\"127.0.0.1\"]\n{closed}"
        )
    });
    let good = std::fs::read_to_string(server.file("dafs.toml")).unwrap();
    let reads = |server: &Server, path: &str| {
        let mut cat = dafs();
        cat.arg("cat").arg(format!("dafs://127.0.0.1:{}/{path}", server.port));
        cat.output().unwrap().status.success()
    };
    assert!(reads(&server, "export/file") && !reads(&server, "closed/content"));
    let without = |line: &str| {
        let kept = good.lines().filter(|other| !other.starts_with(line));
        kept.map(|line| format!("{line}\n")).collect::<String>()
    };
    let (before_export, _) = good.split_once("[[export]]").unwrap();
    for (changed, named) in [
        (before_export.to_owned(), "export"),
        (without("anonymous"), "anonymous"),
        (good.replace("closed\"\npath", "other\"\npath"), "export"),
        (format!("lease = 17\n{good}"), "lease"),
        (format!("allow-user = [\"root\"]\n{good}"), "allow-user"),
    ] {
        assert_ne!(changed, good);
        std::fs::write(server.file("dafs.toml"), changed).unwrap();
        let said = server.reload();
        let is_refused = said.contains("not reloaded") && said.contains("needs a restart");
        assert!(is_refused && said.contains(named), "{said}");
        assert!(reads(&server, "export/file") && !reads(&server, "closed/content"), "{named}");
    }
    // Rules of the same exports are applied.
    std::fs::write(server.file("dafs.toml"), without("clients")).unwrap();
    assert!(server.reload().contains("configuration reloaded"));
    assert!(reads(&server, "closed/content"));
}

#[test]
fn a_new_certificate_is_shown_to_new_connections() {
    let (first, second) = (Authority::new(), Authority::new());
    let issue = |authority: &Authority, place: &Path| {
        let (certificate, key) = authority.issue("server", &["localhost"], |_| {});
        // Copied with its mode, as certificate tools replace what they have renewed.
        std::fs::copy(certificate, place.join("certificate")).unwrap();
        std::fs::copy(key, place.join("key")).unwrap();
    };
    let mut server = Server::start(|place| {
        issue(&first, place);
        let path = |name| place.join(name);
        let tls = format!("tls-cert = {:?}\ntls-key = {:?}\n", path("certificate"), path("key"));
        format!("{tls}anonymous = \"own\"\nsquash = \"none\"\n")
    });
    let lists = |server: &Server, authority: &Authority| {
        let mut list = dafs();
        list.arg("ls").arg(format!("dafs+tls://localhost:{}/", server.port));
        list.env("DAFS_TLS_CA", authority.file()).stderr(Stdio::null());
        list.output().unwrap().status.success()
    };
    assert!(lists(&server, &first) && !lists(&server, &second));
    issue(&second, server.directory.path());
    assert!(lists(&server, &first), "not asked to yet");
    let said = server.reload();
    assert!(said.contains("configuration reloaded"), "{said}");
    assert!(lists(&server, &second) && !lists(&server, &first));
    // Half of a pair is no pair.
    let (_, key) = first.issue("other", &["localhost"], |_| {});
    std::fs::copy(key, server.file("key")).unwrap();
    let said = server.reload();
    assert!(said.contains("not reloaded") && said.contains("key"), "{said}");
    assert!(lists(&server, &second));
}
