//! Tests that the password in a URL is not visible in process lists or messages.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use super::people::{Person, Server, said};
use crate::preloaded::library;
use crate::program::{await_that, dafs};

const PASSWORD: &str = "opensesame";

/// A server that knows the user ann with her password.
struct Scene {
    own: Person,
    server: Server,
}

impl Scene {
    fn new() -> Self {
        let own = Person::new(rustix::process::geteuid().as_raw());
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        let export = own.directory("export");
        std::fs::write(export.join("file"), "text\n").unwrap();
        let passwords = own.path("passwords");
        let mut passwd = dafs()
            .args(["passwd", "--uid", &user.to_string(), "--gid", &group.to_string(), "--file"])
            .arg(&passwords)
            .arg("ann")
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(passwd.stdin.take().unwrap(), "{PASSWORD}").unwrap();
        assert!(passwd.wait().unwrap().success());
        let more = ["--squash", "none", "--password-file", passwords.to_str().unwrap()];
        let server = Server::start(&own, &export, &more);
        Self { own, server }
    }

    /// Returns a URL with the password.
    fn url(&self, path: &str) -> String {
        format!("dafs://ann:{PASSWORD}@{}/{path}", self.server.tcp)
    }
}

/// Returns the arguments of a process, which every user can read.
fn arguments_of(process: &str) -> String {
    let text = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&text).replace('\0', " ")
}

/// Returns the processes with this text in their arguments.
fn processes_with(text: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let own = std::process::id().to_string();
    names
        .filter(|name| name.bytes().all(|digit| digit.is_ascii_digit()) && *name != own)
        .filter(|name| arguments_of(name).contains(text))
        .collect()
}

#[test]
fn a_mount_shows_no_password_in_the_lists_of_mounts_and_of_processes() {
    if !dafs_tests::can_mount() {
        return;
    }
    let scene = Scene::new();
    let place = scene.own.directory("mounted");
    let mounted = dafs().arg("mount").arg(scene.url("")).arg(&place).output().unwrap();
    assert!(mounted.status.success(), "{}", said(&mounted));
    let table = std::fs::read_to_string("/proc/mounts").unwrap();
    let name = place.to_str().unwrap();
    let serving = processes_with(name);
    let shown: Vec<String> = serving.iter().map(|process| arguments_of(process)).collect();
    let read = std::fs::read(place.join("file"));
    let unmounted = dafs().arg("unmount").arg(&place).output().unwrap();
    assert!(unmounted.status.success(), "{}", said(&unmounted));
    assert_eq!(read.unwrap(), b"text\n");
    let line = table.lines().find(|line| line.contains(name)).unwrap();
    assert!(line.starts_with(&format!("dafs://ann@{}/", scene.server.tcp)), "{line}");
    assert!(!said(&mounted).contains(PASSWORD), "{}", said(&mounted));
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert!(shown[0].contains("dafs://ann:**********@"), "{shown:?}");

    // A line of /etc/fstab can name a password file.
    let file = scene.own.path("password");
    std::fs::write(&file, format!("{PASSWORD}\n")).unwrap();
    let own = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, own).unwrap();
    let option = format!("ro,password_from={}", file.display());
    let url = format!("dafs://ann@{}/", scene.server.tcp);
    let mounted = dafs().args(["mount", "-o", &option, &url]).arg(&place).output().unwrap();
    let read = std::fs::read(place.join("file"));
    let unmounted = dafs().arg("unmount").arg(&place).output().unwrap();
    assert!(unmounted.status.success(), "{} {}", said(&mounted), said(&unmounted));
    assert_eq!(read.unwrap(), b"text\n");
}

#[test]
fn a_command_that_runs_shows_no_password_and_gives_none_to_what_it_starts() {
    let scene = Scene::new();
    let mut held = dafs()
        .args(["lock", "--transport", "tcp", &scene.url("file"), "--", "sh", "-c"])
        .arg("cat /proc/self/environ; echo; read -r line")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(held.stdout.take().unwrap());
    let mut environment = String::new();
    output.read_line(&mut environment).unwrap();
    let shown = arguments_of(&held.id().to_string());
    drop(held.stdin.take());
    held.wait().unwrap();
    assert!(shown.contains("dafs://ann:**********@") && !shown.contains(PASSWORD), "{shown}");
    assert!(!environment.is_empty() && !environment.contains(PASSWORD), "{environment}");
}

#[test]
fn preloaded_programs_have_no_password_in_their_environment() {
    let scene = Scene::new();
    let exec = |more: &[&str]| -> std::process::Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dafs"));
        command.env("DAFS_PRELOAD_LIBRARY", library()).arg("exec").args(more);
        command.output().unwrap()
    };
    let map = format!("/served={}", scene.url(""));
    let refused = exec(&["--map", &map, "true"]);
    assert!(!refused.status.success(), "{}", said(&refused));
    assert!(said(&refused).contains("--password-from"), "{}", said(&refused));
    assert!(!said(&refused).contains(PASSWORD), "{}", said(&refused));

    let file = scene.own.path("password");
    std::fs::write(&file, format!("{PASSWORD}\n")).unwrap();
    let own = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, own).unwrap();
    let map = format!("/served=dafs://ann@{}/", scene.server.tcp);
    let told = ["--map", &map, "--password-from", file.to_str().unwrap()];
    let script = "cat /served/file /proc/self/environ; sh -c 'cat /served/file'";
    let read = exec(&[&told[..], &["sh", "-c", script]].concat());
    let text = said(&read);
    assert!(text.starts_with("text\n") && text.ends_with("text\n"), "{text}");
    assert!(text.contains("DAFS_PRELOAD_MAP") && !text.contains(PASSWORD), "{text}");
}

#[test]
fn no_message_shows_a_password() {
    let scene = Scene::new();
    let place = scene.own.path("nowhere");
    let wrong = [
        scene.url("nothing"),
        scene.url("file/below"),
        format!("dafs://ann:{PASSWORD}"),
        format!("dafs://ann:{PASSWORD}/with/slash@{}/", scene.server.tcp),
        format!("dafs:/ann:{PASSWORD}@host/"),
        format!("dafs://ann:{PASSWORD}@host:port/"),
        format!("dafs+ssh://ann:{PASSWORD}@host/"),
    ];
    for url in &wrong {
        for command in ["ls", "cat", "rm", "stat", "df", "ping", "doctor", "mv", "cp", "mount"] {
            let mut dafs = dafs();
            dafs.args(
                [command, url, place.to_str().unwrap()]
                    [..2 + usize::from(["mv", "cp", "mount"].contains(&command))]
                    .as_ref(),
            );
            let told = dafs.stdin(Stdio::null()).output().unwrap();
            assert!(!said(&told).contains(PASSWORD), "{command} {url}: {}", said(&told));
        }
    }
    // Only once, because guesses are slowed down.
    let guess = format!("dafs://ann:x{PASSWORD}@{}/", scene.server.tcp);
    let told = dafs().args(["cat", &guess]).output().unwrap();
    assert!(!told.status.success() && !said(&told).contains(PASSWORD), "{}", said(&told));
    let log = ["--log", "trace", "cat", &scene.url("file")];
    let told = dafs().args(log).output().unwrap();
    assert!(told.status.success() && !said(&told).contains(PASSWORD), "{}", said(&told));
    await_that("nothing is left of the mounts", || !is_mounted(&place));
}

fn is_mounted(place: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/mounts").unwrap();
    table.contains(place.to_str().unwrap())
}
