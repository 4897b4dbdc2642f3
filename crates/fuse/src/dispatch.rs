//! Maps the kernel's requests to operations.
//!
//! Invariant: a malformed request fails with EIO. An unsupported request fails with ENOSYS, after
//! which the kernel does not send this kind again.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::rc::Rc;

use crate::abi::Header;
use crate::engine::{Caller, Engine};
use crate::requests::{ParseError, Request, is_answered};
use dafs_base::Key;

impl Engine {
    pub(crate) fn dispatch(self: &Rc<Self>, header: Header, rest: &[u8]) {
        let errno = match Request::read(header.opcode, rest) {
            Ok(request) => return self.serve_request(header, request),
            Err(ParseError::Unknown) => ENOSYS,
            Err(ParseError::Malformed) => EIO,
        };
        if is_answered(header.opcode) {
            self.device.fail(header.unique, errno);
        }
    }

    fn serve_request(self: &Rc<Self>, header: Header, request: Request<'_>) {
        let (node, requester, unique) = (header.node, header.requester(), header.unique);
        let engine = self.clone();
        match request {
            Request::Lookup { .. }
            | Request::SymbolicLink { .. }
            | Request::MakeNode { .. }
            | Request::MakeDirectory { .. }
            | Request::Remove { .. }
            | Request::Rename { .. }
            | Request::Link { .. }
            | Request::Create { .. } => self.serve_by_name(header, request),
            Request::SetExtended { .. }
            | Request::GetExtended { .. }
            | Request::ListExtended { .. }
            | Request::RemoveExtended { .. } => self.serve_extended(header, request),
            Request::Forget { lookups } => self.nodes.borrow_mut().forget(node, lookups),
            Request::ForgetMany { nodes } => {
                let mut all = self.nodes.borrow_mut();
                nodes.for_each(|(node, lookups)| all.forget(node, lookups));
            }
            Request::GetAttributes => self.reply(requester, engine.getattr(node)),
            Request::SetAttributes { wish } => self.reply(requester, engine.setattr(node, wish)),
            Request::ReadLink => self.reply(requester, engine.readlink(node)),
            Request::FileSystem => self.reply(requester, engine.statfs(node)),
            Request::Open { flags } => self.reply(requester, engine.open(node, flags)),
            Request::Read { file, offset, size } => self.read(requester, file, offset, size),
            Request::Release { file, how, owner } => {
                self.reply(requester, engine.release(node, file, how, owner));
            }
            Request::Flush { file, owner } => {
                self.reply(requester, engine.flush(node, file, owner))
            }
            Request::Sync { file } => self.reply(requester, engine.fsync(file)),
            Request::OpenDirectory => self.reply(requester, engine.opendir(node)),
            Request::ReadDirectory { directory, offset, size, plus } => {
                self.reply(requester, engine.readdir(node, directory, offset, size as usize, plus));
            }
            Request::ReleaseDirectory { directory } => {
                self.directories.borrow_mut().remove(Key::from_bits(directory));
                self.device.done(unique);
            }
            Request::SyncDirectory => self.reply(requester, engine.fsyncdir(node)),
            Request::TestLock { wish } => self.reply(requester, engine.getlk(node, wish)),
            Request::SetLock { wish } => self.reply(requester, engine.setlk(unique, node, wish)),
            Request::Interrupt { unique } => self.interrupt(unique),
            Request::Destroy => self.device.done(unique),
            Request::Allocate => self.device.fail(unique, EOPNOTSUPP),
        }
    }

    /// Serves requests for a name in a directory.
    fn serve_by_name(self: &Rc<Self>, header: Header, request: Request<'_>) {
        let (node, requester) = (header.node, header.requester());
        let caller = Caller { uid: header.uid, gid: header.gid };
        let engine = self.clone();
        match request {
            Request::Lookup { name } => self.reply(requester, engine.lookup(node, kept(name))),
            Request::MakeNode { name, mode, device } => {
                self.reply(requester, engine.mknod(caller, node, kept(name), mode, device));
            }
            Request::MakeDirectory { name, mode } => {
                self.reply(requester, engine.mkdir(caller, node, kept(name), mode));
            }
            Request::SymbolicLink { name, target } => {
                self.reply(requester, engine.symlink(caller, node, kept(name), target.to_vec()));
            }
            Request::Remove { name } => self.reply(requester, engine.remove(node, kept(name))),
            Request::Rename { name, target, new_name, flags } => {
                let (from, to) = ((node, kept(name)), (target, kept(new_name)));
                self.reply(requester, engine.rename(from, to, flags));
            }
            Request::Link { source, name } => {
                self.reply(requester, engine.link(source, node, kept(name)));
            }
            Request::Create { name, mode, flags } => {
                self.reply(requester, engine.create(caller, node, kept(name), mode, flags));
            }
            // No other kind of request contains a name.
            _ => self.device.fail(header.unique, EIO),
        }
    }

    /// Serves requests for extended attributes.
    fn serve_extended(self: &Rc<Self>, header: Header, request: Request<'_>) {
        let (node, requester) = (header.node, header.requester());
        let engine = self.clone();
        match request {
            Request::SetExtended { name, value, flags } => {
                let (name, value) = (name.to_vec(), value.to_vec());
                self.reply(
                    requester,
                    async move { engine.setxattr(node, &name, value, flags).await },
                );
            }
            Request::GetExtended { name, size } => {
                let name = name.to_vec();
                self.reply(requester, async move { engine.getxattr(node, &name, size).await });
            }
            Request::ListExtended { size } => self.reply(requester, engine.listxattr(node, size)),
            Request::RemoveExtended { name } => {
                let name = name.to_vec();
                self.reply(requester, async move { engine.removexattr(node, &name).await });
            }
            // No other kind of request is for extended attributes.
            _ => self.device.fail(header.unique, EIO),
        }
    }
}

/// Copies a name so that it outlives the request's buffer.
fn kept(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

const EIO: i32 = 5;
const ENOSYS: i32 = 38;
const EOPNOTSUPP: i32 = 95;
