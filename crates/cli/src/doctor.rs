//! `dafs doctor`: shows which transport would be used and why, and reports problems.

mod rdma;

use std::ffi::OsString;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use dafs_client::{AuthType, Location, RegionPath, ServerName, Session, local_socket_candidates};
use dafs_dat::Address;
use dafs_dat::shm::{FoundSocket, server_user};
use dafs_server::REACTORS_MAX;
use rustix::process::{Resource, getrlimit};

use crate::place::{Access, DEFAULT_PORT, LoginChoice, Transport, connect};
use crate::reactors;
use crate::serve::Outlook;
use crate::terminal_text::message;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The URL of the server to which the connection is checked.
    url: Option<OsString>,
    /// Check this server configuration without starting the server.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    access: Access,
}

/// The number of problems found; its methods print the findings.
#[derive(Default)]
struct Findings {
    wrong: u32,
}

impl Findings {
    fn good(&self, what: &str) {
        println!("ok    {}", message(what));
    }

    fn note(&self, what: &str) {
        println!("note  {}", message(what));
    }

    /// Reports something that works, but may grant more access than intended.
    fn risk(&self, what: &str) {
        println!("risk  {}", message(what));
    }

    /// Reports something that works, but could be faster.
    fn slow(&self, what: &str) {
        println!("slow  {}", message(what));
    }

