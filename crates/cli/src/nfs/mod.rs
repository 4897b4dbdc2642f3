//! Options of `dafs serve` for NFS clients, and the exports file.
//!
//! Invariant: an NFS client gets nothing that no entry gives it. Without an exports file, only
//! clients of this machine with a port below 1024 are served.

pub(crate) mod exports;
mod ports;
pub(crate) mod rpcbind;

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use dafs_dat::{Address, TlsServer};
use dafs_server::{
    CompiledExports, ExportsFile, Flavor, ListedClient, ListedExport, NfsConfig, NfsPeers,
    NfsRules, Origin, SystemLookup, TransportSecurity,
};
use dafs_store::local::Squash;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::access;
use crate::exports as checks;
use crate::serve::Arguments;

/// The options for NFS clients. In the configuration file they are the table `[nfs]`.
#[derive(Clone, Debug, Default, Args, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct NfsTable {
    /// Also serve NFS clients (versions 3, 4.1 and 4.2) over TCP at this address. Default: port
    /// 2049, of 127.0.0.1, or of all addresses with --exports. An NFS client states itself which
    /// user it acts for, so only clients of this machine are served unless --exports names others.
    #[arg(
        id = "nfs", long = "nfs", value_name = "ADDRESS", num_args = 0..=1,
        default_missing_value = USUAL
    )]
    pub listen: Option<String>,
    /// Also serve NFS clients over RDMA at this address: by iWARP over TCP, or by an RDMA device
    /// that has the address if it begins with `verbs:`. May be repeated. Default: port 20049 of the
    /// addresses of --nfs. Needs --nfs, by which clients of version 3 also mount.
    #[arg(
        id = "nfs-rdma", long = "nfs-rdma", value_name = "ADDRESS", num_args = 0..=1,
        default_missing_value = USUAL, value_delimiter = ','
    )]
    pub rdma: Vec<String>,
    /// A file in the format of exports(5): the directories to serve, and which NFS clients see
    /// them. Clients that it does not name get nothing.
    #[arg(long = "exports", value_name = "FILE")]
    pub exports: Option<PathBuf>,
    /// Serve NFS clients at these addresses or networks, without an exports file. May be repeated.
    #[arg(id = "nfs-from", long = "nfs-from", value_name = "NETWORK", value_delimiter = ',')]
    pub from: Vec<String>,
    /// Without an exports file, also serve NFS clients whose port is 1024 or higher. Any user of a
    /// client machine can open such a port and then act as any other user.
    #[arg(id = "nfs-any-port", long = "nfs-any-port")]
    pub any_port: bool,
    /// Without an exports file, how connections of NFS clients are protected: none, tls, mtls, or
    /// several with colons. The weakest is enough. TLS needs --tls-cert, and mtls --tls-client-ca.
    #[arg(id = "nfs-xprtsec", long = "nfs-xprtsec", value_name = "KINDS")]
    pub xprtsec: Option<String>,
    /// Without an exports file, how NFS clients authenticate: sys, krb5, krb5i, krb5p, or several
    /// with colons, the preferred one first. Default: sys. Kerberos needs --keytab.
    #[arg(id = "nfs-sec", long = "nfs-sec", value_name = "FLAVORS")]
    pub sec: Option<String>,
    /// The contents of the exports file.
    #[arg(skip)]
    #[serde(skip)]
    pub listed: Option<Listed>,
}

/// The contents of an exports file that was read.
#[derive(Clone, Debug)]
pub(crate) struct Listed(ExportsFile);

impl NfsTable {
    /// Applies flags to the options of a configuration file.
    pub(crate) fn or(self, file: Self) -> Self {
        Self {
            listen: self.listen.or(file.listen),
            rdma: if self.rdma.is_empty() { file.rdma } else { self.rdma },
            exports: self.exports.or(file.exports),
            from: if self.from.is_empty() { file.from } else { self.from },
            any_port: self.any_port || file.any_port,
            xprtsec: self.xprtsec.or(file.xprtsec),
            sec: self.sec.or(file.sec),
            listed: None,
        }
    }

