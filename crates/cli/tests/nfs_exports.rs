//! `dafs serve --nfs --exports` and `dafs exports`: what NFS clients get under an exports file.
//!
//! The clients are addresses of the loopback network, which belong to this machine.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use dafs_nfs_suite::fault::Fault;
use dafs_nfs_suite::mount::Mount;
use dafs_nfs_suite::nfs3::{How, Nfs3, Sattr};
use dafs_nfs_suite::rpc::{Auth, Connection};
use dafs_nfs_suite::status::ROFS;
use dafs_tests::Required;
use rustix::net::{AddressFamily, SocketType, bind, connect, ipproto, socket};
use rustix::process::{Pid, Signal, kill_process};

use crate::program::{await_that, dafs};

/// A server with an exports file that exports the directories `one` and `two`.
struct Server {
    child: Child,
    directory: tempfile::TempDir,
    address: SocketAddr,
    told: Vec<String>,
}

/// Creates the directories that the tests export.
fn prepare() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        let path = directory.path().join(name);
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
        std::fs::write(path.join("file"), name).unwrap();
    }
    directory
}

impl Server {
    /// Starts a server. In the text of the exports file, `DIR` stands for the directory above the
    /// exports.
    fn start(exports: &str) -> Self {
        let directory = prepare();
        let place = directory.path();
        write_exports(place, exports);
        let mut child = dafs()
            .args(["--log", "error", "serve", "--nfs", "127.0.0.1:0", "--no-tcp"])
            .args(["--cache", "32M", "--exports"])
            .arg(place.join("exports"))
            .arg("--socket")
            .arg(place.join("socket"))
            .arg("--state")
            .arg(place.join("state"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let told: Vec<String> = lines.by_ref().take(4).collect();
        let mount = told.iter().find(|line| line.starts_with("nfs:")).expect("a mount command");
        let port = mount.split("port=").nth(1).unwrap().split(' ').next().unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().unwrap()));
        Self { child, directory, address, told }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// Connects from an address of the loopback network. With port 0, the system chooses one of
    /// the ports that every user can open.
    fn connect(&self, from: [u8; 4], port: u16) -> Connection {
        let fd = socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::TCP)).unwrap();
        bind(&fd, &SocketAddrV4::new(from.into(), port)).unwrap();
        connect(&fd, &self.address).unwrap();
        Connection::over(TcpStream::from(fd)).unwrap()
    }

    fn mount(&self, from: [u8; 4]) -> Mount {
        Mount { connection: self.connect(from, 0), auth: Auth::user(1000) }
    }

    fn client(&self, from: [u8; 4], uid: u32) -> Nfs3 {
        Nfs3 { connection: self.connect(from, 0), auth: Auth::user(uid) }
    }

    /// Runs `dafs exports`. Returns its output, or its error as `Err`.
    fn exports(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = dafs();
        command.arg("exports").args(arguments).arg("--socket").arg(self.path("socket"));
        let output = command.output().unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap()),
            false => Err(String::from_utf8(output.stderr).unwrap()),
        }
    }

    fn shown_to(&self, from: [u8; 4]) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let found = self.mount(from).export().unwrap();
        found.iter().map(|one| (text(&one.path), text(&one.groups[0]))).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write_exports(place: &Path, text: &str) -> PathBuf {
    let file = place.join("exports");
    std::fs::write(&file, text.replace("DIR", &place.display().to_string())).unwrap();
    file
}

fn is_refused<T>(result: Result<T, Fault>) -> bool {
    match result {
        Ok(_) | Err(Fault::Status { .. }) => false,
        Err(_) => true,
    }
}

const ONE: [u8; 4] = [127, 0, 0, 1];
const TWO: [u8; 4] = [127, 0, 2, 1];
const THREE: [u8; 4] = [127, 0, 3, 1];

