//! Memory of the application's own, lent to the server for as long as a call takes.
//!
//! Invariant: a slice is lent to a session without checksums, for requests that name it and do
//! not carry it: nothing here looks into it. A transfer of lent memory that can only be asked
//! for over another device than knows the memory is not asked for, but ends; its call then goes
//! through the client's own memory, as all do that cannot lend.

use dafs_dat::{Ended, Lender, Region};
use dafs_memory::CacheCounters;

use crate::buffer::{Buffer, Slice};
use crate::client::Client;
use crate::core::{Core, Transferred};
use crate::data::Transfer;
use crate::error::{ClientError, Result};
use crate::file::File;
use crate::recovery::Work;

impl Client {
    /// What has been kept registered of the application's own memory.
    #[must_use]
    pub fn own_memory_counters(&self) -> CacheCounters {
        self.0.borrow().interface.own_memory_counters()
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
        session.shared.borrow().lender(session.index, length)
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
    fn lender(&self, index: usize, length: usize) -> Option<Lender> {
        let session = &self.sessions[index];
        let is_inline = length <= session.inline_bytes_max() as usize;
        if session.checksums || is_inline {
            return None;
        }
        self.interface.lender(session.endpoint)
    }

    /// The session is back: ends the transfers of memory that its device has not been told of.
    pub fn end_lent_elsewhere(&mut self, index: usize) {
        let session = &mut self.sessions[index];
        let (interface, endpoint) = (&self.interface, session.endpoint);
        let is_elsewhere = |transfer: &Transfer| {
            let region = transfer.lent_region();
            region.is_some_and(|region| !interface.reaches_lent(endpoint, region))
        };
        let mut ended = Vec::new();
        for place in (0..session.queue.len()).rev() {
            if is_elsewhere(&session.queue[place]) {
                ended.extend(session.queue.remove(place));
            }
        }
        if let Some(keeper) = &mut session.keeper {
            let delayed = keeper.delayed.extract_if(.., |delayed| match &delayed.work {
                Work::Transfer(transfer) => is_elsewhere(transfer),
                Work::Call(_) | Work::Member(_) | Work::Chain(_) => false,
            });
            ended.extend(delayed.filter_map(|delayed| match delayed.work {
                Work::Transfer(transfer) => Some(transfer),
                Work::Call(_) | Work::Member(_) | Work::Chain(_) => None,
            }));
        }
        for transfer in ended {
            let reason = "the session has come back over another device".into();
            self.complete(&transfer, Err(ClientError::System { what: LENDING, reason }));
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
/// Fewer octets are copied: that takes less than it takes to look whether they are registered.
const LENT_BYTES_MIN: usize = 32 << 10;
/// Octets of one registration.
const LENT_BYTES_MAX: usize = 16 << 20;
