//! The two sides as the scenarios use them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dafs_gss::{
    Acceptor, Context, Credential, CredentialSource, GssError, Initiator, Library, Reason, Service,
    ServiceOptions, Step,
};

use crate::realm::Realm;

/// The service, as clients name it.
pub const SERVICE: &str = "dafs@server.dafs.test";

/// The library, which must be there if the centre is.
pub fn library() -> Arc<Library> {
    Library::load().unwrap()
}

/// A realm with alice, who has a ticket, and a service with a keytab.
pub fn populate(realm: &Realm) -> PathBuf {
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

/// The service with a keytab.
pub fn service(keytab: &Path) -> Arc<Service> {
    let options = ServiceOptions {
        name: Some(SERVICE.parse().unwrap()),
        keytab: Some(keytab.to_path_buf()),
        replay_cache: None,
    };
    Arc::new(Service::acquire(&library(), &options).unwrap())
}

/// Whoever has tickets in the default cache.
pub fn client() -> Arc<Credential> {
    Arc::new(Credential::acquire(&library(), &CredentialSource::Default).unwrap())
}

/// A client's first token for a service.
pub fn call(credential: &Arc<Credential>, target: &str) -> Result<(Initiator, Vec<u8>), GssError> {
    opened(Initiator::new(Arc::clone(credential), &target.parse().unwrap())?)
}

/// An initiator's first token.
pub fn opened(initiator: Initiator) -> Result<(Initiator, Vec<u8>), GssError> {
    match initiator.step(None)? {
        Step::Continue { party, token } => Ok((party, token)),
        Step::Done { .. } => panic!("mutual authentication takes two tokens"),
    }
}

/// What a service makes of a client's token: its context and its reply.
pub fn answer(acceptor: Acceptor, token: &[u8]) -> Result<(Context, Vec<u8>), GssError> {
    match acceptor.step(token)? {
        Step::Done { context, token } => Ok((context, token.unwrap())),
        Step::Continue { .. } => panic!("Kerberos is accepted with one token"),
    }
}

/// Ends a client's way with the service's reply.
pub fn close(initiator: Initiator, reply: &[u8]) -> Result<Context, GssError> {
    match initiator.step(Some(reply))? {
        Step::Done { context, token: None } => Ok(context),
        other => panic!("the client has nothing more to say: {other:?}"),
    }
}

/// Both sides' contexts: the client's and the service's.
pub fn meet(credential: &Arc<Credential>, service: &Arc<Service>) -> (Context, Context) {
    let (initiator, token) = call(credential, SERVICE).unwrap();
    let (accepted, reply) = answer(Acceptor::new(Arc::clone(service)), &token).unwrap();
    (close(initiator, &reply).unwrap(), accepted)
}

/// The reason of what must fail.
#[track_caller]
pub fn reason<T>(outcome: Result<T, GssError>) -> Reason {
    match outcome {
        Ok(_) => panic!("it was accepted"),
        Err(error) => {
            println!("{error} (major {:#x}, minor {:#x})", error.major(), error.minor());
            assert!(error.major() != 0, "a failure has a status");
            error.reason()
        }
    }
}
