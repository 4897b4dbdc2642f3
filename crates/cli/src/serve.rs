//! `dafs serve`: from flags and a file to a running server.

use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use dafs_client::local_socket_candidates;
use dafs_dat::{Address, AddressError, ClientCertificates, TlsServer, TlsServerFiles};
use dafs_server::{Server, ServerConfig, ServerError, Stopper};
use dafs_store::Store;
use dafs_store::local::{Export, LocalConfig, LocalStore};
use dafs_store::memory::{MemoryLimits, MemoryStore};
use dafs_watch::{Page, Traces, TracesOptions};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::access::{self, ExportTable, KerberosTable, Rule};
use crate::durability::{Durability, journal};
use crate::exports;
use crate::neighbours;
use crate::place::DEFAULT_PORT;
use crate::reactors;
use crate::status;
use crate::strangers;

/// Arguments of `dafs serve`; the configuration file has the same keys.
#[derive(Clone, Debug, Default, Args, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Arguments {
    /// Directories to serve, each a path or NAME=PATH.
    #[serde(rename = "directories")]
    pub directories: Vec<PathBuf>,
    /// TOML file with these options; flags count for more.
    #[arg(long)]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// TCP address to listen on; port 0 lets the system choose. Default: 127.0.0.1:2050 if somebody
    /// could log in there (--password-file, --keytab, --anonymous), and none if not. Other hosts
    /// are served only if you say so.
    #[arg(long)]
    pub tcp: Option<SocketAddr>,
    /// Do not listen on TCP.
    #[arg(long)]
    pub no_tcp: bool,
    /// Address of an RDMA device to listen on besides, ADDRESS:PORT; 0.0.0.0, or :: in brackets,
    /// stands for those of all devices. The data cache is locked in memory for them.
    #[arg(long)]
    pub verbs: Option<SocketAddr>,
    /// Unix socket for shared memory. Default: the first usable of
    /// $XDG_RUNTIME_DIR/dafs, /run/dafs, /tmp/dafs-UID, named after the port.
    #[arg(long)]
    pub socket: Option<PathBuf>,
    /// Do not offer shared memory.
    #[arg(long)]
    pub no_socket: bool,
    /// Refuse changes.
    #[arg(long)]
    pub read_only: bool,
    /// Let clients into what is mounted beneath the directories, from a disk or memory of this
    /// host. Network file systems, FUSE and /proc, /sys and their like are never entered.
    #[arg(long)]
    pub cross_mounts: bool,
    /// Serve memory of at most so many bytes (K, M, G) instead of directories.
    #[arg(long)]
    pub memory: Option<String>,
    /// Bytes of the data cache (K, M, G). Default: a quarter of the memory.
    #[arg(long)]
    pub cache: Option<String>,
    /// Threads that serve connections, 1 to 8. More of them let a server use more cores.
    /// Default: 1.
    #[arg(long, value_name = "N", value_parser = reactors::parse)]
    pub reactors: Option<usize>,
    /// Users who may authenticate by password (see `dafs passwd`).
    #[arg(long)]
    pub password_file: Option<PathBuf>,
    /// Refuse clients over the network that prove nothing. That is the default; with this,
    /// `anonymous` counts for nothing.
    #[arg(long)]
    pub no_anonymous: bool,
    /// Let in clients over the network that prove nothing, users of this host included, and have
    /// them act as this user and group: UID:GID, `nobody`, or `own` for the server's own.
    /// Default: only who has a password, a ticket, or the kernel's word by the Unix socket gets in.
    #[arg(long, value_name = "WHOM")]
    pub anonymous: Option<String>,
    /// Let these users of this host in by the Unix socket, by name or number, and nobody else but
    /// root and the server's own user. They come as themselves: the files' permissions hold for
    /// them. The socket is where they can reach it, then: in /run/dafs or /tmp/dafs-UID.
    #[arg(long, value_name = "USER", value_delimiter = ',')]
    pub allow_user: Vec<String>,
    /// Keytab with the key of dafs/HOST: clients may authenticate by Kerberos.
    #[arg(long, value_name = "FILE")]
    pub keytab: Option<PathBuf>,
    /// Let in only who comes from there: `local` (shared memory), an address or a network.
    /// The configuration file can say more (`[[connect]]`).
    #[arg(long, value_name = "PLACE", value_delimiter = ',')]
    pub allow_from: Vec<String>,
    /// Trust these clients to act for others: uid:NUMBER, user:NAME, kerberos:NAME@REALM.
    #[arg(long, value_name = "PRINCIPAL", value_delimiter = ',')]
    pub trust: Vec<String>,
    /// Whose identity does not count: `root` (user 0 is --squash-to; the default for remote
    /// clients), `all` or `none`.
    #[arg(long, value_name = "WHOM")]
    pub squash: Option<String>,
    /// Who they are then. Default: nobody.
    #[arg(long, value_name = "UID:GID")]
    pub squash_to: Option<String>,
    /// Rules about who may connect.
    #[arg(skip)]
    pub connect: Vec<Rule>,
    /// Rules about who may act for others.
    #[arg(skip)]
    pub trusted: Vec<Rule>,
    /// Exports, and who sees them.
    #[arg(skip)]
    pub export: Vec<ExportTable>,
    /// Authentication by Kerberos.
    #[arg(skip)]
    pub kerberos: Option<KerberosTable>,
    /// Directory for the key that seals file handles, and for the journal.
    #[arg(long)]
    pub state: Option<PathBuf>,
    /// What exactly-once requests survive: `stable` for a killed server and a loss of power,
    /// too; `memory`, which is faster, for broken connections only. Default: stable for
    /// directories, memory for --memory.
    #[arg(long, value_name = "WHERE")]
    pub exactly_once: Option<Durability>,
    /// Seconds for which what a silent client holds is kept, and which clients have after a
    /// restart of the server to take back what they held. Default: 90.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub lease: Option<u64>,
    /// Seconds that a client's transfers may keep others waiting for what they hold, besides
    /// what their bytes need at 512 KiB a second; then the client is disconnected. Default: 10.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub transfer_patience: Option<u64>,
    /// Whether clients of this host that hold a delegation may read the file itself. Default:
    /// true.
    #[arg(long, value_name = "true|false")]
    pub direct_reads: Option<bool>,
    /// CRC on every iWARP frame; not over TLS, which needs none.
    #[arg(long)]
    pub crc: bool,
    /// PEM file of the server's certificate and those behind it: TLS for clients that begin
    /// with it.
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// PEM file of the certificate's key, which nobody else may read.
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// PEM file of the authorities that vouch for clients: those that speak TLS must show a
    /// certificate.
    #[arg(long, value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,
    /// A client that speaks TLS may do without a certificate.
    #[arg(long)]
    pub tls_client_optional: bool,
    /// Turn clients away that connect over TCP without TLS.
    #[arg(long)]
    pub tls_only: bool,
    /// Serve a page to watch the server by, and metrics for Prometheus, at this address; without
    /// one at 127.0.0.1:2051. Whoever can reach it can read who does what; nobody can change
    /// anything.
    #[arg(
        long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:2051"
    )]
    pub http: Option<SocketAddr>,
    /// A name that the page is asked by, besides IP addresses, localhost and this host's own
    /// name; requests by any other are refused. May be repeated.
    #[arg(long, value_name = "NAME")]
    pub http_name: Vec<String>,
    /// Send a span for each request to this collector of OpenTelemetry, such as
    /// http://127.0.0.1:4318. Default: what OTEL_EXPORTER_OTLP_ENDPOINT names.
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    /// Of requests without a label, send one in so many.
    #[arg(long, value_name = "NUMBER")]
    pub otlp_one_in: Option<u32>,
    /// Count and time nothing.
    #[arg(long, hide = true)]
    #[serde(skip)]
    pub no_metrics: bool,
    /// Stop at the end of the standard input: with the process that holds its other end.
    #[arg(long, hide = true)]
    #[serde(skip)]
    pub while_stdin: bool,
    /// Let a user `own` in by the password that is the first line of the standard input.
    #[arg(long, hide = true)]
    #[serde(skip)]
    pub one_time_password: bool,
}

