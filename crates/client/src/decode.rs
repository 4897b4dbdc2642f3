//! Decodes replies.
//!
//! Invariant: an error about an undecodable reply names the server and the procedure.

use dafs_wire::{ByteOrder, Procedure, ResponseHeader};

use crate::error::{ClientError, Result};

/// Decodes a reply with any status.
pub(crate) fn decode_any<'m>(
    procedure: Procedure,
    message: &'m [u8],
    address: &str,
) -> Result<(ResponseHeader, dafs_wire::Response<'m>)> {
    dafs_wire::decode_response(ByteOrder::NATIVE, procedure, message).map_err(|error| {
        ClientError::Protocol {
            address: address.to_owned(),
            what: format!("{} reply: {error}", procedure.name()),
        }
    })
}

/// Decodes a reply. Turns a failure status into an error that describes the request.
pub(crate) fn decode<'m>(
    procedure: Procedure,
    message: &'m [u8],
    address: &str,
    what: impl FnOnce() -> String,
) -> Result<(ResponseHeader, dafs_wire::Response<'m>)> {
    let (header, response) = decode_any(procedure, message, address)?;
    if header.status == dafs_types::Status::Ok {
        Ok((header, response))
    } else {
        Err(ClientError::Status { what: what(), status: header.status })
    }
}

pub(crate) fn unexpected(address: &str, what: &str) -> ClientError {
    ClientError::Protocol {
        address: address.to_owned(),
        what: format!("the reply to {what} has results of another procedure"),
    }
}
