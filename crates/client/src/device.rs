//! Memory of devices such as GPUs, registered through dmabufs.
//!
//! [`Session::register_dmabuf`] registers a range of a dmabuf. Slices of the memory are used in
//! transfers like those of a [`Buffer`](crate::Buffer): one at a time by futures or completion
//! groups, or as lists in batches. Their transfers are cancelled in the same ways. The processor
//! cannot access the memory: only RDMA devices move its bytes.
//!
//! Invariants:
//!
//! - Before a request names device memory to a server, the request has passed [`Core::reach`] for
//!   the connection that it is sent over.
//! - Device memory is not mapped into this process, so that no code path can copy it.

use std::rc::Rc;

use crate::buffer::{RegisteredMemory, Slice};
use crate::error::Result;

/// Registered memory of a device, which servers can read and write while a transfer names it. Cheap
/// to clone. The memory stays registered until its last clone is dropped and all slices and
/// transfers that use it have ended.
///
/// ```no_run
/// use std::os::fd::OwnedFd;
///
/// use dafs_client::{Client, ClientConfig, Location, OpenOptions, SessionOptions, block_on};
///
/// /// Fills GPU memory that the driver of the GPU has exported as a dmabuf.
/// fn load(dmabuf: OwnedFd, length: usize) -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::new(ClientConfig::default())?;
///     let location = Location::parse("dafs+verbs://storage/")?;
///     let session = client.connect(&location, &SessionOptions::default())?;
///     let memory = session.register_dmabuf(dmabuf, 0, length)?;
///     let file = session.open("/model.bin", &OpenOptions::read())?;
///
///     // One transfer, as a future.
///     let head = memory.slice(0, 1 << 20)?;
///     let read = block_on(&client, file.read_async(0, head))?;
///     println!("{} bytes", read.length);
///
///     // A list: two ranges of the file, scattered over four pieces of the memory.
///     let pieces = (1..5).map(|piece| memory.slice(piece << 20, 1 << 20));
///     let pieces = pieces.collect::<Result<Vec<_>, _>>()?;
///     let ranges = [(1 << 20, 2 << 20), (8 << 20, 2 << 20)];
///     let batch = session.batch().read_list(&file, &ranges, pieces).submit()?;
///     // Meanwhile `batch.outcome(0)` returns the outcome, if any, and `batch.cancel(0)` cancels.
///     for outcome in batch.wait() {
///         println!("{} bytes", outcome?);
///     }
///     Ok(())
/// }
/// ```
///
/// The processor cannot read the memory, and chains, whose requests are encoded in advance, do not
/// accept it:
///
/// ```compile_fail,E0599
/// # use dafs_client::DeviceMemory;
/// fn look(memory: &DeviceMemory, bytes: &mut [u8]) {
///     memory.read(0, bytes);
/// }
/// ```
///
/// ```compile_fail,E0308
/// # use dafs_client::{Chain, DeviceSlice};
/// fn chain(chain: Chain<'_>, slice: DeviceSlice) {
///     let _ = chain.write_from(0, slice);
/// }
/// ```
#[derive(Clone, Debug)]
pub struct DeviceMemory(pub(crate) Rc<RegisteredMemory>);

/// A range of device memory, for use in a transfer.
#[derive(Clone, Debug)]
pub struct DeviceSlice(Slice);

/// The memory of a transfer: a [`Slice`] of a buffer, or a [`DeviceSlice`].
#[derive(Clone, Debug)]
pub struct Span(pub(crate) Slice);

impl From<Slice> for Span {
    fn from(slice: Slice) -> Self {
        Self(slice)
    }
}

impl From<DeviceSlice> for Span {
    fn from(slice: DeviceSlice) -> Self {
        Self(slice.0)
    }
}

impl DeviceMemory {
    /// Returns the length of the memory in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.length()
    }

    /// Returns true if the memory has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the slice of `length` bytes at `offset`, in bytes from the start of the registered
    /// range.
    ///
    /// # Errors
    /// [`ClientError::Range`](crate::ClientError::Range) if the slice does not lie inside the
    /// memory, or exceeds 4 GiB.
    pub fn slice(&self, offset: usize, length: usize) -> Result<DeviceSlice> {
        self.0.slice(offset, length).map(DeviceSlice)
    }
}

impl DeviceSlice {
    /// Returns the slice's length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if the slice has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
