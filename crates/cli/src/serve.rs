//! `dafs serve`: starts a server from flags and a configuration file.

use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use dafs_client::local_socket_candidates;
use dafs_dat::{Address, AddressError, ClientCertificates, TlsServer, TlsServerFiles};
use dafs_server::{NfsRules, PasswordFile, Server, ServerConfig, ServerError, Stopper};
use dafs_store::Store;
use dafs_store::local::{Export, LocalConfig, LocalStore};
use dafs_store::memory::{MemoryLimits, MemoryStore};
use dafs_watch::{Page, Traces, TracesOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::access::{self, ExportTable, KerberosTable, Rule};
use crate::durability::{Durability, journal};
use crate::exports;
use crate::ignored::is_ignored;
use crate::nfs::rpcbind::{self, Registered};
use crate::nfs::{self, NfsTable};
use crate::place::DEFAULT_PORT;
use crate::reactors;
use crate::reload::Reload;
use crate::socket_users;
use crate::status;
use crate::unauthenticated;

/// Arguments of `dafs serve`. The configuration file has the same keys.
#[derive(Clone, Debug, Default, Args, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct Arguments {
    /// Directories to serve. Each is a path, or NAME=PATH to serve it under another name.
    #[serde(rename = "directories")]
    pub directories: Vec<PathBuf>,
    /// TOML file with these options. Flags take precedence.
    #[arg(long)]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// TCP address to listen on; port 0 lets the system choose. Default: 127.0.0.1:2050 if a way to
    /// log in there is configured (--password-file, --keytab, --anonymous), else none. To serve
    /// other hosts, give an address.
    #[arg(long)]
    pub tcp: Option<SocketAddr>,
    /// Do not listen on TCP.
    #[arg(long)]
    pub no_tcp: bool,
    /// Address of an RDMA device to listen on in addition, ADDRESS:PORT. 0.0.0.0, or :: in
    /// brackets, stands for the addresses of all devices. The data cache is locked in memory for
    /// them.
    #[arg(long)]
    pub verbs: Option<SocketAddr>,
    /// Unix socket for shared memory. Default: the first usable of $XDG_RUNTIME_DIR/dafs,
    /// /run/dafs, /tmp/dafs-UID, named after the port.
    #[arg(long)]
    pub socket: Option<PathBuf>,
    /// Do not accept clients over shared memory.
    #[arg(long)]
    pub no_socket: bool,
    /// Refuse all changes by clients.
    #[arg(long)]
    pub read_only: bool,
    /// Let clients enter file systems that are mounted beneath the directories, if they are on a
    /// disk or in memory of this host. Network file systems, FUSE and kernel file systems such as
    /// /proc and /sys are never entered.
    #[arg(long)]
    pub cross_mounts: bool,
    /// Serve a memory file system of at most this size (K, M, G) instead of directories.
    #[arg(long)]
    pub memory: Option<String>,
    /// Size of the data cache in bytes (K, M, G). Default: a quarter of the memory.
    #[arg(long)]
    pub cache: Option<String>,
    /// Number of threads that serve connections, 1 to 8. With more threads, a server can use more
    /// cores. Default: 1.
    #[arg(long, value_name = "N", value_parser = reactors::parse)]
    pub reactors: Option<usize>,
    /// File of users who may authenticate by password (see `dafs passwd`).
    #[arg(long)]
    pub password_file: Option<PathBuf>,
    /// Refuse network clients without authentication. That is the default; this option overrides
    /// `anonymous`.
    #[arg(long)]
    pub no_anonymous: bool,
    /// Let in network clients without authentication, including users of this host over TCP, and
    /// have them act as this user and group: UID:GID, `nobody`, or `own` for the server's own.
    /// Default: only clients with a password, a ticket, or a connection through the Unix socket get
    /// in.
    #[arg(long, value_name = "WHOM")]
    pub anonymous: Option<String>,
    /// Let only these users of this host, by name or number, connect through the Unix socket,
    /// besides root and the server's own user. They act as themselves: the permissions of the files
    /// apply to them. The socket is then in a place that they can reach: /run/dafs or
    /// /tmp/dafs-UID.
    #[arg(long, value_name = "USER", value_delimiter = ',')]
    pub allow_user: Vec<String>,
    /// Keytab with the key of dafs/HOST, for clients that authenticate by Kerberos.
    #[arg(long, value_name = "FILE")]
    pub keytab: Option<PathBuf>,
    /// Let in only clients from these places: `local` (shared memory), an address or a network. The
    /// configuration file has more detailed rules (`[[connect]]`).
    #[arg(long, value_name = "PLACE", value_delimiter = ',')]
    pub allow_from: Vec<String>,
    /// Trust these clients to act for others: uid:NUMBER, user:NAME, kerberos:NAME@REALM.
    #[arg(long, value_name = "PRINCIPAL", value_delimiter = ',')]
    pub trust: Vec<String>,
    /// Which users are mapped to --squash-to: `root` (user 0; the default for remote clients),
    /// `all` or `none`.
    #[arg(long, value_name = "WHOM")]
    pub squash: Option<String>,
    /// The user and group for squashed clients. Default: `nobody`.
    #[arg(long, value_name = "UID:GID")]
    pub squash_to: Option<String>,
    /// Rules that decide which clients may connect.
    #[arg(skip)]
    pub connect: Vec<Rule>,
    /// Rules that decide which clients may act for others.
    #[arg(skip)]
    pub trusted: Vec<Rule>,
    /// Exports, and which clients see them.
    #[arg(skip)]
    pub export: Vec<ExportTable>,
    /// The settings of Kerberos authentication.
    #[arg(skip)]
    pub kerberos: Option<KerberosTable>,
    /// The settings for NFS clients.
    #[command(flatten)]
    pub nfs: NfsTable,
    /// Directory for the key that protects file handles, and for the journal.
    #[arg(long)]
    pub state: Option<PathBuf>,
    /// What exactly-once requests survive: `stable` also survives a killed server and a loss of
    /// power; `memory`, which is faster, survives broken connections only. Default: stable for
    /// directories, memory for --memory.
    #[arg(long, value_name = "WHERE")]
    pub exactly_once: Option<Durability>,
    /// Seconds for which the server keeps the opens and locks of a silent client. After a server
    /// restart, clients have the same time to reclaim their opens and locks. Default: 90.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub lease: Option<u64>,
    /// Seconds for which the transfers of one client may keep other clients waiting, in addition to
    /// the time that the transferred bytes need at 512 KiB per second. After that the client is
    /// disconnected. Default: 10.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub transfer_patience: Option<u64>,
    /// Let clients on this host that hold a delegation read the file directly. Default: true.
    #[arg(long, value_name = "true|false")]
    pub direct_reads: Option<bool>,
    /// Use a CRC on every iWARP frame; not over TLS, which needs none.
    #[arg(long)]
    pub crc: bool,
    /// PEM file of the server's certificate and its intermediates. Enables TLS for clients that
    /// start it.
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// PEM file of the certificate's key. No other user may be able to read it.
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// PEM file of the authorities that sign client certificates. Clients that use TLS must then
    /// have one.
    #[arg(long, value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,
    /// Accept TLS clients without a certificate.
    #[arg(long)]
    pub tls_client_optional: bool,
    /// Refuse clients that connect over TCP without TLS.
    #[arg(long)]
    pub tls_only: bool,
    /// Serve a web page to monitor the server, and metrics for Prometheus, at this address, by
    /// default 127.0.0.1:2051. Anyone who can reach the page can read which client does what. The
    /// page cannot change anything.
    #[arg(
        long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:2051"
    )]
    pub http: Option<SocketAddr>,
    /// A host name by which the page may be requested, besides IP addresses, localhost and this
    /// host's own name. Requests by other names are refused. May be repeated.
    #[arg(long, value_name = "NAME")]
    pub http_name: Vec<String>,
    /// Send a span for each request to this OpenTelemetry collector, such as http://127.0.0.1:4318.
    /// Default: the value of OTEL_EXPORTER_OTLP_ENDPOINT.
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    /// Trace one in this many of the requests without a label.
    #[arg(long, value_name = "NUMBER")]
    pub otlp_one_in: Option<u32>,
    /// Check the configuration and the files that it names, and end without serving.
    #[arg(long)]
    #[serde(skip)]
    pub check: bool,
    /// Disable all counters and timers.
    #[arg(long, hide = true)]
    #[serde(skip)]
    pub no_metrics: bool,
    /// Stop at the end of the standard input, that is, when the process that writes to it ends.
    #[arg(long, hide = true)]
    #[serde(skip)]
    pub while_stdin: bool,
    /// Let in a user `own` with the password in the first line of the standard input.
    #[arg(long, hide = true)]
    #[serde(skip)]
    pub one_time_password: bool,
}

