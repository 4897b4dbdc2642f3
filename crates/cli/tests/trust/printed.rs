//! Tests that names and messages of other users reach a terminal as plain text without control
//! characters.

use std::process::{Command, Output, Stdio};

use super::people::{Person, Server, said};
use crate::program::await_that;

/// Clears the screen, sets the title, and reverses the text direction.
const NAME: &str = "a\x1b[2J\x1b]0;title\x07\u{9b}1m\u{202e}z";

fn is_harmless(text: &str) -> bool {
    !text.contains(['\x1b', '\x07', '\u{9b}', '\u{202e}'])
}

fn harmless(output: &Output, what: &str) {
    assert!(is_harmless(&said(output)), "{what}: {:?}", said(output));
}

#[test]
fn names_with_escape_sequences_do_not_steer_a_terminal() {
    let person = Person::new(rustix::process::geteuid().as_raw());
    let export = person.directory("export");
    std::fs::write(export.join(NAME), "text\n").unwrap();
    std::fs::create_dir(export.join("directory")).unwrap();
    std::fs::write(export.join("directory").join(NAME), "text\n").unwrap();
    let (server, state) = (Server::start(&person, &export, &[]), person.path("socket"));
    let state = state.to_str().unwrap();
    let (url, none) = (server.url(NAME), server.url(&format!("{NAME}.none")));
    for told in [
        &["cat", &none][..],
        &["ls", &none],
        &["rm", &none],
        &["mv", &none, &url],
        &["mkdir", &url],
        &["cp", &none, "/dev/null"],
        &["cp", &url, "/nowhere/at/all"],
        &["cp", "-r", &server.url("directory"), "/proc"],
        &["gzip", &none],
        &["sort", &none],
        &["stat", &url],
        &["stat", &none],
        &["doctor", &format!("dafs://{NAME}/")],
        &["fence", "list", &url],
    ] {
        harmless(&person.run(told), &format!("{told:?}"));
    }
    // A client can choose any fence identity.
    harmless(&person.run(&["ping", "--fence-id", NAME, &server.url("")]), "a fence identity");
    harmless(&person.run(&["fence", "deny", &url, NAME]), "fence deny");
    harmless(&person.run(&["fence", "list", &url]), "fence list");

    // The holder of a lock chose the file's name.
    let mut held = person
        .dafs(&["lock", &server.url(&format!("directory/{NAME}")), "--", "cat"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let locks = || person.run(&["locks", state]);
    await_that("the lock is held", || said(&locks()).contains("title"));
    harmless(&locks(), "locks");
    harmless(&person.run(&["locks", "--json", state]), "locks --json");
    harmless(&person.run(&["sessions", state]), "sessions");
    harmless(&person.run(&["sessions", "--json", state]), "sessions --json");
    drop(held.stdin.take());
    held.wait().unwrap();

    // On a terminal, which `script` provides.
    let terminal = Command::new("script")
        .args([
            "-qec",
            &format!("{} ls {}", env!("CARGO_BIN_EXE_dafs"), server.url("")),
            "/dev/null",
        ])
        .stdin(Stdio::null())
        .output();
    match terminal {
        Ok(listed) => {
            assert!(said(&listed).contains("title"), "{}", said(&listed));
            harmless(&listed, "ls");
        }
        Err(error) => dafs_tests::skip_part(format_args!("there is no terminal: script: {error}")),
    }
}