impl Arguments {
    /// Where to listen on TCP, if at all. The usual socket is named after its port.
    pub fn tcp_address(&self) -> SocketAddr {
        self.tcp.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)))
    }

    /// Whether to listen on TCP: not unasked where nobody could log in.
    pub fn listens_on_tcp(&self) -> bool {
        let is_asked_for = self.tcp.is_some() || self.tls_cert.is_some();
        !self.no_tcp && (is_asked_for || strangers::can_log_in(self))
    }
}

pub fn run(flags: Arguments) -> Result<()> {
    let arguments = merge(flags)?;
    raise_descriptor_limit();
    let store = store(&arguments)?;
    let config = config(&arguments)?;
    let server = Server::new(&config, store).map_err(explain)?;
    tracing::info!(reactors = config.reactors, "starting to serve");
    stop_on_signals(server.stopper())?;
    if arguments.while_stdin {
        stop_with_stdin(server.stopper())?;
    }
    neighbours::open_sockets(&arguments, server.addresses());
    status::offer(server.addresses(), &server.inspector());
    let traces = traces(&arguments, &server)?;
    let page = page(&arguments, &server, traces.as_ref())?;
    tell_risks(&arguments)?;
    announce(&arguments, server.addresses(), &config, page.as_ref());
    let ended = server.run();
    if let Some(traces) = traces {
        traces.finish(TRACES_PATIENCE);
    }
    // Without systemd there is nobody to tell.
    let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Stopping]);
    let stats = ended?;
    tracing::info!(requests = stats.requests, hits = stats.cache.hit_count, "stopped");
    Ok(())
}

