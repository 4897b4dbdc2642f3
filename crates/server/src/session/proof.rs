//! The identity that a client has proved, what the access rules allow for this identity, and the
//! reply.

use std::sync::Arc;

use dafs_files::caller::View;
use dafs_sessions::{ChannelId, Negotiated, Sessions, Verified};
use dafs_types::{AuthType, ClientId, Credentials, Moment, SessionId, Status};
use dafs_wire::Response;
use dafs_wire::messages::{
    AuthMethod, AuthResult, ClientAuthResult, ClientConnectAuthResult, SessionOptions,
};

use super::{Proof, Purpose, options};
use crate::access::authorize::PeerFacts;
use crate::access::entrance::Entrance;
use crate::access::{gss, rule_text};

impl Proof {
    /// Returns the identity that the authentication request claims, after checking the claim.
    pub(super) fn of(
        sessions: &Sessions,
        id: ChannelId,
        credentials: Credentials,
        how: AuthType,
    ) -> Result<Self, Status> {
        let principal = sessions.principal(id).cloned().ok_or(Status::IllegalState)?;
        Ok(Self { principal, credentials, how, lifetime: None })
    }

    /// Applies the access rules. Returns the verified identity and its view of the store.
    pub(super) fn apply_rules(
        self,
        entrance: &mut Entrance,
        peer: &PeerFacts,
        now: Moment,
    ) -> Result<(Verified, Arc<View>), Status> {
        let Self { principal, credentials: who, how, lifetime } = self;
        let verdict = match entrance.judge(peer, &principal, how) {
            Ok(verdict) => verdict,
            Err(refusal) => {
                let by = rule_text::named(how);
                tracing::warn!(%principal, from = %peer, by, %refusal, "refused by access rules");
                return Err(Status::NotAuthorized);
            }
        };
        let view = entrance.view(verdict.terms);
        let expires = lifetime.map(|lifetime| now.after(lifetime));
        let principal = Some(principal);
        Ok((Verified { who, principal, trusted: verdict.trusted, expires }, view))
    }
}

/// Returns the results of an authentication, in the form of the request that contained it.
/// `granted` contains the values that were negotiated for the session, if there is a session.
pub(super) fn login_response<'r>(
    purpose: &Purpose,
    is_refusal: bool,
    granted: Option<&Negotiated>,
    authentication: AuthResult<'r>,
    trusted: bool,
) -> Response<'r> {
    match purpose {
        Purpose::Session => Response::ClientAuth(ClientAuthResult { authentication, trusted }),
        Purpose::Connected(results) if !is_refusal => {
            Response::ClientConnectAuth(ClientConnectAuthResult {
                session: results.session_id,
                client: results.client_id,
                options: options(granted.unwrap_or(&results.granted)),
                authentication,
                trusted,
            })
        }
        // The request has failed, so there is no session id to report.
        Purpose::Connected(_) => Response::ClientConnectAuth(ClientConnectAuthResult {
            session: SessionId(0),
            client: ClientId(0),
            options: SessionOptions::default(),
            authentication,
            trusted,
        }),
        Purpose::Channel(_, sizes) => Response::ConnectBind(sizes.result(authentication, trusted)),
    }
}

/// Returns the methods of authentication for the results of SECINFO.
pub(super) fn auth_methods(kinds: &[AuthType]) -> Vec<AuthMethod<'static>> {
    let method = |kind: &AuthType| match kind {
        AuthType::None => AuthMethod::None,
        AuthType::Text => AuthMethod::Text,
        AuthType::Default => AuthMethod::Default,
        AuthType::Gss => gss::method(),
    };
    kinds.iter().map(method).collect()
}
