//! From the kernel's requests to operations.
//!
//! Invariant: a request whose octets do not fit its kind is answered with EIO, and one that is
//! not served with ENOSYS, after which the kernel does not ask again.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::rc::Rc;

use crate::abi::{Fields, Header, opcode as op};
use crate::attributes::Wish;
use crate::engine::{Caller, Engine};
use crate::locks::LockWish;

impl Engine {
    pub fn dispatch(self: &Rc<Self>, header: Header, rest: &[u8]) {
        let unique = header.unique;
        if self
            .dispatch_by_name(header, rest)
            .or_else(|| self.dispatch_other(header, rest))
            .is_none()
        {
            self.device.fail(unique, EIO);
        }
    }

    /// Requests about a name in a directory; `None` for others, and those that do not fit.
    fn dispatch_by_name(self: &Rc<Self>, header: Header, rest: &[u8]) -> Option<()> {
        let Header { opcode, unique, node, .. } = header;
        let caller = Caller { uid: header.uid, gid: header.gid };
        let mut fields = Fields(rest);
        let engine = self.clone();
        match opcode {
            op::LOOKUP => {
                let name = text(fields.text()?);
                self.answer(unique, async move { engine.lookup(node, name).await });
            }
            op::MKNOD => {
                let (mode, device, _umask, _) =
                    (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
                let name = text(fields.text()?);
                let work = async move { engine.mknod(caller, node, name, mode, device).await };
                self.answer(unique, work);
            }
            op::MKDIR => {
                let (mode, _umask) = (fields.u32()?, fields.u32()?);
                let name = text(fields.text()?);
                let work = async move { engine.mkdir(caller, node, name, mode).await };
                self.answer(unique, work);
            }
            op::SYMLINK => {
                let (name, target) = (text(fields.text()?), fields.text()?.to_vec());
                let work = async move { engine.symlink(caller, node, name, target).await };
                self.answer(unique, work);
            }
            op::UNLINK | op::RMDIR => {
                let name = text(fields.text()?);
                self.answer(unique, async move { engine.remove(node, name).await });
            }
            op::RENAME | op::RENAME2 => {
                let target = fields.u64()?;
                let flags = match opcode {
                    op::RENAME => 0,
                    _ => {
                        let flags = fields.u32()?;
                        fields.u32()?;
                        flags
                    }
                };
                let (from, to) = (text(fields.text()?), text(fields.text()?));
                let work = async move { engine.rename((node, from), (target, to), flags).await };
                self.answer(unique, work);
            }
            op::LINK => {
                let source = fields.u64()?;
                let name = text(fields.text()?);
                self.answer(unique, async move { engine.link(source, node, name).await });
            }
            op::CREATE => {
                let (flags, mode, _umask, _) =
                    (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
                let name = text(fields.text()?);
                let work = async move { engine.create(caller, node, name, mode, flags).await };
                self.answer(unique, work);
            }
            _ => return None,
        }
        Some(())
    }

    /// The other requests; `None` for those that do not fit.
    fn dispatch_other(self: &Rc<Self>, header: Header, rest: &[u8]) -> Option<()> {
        let Header { opcode, unique, node, .. } = header;
        let mut fields = Fields(rest);
        let engine = self.clone();
        match opcode {
            op::FORGET => self.nodes.borrow_mut().forget(node, fields.u64()?),
            op::BATCH_FORGET => {
                let (count, _) = (fields.u32()?, fields.u32()?);
                for _ in 0..count {
                    let (node, lookups) = (fields.u64()?, fields.u64()?);
                    self.nodes.borrow_mut().forget(node, lookups);
                }
            }
            op::GETATTR => self.answer(unique, async move { engine.getattr(node).await }),
            op::SETATTR => {
                let wish = Wish::read(&mut fields)?;
                self.answer(unique, async move { engine.setattr(node, wish).await });
            }
            op::READLINK => self.answer(unique, async move { engine.readlink(node).await }),
            op::STATFS => self.answer(unique, async move { engine.statfs(node).await }),
            op::OPEN => {
                let flags = fields.u32()?;
                self.answer(unique, async move { engine.open(node, flags).await });
            }
            op::READ => {
                let (file, offset, size) = (fields.u64()?, fields.u64()?, fields.u32()?);
                self.read(unique, file, offset, size);
            }
            op::RELEASE => {
                let (file, _flags, how, owner) =
                    (fields.u64()?, fields.u32()?, fields.u32()?, fields.u64()?);
                self.answer(unique, async move { engine.release(node, file, how, owner).await });
            }
            op::FLUSH => {
                let (file, _, _, owner) =
                    (fields.u64()?, fields.u32()?, fields.u32()?, fields.u64()?);
                self.answer(unique, async move { engine.flush(node, file, owner).await });
            }
            op::FSYNC => {
                let file = fields.u64()?;
                self.answer(unique, async move { engine.fsync(file).await });
            }
            op::OPENDIR => self.answer(unique, async move { engine.opendir(node).await }),
            op::READDIR | op::READDIRPLUS => {
                let (handle, offset, size) = (fields.u64()?, fields.u64()?, fields.u32()?);
                let plus = opcode == op::READDIRPLUS;
                let work =
                    async move { engine.readdir(node, handle, offset, size as usize, plus).await };
                self.answer(unique, work);
            }
            op::RELEASEDIR => {
                self.directories.borrow_mut().remove(fields.u64()?);
                self.device.done(unique);
            }
            op::FSYNCDIR => self.answer(unique, async move { engine.fsyncdir(node).await }),
            op::GETLK | op::SETLK | op::SETLKW => {
                let wish = LockWish::read(&mut fields, opcode == op::SETLKW)?;
                match opcode {
                    op::GETLK => {
                        self.answer(unique, async move { engine.getlk(node, wish).await });
                    }
                    _ => self.answer(unique, async move { engine.setlk(unique, node, wish).await }),
                }
            }
            op::SETXATTR => {
                let (size, flags) = (fields.u32()? as usize, fields.u32()?);
                let name = fields.text()?.to_vec();
                let value = fields.rest().get(..size)?.to_vec();
                let work = async move { engine.setxattr(node, &name, value, flags).await };
                self.answer(unique, work);
            }
            op::GETXATTR => {
                let (size, _) = (fields.u32()?, fields.u32()?);
                let name = fields.text()?.to_vec();
                self.answer(unique, async move { engine.getxattr(node, &name, size).await });
            }
            op::LISTXATTR => {
                let size = fields.u32()?;
                self.answer(unique, async move { engine.listxattr(node, size).await });
            }
            op::REMOVEXATTR => {
                let name = fields.text()?.to_vec();
                self.answer(unique, async move { engine.removexattr(node, &name).await });
            }
            op::INTERRUPT => self.interrupt(fields.u64()?),
            op::DESTROY => self.device.done(unique),
            op::FALLOCATE => self.device.fail(unique, EOPNOTSUPP),
            _ => self.device.fail(unique, ENOSYS),
        }
        Some(())
    }
}

/// A name, to be kept while it is asked for.
fn text(octets: &[u8]) -> OsString {
    OsString::from_vec(octets.to_vec())
}

const EIO: i32 = 5;
const ENOSYS: i32 = 38;
const EOPNOTSUPP: i32 = 95;
