//! Named attributes, access control lists, MIME types and quotas over the wire.

use dafs_client::{OpenOptions, Session, SetAttributes, Status, block_on};
use dafs_types::acl::{EVERYONE, GROUP, OWNER};
use dafs_types::{
    Ace, AceFlags, AceKind, AceRights, Credentials, DeleteDisposition, FileAttributes, FileHandle,
    ObjectType, ReaddirCookie, RemoveMode, ShareAccess, ShareDeny,
};
use dafs_wire::attributes::file::bits;
use dafs_wire::messages::{
    GetAttributes, OneHandle, Open, OpenCreation, OpenTarget, ReadDirectory, Remove, Rename,
};
use dafs_wire::{
    AttributeBitmap, ByteOrder, FileAttributeBlock, Path, Request, Response, attributes,
};

use crate::fixture::{Fixture, TRANSPORTS, Transport, over_each};

/// Asks and hands the answer on.
fn ask<T>(
    session: &Session,
    request: &Request<'_>,
    read: impl FnOnce(&Response<'_>) -> Option<T>,
) -> Result<T, Status> {
    let reply = block_on(session.client(), session.start(request).unwrap()).unwrap();
    match reply.read().unwrap() {
        (Status::Ok, response) => Ok(read(&response).expect("the answer to this request")),
        (status, _) => Err(status),
    }
}