#[test]
fn a_client_gets_what_the_exports_file_gives_it_and_nothing_else() {
    let server = Server::start(
        "DIR/one 127.0.0.0/23(rw,insecure) 127.0.2.1(ro,insecure)\n\
         DIR/two 127.0.0.1(rw,insecure,all_squash,anonuid=7,anongid=8)\n",
    );
    let (one, two) = (server.path("one"), server.path("two"));
    assert_eq!(
        server.shown_to(ONE),
        [(one.clone(), "127.0.0.0/23".to_owned()), (two.clone(), "127.0.0.1".to_owned())]
    );
    assert_eq!(server.shown_to(TWO), [(one.clone(), "127.0.2.1".to_owned())]);
    assert_eq!(server.shown_to(THREE), []);

    // The first client may write in both exports, and is squashed in one of them.
    let fh = server.mount(ONE).mnt(&one).unwrap().fh;
    let mut client = server.client(ONE, 1000);
    let new = || How::Guarded(Sattr::mode(0o600));
    client.create(&fh, "new", new()).unwrap();
    let other = server.mount(ONE).mnt(&two).unwrap().fh;
    client.create(&other, "new", new()).unwrap();
    let owner_of = |path: String| {
        let found = std::fs::metadata(path).unwrap();
        (found.uid(), found.gid())
    };
    if rustix::process::geteuid().is_root() {
        assert_eq!(owner_of(server.path("one/new")), (1000, 1000));
        assert_eq!(owner_of(server.path("two/new")), (7, 8));
    } else {
        dafs_tests::skip_part("only root can make files of others");
    }

    // The second client reads one export, and does not find the other one by path or handle.
    let seen = server.mount(TWO).mnt(&one).unwrap().fh;
    let mut client = server.client(TWO, 1000);
    let file = client.lookup(&seen, "file").unwrap().fh;
    assert_eq!(client.read(&file, 0, 100).unwrap().data, b"one");
    let status = |result: Result<_, Fault>| match result {
        Err(Fault::Status { status, .. }) => status,
        Ok(()) => panic!("it succeeded"),
        Err(other) => panic!("{other}"),
    };
    assert_eq!(status(client.create(&seen, "more", new()).map(|_| ())), ROFS);
    assert!(server.mount(TWO).mnt(&two).is_err());
    assert!(client.getattr(&other).is_err(), "a handle is of no use to another client");

    // The operator sees the clients and what they call.
    let sessions = || {
        let output = dafs().args(["sessions", "--json"]).arg(server.path("socket")).output();
        serde_json::from_slice::<serde_json::Value>(&output.unwrap().stdout).unwrap()
    };
    let calls_of = |found: &serde_json::Value, procedure: &str| {
        let all = found["nfs"]["procedures"].as_array().unwrap();
        let one = all.iter().find(|one| one["procedure"] == procedure && one["program"] == "nfs3");
        one.and_then(|one| one["calls"].as_u64()).unwrap_or(0)
    };
    assert_eq!(calls_of(&sessions(), "READ"), 1);
    assert_eq!(calls_of(&sessions(), "CREATE"), 3);
    await_that("the clients are listed", || {
        let found = sessions();
        let clients = found["nfs"]["clients"].as_array().unwrap();
        clients.iter().any(|client| {
            client["address"] == "127.0.2.1" && client["transports"]["tcp"] == client["connections"]
        })
    });

    // The third client is not named.
    assert!(is_refused(server.mount(THREE).mnt(&one)));
    assert!(is_refused(server.client(THREE, 0).getattr(&seen)));
}

#[test]
fn a_port_that_every_user_can_open_is_served_only_to_insecure_clients() {
    let server = Server::start("DIR/one 127.0.0.1 127.0.2.1(insecure)\n");
    let one = server.path("one");
    assert!(is_refused(server.mount(ONE).mnt(&one)));
    server.mount(TWO).mnt(&one).unwrap();
    // The list of exports needs no such port.
    assert_eq!(server.shown_to(ONE).len(), 1);
    if rustix::process::geteuid().is_root() {
        let free = (600..1024)
            .rev()
            .find(|port| std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok());
        let connection = server.connect(ONE, free.unwrap());
        Mount { connection, auth: Auth::user(0) }.mnt(&one).unwrap();
    } else {
        dafs_tests::skip_part("only root can use a port below 1024");
    }
}

