//! The rules about which NFS clients see which exports.
//!
//! Invariant: a client that no entry of an export names does not see the export. Of the entries
//! that name a client, the first one decides; the entries are sorted by the rank that exports(5)
//! gives to kinds of clients.

use std::ffi::OsString;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use dafs_dat::TlsServer;
use dafs_store::local::Squash;

use super::clients::is_like;
use super::flavors::{Flavor, FlavorTerms};
use crate::access::authorize::{Origin, PartialTerms};

/// The exports that NFS clients see. The default shows all exports to clients of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfsRules {
    /// The exports with clients of their own.
    pub exports: Vec<NfsExport>,
    /// The clients of all other exports.
    pub others: Vec<NfsClients>,
}

/// An export and its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfsExport {
    /// The name of the export.
    pub name: String,
    /// The clients that see the export. The first entry that names a client decides.
    pub clients: Vec<NfsClients>,
}

/// Clients, and the terms on which they use an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfsClients {
    /// The clients to which the entry applies.
    pub who: NfsPeers,
    /// The terms that the entry sets.
    pub terms: PartialTerms,
    /// True if clients are served whatever their port is. False if only clients with a port below
    /// 1024 are served, because any user of a machine can open the other ports.
    pub any_port: bool,
    /// The least protection of the connections of these clients.
    pub transport: TransportSecurity,
    /// The terms by flavor, the preferred flavor first. If the list is empty, only AUTH_SYS is
    /// accepted, on `terms`.
    pub flavors: Vec<FlavorTerms>,
    /// The clients as written in the entry.
    pub clients: String,
    /// The place of the entry: a file and a line, or a flag.
    pub source: String,
}

/// The protection of a connection by TLS, from the weakest to the strongest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransportSecurity {
    /// The connection is plain.
    #[default]
    None,
    /// TLS protects the connection. The client has shown no certificate.
    Tls,
    /// TLS protects the connection. The client has shown a certificate of an authority that the
    /// server knows.
    Mtls,
}

/// The NFS clients that an entry names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NfsPeers {
    /// The clients at these addresses. An entry that names a host has the host's addresses.
    Addresses(Vec<Origin>),
    /// The clients whose host names match a pattern.
    Named(String),
    /// Every client.
    Anyone,
}

/// The facts about an NFS client on which the rules decide.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NfsPeer {
    /// The address of the client's machine.
    pub address: IpAddr,
    /// True if the client's port is below 1024.
    pub is_privileged: bool,
    /// The protection of the client's connection.
    pub security: TransportSecurity,
    /// The confirmed name of the client's machine. `None` if it is unknown or no rule needs it.
    pub host: Option<Arc<str>>,
    /// The flavor of the call. `None` for a connection, whose calls may have any flavor.
    pub flavor: Option<Flavor>,
    /// The Kerberos principal that has authenticated the call. `None` without Kerberos.
    pub principal: Option<Arc<str>>,
}

impl Default for NfsRules {
    fn default() -> Self {
        Self { exports: Vec::new(), others: vec![NfsClients::of_this_machine()] }
    }
}

impl NfsRules {
    /// Returns rules that show all exports to these clients.
    #[must_use]
    pub fn for_all(origins: Vec<Origin>, any_port: bool) -> Self {
        let own = NfsClients::of_this_machine();
        let shown: Vec<String> = origins.iter().map(ToString::to_string).collect();
        let clients = match origins.is_empty() {
            true => NfsClients { any_port, ..own },
            false => NfsClients {
                who: NfsPeers::Addresses(origins),
                any_port,
                clients: shown.join(","),
                source: "--nfs-from".to_owned(),
                ..own
            },
        };
        Self { exports: Vec::new(), others: vec![clients] }
    }

    /// Returns the entries of all exports.
    pub fn entries(&self) -> impl Iterator<Item = &NfsClients> {
        self.exports.iter().flat_map(|export| &export.clients).chain(&self.others)
    }

    /// Sets the least protection of connections in all entries.
    #[must_use]
    pub fn over(mut self, transport: TransportSecurity) -> Self {
        let listed = self.exports.iter_mut().flat_map(|export| &mut export.clients);
        listed.chain(&mut self.others).for_each(|entry| entry.transport = transport);
        self
    }

