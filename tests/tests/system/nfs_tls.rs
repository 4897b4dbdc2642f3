//! NFS clients with TLS (RFC 9289): who gets which export with and without TLS and certificates, and
//! clients that do not start TLS as they should.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use dafs_dat::{ClientCertificates, TlsServer};
use dafs_nfs_suite::fault::Fault;
use dafs_nfs_suite::mount::Mount;
use dafs_nfs_suite::nfs3::{self, How, Nfs3, Sattr};
use dafs_nfs_suite::nfs4::session::Wish;
use dafs_nfs_suite::nfs4::{Session, ops};
use dafs_nfs_suite::rpc::{Auth, Call, Connection, record_of};
use dafs_nfs_suite::status;
use dafs_nfs_suite::suite::{self, Protocol, Verdict};
use dafs_nfs_suite::xdr::Put;
use dafs_nfs_suite::{bench::Target, cases};
use dafs_server::{NfsExport, NfsRules, Server, ServerConfig, TransportSecurity};
use dafs_store::memory::{MemoryLimits, MemoryStore};

use crate::certificates::{Authority, server_of};
use crate::fixture::{Fixture, me, serve_nfs};
use crate::tunnel::{AUTH_TLS, Tunnel, client_of, probe, start_tls};

/// Returns the certificates of a server. Clients may show certificates of the authority.
fn certificates(authority: &Authority) -> TlsServer {
    let owner = authority.issue("server", &["localhost"], |_| {});
    server_of(&owner, ClientCertificates::Optional(authority.file()), false)
}

/// Starts a server with one export, whose clients must protect their connections so.
fn fixture(tls: Option<TlsServer>, least: TransportSecurity) -> Fixture {
    Fixture::with(|config| {
        serve_nfs(config, 0);
        config.access.nfs = NfsRules::for_all(Vec::new(), true).over(least);
        config.tls = tls;
    })
}

/// Mounts the export over a tunnel. Returns a client and the handle of the root.
fn mounted(tunnel: &Tunnel) -> Result<(Nfs3, Vec<u8>), Fault> {
    let auth = Auth::user(me().uid());
    let connect = || Connection::open(tunnel.address);
    let root = Mount { connection: connect()?, auth: auth.clone() }.mnt("/")?.fh;
    Ok((Nfs3 { connection: connect()?, auth }, root))
}

fn is_too_weak<T>(result: Result<T, Fault>) -> bool {
    const TOO_WEAK: u32 = 5;
    matches!(result, Err(Fault::Denied { status: 1, detail }) if detail == [TOO_WEAK])
}

fn is_bad_credential<T>(result: Result<T, Fault>) -> bool {
    const BAD_CREDENTIAL: u32 = 1;
    matches!(result, Err(Fault::Denied { status: 1, detail }) if detail == [BAD_CREDENTIAL])
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index / 251) as u8 ^ index as u8).collect()
}

#[test]
fn long_and_pipelined_calls_are_the_same_over_tls() {
    let authority = Authority::new();
    let fixture = fixture(Some(certificates(&authority)), TransportSecurity::Tls);
    let tunnel = Tunnel::to(fixture.nfs(), &client_of(&authority.file(), None));
    let (mut nfs, root) = mounted(&tunnel).unwrap();
    let made = nfs.create(&root, "file", How::Guarded(Sattr::mode(0o600))).unwrap();
    let fh = made.fh.unwrap();
    let data = pattern(1 << 20);
    let written = nfs.write(&fh, 0, 2, &data).unwrap();
    assert_eq!(written.count, 1 << 20);
    assert!(std::fs::read(fixture.local("file")).unwrap() == data);
    assert!(nfs.read(&fh, 0, 1 << 20).unwrap().data == data);
    let mut calls = Vec::new();
    for index in 0..32_u64 {
        let arguments = Put::new().opaque(&fh).u64(index << 15).u32(32 << 10);
        let call = nfs.prepare(6, arguments);
        calls.push((index, nfs.connection.send(&call).unwrap()));
    }
    for (index, xid) in calls.into_iter().rev() {
        let results = nfs.connection.results(xid).unwrap();
        let begin = (index as usize) << 15;
        assert!(results.ends_with(&data[begin..][..32 << 10]), "call {index}");
    }
}

#[test]
fn the_protocols_are_served_over_tls_as_their_standards_say() {
    if !dafs_tests::is_root() {
        return;
    }
    let authority = Authority::new();
    let fixture = fixture(Some(certificates(&authority)), TransportSecurity::Tls);
    let tunnel = Tunnel::to(fixture.nfs(), &client_of(&authority.file(), None));
    let target = Target {
        nfs: tunnel.address,
        mount: tunnel.address,
        path: "/".into(),
        read_only: None,
        squashed: None,
        restart_seconds: 0,
    };
    let mut cases = cases::all();
    // One of each nine, because all of them run without TLS.
    let wanted = [Protocol::Rpc, Protocol::Mount3, Protocol::Nfs3, Protocol::Nfs41];
    cases.retain(|case| wanted.contains(&case.protocol));
    let mut cases: Vec<_> = cases.into_iter().step_by(9).collect();
    // The tunnel asks for TLS itself.
    cases.retain(|case| !case.matches("probe for TLS"));
    let counts = suite::run_all(&cases, &target, |case, verdict| {
        fixture.goes_on();
        if let Verdict::Failed(text) = verdict {
            eprintln!("FAILED   {case}\n         {text}");
        }
    });
    assert!(counts.failed.is_empty() && counts.passed > 80, "{} pass", counts.passed);
}

