//! Rules about who may connect, who is trusted, and who sees which exports on which terms.
//!
//! Invariant: rules apply in the order in which they were written. The first rule that matches a
//! peer decides. If there are rules and none matches, access is refused.
//!
//! All decisions are made once for a session, when its client authenticates, so that requests do
//! not pay for them. Without rules every peer may connect, none is trusted, and every export is
//! visible; only user 0 of another host is mapped to the anonymous user ([`Squash::Root`]).

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use dafs_dat::{Address, CertificateIdentity, Peer};
use dafs_filer::{Holder, Principal};
use dafs_store::ExportTerms;
use dafs_store::local::Squash;
use dafs_types::{AuthType, Credentials};

use crate::access::exports::rules::{NfsPeer, NfsRules, TransportSecurity};

/// All access rules of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRules {
    /// Rules about who may connect, tried in the order of this list. If the list is empty, every
    /// peer may connect.
    pub connect: Vec<ConnectRule>,
    /// The clients that may act for other users (draft 3.1.1.1.2).
    pub trusted: Vec<Peers>,
    /// The rules of exports that are not visible to every client or that have terms of their own.
    /// An export without rules is visible to every client.
    pub exports: Vec<ExportRules>,
    /// The identities to replace in exports that set no `squash` of their own. `None` replaces only
    /// user 0 of clients on other hosts.
    pub squash: Option<Squash>,
    /// The identity that replaces squashed identities (see `squash`) in exports that set no
    /// `anonymous` of their own.
    pub anonymous: Credentials,
    /// The exports that NFS clients see. The other rules apply to NFS clients, too: such a client
    /// has transport [`TransportKind::Nfs`] and has not authenticated.
    pub nfs: NfsRules,
}

/// One rule about who may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectRule {
    /// True if matching peers may connect, false if they are refused.
    pub allow: bool,
    /// The peers that the rule matches.
    pub peers: Peers,
}

/// The rules for one export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportRules {
    /// The name of the export.
    pub name: String,
    /// The access terms for clients of the export. A matching entry of `clients` overrides them.
    pub terms: PartialTerms,
    /// The clients that see the export, each with the terms for it. If the list is empty, every
    /// client sees the export.
    pub clients: Vec<(Peers, PartialTerms)>,
}

/// Terms of access to an export. A term that is `None` is not set here and comes from a more
/// general rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartialTerms {
    /// True if the server refuses changes to the export. `None` if this term is not set here.
    pub read_only: Option<bool>,
    /// The identities that are replaced by the anonymous identity. `None` if this term is not set
    /// here.
    pub squash: Option<Squash>,
    /// The identity that replaces the identities which `squash` selects. `None` if this term is not
    /// set here.
    pub anonymous: Option<Credentials>,
}

/// The peers that a rule matches. A peer matches if, in each list that is not empty, at least one
/// element matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    /// The locations (this host, or ranges of addresses) that match.
    pub from: Vec<Origin>,
    /// The transports that match the transport of the peer's connection.
    pub transports: Vec<TransportKind>,
    /// The types of authentication that match, such as Kerberos.
    pub authentication: Vec<AuthType>,
    /// The patterns for principals that match.
    pub principals: Vec<PrincipalPattern>,
}

/// The location of a client: this host or a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A process of this host that connects over shared memory, so that the kernel reports its
    /// identity.
    Local,
    /// A range of network addresses.
    Network {
        /// The first address of the range.
        address: IpAddr,
        /// The number of leading bits of the address that must match.
        bits: u8,
    },
}

/// A transport, as named in rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportKind {
    /// Shared memory, for clients on this host.
    SharedMemory,
    /// TCP, with or without TLS.
    Tcp,
    /// TCP with TLS only.
    Tls,
    /// An RDMA device.
    Verbs,
    /// NFS over TCP.
    Nfs,
}

impl TransportKind {
    /// All transports, each at the array index that equals its discriminant.
    pub const ALL: [Self; 5] = [Self::SharedMemory, Self::Tcp, Self::Tls, Self::Verbs, Self::Nfs];
}

