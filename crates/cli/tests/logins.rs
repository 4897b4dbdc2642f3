//! Tests the server's log lines for logins, which must match the fail2ban configuration.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::program::dafs;

/// Checks the line that `docs/operating/access.md` shows. The address comes first and is the
/// server's own, and text from the peer is quoted.
#[test]
fn a_refused_login_is_in_the_log_with_where_it_came_from_before_what_was_said() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("passwords");
    let made =
        dafs().args(["passwd", "ann", "--file"]).arg(&file).stdin(Stdio::piped()).spawn().and_then(
            |mut child| {
                child.stdin.take().unwrap().write_all(b"right\n")?;
                child.wait()
            },
        );
    assert!(made.unwrap().success());
    let export = directory.path().join("export");
    std::fs::create_dir(&export).unwrap();
    let mut server = dafs()
        .arg("--log")
        .arg("info")
        .arg("serve")
        .arg(&export)
        .args(["--tcp", "127.0.0.1:0", "--no-socket", "--cache", "32M", "--state"])
        .arg(directory.path().join("state"))
        .arg("--password-file")
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(server.stdout.take().unwrap()).lines();
    let port = said.next().unwrap().unwrap().rsplit(':').next().unwrap().to_owned();
    let login = |user: &str, password: &str| {
        let mut list = dafs()
            .args(["ls", "--password-from", "/dev/stdin"])
            .arg(format!("dafs://{user}@127.0.0.1:{port}/"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        list.stdin.take().unwrap().write_all(password.as_bytes()).unwrap();
        list.wait().unwrap().success()
    };
    assert!(!login("ann%22%0Afrom=192.0.2.1", "guess"));
    assert!(!login("ann", "wrong"));
    assert!(login("ann", "right"));
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&server),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    let log: Vec<String> =
        BufReader::new(server.stderr.take().unwrap()).lines().map(Result::unwrap).collect();
    assert!(server.wait().unwrap().success());
    let after =
        |line: &String| line.split_once(" WARN dafs_server::logins: ").map(|l| l.1.to_owned());
    let refused: Vec<String> = log.iter().filter_map(after).collect();
    assert_eq!(refused.len(), 2, "{log:#?}");
    assert!(refused[0].starts_with("login refused from=127.0.0.1 user=\"ann"), "{refused:?}");
    assert_eq!(refused[1], "login refused from=127.0.0.1 user=\"ann\"");
    let established = log.iter().find(|line| line.contains("session established")).unwrap();
    assert!(established.contains("from=127.0.0.1 principal=\"user:ann\""), "{established}");
}

/// A password file that others can read is refused.
#[test]
fn a_password_in_a_file_that_others_can_read_is_not_taken() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, "secret\n").unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let list = dafs()
        .args(["ls", "dafs://ann@127.0.0.1:1/", "--password-from"])
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8(list.stderr).unwrap();
    assert!(!list.status.success() && said.contains("mode 644"), "{said}");
}
