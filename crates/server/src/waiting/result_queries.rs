//! Recovery of a broken session: CHECK_RESPONSE, FETCH_RESPONSE, DISCARD_RESPONSES (draft 5.2,
//! 6.3).
//!
//! Invariants:
//! - A result is stored before its reply is sent.
//! - A query about a session gets its reply when no request of that session is in progress.

use dafs_sessions::{ReplyQuery, RequestName, Sessions};
use dafs_types::Status;
use dafs_wire::messages::{CachedResponse, FetchedResults};
use dafs_wire::{
    ByteOrder, HEADER_BYTES, Procedure, Response, ResponseHeader, decode_response, encode_response,
};

use crate::channel::Channels;
use crate::reply_to::{ReplyTo, blank};

/// A query for the stored result of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResultQuery {
    pub to: ReplyTo,
    pub about: CachedResponse,
    /// True for FETCH_RESPONSE, false for CHECK_RESPONSE.
    pub wants_result: bool,
}

/// Queries that wait for a session to become idle.
#[derive(Debug, Default)]
pub(super) struct ResultQueries {
    waiting: Vec<ResultQuery>,
}

/// A stored result, as it was encoded for the session.
pub(super) struct Found {
    pub status: Status,
    procedure: u32,
    bytes: Vec<u8>,
    order: ByteOrder,
}

impl ResultQueries {
    /// Looks up the stored result that a query asks for. Queues the query if a request of the
    /// queried session is in progress.
    ///
    /// # Errors
    /// The filer's error for the query.
    pub(super) fn ask(
        &mut self,
        sessions: &mut Sessions,
        channels: &mut Channels,
        query: ResultQuery,
    ) -> Result<Option<Found>, Status> {
        let id = channels.get(query.to.endpoint).ok_or(Status::BadSession)?.id;
        let CachedResponse { stream, sequence, procedure, session, .. } = query.about;
        let request = RequestName { stream, sequence, procedure };
        match sessions.query_reply(id, session, request)? {
            ReplyQuery::Found(reply) => {
                let (status, bytes, order) = (reply.status, reply.bytes.to_vec(), reply.order);
                Ok(Some(Found { status, procedure, bytes, order }))
            }
            ReplyQuery::Busy(old) => {
                // A client that queries its results has given up the old connection, so that
                // connection is broken.
                if let Some(old) = old.and_then(|old| channels.endpoint_of(old)) {
                    channels.give_up(old);
                }
                self.waiting.push(query);
                Ok(None)
            }
        }
    }

    /// Removes and returns all queued queries.
    pub(super) fn take(&mut self) -> Vec<ResultQuery> {
        std::mem::take(&mut self.waiting)
    }
}

impl Found {
    /// Passes the stored results to `show`, converted to the byte order of the client's new
    /// connection. Passes no bytes if the stored result is only a status.
    ///
    /// # Errors
    /// The results cannot be converted to that byte order.
    pub(super) fn in_order(
        &self,
        order: Option<ByteOrder>,
        to: ReplyTo,
        show: impl FnOnce(&Response<'_>),
    ) -> Result<(), Status> {
        let Self { status, procedure, bytes, order: kept_order } = self;
        if bytes.is_empty() && *status != Status::Ok {
            show(&Response::Failed);
            return Ok(());
        }
        let results = Response::FetchResponse(FetchedResults { bytes });
        if order == Some(*kept_order) {
            show(&results);
            return Ok(());
        }
        let procedure = Procedure::from_number(*procedure).ok_or(Status::ServerFault)?;
        let mut message = vec![0; HEADER_BYTES];
        message.extend_from_slice(bytes);
        let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
        let header = ResponseHeader { length, ..blank(to, *status, 1) };
        encode_response(*kept_order, &header, &results, &mut message)
            .map_err(|error| error.status())?;
        let decoded = decode_response(*kept_order, procedure, &message);
        let (_, response) = decoded.map_err(|_| Status::ServerFault)?;
        show(&response);
        Ok(())
    }
}
