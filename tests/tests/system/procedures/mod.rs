//! Tests procedures, fields and flags that our client does not use or ignores, each as the draft
//! specifies, message by message.

mod data;
mod hints;
mod objects;
mod opens;
mod sessions;

use dafs_types::{FileHandle, Status};
use dafs_wire::{ByteOrder, Path, Procedure, Request, Response, ResponseHeader, decode_response};

use crate::rogue::{Rogue, status_of};

/// Returns the results of a successful request.
fn results(procedure: Procedure, answer: &[u8]) -> Response<'_> {
    assert_eq!(status_of(answer), Status::Ok, "{}", procedure.name());
    decode_response(ByteOrder::NATIVE, procedure, answer).unwrap().1
}

/// Returns the results of a known type.
macro_rules! found {
    ($procedure:ident, $answer:expr) => {
        match crate::procedures::results(dafs_wire::Procedure::$procedure, $answer) {
            dafs_wire::Response::$procedure(result) => result,
            other => panic!("{other:?}"),
        }
    };
}
use found;

fn header_of(answer: &[u8]) -> ResponseHeader {
    ResponseHeader::decode(ByteOrder::NATIVE, answer).unwrap()
}

/// Walks a path from the root. Returns the status, the handle reached, and the number of components
/// walked.
fn walk(rogue: &mut Rogue, names: &[&str]) -> (Status, FileHandle, u32) {
    let (directory, path) = (rogue.root(), Path::new(names));
    let lookup = Request::Lookup(dafs_wire::messages::Lookup { directory, path });
    let answer = rogue.ask(&lookup).unwrap();
    match decode_response(ByteOrder::NATIVE, Procedure::Lookup, &answer).unwrap().1 {
        Response::Lookup(result) => (status_of(&answer), result.file, result.component_count),
        other => panic!("{other:?}"),
    }
}
