//! Fencing: controlling which clients can reach a file or a file system (draft 4.4.4, 6.4).
//!
//! Invariant: once the server has confirmed a change of the list, clients that the list excludes
//! can no longer change the object.

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
    /// Returns the fencing list: the fence identities of the clients that may access a file, or the
    /// file system that contains it. An empty list means that there is no fence and all clients may
    /// access the object. While the list is being changed, the list before the change is returned.
    ///
    /// # Errors
    /// NOT_AUTHORIZED unless this session's user owns the file or is trusted; TOOSMALL for a list
    /// that does not fit in a reply (about 4 KiB); otherwise the errors of [`Session::metadata`].
    pub fn fencing_list(
        &self,
        path: impl AsRef<OsStr>,
        object: FenceObject,
    ) -> Result<Vec<String>> {
        self.run(self.fencing_list_async(path.as_ref(), object))
    }

    /// Returns the fencing list as [`Session::fencing_list`] does, as a future. The future sends
    /// each request after the reply to the previous one.
    ///
    /// # Errors
    /// The errors of [`Session::fencing_list`].
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

    /// Returns the handle of an object, even if a fence excludes this session from the object. An
    /// excluded client cannot request the type of the object, so the object is then assumed not to
    /// be a symbolic link.
    async fn resolve_fenced(&self, path: &OsStr) -> Result<FileHandle> {
        match self.resolve_async(path, true).await {
            Err(ClientError::Status { status: Status::Access, .. }) => {
                self.resolve_async(path, false).await
            }
            resolved => resolved,
        }
    }

    /// Changes which clients may access a file, or the file system that contains it. When the call
    /// returns, the change is in force: the list is on stable storage if the server has a journal,
    /// and all requests of excluded clients that were in flight have ended.
    ///
    /// | access | update    | the list afterwards                                         |
    /// |--------|-----------|-------------------------------------------------------------|
    /// | ALLOW  | OVERWRITE | the given identities; an empty list removes the fence       |
    /// | ALLOW  | APPEND    | the old list and the given identities                       |
    /// | DENY   | REMOVE    | the old list without the given identities                   |
    /// | DENY   | APPEND    | the same as DENY with REMOVE                                |
    ///
    /// The first ALLOW on an object without a fence excludes all clients that it does not name.
    ///
    /// # Errors
    /// NOT_AUTHORIZED unless this session's user is trusted or, for the fence of a file, owns the
    /// file; INVAL for other combinations of access and update, and for DENY if there is no list or
    /// the list would become empty; DELAY while the list is being changed; RESOURCE beyond the
    /// server's limits; otherwise the errors of [`Session::metadata`].
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

    /// Changes the fencing list as [`Session::set_fence`] does, as a future. The future sends each
    /// request after the reply to the previous one.
    ///
    /// # Errors
    /// The errors of [`Session::set_fence`].
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
