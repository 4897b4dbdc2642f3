//! How the tests of all crates say that they cannot run on this machine.
//!
//! A test that lacks something calls a function of this crate and returns. The function writes a
//! line that `tools/test` counts and lists at its end. It writes past the test harness, which hides
//! the output of tests that pass. This crate also has the tests of the whole system, in `tests/`.

use std::fmt::Display;
use std::io::Write;
use std::panic::Location;

/// What continuous integration has installed. If the variable is 1, a test that lacks it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Required {
    /// Programs that use a served directory, and /dev/fuse: `DAFS_REQUIRE_FACES`.
    Faces,
    /// A Kerberos key distribution center: `DAFS_REQUIRE_KDC`.
    Kdc,
    /// The file servers and clients that ours is compared with: `DAFS_REQUIRE_PEERS`.
    Peers,
    /// File systems with reflinks that can be mounted: `DAFS_REQUIRE_REFLINK`.
    Reflink,
    /// A browser and Prometheus: `DAFS_REQUIRE_WATCH`.
    Watch,
}

impl Required {
    /// Returns true if tests that lack this must fail.
    #[must_use]
    pub fn is_set(self) -> bool {
        std::env::var_os(self.variable()).is_some_and(|value| value == "1")
    }

    /// Says that the running test is skipped. Panics if the variable is set.
    #[track_caller]
    pub fn skip(self, why: impl Display) {
        assert!(!self.is_set(), "{}=1, but {why}", self.variable());
        skip(why);
    }

    /// Says that a part of the running test is skipped. Panics if the variable is set.
    #[track_caller]
    pub fn skip_part(self, why: impl Display) {
        assert!(!self.is_set(), "{}=1, but {why}", self.variable());
        skip_part(why);
    }

    /// Returns true if the programs are in `PATH`. Otherwise says that the running test is skipped.
    #[track_caller]
    #[must_use]
    pub fn has_programs(self, programs: &[&str]) -> bool {
        let missing: Vec<_> = programs.iter().filter(|name| !is_in_path(name)).copied().collect();
        if !missing.is_empty() {
            self.skip(format_args!("there is no {}", missing.join(", ")));
        }
        missing.is_empty()
    }

    fn variable(self) -> &'static str {
        match self {
            Self::Faces => "DAFS_REQUIRE_FACES",
            Self::Kdc => "DAFS_REQUIRE_KDC",
            Self::Peers => "DAFS_REQUIRE_PEERS",
            Self::Reflink => "DAFS_REQUIRE_REFLINK",
            Self::Watch => "DAFS_REQUIRE_WATCH",
        }
    }
}

/// Returns true if this process is root's. Otherwise says that the running test is skipped.
#[track_caller]
#[must_use]
pub fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip("only root can act as several users");
    }
    is_root
}

/// Returns true if this process can mount by FUSE. Otherwise says that the running test is skipped.
#[track_caller]
#[must_use]
pub fn can_mount() -> bool {
    let can = has_fuse();
    if !can {
        Required::Faces.skip("a mount needs /dev/fuse and root");
    }
    can
}

/// Returns true if this process is root's and may use `/dev/fuse`.
#[must_use]
pub fn has_fuse() -> bool {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    device.is_ok() && rustix::process::geteuid().is_root()
}

/// Says that the running test is skipped.
#[track_caller]
pub fn skip(why: impl Display) {
    note("SKIPPED", &test_name(Location::caller()), why);
}

/// Says that a part of the running test is skipped, and the rest is tested.
#[track_caller]
pub fn skip_part(why: impl Display) {
    note("SKIPPED PART OF", &test_name(Location::caller()), why);
}

/// Says that a test of a program without a test harness is skipped.
pub fn skip_named(test: &str, why: impl Display) {
    note("SKIPPED", test, why);
}

/// Writes one line. The line before it may not have ended yet.
fn note(what: &str, test: &str, why: impl Display) {
    let why = why.to_string().replace('\n', "; ");
    let _ = std::io::stderr().write_all(format!("\n{what} {test}: {why}\n").as_bytes());
}

/// The test harness names the thread of each test. Other threads are named by the place of the
/// call.
fn test_name(place: &Location<'_>) -> String {
    match std::thread::current().name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => format!("{}:{}", place.file(), place.line()),
    }
}

fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}
