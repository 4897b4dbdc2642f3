//! Tests well-known names in places where any user can create them: a client trusts no socket that
//! another user may have put there.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::people::{Person, Server, can_be_others, said};

/// Users that no other test uses, so that their names in /tmp belong to this test.
const ATTACKER: u32 = 41_012;

/// The last place where clients of a user without $XDG_RUNTIME_DIR look.
struct Candidate(PathBuf);

impl Candidate {
    fn of(person: &Person) -> Self {
        Self(format!("/tmp/dafs-{}", person.uid).into())
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        let is_link = self.0.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
        // It may never have been made.
        let _ = match is_link {
            true => std::fs::remove_file(&self.0),
            false => std::fs::remove_dir_all(&self.0),
        };
    }
}

/// The real server of a victim over TCP, and an attacker's server where the victim's clients look.
struct Scene {
    victim: Person,
    _attacker: Person,
    real: Server,
    fake: Server,
    place: Candidate,
}

/// Puts the attacker's socket into its place.
type Trap = fn(place: &Path, victim: &Person, fake: &Path, name: &str);

impl Scene {
    fn new(victim: u32, trap: Trap) -> Self {
        let (victim, attacker) = (Person::new(victim), Person::new(ATTACKER));
        let place = Candidate::of(&victim);
        let served = |person: &Person, text: &str| {
            let export = person.directory("export");
            std::fs::write(export.join("file"), text).unwrap();
            std::fs::set_permissions(&export, PermissionsExt::from_mode(0o777)).unwrap();
            export
        };
        let (honest, false_) = (served(&victim, "real\n"), served(&attacker, "fake\n"));
        let real = Server::start(&victim, &honest, &["--anonymous", "own"]);
        let fake = Server::start(&attacker, &false_, &["--anonymous", "own"]);
        // All users can connect to it.
        let socket = attacker.path("socket");
        for path in [socket.parent().unwrap(), &socket] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
        }
        let port = real.tcp.rsplit(':').next().unwrap();
        trap(&place.0, &victim, &socket, &format!("{port}.sock"));
        Self { victim, _attacker: attacker, real, fake, place }
    }

    /// The victim's clients must not use it, and the doctor must report it.
    fn is_seen_through(&self) {
        let url = format!("dafs://{}/file", self.real.tcp);
        let read = self.victim.run(&["cat", &url]);
        assert_eq!(said(&read), "real\n", "the attacker's server was believed");
        let by_memory = self.victim.run(&["cat", "--transport", "shm", &url]);
        assert!(!by_memory.status.success(), "{}", said(&by_memory));
        assert!(!said(&by_memory).contains("fake"), "{}", said(&by_memory));
    }

    fn doctor(&self) -> String {
        said(&self.victim.run(&["doctor", &format!("dafs://{}/", self.real.tcp)]))
    }
}

#[test]
fn a_socket_in_a_directory_of_another_user_is_not_believed() {
    if !can_be_others() {
        return;
    }
    let scene = Scene::new(41_013, |place, _, fake, name| {
        std::fs::create_dir(place).unwrap();
        std::os::unix::fs::chown(place, Some(ATTACKER), Some(ATTACKER)).unwrap();
        std::fs::hard_link(fake, place.join(name)).unwrap();
    });
    scene.is_seen_through();
    let found = scene.doctor();
    assert!(found.contains("belongs to user 41012"), "{found}");
    // A password must not be sent to it, either.
    let port = scene.real.tcp.rsplit(':').next().unwrap();
    let url = format!("dafs://ann:secret@127.0.0.1:{port}/file");
    let read = scene.victim.run(&["cat", "--transport", "shm", &url]);
    assert!(said(&read).contains("could pose as the server"), "{}", said(&read));
}

#[test]
fn a_socket_that_another_has_put_into_an_open_directory_of_ones_own_is_not_believed() {
    if !can_be_others() {
        return;
    }
    let scene = Scene::new(41_014, |place, victim, fake, name| {
        std::fs::create_dir(place).unwrap();
        std::fs::set_permissions(place, PermissionsExt::from_mode(0o777)).unwrap();
        std::os::unix::fs::chown(place, Some(victim.uid), Some(victim.uid)).unwrap();
        std::fs::hard_link(fake, place.join(name)).unwrap();
    });
    scene.is_seen_through();
    assert!(scene.doctor().contains("others may write to"), "{}", scene.doctor());
}

