//! Memory of Python objects that is registered with the client, for a session or for a single call.
//!
//! Invariant: the owner of registered memory is kept alive as long as a server may access the
//! memory. If it is not known when that ends, the owner is kept alive forever.

use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dafs_client::{Buffer, Client};
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::core::{Core, Counters, Dropped};
use crate::errors::Failure;

/// Registered memory, which servers can access directly. It supports the buffer protocol, so that
/// numpy arrays and torch tensors can use it.
#[pyclass(frozen, module = "dafs._dafs")]
pub struct Memory {
    core: Arc<Core>,
    number: usize,
    address: usize,
    length: usize,
}

impl Memory {
    /// Wraps a buffer of a session, given by its number.
    pub fn new(core: Arc<Core>, number: usize, address: usize, length: usize) -> Self {
        Self { core, number, address, length }
    }
}

#[pymethods]
impl Memory {
    fn __len__(&self) -> usize {
        self.length
    }

    fn __repr__(&self) -> String {
        format!("<dafs.Memory of {} bytes>", self.length)
    }

    /// Fills a view of the memory for the buffer protocol.
    ///
    /// # Safety
    /// Only the interpreter may call this function, with a valid `view`.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        let length = ffi::Py_ssize_t::try_from(this.length)
            .map_err(|_| PyBufferError::new_err("too long"))?;
        let base = this.address as *mut std::ffi::c_void;
        // SAFETY: `view` is valid by this function's contract. The memory belongs to the buffer,
        // which lives as long as this object, to which the view refers.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), base, length, 0, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.core.discard(Dropped::Buffer(self.number));
    }
}

/// A range of memory that Python passes to a call.
pub struct Range {
    address: usize,
    length: usize,
    /// The owner of the memory, which keeps it alive and in place.
    owner: Py<PyAny>,
}

impl Range {
    /// Returns the memory of an object with the buffer protocol, or of a torch tensor.
    ///
    /// # Errors
    /// TypeError for other objects; BufferError or ValueError for memory that is not contiguous, is
    /// on another device, or is read-only but must be written.
    pub fn of(object: &Bound<'_, PyAny>, is_writable: bool) -> PyResult<Self> {
        match Self::of_buffer(object, is_writable) {
            Err(error) if error.is_instance_of::<PyTypeError>(object.py()) => {
                match bytes_of_tensor(object)? {
                    Some(bytes) => Self::of_buffer(&bytes, is_writable),
                    None => Err(error),
                }
            }
            range => range,
        }
    }

    fn of_buffer(object: &Bound<'_, PyAny>, is_writable: bool) -> PyResult<Self> {
        // The view keeps the object's memory in place until it is dropped.
        let owner = PyMemoryView::from(object)?.into_any();
        let mut view = std::mem::MaybeUninit::<ffi::Py_buffer>::uninit();
        let flags = if is_writable { ffi::PyBUF_WRITABLE } else { ffi::PyBUF_SIMPLE };
        // SAFETY: `view` has room for a view, and the interpreter's lock is held.
        if unsafe { ffi::PyObject_GetBuffer(owner.as_ptr(), view.as_mut_ptr(), flags) } != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        // SAFETY: the call above has initialized it.
        let mut view = unsafe { view.assume_init() };
        let (address, length) = (view.buf as usize, usize::try_from(view.len).unwrap_or(0));
        // SAFETY: the view is valid and released once. `owner` has another view.
        unsafe { ffi::PyBuffer_Release(&mut view) };
        Ok(Self { address, length, owner: owner.unbind() })
    }

    /// Returns the length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns the address of the first byte.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Shortens the range to `length` bytes.
    pub fn cut(mut self, length: usize) -> Self {
        self.length = self.length.min(length);
        self
    }

    /// Registers the range for one call.
    ///
    /// # Errors
    /// If the table of regions is full.
    pub fn lend(self, client: &Client, counters: &Counters) -> Result<CallMemory, Failure> {
        let is_complete = Arc::new(AtomicBool::new(false));
        let guard = OwnerGuard { owner: Some(self.owner), is_complete: is_complete.clone() };
        let base = NonNull::new(self.address as *mut u8).unwrap_or(NonNull::dangling());
        // SAFETY: the owner, a view of the memory, keeps it mapped and in place until it is
        // dropped, and `guard` drops it only when no server can access it any more. No references
        // to the memory exist: the interpreter only uses pointers, and a program that reads memory
        // during a transfer sees partial data at worst.
        let memory = unsafe { dafs_client::Memory::of_owner(base, self.length, Box::new(guard)) };
        counters.note_registration();
        Ok(CallMemory { buffer: client.register_memory(memory)?, is_complete })
    }

    /// Copies `length` bytes at `offset` of a buffer to the beginning of the range.
    pub fn fill(&self, buffer: &Buffer, offset: usize, length: usize) {
        let length = length.min(self.length);
        let from = buffer.memory().pointer(offset, length);
        // SAFETY: both ranges are within live memory. They do not overlap, because the buffer
        // belongs to the client.
        unsafe { std::ptr::copy_nonoverlapping(from, self.address as *mut u8, length) };
    }