    fn bad(&mut self, what: &str) {
        println!("BAD   {}", message(what));
        self.wrong += 1;
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let location = arguments.url.as_deref().map(Location::parse).transpose()?;
    let location = location.map(|location| arguments.access.tls.applied(&location));
    let mut findings = Findings::default();
    limits(&mut findings);
    cores(&findings);
    huge_pages(&findings);
    foreign_memory(&findings);
    rdma::look(&mut findings);
    if let Some(config) = &arguments.config {
        configuration(&mut findings, config);
    }
    match &location {
        Some(location) => server(&mut findings, location, &arguments.access),
        None => {
            sockets(&findings, DEFAULT_PORT);
            findings.note("name a server to check the connection to it: dafs doctor dafs://HOST/");
        }
    }
    match findings.wrong {
        0 => Ok(()),
        1 => bail!("one problem was found; it is marked BAD above"),
        count => bail!("{count} problems were found; they are marked BAD above"),
    }
}

/// Reports settings of a server configuration that may grant more access than intended.
fn configuration(findings: &mut Findings, config: &Path) {
    match crate::serve::outlook(config.to_path_buf()) {
        Ok(Outlook { risks, reactors, nfs_rdma }) => {
            let what = format!("configuration {}; reactors: {reactors}", config.display());
            if risks.is_empty() {
                findings.good(&what)
            } else {
                findings.note(&what)
            }
            risks.iter().for_each(|risk| findings.risk(risk));
            nfs_rdma.iter().for_each(|address| rdma::look_at_nfs(findings, address));
        }
        Err(error) => findings.bad(&format!("configuration {}: {error:#}", config.display())),
    }
}

fn limits(findings: &mut Findings) {
    let files = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let need = "a server needs up to three for each session, and one or two for each file";
    if files >= FILES_MIN {
        findings.good(&format!("open files: at most {files}; {need}"));
    } else {
        findings.bad(&format!(
            "open files: at most {files}; {need}: raise LimitNOFILE, or ulimit -Hn {FILES_MIN}"
        ));
    }
    let locked = getrlimit(Resource::Memlock).maximum;
    let locked = locked.map_or("unlimited".to_owned(), |bytes| format!("{} KiB", bytes >> 10));
    findings.note(&format!("locked memory: {locked}; only RDMA devices need it"));
}

fn cores(findings: &Findings) {
    let (cores, reactors) = (reactors::cores(), reactors::by_default());
    findings.note(&format!(
        "cores that a server may use: {cores}; `dafs serve` uses {reactors} reactor(s) by \
        default; --reactors takes 1 to {REACTORS_MAX}"
    ));
}

fn huge_pages(findings: &Findings) {
    // Each of these files lists all possible values, with the active value in brackets.
    for (file, what) in [("enabled", "huge pages"), ("shmem_enabled", "huge pages, shared")] {
        let path = Path::new("/sys/kernel/mm/transparent_hugepage").join(file);
        let Ok(text) = std::fs::read_to_string(&path) else {
            findings.note(&format!("{what}: not supported by this kernel"));
            continue;
        };
        let choice = text.split('[').nth(1).and_then(|rest| rest.split(']').next()).unwrap_or("?");
        if matches!(choice, "never" | "deny") {
            let better = if file == "enabled" { "madvise" } else { "advise" };
            findings.slow(&format!("{what}: {choice}; faster: echo {better} > {}", path.display()));
        } else {
            findings.good(&format!("{what}: {choice}"));
        }
    }
}

fn foreign_memory(findings: &Findings) {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let scope: u32 = scope.map_or(0, |text| text.trim().parse().unwrap_or(0));
    if scope == 0 {
        findings.good(
            "memory of other processes: a server of the same user can directly access buffers \
            that the library did not allocate",
        );
    } else {
        findings.note(&format!(
            "kernel.yama.ptrace_scope is {scope}: buffers that the library did not allocate \
             are copied through a ring; allocate them with Client::allocate"
        ));
    }
}

fn sockets(findings: &Findings, port: u16) {
    for path in local_socket_candidates(port) {
        match FoundSocket::look(&path) {
            Ok(Some(_)) => socket(findings, &path),
            Ok(None) => findings.note(&format!("shared memory: {}: nothing", path.display())),
            Err(distrust) => findings.risk(&format!("shared memory: {distrust}")),
        }
    }
}

/// Reports which user owns the server process at a socket, according to the kernel.
fn socket(findings: &Findings, path: &Path) {
    let what = match server_user(path) {
        Ok(user) => format!("a server of user {user}"),
        Err(error) => format!("no server answers: {error}"),
    };
    findings.note(&format!("shared memory: {}: {what}", path.display()));
}

fn server(findings: &mut Findings, location: &Location, access: &Access) {
    match &location.server {
        ServerName::Socket(path) => socket(findings, path),
        ServerName::Verbs { .. } => {}
        ServerName::Host { host, port, tls } => {
            if *tls {
                tls_files(findings, location, access);
            } else if access.transport != Transport::Tcp {
                sockets(findings, *port);
            }
            tcp(findings, host, *port);
        }
    }
    match connect(location, access) {
        Ok(session) => {
            let way = way_of(&session);
            let by = match location.server {
                ServerName::Host { tls: true, .. } => {
                    " by TLS 1.3, with a verified server \
                certificate"
                }
                ServerName::Host { .. } | ServerName::Verbs { .. } | ServerName::Socket(_) => "",
            };
            findings.good(&format!("connected over {}{by}: {way}", session.address()));
            identity(findings, &session);
        }
        Err(error) => findings.bad(&format!("{error:#}")),
    }
    strangers(findings, location, access);
}

/// Reports whether the server accepts network clients without authentication.
fn strangers(findings: &Findings, location: &Location, access: &Access) {
    if matches!(location.server, ServerName::Socket(_)) {
        return;
    }
    let mut location = location.clone();
    location.user = None;
    let access = Access { login: LoginChoice::None, transport: Transport::Tcp, ..access.clone() };
    if connect(&location, &access).is_ok() {
        findings.risk(
            "the server runs with --anonymous: it lets in network clients without authentication, \
            including every user of its host, and they act as that user; without it, clients need \
            a password or a ticket",
        );
    }
}

/// Reports which authentication method was used, and why no stronger method was used.
fn identity(findings: &Findings, session: &Session) {
    let Some(identity) = session.identity() else { return };
    let what = match identity.method {
        AuthType::None | AuthType::Default => match session.address() {
            Address::Shm(_) => "the kernel vouches for this user".to_owned(),
            Address::Tcp(_) | Address::Verbs(_) | Address::Sim { .. } => {
                "none: this client is anonymous".to_owned()
            }
        },
        AuthType::Text => "a password, in clear text".to_owned(),
        AuthType::Gss => format!(
            "kerberos, with {}, for another {} s",
            identity.server.as_deref().unwrap_or_default(),
            identity.time_left().unwrap_or_default().as_secs()
        ),
    };
    findings.good(&format!("authentication: {what}"));
    for reason in &identity.passed_over {
        findings.note(&format!("not used: {reason}"));
    }
    if identity.trusted {
        let count = identity.credentials_max;
        findings.note(&format!("trusted: this client may act for {count} others"));
    }
}

/// Reports the TLS settings of this client.
fn tls_files(findings: &mut Findings, location: &Location, access: &Access) {
    let tls = match access.tls.load(location) {
        Ok(Some(tls)) => tls,
        Ok(None) => return,
        // The attempt to connect reports the same error and counts it.
        Err(_) => return findings.note("tls: not possible with these settings"),
    };
    let Some(identity) = tls.identity() else {
        return findings.note("tls: this client has no certificate; a server may require one");
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now_s = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    let left_days = (identity.expires_at_s - now_s) / DAY_S;
    if identity.expires_at_s <= now_s {
        findings.bad(&format!("tls: this client's certificate ({identity}) has expired"));
    } else {
        let what = format!("tls: this client is {identity}, for {left_days} more days");
        if left_days < DAYS_MIN { findings.note(&what) } else { findings.good(&what) }
    }
}

/// Reports whether the TCP port is reachable, whatever program listens there.
fn tcp(findings: &Findings, host: &str, port: u16) {
    let addresses = match (host, port).to_socket_addrs() {
        Ok(addresses) => addresses,
        Err(error) => return findings.note(&format!("tcp: {host}: {error}")),
    };
    for address in addresses {
        let what = match TcpStream::connect_timeout(&address, TCP_PATIENCE) {
            Ok(_) => "a program listens there".to_owned(),
            Err(error) => error.to_string(),
        };
        findings.note(&format!("tcp: {address}: {what}"));
    }
}

fn way_of(session: &Session) -> &'static str {
    let buffer = session.client().allocate(4096);
    match buffer.ok().and_then(|buffer| session.path_of(&buffer)) {
        Some(RegionPath::Mapped) => "the server maps this client's buffers",
        Some(RegionPath::ProcessVm) => "the server copies into this process",
        Some(RegionPath::Staged) => "data is copied through a ring in shared memory",
        Some(RegionPath::Network) if matches!(session.address(), Address::Verbs(_)) => {
            "the RDMA devices transfer the data"
        }
        Some(RegionPath::Network) => "data goes through a socket",
        None => "the session has already ended",
    }
}

/// The lowest descriptor limit that suffices for a busy server.
const FILES_MIN: u64 = 4096;
const DAY_S: i64 = 24 * 60 * 60;
/// A certificate that expires in fewer days than this should be renewed.
const DAYS_MIN: i64 = 14;
const TCP_PATIENCE: Duration = Duration::from_secs(2);