    /// Checks the options, and reads the exports file, if there is one.
    pub(crate) fn read(&mut self) -> Result<()> {
        if !self.rdma.is_empty() && asked_for(self)? != TransportSecurity::None {
            bail!(
                "--nfs-rdma and --nfs-xprtsec exclude each other, because NFS over RDMA has no \
                TLS; to protect data over RDMA, use --nfs-sec krb5p"
            );
        }
        let Some(path) = &self.exports else { return Ok(()) };
        let is_protected = self.xprtsec.is_some() || self.sec.is_some();
        if !self.from.is_empty() || self.any_port || is_protected {
            bail!(
                "--exports and --nfs-from, --nfs-any-port, --nfs-xprtsec or --nfs-sec exclude each \
                other: write the clients and the options insecure, xprtsec= and sec= into {}",
                path.display()
            );
        }
        let text = std::fs::read(path)
            .with_context(|| format!("reading the exports file {}", path.display()))?;
        if text.len() > FILE_BYTES_MAX {
            bail!("the exports file {} is too long", path.display());
        }
        self.listed = Some(Listed(ExportsFile::parse(&text, &path.display().to_string())?));
        Ok(())
    }

    /// Returns the exports of the file.
    pub(crate) fn listed(&self) -> &[ListedExport] {
        self.listed.as_ref().map_or(&[], |listed| &listed.0.exports)
    }

    /// Returns true if NFS clients are served.
    pub(crate) fn is_on(&self) -> bool {
        self.listen.is_some()
    }
}

/// Returns the settings for NFS clients, or `None` if they are not served.
pub(crate) fn config(arguments: &Arguments) -> Result<Option<NfsConfig>> {
    let table = &arguments.nfs;
    let Some(text) = &table.listen else {
        let given = [
            ("--exports", table.exports.is_some()),
            ("--nfs-rdma", !table.rdma.is_empty()),
            ("--nfs-from", !table.from.is_empty()),
            ("--nfs-any-port", table.any_port),
            ("--nfs-xprtsec", table.xprtsec.is_some()),
            ("--nfs-sec", table.sec.is_some()),
        ];
        if let Some((option, _)) = given.iter().find(|(_, is_given)| *is_given) {
            bail!("{option} needs --nfs, or listen in [nfs]");
        }
        return Ok(None);
    };
    let address = address(text, table.exports.is_some())?;
    let rdma = table.rdma.iter().map(|text| rdma_address(text, address.ip()));
    let rdma = rdma.collect::<Result<Vec<_>>>()?;
    let has_sys = table.sec.is_none() || flavors(table)?.contains(&Flavor::Sys);
    if !rdma.is_empty() && table.exports.is_none() && !table.any_port && has_sys {
        bail!(
            "--nfs-rdma needs --nfs-any-port, or an exports file with the option insecure: clients \
            over RDMA do not connect from ports below 1024, so they would get nothing"
        );
    }
    Ok(Some(NfsConfig { rdma, ..NfsConfig::at(vec![address]) }))
}

/// Returns the address of a listener for RDMA. `usual` is the address that stands for none.
fn rdma_address(text: &str, usual: IpAddr) -> Result<Address> {
    if text == USUAL {
        return Ok(Address::Tcp(SocketAddr::new(usual, RDMA_PORT)));
    }
    let parsed = match text.strip_prefix("verbs:") {
        Some(device) => device.parse().map(Address::Verbs),
        None => text.strip_prefix("tcp:").unwrap_or(text).parse().map(Address::Tcp),
    };
    parsed.map_err(|_| {
        anyhow!(
            "--nfs-rdma {text:?} is no address; write 127.0.0.1:20049, or verbs:10.0.0.1:20049 \
            for the RDMA device that has the address 10.0.0.1"
        )
    })
}

/// Returns the address to listen on.
fn address(text: &str, has_exports: bool) -> Result<SocketAddr> {
    if text != USUAL {
        return text.parse().map_err(|_| {
            anyhow!("--nfs {text:?} is no address; write 127.0.0.1:2049, 0.0.0.0:2049 or [::]:2049")
        });
    }
    let has_version_6 = || TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
    let address: IpAddr = match has_exports {
        false => Ipv4Addr::LOCALHOST.into(),
        true if has_version_6() => Ipv6Addr::UNSPECIFIED.into(),
        true => Ipv4Addr::UNSPECIFIED.into(),
    };
    Ok(SocketAddr::new(address, PORT))
}

/// Returns the rules for NFS clients. Looks up the hosts and netgroups of the exports file.
pub(crate) fn compiled(arguments: &Arguments) -> Result<CompiledExports> {
    let Some(Listed(file)) = &arguments.nfs.listed else {
        let origins = arguments.nfs.from.iter().map(|text| text.parse::<Origin>());
        let origins = origins.collect::<Result<Vec<_>, _>>().context("--nfs-from")?;
        let rules = NfsRules::for_all(origins, arguments.nfs.any_port);
        let rules = rules.over(asked_for(&arguments.nfs)?).accepting(&flavors(&arguments.nfs)?);
        return Ok(CompiledExports { rules, unknown: Vec::new() });
    };
    let all = checks::all(arguments);
    // If a directory is exported twice, the first name counts.
    let named = all.into_iter().rev().map(|export| (checks::full(&export.path), export.name));
    let names: HashMap<PathBuf, OsString> = named.collect();
    let export_of = |path: &Path| names.get(&checks::full(path))?.to_str().map(str::to_owned);
    Ok(file.compile(&SystemLookup, export_of)?)
}