/// What a server with this configuration would be, without starting it.
pub fn outlook(config: PathBuf) -> Result<Outlook> {
    let arguments = merge(Arguments { config: Some(config), ..Arguments::default() })?;
    exports::check(&arguments)?;
    access::rules(&arguments)?;
    let reactors = reactors::of(arguments.reactors)?;
    Ok(Outlook { risks: risks(&arguments)?, reactors })
}

/// What a server with a configuration would be.
pub struct Outlook {
    /// What it would let others do that may not be meant, for people.
    pub risks: Vec<String>,
    /// How many reactors it would have.
    pub reactors: usize,
}

fn risks(arguments: &Arguments) -> Result<Vec<String>> {
    let mut risks = strangers::risks(arguments)?;
    risks.extend(exports::risks(arguments));
    Ok(risks)
}

/// Says in the log what the configuration lets others do that may not be meant.
fn tell_risks(arguments: &Arguments) -> Result<()> {
    for risk in risks(arguments)? {
        tracing::warn!("{risk}");
    }
    if strangers::is_closed(arguments) {
        tracing::info!(
            "over the network nobody can log in: there is neither --password-file nor --keytab; \
             users of this host connect over the Unix socket"
        );
    }
    Ok(())
}

/// Sends traces, if anybody wants them.
fn traces(arguments: &Arguments, server: &Server) -> Result<Option<Traces>> {
    let is_wanted = arguments.otlp.is_some()
        || ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
            .iter()
            .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    if !is_wanted {
        return Ok(None);
    }
    let collector = arguments.otlp.clone();
    let options = TracesOptions { collector, one_in: arguments.otlp_one_in.unwrap_or(1) };
    Ok(Some(Traces::start(&server.inspector(), &options)?))
}

/// Serves the page, if anybody wants it.
fn page(arguments: &Arguments, server: &Server, traces: Option<&Traces>) -> Result<Option<Page>> {
    let Some(address) = arguments.http else { return Ok(None) };
    if !address.ip().is_loopback() {
        tracing::warn!(
            %address,
            "whoever can reach the page reads the names of clients and files; keep it to those \
             who may, by a firewall or a proxy that asks who they are"
        );
    }
    let numbers = traces.map(Traces::numbers);
    let mut names = arguments.http_name.clone();
    names.extend(rustix::system::uname().nodename().to_str().ok().map(str::to_owned));
    Ok(Some(Page::serve(address, names, server.inspector(), numbers)?))
}

/// Adds what to do where that is not plain from what went wrong.
fn explain(error: ServerError) -> anyhow::Error {
    let advice = match &error {
        ServerError::Address(AddressError::System { source, .. })
            if source.kind() == ErrorKind::AddrInUse =>
        {
            "is another server running? Choose another --tcp ADDR or --socket PATH"
        }
        ServerError::Address(_) => {
            "choose another --tcp ADDR or --socket PATH, or give --no-tcp or --no-socket"
        }
        _ => return error.into(),
    };
    anyhow::anyhow!("{:#}; {advice}", anyhow::Error::from(error))
}

