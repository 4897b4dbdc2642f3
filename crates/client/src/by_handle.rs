//! Requests without bulk data as futures: opens, closes, names and attributes, many in flight at
//! once. The blocking calls run these futures.
//!
//! Invariant: a request is sent when its future is created. Dropping the future early does not
//! withdraw the request. If the future of an open is dropped, the file stays open until the session
//! ends.
//!
//! These requests name directories and objects by handle, which avoids resolving paths; `path` is
//! used in error messages only. A name may contain any bytes except a slash and NUL; the encoder
//! escapes it for the message.

use std::ffi::OsStr;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use dafs_types::{
    AccessMask, CookieVerifier, FileHandle, FileSystemAttributes, ObjectType, ReaddirCookie,
    RemoveMode, SetAttributes, StateId, Status,
};
use dafs_wire::attributes::file_system;
use dafs_wire::limits::ATTRIBUTE_BYTES_MAX;
use dafs_wire::messages::{
    Access, Close, Create, GetAttributes, Link, Lookup, NewObject, OneHandle, OpenTarget,
    ReadDirectory, ReadDirectoryResult, Remove, Rename, SetAttributesInline,
};
use dafs_wire::{Path, Procedure, Request, Response};

use crate::decode::decode_any;
use crate::delegation_cache::granted;
use crate::error::{ClientError, Result};
use crate::file::File;
use crate::metadata::{DirectoryEntry, METADATA, Metadata, to_metadata};
use crate::open_options::OpenOptions;
use crate::path::{unwired, wire};
use crate::refusal::{done, encode_set, failed, name_of};
use crate::reply_future::ReplyFuture;
use crate::session::Session;

/// A request in flight, and the function that decodes its reply.
pub(crate) struct DecodedCall<'s, R> {
    session: &'s Session,
    procedure: Procedure,
    /// The future of the reply, or the error if the request could not be sent.
    answer: Result<ReplyFuture>,
    read: Option<R>,
}

impl<T, R> Future for DecodedCall<'_, R>
where
    R: FnOnce(Status, &Response<'_>) -> Result<T> + Unpin,
{
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = match &mut self.answer {
            Ok(answer) => match Pin::new(answer).poll(context) {
                Poll::Ready(reply) => reply,
                Poll::Pending => return Poll::Pending,
            },
            Err(error) => Err(std::mem::replace(error, ClientError::Cancelled)),
        };
        let (session, procedure) = (self.session, self.procedure);
        // The caller polled a future that was already ready, which the contract of `Future`
        // forbids.
        let Some(read) = self.read.take() else { return Poll::Ready(Err(ClientError::Cancelled)) };
        Poll::Ready(match reply {
            Ok(reply) => {
                let core = session.shared.borrow();
                let address = &core.sessions[session.key].address;
                let decoded = decode_any(procedure, &reply, address);
                drop(core);
                decoded.and_then(|(header, response)| read(header.status, &response))
            }
            // For a request that cannot be encoded, `read` gets the status with which a server
            // would refuse it.
            Err(ClientError::Status { status, .. }) => read(status, &Response::Failed),
            Err(error) => Err(error),
        })
    }
}

