//! Tests every subcommand as a user runs it, over every transport, with a real server in a separate
//! process.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal, kill_process};

use crate::program::dafs;

/// A guard against hanging. No test expects anything of time.
const HANG: Duration = Duration::from_secs(300);

/// Kills a program that runs too long, which ends what waits for it.
struct Watch {
    _ended: Sender<()>,
}

impl Watch {
    /// Watches until it is dropped.
    fn over(child: &Child) -> Self {
        let (ended, watched) = channel::<()>();
        let pid = Pid::from_child(child);
        std::thread::spawn(move || {
            if watched.recv_timeout(HANG) == Err(RecvTimeoutError::Timeout) {
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        Self { _ended: ended }
    }
}

struct Server {
    child: Child,
    directory: tempfile::TempDir,
    /// The URLs of the root, one for each transport.
    urls: Vec<String>,
}

impl Server {
    fn start(more: &[&str]) -> Self {
        Self::start_by(dafs(), more)
    }

    /// Starts a server with `command` instead of `dafs`.
    fn start_by(mut command: Command, more: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let export = directory.path().join("export");
        std::fs::create_dir(&export).unwrap();
        let mut child = command
            .arg("serve")
            .arg(&export)
            .args(["--tcp", "127.0.0.1:0", "--anonymous", &identity(), "--squash", "none"])
            .arg("--socket")
            .arg(directory.path().join("socket"))
            .arg("--state")
            .arg(directory.path().join("state"))
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let watch = Watch::over(&child);
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        drop(watch);
        let urls = line
            .trim()
            .strip_prefix("ready: ")
            .expect("a ready line")
            .split(' ')
            .map(|address| match address.split_once(':').unwrap() {
                ("tcp", socket) => format!("dafs://{socket}"),
                (_, path) => format!("dafs+shm://{path}!"),
            })
            .collect();
        Self { child, directory, urls }
    }

    fn local(&self, path: &str) -> PathBuf {
        self.directory.path().join("export").join(path)
    }

    /// Stops the server cleanly. Returns true if it reports success.
    fn stop(&mut self) -> bool {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let _watch = Watch::over(&self.child);
        self.child.wait().unwrap().success()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn identity() -> String {
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    format!("{}:{}", uid.as_raw(), gid.as_raw())
}

fn own_uid() -> u32 {
    rustix::process::getuid().as_raw()
}

fn run(arguments: &[&str]) -> Output {
    let mut command = dafs();
    command.args(arguments).stdin(Stdio::null());
    finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

/// Waits for the end of a program.
fn finish(child: Child) -> Output {
    let _watch = Watch::over(&child);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.code().is_some(), "killed, it may have hung: {output:?}");
    output
}

/// Runs a command that must succeed, and returns its output.
fn ok(arguments: &[&str]) -> String {
    let output = run(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail without a panic, and returns its error text.
fn fails(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn files_are_listed_copied_and_changed() {
    let server = Server::start(&[]);
    for url in &server.urls {
        let at = |path: &str| format!("{url}/{path}");
        ok(&["mkdir", "-p", &at("a/b")]);
        std::fs::write(server.local("a/b/file"), b"content").unwrap();
        assert_eq!(ok(&["ls", &at("a")]), "b\n");
        assert!(ok(&["ls", "-lR", &at("")]).contains("a/b/file"));
        assert!(ok(&["stat", "--json", &at("a/b/file")]).contains("\"size\":7"));
        assert_eq!(ok(&["cat", &at("a/b/file")]), "content");
        ok(&["ln", "-s", "b/file", &at("a/link")]);
        assert_eq!(ok(&["cat", &at("a/link")]), "content");
        ok(&["mv", &at("a/b/file"), &at("a/b/moved")]);
        assert!(server.local("a/b/moved").exists());
        assert!(ok(&["df", url]).contains("MiB"));
        assert!(ok(&["ping", "-c", "10", url]).contains("median"));
        ok(&["rm", "-r", &at("a")]);
        assert!(!server.local("a").exists());
    }
}

#[test]
fn trees_go_out_and_in_and_are_verified() {
    let server = Server::start(&[]);
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    std::fs::create_dir_all(tree.join("deep/er")).unwrap();
    for number in 0..40usize {
        std::fs::write(tree.join(format!("deep/f{number}")), vec![7; number * 37]).unwrap();
    }
    std::fs::write(tree.join("deep/er/large"), vec![9; 5_000_001]).unwrap();
    std::os::unix::fs::symlink("deep/f3", tree.join("link")).unwrap();
    let bytes = PathBuf::from(std::ffi::OsStr::from_bytes(b"b\xffd"));
    std::os::unix::fs::symlink(&bytes, tree.join("bytes")).unwrap();
    let tree = tree.to_str().unwrap();
    for (index, url) in server.urls.iter().enumerate() {
        let there = format!("{url}/in-{index}");
        ok(&["cp", "-r", "--verify", tree, &there]);
        let again = format!("{url}/again-{index}");
        ok(&["cp", "-r", "--verify", &there, &again]);
        let back = place.path().join(format!("back-{index}"));
        ok(&["cp", "-r", "--verify", &again, back.to_str().unwrap()]);
        let diff = ["-r", "--no-dereference", tree];
        assert!(Command::new("diff").args(diff).arg(&back).status().unwrap().success());
        assert_eq!(std::fs::read_link(back.join("bytes")).unwrap(), bytes);
        let listed = run(&["ls", "-l", &there]).stdout;
        let line = b" bytes -> b\xffd\n";
        let is_listed = listed.windows(line.len()).any(|part| part == line);
        assert!(is_listed, "unchanged, because no terminal shows it");
        assert_eq!(std::fs::read_link(back.join("link")).unwrap(), PathBuf::from("deep/f3"));
    }
}

#[test]
fn what_fails_is_named_and_the_rest_is_copied() {
    let server = Server::start(&[]);
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    std::fs::create_dir_all(tree.join("a/b")).unwrap();
    for path in ["a/file", "a/b/file", "z"] {
        std::fs::write(tree.join(path), path).unwrap();
    }
    // A file is in the place of a directory, and a link in the place of a file.
    let target = server.local("target");
    std::fs::create_dir_all(target.join("a")).unwrap();
    std::fs::write(target.join("a/b"), b"in the way").unwrap();
    std::os::unix::fs::symlink("elsewhere", target.join("z")).unwrap();
    let there = format!("{}/target", server.urls[0]);
    let contents = format!("{}/", tree.display());
    let said = fails(&["cp", "-r", "--verify", &contents, &there]);
    assert!(said.contains("a/b/file") && said.contains("2 objects failed"), "{said}");
    assert_eq!(std::fs::read(target.join("a/file")).unwrap(), b"a/file");
    assert_eq!(std::fs::read(target.join("z")).unwrap(), b"z");
    assert!(!target.join("elsewhere").exists());
}

#[test]
fn a_copy_onto_itself_is_refused() {
    let server = Server::start(&[]);
    let place = tempfile::tempdir().unwrap();
    let here = place.path().join("file");
    for file in [here.clone(), server.local("file")] {
        std::fs::write(file, b"content").unwrap();
    }
    std::os::unix::fs::symlink("file", server.local("link")).unwrap();
    let at = |index: usize, path: &str| format!("{}/{path}", server.urls[index]);
    let here = here.to_str().unwrap().to_owned();
    let served = server.local("file").to_str().unwrap().to_owned();
    // One transport, two transports, a link, the local file, and a whole directory.
    for (from, to) in [
        (here.clone(), here.clone()),
        (served.clone(), at(0, "file")),
        (at(1, "file"), served),
        (at(0, "file"), at(0, "file")),
        (at(0, "file"), at(1, "file")),
        (at(1, "link"), at(1, "file")),
        (at(0, ""), at(1, "")),
    ] {
        let said = fails(&["cp", "-r", &from, &to]);
        assert!(said.contains("are the same"), "{said}");
    }
    assert_eq!(std::fs::read(here).unwrap(), b"content");
    assert_eq!(std::fs::read(server.local("file")).unwrap(), b"content");
}

#[test]
fn a_copy_does_not_run_as_whoever_made_it() {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let server = Server::start(&[]);
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("program"), b"#!/bin/sh").unwrap();
    std::fs::set_permissions(tree.join("program"), Permissions::from_mode(0o6755)).unwrap();
    let there = format!("{}/tree", server.urls[0]);
    let back = place.path().join("back");
    ok(&["cp", "-r", tree.to_str().unwrap(), &there]);
    let copy = server.local("tree/program");
    assert_eq!(copy.metadata().unwrap().mode() & 0o7777, 0o755);
    std::fs::set_permissions(copy, Permissions::from_mode(0o6755)).unwrap();
    ok(&["cp", "-r", &there, back.to_str().unwrap()]);
    assert_eq!(back.join("program").metadata().unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn an_orderly_end_keeps_what_was_written() {
    let mut server = Server::start(&[]);
    let file = server.directory.path().join("file");
    std::fs::write(&file, vec![5; 300_000]).unwrap();
    let target = format!("{}/kept", server.urls[0]);
    ok(&["cp", file.to_str().unwrap(), &target]);
    assert!(server.stop());
    assert_eq!(std::fs::read(server.local("kept")).unwrap(), vec![5; 300_000]);
}

#[test]
fn passwords_are_managed_and_asked_for() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("passwords");
    let file = file.to_str().unwrap();
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut child = dafs()
        .args(["passwd", "--file", file, "ann", "--uid", &uid.to_string()])
        .args(["--gid", &gid.to_string()])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"open sesame\n").unwrap();
    assert!(finish(child).status.success());
    assert_eq!(ok(&["passwd", "--file", file]), "ann\n");
    let server = Server::start(&["--password-file", file, "--no-anonymous"]);
    let tcp = server.urls.iter().find(|url| url.starts_with("dafs://")).unwrap();
    let with = |user: &str| tcp.replace("dafs://", &format!("dafs://{user}@"));
    ok(&["ls", &with("ann:open%20sesame")]);
    let said = fails(&["ls", &with("ann:wrong")]);
    assert!(
        said.contains("user ann") && said.contains("check the name and the password"),
        "{said}"
    );
    let said = fails(&["ls", tcp]);
    assert!(said.contains("no way to log in") && said.contains("USER@"), "{said}");
    assert!(said.contains("it has no keytab"), "{said}");
    let said = fails(&["ls", "--login", "none", tcp]);
    assert!(said.contains("without a login") && said.contains("USER@"), "{said}");
}

#[test]
fn mistakes_are_explained() {
    let place = tempfile::tempdir().unwrap();
    assert!(fails(&["ls", "http://x/"]).contains("dafs://host"));
    let said = fails(&["ls", "dafs://127.0.0.1:1/"]);
    assert!(said.contains("dafs serve") && said.matches("127.0.0.1:1").count() == 1, "{said}");
    assert!(fails(&["serve"]).contains("nothing to serve"));
    assert!(fails(&["serve", "--memory", "lots"]).contains("512M"));
    let config = place.path().join("dafs.toml");
    std::fs::write(&config, "colour = \"blue\"\n").unwrap();
    assert!(fails(&["serve", "--config", config.to_str().unwrap()]).contains("colour"));
    assert!(fails(&["serve", "/no/such/directory"]).contains("/no/such/directory"));
    // The reason is printed once, although several causes contain it.
    let said = fails(&["serve", "--memory", "1M", "--password-file", "/no/such/file"]);
    assert_eq!(said.matches("No such file").count(), 1, "{said}");
    // An equals sign that is part of the path and does not follow a name.
    assert!(fails(&["serve", "/no/such=one"]).contains("/no/such=one: No such file"));
    let [one, other] = ["a/data", "b/data"].map(|below| place.path().join(below));
    let both = [&one, &other].map(|path| path.to_str().unwrap());
    both.iter().for_each(|path| std::fs::create_dir_all(path).unwrap());
    assert!(
        fails(&["serve", both[0], both[1]]).contains("used twice; choose another one with NAME=")
    );
    for (asked, expected) in [
        ("0", "a server has 1 to 8 reactors, not 0"),
        ("9", "a server has 1 to 8 reactors, not 9"),
        ("two", "invalid value 'two' for '--reactors <N>': not a number of reactors; give 1 to 8"),
        ("1.5", "not a number of reactors"),
    ] {
        for command in ["serve", "recover-test"] {
            let refused = run(&[command, "--reactors", asked]);
            let said = String::from_utf8(refused.stderr).unwrap();
            assert_eq!(refused.status.code(), Some(2), "{command}: {said}");
            assert!(said.contains(expected), "{command}: {said}");
        }
        std::fs::write(&config, format!("reactors = {asked}\n")).unwrap();
        let said = fails(&["serve", "--memory", "1M", "--config", config.to_str().unwrap()]);
        let expected = match asked {
            "two" | "1.5" => "reactors",
            _ => expected,
        };
        assert!(said.contains(expected), "{said}");
    }
    let file = place.path().join("passwords");
    let said = fails(&["passwd", "--file", file.to_str().unwrap(), "ann"]);
    assert!(said.contains("empty password") && !file.exists(), "{said}");
}

#[test]
fn mistakes_in_rules_name_the_file_the_key_and_what_to_write() {
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("dafs.toml");
    let path = config.to_str().unwrap();
    let directory = place.path().to_str().unwrap();
    let state = place.path().join("state");
    let state = state.to_str().unwrap();
    for (text, expected) in [
        ("[[connect]]\nfrom = [\"local\"]\n", ["[[connect]] number 1", "action = \"allow\""]),
        (
            "[[connect]]\naction = \"deny\"\nfrom = [\"example.org\"]\n",
            ["[[connect]] number 1, from", "192.0.2.0/24"],
        ),
        ("[[trusted]]\nprincipals = [\"ann\"]\n", ["[[trusted]] number 1", "user:NAME"]),
        ("[[trusted]]\n", ["[[trusted]] number 1", "uid:0"]),
        ("[[trusted]]\nfrom = [\"local\"]\nsquash = \"all\"\n", ["squash", "remove it"]),
        (
            "[[export]]\nname = \"x\"\nsquash = \"roots\"\n",
            ["[[export]] \"x\", squash", "\"none\", \"root\" or \"all\""],
        ),
        (
            "[[export]]\nname = \"x\"\n[[export.clients]]\nanonymous = \"ann\"\n",
            ["[[export]] \"x\", clients number 1, anonymous", "65534:65534"],
        ),
        ("[[export]]\npath = \"/\"\n", ["missing field", "name"]),
        ("[kerberos]\nkeytabs = \"x\"\n", ["keytabs", "replay-cache"]),
        ("[kerberos]\nservice = \"dafs\"\n", ["service", "service@host"]),
    ] {
        std::fs::write(&config, text).unwrap();
        let said = fails(&["serve", directory, "--state", state, "--config", path]);
        let has = expected.iter().all(|part| said.contains(part));
        assert!(has && said.contains("dafs.toml"), "{text}: {said}");
    }
    // An error that is only known after everything was read.
    std::fs::write(&config, "[[export]]\nname = \"hoem\"\n").unwrap();
    let home = format!("home={directory}");
    let said = fails(&["serve", &home, "--state", state, "--config", path, "--no-tcp"]);
    assert!(said.contains("\"hoem\"") && said.contains("the exports are: home"), "{said}");
    let said = fails(&["serve", "--memory", "1M", "--anonymous", "0:0"]);
    assert!(said.contains("--squash none"), "{said}");
    let said = fails(&["serve", "--memory", "1M", "--keytab", "/no/such/keytab"]);
    assert!(said.contains("Kerberos"), "{said}");
}

#[test]
fn the_doctor_says_how_it_authenticated() {
    let server = Server::start(&["--trust", &format!("anonymous,uid:{}", own_uid())]);
    for url in &server.urls {
        let said = String::from_utf8(run(&["doctor", url]).stdout).unwrap();
        let is_far = url.starts_with("dafs://");
        let way = if is_far { "this client is anonymous" } else { "the kernel vouches" };
        assert!(said.contains(way), "{said}");
        assert_eq!(said.contains("not used: kerberos"), is_far, "{said}");
        assert!(said.contains("may act for"), "{said}");
    }
    let said = fails(&["ls", "--login", "kerberos", &format!("{}/", server.urls[0])]);
    assert!(said.contains("by Kerberos"), "{said}");
    let said = fails(&["ls", "--login", "password", &format!("{}/", server.urls[0])]);
    assert!(said.contains("dafs://USER@HOST/"), "{said}");
}

#[test]
fn exports_of_the_file_are_served_to_whom_it_says() {
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("dafs.toml");
    for name in ["home", "pub"] {
        std::fs::create_dir(place.path().join(name)).unwrap();
    }
    let text = format!(
        "[[export]]\nname = \"home\"\npath = \"{0}/home\"\n[[export.clients]]\n\
         from = [\"local\"]\n[[export]]\nname = \"pub\"\npath = \"{0}/pub\"\n",
        place.path().display()
    );
    std::fs::write(&config, text).unwrap();
    let server = Server::start(&["--config", config.to_str().unwrap()]);
    for url in &server.urls {
        let said = ok(&["ls", &format!("{url}/")]);
        assert!(said.contains("pub"), "{said}");
        assert_eq!(said.contains("home"), url.starts_with("dafs+shm"), "{said}");
    }
}

#[test]
fn the_doctor_names_the_transport() {
    let server = Server::start(&[]);
    for url in &server.urls {
        let said = String::from_utf8(run(&["doctor", url]).stdout).unwrap();
        let way = if url.starts_with("dafs://") { "socket" } else { "maps" };
        assert!(said.contains("connected over") && said.contains(way), "{said}");
    }
}

#[test]
fn completions_and_pages_are_generated() {
    assert!(ok(&["completions", "bash"]).contains("_dafs"));
    let place = tempfile::tempdir().unwrap();
    ok(&["man", place.path().to_str().unwrap()]);
    let pages: Vec<PathBuf> =
        std::fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    for wanted in ["dafs.1", "dafs-serve.1", "dafs-fence-set.1", "dafs.toml.5"] {
        assert!(place.path().join(wanted).exists(), "{wanted}");
    }
    let all = ok(&["--help"]);
    for heading in ["Serve:", "Use:", "Operate:", "Measure:"] {
        assert!(all.lines().any(|line| line == heading), "{heading}: {all}");
    }
    let commands = all.lines().take_while(|line| *line != "Options:");
    let named = commands.filter_map(|line| {
        let name = line.strip_prefix("  ")?.split(' ').next()?;
        (!name.is_empty()).then(|| format!("dafs-{name}.1"))
    });
    let named = named.chain(["dafs-apps-gzip.1".to_owned(), "dafs-apps-sort.1".to_owned()]);
    let mut count = 0;
    for page in named {
        assert!(place.path().join(&page).exists(), "{page}");
        count += 1;
    }
    assert!(count > 20, "{all}");
    for page in pages.iter().chain(&own_pages()) {
        is_sound(page);
    }
}

/// The manual pages that are written by hand.
fn own_pages() -> Vec<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directory = std::fs::read_dir(root.join("dist/man")).unwrap();
    let mut pages: Vec<PathBuf> = directory.map(|entry| entry.unwrap().path()).collect();
    assert!(pages.len() >= 2);
    pages.push(root.join("crates/capi/dafs.3"));
    pages
}

/// Checks a page with the available formatters, which must not complain.
fn is_sound(page: &std::path::Path) {
    let formatters: [&[&str]; 2] =
        [&["groff", "-ww", "-z", "-man", "-Tutf8"], &["mandoc", "-Tlint", "-Werror"]];
    for formatter in formatters {
        let done = Command::new(formatter[0]).args(&formatter[1..]).arg(page).output();
        match done {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                dafs_tests::skip_part(format_args!("there is no {}", formatter[0]));
            }
            done => {
                let done = done.unwrap();
                let said = [done.stdout, done.stderr].concat();
                let said = String::from_utf8_lossy(&said);
                assert!(done.status.success() && said.is_empty(), "{page:?}: {said}");
            }
        }
    }
}

#[test]
fn the_demonstration_runs_on_a_small_tree() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("tree")).unwrap();
    std::fs::write(place.path().join("tree/file"), vec![1; 100_000]).unwrap();
    let said = ok(&["demo", place.path().join("tree").to_str().unwrap(), "--tiny"]);
    assert!(said.contains("no difference"), "{said}");
    assert!(said.contains("shm read x1") && said.contains("tcp read x32"), "{said}");
}

#[test]
fn the_benchmark_runs_and_leaves_a_report_and_plots() {
    let place = tempfile::tempdir().unwrap();
    let output = place.path().join("report");
    let said = ok(&["bench", "--tiny", "--output", output.to_str().unwrap()]);
    assert!(said.contains("shm read x32") && said.contains("tcp stream"), "{said}");
    let text = std::fs::read(output.join("bench.json")).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let count = |key: &str| report[key].as_array().unwrap().len();
    assert_eq!((count("contended"), count("idle")), (2, 2));
    assert!(count("goals") >= 20 && report["checksum"].as_u64().unwrap() > 0);
    for figure in report["figures"].as_array().unwrap() {
        assert!(figure["wall_us"].as_f64().unwrap() > 0.0, "{figure}");
    }
    let plots = std::fs::read_dir(&output).unwrap();
    let is_plot = |entry: &std::fs::DirEntry| entry.path().extension().is_some_and(|e| e == "svg");
    assert_eq!(plots.map(Result::unwrap).filter(is_plot).count(), 4);
}

/// Connections for which there is no descriptor are refused at once, and the server continues.
#[test]
fn a_server_without_descriptors_turns_connections_away() {
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 64; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_dafs")]);
    let server = Server::start_by(limited, &["--no-socket"]);
    let url = &server.urls[0];
    let address = url.strip_prefix("dafs://").unwrap();
    let connect = |_| std::net::TcpStream::connect(address).unwrap();
    let streams: Vec<_> = (0..80).map(connect).collect();
    let ends = [&streams[0], &streams[79]];
    let mut fds = ends.map(|end| PollFd::new(end, PollFlags::IN));
    rustix::event::poll(&mut fds, Some(&HANG.try_into().unwrap())).unwrap();
    assert!(fds[0].revents().is_empty(), "the first waited in vain as long as the last");
    assert!(!fds[1].revents().is_empty());
    drop(streams);
    // The server learns of closed connections one by one, so it may refuse once more.
    let is_well = (0..100).any(|_| run(&["ls", &format!("{url}/")]).status.success());
    assert!(is_well, "the server did not recover");
}

/// Every step of connecting that lacks a descriptor reports that.
#[test]
fn a_client_without_descriptors_says_that_it_has_none_left() {
    let server = Server::start(&[]);
    for url in &server.urls {
        let list = |limit: u32| {
            let script = format!("ulimit -n {limit}; exec \"$@\"");
            let mut limited = Command::new("sh");
            limited.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_dafs"), "ls"]);
            limited.arg(format!("{url}/")).output().unwrap()
        };
        let mut refused = 0;
        let enough = (4..64).find(|&limit| {
            let output = list(limit);
            let said = String::from_utf8_lossy(&output.stderr);
            // The program loader may fail first.
            let is_loader = said.contains("shared libraries") && said.contains("Error 24");
            if !output.status.success() && !is_loader {
                refused += 1;
                assert!(said.contains("Too many open files"), "{url}, {limit}: {said}");
            }
            output.status.success()
        });
        assert!(enough.is_some() && refused > 2, "{url}: {refused} refused, {enough:?}");
    }
}