/// Returns the least protection of connections without an exports file.
fn asked_for(table: &NfsTable) -> Result<TransportSecurity> {
    let text = table.xprtsec.as_deref().unwrap_or("none");
    TransportSecurity::parse(text).map_err(|what| anyhow!("--nfs-xprtsec {text}: {what}"))
}

/// Returns the flavors of calls without an exports file. Empty if the option is not given.
fn flavors(table: &NfsTable) -> Result<Vec<Flavor>> {
    let Some(text) = &table.sec else { return Ok(Vec::new()) };
    Flavor::parse_list(text).map_err(|what| anyhow!("--nfs-sec {text}: {what}"))
}

/// Checks that the server has the certificates that NFS clients need.
pub(crate) fn check_tls(
    arguments: &Arguments,
    rules: &NfsRules,
    tls: Option<&TlsServer>,
) -> Result<()> {
    match arguments.nfs.is_on() {
        true => rules.check_tls(tls).map_err(|what| anyhow!(what)),
        false => Ok(()),
    }
}

/// Returns the rules for NFS clients at the start of a server. Hosts and netgroups that cannot be
/// looked up are logged, and get nothing until a reload.
pub(crate) fn rules_at_start(arguments: &Arguments) -> Result<NfsRules> {
    let CompiledExports { rules, unknown } = compiled(arguments)?;
    for what in unknown {
        tracing::warn!("{what}; it gets nothing until `dafs exports --reload` finds it");
    }
    log_ignored(arguments);
    Ok(rules)
}

/// Returns the rules for NFS clients at a reload.
///
/// # Errors
/// If a host or netgroup cannot be looked up, so that a failure of the name service does not take
/// access from clients.
pub(crate) fn rules_at_reload(arguments: &Arguments) -> Result<NfsRules> {
    let CompiledExports { rules, unknown } = compiled(arguments)?;
    match unknown.into_iter().next() {
        Some(what) => Err(what.into()),
        None => Ok(rules),
    }
}

/// Logs the options that have no effect on this server.
fn log_ignored(arguments: &Arguments) {
    let clients = arguments.nfs.listed().iter().flat_map(|export| &export.clients);
    let mut ignored: Vec<&str> =
        clients.flat_map(|client| &client.options.ignored).map(String::as_str).collect();
    ignored.sort_unstable();
    ignored.dedup();
    if !ignored.is_empty() {
        tracing::info!(options = ignored.join(","), "the exports file has options without effect");
    }
}

/// Returns warnings about the access that these rules give to NFS clients.
pub(crate) fn risks(arguments: &Arguments, rules: &NfsRules) -> Vec<String> {
    if !arguments.nfs.is_on() {
        return Vec::new();
    }
    let mut risks = ports::risk(rules, ports::open_to_all()).into_iter().collect::<Vec<_>>();
    let mut places = BTreeSet::new();
    let (advice, default) = match &arguments.nfs.exports {
        Some(_) => ("remove insecure", Squash::Root),
        None => ("leave out --nfs-any-port", squash_of_all(arguments)),
    };
    for entry in rules.entries() {
        // Kerberos proves who calls.
        let Some((terms, any_port)) = entry.sys_terms() else { continue };
        let place = format!("{} ({})", entry.clients, entry.source);
        let (whom, is_one) = match terms.squash.unwrap_or(default) {
            Squash::Nobody => ("any user, root included", false),
            Squash::Root => ("any user except root", false),
            Squash::All => ("the user of squashed clients", true),
        };
        // If all clients act as the same user, their ports do not matter.
        if any_port && !is_one && places.insert(place.clone()) {
            risks.push(format!(
                "nfs: any user of the machines {place} can act as {whom}, because ports of 1024 \
                and higher are served; {advice}"
            ));
        }
        if entry.who == NfsPeers::Anyone && terms.read_only != Some(true) {
            risks.push(format!(
                "nfs: root of every machine that can connect can act as {whom}, and change files \
                ({place}); name the clients, or write ro"
            ));
        }
    }
    risks.extend(rdma_risk(arguments, rules));
    risks
}

/// Returns whose identities exports replace without an exports file. The option was checked before.
fn squash_of_all(arguments: &Arguments) -> Squash {
    let asked = arguments.squash.as_deref().map(|text| access::squash(text, "--squash"));
    asked.and_then(Result::ok).unwrap_or(Squash::Root)
}

