//! Tests users of the host who are admitted by name, by a server that runs as an ordinary user:
//! they act as themselves, and others are refused.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use super::people::{Person, Server, can_be_others, said};
use crate::preloaded::{has, library};

/// The usual place of a user's sockets. It is removed when it is dropped.
struct Place(PathBuf);

impl Place {
    fn of(person: &Person) -> Self {
        Self(format!("/tmp/dafs-{}", person.uid).into())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // It may never have been made.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Makes a directory in a home that no other user can enter, with a file for all and one for the
/// owner.
fn shared(owner: &Person) -> PathBuf {
    let shared = owner.directory("shared");
    for (name, mode) in [("hello", 0o644), ("secret", 0o600)] {
        let path = shared.join(name);
        std::fs::write(&path, format!("{name}\n")).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        chown(&path, Some(owner.uid), Some(owner.uid)).unwrap();
    }
    std::fs::set_permissions(&shared, Permissions::from_mode(0o755)).unwrap();
    shared
}

/// Serves the directory at the usual place to these users.
fn serve(owner: &Person, place: &Place, shared: &Path, users: &str) -> (Server, String) {
    let mut command = owner.dafs(&["serve", "--tcp", "127.0.0.1:0", "--cache", "16M"]);
    command.args(["--allow-user", users, "--state"]).arg(owner.path("state")).arg(shared);
    // The socket is named after the requested port.
    let socket = place.0.join("0.sock");
    let url = format!("dafs+shm://{}!/", socket.display());
    (Server::run(command, socket), url)
}

#[test]
fn who_is_let_in_by_name_sees_what_the_files_let_him_and_nobody_else_comes() {
    if !can_be_others() {
        return;
    }
    let [owner, bob, mallory] = [41_051, 41_052, 41_053].map(Person::new);
    let (place, shared) = (Place::of(&owner), shared(&owner));
    // Before this, only the owner could enter it.
    std::fs::create_dir(&place.0).unwrap();
    std::fs::set_permissions(&place.0, Permissions::from_mode(0o700)).unwrap();
    chown(&place.0, Some(owner.uid), Some(owner.uid)).unwrap();
    let (server, url) = serve(&owner, &place, &shared, "41052");
    let mode = place.0.symlink_metadata().unwrap().mode();
    assert_eq!(mode & 0o777, 0o711, "who knows a name in it gets there");

    let of = |person: &Person, name: &str| person.run(&["cat", &format!("{url}{name}")]);
    assert_eq!(said(&of(&bob, "hello")), "hello\n");
    assert_eq!(said(&of(&owner, "secret")), "secret\n");
    let secret = of(&bob, "secret");
    assert!(!secret.status.success() && secret.stdout.is_empty(), "{}", said(&secret));
    assert!(!bob.run(&["mkdir", &format!("{url}made")]).status.success());

    // Mallory is refused by the socket, and over TCP for lack of authentication.
    let by_tcp = format!("dafs://{}/", server.tcp);
    for url in [url.as_str(), by_tcp.as_str()] {
        for arguments in [&["ls", url][..], &["cat", &format!("{url}hello")], &["stat", url]] {
            let output = mallory.run(arguments);
            assert!(!output.status.success() && output.stdout.is_empty(), "{}", said(&output));
        }
    }
    assert!(mallory.run(&["sessions", "--socket", "/tmp/dafs-41051/0.sock"]).stdout.is_empty());
    let log = server.end();
    assert!(log.contains("connection refused") && !log.contains("ERROR"), "{log}");
}

#[test]
fn what_others_make_at_a_users_server_does_not_run_as_that_user() {
    if !can_be_others() || !has(&["perl"]) {
        return;
    }
    let [owner, bob] = [41_054, 41_055].map(Person::new);
    let (place, shared) = (Place::of(&owner), shared(&owner));
    std::fs::set_permissions(&shared, Permissions::from_mode(0o777)).unwrap();
    let (_server, url) = serve(&owner, &place, &shared, "41055");
    // A place from which every user can load it.
    let preload = bob.path("libdafs_preload.so");
    std::fs::copy(library(), &preload).unwrap();
    std::fs::set_permissions(bob.path(""), Permissions::from_mode(0o755)).unwrap();
    let script = "use Fcntl; umask 0;
        sysopen(FILE, '/there/program', O_CREAT | O_WRONLY, 06755) or die $!";
    let mut made = bob.dafs(&["exec", "--map", &format!("/there={url}"), "--"]);
    made.env("DAFS_PRELOAD_LIBRARY", preload).args(["perl", "-e", script]);
    let made = made.output().unwrap();
    assert!(made.status.success(), "{}", said(&made));
    let program = std::fs::metadata(shared.join("program")).unwrap();
    assert_eq!((program.uid(), program.mode() & 0o7777), (owner.uid, 0o755));
}

#[test]
fn a_named_socket_in_a_directory_that_is_called_after_a_user_is_that_users() {
    if !can_be_others() {
        return;
    }
    let [owner, bob, mallory] = [41_056, 41_057, 41_058].map(Person::new);
    // While the owner has no server, Mallory takes the name and admits Bob.
    let (place, theirs) = (Place::of(&owner), shared(&mallory));
    std::fs::create_dir(&place.0).unwrap();
    std::fs::set_permissions(&place.0, Permissions::from_mode(0o755)).unwrap();
    chown(&place.0, Some(mallory.uid), Some(mallory.uid)).unwrap();
    let mut fake = mallory.dafs(&["serve", "--tcp", "127.0.0.1:0", "--cache", "16M"]);
    let socket = place.0.join("2050.sock");
    fake.args(["--allow-user", "41057", "--socket"]).arg(&socket);
    fake.arg("--state").arg(mallory.path("state")).arg(&theirs);
    let fake = Server::run(fake, socket);
    let read = bob.run(&["cat", &fake.url("hello")]);
    assert!(!read.status.success() && read.stdout.is_empty(), "{}", said(&read));
    assert!(said(&read).contains("belongs to user 41058"), "{}", said(&read));
    // The owner does not serve there either, and reports that.
    let (export, state) = (owner.directory("export"), owner.path("state"));
    let (export, state) = (export.to_str().unwrap(), state.to_str().unwrap());
    let refused = owner.run(&["serve", "--allow-user", "41057", "--state", state, export]);
    assert!(!refused.status.success() && said(&refused).contains("--socket"), "{}", said(&refused));
}

#[test]
fn a_server_that_nobody_could_log_in_to_over_the_network_listens_by_its_socket_alone() {
    let own = Person::new(rustix::process::geteuid().as_raw());
    let (export, socket) = (own.directory("export"), own.path("socket"));
    let mut serve = own.dafs(&["serve", "--while-stdin", "--cache", "16M", "--state"]);
    serve.arg(own.path("state")).arg("--socket").arg(&socket).arg(&export);
    // The server stops at the end of its input.
    let output = serve.output().unwrap();
    let ready = String::from_utf8(output.stdout).unwrap();
    let url = format!("dafs+shm://{}", socket.display());
    assert_eq!(ready, format!("ready: shm:{}\ntry:   dafs ls {url}\n", socket.display()));
    // An unknown user is reported before anything is served.
    let refused = own.run(&["serve", "--allow-user", "nemo", export.to_str().unwrap()]);
    assert!(said(&refused).contains("no user \"nemo\""), "{}", said(&refused));
}
