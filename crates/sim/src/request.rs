//! Converts an operation to requests of a session, and replies to an outcome.
//!
//! Invariant: an outcome is `Known` only if the server has replied; if the connection ends first,
//! it is `Lost`. Nothing here waits.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use dafs_client::{
    Call, Client, ClientError, File, Group, Reply, Session, SetAttributes, Slice, Stability,
    Status, Transferred,
};
use dafs_types::{
    CacheHint, CookieVerifier, DeleteDisposition, FileHandle, ReaddirCookie, RemoveMode,
    ShareAccess, ShareDeny, StateId,
};
use dafs_wire::attributes::file::bits;
use dafs_wire::limits::ATTRIBUTE_BYTES_MAX;
use dafs_wire::messages::{
    AppendDirect, AppendInline, GetAttributes, InlineData, Link, Lookup, Open, OpenCreation,
    OpenTarget, Placement, ReadDirectory, ReadInline, Remove, Rename, SetAttributesInline,
};
use dafs_wire::{ByteOrder, Checksum, FileAttributeBlock, Path, Request, Response};

use crate::operation::{DataOperation, Name, NameOperation, OperationNumber, TransferMode};

/// A reply in the protocol's terms, before it is converted to the terms of the model.
#[derive(Clone, Debug)]
pub(crate) enum Raw {
    Status(Status),
    Done,
    Opened(FileHandle, StateId),
    Found(FileHandle),
    Names(Vec<(Name, FileHandle)>),
    Links(u32),
    Bytes(Vec<u8>, bool),
    Written(u32),
    Offset(u64),
    Size(u64),
    Damaged,
    Lost,
    /// The server sent a reply that no correct server sends. The text describes it.
    Nonsense(String),
}

pub(crate) type Flight = Pin<Box<dyn Future<Output = Raw>>>;

/// An operation in flight, or its outcome if it could not be sent.
pub(crate) type Sent = Result<Flight, Raw>;

/// The completions of submitted transfers, by the context number of each transfer.
pub(crate) type Arrivals = Rc<RefCell<BTreeMap<u64, Result<Transferred, ClientError>>>>;

/// The client that sends requests, and its session.
pub(crate) struct Requester<'a> {
    pub client: &'a Client,
    pub session: &'a Session,
    pub directories: &'a [FileHandle],
    pub group: Group,
    pub arrivals: &'a Arrivals,
    pub checksums: bool,
}

