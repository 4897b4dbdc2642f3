//! Names and attributes: everything of a file system but the data.
//!
//! Invariant: every error names the path that was asked for.

use dafs_types::{
    AccessMask, CookieVerifier, FileAttributes, FileHandle, FileSystemAttributes, ObjectType,
    ReaddirCookie, RemoveMode, SetAttributes, StateId, Status, Timestamp,
};
use dafs_wire::attributes::{file::bits, file_system};
use dafs_wire::limits::ATTRIBUTE_BYTES_MAX;
use dafs_wire::messages::{
    Access, Create, GetAttributes, Link, NewObject, OneHandle, ReadDirectory, ReadDirectoryResult,
    Remove, Rename, SetAttributesInline,
};
use dafs_wire::{AttributeBitmap, ByteOrder, FileAttributeBlock, Request, Response};

use crate::error::{ClientError, Result};
use crate::session::Session;

/// Attributes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// What it is.
    pub kind: ObjectType,
    /// The 12 low bits of the POSIX mode.
    pub mode: u32,
    /// Hard links.
    pub link_count: u32,
    /// Octets.
    pub size: u64,
    /// Unique in its file system.
    pub file_id: u64,
    /// Octets of storage.
    pub space_used: u64,
    /// Last read.
    pub time_access: Timestamp,
    /// Last change of data.
    pub time_modify: Timestamp,
    /// Last change of anything.
    pub time_metadata: Timestamp,
    /// Owner, a decimal number or a name.
    pub owner: String,
    /// Group, a decimal number or a name.
    pub owner_group: String,
    /// Differs after every change.
    pub change: u64,
    /// Its handle.
    pub handle: FileHandle,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Its name.
    pub name: String,
    /// Its attributes; `None` if it was gone when the server looked, or has a name that
    /// is not UTF-8 and so cannot be asked for: `name` shows it with U+FFFD then.
    pub metadata: Option<Metadata>,
}

impl Session {
    /// Attributes; a symbolic link at the end of the path is followed.
    ///
    /// # Errors
    /// As the server says, with the path.
    pub fn metadata(&self, path: &str) -> Result<Metadata> {
        let handle = self.resolve(path, true)?;
        self.metadata_of(handle, path)
    }