impl Arguments {
    /// Returns the TCP address to listen on. The default socket is named after its port.
    pub(crate) fn tcp_address(&self) -> SocketAddr {
        self.tcp.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)))
    }

    /// True if the server listens on TCP. By default it does not if no client could log in there.
    pub(crate) fn listens_on_tcp(&self) -> bool {
        let is_asked_for = self.tcp.is_some() || self.tls_cert.is_some();
        !self.no_tcp && (is_asked_for || unauthenticated::can_log_in(self))
    }
}

pub(crate) fn run(flags: Arguments) -> Result<()> {
    let arguments = merge(flags.clone())?;
    if arguments.check {
        return check(&arguments);
    }
    raise_descriptor_limit();
    let store = store(&arguments)?;
    let config = config(&arguments)?;
    let server = Server::new(&config, store).map_err(explain)?;
    tracing::info!(reactors = config.reactors, "starting to serve");
    let reload = Reload::new(flags, arguments.clone(), server.reloader(), config.tls.clone());
    let reload = Arc::new(reload);
    obey_signals(server.stopper(), reload.clone())?;
    if arguments.while_stdin {
        stop_with_stdin(server.stopper())?;
    }
    socket_users::open_sockets(&arguments, server.addresses());
    status::offer(server.addresses(), &server.inspector(), &reload);
    let traces = traces(&arguments, &server)?;
    let page = page(&arguments, &server, traces.as_ref())?;
    log_risks(&arguments, &config.access.nfs)?;
    let registered = rpcbind::register(&server.nfs_addresses());
    announce(&arguments, &server, &config, page.as_ref(), &registered);
    let ended = server.run();
    if let Some(traces) = traces {
        traces.finish(TRACES_PATIENCE);
    }
    // Without systemd there is nothing to notify.
    let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Stopping]);
    let stats = ended?;
    tracing::info!(requests = stats.requests, hits = stats.cache.hit_count, "stopped");
    Ok(())
}

