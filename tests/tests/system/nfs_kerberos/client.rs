//! A client of RPCSEC_GSS (RFC 2203), which can also send wrong messages.

use std::net::SocketAddr;
use std::sync::Arc;

use dafs_gss::{Context, Credential, CredentialSource, Initiator, Library, Protection, Step};
use dafs_nfs_suite::fault::Fault;
use dafs_nfs_suite::rpc::{Auth, Call, Connection, results_of};
use dafs_nfs_suite::xdr::{Get, Put};

/// The name of the NFS service for clients.
pub(super) const SERVICE: &str = "nfs@server.dafs.test";
/// The number of the flavor RPCSEC_GSS.
pub(super) const GSS: u32 = 6;
/// The purposes of calls (RFC 2203 section 5).
const DATA: u32 = 0;
const INIT: u32 = 1;
pub(super) const DESTROY: u32 = 3;
/// The program NFS.
pub(super) const NFS: u32 = 100_003;

/// A connection with a context.
pub(super) struct Kerberized {
    pub connection: Connection,
    pub context: Context,
    pub handle: Vec<u8>,
    /// The sequence number of the last call.
    pub sequence: u32,
    pub protection: Protection,
    /// The number of calls that the server allows in flight.
    pub window: u32,
}

/// The body of a credential.
pub(super) fn credential(procedure: u32, sequence: u32, service: u32, handle: &[u8]) -> Vec<u8> {
    Put::new().u32(1).u32(procedure).u32(sequence).u32(service).opaque(handle).0
}

/// The number of a protection in credentials.
pub(super) fn service_of(protection: Protection) -> u32 {
    match protection {
        Protection::Authentication => 1,
        Protection::Integrity => 2,
        Protection::Privacy => 3,
    }
}

/// Returns a ticket's token for the NFS service.
pub(super) fn first_token(source: &CredentialSource) -> (Initiator, Vec<u8>) {
    let library = Library::load().unwrap();
    let credential = Arc::new(Credential::acquire(&library, source).unwrap());
    let initiator = Initiator::new(credential, &SERVICE.parse().unwrap()).unwrap();
    match initiator.without_order().step(None).unwrap() {
        Step::Continue { party, token } => (party, token),
        Step::Done { .. } => panic!("mutual authentication takes two tokens"),
    }
}

/// Returns the call that begins a context.
pub(super) fn init_call(token: &[u8]) -> Call {
    let auth = Auth::Raw(GSS, credential(INIT, 0, 1, &[]));
    Call::new(NFS, 3, 0, &auth, Put::new().opaque(token).0)
}

impl Kerberized {
    /// Connects, and creates a context with the tickets of a source.
    pub(super) fn connect(
        server: SocketAddr,
        source: &CredentialSource,
        protection: Protection,
    ) -> Self {
        let (initiator, token) = first_token(source);
        let mut connection = Connection::open(server).unwrap();
        let xid = connection.send(&init_call(&token)).unwrap();
        let reply = connection.reply(xid).unwrap();
        let results = results_of(&reply).unwrap();
        let mut get = Get(results);
        let handle = get.opaque().unwrap();
        assert_eq!((get.u32().unwrap(), get.u32().unwrap()), (0, 0), "the context is complete");
        let window = get.u32().unwrap();
        let token = get.opaque().unwrap();
        get.finish().unwrap();
        let Step::Done { context, .. } = initiator.step(Some(&token)).unwrap() else {
            panic!("the client has nothing more to say");
        };
        let mut context = context.without_order();
        // The server proves that it has the context, and that the window is its own.
        context.verify_mic(&window.to_be_bytes(), &verifier_of(&reply)).unwrap();
        assert!(handle.len() >= 16 && window > 0);
        Self { connection, context, handle, sequence: 0, protection, window }
    }

    /// Connects with the default tickets.
    pub(super) fn default(server: SocketAddr, protection: Protection) -> Self {
        Self::connect(server, &CredentialSource::Default, protection)
    }

