//! Registers device memory with the RDMA device that a request is sent through.
//!
//! Invariant: before a request names device memory to a server, the request has passed
//! [`Core::reach`] for the connection that it is sent over.

use std::error::Error;
use std::os::fd::AsFd;
use std::rc::Rc;

use dafs_dat::{DmabufError, DmabufRange, Rights};

use crate::buffer::RegisteredMemory;
use crate::core::Core;
use crate::device::DeviceMemory;
use crate::error::{ClientError, Result, SystemCause};
use crate::ids::SessionKey;
use crate::session::Session;
use crate::state::SessionState;

impl Session {
    /// Registers `length` bytes of a dmabuf, from byte `offset` on, with the RDMA device of this
    /// session. If the session is reconnecting, the call waits until it has reconnected.
    ///
    /// The client duplicates the descriptor. With its own copy it registers the memory again when
    /// the memory is used through another device: in another session, or after this session has
    /// reconnected over another device.
    ///
    /// # Errors
    /// [`ClientError::OutOfReach`] if the session uses no RDMA device, if the device does not
    /// accept the dmabuf, or if the session has checksums; [`ClientError::System`] if there is no
    /// room for another region or descriptor; an error if the session has ended.
    pub fn register_dmabuf(
        &self,
        dmabuf: impl AsFd,
        offset: u64,
        length: usize,
    ) -> Result<DeviceMemory> {
        let range = DmabufRange { fd: dmabuf.as_fd(), offset, length: length as u64 };
        let region = self.shared.turn_until(self.key, |core| {
            let session = match core.sessions.open(self.key) {
                Ok(session) => session,
                Err(error) => return Some(Err(error)),
            };
            if !session.is_open() {
                return None;
            }
            if let Err(error) = session.check_checksums() {
                return Some(Err(error));
            }
            let interface = core.transport.interface_mut();
            match interface.register_dmabuf(session.endpoint, range, Rights::REMOTE) {
                // An event that reports the lost connection is pending.
                Err(DmabufError::NotConnected) => None,
                registered => Some(registered.map_err(|error| session.refused(&error))),
            }
        })?;
        Ok(DeviceMemory(Rc::new(RegisteredMemory::device(region, length, &self.shared))))
    }
}

impl Core {
    /// Registers GPU or other device memory with the RDMA device of a session's connection, before
    /// a request that names the memory is sent. Other memory needs no such registration.
    #[inline]
    pub(crate) fn reach(
        &mut self,
        key: SessionKey,
        memory: Option<&RegisteredMemory>,
    ) -> Result<()> {
        match memory {
            Some(memory) if memory.is_device => self.reach_device(key, memory),
            _ => Ok(()),
        }
    }

    fn reach_device(&mut self, key: SessionKey, memory: &RegisteredMemory) -> Result<()> {
        let session = &self.sessions[key];
        session.check_checksums()?;
        if !session.is_open() {
            // The session has no connection now; the request calls this function again after the
            // reconnect.
            return Ok(());
        }
        match self.transport.interface_mut().reach_dmabuf(session.endpoint, memory.region.key) {
            // If the connection is lost, this request fails with it, and is sent again after the
            // reconnect.
            Ok(()) | Err(DmabufError::NotConnected) => Ok(()),
            Err(error) => Err(session.refused(&error)),
        }
    }
}

impl SessionState {
    fn check_checksums(&self) -> Result<()> {
        if !self.terms.checksums {
            return Ok(());
        }
        Err(ClientError::OutOfReach {
            address: self.address.clone(),
            reason: "this session has checksums, for which the processor would have to read the \
                     data; connect without them (SessionOptions::checksums)"
                .into(),
        })
    }

    fn refused(&self, error: &DmabufError) -> ClientError {
        let address = self.address.clone();
        let cause = error.source().map(|cause| format!(" ({cause})")).unwrap_or_default();
        match error {
            DmabufError::Transport => ClientError::OutOfReach { address, reason: NO_DEVICE.into() },
            DmabufError::Device { .. } => {
                ClientError::OutOfReach { address, reason: format!("{error}{cause}; {OTHERWISE}") }
            }
            DmabufError::TableFull => {
                not_registered(SystemCause::no_room("too many regions; drop some buffers"))
            }
            DmabufError::Descriptor { .. }
            | DmabufError::NotConnected
            | DmabufError::NoSuchRegion => {
                not_registered(SystemCause::after(error, format!("{error}{cause}")))
            }
        }
    }
}

fn not_registered(source: SystemCause) -> ClientError {
    ClientError::System { what: "registering device memory", source }
}

const NO_DEVICE: &str = "this connection uses no RDMA device (after a loss it may have moved to \
                         another transport); connect by dafs+verbs://HOST/ if both hosts have a \
                         device (see `dafs doctor`), or copy through a buffer (Client::allocate)";

const OTHERWISE: &str = "or copy through a buffer (Client::allocate)";