/// Checks the configuration and the files that it names, without opening the journal or an address.
fn check(arguments: &Arguments) -> Result<()> {
    exports::check(arguments)?;
    let rules = access::rules(arguments)?;
    let exports = exports::all(arguments);
    for named in &rules.exports {
        if exports.iter().all(|export| export.name != *named.name) {
            bail!("[[export]] {:?} has neither a path nor one of the directories", named.name);
        }
    }
    // There may be none here: a service may name its directories in its command.
    exports::check_directories(&exports)?;
    nfs::config(arguments)?;
    let nfs_rules = nfs::rules_at_start(arguments)?;
    unauthenticated::anonymous(arguments)?;
    for size in [&arguments.cache, &arguments.memory].into_iter().flatten() {
        bytes(size)?;
    }
    let has_keys = match access::kerberos(arguments)? {
        Some(kerberos) => kerberos.check()?,
        None => false,
    };
    nfs_rules.check_kerberos(has_keys).map_err(|what| anyhow!(what))?;
    nfs::check_tls(arguments, &nfs_rules, tls(arguments)?.as_ref())?;
    reactors::of(arguments.reactors)?;
    if let Some(path) = &arguments.password_file {
        PasswordFile::load(path)?;
    }
    println!("the configuration can be used");
    Ok(())
}

/// Returns a description of the server that this configuration would start.
pub(crate) fn outlook(config: PathBuf) -> Result<Outlook> {
    let arguments = merge(Arguments { config: Some(config), ..Arguments::default() })?;
    exports::check(&arguments)?;
    access::rules(&arguments)?;
    let reactors = reactors::of(arguments.reactors)?;
    let rules = nfs::compiled(&arguments)?.rules;
    let nfs_rdma = nfs::config(&arguments)?.map(|nfs| nfs.rdma).unwrap_or_default();
    Ok(Outlook { risks: risks(&arguments, &rules)?, reactors, nfs_rdma })
}