impl Session {
    /// Sends a request and returns a future that passes the reply, successful or not, to `read`.
    pub(crate) fn ask<T, R>(&self, request: &Request<'_>, read: R) -> DecodedCall<'_, R>
    where
        R: FnOnce(Status, &Response<'_>) -> Result<T> + Unpin,
    {
        let answer = self.answer_to(request);
        DecodedCall { session: self, procedure: request.procedure(), answer, read: Some(read) }
    }

    /// Sends a request with the session's credentials. CLOSE always uses the client's own
    /// credentials, because the credentials of the open may have been released since.
    pub(crate) fn answer_to(&self, request: &Request<'_>) -> Result<ReplyFuture> {
        let is_own = matches!(request, Request::Close(_));
        ReplyFuture::send(&self.shared, self.key, self.acting.filter(|_| !is_own), request)
    }

    /// Sends a request, or passes on the error if it could not be built.
    fn ask_if<T, R>(&self, request: Result<Request<'_>>, read: R) -> DecodedCall<'_, R>
    where
        R: FnOnce(Status, &Response<'_>) -> Result<T> + Unpin,
    {
        match request {
            Ok(request) => self.ask(&request, read),
            Err(error) => {
                let (procedure, answer) = (Procedure::Null, Err(error));
                DecodedCall { session: self, procedure, answer, read: Some(read) }
            }
        }
    }

    /// Opens a file in a directory as [`Session::open_in`] does, as a future. The request is sent
    /// immediately. A symbolic link is not followed.
    pub fn open_in_async<'s, N, P>(
        &'s self,
        directory: FileHandle,
        name: &N,
        path: &'s P,
        options: &OpenOptions,
    ) -> impl Future<Output = Result<File>> + use<'s, N, P>
    where
        N: AsRef<OsStr> + ?Sized,
        P: AsRef<OsStr> + ?Sized,
    {
        let (name, path) = (name.as_ref(), path.as_ref());
        let name = name_of(name, path);
        let names = name.as_ref().map(|name| [&**name]);
        let target =
            names.as_ref().map(|names| OpenTarget::Null { directory, path: Path::new(names) });
        self.open_target(target.map_err(|error| (*error).clone()), path, options)
    }

    /// Sends an OPEN request for `target` immediately, and returns a future for the open file.
    pub(crate) fn open_target<'s>(
        &'s self,
        target: Result<OpenTarget<'_>>,
        path: &'s OsStr,
        options: &OpenOptions,
    ) -> impl Future<Output = Result<File>> + use<'s> {
        let (truncates_later, access) = (options.truncates_later(), options.access);
        let read = move |status, response: &Response<'_>| match response {
            Response::Open(opened) if status == Status::Ok => {
                Ok((opened.file, opened.state, granted(&opened.delegation)))
            }
            _ => Err(failed(path, status)),
        };
        let opened = target.and_then(|target| {
            self.with_open(target, path, options, |request| Ok(self.ask(request?, read)))
        });
        async move {
            let (handle, state, delegation) = opened?.await?;
            let file = self.file(handle, state, path);
            file.note_delegation(self.take_delegation(handle, access, delegation));
            if truncates_later {
                let wanted = SetAttributes { size: Some(0), ..SetAttributes::default() };
                self.set_with(handle, state, &wanted, path).await?;
            }
            Ok(file)
        }
    }