/// Says that the server is ready, to people and to systemd.
fn announce(
    arguments: &Arguments,
    addresses: &[Address],
    config: &ServerConfig,
    page: Option<&Page>,
) {
    let list: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let url = example(arguments, addresses, config);
    let mut text = format!("ready: {}\ntry:   dafs ls {url}\n", list.join(" "));
    if let Some(page) = page {
        text.push_str(&format!("watch: http://{}/\n", page.address()));
    }
    // A server goes on serving when nobody listens to it, or there is no systemd.
    let _ = std::io::stdout().write_all(text.as_bytes());
    let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Ready]);
}

/// What the file says, changed by what the flags say.
fn merge(flags: Arguments) -> Result<Arguments> {
    let Some(path) = &flags.config else { return Ok(flags) };
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("reading the configuration {}", path.display()))?;
    let file: Arguments = toml::from_str(&text).with_context(|| {
        format!("configuration {}; the keys are the flags of dafs serve", path.display())
    })?;
    Ok(Arguments {
        directories: if flags.directories.is_empty() {
            file.directories
        } else {
            flags.directories
        },
        config: flags.config.clone(),
        tcp: flags.tcp.or(file.tcp),
        no_tcp: flags.no_tcp || file.no_tcp,
        verbs: flags.verbs.or(file.verbs),
        socket: flags.socket.or(file.socket),
        no_socket: flags.no_socket || file.no_socket,
        read_only: flags.read_only || file.read_only,
        cross_mounts: flags.cross_mounts || file.cross_mounts,
        memory: flags.memory.or(file.memory),
        cache: flags.cache.or(file.cache),
        reactors: flags.reactors.or(file.reactors),
        password_file: flags.password_file.or(file.password_file),
        no_anonymous: flags.no_anonymous || file.no_anonymous,
        anonymous: flags.anonymous.or(file.anonymous),
        allow_user: if flags.allow_user.is_empty() { file.allow_user } else { flags.allow_user },
        keytab: flags.keytab.or(file.keytab),
        allow_from: if flags.allow_from.is_empty() { file.allow_from } else { flags.allow_from },
        trust: if flags.trust.is_empty() { file.trust } else { flags.trust },
        squash: flags.squash.or(file.squash),
        squash_to: flags.squash_to.or(file.squash_to),
        connect: file.connect,
        trusted: file.trusted,
        export: file.export,
        kerberos: file.kerberos,
        state: flags.state.or(file.state),
        exactly_once: flags.exactly_once.or(file.exactly_once),
        lease: flags.lease.or(file.lease),
        transfer_patience: flags.transfer_patience.or(file.transfer_patience),
        direct_reads: flags.direct_reads.or(file.direct_reads),
        crc: flags.crc || file.crc,
        tls_cert: flags.tls_cert.or(file.tls_cert),
        tls_key: flags.tls_key.or(file.tls_key),
        tls_client_ca: flags.tls_client_ca.or(file.tls_client_ca),
        tls_client_optional: flags.tls_client_optional || file.tls_client_optional,
        tls_only: flags.tls_only || file.tls_only,
        http: flags.http.or(file.http),
        http_name: if flags.http_name.is_empty() { file.http_name } else { flags.http_name },
        otlp: flags.otlp.or(file.otlp),
        otlp_one_in: flags.otlp_one_in.or(file.otlp_one_in),
        no_metrics: flags.no_metrics,
        while_stdin: flags.while_stdin,
        one_time_password: flags.one_time_password,
    })
}

