//! Results of calls, to be converted to Python objects.
//!
//! Invariant: results contain no client objects, so they can leave the client's lock.

use std::ffi::OsString;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::Arc;

use dafs_client::{ClientError, DirectoryEntry, LockHolder, LockKind, Metadata, ObjectType};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::core::Core;
use crate::errors::Failure;
use crate::file::File;
use crate::memory::{Bytes, Memory};

/// The result of a call.
pub enum Value {
    /// No result.
    None,
    /// A truth value.
    Bool(bool),
    /// A count or an offset.
    Int(u64),
    /// A text.
    Text(String),
    /// Bytes.
    Raw(Vec<u8>),
    /// A list of texts.
    Texts(Vec<String>),
    /// Attributes.
    Metadata(Box<Metadata>),
    /// A directory listing.
    Entries(Vec<DirectoryEntry>),
    /// An open file: its number and path.
    File(usize, OsString),
    /// Registered memory: its number, address and length.
    Memory(usize, usize, usize),
    /// A bytes object that was read into, and the number of bytes read.
    Bytes(Bytes, usize),
    /// The contents of whole files.
    Files(Vec<Result<Vec<u8>, Failure>>),
    /// The number of bytes that each request of a batch transferred.
    Counts(Vec<Result<u32, ClientError>>),
    /// A file system: total, free and available bytes; total and free files; the longest name.
    Space([u64; 6]),
    /// The holder of a lock.
    Holder(Option<LockHolder>),
    /// A file descriptor that Python must close.
    Descriptor(OwnedFd),
}

impl Value {
    /// Converts the result to a Python object.
    pub fn into_python(self, py: Python<'_>, core: &Arc<Core>) -> PyResult<Py<PyAny>> {
        Ok(match self {
            Self::None => py.None(),
            Self::Bool(value) => value.into_pyobject(py)?.to_owned().into_any().unbind(),
            Self::Int(value) => value.into_pyobject(py)?.into_any().unbind(),
            Self::Text(text) => text.into_pyobject(py)?.into_any().unbind(),
            Self::Raw(bytes) => PyBytes::new(py, &bytes).into_any().unbind(),
            Self::Texts(texts) => texts.into_pyobject(py)?.into_any().unbind(),
            Self::Metadata(metadata) => metadata_tuple(py, &metadata)?.into_any().unbind(),
            Self::Entries(entries) => entry_list(py, entries)?.into_any().unbind(),
            Self::File(number, path) => {
                Py::new(py, File::new(core.clone(), number, path))?.into_any()
            }
            Self::Memory(number, address, length) => {
                Py::new(py, Memory::new(core.clone(), number, address, length))?.into_any()
            }
            Self::Bytes(bytes, length) => bytes.finish(py, length, &core.counters)?,
            Self::Files(files) => {
                let list = PyList::empty(py);
                for file in files {
                    match file {
                        Ok(bytes) => {
                            core.counters.note_copy(bytes.len());
                            list.append(PyBytes::new(py, &bytes))?;
                        }
                        Err(failure) => list.append(failure.to_exception(py)?)?,
                    }
                }
                list.into_any().unbind()
            }
            Self::Counts(counts) => {
                let list = PyList::empty(py);
                for count in counts {
                    match count {
                        Ok(count) => list.append(count)?,
                        Err(error) => list.append(Failure::Client(error).to_exception(py)?)?,
                    }
                }
                list.into_any().unbind()
            }
            Self::Descriptor(descriptor) => {
                let number = descriptor.into_raw_fd();
                number.into_pyobject(py)?.into_any().unbind()
            }
            Self::Space(space) => PyTuple::new(py, space)?.into_any().unbind(),
            Self::Holder(None) => py.None(),
            Self::Holder(Some(holder)) => {
                let is_exclusive = holder.kind == LockKind::Exclusive;
                let owner = PyBytes::new(py, &holder.owner);
                let tuple = (owner, is_exclusive, holder.offset, holder.length);
                tuple.into_pyobject(py)?.into_any().unbind()
            }
        })
    }
}

/// Returns the type and permission bits as in `st_mode`.
fn st_mode(metadata: &Metadata) -> u32 {
    let kind = match metadata.kind {
        ObjectType::Directory | ObjectType::AttributeDirectory => 0o040_000,
        ObjectType::SymbolicLink => 0o120_000,
        ObjectType::BlockDevice => 0o060_000,
        ObjectType::CharacterDevice => 0o020_000,
        ObjectType::Fifo => 0o010_000,
        ObjectType::Socket => 0o140_000,
        ObjectType::Regular | ObjectType::NamedAttribute => 0o100_000,
    };
    kind | metadata.mode
}

fn metadata_tuple<'py>(py: Python<'py>, metadata: &Metadata) -> PyResult<Bound<'py, PyTuple>> {
    let time = |time: dafs_client::Timestamp| {
        i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds)
    };
    let nanoseconds = |at| i64::try_from(time(at)).unwrap_or(i64::MAX);
    (
        st_mode(metadata),
        metadata.file_id,
        metadata.link_count,
        metadata.size,
        nanoseconds(metadata.time_access),
        nanoseconds(metadata.time_modify),
        nanoseconds(metadata.time_metadata),
        metadata.space_used,
        &metadata.owner,
        &metadata.owner_group,
        metadata.change,
    )
        .into_pyobject(py)
}

fn entry_list(py: Python<'_>, entries: Vec<DirectoryEntry>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for entry in entries {
        let metadata = entry.metadata.map(|metadata| metadata_tuple(py, &metadata)).transpose()?;
        list.append((entry.name, metadata))?;
    }
    Ok(list)
}
