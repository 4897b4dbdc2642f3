//! Operations that change names: they wait until no other request changes the same names, so that
//! the journal's intents of other requests stay true. In a persistent session they have intents of
//! their own.
//!
//! Invariant: an operation that waits has had no effect yet.

use dafs_nfs_wire::nfs4::Operation;
use dafs_nfs_wire::nfs4::directory::CreateKind;
use dafs_nfs_wire::nfs4::open::{OpenArgs, OpenClaim};
use dafs_ops::{
    Claim, CreateNode, Link, Names, NewNode, Open, Operation as Planned, Remove, Rename,
    SetAttributes, SetXattr, Xattr,
};
use dafs_types::{
    DeleteDisposition, DeviceNumber, FileHandle, RemoveMode, ShareAccess, ShareDeny, StateId,
};

use super::compound::Service;
use super::opens::creation_of;
use super::settings::settings_of;
use super::waiting::Awaits;
use super::xattrs::xattr_mode_of;

impl Service<'_, '_, '_> {
    /// Returns true if the compound must wait before it executes this operation.
    pub(super) fn must_wait(&mut self, operation: &Operation<'_>) -> bool {
        if self.reactor.shared.ledger.is_none() {
            return false;
        }
        let Some(current) = self.c.current else { return false };
        let names;
        let planned = match operation {
            Operation::Open(OpenArgs { claim: OpenClaim::Name(name), how, .. }) => {
                names = [name.0];
                let path = Names::new(&names);
                let Ok((creation, _)) = creation_of(how) else { return false };
                Some(Planned::Open(Open {
                    from: current,
                    claim: Claim::Null { path },
                    creation,
                    disposition: DeleteDisposition::DontCare,
                    owner: b"",
                    access: ShareAccess::Read,
                    deny: ShareDeny::None,
                    key: None,
                }))
            }
            operation => planned_of(operation, current, self.c.saved),
        };
        let (Some(planned), Ok(by)) = (planned, self.by()) else { return false };
        if self.end_part() {
            return true;
        }
        let origin = self.progress().map(|(origin, note)| (origin, Some(note)));
        let (calls, id) = (&mut *self.desk.calls, self.c.id);
        let must_wait = self.reactor.journal_for_guest(&by, origin, &planned, || calls.reserve(id));
        if must_wait {
            self.c.awaits = Some(Awaits::Names);
        }
        must_wait
    }
}

/// Returns the operation that an operation other than OPEN stands for. `None` if it changes no
/// names, or if its arguments are wrong, which the execution finds out again.
fn planned_of<'m>(
    operation: &Operation<'m>,
    current: FileHandle,
    saved: Option<FileHandle>,
) -> Option<Planned<'m>> {
    let device = |given: &dafs_nfs_wire::nfs4::types::DeviceNumber| DeviceNumber {
        major: u64::from(given.major),
        minor: u64::from(given.minor),
    };
    Some(match operation {
        Operation::Create(asked) => {
            let node = match &asked.kind {
                CreateKind::Directory => NewNode::Directory,
                CreateKind::BlockDevice(given) => NewNode::BlockDevice { device: device(given) },
                CreateKind::CharacterDevice(given) => {
                    NewNode::CharacterDevice { device: device(given) }
                }
                CreateKind::SymbolicLink(target) => NewNode::SymbolicLink { text: target.0 },
                CreateKind::Socket => NewNode::Socket,
                CreateKind::Fifo => NewNode::Fifo,
                CreateKind::Other(_) => return None,
            };
            let attributes = settings_of(&asked.attributes, true).ok()?.attributes;
            Planned::CreateNode(CreateNode {
                directory: current,
                name: asked.name.0,
                node,
                attributes,
            })
        }
        Operation::Remove(name) => Planned::Remove(Remove {
            directory: current,
            name: name.0,
            mode: RemoveMode::Unchecked,
        }),
        Operation::Rename(asked) => Planned::Rename(Rename {
            source: saved?,
            target: current,
            old_name: asked.old_name.0,
            new_name: asked.new_name.0,
        }),
        Operation::Link(name) => {
            Planned::Link(Link { source: saved?, directory: current, name: name.0 })
        }
        Operation::SetAttr(asked) => {
            let attributes = settings_of(&asked.attributes, false).ok()?.attributes;
            Planned::SetAttributes(SetAttributes {
                file: current,
                state: StateId::ANONYMOUS,
                attributes,
            })
        }
        Operation::SetXattr(asked) if asked.value.0.len() <= VALUE_BYTES_MAX => {
            Planned::SetXattr(SetXattr {
                file: current,
                name: asked.name.0,
                value: asked.value.0,
                mode: xattr_mode_of(asked.mode),
            })
        }
        Operation::RemoveXattr(name) => Planned::RemoveXattr(Xattr { file: current, name: name.0 }),
        _ => return None,
    })
}

/// The maximum length of the value in a journaled SETXATTR. Longer values would fill the journal.
const VALUE_BYTES_MAX: usize = 4096;
