//! Requests without bulk data as futures: opens, closes, names and attributes, many in
//! flight at once. The calls that wait run these futures.
//!
//! Invariant: a request is under way once its future is there. A future that is dropped
//! early does not take the request back; an open that nobody hears of lasts until its
//! session ends.
//!
//! Directories and objects are named by handle here, which saves the way there; `path`
//! is for messages. A name is any bytes but a slash and NUL; it is translated to what the wire has
//! when its request is encoded.

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

use crate::answer::Answer;
use crate::decode::decode_any;
use crate::delegated::granted;
use crate::error::{ClientError, Result};
use crate::file::{File, OpenOptions};
use crate::metadata::{DirectoryEntry, METADATA, Metadata, to_metadata};
use crate::path::{unwired, wire};
use crate::refusal::{done, encode_set, failed, name_of};
use crate::session::Session;

/// A request on its way, and how its answer is read.
pub(crate) struct Typed<'s, R> {
    session: &'s Session,
    procedure: Procedure,
    /// `Err` if the request could not be made.
    answer: Result<Answer>,
    read: Option<R>,
}

impl<T, R> Future for Typed<'_, R>
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
        // Polled after its end, which a caller must not do.
        let Some(read) = self.read.take() else { return Poll::Ready(Err(ClientError::Cancelled)) };
        Poll::Ready(match reply {
            Ok(reply) => {
                let core = session.shared.borrow();
                let address = &core.sessions[session.key].address;
                let decoded = decode_any(procedure, &reply, address);
                drop(core);
                decoded.and_then(|(header, response)| read(header.status, &response))
            }
            // What no message can carry is refused as a server would, by the same name.
            Err(ClientError::Status { status, .. }) => read(status, &Response::Failed),
            Err(error) => Err(error),
        })
    }
}

impl Session {
    /// Sends a request; its answer, failures included, goes through `read`.
    pub(crate) fn ask<T, R>(&self, request: &Request<'_>, read: R) -> Typed<'_, R>
    where
        R: FnOnce(Status, &Response<'_>) -> Result<T> + Unpin,
    {
        let answer = self.answer_to(request);
        Typed { session: self, procedure: request.procedure(), answer, read: Some(read) }
    }

    /// Sends a request as whomever the session acts for. What closes a file is the client's
    /// own: credentials may have been released since it was opened.
    pub(crate) fn answer_to(&self, request: &Request<'_>) -> Result<Answer> {
        let is_own = matches!(request, Request::Close(_));
        Answer::to(&self.shared, self.key, self.acting.filter(|_| !is_own), request)
    }

    /// Sends a request that could be made, or ends at once.
    fn ask_if<T, R>(&self, request: Result<Request<'_>>, read: R) -> Typed<'_, R>
    where
        R: FnOnce(Status, &Response<'_>) -> Result<T> + Unpin,
    {
        match request {
            Ok(request) => self.ask(&request, read),
            Err(error) => {
                let (procedure, answer) = (Procedure::Null, Err(error));
                Typed { session: self, procedure, answer, read: Some(read) }
            }
        }
    }

    /// Opens a file by its name in a directory; under way at once. A symbolic link is
    /// not followed. Otherwise as [`Session::open_in`].
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

    /// Opens what a request leads to; under way at once.
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

    /// Makes a directory in a directory; under way at once. Gives its handle.
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

    /// Makes a symbolic link that says `text` in a directory; under way at once. Gives
    /// its handle.
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

    /// Makes an object of any kind but a file in a directory, with attributes; under way at once.
    /// Gives its handle.
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

    /// Removes a name from a directory; under way at once.
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

    /// Gives an object, whatever its name, another one in a directory; under way at once.
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

    /// Renames from a directory to one, replacing what is there; under way at once.
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

    /// Renames from a directory to one, unless there is something. The protocol has no such
    /// request: a file gets its new name first and loses the old one then; for a directory an
    /// empty one is made, and replaced.
    ///
    /// # Errors
    /// EXIST if there is something; otherwise as the server says, with the path.
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
            // What the failure was tells more than why the new directory would not go.
            let _ = self.remove_in_async(target, new_name, path).await;
        }
        renamed
    }

    /// Attributes of the file system an object is in; under way at once.
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

    /// Which of these rights this session has to an object; under way at once.
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

    /// The directory of an object's named attributes (`user.*` of the server's files); under way
    /// at once. They are files in it: listed, opened, removed and renamed as such.
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

    /// The handle a name in a directory stands for; under way at once. A symbolic link
    /// is not followed.
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

    /// Attributes of an object; under way at once.
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

    /// Sets attributes of an object; under way at once.
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

    /// Sets attributes by the right of an open.
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

    /// The text of a symbolic link; under way at once.
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

    /// Every entry of a directory, with attributes, in the server's order; page by page,
    /// so that it needs to be polled on.
    ///
    /// # Errors
    /// As the server says, with the path.
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
                    return Err(self.protocol_error("READDIR_INLINE without an entry"));
                }
                page => (cookie, verifier) = (page.last, page.verifier),
            }
        }
    }
}

impl File {
    /// Closes the file: local processes on the server see what was written.
    ///
    /// # Errors
    /// As the server says, with the path; [`ClientError::DataLost`] if data was written
    /// and not committed before the server restarted.
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

/// Where a listing goes on.
struct Page {
    is_end: bool,
    verifier: CookieVerifier,
    last: ReaddirCookie,
}

impl Page {
    /// Adds a page to the entries. `None` if one of them cannot be decoded.
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

/// READDIR for the page behind a cookie.
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

/// Bytes asked for in one page of a listing; the session's response size bounds it.
const LISTING_BYTES: u32 = 4096;
