//! Turns Kerberos tickets into tokens, one for each channel of each session of a client (draft
//! 3.1.1.1.1, 6.2.2; `docs/decisions/0012-kerberos.md`).
//!
//! Invariant: a token is bound to the session and the channel that it was made for, and the reply
//! to the token is accepted only if it authenticates the server.

use std::sync::Arc;

use dafs_gss::{Context, Credential, GssError, Initiator, Library, ServiceName, Step};
use dafs_types::{ClientId, SessionId, Status};
use dafs_wire::messages::{AuthRequest, AuthResult, GssProcedure, GssService};

use crate::error::ClientError;
use crate::features::without_kerberos;
use crate::login::identity::Tickets;

/// The tickets that authenticate a client, and the service that they are for.
#[derive(Clone, Debug)]
pub(crate) struct Prover {
    pub tickets: Tickets,
    pub service: ServiceName,
}

/// The session and channel that a token is bound to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding {
    pub session: SessionId,
    pub client: ClientId,
    /// The channel's number: 0 for the operation channel.
    pub channel: u8,
}

/// An authentication that failed.
#[derive(Debug)]
pub(crate) struct AuthFailure {
    pub reason: String,
    /// The status in the server's reply, if the server refused the authentication.
    pub status: Option<Status>,
}

/// The next step after the reply to a token was processed.
pub(crate) enum AuthStep {
    /// The client must send another token.
    Token(Initiator, Vec<u8>),
    Proved(Context),
}

impl Prover {
    /// Creates the first token for a channel. Blocks: reads files, and asks a key distribution
    /// centre for missing tickets.
    pub(crate) fn begin(&self, binding: Binding) -> Result<(Initiator, Vec<u8>), AuthFailure> {
        let credential = self.tickets.find().map_err(AuthFailure::here)?;
        let initiator = Initiator::new(credential, &self.service).map_err(|e| self.failed(&e))?;
        let step = initiator.bound_to(&binding.bytes()).step(None);
        match step.map_err(|error| self.failed(&error))? {
            Step::Continue { party, token } => Ok((party, token)),
            // The first step always has a token to send.
            Step::Done { .. } => Err(AuthFailure::here("the mechanism returned no token".into())),
        }
    }

    /// Processes the reply to a token; `result` is the part of the reply after its status.
    pub(crate) fn process_reply(
        &self,
        party: Initiator,
        status: Status,
        result: Option<&AuthResult<'_>>,
    ) -> Result<AuthStep, AuthFailure> {
        let (major, theirs) = match result {
            Some(AuthResult::Gss { major, token, .. }) => (*major, *token),
            _ => (0, &[][..]),
        };
        let senseless = || AuthFailure::here("its reply to a token is invalid".into());
        match status {
            Status::Ok => match party.step(Some(theirs)).map_err(|error| self.failed(&error))? {
                Step::Done { context, token: None } => Ok(AuthStep::Proved(context)),
                Step::Done { .. } | Step::Continue { .. } => Err(senseless()),
            },
            Status::GssContinueInit => {
                match party.step(Some(theirs)).map_err(|error| self.failed(&error))? {
                    Step::Continue { party, token } => Ok(AuthStep::Token(party, token)),
                    // The last step has nothing to send.
                    Step::Done { .. } => Err(senseless()),
                }
            }
            status => {
                let reason = match theirs {
                    [] => refusal(status, major).to_owned(),
                    // This token is not signed and proves nothing, but it helps an honest client to
                    // find the error.
                    token => match party.step(Some(token)) {
                        Err(error) => error.to_string(),
                        Ok(_) => refusal(status, major).to_owned(),
                    },
                };
                Err(AuthFailure { reason, status: Some(status) })
            }
        }
    }

    fn failed(&self, error: &GssError) -> AuthFailure {
        AuthFailure::here(format!("{error} (as a client of {})", self.service))
    }
}

impl Binding {
    /// Returns the bytes that both sides hash for the channel binding.
    fn bytes(self) -> Vec<u8> {
        let mut bytes = b"dafs1".to_vec();
        bytes.extend_from_slice(&self.session.0.to_le_bytes());
        bytes.extend_from_slice(&self.client.0.to_le_bytes());
        bytes.push(self.channel);
        bytes
    }
}

impl AuthFailure {
    /// Creates a failure that was detected by this client.
    pub(crate) fn here(reason: String) -> Self {
        Self { reason, status: None }
    }

    pub(crate) fn at(self, address: &str) -> ClientError {
        let Self { reason, status } = self;
        ClientError::Kerberos { address: address.to_owned(), reason, status }
    }
}

impl Tickets {
    /// Finds the tickets. Blocks: reads files, and with a keytab asks a key distribution centre.
    pub(crate) fn find(&self) -> Result<Arc<Credential>, String> {
        if let Some(reason) = without_kerberos() {
            return Err(reason);
        }
        let library = Library::load().map_err(|error| error.to_string())?;
        let credential = Credential::acquire(&library, &self.source);
        credential.map(Arc::new).map_err(|error| error.to_string())
    }
}

/// Returns the authentication fields for a token, or an error if the request would exceed `room`
/// bytes.
pub(crate) fn token_request(
    procedure: GssProcedure,
    token: &[u8],
    room: u32,
) -> Result<AuthRequest<'_>, AuthFailure> {
    if token.len() + TOKEN_ROOM > room as usize {
        return Err(AuthFailure::here(format!(
            "the ticket needs a token of {} bytes, but the server accepts requests of {room} \
             (max-token in [kerberos]); users in fewer groups have smaller tickets",
            token.len()
        )));
    }
    Ok(AuthRequest::Gss { procedure, service: GssService::Authentication, token })
}

/// Returns a likely reason for a refusal that the server did not explain.
fn refusal(status: Status, major: u32) -> &'static str {
    match (status, major) {
        (Status::NotAuthorized, UNAUTHORIZED) => {
            "the server authenticated you, but has no user or no rule for you; see its log"
        }
        (Status::NotAuthorized, 0) => "a rule of the server excludes you; see its log",
        (Status::NotAuthorized, _) => "the server refuses the ticket; see its log",
        (Status::NotSupp, _) => "the server does not offer it",
        (Status::ServerFault, _) => "the server cannot use its own keys; see its log",
        (Status::Inval, _) => "the server cannot read the token",
        (Status::ClidInUse, _) => "another principal uses this client's name",
        _ => "the server refused; see its log",
    }
}

/// The GSS-API major status GSS_S_UNAUTHORIZED.
const UNAUTHORIZED: u32 = 15 << 16;

/// The size in bytes of a request without its token: header, fixed section and count.
pub(crate) const TOKEN_ROOM: usize = 128;

/// The number of the operation channel in token bindings.
pub(crate) const OPERATION_CHANNEL: u8 = 0;

pub(crate) const BACK_CONTROL_CHANNEL: u8 = 1;