fn store(arguments: &Arguments) -> Result<Arc<dyn Store>> {
    if let Some(size) = &arguments.memory {
        if !arguments.directories.is_empty() || !arguments.export.is_empty() {
            bail!("give either directories or --memory, not both");
        }
        if arguments.read_only {
            bail!("--memory starts empty: with --read-only there is nothing to serve");
        }
        let bytes_max = bytes(size).context("--memory")?;
        let limits = MemoryLimits { bytes_max, object_count_max: 1 << 20 };
        // Whoever serves it may write to it.
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        return Ok(Arc::new(MemoryStore::owned_by(limits, uid.as_raw(), gid.as_raw())));
    }
    let mut exports: Vec<Export> = exports::all(arguments)
        .into_iter()
        .map(|export| Export::new(export.name, export.path))
        .collect();
    if exports.is_empty() {
        bail!("nothing to serve: name directories (dafs serve DIR) or give --memory SIZE");
    }
    exports::check(arguments)?;
    for export in &mut exports {
        export.read_only = arguments.read_only;
        let said = arguments.export.iter().find(|table| export.name == *table.name);
        let said = said.and_then(|table| table.cross_mounts);
        export.cross_mounts = said.unwrap_or(arguments.cross_mounts);
    }
    let mut config = LocalConfig::new(".", state_directory(arguments));
    config.exports = exports;
    Ok(Arc::new(LocalStore::new(&config)?))
}

fn config(arguments: &Arguments) -> Result<ServerConfig> {
    let tcp = arguments.tcp_address();
    let mut config = ServerConfig::default();
    if arguments.listens_on_tcp() {
        config.listen.push(Address::Tcp(tcp));
    }
    if let Some(verbs) = arguments.verbs {
        config.listen.push(Address::Verbs(verbs));
    }
    if !arguments.no_socket {
        let usual = || neighbours::usual_socket(arguments);
        match arguments.socket.clone().map_or_else(usual, |path| Ok(Some(path)))? {
            Some(socket) => config.listen.push(Address::Shm(socket)),
            None => tracing::warn!("no place for the shared-memory socket; give --socket PATH"),
        }
    }
    if config.listen.is_empty() {
        bail!(
            "nothing to listen on: there is no socket, and no address at which somebody could log \
             in; give --socket PATH, or --password-file FILE or --keytab FILE, or an address by \
             --tcp or --verbs"
        );
    }
    if let Some(size) = &arguments.cache {
        config.cache.arena_bytes = usize::try_from(bytes(size).context("--cache")?)?;
        config.cache.dirty_bytes_max = config.cache.arena_bytes / 4;
    }
    config.reactors = reactors::of(arguments.reactors)?;
    config.journal = journal(arguments, &state_directory(arguments))?;
    if let Some(seconds) = arguments.lease {
        config.filer.lease = Duration::from_secs(seconds.clamp(1, 3600));
    }
    if let Some(seconds) = arguments.transfer_patience {
        config.transfer_patience = Duration::from_secs(seconds.clamp(1, 3600));
    }
    config.direct_reads = arguments.direct_reads.unwrap_or(true);
    config.password_file = arguments.password_file.clone();
    config.metrics = !arguments.no_metrics;
    config.crc = arguments.crc;
    config.access = access::rules(arguments)?;
    config.kerberos = access::kerberos(arguments)?;
    config.tls = tls(arguments)?;
    config.sessions.authentication.anonymous = strangers::anonymous(arguments)?;
    config.one_time_user = strangers::one_time_user(arguments)?;
    Ok(config)
}

/// What TLS is spoken with, if it is.
fn tls(arguments: &Arguments) -> Result<Option<TlsServer>> {
    let (certificate, key) = match (&arguments.tls_cert, &arguments.tls_key) {
        (Some(certificate), Some(key)) => (certificate.clone(), key.clone()),
        (None, None) if arguments.tls_only || arguments.tls_client_ca.is_some() => {
            bail!("TLS needs a certificate and its key: give --tls-cert FILE and --tls-key FILE")
        }
        (None, None) => return Ok(None),
        _ => bail!("--tls-cert and --tls-key go together"),
    };
    let clients = match (&arguments.tls_client_ca, arguments.tls_client_optional) {
        (None, false) => ClientCertificates::Unasked,
        (None, true) => bail!("--tls-client-optional needs --tls-client-ca FILE"),
        (Some(path), false) => ClientCertificates::Required(path.clone()),
        (Some(path), true) => ClientCertificates::Optional(path.clone()),
    };
    let files = TlsServerFiles { certificate, key, clients, required: arguments.tls_only };
    let server = TlsServer::load(&files).context("TLS")?;
    tracing::info!(certificate = %server.identity(), only = files.required, "TLS");
    Ok(Some(server))
}