#[test]
fn a_plain_client_gets_nothing_of_an_export_that_needs_tls() {
    let authority = Authority::new();
    let fixture = fixture(Some(certificates(&authority)), TransportSecurity::Tls);
    let tunnel = Tunnel::to(fixture.nfs(), &client_of(&authority.file(), None));
    let (mut nfs, root) = mounted(&tunnel).unwrap();
    nfs.getattr(&root).unwrap();

    let auth = Auth::user(me().uid());
    let connect = || Connection::open(fixture.nfs()).unwrap();
    let mut mount = Mount { connection: connect(), auth: auth.clone() };
    assert!(is_too_weak(mount.mnt("/")));
    assert_eq!(mount.export().unwrap().len(), 1, "everybody may ask what there is");
    let mut plain = Nfs3 { connection: connect(), auth: auth.clone() };
    assert!(is_too_weak(plain.getattr(&root)));
    assert!(is_too_weak(plain.read(&root, 0, 1)));
    // The server keeps only the start of such a call.
    assert!(is_too_weak(plain.write(&root, 0, 2, &[7; 700_000])));
    plain.null().unwrap();
    assert!(is_too_weak(Session::start(fixture.nfs(), &Wish::new(b"plain", auth.clone(), 1))));
    // A session that was created with TLS is of no use without it.
    let mut session = Session::start(tunnel.address, &Wish::new(b"tls", auth, 1)).unwrap();
    session.ok(&[ops::putrootfh(), ops::getfh()]).unwrap();
    session.connection = connect();
    assert!(is_too_weak(session.run(&[ops::putrootfh(), ops::getfh()])));
}

#[test]
fn a_plain_client_is_told_which_export_needs_tls() {
    let authority = Authority::new();
    let fixture = Fixture::with_two_exports(|config| {
        serve_nfs(config, 0);
        let plain = NfsRules::for_all(Vec::new(), true);
        let protected = plain.clone().over(TransportSecurity::Tls).others;
        let home = NfsExport { name: "home".to_owned(), clients: protected };
        config.access.nfs = NfsRules { exports: vec![home], ..plain };
        config.tls = Some(certificates(&authority));
    });
    let tunnel = Tunnel::to(fixture.nfs(), &client_of(&authority.file(), None));
    let auth = Auth::user(me().uid());
    let mount = |server, path| {
        Mount { connection: Connection::open(server).unwrap(), auth: auth.clone() }.mnt(path)
    };
    let home = mount(tunnel.address, "/home").unwrap().fh;
    mount(fixture.nfs(), "/pub").unwrap();
    let refused = mount(fixture.nfs(), "/home");
    assert!(matches!(refused, Err(Fault::Status { status: status::ACCESS, .. })), "{refused:?}");
    let connection = Connection::open(fixture.nfs()).unwrap();
    let refused = Nfs3 { connection, auth: auth.clone() }.getattr(&home);
    assert!(matches!(refused, Err(Fault::Status { .. })), "a handle is not enough: {refused:?}");

    let mut plain = Session::start(fixture.nfs(), &Wish::new(b"plain", auth.clone(), 1)).unwrap();
    let of = |name: &str| [ops::putrootfh(), ops::lookup(name)];
    plain.ok(&of("pub")).unwrap();
    plain.fails(&[status::WRONGSEC], &of("home")).unwrap();
    plain.fails(&[status::NOENT], &of("elsewhere")).unwrap();
    let mut protected = Session::start(tunnel.address, &Wish::new(b"tls", auth, 1)).unwrap();
    protected.ok(&of("home")).unwrap();
}

#[test]
fn an_export_for_known_machines_needs_a_certificate_that_the_authority_has_signed() {
    let (authority, other) = (Authority::new(), Authority::new());
    let fixture = fixture(Some(certificates(&authority)), TransportSecurity::Mtls);
    let tunnel = |identity| Tunnel::to(fixture.nfs(), &client_of(&authority.file(), identity));
    let known = tunnel(Some(authority.issue("client", &["client.example"], |_| {})));
    let (mut nfs, root) = mounted(&known).unwrap();
    // The credential of the call says who the user is, and not the certificate.
    nfs.mkdir(&root, "directory", Sattr::mode(0o700)).unwrap();
    let nobody = Auth::user(me().uid() + 1);
    let mut stranger = Nfs3 { connection: Connection::open(known.address).unwrap(), auth: nobody };
    stranger.getattr(&root).unwrap();

    assert!(is_too_weak(mounted(&tunnel(None))), "TLS without a certificate");
    let foreign = tunnel(Some(other.issue("foreign", &["client.example"], |_| {})));
    assert!(matches!(mounted(&foreign), Err(Fault::Closed)), "a certificate of another authority");
    nfs.getattr(&root).unwrap();
}