    /// Attributes of the object itself, be it a symbolic link.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn symlink_metadata(&self, path: &str) -> Result<Metadata> {
        let handle = self.resolve(path, false)?;
        self.metadata_of(handle, path)
    }

    pub(crate) fn metadata_of(&self, file: FileHandle, what: &str) -> Result<Metadata> {
        let request = Request::GetAttrInline(GetAttributes { file, wanted: METADATA });
        let attributes = self.request(
            &request,
            || what.to_owned(),
            |response| match response {
                Response::GetAttrInline(result) => Some(result.attributes.file()),
                _ => None,
            },
        )?;
        attributes
            .and_then(|attributes| to_metadata(attributes, file))
            .ok_or_else(|| self.protocol_error("GETATTR_INLINE"))
    }

    pub(crate) fn kind_of(&self, file: FileHandle, what: &str) -> Result<ObjectType> {
        let wanted = bits::OBJECT_TYPE;
        let request = Request::GetAttrInline(GetAttributes { file, wanted });
        let kind = self.request(
            &request,
            || what.to_owned(),
            |response| match response {
                Response::GetAttrInline(result) => result.attributes.file().object_type,
                _ => None,
            },
        )?;
        kind.ok_or_else(|| self.protocol_error("GETATTR_INLINE"))
    }

    /// Sets attributes; a symbolic link at the end of the path is not followed.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn set_attributes(&self, path: &str, wanted: &SetAttributes) -> Result<()> {
        let handle = self.resolve(path, false)?;
        self.set_attributes_of(handle, StateId::ANONYMOUS, wanted, path)
    }

    /// Sets attributes of an object known by its handle. `path` is for messages.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn set_attributes_by_handle(
        &self,
        handle: FileHandle,
        wanted: &SetAttributes,
        path: &str,
    ) -> Result<()> {
        self.set_attributes_of(handle, StateId::ANONYMOUS, wanted, path)
    }

    pub(crate) fn set_attributes_of(
        &self,
        file: FileHandle,
        state: StateId,
        wanted: &SetAttributes,
        what: &str,
    ) -> Result<()> {
        let mut buffer = [0; ATTRIBUTE_BYTES_MAX];
        let attributes = FileAttributeBlock::encode_set(ByteOrder::NATIVE, wanted, &mut buffer)
            .map_err(|e| ClientError::Status { what: what.to_owned(), status: e.status() })?;
        let request = Request::SetAttrInline(SetAttributesInline { file, state, attributes });
        self.request(&request, || what.to_owned(), |_| ())
    }

    /// Which of these rights this session has.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn access(&self, path: &str, access: AccessMask) -> Result<AccessMask> {
        let file = self.resolve(path, true)?;
        let request = Request::Access(Access { file, access });
        self.request(
            &request,
            || path.to_owned(),
            |response| match response {
                Response::Access(result) => result.access,
                _ => AccessMask::default(),
            },
        )
    }

    /// Attributes of the file system a path is in.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn file_system(&self, path: &str) -> Result<FileSystemAttributes> {
        let file = self.resolve(path, true)?;
        let wanted = file_system::bits::ALL;
        let request = Request::GetFsAttr(GetAttributes { file, wanted });
        let attributes = self.request(
            &request,
            || path.to_owned(),
            |response| match response {
                Response::GetFsAttr(result) => Some(result.attributes.file_system()),
                _ => None,
            },
        )?;
        attributes.ok_or_else(|| self.protocol_error("GET_FSATTR"))
    }

    // ---- directories ----------------------------------------------------------------

    /// Every entry of a directory, with attributes, in the server's order.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn read_dir(&self, path: &str) -> Result<Vec<DirectoryEntry>> {
        let directory = self.resolve(path, true)?;
        let mut entries = Vec::new();
        let (mut cookie, mut verifier) = (ReaddirCookie(0), CookieVerifier::default());
        loop {
            let request = page_request(directory, cookie, verifier);
            let page = self.request(
                &request,
                || path.to_owned(),
                |response| {
                    let Response::ReadDirInline(page) = response else { return None };
                    Page::read(page, cookie, &mut entries)
                },
            )?;
            match page.ok_or_else(|| self.protocol_error("READDIR_INLINE"))? {
                Page { is_end: true, .. } => return Ok(entries),
                Page { last, .. } if last == cookie => {
                    return Err(self.protocol_error("READDIR_INLINE without an entry"));
                }
                page => (cookie, verifier) = (page.last, page.verifier),
            }
        }
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn create_dir(&self, path: &str, mode: u32) -> Result<()> {
        let attributes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        self.create(path, NewObject::Directory, &attributes)
    }

    /// Makes a symbolic link at `path` that says `text`.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn symlink(&self, text: &str, path: &str) -> Result<()> {
        let object = NewObject::SymbolicLink(text.as_bytes());
        self.create(path, object, &SetAttributes::default())
    }

    /// Makes a named pipe.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn create_fifo(&self, path: &str, mode: u32) -> Result<()> {
        let attributes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        self.create(path, NewObject::Fifo, &attributes)
    }

    fn create(&self, path: &str, object: NewObject<'_>, wanted: &SetAttributes) -> Result<()> {
        let parent = self.resolve_parent(path)?;
        let mut buffer = [0; ATTRIBUTE_BYTES_MAX];
        let attributes = FileAttributeBlock::encode_set(ByteOrder::NATIVE, wanted, &mut buffer)
            .map_err(|e| ClientError::Status { what: path.to_owned(), status: e.status() })?;
        let request = Request::Create(Create {
            directory: parent.directory,
            name: name_of(&parent.name, path)?,
            object,
            attributes,
        });
        self.request(&request, || path.to_owned(), |_| ())
    }

    /// The text of a symbolic link.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn read_link(&self, path: &str) -> Result<String> {
        let handle = self.resolve(path, false)?;
        let text = self.read_link_of(handle, path)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    pub(crate) fn read_link_of(&self, file: FileHandle, what: &str) -> Result<Vec<u8>> {
        let request = Request::ReadLinkInline(OneHandle { file });
        let text = self.request(
            &request,
            || what.to_owned(),
            |response| match response {
                Response::ReadLinkInline(link) => Some(link.text.to_vec()),
                _ => None,
            },
        )?;
        text.ok_or_else(|| self.protocol_error("READLINK_INLINE"))
    }

    /// Gives the object at `path` another name.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn hard_link(&self, path: &str, new_path: &str) -> Result<()> {
        let source = self.resolve(path, false)?;
        let parent = self.resolve_parent(new_path)?;
        let name = name_of(&parent.name, new_path)?;
        let request = Request::Link(Link { source, directory: parent.directory, name });
        self.request(&request, || format!("{path} -> {new_path}"), |_| ())
    }

    /// Removes a file, a link or an empty directory.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn remove(&self, path: &str) -> Result<()> {
        let parent = self.resolve_parent(path)?;
        let name = name_of(&parent.name, path)?;
        let (directory, mode) = (parent.directory, RemoveMode::Unchecked);
        let request = Request::Remove(Remove { directory, name, mode });
        self.request(&request, || path.to_owned(), |_| ())
    }

    /// Renames, replacing what is there.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn rename(&self, path: &str, new_path: &str) -> Result<()> {
        let from = self.resolve_parent(path)?;
        let to = self.resolve_parent(new_path)?;
        let request = Request::Rename(Rename {
            source: from.directory,
            target: to.directory,
            old_name: name_of(&from.name, path)?,
            new_name: name_of(&to.name, new_path)?,
        });
        self.request(&request, || format!("{path} -> {new_path}"), |_| ())
    }
}

