//! The way of the reply to a call: its connection, its protection by Kerberos, and what is noted
//! about the call for statistics.

use dafs_dat::records::LinkId;
use dafs_gss::Protection;
use dafs_nfs_state::GssHandle;

use crate::meter::call::CallNote;

/// The protection of one call and of its reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seal {
    /// The context of the call.
    pub context: GssHandle,
    /// The sequence number of the call.
    pub sequence: u32,
    /// The protection of arguments and results.
    pub protection: Protection,
}

/// The way that the reply to a call takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// The connection on which the call has arrived.
    pub link: LinkId,
    /// The protection of the reply. `None` for a call without a context.
    pub seal: Option<Seal>,
    /// What is noted about the call for statistics.
    pub note: CallNote,
}

impl Route {
    /// Returns the way of a reply that is not protected.
    pub(crate) fn plain(link: LinkId) -> Self {
        Self { link, seal: None, note: CallNote::default() }
    }

    /// Returns the way of a reply that Kerberos protects.
    pub(crate) fn sealed(link: LinkId, seal: Seal) -> Self {
        Self { seal: Some(seal), ..Self::plain(link) }
    }
}