impl Requester<'_> {
    pub(crate) fn name(
        &self,
        number: OperationNumber,
        operation: &NameOperation,
        file: Option<FileHandle>,
    ) -> Sent {
        let directory = |name: &Name| self.directories[usize::from(name.directory)];
        let file = file.unwrap_or(FileHandle::NULL);
        match operation {
            NameOperation::Create { name, guarded } => self.open(number, name, Some(*guarded)),
            NameOperation::Open { name } => self.open(number, name, None),
            NameOperation::Lookup { name } => {
                let text = name.text();
                let names = [text.as_str()];
                let path = Path::new(&names);
                self.call(&Request::Lookup(Lookup { directory: directory(name), path }))
            }
            NameOperation::Remove { name } => self.call(&Request::Remove(Remove {
                directory: directory(name),
                name: &name.text(),
                mode: RemoveMode::Unchecked,
            })),
            NameOperation::Rename { from, to } => self.call(&Request::Rename(Rename {
                source: directory(from),
                target: directory(to),
                old_name: &from.text(),
                new_name: &to.text(),
            })),
            NameOperation::Link { name, .. } => {
                let (source, directory) = (file, directory(name));
                self.call(&Request::Link(Link { source, directory, name: &name.text() }))
            }
            NameOperation::List { directory } => self.list(*directory),
            NameOperation::Links { .. } => {
                self.call(&Request::GetAttrInline(GetAttributes { file, wanted: bits::NUM_LINKS }))
            }
        }
    }

    fn open(&self, number: OperationNumber, name: &Name, creates: Option<bool>) -> Sent {
        let wanted = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
        let mut buffer = [0; ATTRIBUTE_BYTES_MAX];
        let block = encoded(&wanted, &mut buffer)?;
        let text = name.text();
        let names = [text.as_str()];
        let directory = self.directories[usize::from(name.directory)];
        self.call(&Request::Open(Open {
            target: OpenTarget::Null { directory, path: Path::new(&names) },
            creation: match creates {
                Some(true) => OpenCreation::Guarded(block),
                Some(false) => OpenCreation::Unchecked(block),
                None => OpenCreation::NoCreate,
            },
            delete_disposition: DeleteDisposition::DontCare,
            owner: &number.0.to_le_bytes(),
            access: ShareAccess::Both,
            deny: ShareDeny::None,
            key: None,
        }))
    }

    fn list(&self, directory: u8) -> Sent {
        let request = Request::ReadDirInline(ReadDirectory {
            directory: self.directories[usize::from(directory)],
            cookie: ReaddirCookie(0),
            verifier: CookieVerifier::default(),
            names_bytes: 4096,
            result_bytes_max: 4096,
            wanted: bits::FILEHANDLE,
        });
        self.finish(self.session.start(&request), move |reply| read_names(reply, directory))
    }

    pub(crate) fn data(
        &self,
        number: OperationNumber,
        file: &File,
        operation: &DataOperation,
    ) -> Sent {
        let (handle, state) = (file.handle(), file.state());
        match operation {
            DataOperation::Read { offset, length, way: TransferMode::Direct } => {
                self.read(number, file, *offset, *length)
            }
            DataOperation::Read { offset, length, way: TransferMode::Inline } => {
                let (offset, length, hint) = (*offset, *length, CacheHint::default());
                let read = ReadInline { file: handle, state, offset, length, hint };
                self.call(&Request::ReadInline(read))
            }
            DataOperation::Write { offset, data, stability } => {
                self.write(number, file, *offset, data, *stability)
            }
            DataOperation::Append { data, way } => self.append(file, data, *way),
            DataOperation::Commit => {
                self.session.submit_commit(file, self.group, number.0).map_err(outcome_of)?;
                Ok(self.transfer(number, |_| Raw::Done))
            }
            DataOperation::SetSize { size } => self.set_size(file, *size),
            DataOperation::Size => {
                let wanted = bits::OBJECT_SIZE;
                self.call(&Request::GetAttrInline(GetAttributes { file: handle, wanted }))
            }
        }
    }

    /// Reads the beginning of the file that all clients append to.
    pub(crate) fn records(&self, number: OperationNumber, file: &File, length: u32) -> Sent {
        self.read(number, file, 0, length)
    }

    fn read(&self, number: OperationNumber, file: &File, offset: u64, length: u32) -> Sent {
        let (buffer, slice) = self.buffer(length as usize, None)?;
        let submitted = self.session.submit_read(file, offset, slice, self.group, number.0);
        submitted.map_err(outcome_of)?;
        Ok(self.transfer(number, move |done| {
            let mut bytes = vec![0; done.length as usize];
            buffer.read(0, &mut bytes);
            Raw::Bytes(bytes, done.end_of_file)
        }))
    }

    fn write(
        &self,
        number: OperationNumber,
        file: &File,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> Sent {
        let (buffer, slice) = self.buffer(data.len(), Some(data))?;
        let submitted =
            self.session.submit_write(file, offset, slice, stability, self.group, number.0);
        submitted.map_err(outcome_of)?;
        Ok(self.transfer(number, move |done| {
            drop(buffer);
            Raw::Written(done.length)
        }))
    }

    pub(crate) fn append(&self, file: &File, data: &[u8], way: TransferMode) -> Sent {
        let (handle, state, hint) = (file.handle(), file.state(), CacheHint::default());
        let stability = Stability::DataSync;
        if way == TransferMode::Inline {
            return self.call(&Request::AppendInline(AppendInline {
                file: handle,
                state,
                stability,
                hint,
                placement: Placement::Packed,
                data: InlineData::Here(data),
            }));
        }
        let (buffer, slice) = self.buffer(data.len(), Some(data))?;
        let request = Request::AppendDirect(AppendDirect {
            file: handle,
            state,
            stability,
            length: u32::try_from(data.len()).unwrap_or(u32::MAX),
            hint,
            checksum: if self.checksums { Checksum::of(data) } else { Checksum::NONE },
            buffer: slice.direct(),
        });
        self.finish(self.session.start(&request), move |reply| {
            let _kept = &buffer;
            decode_operation(reply)
        })
    }

    fn set_size(&self, file: &File, size: u64) -> Sent {
        let wanted = SetAttributes { size: Some(size), ..SetAttributes::default() };
        let mut buffer = [0; ATTRIBUTE_BYTES_MAX];
        let attributes = encoded(&wanted, &mut buffer)?;
        let (file, state) = (file.handle(), file.state());
        self.call(&Request::SetAttrInline(SetAttributesInline { file, state, attributes }))
    }

    fn buffer(
        &self,
        length: usize,
        data: Option<&[u8]>,
    ) -> Result<(dafs_client::Buffer, Slice), Raw> {
        // Bytes that no transfer touches must not look like the file's.
        let bytes = data.map_or_else(|| vec![0xee; length], <[u8]>::to_vec);
        let buffer = self.client.register(bytes.into()).map_err(|error| broken(&error))?;
        let slice = buffer.slice(0, length).map_err(|error| broken(&error))?;
        Ok((buffer, slice))
    }

    /// Sends a request whose reply can be decoded without knowledge of the request.
    fn call(&self, request: &Request<'_>) -> Sent {
        self.finish(self.session.start(request), decode_operation)
    }

    fn finish(
        &self,
        call: Result<Call, ClientError>,
        read: impl FnOnce(&Reply) -> Raw + 'static,
    ) -> Sent {
        call.map(|call| finish(call, read)).map_err(outcome_of)
    }

    fn transfer(
        &self,
        number: OperationNumber,
        read: impl FnOnce(Transferred) -> Raw + 'static,
    ) -> Flight {
        let arrival = Arrival { arrivals: self.arrivals.clone(), context: number.0 };
        Box::pin(async move {
            match arrival.await {
                Ok(done) => read(done),
                Err(error) => outcome_of(error),
            }
        })
    }
}