    /// Copies `length` bytes from the beginning of a buffer to `at` in the range.
    pub fn fill_at(&self, at: usize, buffer: &Buffer, length: usize) {
        assert!(at <= self.length && length <= self.length - at, "outside of the memory");
        let from = buffer.memory().pointer(0, length);
        // SAFETY: as in `fill`; the range has `length` bytes there.
        unsafe { std::ptr::copy_nonoverlapping(from, (self.address + at) as *mut u8, length) };
    }

    /// Copies `length` bytes at `at` in the range to the beginning of a buffer.
    pub fn drain_at(&self, at: usize, buffer: &Buffer, length: usize) {
        assert!(at <= self.length && length <= self.length - at, "outside of the memory");
        let to = buffer.memory().pointer(0, length);
        // SAFETY: as in `fill`; the range has `length` bytes there.
        unsafe { std::ptr::copy_nonoverlapping((self.address + at) as *const u8, to, length) };
    }

    /// Copies the whole range to `offset` of a buffer.
    pub fn drain(&self, buffer: &Buffer, offset: usize) {
        let to = buffer.memory().pointer(offset, self.length);
        // SAFETY: both ranges are within live memory and do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(self.address as *const u8, to, self.length) };
    }

    /// Returns a copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.length);
        // SAFETY: the vector has room for the bytes, which are initialized afterwards.
        unsafe {
            let from = self.address as *const u8;
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), self.length);
            bytes.set_len(self.length);
        }
        bytes
    }
}

/// Returns the bytes of a tensor in main memory; `None` if the object is not a tensor.
fn bytes_of_tensor<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    if !(object.hasattr("is_contiguous")? && object.hasattr("untyped_storage")?) {
        return Ok(None);
    }
    if !object.call_method0("is_contiguous")?.is_truthy()? {
        return Err(PyValueError::new_err("the tensor is not contiguous"));
    }
    let device: String = object.getattr("device")?.getattr("type")?.extract()?;
    if device != "cpu" {
        return Err(PyValueError::new_err(format!("the tensor is on {device}, not on cpu")));
    }
    let byte = object.py().import("torch")?.getattr("uint8")?;
    let flat = object.call_method0("detach")?.call_method1("reshape", (-1,))?;
    Ok(Some(flat.call_method1("view", (byte,))?.call_method0("numpy")?))
}

/// Memory of a Python object that is registered for one call.
pub struct CallMemory {
    /// The registration of the memory.
    pub buffer: Buffer,
    is_complete: Arc<AtomicBool>,
}

impl CallMemory {
    /// Notes that the server has replied, so that nothing accesses the memory any more.
    pub fn complete(self) {
        self.is_complete.store(true, Ordering::Release);
    }
}

/// Keeps the owner of registered memory alive until the memory is no longer accessed.
struct OwnerGuard {
    owner: Option<Py<PyAny>>,
    is_complete: Arc<AtomicBool>,
}

impl Drop for OwnerGuard {
    fn drop(&mut self) {
        // If there was no reply, the server may still write to the memory, so never free it.
        if !self.is_complete.load(Ordering::Acquire) {
            std::mem::forget(self.owner.take());
        }
    }
}

/// A bytes object that is being read into.
pub struct Bytes(Py<PyBytes>);

impl Bytes {
    /// Makes an object with uninitialized bytes of the given length, and its range.
    ///
    /// # Errors
    /// MemoryError if there is not enough memory.
    pub fn new(py: Python<'_>, length: usize) -> PyResult<(Self, Range)> {
        let signed = ffi::Py_ssize_t::try_from(length)
            .map_err(|_| PyValueError::new_err("the length exceeds the address space"))?;
        // SAFETY: without bytes to copy, this makes an object whose bytes the caller must
        // initialize. Nothing else refers to it before that.
        let bytes = unsafe {
            let made = ffi::PyBytes_FromStringAndSize(std::ptr::null(), signed);
            Bound::from_owned_ptr_or_err(py, made)?.cast_into_unchecked::<PyBytes>()
        };
        let address = bytes.as_bytes().as_ptr() as usize;
        let owner = bytes.clone().into_any().unbind();
        Ok((Self(bytes.unbind()), Range { address, length, owner }))
    }

    /// Returns the object, shortened to the bytes that were read.
    pub fn finish(self, py: Python<'_>, length: usize, counters: &Counters) -> PyResult<Py<PyAny>> {
        let bytes = self.0.bind(py);
        let data = bytes.as_bytes();
        if data.len() == length {
            return Ok(self.0.into_any());
        }
        counters.note_copy(length);
        Ok(PyBytes::new(py, &data[..length.min(data.len())]).into_any().unbind())
    }
}
