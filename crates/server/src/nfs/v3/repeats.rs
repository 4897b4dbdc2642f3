//! Calls that must be executed once: they are journaled, and their replies are kept for a repeat.
//!
//! Invariant: a call that waits for the journal has had no effect yet.

use std::net::IpAddr;

use dafs_nfs_wire::nfs3::{Arguments, CreateArgs, CreateHow, MkNodData, Procedure};
use dafs_nfs_wire::rpc::{Call, Credential};
use dafs_nfs_wire::table::Effect;
use dafs_nfs_wire::xdr::Reader;
use dafs_ops::{
    Claim, CreateNode, Creation, Done, FrontId, Link, Names, NewNode, Open, Operation, Origin,
    OwnedDone, Remove, Rename, SetAttributes,
};
use dafs_types::{
    DeleteDisposition, DeviceNumber, FileHandle, RemoveMode, SetAttributes as Settings,
    ShareAccess, ShareDeny, StateId, Verifier,
};

use super::{Service, Suspended, convert};
use crate::nfs::calls::{self, CallId, Desk};
use crate::reactor::Reactor;

/// Returns the origin of a call that must be executed once. `None` for a call that may be executed
/// again. `principal` is the Kerberos principal of the user, and `arguments` are the encoded
/// arguments.
pub(in super::super) fn origin_of(
    address: IpAddr,
    call: &Call<'_>,
    (credential, principal): (&Credential<'_>, Option<&str>),
    arguments: &[u8],
) -> Option<Origin> {
    let procedure = Procedure::from_number(call.procedure)?;
    (procedure.effect() == Effect::Once).then_some(())?;
    let machine = match address {
        IpAddr::V4(address) => crc32c::crc32c(&address.octets()),
        IpAddr::V6(address) => crc32c::crc32c(&address.octets()),
    };
    let user = match credential {
        // The stamp of the credential may differ in a repeat.
        Credential::Sys(sys) => {
            let mut sum = crc32c::crc32c(sys.machine_name.0);
            for number in [sys.uid, sys.gid].iter().chain(sys.gids.iter()) {
                sum = crc32c::crc32c_append(sum, &number.to_be_bytes());
            }
            sum
        }
        _ => principal.map_or(0, |principal| crc32c::crc32c(principal.as_bytes())),
    };
    // A call without proof of its user is never a repeat of a call with one.
    let proven = if principal.is_some() { PROVEN } else { 0 };
    Some(Origin {
        front: FrontId::NFS3,
        session: u64::from(machine) << 32 | u64::from(user),
        slot: crc32c::crc32c(&arguments[..arguments.len().min(CHECKSUM_BYTES)]),
        sequence: call.xid,
        index: u16::try_from(call.procedure).ok()? | proven,
    })
}

/// Makes the reply to a call that an earlier server has executed, from the result.
pub(in super::super) fn answer_again(
    desk: &mut Desk<'_>,
    reactor: &mut Reactor<'_>,
    id: CallId,
    procedure: u32,
    reader: &mut Reader<'_>,
    done: &OwnedDone,
) {
    use dafs_nfs_wire::rpc::Outcome;
    let arguments = Procedure::from_number(procedure)
        .and_then(|procedure| Arguments::decode(procedure, reader).ok());
    let by = reactor.shared.channels.guests().get(id.user).map(|guest| guest.caller());
    let (Some(arguments), Some(by)) = (arguments, by) else {
        return calls::fail(desk.writer, id.xid, Outcome::SystemErr);
    };
    calls::begin(desk.writer, id.xid);
    let mut service = Service { desk, reactor, id, by };
    if !service.answer_from(&arguments, done) {
        calls::fail(desk.writer, id.xid, Outcome::SystemErr);
    }
}

impl Service<'_, '_, '_> {
    /// Returns true if the call must wait: until no other request changes the same names, or until
    /// its intent is durable. `bytes` are the encoded arguments.
    pub(super) fn must_wait(
        &mut self,
        procedure: Procedure,
        arguments: &Arguments<'_>,
        bytes: &[u8],
    ) -> bool {
        let is_intended = self.id.intent.0 != 0;
        if is_intended || self.reactor.shared.ledger.is_none() || self.id.origin.is_none() {
            return false;
        }
        let names;
        let operation = match arguments {
            Arguments::Create(asked) => {
                names = [asked.at.name.0];
                self.operation_of_create(asked, &names)
            }
            arguments => self.operation_of(arguments),
        };
        let Some(operation) = operation else { return false };
        let (calls, id, by) = (&mut *self.desk.calls, self.id, &self.by);
        let start = || {
            let what = Suspended::Call(procedure.number(), bytes.into());
            calls.start(id, calls::Suspended::V3(by.clone(), what))
        };
        let origin = id.origin.map(|origin| (origin, None));
        self.reactor.journal_for_guest(by, origin, &operation, start)
    }

    /// Returns the operation of a CREATE. `None` if the arguments are wrong, which the execution
    /// finds out again.
    fn operation_of_create<'m>(
        &self,
        asked: &CreateArgs<'_>,
        names: &'m [&'m [u8]],
    ) -> Option<Operation<'m>> {
        let creation = match &asked.how {
            CreateHow::Unchecked(wanted) => {
                Creation::Unchecked { attributes: convert::settings(wanted).ok()? }
            }
            CreateHow::Guarded(wanted) => {
                Creation::Guarded { attributes: convert::settings(wanted).ok()? }
            }
            CreateHow::Exclusive(verifier) => Creation::Exclusive { verifier: Verifier(*verifier) },
        };
        Some(Operation::Open(Open {
            from: self.handle(asked.at.directory).ok()?,
            claim: Claim::Null { path: Names::new(names) },
            creation,
            disposition: DeleteDisposition::DontCare,
            owner: b"",
            access: ShareAccess::Read,
            deny: ShareDeny::None,
            key: None,
        }))
    }

    /// Returns the operation of a call other than CREATE. `None` if it changes no names, or if its
    /// arguments are wrong, which the execution finds out again.
    fn operation_of<'m>(&self, arguments: &Arguments<'m>) -> Option<Operation<'m>> {
        let device = |device: &dafs_nfs_wire::nfs3::DeviceNumber| DeviceNumber {
            major: u64::from(device.major),
            minor: u64::from(device.minor),
        };
        let (at, node, wanted) = match arguments {
            Arguments::MkDir(asked) => (&asked.at, NewNode::Directory, &asked.attributes),
            Arguments::SymLink(asked) => {
                let node = NewNode::SymbolicLink { text: asked.link.target.0 };
                (&asked.at, node, &asked.link.attributes)
            }
            Arguments::MkNod(asked) => {
                let (node, attributes) = match &asked.what {
                    MkNodData::Character(node) => {
                        let device = device(&node.device);
                        (NewNode::CharacterDevice { device }, &node.attributes)
                    }
                    MkNodData::Block(node) => {
                        let device = device(&node.device);
                        (NewNode::BlockDevice { device }, &node.attributes)
                    }
                    MkNodData::Socket(attributes) => (NewNode::Socket, attributes),
                    MkNodData::Fifo(attributes) => (NewNode::Fifo, attributes),
                    MkNodData::Other(_) => return None,
                };
                (&asked.at, node, attributes)
            }
            Arguments::Remove(asked) | Arguments::RmDir(asked) => {
                return Some(Operation::Remove(Remove {
                    directory: self.handle(asked.directory).ok()?,
                    name: plain(asked.name.0)?,
                    mode: RemoveMode::Unchecked,
                }));
            }
            Arguments::Rename(asked) => {
                return Some(Operation::Rename(Rename {
                    source: self.handle(asked.from.directory).ok()?,
                    target: self.handle(asked.to.directory).ok()?,
                    old_name: plain(asked.from.name.0)?,
                    new_name: plain(asked.to.name.0)?,
                }));
            }
            Arguments::Link(asked) => {
                return Some(Operation::Link(Link {
                    source: self.handle(asked.file).ok()?,
                    directory: self.handle(asked.at.directory).ok()?,
                    name: plain(asked.at.name.0)?,
                }));
            }
            Arguments::SetAttr(asked) => {
                return Some(Operation::SetAttributes(SetAttributes {
                    file: self.handle(asked.file).ok()?,
                    state: StateId::ANONYMOUS,
                    attributes: convert::settings(&asked.attributes).ok()?,
                }));
            }
            _ => return None,
        };
        let attributes: Settings = convert::settings(wanted).ok()?;
        let (directory, name) = (self.handle(at.directory).ok()?, plain(at.name.0)?);
        Some(Operation::CreateNode(CreateNode { directory, name, node, attributes }))
    }

    /// Writes the reply to a call from the result of its operation. Returns false if the result is
    /// not one of this procedure.
    fn answer_from(&mut self, arguments: &Arguments<'_>, done: &OwnedDone) -> bool {
        use dafs_nfs_wire::nfs3::{LinkOk, LinkResult, RenameOk, RenameResult, WccResult};
        let created: Option<FileHandle> = match done {
            Done::Created(created) => Some(created.file),
            Done::Opened(opened) => Some(opened.file),
            _ => None,
        };
        let directory = match (arguments, created) {
            (Arguments::Create(asked), Some(_)) => asked.at.directory,
            (Arguments::MkDir(asked), Some(_)) => asked.at.directory,
            (Arguments::SymLink(asked), Some(_)) => asked.at.directory,
            (Arguments::MkNod(asked), Some(_)) => asked.at.directory,
            (Arguments::Remove(asked) | Arguments::RmDir(asked), None) => asked.directory,
            (Arguments::Rename(asked), None) => asked.to.directory,
            (Arguments::Link(asked), None) => asked.at.directory,
            (Arguments::SetAttr(asked), None) => asked.file,
            _ => return false,
        };
        let Ok(directory) = self.handle(directory) else { return false };
        if let Some(created) = created {
            self.finish_create(&directory, None, Ok(created));
            return true;
        }
        let changes = self.changes(&directory, None);
        match arguments {
            Arguments::Rename(asked) => {
                let Ok(from) = self.handle(asked.from.directory) else { return false };
                let from = self.changes(&from, None);
                self.answer(&RenameResult::Ok(RenameOk { from, to: changes }));
            }
            Arguments::Link(asked) => {
                let Ok(file) = self.handle(asked.file) else { return false };
                let attributes = self.attributes(&file);
                self.answer(&LinkResult::Ok(LinkOk { attributes, directory: changes }));
            }
            _ => self.answer(&WccResult::Ok(changes)),
        }
        true
    }
}

/// Returns a name that can be created or removed. The names `.` and `..` cannot.
fn plain(name: &[u8]) -> Option<&[u8]> {
    (!matches!(name, b"." | b"..")).then_some(name)
}

/// The bit in the index of an origin that is set if the user of the call has authenticated.
const PROVEN: u16 = 1 << 15;
/// The number of bytes of the arguments that the checksum of a call covers. It is enough for all
/// handles and most names.
const CHECKSUM_BYTES: usize = 256;
