//! Operations that may change names or attributes, opens and locks: what is replied to them.
//!
//! Invariant: they are carried out as operations, whether they come in a message or have waited.

use dafs_ops::{Claim, CreateNode, NewNode, Open, Operation, Remove, SetAttributes};
use dafs_types::Status;
use dafs_wire::messages::{CreateResult, DirectoryChanged, RenameResult};
use dafs_wire::{Procedure, Request, Response};

use crate::answers::opened_response;
use crate::decode::Scratch;
use crate::outcome::{NotDone, Now, Outcome};
use crate::reactor::Reactor;
use crate::reply_to::ReplyTo;
use crate::respond::ReplyStatus;
use crate::task::{Task, Work};
use crate::translate;

impl Reactor {
    /// Carries out what a request asks for. It is one of those that
    /// [`translate::is_operation`] tells.
    pub(super) fn ask_to_change(
        &mut self,
        to: ReplyTo,
        request: &Request<'_>,
    ) -> Result<(), NotDone> {
        let mut scratch = Scratch::new();
        let operation = translate::operation(request, &mut scratch)?;
        self.operate(to, &operation.ok_or(Status::NotSupp)?)
    }

    /// Carries an operation out that has passed the fences, and replies.
    pub(crate) fn operate(
        &mut self,
        to: ReplyTo,
        operation: &Operation<'_>,
    ) -> Result<(), NotDone> {
        match operation {
            Operation::CreateNode(asked) => self.create_node(to, asked),
            Operation::Link(asked) => {
                let by = self.caller(to)?;
                let place = (&asked.directory, asked.name);
                let directory = self.files().link(&by, &asked.source, place)?;
                self.answer(to, &Response::Link(DirectoryChanged { directory }))
            }
            Operation::Remove(asked) => self.remove(to, asked),
            Operation::Rename(asked) => {
                let by = self.caller(to)?;
                let (from, place) =
                    ((&asked.source, asked.old_name), (&asked.target, asked.new_name));
                let renamed = self.files().rename(&by, from, place)?;
                let result = RenameResult { source: renamed.source, target: renamed.target };
                self.answer(to, &Response::Rename(result))
            }
            Operation::SetAttributes(asked) => {
                let now = self.set_attributes(to, asked)?;
                self.follow(to, now)
            }
            Operation::Open(asked) => self.open(to, asked),
            Operation::Lock(asked) => {
                let by = self.caller(to)?;
                let now = self.files().lock(&by, asked)?;
                self.follow(to, now)
            }
            Operation::Abort(asked) => self.ask_to_abort(to, asked),
            // Others come in messages alone.
            _ => Err(Status::NotSupp.into()),
        }
    }

    fn create_node(&mut self, to: ReplyTo, asked: &CreateNode<'_>) -> Result<(), NotDone> {
        let by = self.caller(to)?;
        let node = match asked.node {
            NewNode::Directory => dafs_store::NewNode::Directory,
            NewNode::SymbolicLink { text } => dafs_store::NewNode::SymbolicLink(text),
            NewNode::Fifo => dafs_store::NewNode::Fifo,
            NewNode::Socket => dafs_store::NewNode::Socket,
            NewNode::BlockDevice { device } => dafs_store::NewNode::BlockDevice(device),
            NewNode::CharacterDevice { device } => dafs_store::NewNode::CharacterDevice(device),
        };
        let place = (&asked.directory, asked.name);
        let created = self.files().create_node(&by, place, node, &asked.attributes)?;
        let result = CreateResult { file: created.object.handle, directory: created.change };
        self.answer(to, &Response::Create(result))
    }

    fn remove(&mut self, to: ReplyTo, asked: &Remove<'_>) -> Result<(), NotDone> {
        let by = self.caller(to)?;
        let removed = self.files().remove(&by, (&asked.directory, asked.name), asked.mode)?;
        if let Some(held) = removed.held {
            self.afterwards.close_removed(held);
        }
        let directory = removed.directory;
        self.answer(to, &Response::Remove(DirectoryChanged { directory }))
    }

    pub(super) fn set_attributes(
        &mut self,
        to: ReplyTo,
        asked: &SetAttributes,
    ) -> Result<Now<Outcome>, NotDone> {
        let by = self.caller(to)?;
        self.files().set_attributes(&by, asked)
    }

    fn open(&mut self, to: ReplyTo, asked: &Open<'_>) -> Result<(), NotDone> {
        let by = self.caller(to)?;
        let can_recall = match asked.claim {
            Claim::Null { .. } => {
                self.filer.config().delegations.enabled && self.has_back_channel(to.endpoint)
            }
            Claim::DelegatePrevious { .. } => self.has_back_channel(to.endpoint),
            Claim::DelegateCurrent { .. } | Claim::Previous | Claim::CreateUnlinked => false,
        };
        match self.files().open(&by, can_recall, asked)? {
            Now::Done((opened, after)) => {
                self.respond(to, ReplyStatus::ok_after(after), &opened_response(&opened));
            }
            Now::Later(left) => self.start(Task::new(to, Work::from(*left))),
        }
        Ok(())
    }
}

/// The procedure whose results tell how far an operation has come that was refused.
pub(crate) fn procedure_of(operation: &Operation<'_>) -> Procedure {
    match operation {
        Operation::Open(_) => Procedure::Open,
        Operation::SetAttributes(_) => Procedure::SetAttrInline,
        Operation::Lock(_) => Procedure::Lock,
        // They have no such results.
        _ => Procedure::Null,
    }
}