    /// Creates a directory in the directory with the given handle, and yields the handle of the new
    /// one. The request is sent immediately.
    pub fn create_dir_in_async<'s, N, P>(
        &'s self,
        directory: FileHandle,
        name: &N,
        path: &'s P,
        mode: u32,
    ) -> impl Future<Output = Result<FileHandle>> + use<'s, N, P>
    where
        N: AsRef<OsStr> + ?Sized,
        P: AsRef<OsStr> + ?Sized,
    {
        let (name, path) = (name.as_ref(), path.as_ref());
        let attributes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        self.create_in_async(directory, name, path, NewObject::Directory, &attributes)
    }

    /// Creates a symbolic link with the target `text` in the directory with the given handle, and
    /// yields the handle of the link. The request is sent immediately.
    pub fn symlink_in_async<'s, N, P>(
        &'s self,
        directory: FileHandle,
        name: &N,
        path: &'s P,
        text: &[u8],
    ) -> impl Future<Output = Result<FileHandle>> + use<'s, N, P>
    where
        N: AsRef<OsStr> + ?Sized,
        P: AsRef<OsStr> + ?Sized,
    {
        let (name, path) = (name.as_ref(), path.as_ref());
        let object = NewObject::SymbolicLink(text);
        self.create_in_async(directory, name, path, object, &SetAttributes::default())
    }

    /// Creates an object other than a regular file in the directory with the given handle, sets its
    /// attributes, and yields the object's handle. The request is sent immediately.
    pub fn create_in_async<'s, N, P>(
        &'s self,
        directory: FileHandle,
        name: &N,
        path: &'s P,
        object: NewObject<'_>,
        wanted: &SetAttributes,
    ) -> impl Future<Output = Result<FileHandle>> + use<'s, N, P>
    where
        N: AsRef<OsStr> + ?Sized,
        P: AsRef<OsStr> + ?Sized,
    {
        let (name, path) = (name.as_ref(), path.as_ref());
        let mut buffer = [0; ATTRIBUTE_BYTES_MAX];
        let name = name_of(name, path);
        let mode = wanted.mode.map(|mode| self.masked(mode));
        let wanted = &SetAttributes { mode, ..wanted.clone() };
        let request = encode_set(wanted, &mut buffer, path).and_then(|attributes| {
            let name = name.as_deref().map_err(Clone::clone)?;
            Ok(Request::Create(Create { directory, name, object, attributes }))
        });
        let read = |status, response: &Response<'_>| match response {
            Response::Create(created) if status == Status::Ok => Ok(created.file),
            _ => Err(failed(path, status)),
        };
        self.ask_if(request, read)
    }

    /// Removes a name from a directory. The request is sent immediately.
    pub fn remove_in_async<'s, N, P>(
        &'s self,
        directory: FileHandle,
        name: &N,
        path: &'s P,
    ) -> impl Future<Output = Result<()>> + use<'s, N, P>
    where
        N: AsRef<OsStr> + ?Sized,
        P: AsRef<OsStr> + ?Sized,
    {
        let (name, path) = (name.as_ref(), path.as_ref());
        let mode = RemoveMode::Unchecked;
        let name = name_of(name, path);
        let name = name.as_deref().map_err(Clone::clone);
        let request = name.map(|name| Request::Remove(Remove { directory, name, mode }));
        self.ask_if(request, |status, _| done(path, status))
    }

    /// Creates a hard link to an object in a directory. The request is sent immediately.
    pub fn link_in_async<'s, N, P>(
        &'s self,
        source: FileHandle,
        directory: FileHandle,
        name: &N,
        path: &'s P,
    ) -> impl Future<Output = Result<()>> + use<'s, N, P>
    where
        N: AsRef<OsStr> + ?Sized,
        P: AsRef<OsStr> + ?Sized,
    {
        let (name, path) = (name.as_ref(), path.as_ref());
        let name = name_of(name, path);
        let name = name.as_deref().map_err(Clone::clone);
        let request = name.map(|name| Request::Link(Link { source, directory, name }));
        self.ask_if(request, |status, _| done(path, status))
    }

    /// Renames an object from one directory to another, replacing an existing object with the new
    /// name. The request is sent immediately.
    pub fn rename_in_async<'s, N, M, P>(
        &'s self,
        (source, old_name): (FileHandle, &N),
        (target, new_name): (FileHandle, &M),
        path: &'s P,
    ) -> impl Future<Output = Result<()>> + use<'s, N, M, P>
    where
        N: AsRef<OsStr> + ?Sized,
        M: AsRef<OsStr> + ?Sized,
        P: AsRef<OsStr> + ?Sized,
    {
        let (old_name, new_name, path) = (old_name.as_ref(), new_name.as_ref(), path.as_ref());
        let names = name_of(old_name, path).and_then(|old| Ok((old, name_of(new_name, path)?)));
        let request = names.as_ref().map_err(Clone::clone).map(|(old_name, new_name)| {
            Request::Rename(Rename { source, target, old_name, new_name })
        });
        self.ask_if(request, |status, _| done(path, status))
    }

    /// Renames an object from one directory to another, unless the new name exists. The protocol
    /// has no such request, so this takes several: a file gets a hard link with the new name and
    /// then loses the old name; a directory replaces an empty directory that is created with the
    /// new name first.
    ///
    /// # Errors
    /// EXIST if the new name exists; any other error of the server, with the path.
    pub async fn rename_new_in_async<N, M, P>(
        &self,
        (source, old_name): (FileHandle, &N),
        (target, new_name): (FileHandle, &M),
        path: &P,
    ) -> Result<()>
    where
        N: AsRef<OsStr> + ?Sized,
        M: AsRef<OsStr> + ?Sized,
        P: AsRef<OsStr> + ?Sized,
    {
        let (old_name, new_name, path) = (old_name.as_ref(), new_name.as_ref(), path.as_ref());
        let moved = self.lookup_in_async(source, old_name, path).await?;
        let kind = self.metadata_async(moved, path).await?.kind;
        if kind != ObjectType::Directory {
            self.link_in_async(moved, target, new_name, path).await?;
            return self.remove_in_async(source, old_name, path).await;
        }
        self.create_dir_in_async(target, new_name, path, 0o700).await?;
        let renamed = self.rename_in_async((source, old_name), (target, new_name), path).await;
        if renamed.is_err() {
            // The first error is returned, because it is more useful than an error from removing
            // the new directory.
            let _ = self.remove_in_async(target, new_name, path).await;
        }
        renamed
    }

    /// Returns the attributes of an object's file system. The request is sent immediately.
    pub fn file_system_async<'s, P>(
        &'s self,
        handle: FileHandle,
        path: &'s P,
    ) -> impl Future<Output = Result<FileSystemAttributes>> + use<'s, P>
    where
        P: AsRef<OsStr> + ?Sized,
    {
        let path = path.as_ref();
        let wanted = file_system::bits::ALL;
        let request = Request::GetFsAttr(GetAttributes { file: handle, wanted });
        self.ask(&request, move |status, response| match response {
            Response::GetFsAttr(result) if status == Status::Ok => {
                Ok(result.attributes.file_system())
            }
            _ => Err(failed(path, status)),
        })
    }

    /// Returns which of the access rights in `access` this session has to an object. The request is
    /// sent immediately.
    pub fn access_async<'s, P>(
        &'s self,
        file: FileHandle,
        access: AccessMask,
        path: &'s P,
    ) -> impl Future<Output = Result<AccessMask>> + use<'s, P>
    where
        P: AsRef<OsStr> + ?Sized,
    {
        let path = path.as_ref();
        let request = Request::Access(Access { file, access });
        self.ask(&request, move |status, response| match response {
            Response::Access(result) if status == Status::Ok => Ok(result.access),
            _ => Err(failed(path, status)),
        })
    }

    /// Returns the handle of the directory of an object's named attributes (`user.*` attributes of
    /// the server's files). The request is sent immediately. Each attribute is a file in that
    /// directory, which can be listed, opened, removed and renamed.
    pub fn attributes_of_async<'s, P>(
        &'s self,
        handle: FileHandle,
        path: &'s P,
    ) -> impl Future<Output = Result<FileHandle>> + use<'s, P>
    where
        P: AsRef<OsStr> + ?Sized,
    {
        let path = path.as_ref();
        let request = Request::OpenAttr(OneHandle { file: handle });
        self.ask(&request, move |status, response| match response {
            Response::OpenAttr(found) if status == Status::Ok => Ok(found.file),
            _ => Err(failed(path, status)),
        })
    }

    /// Looks up a name in a directory and returns the handle of the object. The request is sent
    /// immediately. A symbolic link is not followed.
    pub fn lookup_in_async<'s, N, P>(
        &'s self,
        directory: FileHandle,
        name: &N,
        path: &'s P,
    ) -> impl Future<Output = Result<FileHandle>> + use<'s, N, P>
    where
        N: AsRef<OsStr> + ?Sized,
        P: AsRef<OsStr> + ?Sized,
    {
        let (name, path) = (name.as_ref(), path.as_ref());
        let name = wire(name);
        let names = [&*name];
        let request = Request::Lookup(Lookup { directory, path: Path::new(&names) });
        self.ask(&request, |status, response| match response {
            Response::Lookup(found) if status == Status::Ok => Ok(found.file),
            _ => Err(failed(path, status)),
        })
    }

    /// Returns the attributes of an object. The request is sent immediately.
    pub fn metadata_async<'s, P>(
        &'s self,
        handle: FileHandle,
        path: &'s P,
    ) -> impl Future<Output = Result<Metadata>> + use<'s, P>
    where
        P: AsRef<OsStr> + ?Sized,
    {
        let path = path.as_ref();
        let request = Request::GetAttrInline(GetAttributes { file: handle, wanted: METADATA });
        self.ask(&request, move |status, response| match response {
            Response::GetAttrInline(result) if status == Status::Ok => {
                to_metadata(result.attributes.file(), handle)
                    .ok_or_else(|| self.protocol_error("GETATTR_INLINE"))
            }
            _ => Err(failed(path, status)),
        })
    }

    /// Sets attributes of an object. The request is sent immediately.
    pub fn set_attributes_async<'s, P>(
        &'s self,
        handle: FileHandle,
        wanted: &SetAttributes,
        path: &'s P,
    ) -> impl Future<Output = Result<()>> + use<'s, P>
    where
        P: AsRef<OsStr> + ?Sized,
    {
        let path = path.as_ref();
        self.set_with(handle, StateId::ANONYMOUS, wanted, path)
    }

    /// Sets attributes of a file under an open, so that the server checks the access of the open.
    pub(crate) fn set_with<'s>(
        &'s self,
        handle: FileHandle,
        state: StateId,
        wanted: &SetAttributes,
        path: &'s OsStr,
    ) -> impl Future<Output = Result<()>> + use<'s> {
        let mut buffer = [0; ATTRIBUTE_BYTES_MAX];
        let attributes = encode_set(wanted, &mut buffer, path);
        let request = attributes.map(|attributes| {
            Request::SetAttrInline(SetAttributesInline { file: handle, state, attributes })
        });
        self.ask_if(request, |status, _| done(path, status))
    }

    /// Returns the target of a symbolic link. The request is sent immediately.
    pub fn read_link_async<'s, P>(
        &'s self,
        handle: FileHandle,
        path: &'s P,
    ) -> impl Future<Output = Result<Vec<u8>>> + use<'s, P>
    where
        P: AsRef<OsStr> + ?Sized,
    {
        let path = path.as_ref();
        let request = Request::ReadLinkInline(OneHandle { file: handle });
        self.ask(&request, |status, response| match response {
            Response::ReadLinkInline(link) if status == Status::Ok => Ok(link.text.to_vec()),
            _ => Err(failed(path, status)),
        })
    }

    /// Returns all entries of a directory with their attributes, in the server's order. The future
    /// requests one page of entries after another, and sends the next request only when it is
    /// polled.
    ///
    /// # Errors
    /// Any error of the server, with the path.
    pub async fn list_async<P>(
        &self,
        directory: FileHandle,
        path: &P,
    ) -> Result<Vec<DirectoryEntry>>
    where
        P: AsRef<OsStr> + ?Sized,
    {
        let path = path.as_ref();
        let mut entries = Vec::new();
        let (mut cookie, mut verifier) = (ReaddirCookie(0), CookieVerifier::default());
        loop {
            let request = page_request(directory, cookie, verifier);
            let read = |status, response: &Response<'_>| match response {
                Response::ReadDirInline(page) if status == Status::Ok => {
                    Ok(Page::read(page, cookie, &mut entries))
                }
                _ => Err(failed(path, status)),
            };
            let page = self.ask(&request, read).await?;
            match page.ok_or_else(|| self.protocol_error("READDIR_INLINE"))? {
                Page { is_end: true, .. } => return Ok(entries),
                Page { last, .. } if last == cookie => {
                    return Err(self.protocol_error("a READDIR_INLINE reply without entries"));
                }
                page => (cookie, verifier) = (page.last, page.verifier),
            }
        }
    }
}

