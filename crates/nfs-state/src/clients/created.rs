//! The result of a client's last successful CREATE_SESSION.

use crate::keys::SessionId4;
use crate::peer::Principal;
use crate::sessions::ChannelAttributes;

/// The result of CREATE_SESSION. The server returns the same result if the client repeats the
/// request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedSession {
    /// The id of the session.
    pub session: SessionId4,
    /// The sequence number of the CREATE_SESSION.
    pub sequence: u32,
    /// The flags of the session, see [`create_flags`].
    ///
    /// [`create_flags`]: crate::create_flags
    pub flags: u32,
    /// The attributes of the fore channel.
    pub fore: ChannelAttributes,
    /// The attributes of the back channel.
    pub back: ChannelAttributes,
    /// The principal that sent the request.
    pub(crate) creator: Principal,
}