    /// Sets the flavors that all entries accept, the preferred one first. Without flavors, the
    /// entries accept AUTH_SYS alone.
    #[must_use]
    pub fn accepting(mut self, flavors: &[Flavor]) -> Self {
        let listed = self.exports.iter_mut().flat_map(|export| &mut export.clients);
        listed.chain(&mut self.others).for_each(|entry| entry.accept(flavors));
        self
    }

    /// Checks that the server has the certificates that the entries need.
    ///
    /// # Errors
    /// The first entry that no client could use, and what to do.
    pub fn check_tls(&self, tls: Option<&TlsServer>) -> Result<(), String> {
        let strongest = match tls {
            None => TransportSecurity::None,
            Some(tls) if !tls.asks_clients() => TransportSecurity::Tls,
            Some(_) => TransportSecurity::Mtls,
        };
        let entry = self.entries().find(|entry| entry.transport > strongest);
        let Some(entry) = entry else { return Ok(()) };
        let advice = match strongest {
            TransportSecurity::None => {
                "the server has no certificate; give --tls-cert and --tls-key"
            }
            _ => "the server knows no authority for client certificates; give --tls-client-ca",
        };
        let needed = entry.transport;
        Err(format!("{}: xprtsec={needed}: {advice}", entry.place()))
    }

    /// Checks that the server has the keys that the entries need. `has_keys` is true if it has keys
    /// for NFS clients.
    ///
    /// # Errors
    /// The first entry that no client could use, and what to do.
    pub fn check_kerberos(&self, has_keys: bool) -> Result<(), String> {
        match self.entries().find(|entry| !has_keys && entry.needs_kerberos()) {
            Some(entry) => Err(format!(
                "{} asks for Kerberos (sec=), but the server has no key for NFS clients; make one \
                by `kadmin ktadd -k KEYTAB nfs/HOST` and name the keytab by --keytab",
                entry.place()
            )),
            None => Ok(()),
        }
    }

    /// Returns true if an entry decides by the names of clients.
    pub(crate) fn needs_names(&self) -> bool {
        self.entries().any(|entry| matches!(entry.who, NfsPeers::Named(_)))
    }

    /// Returns true if the client of a plain connection would see an export whose path begins with
    /// this component if TLS protected the connection.
    pub(crate) fn hides(&self, exports: &[OsString], component: &[u8], peer: &NfsPeer) -> bool {
        let begins = |name: &&OsString| {
            name.as_bytes().split(|byte| *byte == b'/').next() == Some(component)
        };
        let mut entries = exports.iter().filter(begins).filter_map(|name| {
            // The name of an export that an entry can name is text.
            self.entry(name.to_str()?, peer)
        });
        entries.any(|entry| entry.takes_port_of(peer) && !entry.takes_transport_of(peer))
    }

    /// Returns the place of a flavor in the order of preference of the entries.
    pub(crate) fn preference(&self, flavor: Flavor) -> usize {
        let mut places = self.entries().flat_map(|entry| &entry.flavors);
        places.position(|own| own.flavor == flavor).unwrap_or(usize::MAX)
    }

    /// Returns the entry that decides about a client's access to an export. `None` if the client
    /// does not see the export. The port of the client is not checked.
    pub(crate) fn entry(&self, export: &str, peer: &NfsPeer) -> Option<&NfsClients> {
        let own = self.exports.iter().find(|own| own.name == export);
        let clients = own.map_or(&self.others, |own| &own.clients);
        clients.iter().find(|entry| entry.who.has(peer))
    }
}

impl NfsClients {
    fn of_this_machine() -> Self {
        let network = |address: IpAddr, bits| Origin::Network { address, bits };
        Self {
            who: NfsPeers::Addresses(vec![
                network(Ipv4Addr::LOCALHOST.into(), 8),
                network(Ipv6Addr::LOCALHOST.into(), 128),
            ]),
            terms: PartialTerms::default(),
            any_port: false,
            transport: TransportSecurity::None,
            flavors: Vec::new(),
            clients: "localhost".to_owned(),
            source: "default".to_owned(),
        }
    }

    /// Returns the place of the entry and the clients that it names.
    pub(crate) fn place(&self) -> String {
        format!("{}: {}", self.source, self.clients)
    }

