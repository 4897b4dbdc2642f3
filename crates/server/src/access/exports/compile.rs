//! Compiles an exports file into rules: looks up hosts and netgroups, and sorts clients by rank.
//!
//! Lookups may block, so this never runs on a reactor.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use dafs_types::Credentials;

use super::clients::{ClientName, bits_of};
use super::flavors::FlavorTerms;
use super::options::ClientOptions;
use super::parse::{ExportsError, ExportsFile, ListedClient};
use super::rules::{NfsClients, NfsExport, NfsPeers, NfsRules};
use crate::access::authorize::{Origin, PartialTerms};

/// Looks up hosts and netgroups.
pub trait HostLookup {
    /// Returns the addresses of a host.
    ///
    /// # Errors
    /// Why the host has no address.
    fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, String>;

    /// Returns the names of the hosts of a netgroup.
    ///
    /// # Errors
    /// Why the netgroup cannot be looked up.
    fn netgroup(&self, name: &str) -> Result<Vec<String>, String>;
}

/// The lookups of this system: `getaddrinfo`, and `getent netgroup`.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemLookup;

/// The rules of an exports file, and what could not be looked up.
#[derive(Clone, Debug)]
pub struct CompiledExports {
    /// The rules of the file, with names replaced by addresses.
    pub rules: NfsRules,
    /// Clients whose hosts or netgroups could not be looked up. The rules do not contain them, so
    /// these clients get nothing.
    pub unknown: Vec<ExportsError>,
}

impl ExportsFile {
    /// Compiles the file into rules. `export_of` returns the name of the export for a directory.
    ///
    /// # Errors
    /// [`ExportsError`] for a directory that is not exported, or for an id that no user can have.
    pub fn compile(
        &self,
        lookup: &dyn HostLookup,
        export_of: impl Fn(&Path) -> Option<String>,
    ) -> Result<CompiledExports, ExportsError> {
        let mut unknown = Vec::new();
        let mut exports: Vec<NfsExport> = Vec::new();
        for export in &self.exports {
            let error = |line, text| ExportsError { file: self.file.clone(), line, text };
            let name = export_of(&export.path).ok_or_else(|| {
                error(export.line, format!("{} is not exported", export.path.display()))
            })?;
            let mut clients = Vec::new();
            let mut sorted: Vec<&ListedClient> = export.clients.iter().collect();
            sorted.sort_by_key(|client| client.name.rank());
            for client in sorted {
                let of = |options: &ClientOptions| {
                    terms_of(options).map_err(|text| error(client.line, text))
                };
                let (terms, any_port) = of(&client.options)?;
                let flavors = client.options.flavors().map(|(flavor, options)| {
                    let (terms, any_port) = of(&options)?;
                    Ok(FlavorTerms { flavor, terms, any_port })
                });
                let flavors = flavors.collect::<Result<Vec<_>, ExportsError>>()?;
                match peers_of(&client.name, lookup) {
                    Ok(who) => clients.push(NfsClients {
                        who,
                        terms,
                        any_port,
                        transport: client.options.transport,
                        flavors,
                        clients: client.name.to_string(),
                        source: format!("{}:{}", self.file, client.line),
                    }),
                    Err(text) => unknown.push(error(client.line, text)),
                }
            }
            exports.push(NfsExport { name, clients });
        }
        Ok(CompiledExports { rules: NfsRules { exports, others: Vec::new() }, unknown })
    }
}

fn terms_of(options: &ClientOptions) -> Result<(PartialTerms, bool), String> {
    let nobody = Credentials::nobody();
    let uid = options.anonymous_uid.unwrap_or(nobody.uid());
    let gid = options.anonymous_gid.unwrap_or(nobody.gid());
    let anonymous = Credentials::plain(uid, gid).map_err(|error| error.to_string())?;
    let is_given = options.anonymous_uid.is_some() || options.anonymous_gid.is_some();
    let terms = PartialTerms {
        read_only: Some(options.read_only),
        squash: Some(options.squash),
        anonymous: is_given.then_some(anonymous),
    };
    Ok((terms, options.any_port))
}

fn peers_of(name: &ClientName, lookup: &dyn HostLookup) -> Result<NfsPeers, String> {
    let of_hosts = |hosts: &[String]| -> Result<Vec<Origin>, String> {
        let mut origins = Vec::new();
        for host in hosts {
            let addresses = lookup.addresses(host)?;
            origins.extend(addresses.into_iter().map(|found| single(found.to_canonical())));
        }
        Ok(origins)
    };
    Ok(match name {
        ClientName::Host(host) => NfsPeers::Addresses(of_hosts(std::slice::from_ref(host))?),
        ClientName::Network { address, bits } => {
            NfsPeers::Addresses(vec![Origin::Network { address: *address, bits: *bits }])
        }
        ClientName::Pattern(pattern) => NfsPeers::Named(pattern.clone()),
        ClientName::Netgroup(group) => NfsPeers::Addresses(of_hosts(&lookup.netgroup(group)?)?),
        ClientName::Anyone => NfsPeers::Anyone,
    })
}

fn single(address: IpAddr) -> Origin {
    Origin::Network { address, bits: bits_of(address) }
}