/// A description of a server with a certain configuration.
pub(crate) struct Outlook {
    /// Warnings about access that may not be intended.
    pub risks: Vec<String>,
    /// The number of reactors.
    pub reactors: usize,
    /// The addresses for NFS clients over RDMA.
    pub nfs_rdma: Vec<Address>,
}

fn risks(arguments: &Arguments, rules: &NfsRules) -> Result<Vec<String>> {
    let mut risks = unauthenticated::risks(arguments)?;
    risks.extend(exports::risks(arguments));
    risks.extend(nfs::risks(arguments, rules));
    Ok(risks)
}

/// Logs warnings about access that may not be intended. The command that has started a server with
/// a one-time password has also chosen its options, so it warns of them itself, if necessary.
fn log_risks(arguments: &Arguments, rules: &NfsRules) -> Result<()> {
    if arguments.one_time_password {
        return Ok(());
    }
    for risk in risks(arguments, rules)? {
        tracing::warn!("{risk}");
    }
    if unauthenticated::is_closed(arguments) {
        tracing::info!(
            "no client can log in over the network: there is neither --password-file nor \
            --keytab; users of this host can connect through the Unix socket"
        );
    }
    Ok(())
}

/// Starts sending traces, if requested.
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

/// Serves the web page, if requested.
fn page(arguments: &Arguments, server: &Server, traces: Option<&Traces>) -> Result<Option<Page>> {
    let Some(address) = arguments.http else { return Ok(None) };
    if !address.ip().is_loopback() {
        tracing::warn!(
            %address,
            "anyone who can reach the page can read the names of clients and files; restrict \
            access with a firewall or an authenticating proxy"
        );
    }
    let numbers = traces.map(Traces::numbers);
    let mut names = arguments.http_name.clone();
    names.extend(rustix::system::uname().nodename().to_str().ok().map(str::to_owned));
    Ok(Some(Page::serve(address, names, server.inspector(), numbers)?))
}

/// Adds advice to an error that does not say what to do.
fn explain(error: ServerError) -> anyhow::Error {
    let advice = match &error {
        ServerError::Address(AddressError::System { source, .. })
            if source.kind() == ErrorKind::AddrInUse =>
        {
            "is another server running? If so, choose another --tcp ADDR, --nfs-rdma ADDR or \
            --socket PATH"
        }
        ServerError::Address(_) => {
            "choose another --tcp ADDR, --nfs-rdma ADDR or --socket PATH, or give --no-tcp or \
            --no-socket"
        }
        _ => return error.into(),
    };
    anyhow!("{:#}; {advice}", anyhow::Error::from(error))
}

/// Reports that the server is ready, on standard output and to systemd.
fn announce(
    arguments: &Arguments,
    server: &Server,
    config: &ServerConfig,
    page: Option<&Page>,
    registered: &Registered,
) {
    let addresses = server.addresses();
    let list: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let mut text = match example(arguments, addresses, config) {
        Some(url) => format!("ready: {}\ntry:   dafs ls {url}\n", list.join(" ")),
        None => "ready: for NFS clients only\n".to_owned(),
    };
    let path = server.nfs_path();
    for address in server.nfs_addresses() {
        let place = (address, &*path);
        text.push_str(&nfs::mount_commands(arguments, place, registered.is_complete()));
    }
    for address in server.nfs_rdma_addresses() {
        text.push_str(&nfs::rdma_mount_command(arguments, (address, &path)));
    }
    if let Some(page) = page {
        text.push_str(&format!("watch: http://{}/\n", page.address()));
    }
    // Ignore errors, because a server must continue if its output is closed or systemd is missing.
    let _ = std::io::stdout().write_all(text.as_bytes());
    let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Ready]);
}

/// Reads the configuration file and applies the flags to it. Reads the exports file, too.
pub(crate) fn merge(flags: Arguments) -> Result<Arguments> {
    let mut arguments = merge_files(flags)?;
    arguments.nfs.read()?;
    Ok(arguments)
}