    /// Returns true if the entry lets a client in that has such a port, with such a flavor.
    pub(crate) fn takes_port_of(&self, peer: &NfsPeer) -> bool {
        let terms = self.terms_of(peer.flavor);
        terms.is_some_and(|(_, any_port)| any_port || peer.is_privileged)
    }

    /// Returns true if the entry lets a client in whose connection has such a protection.
    pub(crate) fn takes_transport_of(&self, peer: &NfsPeer) -> bool {
        peer.security >= self.transport
    }
}

impl NfsPeers {
    fn has(&self, peer: &NfsPeer) -> bool {
        match self {
            Self::Addresses(origins) => origins.iter().any(|of| of.has_address(peer.address)),
            Self::Named(pattern) => peer.host.as_ref().is_some_and(|host| is_like(pattern, host)),
            Self::Anyone => true,
        }
    }
}

impl NfsPeer {
    /// Collects the facts about a client at this address.
    pub(crate) fn of(peer: SocketAddr, host: Option<Arc<str>>) -> Self {
        let is_privileged = peer.port() < PRIVILEGED_PORTS;
        let address = peer.ip().to_canonical();
        let security = TransportSecurity::None;
        Self { address, is_privileged, security, host, flavor: None, principal: None }
    }

    /// Returns the same client with a port and a connection that every entry accepts.
    pub(crate) fn at_best(&self) -> Self {
        Self { is_privileged: true, security: TransportSecurity::Mtls, ..self.clone() }
    }
}

impl TransportSecurity {
    /// Parses the value of the option `xprtsec` of exports(5), and returns the weakest protection
    /// in it.
    ///
    /// # Errors
    /// What is wrong with the value.
    pub fn parse(text: &str) -> Result<Self, String> {
        let kinds = text.split(':').map(|kind| {
            let known = [Self::None, Self::Tls, Self::Mtls];
            let found = known.into_iter().find(|known| known.to_string() == kind);
            found.ok_or_else(|| format!("{kind:?} is none of none, tls and mtls"))
        });
        let kinds = kinds.collect::<Result<Vec<_>, _>>()?;
        // There is at least one, because a text without colons is one part.
        Ok(kinds.into_iter().min().unwrap_or(Self::Mtls))
    }

    /// Returns the option of exports(5), with a comma before it. Empty if plain connections are
    /// accepted.
    pub(super) fn option(self) -> String {
        match self {
            Self::None => String::new(),
            Self::Tls | Self::Mtls => format!(",xprtsec={self}"),
        }
    }
}

impl fmt::Display for TransportSecurity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::None => "none",
            Self::Tls => "tls",
            Self::Mtls => "mtls",
        })
    }
}

impl fmt::Display for NfsClients {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}(", self.clients)?;
        for (place, own) in self.flavors.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(out, "{comma}sec={},", own.flavor)?;
            write_terms(out, &own.terms, own.any_port)?;
        }
        if self.flavors.is_empty() {
            write_terms(out, &self.terms, self.any_port)?;
        }
        let anonymous =
            self.flavors.first().map_or(&self.terms, |own| &own.terms).anonymous.as_ref();
        write!(out, "{}", self.transport.option())?;
        if let Some(who) = anonymous {
            write!(out, ",anonuid={},anongid={}", who.uid(), who.gid())?;
        }
        write!(out, ") [{}]", self.source)
    }
}

fn write_terms(out: &mut fmt::Formatter<'_>, terms: &PartialTerms, any_port: bool) -> fmt::Result {
    let access = if terms.read_only == Some(true) { "ro" } else { "rw" };
    let port = if any_port { "insecure" } else { "secure" };
    // Without an exports file, the terms of the export decide about identities.
    match terms.squash {
        Some(squash) => write!(out, "{access},{},{port}", option_of(squash)),
        None => write!(out, "{access},{port}"),
    }
}

/// Returns the option of exports(5) for identities that are replaced.
pub(super) fn option_of(squash: Squash) -> &'static str {
    match squash {
        Squash::Nobody => "no_root_squash",
        Squash::Root => "root_squash",
        Squash::All => "all_squash",
    }
}