/// A pattern for the names of principals, in which `*` matches any sequence of characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrincipalPattern {
    /// The user of this host with this user id.
    Uid(u32),
    /// A client that did not prove any identity.
    Anonymous,
    /// A user of the password file whose name matches the pattern.
    User(String),
    /// A Kerberos principal. The pattern's name and realm are matched separately.
    Kerberos(String),
    /// A client whose TLS certificate contains a name that matches the pattern.
    Certificate(String),
}

/// The facts about a peer that are known before its first message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerFacts {
    /// The network address of the peer. `None` for shared memory and the simulator.
    pub address: Option<IpAddr>,
    /// True if the peer is on this host and the kernel reports its identity.
    pub is_local: bool,
    /// The peer's user id on this host, as reported by the kernel. `None` if the peer is on another
    /// host.
    pub uid: Option<u32>,
    /// The transport that the peer uses.
    pub transport: TransportKind,
    /// The identity in the peer's TLS certificate. `None` if the peer presented no certificate.
    pub certificate: Option<Arc<CertificateIdentity>>,
}

/// The decision of the access rules about an authenticated client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub trusted: bool,
    /// The terms of each export, ordered by the name of the export.
    pub terms: Vec<ExportTerms>,
}

/// The reason why a client is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("connect rule {number} ({rule}) refuses the client")]
    Rule { number: usize, rule: String },
    #[error("none of the {count} connect rules admits the client")]
    NoRule { count: usize },
    #[error("the rules of no export let the client see it")]
    NoExport,
    #[error(
        "its port is 1024 or higher, and the entry for it ({entry}) does not say insecure \
        (--nfs-any-port)"
    )]
    Port { entry: String },
    #[error("the entry for it ({entry}) asks for TLS; the client must mount with xprtsec={needed}")]
    Transport { entry: String, needed: TransportSecurity },
}

impl Default for AccessRules {
    fn default() -> Self {
        Self {
            connect: Vec::new(),
            trusted: Vec::new(),
            exports: Vec::new(),
            squash: None,
            anonymous: Credentials::nobody(),
            nfs: NfsRules::default(),
        }
    }
}

impl AccessRules {
    /// Checks whether the connection rules could admit a client on this connection, before the
    /// client authenticates.
    pub(crate) fn may_connect(&self, peer: &PeerFacts) -> Result<(), Refused> {
        for (place, rule) in self.connect.iter().enumerate() {
            if !rule.peers.is_place_of(peer) || !rule.peers.may_be(peer) {
                continue;
            }
            if rule.allow {
                return Ok(());
            }
            if !rule.peers.is_about_identity() {
                return Err(rule.refusal(place));
            }
        }
        self.unmentioned()
    }

    /// Applies the access rules to a client that has authenticated. Returns the access that it
    /// gets, or the reason why it is refused.
    pub(crate) fn judge(
        &self,
        peer: &PeerFacts,
        who: &Principal,
        how: AuthType,
        exports: &[OsString],
    ) -> Result<Verdict, Refused> {
        let speaks = |(_, rule): &(usize, &ConnectRule)| rule.peers.matches(peer, who, how);
        match self.connect.iter().enumerate().find(speaks) {
            Some((_, rule)) if rule.allow => {}
            Some((place, rule)) => return Err(rule.refusal(place)),
            None => self.unmentioned()?,
        }
        let terms: Vec<_> = exports.iter().map(|name| self.terms(name, peer, who, how)).collect();
        if !terms.iter().any(|terms| terms.is_visible) {
            return Err(Refused::NoExport);
        }
        let trusted = self.trusted.iter().any(|peers| peers.matches(peer, who, how));
        Ok(Verdict { trusted, terms })
    }

    fn unmentioned(&self) -> Result<(), Refused> {
        match self.connect.len() {
            0 => Ok(()),
            count => Err(Refused::NoRule { count }),
        }
    }