impl HostLookup for SystemLookup {
    fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, String> {
        let found = (host, 0).to_socket_addrs();
        let found = found.map_err(|error| format!("the host {host:?} is not known: {error}"))?;
        Ok(found.map(|address| address.ip().to_canonical()).collect())
    }

    fn netgroup(&self, name: &str) -> Result<Vec<String>, String> {
        let text = getent(&["netgroup", name])?
            .ok_or_else(|| format!("the netgroup {name:?} is not known to this system"))?;
        Ok(hosts_of(&text))
    }
}

/// Returns the name of the host at an address if the name leads back to the address. `None` if
/// there is no such name.
pub(crate) fn confirmed_name(address: IpAddr, lookup: &dyn HostLookup) -> Option<Arc<str>> {
    let text = getent(&["hosts", &address.to_string()]).ok().flatten()?;
    // The line is an address, the name and other names.
    let name = text.lines().next()?.split_whitespace().nth(1)?;
    let is_confirmed = lookup.addresses(name).is_ok_and(|found| found.contains(&address));
    is_confirmed.then(|| Arc::from(name))
}

/// Asks a database of this system. `None` if the database has no such entry.
fn getent(arguments: &[&str]) -> Result<Option<String>, String> {
    let mut command = Command::new("getent");
    let output = command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let output = output.map_err(|error| format!("getent {}: {error}", arguments.join(" ")))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok((output.status.success() && !text.trim().is_empty()).then_some(text))
}

/// Returns the hosts in the triples of a netgroup: (host,user,domain). Triples without a host stand
/// for every host in netgroups; they are left out, because they would export to every client.
fn hosts_of(text: &str) -> Vec<String> {
    let triples = text.split('(').skip(1);
    let hosts = triples.filter_map(|triple| triple.split([',', ')']).next());
    let hosts = hosts.map(str::trim).filter(|host| !host.is_empty() && *host != "-");
    hosts.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::access::exports::rules::NfsPeer;

    /// Hosts and netgroups for tests.
    struct Known;

    impl HostLookup for Known {
        fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, String> {
            match host {
                "master" => Ok(vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()]),
                "trusty" => Ok(vec!["192.0.2.2".parse().unwrap()]),
                _ => Err(format!("the host {host:?} is not known")),
            }
        }

        fn netgroup(&self, name: &str) -> Result<Vec<String>, String> {
            match name {
                "trusted" => Ok(vec!["trusty".to_owned()]),
                _ => Err(format!("the netgroup {name:?} is not known")),
            }
        }
    }

    fn compiled(text: &str) -> CompiledExports {
        let file = ExportsFile::parse(text.as_bytes(), "exports").unwrap();
        file.compile(&Known, |path| Some(path.display().to_string())).unwrap()
    }

    fn entry(compiled: &CompiledExports, address: &str, host: Option<&str>) -> Option<String> {
        let (address, host) = (address.parse().unwrap(), host.map(Arc::from));
        let peer = NfsPeer::of(SocketAddr::new(address, 1), host);
        let found = compiled.rules.entry("/srv", &peer);
        found.map(|entry| entry.clients.clone())
    }

    #[test]
    fn the_kind_of_client_ranks_before_the_order_of_the_file() {
        let rules = compiled(
            "/srv *(ro) *.example.org @trusted 192.0.2.0/24 192.0.2.9 master\n/srv 192.0.0.0/16",
        );
        let of = |address: &str, host| entry(&rules, address, host).unwrap();
        assert_eq!(of("192.0.2.1", None), "master");
        assert_eq!(of("2001:db8::1", None), "master");
        assert_eq!(of("192.0.2.9", Some("a.example.org")), "192.0.2.9");
        assert_eq!(of("192.0.2.2", Some("a.example.org")), "192.0.2.0/24");
        assert_eq!(of("192.0.3.3", Some("a.example.org")), "192.0.0.0/16");
        assert_eq!(of("203.0.113.3", Some("a.example.org")), "*.example.org");
        assert_eq!(of("203.0.113.3", None), "*");
    }

    #[test]
    fn a_client_that_cannot_be_looked_up_gets_nothing_and_is_reported() {
        let rules = compiled("/srv stranger(rw) @strangers @trusted");
        assert_eq!(rules.unknown.len(), 2);
        assert_eq!(rules.unknown[0].to_string(), "exports:1: the host \"stranger\" is not known");
        assert_eq!(entry(&rules, "192.0.2.2", None).as_deref(), Some("@trusted"));
        assert_eq!(entry(&rules, "192.0.2.3", None), None);
    }

    #[test]
    fn the_hosts_of_a_netgroup_are_those_of_its_triples() {
        let text = "trusted               (one.x,-,x) (two,,) ( ,ann,) (-,bob,)\n";
        assert_eq!(hosts_of(text), ["one.x", "two"]);
    }

    #[test]
    fn a_directory_that_is_not_exported_is_a_mistake() {
        let file = ExportsFile::parse(b"\n/srv *", "exports").unwrap();
        let error = file.compile(&Known, |_| None).unwrap_err();
        assert_eq!(error.to_string(), "exports:2: /srv is not exported");
    }
}