/// The last name of a path, which the root does not have.
pub(crate) fn name_of<'n>(name: &'n str, path: &str) -> Result<&'n str> {
    match name {
        "" | "." | ".." => {
            Err(ClientError::Status { what: path.to_owned(), status: Status::Inval })
        }
        name => Ok(name),
    }
}

/// Where a listing goes on.
pub(crate) struct Page {
    pub is_end: bool,
    pub verifier: CookieVerifier,
    pub last: ReaddirCookie,
}

impl Page {
    /// Adds a page to the entries. `None` if one of them cannot be decoded.
    pub fn read(
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
            let (name, metadata) = (entry.name.to_owned(), to_metadata(attributes, handle));
            entries.push(DirectoryEntry { name, metadata });
        }
        Some(Self { is_end: page.end_of_directory, verifier: page.verifier, last })
    }
}

/// READDIR for the page behind a cookie.
pub(crate) fn page_request(
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

pub(crate) fn to_metadata(attributes: FileAttributes, handle: FileHandle) -> Option<Metadata> {
    Some(Metadata {
        kind: attributes.object_type?,
        mode: attributes.mode.unwrap_or(0),
        link_count: attributes.link_count.unwrap_or(1),
        size: attributes.size?,
        file_id: attributes.file_id?,
        space_used: attributes.space_used.unwrap_or(0),
        time_access: attributes.time_access.unwrap_or_default(),
        time_modify: attributes.time_modify.unwrap_or_default(),
        time_metadata: attributes.time_metadata.unwrap_or_default(),
        owner: attributes.owner.unwrap_or_default(),
        owner_group: attributes.owner_group.unwrap_or_default(),
        change: attributes.change.unwrap_or(0),
        handle,
    })
}

/// What [`Metadata`] needs.
pub(crate) const METADATA: AttributeBitmap = bits::OBJECT_TYPE
    .with(bits::MODE)
    .with(bits::NUM_LINKS)
    .with(bits::CHANGE)
    .with(bits::OBJECT_SIZE)
    .with(bits::FILE_ID)
    .with(bits::SPACE_USED)
    .with(bits::TIME_ACCESS)
    .with(bits::TIME_METADATA)
    .with(bits::TIME_MODIFY)
    .with(bits::FILEHANDLE)
    .with(bits::OWNER)
    .with(bits::OWNER_GROUP);
/// Octets asked for in one page of a listing; the session's response size bounds it.
const LISTING_BYTES: u32 = 4096;
