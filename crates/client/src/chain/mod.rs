//! Chains: several requests in one round trip. Each request works on the object that the previous
//! request found (draft 4.3).
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let client = dafs_client::Client::new(Default::default())?;
//! # let location = dafs_client::Location::parse("dafs://host/")?;
//! # let session = client.connect(&location, &Default::default())?;
//! use dafs_client::OpenOptions;
//! let buffer = client.allocate(4096)?;
//! let slice = buffer.slice(0, 4096)?;
//! let outcomes = session
//!     .chain()
//!     .open("/etc/motd", &OpenOptions::read())
//!     .read_into(0, slice)
//!     .close()
//!     .run()?;
//! let read = outcomes[1].transferred();
//! # let _ = read; Ok(()) }
//! ```
//!
//! A member works on the object that the member before it has found, created or used; the first
//! member works on the root directory. [`Chain::at`] and [`Chain::of`] select another object.
//! Members after an OPEN use its open.
//!
//! A member that fetches data (reads, attributes, listings) must not be followed by a member that
//! changes the file system, except CLOSE and locks: such a chain could not be resumed after a lost
//! connection (draft 4.3.1). It is refused before anything is sent. CLOSE after a read is an
//! extension of this project's servers (`docs/spec/gaps.md`); other servers may refuse it with
//! CHAIN_FORM, and the file then stays open.
//!
//! Invariant: every member of the chain is allowed at its position. After the first member that is
//! not allowed, no further members are added, and running the chain reports that member.

mod chained;
mod draft;
mod outcome;
mod plan;
mod send;
mod whole;
pub(crate) mod work;

use std::ffi::OsStr;

use dafs_types::{
    AccessMask, CacheHint, FileAttributes, FileHandle, RemoveMode, SetAttributes, Stability,
    StateId, Status,
};
use dafs_wire::attributes::file::bits;
use dafs_wire::limits::ATTRIBUTE_BYTES_MAX;
use dafs_wire::messages::{
    Access, AppendDirect, AppendInline, Close, Commit, Create, Empty, GetAttributes, InlineData,
    Link, Lock, LockOptions, LockType, Lookup, NewObject, OneHandle, OpenTarget, Placement,
    ReadDirect, ReadInline, Remove, Rename, SetAttributesInline, Unlock, Verify, WriteDirect,
    WriteInline,
};
use dafs_wire::{
    AttributeBitmap, ByteOrder, ChainClass, ChainFlags, DirectBuffers, FileAttributeBlock, Path,
    Procedure, Request,
};

use crate::buffer::Slice;
use crate::chain::draft::Draft;
use crate::chain::plan::Names;
use crate::chain::work::SharedChain;
use crate::file::File;
use crate::metadata::METADATA;
use crate::open_options::OpenOptions;
use crate::path::{label, wire};
use crate::refusal::encode_set;
use crate::session::Session;

pub use self::chained::Chained;
pub use self::outcome::{ChainFailure, Outcome};
pub use self::whole::NewFile;

/// A chain of requests that is being built. No request is sent until the chain is run.
#[must_use = "a chain does nothing before it is run"]
pub struct Chain<'s> {
    session: &'s Session,
    /// The members added so far, and the state of the chain while it is being built. Every method
    /// moves the chain, so this field must be small.
    work: SharedChain,
}

impl Session {
    /// Creates a chain without members.
    pub fn chain(&self) -> Chain<'_> {
        let mut core = self.shared.borrow_mut();
        let work = core.new_chain();
        let state = &core.sessions[self.key];
        work.borrow_mut().draft = Draft {
            file: Some(self.root),
            state: Some(StateId::ANONYMOUS),
            has_fetched: false,
            request_bytes_max: state.terms.request_bytes_max as usize,
            has_checksums: state.terms.checksums,
            writes_inline: state.terms.writes_inline,
            wanted_credits: state.terms.wanted_credits,
            acting: self.acting,
            label: state.label,
            refused: None,
        };
        Chain { session: self, work }
    }
}

impl<'s> Chain<'s> {
    // ---- selecting the object ----------------------------------------------------------

    /// Makes the next member work on the object with this handle, without an open.
    pub fn at(self, file: FileHandle) -> Self {
        self.draft().stand_on(file, StateId::ANONYMOUS);
        self
    }

    /// Makes the next member work on an open file, through that open.
    pub fn of(self, file: &File) -> Self {
        self.draft().stand_on(file.handle(), file.state());
        self
    }

    // ---- finding and opening -----------------------------------------------------------

    /// Looks up a path from the current object, which must be a directory, or from the root if the
    /// path begins with a slash. Symbolic links are not followed, and `..` in the path is an error.
    pub fn lookup(self, path: impl AsRef<OsStr>) -> Self {
        let path = path.as_ref();
        let text = wire(path);
        let names = Names::of(&text);
        let directory = self.start_of(&text);
        match names.path() {
            Ok(names) => {
                let lookup = Lookup { directory, path: names };
                self.push(&Request::Lookup(lookup), Some(path))
            }
            Err(status) => self.refuse(Procedure::Lookup, &label(path), status),
        }
    }

