//! Tests that clients cannot access the server's own files, and cannot enter one export through
//! another.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};

use super::people::{Person, Server, said};
use crate::program::dafs;

fn own() -> Person {
    Person::new(rustix::process::geteuid().as_raw())
}

/// Returns the error of `dafs serve` for a configuration that it refuses.
fn refused(config: &Path) -> String {
    let mut serve = dafs();
    serve.args(["serve", "--no-tcp", "--no-socket", "--config"]).arg(config);
    let output = serve.output().unwrap();
    assert!(!output.status.success(), "{}", said(&output));
    said(&output)
}

fn configuration(person: &Person, text: &str) -> PathBuf {
    let path = person.path("dafs.toml");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn clients_get_nowhere_near_the_state_of_a_server_that_serves_the_home_it_lies_in() {
    let person = own();
    let home = person.directory("home");
    std::fs::write(home.join("file"), "mine\n").unwrap();
    let state = home.join(".local/state/dafs");
    // The state directory is the default one.
    let mut serve = person.dafs(&["serve", "--no-anonymous", "--tcp", "127.0.0.1:0"]);
    serve.arg("--socket").arg(person.path("socket")).arg(&home);
    serve.env("XDG_STATE_HOME", home.join(".local/state"));
    let server = Server::run(serve, person.path("socket"));
    let key = state.join("handle.key");
    let before = std::fs::read(&key).unwrap();
    let run = |arguments: &[&str]| -> Output { person.run(arguments) };
    let url = |path: &str| server.url(path);
    assert_eq!(said(&run(&["cat", &url("file")])), "mine\n", "the home itself is served");
    let inside =
        [".local/state/dafs/handle.key", ".local/state/dafs/journals", ".local/state/dafs"];
    for path in inside {
        for command in ["cat", "ls", "rm", "stat"] {
            let tried = run(&[command, &url(path)]);
            assert!(!tried.status.success(), "{command} {path}: {}", said(&tried));
        }
        let put = run(&["cp", "/etc/hostname", &url(&format!("{path}/new"))]);
        assert!(!put.status.success(), "{path}: {}", said(&put));
    }
    // Nor can it be moved to a place where another directory could replace it.
    for path in [".local/state/dafs", ".local/state", ".local"] {
        let moved = run(&["mv", &url(path), &url("elsewhere")]);
        assert!(!moved.status.success(), "{path}: {}", said(&moved));
    }
    let removed = run(&["rm", "-r", &url(".local")]);
    assert!(!removed.status.success(), "{}", said(&removed));
    assert_eq!(std::fs::read(&key).unwrap(), before);
    assert!(state.join("journals").is_dir() && !home.join("elsewhere").exists());
}

#[test]
fn secrets_beneath_an_export_keep_the_server_from_starting() {
    let person = own();
    let export = person.directory("export");
    std::fs::write(export.join("secret"), "").unwrap();
    let (export, secret) = (export.display(), export.join("secret"));
    let secret = secret.display();
    for key in [
        format!("password-file = \"{secret}\""),
        format!("keytab = \"{secret}\""),
        format!("tls-key = \"{secret}\"\ntls-cert = \"{secret}\""),
        format!("[kerberos]\nkeytab = \"{secret}\""),
    ] {
        let config = configuration(&person, &format!("directories = [\"{export}\"]\n{key}\n"));
        let told = refused(&config);
        assert!(told.contains("is inside the export \"export\""), "{key}: {told}");
    }
    let state = person.directory("state");
    let within = state.join("served");
    std::fs::create_dir(&within).unwrap();
    let (state, within) = (state.display(), within.display());
    let config = format!("directories = [\"{within}\"]\nstate = \"{state}\"\n");
    let told = refused(&configuration(&person, &config));
    assert!(told.contains("is inside the state directory"), "{told}");
}

#[test]
fn an_export_with_stricter_rules_does_not_lie_in_one_without() {
    let person = own();
    let outer = person.directory("outer");
    let inner = outer.join("inner");
    std::fs::create_dir(&inner).unwrap();
    let (outer, inner) = (outer.display(), inner.display());
    let nested = |rules: &str| {
        let exports = format!(
            "[[export]]\nname = \"outer\"\npath = \"{outer}\"\n\
             [[export]]\nname = \"inner\"\npath = \"{inner}\"\n{rules}\n"
        );
        configuration(&person, &exports)
    };
    for (rules, what) in [
        ("[[export.clients]]\nprincipals = [\"user:nobody\"]", "rules about clients"),
        ("read-only = true", "read-only"),
        ("squash = \"all\"", "squash"),
    ] {
        let config = nested(rules);
        let told = refused(&config);
        assert!(told.contains(what) && told.contains("\"outer\""), "{rules}: {told}");
        let looked = dafs().arg("doctor").arg("--config").arg(&config).output().unwrap();
        assert!(said(&looked).contains("BAD") && said(&looked).contains(what), "{}", said(&looked));
    }
    // Less strict terms are reported as a risk, but served.
    let config = nested("anonymous = \"1:1\"");
    let looked = said(&dafs().arg("doctor").arg("--config").arg(&config).output().unwrap());
    assert!(looked.contains("risk ") && looked.contains("\"inner\" is inside"), "{looked}");
}

/// Starts a server with a configuration and stops it. Returns the names of the journals.
fn journals_after(config: &Path, state: &Path, more: &[&str]) -> Vec<String> {
    let mut serve = dafs();
    serve.args(["serve", "--no-tcp", "--cache", "16M", "--config"]).arg(config);
    serve.arg("--state").arg(state).arg("--socket").arg(state.with_extension("socket"));
    let mut child: Child = serve.args(more).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(line.starts_with("ready"), "{line:?}");
    let entries = std::fs::read_dir(state.join("journals")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_journal_is_that_of_all_exports_and_of_no_others() {
    let person = own();
    let state = person.path("state");
    let export_of = |name: &str| {
        let path = person.path(name);
        let _ = std::fs::create_dir(&path);
        let text = format!("[[export]]\nname = \"{name}\"\npath = \"{}\"\n", path.display());
        configuration(&person, &text)
    };
    let one = journals_after(&export_of("one"), &state, &[]);
    assert!(one.len() == 1 && one[0].starts_with("one-"), "{one:?}");
    let both = journals_after(&export_of("two"), &state, &[]);
    assert_eq!(both.len(), 2, "other exports have another journal: {both:?}");
    assert_eq!(journals_after(&export_of("one"), &state, &[]), both);
}

#[test]
fn a_journal_of_the_former_name_is_taken_over_where_it_is_the_only_one() {
    let person = own();
    let export = person.directory("one");
    let text = format!("[[export]]\nname = \"one\"\npath = \"{}\"\n", export.display());
    let config = configuration(&person, &text);
    let state = person.path("state");
    let new = journals_after(&config, &state, &[]).remove(0);
    let journals = state.join("journals");
    // Name the journal as an older version did, with its contents.
    std::fs::rename(journals.join(&new), journals.join("-00000000")).unwrap();
    std::fs::write(journals.join("-00000000/mark"), "").unwrap();
    assert_eq!(journals_after(&config, &state, &[]), std::slice::from_ref(&new));
    assert!(journals.join(&new).join("mark").exists());
    // If there are other journals, it may belong to other exports.
    std::fs::rename(journals.join(&new), journals.join("-00000000")).unwrap();
    std::fs::create_dir(journals.join("other-12345678")).unwrap();
    let there = journals_after(&config, &state, &[]);
    assert_eq!(there, ["-00000000", &new, "other-12345678"]);
    assert!(!journals.join(&new).join("mark").exists());
}
