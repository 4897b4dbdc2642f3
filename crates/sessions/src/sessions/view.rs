//! Describes sessions for an operator.
//!
//! Invariant: a view is a copy of the state.

use dafs_filer::Filer;
use dafs_types::{ClientId, Moment};

use super::Sessions;
use crate::CreditView;

/// A description of one authenticated session and its operation channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// The id of the session's client.
    pub client: ClientId,
    /// The client id string that the client has given itself.
    pub client_name: Box<[u8]>,
    /// The principal that the client authenticated as, as text.
    pub principal: String,
    /// The session's fence identity. Empty if the session has none.
    pub fence_id: String,
    /// The number of opens that the client has, in all its sessions.
    pub opens: u32,
    /// True if the session's replies are stored, so that they can be fetched after its connection
    /// is lost.
    pub keeps_results: bool,
    /// True if the session has a back-control channel for the server's requests.
    pub has_back_control: bool,
    /// The time at which the last message from the client arrived.
    pub last_heard: Moment,
    /// The session's credits, and the limit that keeps it from having more.
    pub credits: CreditView,
}

impl Sessions {
    /// Iterates over all authenticated sessions.
    pub fn views<'a>(&'a self, filer: &'a Filer) -> impl Iterator<Item = SessionView> + 'a {
        self.hot.iter().zip(&self.cold).filter_map(|(hot, cold)| {
            let session = cold.as_ref()?.session.as_ref()?;
            if !hot.phase.has_session() {
                return None;
            }
            let client = filer.client_view(hot.client)?;
            Some(SessionView {
                client: client.id,
                client_name: client.name.into(),
                principal: String::from_utf8_lossy(client.principal).into_owned(),
                fence_id: filer.identity(session.fence)?.as_str().to_owned(),
                opens: client.opens,
                keeps_results: hot.kept.is_some(),
                has_back_control: session.back_control.is_some(),
                last_heard: hot.last_heard,
                credits: hot.window.view(session.id),
            })
        })
    }
}
