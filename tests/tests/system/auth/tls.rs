//! Tests TLS in rules: what a certificate proves, and what its absence means.

use dafs_client::{ClientError, Login, Session, SessionOptions, Status, TlsClient, TlsClientFiles};
use dafs_dat::ClientCertificates;
use dafs_server::{ConnectRule, Peers, TransportKind};
use dafs_types::AuthType;

use super::{passwords, try_connect};
use crate::certificates::{Authority, server_of};
use crate::fixture::{Fixture, Transport};

/// Returns options for TLS with a certificate for a name, or without one.
fn by_tls(authority: &Authority, owner: Option<&str>) -> SessionOptions {
    let identity = owner.map(|owner| authority.issue(owner, &[], |_| {}));
    let files = TlsClientFiles::new(authority.file()).identity(identity);
    let tls = Some(TlsClient::load(&files).unwrap());
    SessionOptions::default().tls(tls)
}

fn with_password(options: SessionOptions, password: &str) -> SessionOptions {
    let (user, password) = ("ann".to_owned(), password.to_owned());
    options.login(Login::Password { user, password })
}

fn status(outcome: Result<Session, ClientError>) -> Option<Status> {
    outcome.err().unwrap().status()
}

/// A client with the gateway's certificate is admitted and may act for others. With a password
/// every client is admitted, but not in clear text.
#[test]
fn a_certificate_lets_in_and_a_secret_line_can_be_demanded() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("passwords");
    passwords(&file, &[("ann", 5001)]);
    let gateway =
        Peers { principals: vec!["certificate:gateway".parse().unwrap()], ..Peers::default() };
    let secretly = Peers {
        transports: vec![TransportKind::Tls],
        authentication: vec![AuthType::Text],
        ..Peers::default()
    };
    let fixture = Fixture::with(|config| {
        let owner = authority.issue("server", &["127.0.0.1"], |_| {});
        let clients = ClientCertificates::Optional(authority.file());
        config.tls = Some(server_of(&owner, clients, false));
        config.password_file = Some(file);
        config.access.trusted = vec![gateway.clone()];
        config.access.connect = vec![
            ConnectRule { allow: true, peers: gateway },
            ConnectRule { allow: true, peers: secretly },
        ];
    });
    let connect = |options| try_connect(&fixture, Transport::Tcp, &options);
    let session = connect(by_tls(&authority, Some("gateway"))).unwrap();
    assert!(session.identity().unwrap().trusted);
    // Another name of the same authority, and no certificate.
    for owner in [Some("gateway2"), None] {
        assert_eq!(status(connect(by_tls(&authority, owner))), Some(Status::NotAuthorized));
        let options = with_password(by_tls(&authority, owner), "ann");
        let session = connect(options).unwrap();
        assert!(!session.identity().unwrap().trusted);
        let options = with_password(by_tls(&authority, owner), "wrong");
        assert_eq!(status(connect(options)), Some(Status::NotAuthorized));
    }
    // The right password in clear text.
    let in_clear = with_password(SessionOptions::default(), "ann");
    assert_eq!(status(connect(in_clear)), Some(Status::NotAuthorized));
    // A certificate of another authority is not accepted.
    let mut stranger = by_tls(&Authority::new(), Some("gateway"));
    assert_eq!(status(connect(stranger.clone())), None, "the server is not proved to it");
    let other = Authority::new();
    let identity = Some(other.issue("gateway", &[], |_| {}));
    let files = TlsClientFiles::new(authority.file()).identity(identity);
    stranger.tls = Some(TlsClient::load(&files).unwrap());
    assert!(connect(stranger).is_err());
}

#[test]
fn a_server_by_tls_alone_says_so_to_plain_clients() {
    let authority = Authority::new();
    let fixture = Fixture::with(|config| config.tls = Some(authority.server(true)));
    let refused = try_connect(&fixture, Transport::Tcp, &SessionOptions::default());
    let text = refused.err().unwrap().to_string();
    assert!(text.contains("TLS") && text.contains("dafs+tls"), "{text}");
    let options = by_tls(&authority, Some("client"));
    try_connect(&fixture, Transport::Tcp, &options).unwrap().ping().unwrap();
}
