//! Transfers: READ, WRITE and COMMIT, from submission to completion.
//!
//! Invariant: a transfer keeps its buffer until its reply has arrived, and never reports more bytes
//! than were asked for. In steady state this module allocates nothing.

use dafs_dat::{Forecast, Gather};
use dafs_types::{RmrContext, RmrTarget, SequenceNumber, Status, StreamId};
use dafs_wire::messages::{Commit, InlineData, Placement, ReadDirect, WriteDirect, WriteInline};
use dafs_wire::{
    ByteOrder, Checksum, DirectBuffer, DirectBuffers, Procedure, Request, RequestHeader,
    ResponseHeader, encode_request, seal,
};
use rustix::io::Errno;

use crate::buffer::Slice;
use crate::core::Core;
use crate::error::{ClientError, Result, SystemCause};
use crate::ids::SessionKey;
use crate::operation::OperationId;
use crate::recovery::delay::means_delay;
use crate::result_sinks::Destination;
use crate::transfer::{ANSWER_BYTES, Server, Transfer, TransferJob, TransferKind};
use crate::work::Pending;

impl Core {
    /// Accepts a transfer, and sends it if there is a credit.
    ///
    /// A transfer of more than [`TRANSFER_BYTES_MAX`] bytes is sent as several consecutive requests
    /// that belong to one operation.
    ///
    /// [`TRANSFER_BYTES_MAX`]: dafs_types::limits::TRANSFER_BYTES_MAX
    #[inline]
    pub(crate) fn submit(
        &mut self,
        key: SessionKey,
        job: TransferJob,
        slice: Option<Slice>,
        destination: Destination,
        context: u64,
    ) -> Result<OperationId> {
        let session = self.sessions.open_mut(key)?;
        if let Destination::Group(group) = destination
            && !self.sinks.groups.begin(group)
        {
            return Err(ClientError::System {
                what: "submitting a transfer",
                source: SystemCause::new(
                    Errno::INVAL.raw_os_error(),
                    "its completion group was released, or belongs to another client",
                ),
            });
        }
        let id = self.sinks.next_id();
        let transfer = Transfer::new(id, job, slice, destination, context);
        if let (TransferKind::Write(_), Some(delegated)) =
            (transfer.job.kind, &mut session.delegated)
        {
            delegated.note_change(Some(&transfer.job.file.handle));
        }
        if session.role.has_channels() {
            self.send_on_file_channel(key, transfer);
            return Ok(id);
        }
        match session.in_flight.take_for_transfer() {
            Some((stream, sequence)) => self.send_transfer(key, stream, sequence, transfer),
            None => session.in_flight.push_transfer(transfer),
        }
        Ok(id)
    }

    /// Sends a transfer over the channel `key`, or queues the transfer on that channel if there is
    /// no credit.
    pub(crate) fn send_or_queue(&mut self, key: SessionKey, transfer: Transfer) {
        let in_flight = &mut self.sessions[key].in_flight;
        match in_flight.take_for_transfer() {
            Some((stream, sequence)) => self.send_transfer(key, stream, sequence, transfer),
            None => in_flight.push_transfer(transfer),
        }
    }

    #[inline]
    pub(crate) fn on_transferred(
        &mut self,
        key: SessionKey,
        mut transfer: Transfer,
        header: &ResponseHeader,
        message: &[u8],
    ) {
        if means_delay(header.status) && !transfer.is_cancelled {
            transfer = match self.defer_transfer(key, transfer) {
                Some(transfer) => transfer,
                None => return,
            };
        }
        let session = &mut self.sessions[key];
        let server = Server { address: &session.address, checksums: session.terms.checksums };
        let result = transfer.finish(header, message, &server);
        match transfer.follow(result) {
            Some(end) => self.complete(&transfer, end),
            None => session.in_flight.push_transfer_first(transfer),
        }
    }