#[test]
fn a_link_to_anothers_directory_or_socket_is_not_followed() {
    if !can_be_others() {
        return;
    }
    let to_directory: Trap = |place, _, fake, name| {
        symlink(fake.parent().unwrap(), place).unwrap();
        std::fs::hard_link(fake, fake.parent().unwrap().join(name)).unwrap();
    };
    let to_socket: Trap = |place, victim, fake, name| {
        std::fs::create_dir(place).unwrap();
        std::os::unix::fs::chown(place, Some(victim.uid), Some(victim.uid)).unwrap();
        symlink(fake, place.join(name)).unwrap();
    };
    for (victim, trap) in [(41_015, to_directory), (41_016, to_socket)] {
        Scene::new(victim, trap).is_seen_through();
    }
}

#[test]
fn another_user_who_answers_at_a_socket_of_ones_own_is_not_believed() {
    if !can_be_others() {
        return;
    }
    // Everything looks right, but the kernel reports which user listens.
    let scene = Scene::new(41_017, |place, victim, fake, name| {
        std::fs::create_dir(place).unwrap();
        std::fs::set_permissions(place, PermissionsExt::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(place, Some(victim.uid), Some(victim.uid)).unwrap();
        std::fs::hard_link(fake, place.join(name)).unwrap();
        std::os::unix::fs::chown(place.join(name), Some(victim.uid), None).unwrap();
    });
    scene.is_seen_through();
    // A user who names the socket is told whose server it is.
    let socket = scene.fake.url("");
    let found = said(&scene.victim.run(&["doctor", &socket]));
    assert!(found.contains("a server of user 41012"), "{found}");
}

#[test]
fn the_state_of_a_server_is_asked_for_at_no_socket_of_another_user() {
    if !can_be_others() {
        return;
    }
    let scene = Scene::new(41_018, |place, _, fake, _| {
        let mut status = fake.as_os_str().to_owned();
        status.push(".status");
        std::fs::set_permissions(&status, PermissionsExt::from_mode(0o666)).unwrap();
        std::fs::create_dir(place).unwrap();
        std::os::unix::fs::chown(place, Some(ATTACKER), Some(ATTACKER)).unwrap();
        std::fs::hard_link(&status, place.join("2050.sock.status")).unwrap();
    });
    for command in [&["sessions"][..], &["locks"], &["top", "--once"], &["follow", "--count", "1"]]
    {
        let asked = scene.victim.run(command);
        assert!(!asked.status.success(), "{command:?}: {}", said(&asked));
        assert!(said(&asked).contains("could pose as the server"), "{}", said(&asked));
    }
    drop(scene.place);
}

#[test]
fn ones_own_server_is_found_at_the_usual_place() {
    if !can_be_others() {
        return;
    }
    let person = Person::new(41_019);
    let (export, place) = (person.directory("export"), Candidate::of(&person));
    std::fs::write(export.join("file"), "mine\n").unwrap();
    let mut command = person.dafs(&["serve", "--tcp", "127.0.0.1:0", "--state"]);
    command.arg(person.path("state")).arg(&export);
    // The port is not known in advance, and the socket is named after the requested one.
    let server = Server::run(command, place.0.join("0.sock"));
    let port = server.tcp.rsplit(':').next().unwrap();
    std::fs::hard_link(place.0.join("0.sock"), place.0.join(format!("{port}.sock"))).unwrap();
    // Over TCP no client would be admitted.
    let read = person.run(&["cat", &format!("dafs://{}/file", server.tcp)]);
    assert_eq!(said(&read), "mine\n");
}

#[test]
fn a_server_s_sockets_are_its_users_alone_whatever_the_umask_is() {
    if !can_be_others() {
        return;
    }
    let (person, stranger) = (Person::new(41_020), Person::new(ATTACKER));
    let export = person.directory("export");
    std::fs::write(export.join("file"), "mine\n").unwrap();
    // Any user who can enter the sockets' directory could connect.
    std::fs::set_permissions(person.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    let mut open = person.command("/bin/sh");
    open.args(["-c", "umask 0; exec \"$@\"", "sh"]);
    let mut serve = person.dafs(&["serve", "--no-anonymous", "--tcp", "127.0.0.1:0", "--state"]);
    serve.arg(person.path("state")).arg("--socket").arg(person.path("socket")).arg(&export);
    // The shell must not inherit this process's descriptors.
    let program = person.path("dafs");
    let own = env!("CARGO_BIN_EXE_dafs");
    std::fs::hard_link(own, &program).or_else(|_| std::fs::copy(own, &program).map(drop)).unwrap();
    open.arg(&program).args(serve.get_args());
    let server = Server::run(open, person.path("socket"));
    for name in ["socket", "socket.status"] {
        let mode = person.path(name).symlink_metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let read = stranger.run(&["cat", &server.url("file")]);
    assert!(!read.status.success(), "{}", said(&read));
    assert!(said(&read).contains("ermission denied"), "{}", said(&read));
}
