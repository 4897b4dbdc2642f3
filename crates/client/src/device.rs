//! Memory of other devices, such as GPUs, by their dmabufs.
//!
//! [`Session::register_dmabuf`] makes a descriptor of part of a dmabuf. Slices of it are read into
//! and written from as those of a [`Buffer`](crate::Buffer) are: one at a time by futures or into
//! completion groups, or as lists in batches; cancelled in the same ways. There is no way to look
//! into it: RDMA devices move its octets, and nothing else.
//!
//! Invariant: whatever names device memory to a server goes through [`Core::reach`] first, over
//! the connection that it is sent over; and nothing of device memory is in this process, so that
//! no path can copy it.

use std::error::Error;
use std::os::fd::AsFd;
use std::rc::Rc;

use dafs_dat::{DmabufError, DmabufRange, Rights};

use crate::buffer::{Registered, Slice};
use crate::core::{Core, Phase};
use crate::error::{ClientError, Result};
use crate::session::Session;

/// Memory of a device that servers read and write while a transfer names it. Cheap to clone. It
/// stays registered until its last clone, all slices and all transfers with it are gone.
///
/// ```no_run
/// use std::os::fd::OwnedFd;
///
/// use dafs_client::{Client, ClientConfig, Location, OpenOptions, SessionOptions, block_on};
///
/// /// Fills memory of a GPU, whose driver has made a dmabuf of it.
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
///     println!("{} octets", read.length);
///
///     // A list: two ranges of the file, scattered over four pieces of the memory.
///     let pieces = (1..5).map(|piece| memory.slice(piece << 20, 1 << 20));
///     let pieces = pieces.collect::<Result<Vec<_>, _>>()?;
///     let ranges = [(1 << 20, 2 << 20), (8 << 20, 2 << 20)];
///     let batch = session.batch().read_list(&file, &ranges, pieces).submit()?;
///     // Meanwhile `batch.outcome(0)` tells whether it is done, and `batch.cancel(0)` gives it up.
///     for outcome in batch.wait() {
///         println!("{} octets", outcome?);
///     }
///     Ok(())
/// }
/// ```
///
/// The processor cannot look into it, and what encodes names beforehand does not take it:
///
/// ```compile_fail,E0599
/// # use dafs_client::DeviceMemory;
/// fn look(memory: &DeviceMemory, octets: &mut [u8]) {
///     memory.read(0, octets);
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
pub struct DeviceMemory(Rc<Registered>);

/// Part of device memory.
#[derive(Clone, Debug)]
pub struct DeviceSlice(Slice);

/// Where a transfer's octets are: a [`Slice`] of a buffer, or a [`DeviceSlice`].
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

impl Session {
    /// Registers `length` octets of a dmabuf, from `offset` on, with the RDMA device of this
    /// session. Waits for the session's connection if that is lost just now.
    ///
    /// The descriptor may be borrowed or given; the client has one of its own from here on, by
    /// which the memory is registered again when it is used through another device: in another
    /// session, or after this one has lost its own.
    ///
    /// # Errors
    /// [`ClientError::OutOfReach`] where there is no RDMA device, or the one there is does not
    /// take the dmabuf, and in a session with checksums; [`ClientError::System`] if there is no
    /// room for another region or descriptor. If the session has ended.
    pub fn register_dmabuf(
        &self,
        dmabuf: impl AsFd,
        offset: u64,
        length: usize,
    ) -> Result<DeviceMemory> {
        let range = DmabufRange { fd: dmabuf.as_fd(), offset, length: length as u64 };
        let region = self.shared.turn_until(self.index, |core| {
            if let Err(error) = core.check_open(self.index) {
                return Some(Err(error));
            }
            if !matches!(core.sessions[self.index].phase, Phase::Open) {
                return None;
            }
            if let Err(error) = core.check_checksums(self.index) {
                return Some(Err(error));
            }
            let endpoint = core.sessions[self.index].endpoint;
            match core.interface.register_dmabuf(endpoint, range, Rights::REMOTE) {
                // An event that says so is on its way.
                Err(DmabufError::NotConnected) => None,
                registered => Some(registered.map_err(|error| core.refused(self.index, &error))),
            }
        })?;
        Ok(DeviceMemory(Rc::new(Registered::device(region, length, &self.shared))))
    }
}

impl DeviceMemory {
    /// Octets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.length()
    }

    /// Whether it has no octets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The part of `length` octets at `offset`, which counts from the start of what was
    /// registered.
    ///
    /// # Errors
    /// [`ClientError::Range`].
    pub fn slice(&self, offset: usize, length: usize) -> Result<DeviceSlice> {
        self.0.slice(offset, length).map(DeviceSlice)
    }
}

impl DeviceSlice {
    /// Octets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no octets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Core {
    /// Sees to it that the device of a session's connection knows the memory of a request that
    /// is about to be sent, if that is a device's.
    #[inline]
    pub fn reach(&mut self, index: usize, memory: Option<&Registered>) -> Result<()> {
        match memory {
            Some(memory) if memory.is_device => self.reach_device(index, memory),
            _ => Ok(()),
        }
    }

    fn reach_device(&mut self, index: usize, memory: &Registered) -> Result<()> {
        self.check_checksums(index)?;
        let session = &self.sessions[index];
        if !matches!(session.phase, Phase::Open) {
            // It is looked at once more when there is a connection.
            return Ok(());
        }
        match self.interface.reach_dmabuf(session.endpoint, memory.region.key) {
            // What is sent comes to nothing, and is sent again when the session is back.
            Ok(()) | Err(DmabufError::NotConnected) => Ok(()),
            Err(error) => Err(self.refused(index, &error)),
        }
    }

    fn check_checksums(&self, index: usize) -> Result<()> {
        let session = &self.sessions[index];
        if !session.checksums {
            return Ok(());
        }
        Err(ClientError::OutOfReach {
            address: session.address.clone(),
            reason: "this session has checksums of all data, which the processor would have to \
                     compute; connect without (SessionOptions::checksums)"
                .into(),
        })
    }

    fn refused(&self, index: usize, error: &DmabufError) -> ClientError {
        let address = self.sessions[index].address.clone();
        let cause = error.source().map(|cause| format!(" ({cause})")).unwrap_or_default();
        match error {
            DmabufError::Transport => ClientError::OutOfReach { address, reason: NO_DEVICE.into() },
            DmabufError::Device { .. } => {
                ClientError::OutOfReach { address, reason: format!("{error}{cause}; {OTHERWISE}") }
            }
            DmabufError::TableFull => system("too many regions; drop some buffers".into()),
            DmabufError::Descriptor { .. }
            | DmabufError::NotConnected
            | DmabufError::NoSuchRegion => system(format!("{error}{cause}")),
        }
    }
}

fn system(reason: String) -> ClientError {
    ClientError::System { what: "registering device memory", reason }
}

const NO_DEVICE: &str = "this connection goes through no RDMA device (one that is lost may have \
                         been replaced by another transport), and without one the processor would \
                         have to move the octets; connect by dafs+verbs://HOST/ where both hosts \
                         have a device (`dafs doctor` tells), or go through a buffer \
                         (Client::allocate) and copy";
const OTHERWISE: &str = "or go through a buffer (Client::allocate) and copy";