/// Waits for the end of a call.
pub(crate) fn finish(call: Call, read: impl FnOnce(&Reply) -> Raw + 'static) -> Flight {
    Box::pin(async move {
        match call.await {
            Ok(reply) => read(&reply),
            Err(error) => outcome_of(error),
        }
    })
}

/// A future that waits for the completion of a submitted transfer.
struct Arrival {
    arrivals: Arrivals,
    context: u64,
}

impl Future for Arrival {
    type Output = Result<Transferred, ClientError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        // The actor polls all its operations in flight in each of its steps.
        let arrived = self.arrivals.borrow_mut().remove(&self.context);
        arrived.map_or(Poll::Pending, Poll::Ready)
    }
}

/// Returns an operation in flight whose outcome is known already.
pub(crate) fn ready(raw: Raw) -> Flight {
    Box::pin(std::future::ready(raw))
}

fn encoded<'b>(
    wanted: &SetAttributes,
    buffer: &'b mut [u8; ATTRIBUTE_BYTES_MAX],
) -> Result<FileAttributeBlock<'b>, Raw> {
    FileAttributeBlock::encode_set(ByteOrder::NATIVE, wanted, buffer)
        .map_err(|_| Raw::Nonsense("attributes are too large".into()))
}

fn broken(error: &ClientError) -> Raw {
    Raw::Nonsense(error.to_string())
}

/// Converts an error of the client to the outcome of the operation.
fn outcome_of(error: ClientError) -> Raw {
    match error {
        ClientError::Status { status: Status::Chksum, .. } => Raw::Damaged,
        ClientError::Status { status, .. } => Raw::Status(status),
        ClientError::Connect { .. } | ClientError::SessionEnded { .. } => Raw::Lost,
        ClientError::Protocol { what, .. } if what.contains("does not match its checksum") => {
            Raw::Damaged
        }
        other => Raw::Nonsense(other.to_string()),
    }
}

pub(crate) fn decode_operation(reply: &Reply) -> Raw {
    let (status, response) = match reply.read() {
        Ok(answer) => answer,
        Err(error) => return broken(&error),
    };
    match (status, response) {
        (Status::Ok, Response::Open(open)) => Raw::Opened(open.file, open.state),
        (Status::Ok, Response::Lookup(found)) => Raw::Found(found.file),
        (Status::Ok, Response::ReadInline(read)) => {
            Raw::Bytes(read.data.bytes().unwrap_or(&[]).to_vec(), read.end_of_file)
        }
        (Status::Ok, Response::AppendInline(done) | Response::AppendDirect(done)) => {
            Raw::Offset(done.offset)
        }
        (Status::Ok, Response::GetAttrInline(result)) => {
            let attributes = result.attributes.file();
            match (attributes.link_count, attributes.size) {
                (Some(count), None) => Raw::Links(count),
                (None, Some(size)) => Raw::Size(size),
                _ => Raw::Nonsense("GETATTR returned other attributes than requested".into()),
            }
        }
        (Status::Ok, _) => Raw::Done,
        (Status::Chksum, _) => Raw::Damaged,
        (status, _) => Raw::Status(status),
    }
}

fn read_names(reply: &Reply, directory: u8) -> Raw {
    let page = match reply.read() {
        Ok((Status::Ok, Response::ReadDirInline(page))) => page,
        _ => return decode_operation(reply),
    };
    if !page.end_of_directory {
        return Raw::Nonsense("a directory does not fit its page".into());
    }
    let mut names = Vec::new();
    for entry in page.entries.iter() {
        let Ok(entry) = entry else { return Raw::Nonsense("an unreadable entry".into()) };
        let handle = entry.attributes.file().file_handle;
        match (Name::parse(directory, entry.name), handle) {
            (Some(name), Some(handle)) => names.push((name, handle)),
            _ => return Raw::Nonsense(format!("an unexpected entry: {}", entry.name)),
        }
    }
    names.sort_unstable_by_key(|(name, _)| *name);
    Raw::Names(names)
}
