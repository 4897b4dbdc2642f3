//! A server in a separate process, which is this program started again. So its descriptors,
//! mappings and resident memory belong to the server alone.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use dafs_dat::Address;
use dafs_server::ServerConfig;

use crate::bystander::{Bystanders, contents};
use crate::fixture::{Fixture, HANG, Transport, reactors};

/// The server's process.
pub(super) struct Process {
    child: Child,
    /// Kept open, so that the process can write.
    _output: BufReader<ChildStdout>,
    pub shm: Address,
    pub tcp: Address,
}

/// The resources that a process holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holdings {
    pub descriptors: usize,
    pub mappings: usize,
    pub anonymous_kib: u64,
}

impl Process {
    pub(super) fn start() -> Self {
        Self::patient(ServerConfig::default().patience.connect)
    }

    /// Does the same with a longer limit for establishing a connection.
    pub(super) fn patient(limit: Duration) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["hostile::process::the_process_of_a_server", "--exact", "--nocapture"])
            .env(SERVES, limit.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let ready = output.by_ref().lines().map(Result::unwrap).find_map(|line| {
            let (_, addresses) = line.split_once(READY)?;
            let (tcp, shm) = addresses.split_once(' ')?;
            let tcp = Address::Tcp(tcp.strip_prefix("tcp:")?.parse().ok()?);
            Some((Address::Shm(PathBuf::from(shm.strip_prefix("shm:")?)), tcp))
        });
        let (shm, tcp) = ready.expect("a server");
        Self { child, _output: output, shm, tcp }
    }

    /// Starts honest sessions with it, over both transports.
    pub(super) fn bystanders(&self) -> Bystanders {
        Bystanders::start(&[self.shm.clone(), self.tcp.clone()])
    }

    /// Tells the guard against hanging in the process that the test continues.
    pub(super) fn goes_on(&mut self) {
        let input = self.child.stdin.as_mut().expect("it is closed when this is dropped");
        // If the process has ended, another check notices that.
        let _ = input.write_all(b"\n");
    }

    pub(super) fn holdings(&self) -> Holdings {
        let place = Path::new("/proc").join(self.child.id().to_string());
        let text = |name: &str| std::fs::read_to_string(place.join(name)).unwrap();
        let status = text("status");
        let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        Holdings {
            descriptors: std::fs::read_dir(place.join("fd")).unwrap().count(),
            mappings: text("maps").lines().count(),
            anonymous_kib: anonymous.trim().trim_end_matches(" kB").parse().unwrap(),
        }
    }

    /// Returns its resources between tests. Recent work may not have ended yet, so the minimum
    /// counts.
    pub(super) fn holdings_at_rest(&self, bystanders: &mut Bystanders) -> Holdings {
        bystanders.go_on();
        let mut least = self.holdings();
        for _ in 0..20 {
            bystanders.go_on();
            let now = self.holdings();
            least.descriptors = least.descriptors.min(now.descriptors);
            least.mappings = least.mappings.min(now.mappings);
        }
        least
    }

    /// Waits until it holds no more than before.
    pub(super) fn comes_back_to(&self, before: &Holdings, bystanders: &mut Bystanders) -> Holdings {
        let begun = Instant::now();
        // The allocator keeps some memory for each serving thread.
        let growth_kib_max = GROWTH_KIB * reactors() as u64;
        loop {
            bystanders.go_on();
            let after = self.holdings();
            let is_back = after.descriptors <= before.descriptors
                && after.mappings <= before.mappings + MAPPINGS_SLACK
                && after.anonymous_kib <= before.anonymous_kib + growth_kib_max;
            if is_back || begun.elapsed() > HANG {
                assert!(is_back, "before {before:?}, after {after:?}");
                return after;
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The end of its standard input stops the server.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Not a test but the program that [`Process::start`] starts. Without the variable it does nothing.
#[test]
fn the_process_of_a_server() {
    let Ok(limit) = std::env::var(SERVES) else { return };
    let connect_timeout = Duration::from_millis(limit.parse().unwrap());
    let fixture = Fixture::with(|config| {
        config.patience.connect = connect_timeout;
        let timeout = &mut config.sessions.authentication.timeout;
        *timeout = connect_timeout.max(*timeout);
    });
    std::fs::write(fixture.local("bystander"), contents()).unwrap();
    let (tcp, shm) = (fixture.address(Transport::Tcp), fixture.address(Transport::Shm));
    println!("{READY}{tcp} {shm}");
    let mut input = std::io::stdin();
    while input.read(&mut [0; 64]).unwrap() > 0 {
        fixture.goes_on();
    }
}

/// Mappings that an allocator may make at any time, and those of a dozen threads that release data
/// from peers and start when there is work for them. A leak of one mapping in each of a thousand
/// rounds would exceed this.
const MAPPINGS_SLACK: usize = 64;
/// A leak of one KiB in each of a thousand rounds would exceed this; what an allocator keeps is
/// much less.
const GROWTH_KIB: u64 = 1 << 10;
/// The variable that makes the program a server. Its value is the time in milliseconds for
/// establishing a connection.
const SERVES: &str = "DAFS_TEST_SERVES";
const READY: &str = "ready: ";