    /// Looks up the parent of the current directory.
    pub fn parent(self) -> Self {
        let file = self.object();
        self.push(&Request::LookupP(OneHandle { file }), None)
    }

    /// Opens the file at a path, or creates it if the options say so. The path is resolved as
    /// [`Chain::lookup`] does. Later members use this open.
    pub fn open(self, path: impl AsRef<OsStr>, options: &OpenOptions) -> Self {
        let path = path.as_ref();
        let text = wire(path);
        let names = Names::of(&text);
        let directory = self.start_of(&text);
        match names.path() {
            Err(status) => self.refuse(Procedure::Open, &label(path), status),
            // An OPEN can set the size only if it may create the file; callers must add `setattr`
            // after it instead.
            Ok(_) if options.truncates_later() => {
                self.refuse(Procedure::Open, &label(path), Status::Inval)
            }
            Ok(names) => {
                self.open_target(OpenTarget::Null { directory, path: names }, path, options)
            }
        }
    }

    /// Opens a name in the current directory, or creates the file if the options say so. Later
    /// members use this open. `path` is used in error messages only.
    pub fn open_in(
        self,
        name: impl AsRef<OsStr>,
        path: impl AsRef<OsStr>,
        options: &OpenOptions,
    ) -> Self {
        let text = wire(name.as_ref());
        let directory = self.object();
        let names = [&*text];
        let target = OpenTarget::Null { directory, path: Path::new(&names) };
        self.open_target(target, path.as_ref(), options)
    }

    /// Creates a file without a name in the file system of the current directory, and opens the
    /// file.
    pub fn create_unlinked(self, options: &OpenOptions) -> Self {
        let target = OpenTarget::CreateUnlinked { directory: self.object() };
        self.open_target(target, OsStr::new("a file without a name"), options)
    }

    fn open_target(self, target: OpenTarget<'_>, path: &OsStr, options: &OpenOptions) -> Self {
        let session = self.session;
        session.with_open(target, path, options, |request| match request {
            Ok(request) => self.push(request, Some(path)),
            Err(error) => self.refuse_with(Procedure::Open, error),
        })
    }

    // ---- inspecting --------------------------------------------------------------------

    /// Fetches the attributes of the current object.
    pub fn getattr(self) -> Self {
        let file = self.object();
        self.push(&Request::GetAttrInline(GetAttributes { file, wanted: METADATA }), None)
    }

    /// Requests which of the access rights in `access` the user has to the current object.
    pub fn access(self, access: AccessMask) -> Self {
        let file = self.object();
        self.push(&Request::Access(Access { file, access }), None)
    }

    /// Continues only if all given attributes equal those of the current object.
    pub fn verify(self, attributes: &FileAttributes) -> Self {
        self.compare(attributes, true)
    }

    /// Continues only if at least one given attribute differs from the current object's.
    pub fn verify_not(self, attributes: &FileAttributes) -> Self {
        self.compare(attributes, false)
    }

    fn compare(self, attributes: &FileAttributes, same: bool) -> Self {
        let file = self.object();
        let mut buffer = [0; ATTRIBUTE_BYTES_MAX];
        let procedure = if same { Procedure::Verify } else { Procedure::NVerify };
        let block =
            FileAttributeBlock::encode_file(ByteOrder::NATIVE, COMPARED, attributes, &mut buffer);
        match block {
            Ok(attributes) => {
                let verify = Verify { file, attributes };
                let request = if same { Request::Verify } else { Request::NVerify };
                self.push(&request(verify), None)
            }
            Err(error) => self.refuse(procedure, procedure.name(), error.status()),
        }
    }

    /// Reads the target of the current object, a symbolic link.
    pub fn read_link(self) -> Self {
        let file = self.object();
        self.push(&Request::ReadLinkInline(OneHandle { file }), None)
    }

    /// Adds a NULL request, which has no effect.
    pub fn null(self) -> Self {
        self.push(&Request::Null(Empty), None)
    }

    // ---- data --------------------------------------------------------------------------

    /// Reads from byte `offset` into the whole slice of a registered buffer. The slice belongs to
    /// the transport until the chain has ended.
    pub fn read_into(self, offset: u64, slice: Slice) -> Self {
        let (file, state, length) = (self.object(), self.open_state(), slice.length);
        let direct = [slice.named()];
        let (hint, buffers) = (CacheHint::default(), DirectBuffers::from(&direct[..]));
        let request =
            Request::ReadDirect(ReadDirect { file, state, offset, length, hint, buffers });
        self.push_with(&request, None, Some(slice), length)
    }

