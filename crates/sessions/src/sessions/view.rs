//! Sessions as an operator sees them.
//!
//! Invariant: a view is a copy; looking changes nothing.

use dafs_filer::Filer;
use dafs_types::{ClientId, Moment};

use super::Sessions;
use crate::CreditView;

/// One authenticated session, with its operation channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// The client's record here.
    pub client: ClientId,
    /// The client's name for itself.
    pub client_name: Box<[u8]>,
    /// As whom it authenticated, for people.
    pub principal: String,
    /// Its fence identity; empty for none.
    pub fence_id: String,
    /// Opens of the client, by all its sessions.
    pub opens: u32,
    /// Its results outlive its connection.
    pub keeps_results: bool,
    /// It has a channel for the server's requests.
    pub has_back_control: bool,
    /// When it was heard of last.
    pub last_heard: Moment,
    /// Its credits, and what limits them.
    pub credits: CreditView,
}

impl Sessions {
    /// Every session.
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
