//! Tests `dafs fence` and the fence agent as an operator and a cluster use them, with a real server
//! in a separate process that is also killed.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A served directory, and the state that servers keep across restarts.
struct Place {
    directory: tempfile::TempDir,
}

struct Server {
    child: Child,
    /// The root's URL for a user with a password, the superuser.
    trusted: String,
    /// The root's URLs without a password, one for each transport.
    anybody: Vec<String>,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("export")).unwrap();
        let password = directory.path().join("password");
        std::fs::write(&password, "secret\n").unwrap();
        // A file that others can read is not accepted as a secret.
        let own = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&password, own).unwrap();
        let place = Self { directory };
        let passwords = place.path("passwords");
        let mut passwd = dafs()
            .args(["passwd", "--uid", "0", "--gid", "0", "--file"])
            .args([passwords.to_str().unwrap(), "root"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        passwd.stdin.take().unwrap().write_all(b"secret\n").unwrap();
        assert!(passwd.wait().unwrap().success());
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn local(&self, name: &str) -> PathBuf {
        self.path("export").join(name)
    }

    fn serve(&self, more: &[&str]) -> Server {
        let mut child = dafs()
            .arg("serve")
            .args(more)
            .args(["--tcp", "127.0.0.1:0", "--anonymous", "4711:4711", "--password-file"])
            .args([self.path("passwords"), "--socket".into(), self.path("socket")])
            .args(["--state".into(), self.path("state")])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let list = line.trim().strip_prefix("ready: ").expect("a ready line");
        let anybody: Vec<_> = list.split(' ').map(url_of).collect();
        let tcp = anybody.iter().find(|url| url.starts_with("dafs://")).unwrap();
        let trusted = tcp.replace("dafs://", "dafs://root@");
        Server { child, trusted, anybody }
    }

    fn serve_export(&self) -> Server {
        self.serve(&[self.path("export").to_str().unwrap()])
    }

    /// Runs `dafs fence VERB` as the superuser for the whole file system.
    fn fence(&self, server: &Server, verb: &str, more: &[&str]) -> Output {
        dafs()
            .args(["fence", verb, "--file-system", "--password-from"])
            .arg(self.path("password"))
            .arg(format!("{}/", server.trusted))
            .args(more)
            .output()
            .unwrap()
    }

    fn fence_ok(&self, server: &Server, verb: &str, more: &[&str]) -> String {
        let output = self.fence(server, verb, more);
        assert!(output.status.success(), "{verb} {more:?}: {}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Server {
    fn end(&mut self, signal: Signal) -> String {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap();
        std::io::read_to_string(self.child.stderr.take().unwrap()).unwrap()
    }

    /// True if a client with this identity can read a file.
    fn may_read(&self, url: &str, fence_id: &str, name: &str) -> bool {
        let output = dafs()
            .args(["cat", "--fence-id", fence_id, &format!("{url}/{name}")])
            .output()
            .unwrap();
        if !output.status.success() {
            assert!(errors(&output).contains("permission denied"), "{}", errors(&output));
        }
        output.status.success()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn url_of(address: &str) -> String {
    match address.split_once(':').unwrap() {
        ("tcp", socket) => format!("dafs://{socket}"),
        (_, path) => format!("dafs+shm://{path}!"),
    }
}

fn dafs() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dafs"));
    command.env_remove("DAFS_FENCE_ID").stdin(Stdio::null());
    command
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Lets everybody read a file, whichever user runs the tests.
fn readable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, b"content").unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).unwrap();
}

#[test]
fn lists_are_shown_and_changed() {
    let place = Place::new();
    readable(&place.local("file"));
    let server = place.serve_export();
    let run = |verb: &str, more: &[&str]| place.fence_ok(&server, verb, more);
    assert_eq!(run("list", &[]), "");
    assert_eq!(run("allow", &["a"]), "", "everybody may already");
    let refused = place.fence(&server, "deny", &["a"]);
    assert!(errors(&refused).contains("create one with `dafs fence set`"), "{}", errors(&refused));
    assert_eq!(run("set", &["b", "a", "c"]), "a\nb\nc\n");
    assert_eq!(run("deny", &["c", "b"]), "a\n");
    for url in &server.anybody {
        assert!(server.may_read(url, "a", "file"));
        assert!(!server.may_read(url, "b", "file"));
        // The identity can also be set in the environment.
        let by_environment =
            dafs().args(["cat", &format!("{url}/file")]).env("DAFS_FENCE_ID", "a").output();
        assert!(by_environment.unwrap().status.success());
    }
    let refused = place.fence(&server, "deny", &["a"]);
    assert!(errors(&refused).contains("the list would be empty"), "{}", errors(&refused));
    let json = run("allow", &["b", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let expected = serde_json::json!({
        "path": "/", "object": "file-system", "fenced": true, "fence_ids": ["a", "b"]
    });
    assert_eq!(json, expected);
    let stranger = server.anybody.iter().find(|url| url.starts_with("dafs://")).unwrap();
    let refused =
        dafs().args(["fence", "clear", "--file-system", &format!("{stranger}/")]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(errors(&refused).contains("only trusted clients"), "{}", errors(&refused));
    assert_eq!(run("clear", &[]), "");
    assert!(server.may_read(stranger, "b", "file"));
}

#[test]
fn a_fence_outlives_its_server_however_that_ends() {
    let place = Place::new();
    readable(&place.local("file"));
    for signal in [Signal::KILL, Signal::TERM] {
        let mut server = place.serve_export();
        place.fence_ok(&server, "set", &["a", "b", "c"]);
        place.fence_ok(&server, "deny", &["b"]);
        server.end(signal);
        let mut server = place.serve_export();
        assert_eq!(place.fence_ok(&server, "list", &[]), "a\nc\n");
        for url in &server.anybody {
            assert!(server.may_read(url, "a", "file"));
            assert!(!server.may_read(url, "b", "file"), "after {signal:?}");
        }
        place.fence_ok(&server, "clear", &[]);
        server.end(signal);
        let server = place.serve_export();
        assert_eq!(place.fence_ok(&server, "list", &[]), "");
        assert!(server.may_read(&server.anybody[0], "b", "file"));
    }
}

#[test]
fn a_server_without_a_journal_says_once_that_its_fences_end_with_it() {
    let place = Place::new();
    let mut server = place.serve(&["--memory", "1M", "--squash", "none"]);
    for _ in 0..2 {
        place.fence_ok(&server, "set", &["a"]);
        place.fence_ok(&server, "clear", &[]);
    }
    let log = server.end(Signal::TERM);
    assert_eq!(log.matches("fencing lists will be lost").count(), 1, "{log}");
}

// ---- the agent --------------------------------------------------------------------------

/// Runs the agent with the system's shell, with options as a cluster gives them.
fn agent(place: &Place, server: &Server, options: &[(&str, &str)]) -> Output {
    let mut text = format!(
        "# a comment\nunknown=passed over\nagent=fence_dafs\nurl={}/\npassword_from={}\n\
         dafs_path={}\n",
        server.trusted,
        place.path("password").display(),
        env!("CARGO_BIN_EXE_dafs")
    );
    for (name, value) in options {
        text.push_str(&format!("  {name}={value}\n"));
    }
    let mut command = Command::new("sh");
    command.arg(script()).env_remove("DAFS_FENCE_ID").stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/fence_dafs")
}

#[test]
fn the_agent_shuts_nodes_out_and_lets_them_in() {
    let place = Place::new();
    readable(&place.local("file"));
    let server = place.serve_export();
    let code = |action: &str, plug: &str| {
        let output = agent(&place, &server, &[("action", action), ("plug", plug)]);
        (output.status.code().unwrap(), errors(&output))
    };
    // Without a fence no client could be excluded, and the monitor action reports that early.
    assert_eq!(code("status", "a").0, 0);
    for action in ["monitor", "off"] {
        let (failed, complaint) = code(action, "a");
        assert_eq!(failed, 1);
        assert!(complaint.contains("dafs fence set --file-system"), "{complaint}");
    }
    assert_eq!(code("on", "a").0, 0, "everybody may");
    assert_eq!(place.fence_ok(&server, "list", &[]), "");
    place.fence_ok(&server, "set", &["a", "b"]);
    assert_eq!(code("monitor", "").0, 0);
    // Twice each: repeating an action is no failure.
    for _ in 0..2 {
        assert_eq!(code("off", "b").0, 0);
        assert_eq!(code("status", "b").0, 2);
        assert_eq!(code("STATUS", "a").0, 0);
    }
    assert!(!server.may_read(&server.anybody[0], "b", "file"));
    // The last identity can be removed, too.
    assert_eq!(code("off", "a").0, 0);
    assert_eq!(code("status", "a").0, 2);
    for _ in 0..2 {
        assert_eq!(code("on", "b").0, 0);
        assert_eq!(code("status", "b").0, 0);
    }
    assert!(server.may_read(&server.anybody[0], "b", "file"));
    assert!(!server.may_read(&server.anybody[0], "a", "file"));
    // Other options name the node, too. The more specific one takes precedence.
    let off = |options: &[(&str, &str)]| {
        let mut all = vec![("action", "status")];
        all.extend(options);
        agent(&place, &server, &all).status.code().unwrap()
    };
    assert_eq!(off(&[("nodename", "b")]), 0);
    assert_eq!(off(&[("nodename", "b"), ("port", "a")]), 2);
    assert_eq!(off(&[("port", "a"), ("plug", "b")]), 0);
}

#[test]
fn the_agent_fails_where_it_is_not_certain() {
    let place = Place::new();
    let mut server = place.serve_export();
    place.fence_ok(&server, "set", &["a", "b"]);
    let code = |server: &Server, options: &[(&str, &str)]| {
        agent(&place, server, options).status.code().unwrap()
    };
    assert_eq!(code(&server, &[("action", "reboot"), ("plug", "a")]), 1);
    assert_eq!(code(&server, &[("action", "nonsense"), ("plug", "a")]), 1);
    assert_eq!(code(&server, &[("action", "off")]), 1, "which node?");
    assert_eq!(code(&server, &[("action", "validate-all")]), 0);
    assert_eq!(code(&server, &[("action", "validate-all"), ("url", "http://x/")]), 1);
    assert_eq!(code(&server, &[("action", "validate-all"), ("dafs_path", "/nowhere")]), 1);
    assert_eq!(code(&server, &[("action", "validate-all"), ("power_timeout", "soon")]), 1);
    server.end(Signal::KILL);
    for action in ["off", "on", "status", "monitor"] {
        assert_eq!(code(&server, &[("action", action), ("plug", "a")]), 1, "{action}");
    }
}

#[test]
fn the_agent_takes_options_on_its_command_line() {
    let place = Place::new();
    readable(&place.local("file"));
    let server = place.serve_export();
    place.fence_ok(&server, "set", &["a", "b"]);
    let password = place.path("password");
    let run = |more: &[&str]| {
        Command::new("sh")
            .arg(script())
            .args(["--dafs-path", env!("CARGO_BIN_EXE_dafs"), "-u", &server.trusted])
            .arg(format!("--password-from={}", password.display()))
            .args(more)
            .output()
            .unwrap()
    };
    assert_eq!(run(&["-o", "off", "-n", "a"]).status.code(), Some(0));
    assert_eq!(run(&["--action=status", "--plug=a"]).status.code(), Some(2));
    let told = run(&["--action", "on", "--plug", "a", "-v"]);
    assert!(errors(&told).contains("a has access to"), "{}", errors(&told));
    assert_eq!(run(&["--no-such-option=1"]).status.code(), Some(1));
    assert_eq!(run(&["--help"]).status.code(), Some(0));
}

#[test]
fn the_agents_metadata_is_what_clusters_read() {
    let output = Command::new("sh").arg(script()).args(["-o", "metadata"]).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    // Clusters also pass the options on standard input.
    let mut asked = Command::new("sh");
    let asked = asked.arg(script()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut asked = asked.unwrap();
    asked.stdin.take().unwrap().write_all(b"action=metadata").unwrap();
    assert_eq!(asked.wait_with_output().unwrap().stdout, text.as_bytes());
    let document = roxmltree::Document::parse(&text).unwrap();
    let root = document.root_element();
    assert_eq!(root.tag_name().name(), "resource-agent");
    assert_eq!(root.attribute("name"), Some("fence_dafs"));
    assert!(root.has_attribute("shortdesc"));
    // The order and the attributes of ClusterLabs' schema, lib/metadata.rng.
    let parts: Vec<_> = root.children().filter(roxmltree::Node::is_element).collect();
    let names: Vec<_> = parts.iter().map(|part| part.tag_name().name()).collect();
    assert_eq!(names, ["longdesc", "vendor-url", "parameters", "actions"]);
    let elements = |node: roxmltree::Node<'_, '_>| -> Vec<String> {
        let children = node.children().filter(roxmltree::Node::is_element);
        children.map(|child| child.tag_name().name().to_owned()).collect()
    };
    let mut parameters = Vec::new();
    for parameter in parts[2].children().filter(roxmltree::Node::is_element) {
        assert_eq!(elements(parameter), ["getopt", "content", "shortdesc"]);
        assert!(["0", "1"].contains(&parameter.attribute("unique").unwrap()));
        assert!(["0", "1"].contains(&parameter.attribute("required").unwrap()));
        let children: Vec<_> = parameter.children().filter(roxmltree::Node::is_element).collect();
        assert!(children[0].has_attribute("mixed"));
        let kinds = ["boolean", "string", "second", "integer"];
        assert!(kinds.contains(&children[1].attribute("type").unwrap()));
        assert!(children[2].has_attribute("lang") && children[2].text().is_some());
        parameters.push(parameter.attribute("name").unwrap());
    }
    for needed in ["action", "url", "plug", "port", "nodename"] {
        assert!(parameters.contains(&needed), "{needed}");
    }
    let actions = parts[3].children().filter(roxmltree::Node::is_element);
    let actions: Vec<_> = actions.map(|action| action.attribute("name").unwrap()).collect();
    assert_eq!(actions, ["on", "off", "status", "monitor", "metadata", "validate-all"]);
}
