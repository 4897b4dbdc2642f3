//! Tests trusted clients: one session that acts for several users.

use dafs_client::{
    ActFor, FenceAccess, FenceObject, FenceUpdate, OpenOptions, Session, SessionOptions,
    SetAttributes, Status,
};
use dafs_server::Peers;
use dafs_store::local::Squash;
use dafs_types::Credentials;

use super::{open_to_all, owner, passwords, try_connect};
use crate::fixture::{Fixture, Transport, far, transports};

/// Starts a server that trusts this user and anonymous clients.
fn trusting(squash: Squash) -> Fixture {
    let fixture = Fixture::with(|config| {
        let uid = rustix::process::getuid().as_raw();
        let principals = vec![format!("uid:{uid}").parse().unwrap(), "anonymous".parse().unwrap()];
        config.access.trusted = vec![Peers { principals, ..Peers::default() }];
        config.access.squash = Some(squash);
    });
    open_to_all(&fixture, "");
    fixture
}

fn make(session: &Session, path: &str) -> Result<(), dafs_client::ClientError> {
    let file = session.open(path, &OpenOptions::write())?;
    file.write_at(b"mine", 0)?;
    file.close()
}

fn id(uid: u32) -> ActFor<'static> {
    ActFor::Id { uid, gid: uid, groups: &[] }
}

#[test]
fn one_session_makes_files_for_several() {
    if !dafs_tests::is_root() {
        return;
    }
    for transport in transports() {
        let fixture = trusting(Squash::Root);
        let session = try_connect(&fixture, transport, &SessionOptions::default()).unwrap();
        let identity = session.identity().unwrap();
        assert!(identity.trusted && identity.credentials_max > 0, "{identity:?}");
        for uid in [5001, 5002] {
            let registered = session.register_credentials(id(uid)).unwrap();
            let acting = session.acting_for(registered);
            let path = format!("/of-{uid}");
            make(&acting, &path).unwrap();
            assert_eq!(owner(&fixture.local(&path[1..])), uid);
            // Others are excluded as on a local file system.
            let mode = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
            acting.set_attributes(&path, &mode).unwrap();
            let other = session.register_credentials(id(uid + 100)).unwrap();
            let refused = session.acting_for(other).open(&path, &OpenOptions::read());
            assert_eq!(refused.err().unwrap().status(), Some(Status::Access));
        }
        // Root is squashed, registered or not.
        let root = session.register_credentials(id(0)).unwrap();
        make(&session.acting_for(root), "/of-root").unwrap();
        assert_eq!(owner(&fixture.local("of-root")), 65_534);
        let nobody = session.register_credentials(ActFor::Default).unwrap();
        make(&session.acting_for(nobody), "/of-nobody").unwrap();
        assert_eq!(owner(&fixture.local("of-nobody")), 65_534);
    }
}

/// System calls interpret -1 as "unchanged", so objects of such a user would remain root's.
#[test]
fn the_number_that_no_user_has_escapes_no_squash() {
    if !dafs_tests::is_root() {
        return;
    }
    let fixture = trusting(Squash::Root);
    let session = try_connect(&fixture, far(), &SessionOptions::default()).unwrap();
    let none = u32::MAX;
    for (uid, gid, groups) in [(none, none, &[][..]), (none, 5001, &[]), (5001, none, &[none])] {
        let registered = session.register_credentials(ActFor::Id { uid, gid, groups });
        assert_eq!(registered.err().unwrap().status(), Some(Status::Inval), "{uid}:{gid}");
    }
    make(&session, "/own").unwrap();
    let found = owner(&fixture.local("own"));
    let owner = Some(none.to_string());
    for changes in [
        SetAttributes { owner: owner.clone(), ..SetAttributes::default() },
        SetAttributes { owner_group: owner, ..SetAttributes::default() },
    ] {
        let set = session.set_attributes("/own", &changes);
        assert_eq!(set.err().unwrap().status(), Some(Status::Inval), "{changes:?}");
    }
    assert_eq!(super::owner(&fixture.local("own")), found);
}

/// Each request of a chain runs as the user it names, concurrently with the session's own requests.
#[test]
fn chains_act_for_others_too() {
    if !dafs_tests::is_root() {
        return;
    }
    for transport in transports() {
        let fixture = trusting(Squash::Root);
        let session = try_connect(&fixture, transport, &SessionOptions::default()).unwrap();
        let registered = session.register_credentials(id(5001)).unwrap();
        let acting = session.acting_for(registered);
        let made = |session: &Session, name: &str| {
            let chain = session.chain().create_dir(name, 0o755).open("f", &OpenOptions::write());
            chain.write_inline(0, b"mine").close().run().unwrap();
            (owner(&fixture.local(name)), owner(&fixture.local(&format!("{name}/f"))))
        };
        assert_eq!(made(&acting, "of-5001"), (5001, 5001));
        let own = made(&session, "own");
        assert!(own.0 == own.1 && own.0 != 5001, "{own:?}");
        // A request with released credentials fails, and so do those after it in the chain.
        session.release_credentials(registered).unwrap();
        let failure = acting.chain().lookup("own").getattr().run().err().unwrap();
        assert_eq!((failure.member, failure.error.status()), (0, Some(Status::NoCreds)));
        session.metadata("/own").unwrap();
    }
}