#[test]
fn a_server_that_asks_every_client_for_a_certificate_refuses_those_without() {
    let authority = Authority::new();
    let fixture = fixture(Some(authority.server(false)), TransportSecurity::Tls);
    let none = Tunnel::to(fixture.nfs(), &client_of(&authority.file(), None));
    assert!(matches!(mounted(&none), Err(Fault::Closed)));
    let identity = authority.issue("client", &["client.example"], |_| {});
    let known = Tunnel::to(fixture.nfs(), &client_of(&authority.file(), Some(identity)));
    mounted(&known).unwrap();
}

#[test]
fn a_probe_is_answered_and_other_uses_of_the_flavor_are_denied() {
    let authority = Authority::new();
    let with = fixture(Some(certificates(&authority)), TransportSecurity::None);
    let without = fixture(None, TransportSecurity::None);
    let call = |procedure| Call::new(nfs3::PROGRAM, 3, procedure, &AUTH_TLS, Vec::new());
    for fixture in [&with, &without] {
        let mut connection = Connection::open(fixture.nfs()).unwrap();
        assert!(is_bad_credential(connection.call(&call(1))), "GETATTR");
        let verified = Call { verifier: (0, b"what".to_vec()), ..call(0) };
        assert!(is_bad_credential(connection.call(&verified)), "a verifier with a body");
        let long = Call { auth: Auth::Raw(7, vec![0; 4]), ..call(0) };
        assert!(is_bad_credential(connection.call(&long)), "a credential with a body");
        connection.call(&Call { auth: Auth::None, ..call(0) }).unwrap();
    }
    // A server without certificates does not offer TLS, and goes on without it.
    let mut socket = TcpStream::connect(without.nfs()).unwrap();
    assert_eq!(probe(&mut socket), b"");
    assert_eq!(probe(&mut socket), b"");

    // Within TLS the flavor is denied, too.
    let tunnel = Tunnel::to(with.nfs(), &client_of(&authority.file(), None));
    let mut inside = Connection::open(tunnel.address).unwrap();
    inside.call(&Call { auth: Auth::None, ..call(0) }).unwrap();
    assert!(is_bad_credential(inside.call(&call(0))));
    inside.call(&Call { auth: Auth::None, ..call(0) }).unwrap();

    // Calls before the probe are answered before TLS starts.
    let mut socket = TcpStream::connect(with.nfs()).unwrap();
    let mut connection = Connection::over(socket.try_clone().unwrap()).unwrap();
    connection.call(&Call { auth: Auth::None, ..call(0) }).unwrap();
    assert_eq!(probe(&mut socket), b"STARTTLS");
    // Anything but a handshake ends the connection, and no call in it is executed.
    socket.write_all(&record_of(&[&call(0).encode(8)])).unwrap();
    connection.ends().unwrap();
}

#[test]
fn new_certificates_are_used_for_new_connections() {
    let (first, second) = (Authority::new(), Authority::new());
    let tls = certificates(&first);
    let fixture = fixture(Some(tls.clone()), TransportSecurity::Tls);
    let old = Tunnel::to(fixture.nfs(), &client_of(&first.file(), None));
    let (mut nfs, root) = mounted(&old).unwrap();
    nfs.getattr(&root).unwrap();
    tls.reload(&certificates(&second));
    nfs.getattr(&root).unwrap();
    let new = Tunnel::to(fixture.nfs(), &client_of(&second.file(), None));
    mounted(&new).unwrap();
    // A client that trusts only the first authority ends the handshake.
    let config = Arc::new(client_of(&first.file(), None));
    let (tls, socket) = start_tls(fixture.nfs(), config);
    let error = rustls::StreamOwned::new(tls, socket).read(&mut [0; 1]).unwrap_err();
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
}

#[test]
fn a_server_without_certificates_refuses_exports_that_need_them() {
    let refusal = |tls, least| {
        let mut config = ServerConfig::default();
        serve_nfs(&mut config, 0);
        config.access.nfs = NfsRules::default().over(least);
        config.tls = tls;
        let limits = MemoryLimits { bytes_max: 1 << 20, object_count_max: 100 };
        let store = Arc::new(MemoryStore::new(limits));
        Server::new(&config, store).err().map(|error| error.to_string())
    };
    let authority = Authority::new();
    let owner = authority.issue("server", &["localhost"], |_| {});
    let unasked = server_of(&owner, ClientCertificates::Unasked, false);
    for (tls, least, advice) in [
        (None, TransportSecurity::Tls, "xprtsec=tls: the server has no certificate"),
        (Some(unasked), TransportSecurity::Mtls, "give --tls-client-ca"),
    ] {
        let text = refusal(tls, least).unwrap();
        assert!(text.contains(advice), "{text}");
    }
}