/// A number of bytes with an optional K, M, G or T.
pub fn bytes(text: &str) -> Result<u64> {
    let (digits, factor) = match text.char_indices().last() {
        Some((end, 'k' | 'K')) => (&text[..end], 1 << 10),
        Some((end, 'm' | 'M')) => (&text[..end], 1 << 20),
        Some((end, 'g' | 'G')) => (&text[..end], 1 << 30),
        Some((end, 't' | 'T')) => (&text[..end], 1 << 40),
        _ => (text, 1),
    };
    let number: u64 =
        digits.parse().with_context(|| format!("{text:?} is no size; write 512M or 2G"))?;
    number.checked_mul(factor).with_context(|| format!("{text:?} is too large"))
}

/// Where the key of file handles and the journal are.
pub fn state_directory(arguments: &Arguments) -> PathBuf {
    arguments.state.clone().unwrap_or_else(default_state)
}

fn default_state() -> PathBuf {
    if let Some(state) = std::env::var_os("XDG_STATE_HOME").filter(|value| !value.is_empty()) {
        return PathBuf::from(state).join("dafs");
    }
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/dafs");
    }
    let home = std::env::var_os("HOME").unwrap_or_else(|| "/tmp".into());
    PathBuf::from(home).join(".local/state/dafs")
}

/// A URL that leads here, for whom the server is for. Shells would take `!/` for something else.
fn example(arguments: &Arguments, addresses: &[Address], config: &ServerConfig) -> String {
    let url = |address: &Address| match address {
        Address::Tcp(socket) if config.tls.is_some() => Some(format!("dafs+tls://{socket}/")),
        Address::Tcp(socket) => Some(format!("dafs://{socket}/")),
        Address::Verbs(socket) => Some(format!("dafs+verbs://{socket}/")),
        Address::Shm(path) => Some(format!("dafs+shm://{}", path.display())),
        Address::Sim { .. } => None,
    };
    let socket = addresses.iter().find_map(|address| match address {
        Address::Shm(path) => Some(path),
        Address::Tcp(_) | Address::Verbs(_) | Address::Sim { .. } => None,
    });
    // Who proves nothing gets in by the socket alone; whoever names the port looks for it at the
    // usual places, which are not the same for every user.
    let is_ours_alone = arguments.allow_user.is_empty() && config.tls.is_none();
    let tcp = addresses.iter().find_map(|address| match address {
        Address::Tcp(tcp) => Some(*tcp),
        Address::Shm(_) | Address::Verbs(_) | Address::Sim { .. } => None,
    });
    let port = tcp.unwrap_or_else(|| arguments.tcp_address()).port();
    if let Some(path) =
        socket.filter(|_| is_ours_alone && config.sessions.authentication.anonymous.is_none())
    {
        let mut before = local_socket_candidates(port).into_iter();
        if before.find(|candidate| candidate == path || candidate.exists()).as_ref() == Some(path) {
            return match port {
                DEFAULT_PORT => "dafs://localhost/".to_owned(),
                port => format!("dafs://localhost:{port}/"),
            };
        }
    }
    let is_open = |_: &&Address| {
        config.sessions.authentication.anonymous.is_some() && arguments.allow_user.is_empty()
    };
    let by_socket = socket.map(|path| Address::Shm(path.clone()));
    let best = addresses.iter().find(is_open).or(by_socket.as_ref()).or(addresses.first());
    best.and_then(url).unwrap_or_default()
}

/// Sessions cost descriptors; take all that we may have.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Refusal leaves the limit as it was.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// The first signal stops in order, the second at once.
fn stop_on_signals(stopper: Stopper) -> Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals =
        signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).context("listening for signals")?;
    std::thread::Builder::new()
        .name("dafs-signals".into())
        .spawn(move || {
            let mut signals = signals.forever();
            if signals.next().is_some() {
                stopper.stop();
            }
            if signals.next().is_some() {
                std::process::exit(1);
            }
        })
        .context("starting the signal thread")?;
    Ok(())
}

/// Ends the server with the process that started it, however that one ends.
fn stop_with_stdin(stopper: Stopper) -> Result<()> {
    std::thread::Builder::new()
        .name("dafs-stdin".into())
        .spawn(move || {
            // An error is an end, too.
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            stopper.stop();
        })
        .context("starting the thread that watches the standard input")?;
    Ok(())
}

/// How long the end of the server waits for the last spans to be taken.
const TRACES_PATIENCE: Duration = Duration::from_secs(3);