    /// Applies the access rules to an NFS client. Returns the terms of each export. The client gets
    /// what both the entries for NFS clients and the other rules allow.
    pub(crate) fn judge_nfs(
        &self,
        peer: &NfsPeer,
        exports: &[OsString],
    ) -> Result<Vec<ExportTerms>, Refused> {
        let facts = PeerFacts {
            address: Some(peer.address),
            is_local: false,
            uid: None,
            transport: TransportKind::Nfs,
            certificate: None,
        };
        let (who, how) = match &peer.principal {
            Some(name) => (Principal::Gss(name.as_ref().into()), AuthType::Gss),
            None => (Principal::Anonymous, AuthType::None),
        };
        let mut terms = self.judge(&facts, &who, how, exports)?.terms;
        let (mut by_port, mut by_transport) = (None, None);
        for (name, terms) in exports.iter().zip(&mut terms) {
            let entry = name.to_str().and_then(|name| self.nfs.entry(name, peer));
            let own = entry.and_then(|entry| Some((entry, entry.terms_of(peer.flavor)?)));
            match own.filter(|_| terms.is_visible) {
                Some((entry, _)) if !entry.takes_transport_of(peer) => {
                    terms.is_visible = false;
                    by_transport.get_or_insert_with(|| (entry.place(), entry.transport));
                }
                Some((_, (own, any_port))) if any_port || peer.is_privileged => {
                    let set = self.partial_terms(name, &facts, &who, how).1;
                    restrict(&set, own, terms);
                }
                Some((entry, _)) => {
                    terms.is_visible = false;
                    by_port.get_or_insert_with(|| entry.place());
                }
                None => terms.is_visible = false,
            }
        }
        match (terms.iter().any(|terms| terms.is_visible), by_port, by_transport) {
            (true, _, _) => Ok(terms),
            (false, Some(entry), _) => Err(Refused::Port { entry }),
            (false, None, Some((entry, needed))) => Err(Refused::Transport { entry, needed }),
            (false, None, None) => Err(Refused::NoExport),
        }
    }

    /// Returns true if a client sees an export, and the terms that the rules set for it.
    fn partial_terms(
        &self,
        name: &OsStr,
        peer: &PeerFacts,
        who: &Principal,
        how: AuthType,
    ) -> (bool, PartialTerms) {
        let open = PartialTerms::default();
        let rules = self.exports.iter().find(|rules| *name == *rules.name);
        let base = rules.map_or(&open, |rules| &rules.terms);
        let clients = rules.map_or(&[][..], |rules| &rules.clients);
        let own = clients.iter().find(|(peers, _)| peers.matches(peer, who, how));
        let is_visible = clients.is_empty() || own.is_some();
        let own = own.map_or(&open, |(_, terms)| terms);
        let terms = PartialTerms {
            read_only: own.read_only.or(base.read_only),
            squash: own.squash.or(base.squash).or(self.squash),
            anonymous: own.anonymous.as_ref().or(base.anonymous.as_ref()).cloned(),
        };
        (is_visible, terms)
    }

    fn terms(&self, name: &OsStr, peer: &PeerFacts, who: &Principal, how: AuthType) -> ExportTerms {
        let by_default = if peer.is_local { Squash::Nobody } else { Squash::Root };
        let (is_visible, terms) = self.partial_terms(name, peer, who, how);
        ExportTerms {
            is_visible,
            read_only: terms.read_only.unwrap_or(false),
            squash: terms.squash.unwrap_or(by_default),
            anonymous: terms.anonymous.unwrap_or_else(|| self.anonymous.clone()),
        }
    }
}

/// Applies the terms of an entry for NFS clients to the terms that follow from the other rules, of
/// which `set` are written in a rule. The stricter of two terms holds.
fn restrict(set: &PartialTerms, entry: &PartialTerms, terms: &mut ExportTerms) {
    terms.read_only |= entry.read_only == Some(true);
    if let Some(squash) = entry.squash {
        let rank = |squash| match squash {
            Squash::Nobody => 0,
            Squash::Root => 1,
            Squash::All => 2,
        };
        let is_stricter = set.squash.is_none_or(|other| rank(squash) >= rank(other));
        if is_stricter {
            terms.squash = squash;
        }
    }
    if let Some(anonymous) = entry.anonymous.as_ref().filter(|_| set.anonymous.is_none()) {
        terms.anonymous = anonymous.clone();
    }
}

