//! Procedures, fields and flags that a client of ours has no use for, or that it uses
//! without looking at them: each as the draft has it, message by message.

mod data;
mod hints;
mod objects;
mod opens;
mod sessions;

use dafs_types::{FileHandle, Status};
use dafs_wire::{ByteOrder, Path, Procedure, Request, Response, ResponseHeader, decode_response};

use crate::rogue::{Rogue, status_of};

/// The results of a request that succeeds.
fn results(procedure: Procedure, answer: &[u8]) -> Response<'_> {
    assert_eq!(status_of(answer), Status::Ok, "{}", procedure.name());
    decode_response(ByteOrder::NATIVE, procedure, answer).unwrap().1
}

/// The same, for those who know what comes.
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

/// What a walk from the root comes to: its status, the handle it reached, components walked.
fn walk(rogue: &mut Rogue, names: &[&str]) -> (Status, FileHandle, u32) {
    let (directory, path) = (rogue.root(), Path::new(names));
    let lookup = Request::Lookup(dafs_wire::messages::Lookup { directory, path });
    let answer = rogue.ask(&lookup).unwrap();
    match decode_response(ByteOrder::NATIVE, Procedure::Lookup, &answer).unwrap().1 {
        Response::Lookup(result) => (status_of(&answer), result.file, result.component_count),
        other => panic!("{other:?}"),
    }
}