    /// Reads up to `length` bytes, which arrive inside the reply, so that the reply size limits
    /// their number.
    pub fn read_inline(self, offset: u64, length: u32) -> Self {
        let (file, state, hint) = (self.object(), self.open_state(), CacheHint::default());
        let request = Request::ReadInline(ReadInline { file, state, offset, length, hint });
        self.push_with(&request, None, None, length)
    }

    /// Adds an unstable write of a slice of a registered buffer at byte `offset`. A small slice is
    /// copied into the request by this call, if that is faster; any other slice belongs to the
    /// transport until the chain has ended.
    pub fn write_from(self, offset: u64, slice: Slice) -> Self {
        let length = slice.length;
        let writes_inline = self.draft().writes_inline;
        if writes_inline && length as usize <= self.inline_bytes_max() {
            return match self.check_slice(&slice) {
                Ok(()) => {
                    let bytes = slice.buffer.memory.to_vec(slice.offset, length as usize);
                    self.write_inline(offset, &bytes)
                }
                Err(error) => self.refuse_with(Procedure::WriteInline, error),
            };
        }
        let direct = [slice.named()];
        let request = Request::WriteDirect(WriteDirect {
            file: self.object(),
            state: self.open_state(),
            offset,
            length,
            stability: Stability::Unstable,
            hint: CacheHint::default(),
            checksum: self.checksum_of(&slice),
            buffers: DirectBuffers::from(&direct[..]),
        });
        self.push_with(&request, None, Some(slice), length)
    }

    /// Adds an unstable write of bytes that are sent inside the request; the request size limits
    /// their number.
    pub fn write_inline(self, offset: u64, bytes: &[u8]) -> Self {
        let request = Request::WriteInline(WriteInline {
            file: self.object(),
            state: self.open_state(),
            offset,
            stability: Stability::Unstable,
            hint: CacheHint::default(),
            placement: Placement::Packed,
            data: InlineData::Here(bytes),
        });
        self.push_with(&request, None, None, u32::try_from(bytes.len()).unwrap_or(u32::MAX))
    }

    /// Appends bytes to the file on stable storage: either all of them or none. The bytes are sent
    /// inside the request.
    pub fn append(self, bytes: &[u8]) -> Self {
        let request = Request::AppendInline(AppendInline {
            file: self.object(),
            state: self.open_state(),
            stability: Stability::DataSync,
            hint: CacheHint::default(),
            placement: Placement::Packed,
            data: InlineData::Here(bytes),
        });
        self.push(&request, None)
    }

    /// Appends a slice of a registered buffer to the file on stable storage: either all of it or
    /// nothing. The slice belongs to the transport until the chain has ended.
    pub fn append_from(self, slice: Slice) -> Self {
        let request = Request::AppendDirect(AppendDirect {
            file: self.object(),
            state: self.open_state(),
            stability: Stability::DataSync,
            length: slice.length,
            hint: CacheHint::default(),
            checksum: self.checksum_of(&slice),
            buffer: slice.named(),
        });
        let length = slice.length;
        self.push_with(&request, None, Some(slice), length)
    }

    /// Flushes all data written to the current file to stable storage.
    pub fn commit(self) -> Self {
        let file = self.object();
        self.push(&Request::Commit(Commit { file, offset: 0, length: 0 }), None)
    }

    /// Closes the open that the members before this one use.
    pub fn close(self) -> Self {
        let (file, state) = (self.object(), self.open_state());
        self.push(&Request::Close(Close { file, state }), None)
    }

    // ---- changing names and attributes -------------------------------------------------

    /// Sets attributes of the current object.
    pub fn setattr(self, wanted: &SetAttributes) -> Self {
        let (file, state) = (self.object(), self.open_state());
        let mut buffer = [0; ATTRIBUTE_BYTES_MAX];
        match encode_set(wanted, &mut buffer, OsStr::new("SETATTR")) {
            Ok(attributes) => {
                let set = SetAttributesInline { file, state, attributes };
                self.push(&Request::SetAttrInline(set), None)
            }
            Err(error) => self.refuse_with(Procedure::SetAttrInline, error),
        }
    }

    /// Creates a directory in the current directory; the new directory becomes the current object.
    pub fn create_dir(self, name: impl AsRef<OsStr>, mode: u32) -> Self {
        self.create(name.as_ref(), NewObject::Directory, Some(mode))
    }

    /// Creates a symbolic link with the target `text` in the current directory; the link becomes
    /// the current object.
    pub fn symlink(self, text: impl AsRef<[u8]>, name: impl AsRef<OsStr>) -> Self {
        self.create(name.as_ref(), NewObject::SymbolicLink(text.as_ref()), None)
    }

