//! The two sides of the scenarios.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dafs_gss::{
    Acceptor, Context, Credential, CredentialSource, GssError, Initiator, Library, Reason, Service,
    ServiceOptions, Step,
};

use crate::realm::Realm;

/// The service's name for clients.
pub(crate) const SERVICE: &str = "dafs@server.dafs.test";

/// Returns the library, which must be present if the center is.
pub(crate) fn library() -> Arc<Library> {
    Library::load().unwrap()
}

/// Adds alice, who has a ticket, and a service with a keytab. Returns the keytab's path.
pub(crate) fn populate(realm: &Realm) -> PathBuf {
    let keytab = realm.path("service.keytab");
    realm.administer(&format!(
        "addprinc -pw wonderland alice\n\
         addprinc -randkey dafs/server.dafs.test\n\
         ktadd -k {} dafs/server.dafs.test\n",
        keytab.display()
    ));
    realm.ticket("alice", "wonderland", &realm.path("default.cache"), &[]);
    keytab
}

/// Returns the service with a keytab.
pub(crate) fn service(keytab: &Path) -> Arc<Service> {
    let options = ServiceOptions {
        name: Some(SERVICE.parse().unwrap()),
        keytab: Some(keytab.to_path_buf()),
        replay_cache: None,
    };
    Arc::new(Service::acquire(&library(), &options).unwrap())
}

/// Returns the credential of the default cache.
pub(crate) fn client() -> Arc<Credential> {
    Arc::new(Credential::acquire(&library(), &CredentialSource::Default).unwrap())
}

/// Returns a client's first token for a service.
pub(crate) fn call(
    credential: &Arc<Credential>,
    target: &str,
) -> Result<(Initiator, Vec<u8>), GssError> {
    opened(Initiator::new(Arc::clone(credential), &target.parse().unwrap())?)
}

/// Returns an initiator's first token.
pub(crate) fn opened(initiator: Initiator) -> Result<(Initiator, Vec<u8>), GssError> {
    match initiator.step(None)? {
        Step::Continue { party, token } => Ok((party, token)),
        Step::Done { .. } => panic!("mutual authentication takes two tokens"),
    }
}

/// Returns the service's context and reply for a client's token.
pub(crate) fn answer(acceptor: Acceptor, token: &[u8]) -> Result<(Context, Vec<u8>), GssError> {
    match acceptor.step(token)? {
        Step::Done { context, token } => Ok((context, token.unwrap())),
        Step::Continue { .. } => panic!("Kerberos is accepted with one token"),
    }
}

/// Completes a client's authentication with the service's reply.
pub(crate) fn close(initiator: Initiator, reply: &[u8]) -> Result<Context, GssError> {
    match initiator.step(Some(reply))? {
        Step::Done { context, token: None } => Ok(context),
        other => panic!("the client has nothing more to say: {other:?}"),
    }
}

/// Returns the contexts of both sides: the client's and the service's.
pub(crate) fn meet(credential: &Arc<Credential>, service: &Arc<Service>) -> (Context, Context) {
    let (initiator, token) = call(credential, SERVICE).unwrap();
    let (accepted, reply) = answer(Acceptor::new(Arc::clone(service)), &token).unwrap();
    (close(initiator, &reply).unwrap(), accepted)
}

/// Returns the reason of a call that must fail.
#[track_caller]
pub(crate) fn reason<T>(outcome: Result<T, GssError>) -> Reason {
    match outcome {
        Ok(_) => panic!("it was accepted"),
        Err(error) => {
            println!("{error} (major {:#x}, minor {:#x})", error.major(), error.minor());
            assert!(error.major() != 0, "a failure has a status");
            error.reason()
        }
    }
}