impl ConnectRule {
    fn refusal(&self, place: usize) -> Refused {
        Refused::Rule { number: place + 1, rule: format!("deny {}", self.peers) }
    }
}

impl Peers {
    fn matches(&self, peer: &PeerFacts, who: &Principal, how: AuthType) -> bool {
        let is_it = |pattern: &PrincipalPattern| pattern.matches(peer, who);
        self.is_place_of(peer)
            && (self.authentication.is_empty() || self.authentication.contains(&how))
            && (self.principals.is_empty() || self.principals.iter().any(is_it))
    }

    fn is_place_of(&self, peer: &PeerFacts) -> bool {
        let is_it = |kind: &TransportKind| {
            *kind == peer.transport
                || (*kind, peer.transport) == (TransportKind::Tcp, TransportKind::Tls)
        };
        (self.from.is_empty() || self.from.iter().any(|origin| origin.has(peer)))
            && (self.transports.is_empty() || self.transports.iter().any(is_it))
    }

    /// Returns true if a client on this connection could still authenticate as a principal that one
    /// of the patterns matches.
    fn may_be(&self, peer: &PeerFacts) -> bool {
        self.principals.is_empty() || self.principals.iter().any(|pattern| pattern.may_be(peer))
    }

    fn is_about_identity(&self) -> bool {
        !self.authentication.is_empty() || !self.principals.is_empty()
    }
}

impl Origin {
    fn has(&self, peer: &PeerFacts) -> bool {
        match (self, peer.address) {
            (Self::Local, _) => peer.is_local,
            (Self::Network { .. }, None) => false,
            (Self::Network { .. }, Some(theirs)) => self.has_address(theirs),
        }
    }

    /// Returns true if the origin is a network that contains this address.
    #[must_use]
    pub fn has_address(&self, theirs: IpAddr) -> bool {
        match self {
            Self::Local => false,
            Self::Network { address, bits } => match (address, theirs) {
                (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                    let shift = 32 - u32::from(*bits);
                    let differ = ours.to_bits() ^ theirs.to_bits();
                    differ.checked_shr(shift).unwrap_or(0) == 0
                }
                (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                    let shift = 128 - u32::from(*bits);
                    let differ = ours.to_bits() ^ theirs.to_bits();
                    differ.checked_shr(shift).unwrap_or(0) == 0
                }
                (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
            },
        }
    }
}

impl PrincipalPattern {
    /// Returns true if a client on this connection could still authenticate as a principal that
    /// matches the pattern. For a pattern that names a user of this host, the result is final,
    /// because the kernel reports the user when the peer connects.
    fn may_be(&self, peer: &PeerFacts) -> bool {
        match self {
            Self::Uid(uid) => peer.uid == Some(*uid),
            Self::Anonymous | Self::User(_) | Self::Kerberos(_) | Self::Certificate(_) => true,
        }
    }

    fn matches(&self, peer: &PeerFacts, who: &Principal) -> bool {
        match (self, who) {
            (Self::Certificate(pattern), _) => {
                let names = peer.certificate.as_ref().map(|certificate| certificate.names());
                names.is_some_and(|mut names| names.any(|name| is_like(pattern, name)))
            }
            (Self::Uid(uid), Principal::LocalUser(theirs)) => uid == theirs,
            (Self::Anonymous, Principal::Anonymous) => true,
            (Self::User(pattern), Principal::User(name)) => is_like(pattern, name),
            (Self::Kerberos(pattern), Principal::Gss(name)) => is_principal_like(pattern, name),
            (Self::Uid(_) | Self::Anonymous | Self::User(_) | Self::Kerberos(_), _) => false,
        }
    }
}

impl PeerFacts {
    /// Collects the facts that a transport knows about a peer.
    pub(crate) fn of(peer: &Peer) -> Self {
        let (address, transport) = match &peer.address {
            Address::Tcp(address) if peer.tls => {
                (Some(address.ip().to_canonical()), TransportKind::Tls)
            }
            Address::Tcp(address) => (Some(address.ip().to_canonical()), TransportKind::Tcp),
            Address::Verbs(address) => (Some(address.ip().to_canonical()), TransportKind::Verbs),
            Address::Shm(_) => (None, TransportKind::SharedMemory),
            // The simulator's network counts as TCP.
            Address::Sim { .. } => (None, TransportKind::Tcp),
        };
        let certificate = peer.certificate.clone();
        let uid = peer.process.as_ref().map(|process| process.uid);
        Self { address, is_local: uid.is_some(), uid, transport, certificate }
    }

