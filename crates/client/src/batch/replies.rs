//! Handles the replies and completions of batches.
//!
//! Invariant: a completion that belongs to no batch of the session is ignored.

use dafs_types::Status;
use dafs_wire::messages::{Completion, TransferDirection};
use dafs_wire::{Array, ByteOrder, Procedure, Response, ResponseHeader, decode_results};

use crate::batch::table::{Part, place_of};
use crate::core::Core;
use crate::error::ClientError;
use crate::ids::SessionKey;

impl Core {
    /// Handles the reply to BATCH_SUBMIT for some requests of a batch.
    pub(crate) fn on_batch_answer(
        &mut self,
        key: SessionKey,
        part: &Part,
        header: &ResponseHeader,
        message: &[u8],
    ) {
        let procedure = Procedure::BatchSubmit;
        let response = match decode_results(ByteOrder::NATIVE, procedure, header, message) {
            Ok(response) => response,
            Err(error) => {
                let error = self.batch_protocol_error(key, &error.to_string());
                return self.batches.fail_part(part, &error);
            }
        };
        let Some(state) = self.batches.get_mut(part.batch) else { return };
        let synchronous = state.parameters.synchronous;
        if header.status == Status::WhoaCowboy && !synchronous {
            state.refused.push(part.clone());
            if !self.batches.expects_completions(key) {
                // All other requests of the batch have completed by now, so no completion will
                // cause a retry later.
                self.send_refused(key);
            }
            return;
        }
        if header.status != Status::Ok {
            let what = procedure.name().to_owned();
            let error = ClientError::Status { what, status: header.status };
            return self.batches.fail_part(part, &error);
        }
        let Response::BatchSubmit(done) = response else { return };
        if synchronous {
            if done.completions.len() != part.requests.len() {
                let error = self.batch_protocol_error(
                    key,
                    "the number of completions differs \
                    from the number of requests",
                );
                return self.batches.fail_part(part, &error);
            }
            self.take_completions(key, &done.completions);
        }
    }

    /// Ends the requests that the server has reported as complete.
    pub(crate) fn take_completions(
        &mut self,
        key: SessionKey,
        completions: &Array<'_, Completion>,
    ) {
        let has_checksums = self.sessions[key].terms.checksums;
        for completion in completions.iter() {
            let (batch, place) = place_of(completion.request);
            let state = self.batches.get(batch);
            let state = state.filter(|state| state.session == key);
            let Some(asked) = state.and_then(|state| state.requests.get(place)) else {
                continue;
            };
            let result = if completion.status != Status::Ok {
                let what = format!("request {place} of a batch");
                Err(ClientError::Status { what, status: completion.status })
            } else if completion.length > asked.length() {
                Err(self.batch_protocol_error(key, "more bytes than were asked for"))
            } else if has_checksums
                && asked.direction == TransferDirection::Read
                && completion.length > 0
                && asked.checksum(completion.length) != completion.checksum
            {
                Err(self.batch_protocol_error(key, "the data does not match its checksum"))
            } else {
                Ok(completion.length)
            };
            self.batches.end(batch, place, result);
        }
    }

    /// Sends requests again that the server refused because it was busy.
    pub(crate) fn send_refused(&mut self, key: SessionKey) {
        for part in self.batches.take_refused(key) {
            self.send_part(key, part);
        }
    }

    fn batch_protocol_error(&self, key: SessionKey, what: &str) -> ClientError {
        let address = self.sessions[key].address.clone();
        ClientError::Protocol { address, what: format!("BATCH_SUBMIT: {what}") }
    }
}