impl File {
    /// Closes the file. Afterwards local processes on the server see all written data.
    ///
    /// # Errors
    /// Any error of the server, with the path; [`ClientError::DataLost`] if data was written and
    /// not committed before the server restarted.
    pub async fn close_async(self) -> Result<()> {
        if self.note_closed() {
            return Ok(());
        }
        let request = Request::Close(Close { file: self.handle(), state: self.state() });
        let closed = self.session().ask(&request, |status, _| match status {
            Status::Ok => Ok(()),
            status => Err(self.refused(status)),
        });
        closed.await?;
        self.lost_data()
    }
}

/// The position in a directory after one page of its entries, from which the next page is
/// requested.
struct Page {
    is_end: bool,
    verifier: CookieVerifier,
    last: ReaddirCookie,
}

impl Page {
    /// Appends the entries of a page to the list. Returns `None` if an entry cannot be decoded.
    fn read(
        page: &ReadDirectoryResult<'_>,
        cookie: ReaddirCookie,
        entries: &mut Vec<DirectoryEntry>,
    ) -> Option<Self> {
        let mut last = cookie;
        for entry in page.entries.iter() {
            let entry = entry.ok()?;
            last = entry.cookie;
            let attributes = entry.attributes.file();
            let handle = attributes.file_handle.unwrap_or(FileHandle::NULL);
            let (name, metadata) = (unwired(entry.name), to_metadata(attributes, handle));
            entries.push(DirectoryEntry { name, metadata });
        }
        Some(Self { is_end: page.end_of_directory, verifier: page.verifier, last })
    }
}

/// Builds the READDIR request for the page of entries that follows a cookie.
fn page_request(
    directory: FileHandle,
    cookie: ReaddirCookie,
    verifier: CookieVerifier,
) -> Request<'static> {
    Request::ReadDirInline(ReadDirectory {
        directory,
        cookie,
        verifier,
        names_bytes: LISTING_BYTES,
        result_bytes_max: LISTING_BYTES,
        wanted: METADATA,
    })
}

/// The size in bytes requested for one page of a listing; the session's reply size limits it
/// further.
const LISTING_BYTES: u32 = 4096;
