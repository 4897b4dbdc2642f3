//! Memory of the application's own, lent to the server for as long as a call takes.
//!
//! Invariant: a slice is lent to a session without checksums, for requests that name it and do
//! not carry it: nothing here looks into it. A transfer of lent memory that can only be asked
//! for over another device than knows the memory is not asked for, but ends; its call then goes
//! through the client's own memory, as all do that cannot lend.

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
    /// What has been kept registered of the application's own memory.
    #[must_use]
    pub fn own_memory_counters(&self) -> CacheCounters {
        self.0.borrow().transport.interface().own_memory_counters()
    }
}

impl File {
    /// Reads a piece from the beginning of `bytes`, straight into it. `None` if that is not done
    /// here; otherwise what was wanted, and what was read.
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
        unless_elsewhere(read.ok()?).map(|read| Ok((length, read?.length as usize)))
    }

    /// Writes a piece from the beginning of `bytes`, straight out of it. `None` if that is not
    /// done here; otherwise what was written.
    pub(crate) fn write_lent(&self, bytes: &[u8], offset: u64) -> Option<Result<usize>> {
        let lender = self.lender(bytes.len())?;
        let length = bytes.len().min(LENT_BYTES_MAX);
        let written = lender.lend(&bytes[..length], |region| {
            self.with_lent(region, |slice| self.write_from(offset, slice))
        });
        unless_elsewhere(written.ok()?).map(|written| Ok(written?.length as usize))
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

    /// The session is back: ends the transfers of memory that its device has not been told of.
    pub fn end_lent_elsewhere(&mut self, key: SessionKey) {
        let session = &mut self.sessions[key];
        let (interface, endpoint) = (self.transport.interface(), session.endpoint);
        let is_elsewhere = |transfer: &Transfer| {
            let region = transfer.lent_region();
            region.is_some_and(|region| !interface.reaches_lent(endpoint, region))
        };
        let mut ended = session.under_way.extract_transfers(is_elsewhere);
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
                "the session has come back over another device",
            );
            self.complete(&transfer, Err(ClientError::System { what: LENDING, source }));
        }
    }
}

/// What came of a call, unless it could not be carried out with what was lent.
fn unless_elsewhere(result: Result<Transferred>) -> Option<Result<Transferred>> {
    match result {
        Err(ClientError::System { what: LENDING, .. }) => None,
        other => Some(other),
    }
}

const LENDING: &str = "lending memory to a device";

/// Fewer bytes are copied: that takes less than it takes to look whether they are registered.
const LENT_BYTES_MIN: usize = 32 << 10;

/// Bytes of one registration.
const LENT_BYTES_MAX: usize = 16 << 20;
