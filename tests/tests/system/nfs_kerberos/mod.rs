//! NFS clients that authenticate by Kerberos: a KDC, a server with a key for NFS, and calls of
//! versions 3 and 4.1 with each protection, over TCP and RDMA.
//!
//! Without the KDC's programs, the tests pass with a message, unless `DAFS_REQUIRE_KDC=1`.

mod client;
mod machine;
mod refused;

use std::net::SocketAddr;

use dafs_client::CredentialSource;
use dafs_gss::{Protection, ServiceOptions};
use dafs_nfs_suite::fault::Fault;
use dafs_nfs_suite::mount::Mount;
use dafs_nfs_suite::nfs3::{self, Sattr};
use dafs_nfs_suite::nfs4::ops::{self, Channel, Claim, How};
use dafs_nfs_suite::nfs4::results::{Body, Client};
use dafs_nfs_suite::nfs4::{self, Reply, StateId};
use dafs_nfs_suite::rpc::{Auth, Connection};
use dafs_nfs_suite::status;
use dafs_nfs_suite::xdr::{Get, Put};
use dafs_rpcrdma_client::Bridge;
use dafs_server::{
    Flavor, FlavorTerms, KerberosConfig, NfsClients, NfsExport, NfsPeers, NfsRules, PartialTerms,
    TransportSecurity,
};

use self::client::{Kerberized, NFS};
use crate::auth::passwords;
use crate::fixture::{Fixture, pattern};
use crate::nfs_rdma::anywhere;
use crate::realm::{Realm, scenario};

const ALICE: u32 = 5001;
const EACH: [Protection; 3] =
    [Protection::Authentication, Protection::Integrity, Protection::Privacy];

/// Returns the entry of an export for all clients, with these flavors.
fn export(name: &str, flavors: &[Flavor]) -> NfsExport {
    let terms = PartialTerms::default();
    let of =
        |flavor: &Flavor| FlavorTerms { flavor: *flavor, terms: terms.clone(), any_port: true };
    let clients = NfsClients {
        who: NfsPeers::Anyone,
        terms: terms.clone(),
        any_port: true,
        transport: TransportSecurity::None,
        flavors: flavors.iter().map(of).collect(),
        clients: "*".to_owned(),
        source: "test".to_owned(),
    };
    NfsExport { name: name.to_owned(), clients: vec![clients] }
}

/// Starts a server with a key for NFS, over TCP and RDMA. The export `export` accepts Kerberos with
/// any protection, `readonly` AUTH_SYS, and `squashed` only encrypted calls.
fn serve(realm: &Realm) -> Fixture {
    let keytab = realm.path("service.keytab");
    realm.administer(&format!(
        "addprinc -pw wonderland alice\naddprinc -pw unmapped carol\n\
         addprinc -pw machine host/client.dafs.test\n\
         addprinc -randkey dafs/server.dafs.test\nktadd -k {0} dafs/server.dafs.test\n\
         addprinc -randkey nfs/server.dafs.test\nktadd -k {0} nfs/server.dafs.test\n",
        keytab.display()
    ));
    realm.ticket("alice", "wonderland", &realm.path("default.cache"), &[]);
    let file = realm.path("passwords");
    passwords(&file, &[("wonder", ALICE)]);
    Fixture::for_nfs_as(tempfile::tempdir().unwrap(), |config| {
        config.password_file = Some(file);
        let name = Some("dafs@server.dafs.test".parse().unwrap());
        config.kerberos = Some(KerberosConfig {
            service: ServiceOptions { name, keytab: Some(keytab), replay_cache: None },
            users: [("alice@DAFS.TEST".to_owned(), "wonder".to_owned())].into(),
            host_rules: false,
            ..KerberosConfig::default()
        });
        config.access.nfs = NfsRules {
            exports: vec![
                export("export", &[Flavor::Krb5, Flavor::Krb5i, Flavor::Krb5p]),
                export("readonly", &[Flavor::Sys]),
                export("squashed", &[Flavor::Krb5p]),
            ],
            others: Vec::new(),
        };
        config.nfs.as_mut().unwrap().rdma = vec![anywhere()];
    })
}

/// Calls a function with the name and the address of the server over TCP, and of a bridge to the
/// server over RDMA.
fn over_each_transport(fixture: &Fixture, mut test: impl FnMut(&str, SocketAddr)) {
    let bridge = Bridge::start(fixture.nfs_rdma()).unwrap();
    test("tcp", fixture.nfs());
    test("rdma", bridge.address());
}

