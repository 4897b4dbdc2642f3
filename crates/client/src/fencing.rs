//! Fencing: who may still reach a file or a file system (draft 4.4.4, 6.4).
//!
//! Invariant: when a change was answered for, nothing of those whom the list leaves out
//! changes the object any more.

use std::ffi::OsStr;

use dafs_types::{FileHandle, Status};
use dafs_wire::messages::{
    FenceAccess, FenceObject, FenceUpdate, FencingList, GetFencingList, SetFencingList,
};
use dafs_wire::{Array, Request, Response};

use crate::error::{ClientError, Result};
use crate::refusal::{done, failed};
use crate::session::Session;

impl Session {
    /// The fence identities that may reach a file, or the file system it is in; everybody
    /// may if there are none. While the list is being changed, the one before.
    ///
    /// # Errors
    /// NOT_AUTHORIZED unless this session's user owns the file, or is trusted; TOOSMALL for
    /// a list that no answer holds (about 4 KiB); otherwise as [`Session::metadata`].
    pub fn fencing_list(
        &self,
        path: impl AsRef<OsStr>,
        object: FenceObject,
    ) -> Result<Vec<String>> {
        self.run(self.fencing_list_async(path.as_ref(), object))
    }

    /// The same, by round trips of which each waits for the one before.
    ///
    /// # Errors
    /// As [`Session::fencing_list`].
    pub async fn fencing_list_async<P>(&self, path: &P, object: FenceObject) -> Result<Vec<String>>
    where
        P: AsRef<OsStr> + ?Sized,
    {
        let path = path.as_ref();
        let file = self.resolve_fenced(path).await?;
        let file = match object {
            FenceObject::File => file,
            FenceObject::FileSystem => FileHandle::new(file.fs(), [0; 48]),
        };
        let request = Request::GetFencingList(GetFencingList { file });
        let asked = self.ask(&request, |status, response| match response {
            Response::GetFencingList(FencingList { fence_ids }) if status == Status::Ok => {
                Ok(fence_ids.iter().map(str::to_owned).collect())
            }
            _ => Err(failed(path, status)),
        });
        asked.await
    }

    /// The handle of an object that may be out of this session's reach. Whether it is a
    /// symbolic link can be asked only from within; from outside it is taken for none.
    async fn resolve_fenced(&self, path: &OsStr) -> Result<FileHandle> {
        match self.resolve_async(path, true).await {
            Err(ClientError::Status { status: Status::Access, .. }) => {
                self.resolve_async(path, false).await
            }
            resolved => resolved,
        }
    }

    /// Changes who may reach a file, or the file system it is in. Returns when the change
    /// holds: it is on stable storage where the server has a journal, and whatever those who
    /// are left out had under way has ended.
    ///
    /// | access | update    | the list after                                            |
    /// |--------|-----------|-----------------------------------------------------------|
    /// | ALLOW  | OVERWRITE | these; without any, there is no fence                     |
    /// | ALLOW  | APPEND    | those before and these; the first leaves all others out   |
    /// | DENY   | REMOVE    | those before without these                                |
    /// | DENY   | APPEND    | as DENY with REMOVE                                       |
    ///
    /// # Errors
    /// NOT_AUTHORIZED unless this session's user owns the file (for a file), or is trusted;
    /// INVAL for other combinations and for a denial that no list can say: there is none,
    /// or nobody would be left; DELAY while the list is being changed; RESOURCE beyond the
    /// server's limits; otherwise as [`Session::metadata`].
    pub fn set_fence(
        &self,
        path: impl AsRef<OsStr>,
        object: FenceObject,
        access: FenceAccess,
        update: FenceUpdate,
        fence_ids: &[&str],
    ) -> Result<()> {
        self.run(self.set_fence_async(path.as_ref(), object, access, update, fence_ids))
    }

    /// The same, by round trips of which each waits for the one before.
    ///
    /// # Errors
    /// As [`Session::set_fence`].
    pub async fn set_fence_async<P>(
        &self,
        path: &P,
        object: FenceObject,
        access: FenceAccess,
        update: FenceUpdate,
        fence_ids: &[&str],
    ) -> Result<()>
    where
        P: AsRef<OsStr> + ?Sized,
    {
        let path = path.as_ref();
        let file = self.resolve_fenced(path).await?;
        let fence_ids = Array::from(fence_ids);
        let change = SetFencingList { file, object, access, update, fence_ids };
        self.ask(&Request::SetFencingList(change), |status, _| done(path, status)).await
    }
}