fn merge_files(flags: Arguments) -> Result<Arguments> {
    let Some(path) = &flags.config else { return Ok(flags) };
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("reading the configuration {}", path.display()))?;
    let file: Arguments = toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = 1 + before.matches('\n').count();
        let shown = text.lines().nth(line - 1).unwrap_or_default();
        let message = error.message();
        anyhow!("configuration {}, line {line}, {shown}: {message}", path.display())
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
        nfs: flags.nfs.or(file.nfs),
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
        check: flags.check,
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
        // The memory file system belongs to the user who runs the server.
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        return Ok(Arc::new(MemoryStore::owned_by(limits, uid.as_raw(), gid.as_raw())));
    }
    let exports = exports::all(arguments);
    if exports.is_empty() {
        bail!("nothing to serve: name directories (dafs serve DIR) or give --memory SIZE");
    }
    let lists_single_export = exports.iter().any(|export| export.keeps_name);
    let mut exports: Vec<Export> =
        exports.into_iter().map(|export| Export::new(export.name, export.path)).collect();
    exports::check(arguments)?;
    for export in &mut exports {
        export.read_only = arguments.read_only;
        let said = arguments.export.iter().find(|table| export.name == *table.name);
        let said = said.and_then(|table| table.cross_mounts);
        let said = said.or_else(|| exports::listed_cross_mounts(arguments, &export.path));
        export.cross_mounts = said.unwrap_or(arguments.cross_mounts);
    }
    let mut config = LocalConfig::new(".", state_directory(arguments));
    config.exports = exports;
    config.lists_single_export = lists_single_export;
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
        let usual = || socket_users::usual_socket(arguments);
        match arguments.socket.clone().map_or_else(usual, |path| Ok(Some(path)))? {
            Some(socket) => config.listen.push(Address::Shm(socket)),
            None => tracing::warn!("no place for the shared-memory socket; give --socket PATH"),
        }
    }
    if config.listen.is_empty() && !arguments.nfs.is_on() {
        bail!(
            "nothing to listen on: there is no socket, and no address at which a client could log \
            in; give --socket PATH, or --password-file FILE or --keytab FILE, or an address by \
             --tcp or --verbs; or serve NFS clients by --nfs"
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
        config.patience.transfer = Duration::from_secs(seconds.clamp(1, 3600));
    }
    config.direct_reads = arguments.direct_reads.unwrap_or(true);
    config.password_file = arguments.password_file.clone();
    config.metrics = !arguments.no_metrics;
    config.crc = arguments.crc;
    config.access = access::rules(arguments)?;
    config.access.nfs = nfs::rules_at_start(arguments)?;
    config.kerberos = access::kerberos(arguments)?;
    config.tls = tls(arguments)?;
    nfs::check_tls(arguments, &config.access.nfs, config.tls.as_ref())?;
    config.nfs = nfs::config(arguments)?;
    config.sessions.authentication.anonymous = unauthenticated::anonymous(arguments)?;
    config.one_time_user = unauthenticated::one_time_user(arguments)?;
    Ok(config)
}