#[test]
fn trusted_clients_fence_file_systems_for_themselves_alone() {
    let fixture = Fixture::with(|config| {
        // No client is the superuser here, except through the kernel.
        let nobody = Credentials::plain(4711, 4711).unwrap();
        config.sessions.authentication.anonymous = Some(nobody);
        config.access.trusted =
            vec![Peers { principals: vec!["anonymous".parse().unwrap()], ..Peers::default() }];
    });
    let options = SessionOptions::default().fence_id("node1".to_owned());
    let session = try_connect(&fixture, far(), &options).unwrap();
    let fence = |session: &Session| {
        let (whole, allow) = (FenceObject::FileSystem, FenceAccess::Allow);
        session.set_fence("/", whole, allow, FenceUpdate::Overwrite, &["node1"])
    };
    let root = session.register_credentials(id(0)).unwrap();
    let refused = fence(&session.acting_for(root)).err().unwrap();
    assert_eq!(refused.status(), Some(Status::NotAuthorized));
    fence(&session).unwrap();
}

#[test]
fn users_are_known_by_name() {
    if !dafs_tests::is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("passwords");
    passwords(&file, &[("ann", 5001)]);
    let fixture = Fixture::with(|config| {
        config.password_file = Some(file);
        config.access.trusted = vec![Peers::default()];
    });
    open_to_all(&fixture, "");
    let options = SessionOptions::default();
    let session = try_connect(&fixture, far(), &options).unwrap();
    let ann = session.register_credentials(ActFor::User("ann")).unwrap();
    make(&session.acting_for(ann), "/of-ann").unwrap();
    assert_eq!(owner(&fixture.local("of-ann")), 5001);
    let refused = session.register_credentials(ActFor::User("nobody of this name"));
    assert_eq!(refused.err().unwrap().status(), Some(Status::Inval));
    // Without Kerberos, principals are unknown.
    let refused = session.register_credentials(ActFor::Principal("ann@REALM"));
    assert_eq!(refused.err().unwrap().status(), Some(Status::NotSupp));
}

#[test]
fn released_credentials_are_of_no_more_use() {
    let fixture = trusting(Squash::Nobody);
    for transport in transports() {
        let session = try_connect(&fixture, transport, &SessionOptions::default()).unwrap();
        let uid = rustix::process::getuid().as_raw();
        let registered = session.register_credentials(id(uid)).unwrap();
        let acting = session.acting_for(registered);
        let name = format!("/{transport:?}");
        let file = acting.open(&name, &OpenOptions::write()).unwrap();
        session.release_credentials(registered).unwrap();
        let error = acting.metadata(&name).err().unwrap();
        assert_eq!(error.status(), Some(Status::NoCreds));
        let again = session.release_credentials(registered);
        assert_eq!(again.err().unwrap().status(), Some(Status::NoCreds));
        // An open file stays open and belongs to the client.
        file.write_at(b"on and on", 0).unwrap();
        file.close().unwrap();
        session.metadata(&name).unwrap();
    }
}

#[test]
fn who_is_not_trusted_acts_for_nobody_else() {
    let fixture = Fixture::with(|config| {
        let principals = vec!["user:gateway".parse().unwrap()];
        config.access.trusted = vec![Peers { principals, ..Peers::default() }];
    });
    for transport in transports() {
        let session = try_connect(&fixture, transport, &SessionOptions::default()).unwrap();
        let identity = session.identity().unwrap();
        assert!(!identity.trusted && identity.credentials_max == 0, "{identity:?}");
        let refused = session.register_credentials(ActFor::Default).err().unwrap();
        assert_eq!(refused.status(), Some(Status::NotAuthorized));
    }
}

#[test]
fn what_was_registered_goes_with_the_client() {
    let fixture = trusting(Squash::Nobody);
    let client_name = "gateway".to_owned();
    let options = SessionOptions::default().client_name(client_name);
    let first = try_connect(&fixture, Transport::Shm, &options).unwrap();
    let uid = rustix::process::getuid().as_raw();
    let registered = first.register_credentials(id(uid)).unwrap();
    // Another client of the same user does not know the registration.
    let other = try_connect(&fixture, Transport::Shm, &SessionOptions::default()).unwrap();
    let error = other.acting_for(registered).metadata("/").err().unwrap();
    assert_eq!(error.status(), Some(Status::NoCreds));
    first.disconnect().unwrap();
    let again = try_connect(&fixture, Transport::Shm, &options).unwrap();
    let error = again.acting_for(registered).metadata("/").err().unwrap();
    assert_eq!(error.status(), Some(Status::NoCreds));
}