#[test]
fn root_of_a_client_is_squashed_unless_the_file_says_otherwise() {
    if !rustix::process::geteuid().is_root() {
        return Required::Faces.skip("only root can make files that only root can read");
    }
    let server = Server::start("DIR/one 127.0.0.1(insecure) 127.0.2.1(insecure,no_root_squash)\n");
    let secret = server.path("one/secret");
    std::fs::write(&secret, "root's").unwrap();
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    chown(&secret, Some(0), Some(0)).unwrap();
    let one = server.path("one");
    let read = |from| {
        let fh = server.mount(from).mnt(&one).unwrap().fh;
        let mut client = server.client(from, 0);
        let file = client.lookup(&fh, "secret").unwrap().fh;
        client.read(&file, 0, 100).map(|found| found.data)
    };
    assert!(read(ONE).is_err());
    assert_eq!(read(TWO).unwrap(), b"root's");
}

#[test]
fn a_reload_applies_a_file_whole_or_not_at_all() {
    let mut server = Server::start("DIR/one 127.0.0.1(rw,insecure)\n");
    let one = server.path("one");
    let fh = server.mount(ONE).mnt(&one).unwrap().fh;
    let mut open = server.client(ONE, 1000);
    open.getattr(&fh).unwrap();
    let place = server.directory.path().to_owned();

    // A mistake in any line leaves everything as it was.
    write_exports(&place, "DIR/one 127.0.2.1(rw,insecure)\nDIR/one 127.0.3.1(wr)\n");
    let error = server.exports(&["--reload"]).unwrap_err();
    assert!(error.contains("exports:2:") && error.contains("\"wr\""), "{error}");
    write_exports(&place, "DIR/one 127.0.2.1(rw)\nDIR/two 127.0.2.1\n");
    let error = server.exports(&["--reload"]).unwrap_err();
    assert!(error.contains("restart"), "{error}");
    write_exports(&place, "DIR/one 127.0.2.1(rw) no-such-host.invalid\n");
    let error = server.exports(&["--reload"]).unwrap_err();
    assert!(error.contains("no-such-host.invalid"), "{error}");
    open.getattr(&fh).unwrap();
    assert!(is_refused(server.mount(TWO).mnt(&one)));

    // A good file applies to connections that are open.
    write_exports(&place, "DIR/one 127.0.2.1(ro,insecure)\n");
    assert_eq!(server.exports(&["--reload"]).unwrap(), "reloaded\n");
    assert!(is_refused(open.getattr(&fh)), "the client lost its export");
    server.mount(TWO).mnt(&one).unwrap();
    let shown = server.exports(&["127.0.2.1"]).unwrap();
    assert!(shown.starts_with(&format!("{one} ro,root_squash,insecure")), "{shown}");
    assert!(shown.contains("exports:1: 127.0.2.1"), "{shown}");
    let shown = server.exports(&["127.0.0.1"]).unwrap();
    assert!(shown.contains("not served"), "{shown}");

    // SIGHUP does the same.
    write_exports(&place, "DIR/one *(ro,insecure)\n");
    kill_process(Pid::from_child(&server.child), Signal::HUP).unwrap();
    await_that("the file is read again", || {
        assert!(server.child.try_wait().unwrap().is_none(), "the server has ended");
        server.exports(&[]).unwrap().contains(" *(ro,")
    });
    open.getattr(&fh).unwrap();
}