/// Returns the TLS configuration, or `None` if TLS is not requested.
pub(crate) fn tls(arguments: &Arguments) -> Result<Option<TlsServer>> {
    let (certificate, key) = match (&arguments.tls_cert, &arguments.tls_key) {
        (Some(certificate), Some(key)) => (certificate.clone(), key.clone()),
        (None, None) if arguments.tls_only || arguments.tls_client_ca.is_some() => {
            bail!("TLS needs a certificate and its key: give --tls-cert FILE and --tls-key FILE")
        }
        (None, None) => return Ok(None),
        _ => bail!("--tls-cert and --tls-key must be given together"),
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

/// Parses a number of bytes with an optional K, M, G or T.
pub(crate) fn bytes(text: &str) -> Result<u64> {
    let (digits, factor) = match text.char_indices().last() {
        Some((end, 'k' | 'K')) => (&text[..end], 1 << 10),
        Some((end, 'm' | 'M')) => (&text[..end], 1 << 20),
        Some((end, 'g' | 'G')) => (&text[..end], 1 << 30),
        Some((end, 't' | 'T')) => (&text[..end], 1 << 40),
        _ => (text, 1),
    };
    let number: u64 =
        digits.parse().with_context(|| format!("{text:?} is not a size; write 512M or 2G"))?;
    number.checked_mul(factor).with_context(|| format!("{text:?} is too large"))
}

/// Returns the directory for the key of file handles and the journal.
pub(crate) fn state_directory(arguments: &Arguments) -> PathBuf {
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

/// Returns an example URL for the users that may connect; `None` if the server has no address for
/// clients of DAFS.
fn example(arguments: &Arguments, addresses: &[Address], config: &ServerConfig) -> Option<String> {
    let url = |address: &Address| match address {
        Address::Tcp(socket) if config.tls.is_some() => Some(format!("dafs+tls://{socket}/")),
        Address::Tcp(socket) => Some(format!("dafs://{socket}/")),
        Address::Verbs(socket) => Some(format!("dafs+verbs://{socket}/")),
        // The server may have got a relative path, but a URL contains the whole path.
        Address::Shm(path) => {
            std::path::absolute(path).ok().map(|path| format!("dafs+shm://{}", path.display()))
        }
        Address::Sim { .. } => None,
    };
    let socket = addresses.iter().find_map(|address| match address {
        Address::Shm(path) => Some(path),
        Address::Tcp(_) | Address::Verbs(_) | Address::Sim { .. } => None,
    });
    // Clients without authentication are admitted through the socket only. A client that names the
    // port looks for the socket in the usual places, which differ between users.
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
            return Some(match port {
                DEFAULT_PORT => "dafs://localhost/".to_owned(),
                port => format!("dafs://localhost:{port}/"),
            });
        }
    }
    let is_open = |_: &&Address| {
        config.sessions.authentication.anonymous.is_some() && arguments.allow_user.is_empty()
    };
    let by_socket = socket.map(|path| Address::Shm(path.clone()));
    let best = addresses.iter().find(is_open).or(by_socket.as_ref()).or(addresses.first());
    best.and_then(url)
}

/// Raises the descriptor limit to its maximum, because each session uses descriptors.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If the system refuses, the limit stays as it was.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Handles signals. SIGHUP reloads the configuration. If the server's terminal is gone, SIGHUP
/// stops the server instead, unless the signal was ignored at the start. The first SIGINT or
/// SIGTERM stops the server cleanly, and the second ends the process immediately.
fn obey_signals(stopper: Stopper, reload: Arc<Reload>) -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    // nohup(1) starts programs with SIGHUP ignored.
    let ignores_hangup = is_ignored(SIGHUP);
    let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM])
        .context("listening for signals")?;
    // A reload may wait for a directory service, and must not keep the other signals waiting.
    let (request_reload, reloads) = std::sync::mpsc::sync_channel(1);
    std::thread::Builder::new()
        .name("dafs-reload".into())
        .spawn(move || {
            for () in reloads {
                // The reload logs its error.
                let _ = reload.run();
            }
        })
        .context("starting the thread that reloads the configuration")?;
    let mut has_terminal = opens_terminal();
    std::thread::Builder::new()
        .name("dafs-signals".into())
        .spawn(move || {
            let mut is_stopping = false;
            for signal in signals.forever() {
                let is_hangup = signal == SIGHUP && has_terminal && !opens_terminal();
                has_terminal &= !is_hangup;
                if signal == SIGHUP && !is_hangup {
                    // An error means that a reload waits already. It will read this change, too.
                    let _ = request_reload.try_send(());
                } else if is_hangup && ignores_hangup {
                } else if is_stopping {
                    std::process::exit(1);
                } else {
                    is_stopping = true;
                    stopper.stop();
                }
            }
        })
        .context("starting the signal thread")?;
    Ok(())
}

/// True if this process has a controlling terminal.
fn opens_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// Stops the server when the process that started it ends for any reason.
fn stop_with_stdin(stopper: Stopper) -> Result<()> {
    std::thread::Builder::new()
        .name("dafs-stdin".into())
        .spawn(move || {
            // An error also means that the standard input has ended.
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            stopper.stop();
        })
        .context("starting the thread that watches the standard input")?;
    Ok(())
}

/// The maximum time that a stopping server waits until the last spans are sent.
const TRACES_PATIENCE: Duration = Duration::from_secs(3);