/// Returns a source with the tickets of a principal.
fn tickets(realm: &Realm, who: &str, password: &str) -> CredentialSource {
    let cache = realm.path(&format!("{}.cache", who.replace('/', "-")));
    realm.ticket(who, password, &cache, &[]);
    CredentialSource::Cache(cache.into())
}

fn mount(fixture: &Fixture, path: &str) -> dafs_nfs_suite::mount::Mounted {
    let connection = Connection::open(fixture.nfs()).unwrap();
    Mount { connection, auth: Auth::user(1000) }.mnt(path).unwrap()
}

// ---- version 3 --------------------------------------------------------------------------

fn call_3(client: &mut Kerberized, procedure: u32, put: Put) -> Result<Vec<u8>, Fault> {
    client.call((NFS, 3, procedure), &put.0)
}

/// Creates a file of version 3. Returns its handle.
fn create_3(client: &mut Kerberized, root: &[u8], name: &str) -> Vec<u8> {
    let put = Sattr::mode(0o640).put(nfs3::at(root, name).u32(0));
    let results = call_3(client, 8, put).unwrap();
    let mut get = Get(&results);
    assert_eq!((get.u32().unwrap(), get.bool().unwrap()), (0, true), "{name} is created");
    get.opaque().unwrap()
}

fn write_3(client: &mut Kerberized, file: &[u8], data: &[u8]) -> u32 {
    let length = u32::try_from(data.len()).unwrap();
    let put = Put::new().opaque(file).u64(0).u32(length).u32(2).opaque(data);
    Get(&call_3(client, 7, put).unwrap()).u32().unwrap()
}

/// Reads a file of version 3.
fn read_3(client: &mut Kerberized, file: &[u8], count: u32) -> Vec<u8> {
    let results = call_3(client, 6, Put::new().opaque(file).u64(0).u32(count)).unwrap();
    let mut get = Get(&results);
    assert_eq!(get.u32().unwrap(), 0);
    get.option(nfs3::attr).unwrap();
    let _count = get.u32().unwrap();
    assert!(get.bool().unwrap(), "the end of the file");
    let data = get.opaque().unwrap();
    get.finish().unwrap();
    data
}

#[test]
fn version_3_reads_and_writes_with_each_protection() {
    let name = "nfs_kerberos::version_3_reads_and_writes_with_each_protection";
    scenario(name, |realm| {
        let fixture = serve(realm);
        let mounted = mount(&fixture, "/export");
        assert_eq!(mounted.flavors, [390_003, 390_004, 390_005]);
        over_each_transport(&fixture, |transport, server| {
            for protection in EACH {
                let mut client = Kerberized::default(server, protection);
                client.call((NFS, 3, 0), &[]).unwrap();
                let name = format!("{transport}-{protection:?}");
                let file = create_3(&mut client, &mounted.fh, &name);
                // Short messages, long messages, and messages with padding.
                for length in [5, 20_000, 1 << 20] {
                    let data = pattern(length, 7);
                    assert_eq!(write_3(&mut client, &file, &data), 0);
                    let read = read_3(&mut client, &file, length as u32);
                    assert!(read == data, "{name}: {length} bytes");
                }
                let local = std::fs::metadata(fixture.local(&name)).unwrap();
                let owner = std::os::unix::fs::MetadataExt::uid(&local);
                assert!(!dafs_tests::is_root() || owner == ALICE, "{owner}");
            }
        });
    });
}

// ---- version 4.1 ------------------------------------------------------------------------

/// A session of version 4.1.
struct Session {
    client: Kerberized,
    id: [u8; 16],
    next: u32,
}

fn compound(client: &mut Kerberized, ops: &[ops::Op]) -> Reply {
    let results = client.call((NFS, 4, 1), &nfs4::compound(b"", 1, ops)).unwrap();
    nfs4::decode(&results).unwrap()
}

/// Calls an EXCHANGE_ID.
fn exchange(client: &mut Kerberized, op: &ops::Op) -> Client {
    match compound(client, std::slice::from_ref(op)).all_ok().unwrap().results.remove(0).body {
        Body::Client(found) => found,
        other => panic!("the results of EXCHANGE_ID: {other:?}"),
    }
}

impl Session {
    fn start(mut client: Kerberized, owner: &[u8]) -> Self {
        let found = exchange(&mut client, &ops::exchange_id(*b"instance", owner, 0));
        Self::of(client, &found)
    }

