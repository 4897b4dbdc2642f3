//! Questions about kept results, and their answers.

use dafs_filer::{ReplyQuery, RequestName};
use dafs_types::Status;
use dafs_wire::messages::{CachedResponse, DiscardResponses, Empty, FetchedResults};
use dafs_wire::{ByteOrder, HEADER_BYTES, Procedure, Response, decode_response, encode_response};

use super::Query;
use crate::reactor::Reactor;
use crate::reply_to::{ReplyTo, blank};
use crate::respond::ReplyStatus;

impl Reactor {
    pub(crate) fn check_response(
        &mut self,
        answer: ReplyTo,
        request: &CachedResponse,
    ) -> Result<(), Status> {
        self.ask_about(Query { answer, about: *request, wants_result: false })
    }

    pub(crate) fn fetch_response(
        &mut self,
        answer: ReplyTo,
        request: &CachedResponse,
    ) -> Result<(), Status> {
        self.ask_about(Query { answer, about: *request, wants_result: true })
    }

    pub(crate) fn discard_responses(
        &mut self,
        answer: ReplyTo,
        request: &DiscardResponses,
    ) -> Result<(), Status> {
        let id = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        self.filer.discard_replies(id, request.session)?;
        self.files().note_forgotten();
        self.reply(answer, &Response::DiscardResponses(Empty));
        Ok(())
    }

    fn ask_about(&mut self, query: Query) -> Result<(), Status> {
        let Query { answer, about, wants_result } = query;
        let id = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        let request = RequestName {
            stream: about.stream,
            sequence: about.sequence,
            procedure: about.procedure,
        };
        let (status, octets, order) = match self.filer.query_reply(id, about.session, request)? {
            ReplyQuery::Found(reply) => (reply.status, reply.octets.to_vec(), reply.order),
            ReplyQuery::Busy(old) => {
                // The client has given that connection up, or it would not ask.
                if let Some(old) = old {
                    self.give_up_channel(old);
                }
                self.queries.push(query);
                return Ok(());
            }
        };
        if wants_result {
            self.reply_fetched(answer, about.procedure, status, &octets, order)
        } else {
            self.reply(answer, &Response::CheckResponse(Empty));
            Ok(())
        }
    }

    /// Answers with the results of the original request.
    fn reply_fetched(
        &mut self,
        answer: ReplyTo,
        procedure: u32,
        status: Status,
        octets: &[u8],
        order: ByteOrder,
    ) -> Result<(), Status> {
        if octets.is_empty() && status != Status::Ok {
            self.fail(answer, status);
            return Ok(());
        }
        if self.order_of(answer.endpoint) == Some(order) {
            let results = FetchedResults { octets };
            self.respond(answer, ReplyStatus::now(status), &Response::FetchResponse(results));
            return Ok(());
        }
        // The client has come back in another byte order.
        let procedure = Procedure::from_number(procedure).ok_or(Status::ServerFault)?;
        let mut message = vec![0; HEADER_BYTES];
        message.extend_from_slice(octets);
        let header = dafs_wire::ResponseHeader {
            length: u32::try_from(message.len()).unwrap_or(u32::MAX),
            ..blank(answer, status, 1)
        };
        encode_response(
            order,
            &header,
            &Response::FetchResponse(FetchedResults { octets }),
            &mut message,
        )
        .map_err(|error| error.status())?;
        let (_, response) =
            decode_response(order, procedure, &message).map_err(|_| Status::ServerFault)?;
        self.respond(answer, ReplyStatus::now(status), &response);
        Ok(())
    }

    /// Something has come to rest: the questions that waited are asked again.
    pub(crate) fn ask_again(&mut self) {
        for query in std::mem::take(&mut self.queries) {
            if let Err(status) = self.ask_about(query) {
                self.fail(query.answer, status);
            }
        }
    }

    /// Keeps the result of a request for a client that may not get it.
    #[inline]
    pub(crate) fn keep(&mut self, answer: ReplyTo, status: Status, octets: &[u8]) {
        if self.filer.keep_reply(answer.kept(), answer.stream, status, octets) {
            self.ask_again();
        }
    }
}