    fn create(self, name: &OsStr, object: NewObject<'_>, mode: Option<u32>) -> Self {
        let directory = self.object();
        let mut buffer = [0; ATTRIBUTE_BYTES_MAX];
        let mode = mode.map(|mode| self.session.masked(mode));
        let wanted = SetAttributes { mode, ..SetAttributes::default() };
        match encode_set(&wanted, &mut buffer, name) {
            Ok(attributes) => {
                let create = Create { directory, name: &wire(name), object, attributes };
                self.push(&Request::Create(create), Some(name))
            }
            Err(error) => self.refuse_with(Procedure::Create, error),
        }
    }

    /// Creates a hard link to `source` in the current directory.
    pub fn link(self, source: FileHandle, name: impl AsRef<OsStr>) -> Self {
        let (directory, name) = (self.object(), name.as_ref());
        let link = Link { source, directory, name: &wire(name) };
        self.push(&Request::Link(link), Some(name))
    }

    /// Moves a name from another directory into the current one.
    pub fn rename(
        self,
        source: FileHandle,
        old_name: impl AsRef<OsStr>,
        new_name: impl AsRef<OsStr>,
    ) -> Self {
        let (target, new_name) = (self.object(), new_name.as_ref());
        let (old, new) = (wire(old_name.as_ref()), wire(new_name));
        let rename = Rename { source, target, old_name: &old, new_name: &new };
        self.push(&Request::Rename(rename), Some(new_name))
    }

    /// Removes a name from the current directory.
    pub fn remove(self, name: impl AsRef<OsStr>) -> Self {
        let (directory, mode, name) = (self.object(), RemoveMode::Unchecked, name.as_ref());
        let remove = Remove { directory, name: &wire(name), mode };
        self.push(&Request::Remove(remove), Some(name))
    }

    // ---- locks -------------------------------------------------------------------------

    /// Locks a range of the open file, in bytes; the length `u64::MAX` means up to the end of the
    /// file.
    pub fn lock(self, lock_type: LockType, offset: u64, length: u64) -> Self {
        let (file, state) = (self.object(), self.open_state());
        let options = LockOptions::default();
        self.push(&Request::Lock(Lock { file, lock_type, options, state, offset, length }), None)
    }

    /// Releases a lock on a range of the open file; `offset` and `length` are in bytes.
    pub fn unlock(self, lock_type: LockType, offset: u64, length: u64) -> Self {
        let (file, state) = (self.object(), self.open_state());
        self.push(&Request::LockU(Unlock { file, lock_type, state, offset, length }), None)
    }

    // ---- other -------------------------------------------------------------------------

    #[doc(hidden)]
    /// Adds a request that the caller has built, and that names its object and open itself. Its
    /// results are not decoded.
    pub fn request(self, request: &Request<'_>) -> Self {
        let before = self.draft().place();
        // The object and the open in the caller's request are not checked.
        let (file, state) = before;
        let file = file.unwrap_or(FileHandle::NULL);
        self.draft().stand_on(file, state.unwrap_or(StateId::ANONYMOUS));
        let names_object = request.procedure().chained_handle_at().is_some();
        let chain = self.push(request, None);
        if !names_object {
            chain.draft().return_to(before);
        }
        chain
    }

    /// Makes the server keep the result of the preceding member in the session's response cache, if
    /// the session has one. This is for members that only read. Results that a later change of the
    /// file system depends on are always kept.
    pub fn save(self) -> Self {
        let saved = self.work.borrow_mut().members.last_mut().map(|last| {
            last.flags = last.flags.with(ChainFlags::SAVE);
            last.procedure
        });
        let Some(procedure) = saved else {
            return self.refuse(Procedure::Null, "SAVE before the first member", Status::ChainForm);
        };
        if procedure.chain_class() == ChainClass::Simple {
            return self;
        }
        let what = format!("SAVE is only for simple procedures, which {} is not", procedure.name());
        self.refuse(procedure, &what, Status::ChainForm)
    }

    /// Runs the chain and waits, for one round trip if the session has credits for all members.
    /// Returns the members' outcomes in order.
    ///
    /// # Errors
    /// The failure of the first member that failed, with the outcomes of the members before it.
    pub fn run(self) -> std::result::Result<Vec<Outcome>, ChainFailure> {
        let session = self.session;
        session.run(self.run_async())
    }

    /// Starts the chain immediately. The chain continues even if the future is dropped.
    pub fn run_async(self) -> Chained<'s> {
        let session = self.session;
        self.submit().unwrap_or_else(|failure| Chained::failed(session, failure))
    }
}

/// The attributes that [`Chain::verify`] can compare. Attributes without a value are marked invalid
/// in the message.
const COMPARED: AttributeBitmap = METADATA
    .with(bits::NAMED_ATTR)
    .with(bits::TIME_CREATE)
    .with(bits::TIME_DELTA)
    .with(bits::RAW_DEV);