    /// Creates a session of a client that is known.
    fn of(mut client: Kerberized, found: &Client) -> Self {
        let most = (1 << 20) + (16 << 10);
        let fore = Channel { request_max: most, response_max: most, ..Channel::FORE };
        let create = ops::create_session(found.id, found.sequence, 0, fore, Channel::BACK);
        let reply = compound(&mut client, &[create]);
        let Body::Created41(created) = reply.all_ok().unwrap().results.remove(0).body else {
            panic!("the results of CREATE_SESSION");
        };
        let mut session = Self { client, id: created.id, next: 1 };
        session.run(&[ops::reclaim_complete(false)]).all_ok().unwrap();
        session
    }

    /// Calls operations after a SEQUENCE. Returns the reply without the result of SEQUENCE.
    fn run(&mut self, ops: &[ops::Op]) -> Reply {
        let mut all = vec![ops::sequence(self.id, self.next, 0, 0, false)];
        all.extend_from_slice(ops);
        self.next += 1;
        let mut reply = compound(&mut self.client, &all);
        assert_eq!(reply.results.remove(0).status, 0, "SEQUENCE");
        reply
    }
}

#[test]
fn version_4_1_reads_and_writes_with_each_protection() {
    let name = "nfs_kerberos::version_4_1_reads_and_writes_with_each_protection";
    scenario(name, |realm| {
        let fixture = serve(realm);
        over_each_transport(&fixture, |transport, server| {
            for protection in EACH {
                let client = Kerberized::default(server, protection);
                let name = format!("{transport}-{protection:?}");
                reads_and_writes_4_1(Session::start(client, name.as_bytes()), &name);
            }
        });
    });
}

fn reads_and_writes_4_1(mut session: Session, name: &str) {
    let how = How::Unchecked(nfs4::attributes::Set::new().mode(0o640));
    let open = ops::open(b"owner", 3, 0, &how, &Claim::Name(name.as_bytes().to_vec()));
    let path = [ops::putrootfh(), ops::lookup("export")];
    let opened = session.run(&[&path[..], &[open, ops::getfh()]].concat());
    let opened = opened.all_ok().unwrap();
    let (state, file) = (opened.state(2).unwrap(), opened.fh(3).unwrap());
    for length in [5, 20_000, 1 << 20] {
        let data = pattern(length, 3);
        let write = [ops::putfh(&file), ops::write(state, 0, 2, &data)];
        session.run(&write).all_ok().unwrap();
        let read = [ops::putfh(&file), ops::read(state, 0, length as u32)];
        let reply = session.run(&read).all_ok().unwrap();
        assert!(reply.data(1).unwrap().1 == data, "{name}: {length} bytes");
    }
    session.run(&[ops::putfh(&file), ops::close(state)]).all_ok().unwrap();
    let stranger = StateId::UNKNOWN;
    let reply = session.run(&[ops::putfh(&file), ops::close(stranger)]);
    assert_ne!(reply.status, 0, "an error is a reply, too");
}

#[test]
fn a_machine_without_a_user_has_a_session_and_acts_as_nobody() {
    let name = "nfs_kerberos::a_machine_without_a_user_has_a_session_and_acts_as_nobody";
    scenario(name, |realm| {
        let fixture = serve(realm);
        let export = fixture.directory.path().join("export");
        std::fs::write(export.join("open"), "for all").unwrap();
        std::fs::write(export.join("secret"), "for the owner").unwrap();
        let mode =
            |mode| <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(mode);
        std::fs::set_permissions(export.join("open"), mode(0o644)).unwrap();
        std::fs::set_permissions(export.join("secret"), mode(0o600)).unwrap();
        for (who, password) in [("host/client.dafs.test", "machine"), ("carol", "unmapped")] {
            let source = tickets(realm, who, password);
            let client = Kerberized::connect(fixture.nfs(), &source, Protection::Integrity);
            let mut session = Session::start(client, who.as_bytes());
            let mut read = |name: &str| {
                let path = [ops::putrootfh(), ops::lookup("export"), ops::lookup(name)];
                session.run(&[&path[..], &[ops::read(StateId::BYPASS, 0, 100)]].concat()).status
            };
            assert_eq!(read("open"), 0);
            assert!(!dafs_tests::is_root() || read("secret") == status::ACCESS);
        }
    });
}