    /// Returns the holder (a local user or an address) whose limits apply to the peer before a
    /// client has logged in.
    pub(crate) fn holder(&self) -> Holder {
        match (self.uid, self.address) {
            (Some(uid), _) => Holder::User(uid),
            (None, Some(address)) => Holder::at(address),
            (None, None) => Holder::Elsewhere,
        }
    }
}

impl fmt::Display for PeerFacts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(out, "{address}"),
            None if self.is_local => out.write_str("this host"),
            None => out.write_str("an unknown address"),
        }
    }
}

// ---- matching of patterns -----------------------------------------------------------------

/// Returns true if `text` matches `pattern`, in which `*` stands for any sequence of characters.
fn is_like(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Returns true if the principal's name and realm match the pattern's name and realm separately.
/// One match over the whole text would accept a foreign realm in which the expected realm follows
/// an escaped `@`.
fn is_principal_like(pattern: &str, principal: &str) -> bool {
    let (Some((name, realm)), Some((their_name, their_realm))) =
        (split_realm(pattern), split_realm(principal))
    else {
        return false;
    };
    is_like(name, their_name) && is_like(realm, their_realm)
}

/// Splits a principal into name and realm at the first `@` that is not escaped. A Kerberos
/// principal has only one unescaped `@`.
fn split_realm(principal: &str) -> Option<(&str, &str)> {
    let mut is_escaped = false;
    for (at, byte) in principal.bytes().enumerate() {
        match byte {
            b'@' if !is_escaped => return Some((&principal[..at], &principal[at + 1..])),
            b'\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::rule_text::authentication_named;

    fn remote(address: &str) -> PeerFacts {
        PeerFacts {
            address: Some(address.parse().unwrap()),
            is_local: false,
            uid: None,
            transport: TransportKind::Tcp,
            certificate: None,
        }
    }

    fn local() -> PeerFacts {
        let transport = TransportKind::SharedMemory;
        PeerFacts { address: None, is_local: true, uid: Some(7), transport, certificate: None }
    }

    fn from(places: &[&str]) -> Peers {
        Peers { from: places.iter().map(|p| p.parse().unwrap()).collect(), ..Peers::default() }
    }

    fn named_so(principals: &[&str]) -> Peers {
        let principals = principals.iter().map(|p| p.parse().unwrap()).collect();
        Peers { principals, ..Peers::default() }
    }

    fn kerberos(name: &str) -> Principal {
        Principal::Gss(name.into())
    }

    #[test]
    fn any_name_of_a_certificate_counts() {
        let certificate = CertificateIdentity {
            common_name: Some("ann".to_owned()),
            uris: vec!["spiffe://example/backup".to_owned()],
            ..CertificateIdentity::default()
        };
        let far = PeerFacts { certificate: Some(Arc::new(certificate)), ..remote("192.0.2.1") };
        let is_it = |pattern: &str, peer: &PeerFacts| {
            named_so(&[pattern]).matches(peer, &Principal::Anonymous, AuthType::None)
        };
        assert!(is_it("certificate:ann", &far) && is_it("certificate:spiffe://example/*", &far));
        assert!(!is_it("certificate:example", &far) && !is_it("user:ann", &far));
        assert!(!is_it("certificate:*", &remote("192.0.2.1")), "it has shown none");
    }

    fn names() -> Vec<OsString> {
        vec!["home".into(), "pub".into()]
    }

    #[test]
    fn without_rules_everybody_comes_and_root_of_elsewhere_is_nobody() {
        let rules = AccessRules::default();
        let far = remote("192.0.2.1");
        assert_eq!(rules.may_connect(&far), Ok(()));
        let who = Principal::Anonymous;
        let verdict = rules.judge(&far, &who, AuthType::None, &names()).unwrap();
        assert!(!verdict.trusted && verdict.terms.iter().all(|terms| terms.is_visible));
        assert_eq!(verdict.terms[0].squash, Squash::Root);
        let here = Principal::LocalUser(0);
        let verdict = rules.judge(&local(), &here, AuthType::None, &names()).unwrap();
        assert_eq!(verdict.terms[0].squash, Squash::Nobody);
    }

    #[test]
    fn the_first_rule_that_speaks_of_a_peer_decides() {
        let rule = |allow, peers| ConnectRule { allow, peers };
        let connect = vec![
            rule(true, from(&["10.1.2.3"])),
            rule(false, from(&["10.0.0.0/8"])),
            rule(true, named_so(&["kerberos:*@EXAMPLE"])),
        ];
        let rules = AccessRules { connect, ..AccessRules::default() };
        assert_eq!(rules.may_connect(&remote("10.1.2.3")), Ok(()));
        let refusal = rules.may_connect(&remote("10.1.2.4")).unwrap_err();
        let text = refusal.to_string();
        assert_eq!(text, "connect rule 2 (deny from 10.0.0.0/8) refuses the client");
        // The peer must authenticate before the rules can decide.
        let far = remote("192.0.2.1");
        assert_eq!(rules.may_connect(&far), Ok(()));
        let judge = |who: &Principal, how| rules.judge(&far, who, how, &names()).map(|_| ());
        assert_eq!(judge(&kerberos("ada@EXAMPLE"), AuthType::Gss), Ok(()));
        let refusal = judge(&Principal::Anonymous, AuthType::None);
        assert_eq!(refusal, Err(Refused::NoRule { count: 3 }));
    }

    #[test]
    fn a_user_of_this_host_whom_no_rule_names_is_kept_out_before_a_word_is_said() {
        let rule = |allow, peers| ConnectRule { allow, peers };
        let here =
            |principals: &[&str]| Peers { from: vec![Origin::Local], ..named_so(principals) };
        let connect = vec![rule(true, here(&["uid:7"])), rule(false, here(&[]))];
        let rules = AccessRules { connect, ..AccessRules::default() };
        let of = |uid| PeerFacts { uid: Some(uid), ..local() };
        assert_eq!(rules.may_connect(&of(7)), Ok(()));
        assert!(matches!(rules.may_connect(&of(8)), Err(Refused::Rule { number: 2, .. })));
        // A peer that can still prove another identity is admitted for now.
        let connect = vec![rule(true, here(&["uid:7", "user:ann"]))];
        let rules = AccessRules { connect, ..AccessRules::default() };
        assert_eq!(rules.may_connect(&of(8)), Ok(()));
    }

    #[test]
    fn authentication_and_transport_can_be_required() {
        let peers = Peers {
            transports: vec![TransportKind::Tcp],
            authentication: vec![AuthType::Gss],
            ..Peers::default()
        };
        let far = remote("2001:db8::1");
        assert!(peers.matches(&far, &kerberos("a@R"), AuthType::Gss));
        assert!(!peers.matches(&far, &Principal::Anonymous, AuthType::None));
        assert!(!peers.matches(&local(), &kerberos("a@R"), AuthType::Gss));
        let secret = PeerFacts { transport: TransportKind::Tls, ..far.clone() };
        assert!(peers.matches(&secret, &kerberos("a@R"), AuthType::Gss));
        let sealed = Peers { transports: vec![TransportKind::Tls], ..Peers::default() };
        assert!(sealed.is_place_of(&secret) && !sealed.is_place_of(&far));
    }

    #[test]
    fn networks_have_edges() {
        let has =
            |network: &str, address: &str| network.parse::<Origin>().unwrap().has(&remote(address));
        assert!(has("10.0.0.0/8", "10.255.255.255") && !has("10.0.0.0/8", "11.0.0.0"));
        assert!(has("0.0.0.0/0", "203.0.113.9") && !has("0.0.0.0/0", "2001:db8::1"));
        assert!(has("::/0", "2001:db8::1") && has("2001:db8::/33", "2001:db8:7fff::"));
        assert!(!has("2001:db8::/33", "2001:db8:8000::"));
        assert!(has("192.0.2.7", "192.0.2.7") && !has("192.0.2.7", "192.0.2.6"));
        assert!(!Origin::Local.has(&remote("127.0.0.1")));
    }

    #[test]
    fn names_are_matched_whole_and_realms_by_themselves() {
        assert!(is_like("ad*", "ada") && is_like("*", "") && is_like("a*a", "ada"));
        assert!(!is_like("a*a", "a") && !is_like("ada", "adam") && !is_like("*b*", "ada"));
        assert!(is_like("*/*.x", "dafs/a.b.x") && !is_like("*.x*y", "a.y.x"));
        let ours = |name: &str| is_principal_like("*@EXAMPLE", name);
        assert!(ours("ada@EXAMPLE") && ours(r"ada\@HOME@EXAMPLE") && !ours("ada@HOME"));
        // A foreign realm whose name ends like ours.
        assert!(!ours(r"ada@EVIL\@EXAMPLE"));
        assert!(!ours(r"ada\@EXAMPLE@EVIL") && !ours("ada"));
    }

    #[test]
    fn exports_are_seen_on_the_first_terms_that_fit() {
        let terms = |squash, read_only| PartialTerms { squash, read_only, anonymous: None };
        let exports = vec![ExportRules {
            name: "home".to_owned(),
            terms: terms(Some(Squash::All), None),
            clients: vec![
                (named_so(&["user:root"]), terms(Some(Squash::Nobody), None)),
                (from(&["10.0.0.0/8"]), terms(None, Some(true))),
            ],
        }];
        let rules = AccessRules { exports, ..AccessRules::default() };
        let terms_of = |address: &str, who: Principal| {
            let verdict = rules.judge(&remote(address), &who, AuthType::Text, &names()).unwrap();
            let home = verdict.terms[0].clone();
            assert!(verdict.terms[1].is_visible, "nothing is said of the other");
            home.is_visible.then_some((home.squash, home.read_only))
        };
        let user = |name: &str| Principal::User(name.into());
        assert_eq!(terms_of("192.0.2.1", user("root")), Some((Squash::Nobody, false)));
        assert_eq!(terms_of("10.0.0.1", user("ada")), Some((Squash::All, true)));
        assert_eq!(terms_of("192.0.2.1", user("ada")), None);
        let only = [OsString::from("home")];
        let refusal = rules.judge(&remote("::1"), &user("ada"), AuthType::Text, &only);
        assert_eq!(refusal, Err(Refused::NoExport));
    }

    #[test]
    fn what_is_no_rule_says_how_to_write_one() {
        for text in ["", "example.org", "10.0.0.0/33", "::/129", "10.0.0.0/x", "10.0.0.0/-1"] {
            let error = text.parse::<Origin>().unwrap_err().to_string();
            assert!(error.contains("192.0.2.0/24"), "{error}");
        }
        for text in ["", "ada", "uid:x", "uid:", "user:", "kerberos:ada", "group:x"] {
            let error = text.parse::<PrincipalPattern>().unwrap_err().to_string();
            assert!(error.contains("kerberos:NAME@REALM"), "{error}");
        }
        assert!("rdma".parse::<TransportKind>().is_err());
        assert!(authentication_named("x509").unwrap_err().to_string().contains("password"));
    }

    #[test]
    fn a_rule_reads_as_it_was_written() {
        let peers = Peers {
            from: vec!["10.0.0.0/8".parse().unwrap(), Origin::Local],
            transports: vec![TransportKind::Tcp],
            authentication: vec![AuthType::Gss],
            principals: vec!["kerberos:*@R".parse().unwrap(), PrincipalPattern::Uid(7)],
        };
        let text = "from 10.0.0.0/8, local over tcp by kerberos as kerberos:*@R, uid:7";
        assert_eq!(peers.to_string(), text);
        assert_eq!(Peers::default().to_string(), "everybody");
    }
}