    /// Returns a call with the next sequence number.
    pub(super) fn prepare(&mut self, target: (u32, u32, u32), arguments: &[u8]) -> Vec<u8> {
        self.sequence += 1;
        let xid = self.connection.xid();
        self.encode(xid, self.sequence, DATA, target, arguments)
    }

    /// Encodes a call.
    pub(super) fn encode(
        &mut self,
        xid: u32,
        sequence: u32,
        procedure: u32,
        (program, version, number): (u32, u32, u32),
        arguments: &[u8],
    ) -> Vec<u8> {
        let credential = credential(procedure, sequence, service_of(self.protection), &self.handle);
        let header = Put::new().u32(xid).u32(0).u32(2).u32(program).u32(version).u32(number);
        let header = header.u32(GSS).opaque(credential).0;
        let mic = self.context.get_mic(&header).unwrap();
        let numbered = Put::new().u32(sequence).raw(arguments).0;
        let put = Put(header).u32(GSS).opaque(mic);
        match self.protection {
            Protection::Authentication => put.raw(arguments).0,
            Protection::Integrity => {
                let mic = self.context.get_mic(&numbered).unwrap();
                put.opaque(&numbered).opaque(mic).0
            }
            Protection::Privacy => {
                put.opaque(self.context.wrap(Protection::Privacy, &numbered).unwrap()).0
            }
        }
    }

    /// Receives the reply to the call with the last sequence number. Returns the results.
    pub(super) fn results(&mut self, xid: u32) -> Result<Vec<u8>, Fault> {
        let reply = self.connection.reply(xid)?;
        self.open(&reply, self.sequence)
    }

    /// Checks and opens a reply.
    pub(super) fn open(&mut self, reply: &[u8], sequence: u32) -> Result<Vec<u8>, Fault> {
        let is_accepted = reply[8..12] == [0; 4];
        if is_accepted {
            let verifier = verifier_of(reply);
            let numbered = sequence.to_be_bytes();
            self.context.verify_mic(&numbered, &verifier).expect("the verifier of the reply");
        }
        let body = results_of(reply)?;
        let opened = match self.protection {
            Protection::Authentication => return Ok(body.to_vec()),
            Protection::Integrity => {
                let mut get = Get(body);
                let (opened, mic) = (get.opaque()?, get.opaque()?);
                get.finish()?;
                self.context.verify_mic(&opened, &mic).expect("the checksum of the results");
                opened
            }
            Protection::Privacy => {
                let wrapped = Get(body).opaque()?;
                self.context.unwrap(Protection::Privacy, &wrapped).expect("the results")
            }
        };
        assert_eq!(opened[..4], sequence.to_be_bytes(), "the sequence number of the results");
        Ok(opened[4..].to_vec())
    }

    /// Calls a procedure. Returns the results.
    pub(super) fn call(
        &mut self,
        target: (u32, u32, u32),
        arguments: &[u8],
    ) -> Result<Vec<u8>, Fault> {
        let record = self.prepare(target, arguments);
        self.connection.send_record(&record)?;
        self.results(xid_of(&record))
    }
}

/// Returns the number of a call or reply.
pub(super) fn xid_of(record: &[u8]) -> u32 {
    u32::from_be_bytes(record[..4].try_into().unwrap())
}

/// Returns the verifier of a reply to an accepted call.
pub(super) fn verifier_of(reply: &[u8]) -> Vec<u8> {
    let mut get = Get(&reply[12..]);
    assert_eq!(get.u32().unwrap(), GSS, "the flavor of the verifier");
    get.opaque().unwrap()
}

/// Returns the reason for which a call was denied.
#[track_caller]
pub(super) fn denied<T>(outcome: Result<T, Fault>) -> u32 {
    match outcome {
        Err(Fault::Denied { status: 1, detail }) => detail[0],
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("the call was executed"),
    }
}