    #[inline]
    pub(crate) fn send_transfer(
        &mut self,
        key: SessionKey,
        stream: StreamId,
        sequence: SequenceNumber,
        mut transfer: Transfer,
    ) {
        if let Err(error) = self.reach(key, transfer.memory().0) {
            self.sessions[key].in_flight.credits.withdraw(stream);
            return self.complete(&transfer, Err(error));
        }
        let session = &mut self.sessions[key];
        let header = RequestHeader {
            desired_credits: session.terms.wanted_credits,
            analyzer: session.label,
            ..RequestHeader::new(stream, sequence)
        };
        let endpoint = session.endpoint;
        let checksums = session.terms.checksums;
        let mut message = [0; REQUEST_BYTES];
        let mut procedure = transfer.job.procedure();
        let TransferJob { file: ref opened, offset, kind, length, hint } = transfer.job;
        let (file, state) = (opened.handle, opened.state());
        let (buffer, place) = transfer.memory();
        let interface = self.transport.interface_mut();
        let target = buffer.map(|b| interface.remote(endpoint, &b.region, place as u64, length));
        let direct = target.map(|t| DirectBuffer {
            target: RmrTarget(t.address),
            length,
            context: RmrContext(t.stag.0),
        });
        let direct = direct.as_slice();
        let buffers = DirectBuffers::from(direct);
        let mut inline = None;
        let request = match kind {
            TransferKind::Read => {
                Request::ReadDirect(ReadDirect { file, state, offset, length, hint, buffers })
            }
            TransferKind::Commit => Request::Commit(Commit { file, offset, length }),
            TransferKind::Write(stability) => {
                let is_here = buffer.is_none_or(|buffer| !buffer.is_device);
                if is_here
                    && session.terms.writes_inline
                    && length <= session.terms.inline_bytes_max()
                {
                    inline = buffer.map(|b| b.region.local(place as u64, length));
                    procedure = Procedure::WriteInline;
                    Request::WriteInline(WriteInline {
                        file,
                        state,
                        offset,
                        stability,
                        hint,
                        placement: Placement::Packed,
                        data: InlineData::Follows { length },
                    })
                } else {
                    let checksum =
                        if checksums { transfer.checksum(length) } else { Checksum::NONE };
                    Request::WriteDirect(WriteDirect {
                        file,
                        state,
                        offset,
                        length,
                        stability,
                        hint,
                        checksum,
                        buffers,
                    })
                }
            }
        };
        let Ok(written) = encode_request(ByteOrder::NATIVE, &header, &request, &mut message) else {
            // Cannot happen: a transfer request has no arguments of variable length.
            session.in_flight.credits.withdraw(stream);
            let what = "encoding a transfer".into();
            let error = ClientError::Status { what, status: Status::ServerFault };
            return self.complete(&transfer, Err(error));
        };
        if checksums {
            match (inline, buffer) {
                (Some(_), Some(buffer)) => {
                    let data = buffer.memory.to_vec(place, length as usize);
                    seal(&mut message[..written], &[&data]);
                }
                _ => seal(&mut message[..written], &[]),
            }
        }
        let is_read = kind == TransferKind::Read;
        transfer.note_sent(procedure);
        let pending = Pending::Transfer(transfer);
        match inline {
            Some(segment) => {
                let gather = [Gather::Bytes(&message[..written]), Gather::Segment(segment)];
                self.post((key, endpoint), stream, pending, &gather);
            }
            None => {
                self.post((key, endpoint), stream, pending, &[Gather::Bytes(&message[..written])])
            }
        }
        match target {
            Some(target) if is_read => {
                self.transport
                    .interface_mut()
                    .expect(endpoint, &Forecast::answer(&[target], ANSWER_BYTES));
            }
            _ => self
                .transport
                .interface_mut()
                .expect(endpoint, &Forecast::answer(&[], ANSWER_BYTES)),
        }
    }
}

/// The maximum size in bytes of a transfer request without its data.
const REQUEST_BYTES: usize = 256;