#[test]
fn the_server_prints_the_mount_commands_and_refuses_dangerous_files() {
    let server = Server::start("DIR/one localhost(insecure)\n");
    let port = server.address.port();
    let expected = format!("vers=4.2,port={port} 127.0.0.1:{} DIR", server.path("one"));
    assert!(server.told.iter().any(|line| line.ends_with(&expected)), "{:?}", server.told);
    let version_3 = format!("nolock,port={port},mountport={port} 127.0.0.1:");
    assert!(server.told.iter().any(|line| line.contains(&version_3)), "{:?}", server.told);
    drop(server);

    let directory = prepare();
    let place = directory.path();
    let refusal = |exports: &str| {
        let file = write_exports(place, exports);
        let mut command = dafs();
        command.args(["serve", "--check", "--nfs", "--exports"]).arg(file);
        let output = command.arg("--state").arg(place.join("state")).output().unwrap();
        assert!(!output.status.success(), "{exports}");
        String::from_utf8(output.stderr).unwrap()
    };
    let error = refusal("DIR/one host (rw)\n");
    assert!(error.contains("exports:1:") && error.contains("every client"), "{error}");
    let error = refusal("DIR/one 10.0.0.1(sec=null)\n");
    assert!(error.contains("sec= must contain"), "{error}");
    let error = refusal("DIR/one 10.0.0.1(xprtsec=tls)\n");
    assert!(error.contains("exports:1:") && error.contains("give --tls-cert"), "{error}");
    // Clients could give themselves rights if they could write the file.
    let error = refusal("DIR *(rw)\n");
    assert!(error.contains("the exports file"), "{error}");
}

/// Returns a command that serves the directory `one` with these options.
fn serve_one(place: &Path, words: &[&str]) -> Command {
    let mut command = dafs();
    command.args(["serve", "--no-tcp", "--socket"]).arg(place.join("socket")).args(words);
    command.arg("--state").arg(place.join("state")).arg(place.join("one"));
    command
}

/// Returns the error of a command. `None` if it succeeds.
fn refusal_of(mut command: Command) -> Option<String> {
    let output = command.output().unwrap();
    (!output.status.success()).then(|| String::from_utf8(output.stderr).unwrap())
}

#[test]
fn flavors_without_an_exports_file_are_checked() {
    let directory = prepare();
    let place = directory.path();
    let nfs = ["--nfs", "127.0.0.1:0"];
    let refusal = |words: &[&str]| refusal_of(serve_one(place, &[&nfs[..], words].concat()));
    assert_eq!(refusal(&["--check", "--nfs-sec", "sys"]), None);
    let error = refusal(&["--nfs-sec", "krb5p:null"]).unwrap();
    assert!(error.contains("--nfs-sec") && error.contains("\"null\" is no flavor"), "{error}");
    // No client could authenticate without a key of the server.
    for check in [&[][..], &["--check"]] {
        let error = refusal(&[check, &["--nfs-sec", "krb5p:sys"]].concat()).unwrap();
        assert!(error.contains("has no key for NFS clients"), "{error}");
    }
    let file = place.join("dafs.toml");
    std::fs::write(&file, "[nfs]\nlisten = \"127.0.0.1:0\"\nsec = \"krb6\"\n").unwrap();
    let error = refusal(&["--config", file.to_str().unwrap()]).unwrap();
    assert!(error.contains("\"krb6\" is no flavor"), "{error}");
    let file = write_exports(place, "DIR/one 10.0.0.1\n");
    let error = refusal(&["--exports", file.to_str().unwrap(), "--nfs-sec", "krb5"]).unwrap();
    assert!(error.contains("--nfs-sec exclude each other"), "{error}");
}

#[test]
fn the_only_directory_of_an_exports_file_is_mounted_by_its_path() {
    // A path with a single name.
    let Ok(data) = tempfile::Builder::new().prefix("dafs-test-").tempdir_in("/") else {
        dafs_tests::skip_part("only root can make a directory in /");
        return;
    };
    let path = data.path().to_str().unwrap();
    let server = Server::start(&format!("{path} localhost(insecure,rw)\n"));
    let expected = format!("127.0.0.1:{path} DIR");
    assert!(server.told.iter().any(|line| line.ends_with(&expected)), "{:?}", server.told);
    assert_eq!(server.shown_to(ONE), [(path.to_owned(), "localhost".to_owned())]);
    server.mount(ONE).mnt(path).unwrap();
    let lines = server.exports(&[]).unwrap();
    assert!(lines.starts_with(&format!("{path} localhost(")), "{lines}");
}