/// The lowest port that any user of a machine can open. Only the superuser can open lower ports.
pub const PRIVILEGED_PORTS: u16 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str, host: Option<&str>) -> NfsPeer {
        NfsPeer::of(text.parse().unwrap(), host.map(Arc::from))
    }

    fn lets_in(rules: &NfsRules, peer: &NfsPeer) -> bool {
        rules.entry("pub", peer).is_some_and(|entry| entry.takes_port_of(peer))
    }

    #[test]
    fn flavors_of_all_entries_keep_their_order_and_terms() {
        let flavors = Flavor::parse_list("krb5p:sys:krb5p").unwrap();
        assert_eq!(flavors, [Flavor::Krb5p, Flavor::Sys]);
        let rules = NfsRules::default().accepting(&flavors);
        let shown = rules.others[0].to_string();
        assert!(shown.contains("(sec=krb5p,rw,secure,sec=sys,rw,secure)"), "{shown}");
        assert!(rules.check_kerberos(false).is_err() && rules.preference(Flavor::Sys) == 1);
        for wrong in ["", "none", "sys,krb5", "krb5:"] {
            assert!(Flavor::parse_list(wrong).is_err(), "{wrong}");
        }
        assert!(rules.accepting(&[]).check_kerberos(false).is_ok());
    }

    #[test]
    fn only_this_machine_and_its_superuser_are_served_by_default() {
        let rules = NfsRules::default();
        for (text, expected) in [
            ("127.0.0.1:1023", true),
            ("127.8.0.1:1023", true),
            ("[::1]:700", true),
            ("[::ffff:127.0.0.1]:700", true),
            ("127.0.0.1:1024", false),
            ("10.0.0.1:1023", false),
        ] {
            assert_eq!(lets_in(&rules, &peer(text, None)), expected, "{text}");
        }
        let rules = NfsRules::for_all(vec!["10.1.0.0/16".parse().unwrap()], true);
        assert!(lets_in(&rules, &peer("10.1.2.3:40000", None)));
        assert!(!lets_in(&rules, &peer("10.2.2.3:40000", None)));
        assert!(!lets_in(&rules, &peer("127.0.0.1:1", None)));
    }

    #[test]
    fn an_entry_says_how_connections_are_protected_at_least() {
        use TransportSecurity::{Mtls, None, Tls};
        for (text, least) in
            [("none", None), ("tls", Tls), ("mtls", Mtls), ("mtls:tls", Tls), ("none:mtls", None)]
        {
            assert_eq!(TransportSecurity::parse(text), Ok(least), "{text}");
        }
        for text in ["", "tls:", "ssl", "TLS", "tls,mtls"] {
            assert!(TransportSecurity::parse(text).is_err(), "{text}");
        }
        for least in [None, Tls, Mtls] {
            let rules = NfsRules::default().over(least);
            for security in [None, Tls, Mtls] {
                let peer = NfsPeer { security, ..peer("127.0.0.1:1", Option::None) };
                let entry = rules.entry("pub", &peer).unwrap();
                assert_eq!(entry.takes_transport_of(&peer), security >= least);
            }
            let refusal = rules.check_tls(Option::None).err();
            assert_eq!(refusal.is_some(), least > None);
            assert!(refusal.is_none_or(|text| text.contains("give --tls-cert")));
            let shown = rules.others[0].to_string();
            assert_eq!(shown.contains(&format!(",xprtsec={least}")), least > None, "{shown}");
        }
    }

    #[test]
    fn a_client_without_a_confirmed_name_matches_no_pattern() {
        let entry = NfsClients {
            who: NfsPeers::Named("*.example.org".to_owned()),
            ..NfsClients::of_this_machine()
        };
        let export = NfsExport { name: "pub".to_owned(), clients: vec![entry] };
        let rules = NfsRules { exports: vec![export], others: Vec::new() };
        assert!(rules.needs_names() && !NfsRules::default().needs_names());
        assert!(lets_in(&rules, &peer("192.0.2.1:1", Some("a.example.org"))));
        assert!(!lets_in(&rules, &peer("192.0.2.1:1", None)));
        assert!(!lets_in(&rules, &peer("192.0.2.1:2049", Some("a.example.org"))));
        assert!(rules.entry("home", &peer("127.0.0.1:1", None)).is_none());
    }
}
