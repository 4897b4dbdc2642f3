//! The application's own memory, lent to an RDMA device for the duration of a call.
//!
//! Invariant: memory is lent only to a session without checksums, and only for requests that name
//! the memory instead of carrying its bytes, so that this module never reads the memory. If a
//! session reconnects over a device that does not know the lent memory, the transfer cannot be
//! repeated and ends. The call is then made again with the client's registered memory, like every
//! call for which no memory can be lent.

use dafs_dat::{Ended, Lender, Region};
use dafs_memory::CacheCounters;

use rustix::io::Errno;

use crate::buffer::{Buffer, Slice};
use crate::client::Client;
use crate::core::Core;
use crate::error::{ClientError, Result, SystemCause};
use crate::file::File;
use crate::ids::SessionKey;
use crate::operation::Transferred;
use crate::transfer::Transfer;
use crate::work::Work;

impl Client {
    /// Returns the counters of the cache of registrations of the application's own memory.
    #[must_use]
    pub fn own_memory_counters(&self) -> CacheCounters {
        self.0.borrow().transport.interface().own_memory_counters()
    }
}

impl File {
    /// Reads from the file directly into the beginning of `bytes`. Returns the number of bytes
    /// requested and the number of bytes read, or `None` if the memory cannot be lent.
    pub(crate) fn read_lent(
        &self,
        bytes: &mut [u8],
        offset: u64,
    ) -> Option<Result<(usize, usize)>> {
        let lender = self.lender(bytes.len())?;
        let length = bytes.len().min(LENT_BYTES_MAX);
        let read = lender.lend_mut(&mut bytes[..length], |region| {
            self.with_lent(region, |slice| self.read_into(offset, slice))
        });
        unless_other_device(read.ok()?).map(|read| Ok((length, read?.length as usize)))
    }

    /// Writes directly from the beginning of `bytes` to the file. Returns the number of bytes
    /// written, or `None` if the memory cannot be lent.
    pub(crate) fn write_lent(&self, bytes: &[u8], offset: u64) -> Option<Result<usize>> {
        let lender = self.lender(bytes.len())?;
        let length = bytes.len().min(LENT_BYTES_MAX);
        let written = lender.lend(&bytes[..length], |region| {
            self.with_lent(region, |slice| self.write_from(offset, slice))
        });
        unless_other_device(written.ok()?).map(|written| Ok(written?.length as usize))
    }

    #[inline]
    fn lender(&self, length: usize) -> Option<Lender> {
        if length < LENT_BYTES_MIN {
            return None;
        }
        let session = self.session();
        session.shared.borrow().lender(session.key, length)
    }

    fn with_lent(
        &self,
        region: Region,
        call: impl FnOnce(Slice) -> Result<Transferred>,
    ) -> Ended<Result<Transferred>> {
        let buffer = Buffer::lent(region, &self.session().shared);
        match buffer.slice(0, buffer.len()).and_then(call) {
            Ok(done) => Ended::InOrder(Ok(done)),
            Err(error) => Ended::Otherwise(Err(error)),
        }
    }
}

impl Core {
    fn lender(&self, key: SessionKey, length: usize) -> Option<Lender> {
        let session = &self.sessions[key];
        let is_inline = length <= session.terms.inline_bytes_max() as usize;
        if session.terms.checksums || is_inline {
            return None;
        }
        self.transport.interface().lender(session.endpoint)
    }

    /// Ends the transfers of lent memory that the device of the reconnected session does not know.
    pub(crate) fn end_lent_on_other_device(&mut self, key: SessionKey) {
        let session = &mut self.sessions[key];
        let (interface, endpoint) = (self.transport.interface(), session.endpoint);
        let is_elsewhere = |transfer: &Transfer| {
            let region = transfer.lent_region();
            region.is_some_and(|region| !interface.reaches_lent(endpoint, region))
        };
        let mut ended = session.in_flight.extract_transfers(is_elsewhere);
        if let Some(machine) = &mut session.recovery {
            let delayed = machine.extract_delayed(|work| match work {
                Work::Transfer(transfer) => is_elsewhere(transfer),
                Work::Call(_) | Work::Member(_) | Work::Chain(_) => false,
            });
            ended.extend(delayed.into_iter().filter_map(|work| match work {
                Work::Transfer(transfer) => Some(transfer),
                Work::Call(_) | Work::Member(_) | Work::Chain(_) => None,
            }));
        }
        for transfer in ended {
            let source = SystemCause::new(
                Errno::NXIO.raw_os_error(),
                "the session reconnected over another device",
            );
            self.complete(&transfer, Err(ClientError::System { what: LENDING, source }));
        }
    }
}

/// Returns the result of a transfer, or `None` if the transfer failed because the session's new
/// device does not know the lent memory.
fn unless_other_device(result: Result<Transferred>) -> Option<Result<Transferred>> {
    match result {
        Err(ClientError::System { what: LENDING, .. }) => None,
        other => Some(other),
    }
}

const LENDING: &str = "lending memory to a device";

/// The smallest size in bytes of memory that is lent: copying less is faster than looking up a
/// registration.
const LENT_BYTES_MIN: usize = 32 << 10;

/// The maximum size in bytes of one registration.
const LENT_BYTES_MAX: usize = 16 << 20;
