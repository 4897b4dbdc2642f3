//! The way of the reply to a call: its connection, and its protection by Kerberos.

use dafs_dat::records::LinkId;
use dafs_gss::Protection;
use dafs_nfs_state::GssHandle;

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
}

impl Route {
    /// Returns the way of a reply that is not protected.
    pub(crate) const fn plain(link: LinkId) -> Self {
        Self { link, seal: None }
    }
}