#[test]
fn a_check_finds_directories_that_are_missing() {
    let directory = prepare();
    let mut command = serve_one(directory.path(), &["--check"]);
    command.arg(directory.path().join("missing"));
    let error = refusal_of(command).unwrap();
    assert!(error.contains("opening the export \"missing\""), "{error}");
}

/// Starts the server of a command, and returns the first lines that it prints.
fn first_lines(mut command: Command, count: usize) -> Vec<String> {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let told = lines.take(count).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    told
}

#[test]
fn a_server_may_have_clients_of_nfs_alone() {
    let directory = prepare();
    let mut command = dafs();
    command.args(["serve", "--no-tcp", "--no-socket", "--nfs", "127.0.0.1:0", "--state"]);
    command.arg(directory.path().join("state")).arg(directory.path().join("one"));
    let told = first_lines(command, 2);
    assert_eq!(told[0], "ready: for NFS clients only");
    assert!(told[1].contains("mount -t nfs"), "{told:?}");
}

#[test]
fn the_url_of_a_socket_with_a_relative_path_is_whole() {
    let directory = prepare();
    let mut command = dafs();
    command.args(["serve", "--no-tcp", "--socket", "socket", "--state", "state", "one"]);
    command.current_dir(directory.path());
    let place = directory.path().canonicalize().unwrap();
    let expected = format!("try:   dafs ls dafs+shm://{}/socket", place.display());
    assert_eq!(first_lines(command, 2)[1], expected);
}

#[test]
fn addresses_for_rdma_are_checked_and_printed() {
    let directory = prepare();
    let place = directory.path();
    let refusal = |words: &[&str]| refusal_of(serve_one(place, words));
    let nfs = ["--nfs", "127.0.0.1:0", "--nfs-any-port"];
    let error = refusal(&["--nfs-rdma", "127.0.0.1:0"]).unwrap();
    assert!(error.contains("--nfs-rdma needs --nfs"), "{error}");
    let error = refusal(&["--nfs", "127.0.0.1:0", "--nfs-rdma", "127.0.0.1:0"]).unwrap();
    assert!(error.contains("--nfs-any-port"), "{error}");
    let error = refusal(&[&nfs[..], &["--nfs-rdma", "somewhere"]].concat()).unwrap();
    assert!(error.contains("\"somewhere\" is no address"), "{error}");
    let tls = ["--nfs-rdma", "127.0.0.1:0", "--nfs-xprtsec", "tls"];
    let error = refusal(&[&nfs[..], &tls].concat()).unwrap();
    assert!(error.contains("has no TLS") && error.contains("krb5p"), "{error}");
    assert_eq!(refusal(&[&nfs[..], &["--check", "--nfs-rdma"]].concat()), None);

    let command = serve_one(place, &[&nfs[..], &["--nfs-rdma", "127.0.0.1:0"]].concat());
    let told = first_lines(command, 5);
    assert!(told.iter().any(|line| line.contains("proto=rdma,port=")), "{told:?}");
}

#[test]
fn the_doctor_says_whether_a_device_has_the_address_for_rdma() {
    let directory = prepare();
    let config = directory.path().join("dafs.toml");
    let doctor = |address: &str| {
        let text = format!(
            "[nfs]\nlisten = \"127.0.0.1:0\"\nrdma = [\"{address}\"]\nany-port = true\n\
             [[export]]\nname = \"one\"\npath = \"{}\"\n",
            directory.path().join("one").display()
        );
        std::fs::write(&config, text).unwrap();
        let output = dafs().args(["doctor", "--config"]).arg(&config).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let told = doctor("127.0.0.1:20049");
    assert!(told.contains("ok    NFS over RDMA at") && told.contains("software iWARP"), "{told}");
    // No device can have an address that is reserved for documentation. Only devices that use iWARP
    // do not tell their addresses.
    let told = doctor("verbs:192.0.2.1:20049");
    let is_told = told.contains("BAD   NFS over RDMA") || told.contains("note  NFS over RDMA");
    assert!(is_told, "{told}");
}