/// Returns a warning if clients over RDMA get nothing, because they do not connect from ports below
/// 1024.
fn rdma_risk(arguments: &Arguments, rules: &NfsRules) -> Option<String> {
    let has_use = rules.entries().any(|entry| {
        entry.sys_terms().is_some_and(|(_, any_port)| any_port)
            || entry.flavors.iter().any(|terms| terms.flavor != Flavor::Sys)
    });
    (!arguments.nfs.rdma.is_empty() && !has_use).then(|| {
        "nfs: clients over RDMA get nothing, because they do not connect from ports below 1024; \
        write insecure for those in the exports file"
            .to_owned()
    })
}

/// Warns that a command serves NFS clients at any port while it runs.
pub(crate) fn warn_of_any_port() {
    tracing::warn!(
        "until this command ends, any user of this machine can read and change the files that it \
        serves over NFS, because ports of 1024 and higher are served"
    );
}

/// Returns the commands with which clients mount the export at a path. `has_rpcbind` is true if
/// clients find the ports by rpcbind.
pub(crate) fn mount_commands(
    arguments: &Arguments,
    (address, path): (SocketAddr, &OsStr),
    has_rpcbind: bool,
) -> String {
    let (host, path) = (host_of(address.ip()), path.display());
    let port = address.port();
    let security = mount_security(&arguments.nfs);
    let usual = if port == PORT { String::new() } else { format!(",port={port}") };
    let version_3 = match has_rpcbind {
        true => String::new(),
        // Without rpcbind, clients do not find the port of NLM.
        false => format!(",nolock,port={port},mountport={port}"),
    };
    format!(
        "nfs:   mount -t nfs -o vers=4.2{security}{usual} {host}:{path} DIR\n\
         nfs 3: mount -t nfs -o vers=3,proto=tcp{version_3}{security} {host}:{path} DIR\n"
    )
}

/// Returns the options of a mount for the protection of connections and calls, each with a comma
/// before it. With an exports file, they are those of the first export.
fn mount_security(table: &NfsTable) -> String {
    let transport = match mount_transport(table) {
        TransportSecurity::None => String::new(),
        least @ (TransportSecurity::Tls | TransportSecurity::Mtls) => format!(",xprtsec={least}"),
    };
    let preferred = match first_clients(table).next() {
        Some(client) => client.options.preferred(),
        None => flavors(table).unwrap_or_default().first().copied(),
    };
    let flavor = preferred.filter(|flavor| *flavor != Flavor::Sys);
    let flavor = flavor.map(|flavor| format!(",sec={flavor}")).unwrap_or_default();
    transport + &flavor
}

/// Returns the least protection with which clients can mount.
fn mount_transport(table: &NfsTable) -> TransportSecurity {
    let least = first_clients(table).map(|client| client.options.transport).min();
    least.unwrap_or_else(|| asked_for(table).unwrap_or_default())
}

/// Returns the clients of the first export of an exports file.
fn first_clients(table: &NfsTable) -> impl Iterator<Item = &ListedClient> {
    table.listed().iter().take(1).flat_map(|export| &export.clients)
}

/// Returns the command with which clients mount the export at a path over RDMA.
pub(crate) fn rdma_mount_command(
    arguments: &Arguments,
    (address, path): (&Address, &OsStr),
) -> String {
    let (Address::Tcp(address) | Address::Verbs(address)) = address else { return String::new() };
    let (host, path) = (host_of(address.ip()), path.display());
    if mount_transport(&arguments.nfs) != TransportSecurity::None {
        // There is no TLS over RDMA.
        return String::new();
    }
    let security = mount_security(&arguments.nfs);
    let port = address.port();
    format!(
        "nfs over RDMA: mount -t nfs -o vers=4.2,proto=rdma,port={port}{security} \
         {host}:{path} DIR\n"
    )
}

/// Returns the name or address of this host for mount commands.
fn host_of(address: IpAddr) -> String {
    match address {
        ip if ip.is_unspecified() => {
            rustix::system::uname().nodename().to_string_lossy().into_owned()
        }
        IpAddr::V6(ip) => format!("[{ip}]"),
        IpAddr::V4(ip) => ip.to_string(),
    }
}

/// The usual port of NFS.
pub(crate) const PORT: u16 = 2049;
/// The usual port of NFS over RDMA.
const RDMA_PORT: u16 = 20049;
/// The value that stands for the usual address.
const USUAL: &str = "usual";
/// The maximum length of an exports file in bytes.
const FILE_BYTES_MAX: usize = 16 << 20;
