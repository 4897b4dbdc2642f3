//! The connections of a session (RFC 8881 section 2.10.3 and 18.34).
//!
//! A connection may be bound to many sessions, and a session may have many connections, so that a
//! client can use several addresses of a server or several connections. If a session has too many
//! connections, the one that was used longest ago is unbound. It is bound again when the client
//! uses it.

use dafs_types::Moment;

use super::session::Session;
use super::table::Sessions;
use crate::Nfs4Error;
use crate::keys::SessionKey;
use crate::limits::{CONNECTIONS_PER_SESSION_MAX, SESSIONS_PER_CONNECTION_MAX};
use crate::peer::ConnectionId;

/// A connection that is bound to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    pub connection: ConnectionId,
    pub is_fore: bool,
    pub is_back: bool,
    pub used: Moment,
}

/// The channels that BIND_CONN_TO_SESSION asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindDirection {
    /// The fore channel only.
    Fore,
    /// The back channel only.
    Back,
    /// The fore channel, and also the back channel if the server accepts that.
    ForeOrBoth,
    /// The back channel, and also the fore channel if the server accepts that.
    BackOrBoth,
}

impl BindDirection {
    /// Converts a number of the protocol; `None` if the number is not valid.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Fore),
            2 => Some(Self::Back),
            3 => Some(Self::ForeOrBoth),
            7 => Some(Self::BackOrBoth),
            _ => None,
        }
    }
}

/// The channels that a connection is bound to after BIND_CONN_TO_SESSION.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundDirection {
    /// The fore channel only.
    Fore,
    /// The back channel only.
    Back,
    /// Both channels of the session.
    Both,
}

impl BoundDirection {
    /// Returns the number that stands for this value in the protocol.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Fore => 1,
            Self::Back => 2,
            Self::Both => 3,
        }
    }
}

impl Sessions {
    /// Binds a connection to channels of a session, in addition to those to which it is already
    /// bound. Returns the numbers of connections that the back channel has gained and lost.
    ///
    /// # Errors
    /// CONN_NOT_BOUND_TO_SESSION if the connection is already bound to too many sessions.
    pub(crate) fn bind(
        &mut self,
        key: SessionKey,
        connection: ConnectionId,
        is_fore: bool,
        is_back: bool,
        now: Moment,
    ) -> Result<(u32, u32), Nfs4Error> {
        let session = self.table.get_mut(key.0).ok_or(Nfs4Error::BadSession)?;
        let before = session.back_connections();
        if let Some(bound) = binding_of(session, connection) {
            bound.is_fore |= is_fore;
            bound.is_back |= is_back;
            bound.used = now;
        } else {
            let of_connection = self.by_connection.entry(connection).or_default();
            if of_connection.len() >= SESSIONS_PER_CONNECTION_MAX {
                return Err(Nfs4Error::ConnNotBound);
            }
            of_connection.push(key);
            if session.bindings.len() >= CONNECTIONS_PER_SESSION_MAX {
                let oldest =
                    session.bindings.iter().min_by_key(|bound| (bound.is_back, bound.used));
                if let Some(oldest) = oldest.map(|bound| bound.connection) {
                    session.bindings.retain(|bound| bound.connection != oldest);
                    forget(&mut self.by_connection, oldest, key);
                }
            }
            let session = self.table.get_mut(key.0).ok_or(Nfs4Error::BadSession)?;
            session.bindings.push(Binding { connection, is_fore, is_back, used: now });
        }
        let after = self.table.get(key.0).map_or(0, Session::back_connections);
        Ok((after.saturating_sub(before), before.saturating_sub(after)))
    }

    /// Returns the channels to which a connection would be bound, without binding it.
    ///
    /// # Errors
    /// BADSESSION if there is no such session; INVAL if the connection would no longer be bound to
    /// a channel.
    pub(crate) fn direction(
        &self,
        key: SessionKey,
        connection: ConnectionId,
        ask: BindDirection,
    ) -> Result<(bool, bool), Nfs4Error> {
        let session = self.table.get(key.0).ok_or(Nfs4Error::BadSession)?;
        let bound = session.bindings.iter().find(|bound| bound.connection == connection);
        let can_call_back = session.callbacks.is_some();
        let (had_fore, had_back) = bound.map_or((false, false), |b| (b.is_fore, b.is_back));
        let (is_fore, is_back) = match ask {
            BindDirection::Fore => (true, false),
            BindDirection::Back => (false, true),
            BindDirection::ForeOrBoth => (true, had_back || can_call_back && session.wants_back),
            // A connection of a client that has reconnected is already bound to the fore channel.
            // It may be bound to the back channel, too, although the RFC lets the server refuse any
            // change.
            BindDirection::BackOrBoth => (true, true),
        };
        if had_fore && !is_fore || had_back && !is_back || is_back && !can_call_back {
            return Err(Nfs4Error::Inval);
        }
        Ok((is_fore, is_back))
    }

    /// Unbinds a connection from all sessions. Returns the sessions whose back channel used it.
    pub(crate) fn unbind(&mut self, connection: ConnectionId) -> Vec<SessionKey> {
        let mut back = Vec::new();
        for key in self.by_connection.remove(&connection).unwrap_or_default() {
            let Some(session) = self.table.get_mut(key.0) else { continue };
            if binding_of(session, connection).is_some_and(|bound| bound.is_back) {
                back.push(key);
            }
            session.bindings.retain(|bound| bound.connection != connection);
        }
        back
    }

    /// Returns true if the connection is bound to a channel of the session.
    pub(crate) fn is_bound(&self, key: SessionKey, connection: ConnectionId) -> bool {
        let session = self.table.get(key.0);
        session.is_some_and(|s| s.bindings.iter().any(|bound| bound.connection == connection))
    }

    /// Records the time at which a connection was used. Returns true if the connection is bound to
    /// the session's fore channel.
    #[inline]
    pub(crate) fn touch(&mut self, key: SessionKey, connection: ConnectionId, now: Moment) -> bool {
        let session = self.table.get_mut(key.0);
        match session.and_then(|session| binding_of(session, connection)) {
            Some(bound) if bound.is_fore => {
                bound.used = now;
                true
            }
            _ => false,
        }
    }
}

fn binding_of(session: &mut Session, connection: ConnectionId) -> Option<&mut Binding> {
    session.bindings.iter_mut().find(|bound| bound.connection == connection)
}

pub(super) fn forget(
    by_connection: &mut super::table::ByConnection,
    connection: ConnectionId,
    key: SessionKey,
) {
    if let Some(sessions) = by_connection.get_mut(&connection) {
        sessions.retain(|session| *session != key);
        if sessions.is_empty() {
            by_connection.remove(&connection);
        }
    }
}
