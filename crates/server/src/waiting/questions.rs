//! Recovery of a session that broke: CHECK_RESPONSE, FETCH_RESPONSE, DISCARD_RESPONSES
//! (draft 5.2, 6.3).
//!
//! Invariant: a result that is kept is kept before it is sent; a question about a session
//! is answered when nothing of that session runs any more.

use dafs_sessions::{ReplyQuery, RequestName, Sessions};
use dafs_types::Status;
use dafs_wire::messages::{CachedResponse, FetchedResults};
use dafs_wire::{
    ByteOrder, HEADER_BYTES, Procedure, Response, ResponseHeader, decode_response, encode_response,
};

use crate::channel::Channels;
use crate::reply_to::{ReplyTo, blank};

/// A question about a result that may be kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    pub to: ReplyTo,
    pub about: CachedResponse,
    /// FETCH_RESPONSE, not CHECK_RESPONSE.
    pub wants_result: bool,
}

/// Questions that wait for a session to come to rest.
#[derive(Debug, Default)]
pub(super) struct Questions {
    waiting: Vec<Query>,
}

/// A result that is kept, as it was encoded.
pub(super) struct Found {
    pub status: Status,
    procedure: u32,
    bytes: Vec<u8>,
    order: ByteOrder,
}

impl Questions {
    /// Asks the filer; a question waits if the session is not at rest.
    ///
    /// # Errors
    /// What the filer says of the question.
    pub fn ask(
        &mut self,
        sessions: &mut Sessions,
        channels: &mut Channels,
        query: Query,
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
                // The client has given that connection up, or it would not ask.
                if let Some(old) = old.and_then(|old| channels.endpoint_of(old)) {
                    channels.give_up(old);
                }
                self.waiting.push(query);
                Ok(None)
            }
        }
    }

    /// The questions that have waited.
    pub fn take(&mut self) -> Vec<Query> {
        std::mem::take(&mut self.waiting)
    }
}

impl Found {
    /// The results, in the byte order of the client as it has come back: `show` is given them.
    /// Nothing, if there are none but a status.
    ///
    /// # Errors
    /// They cannot be said in that order.
    pub fn in_order(
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
