//! Translates the STags in encoded requests into the STags that are valid on the connection that
//! carries the request.
//!
//! Invariant: a stored request names memory by this client's own STag ([`Region::stag`]). RDMA
//! devices choose different STags, which are substituted when the request is sent. After a
//! reconnect through another device, or without a device, a former STag may be invalid or may name
//! other memory.
//!
//! Transfers are encoded when they are sent (`data.rs`), and batches are encoded again after a
//! reconnect (`batch/plan.rs`).
//!
//! [`Region::stag`]: dafs_dat::Region::stag

use dafs_dat::{EndpointId, Gather, PostError, Stag};
use dafs_types::limits::DIRECT_BUFFERS_MAX;
use dafs_wire::{FieldLayout, HEADER_BYTES, seal};
use smallvec::SmallVec;

use crate::requests::{procedure_of, word_at};
use crate::state::SessionState;
use crate::transport::Transport;

/// A copy of a request with substituted STags; most requests that name memory fit inline.
type Renamed = SmallVec<[u8; 256]>;

impl Transport {
    /// Sends a request whose stream and sequence number are filled in, with the STags in it
    /// replaced by those of the connection. A failure means that the connection is ending.
    #[inline]
    pub(crate) fn post_renamed(
        &mut self,
        session: &SessionState,
        message: &[u8],
    ) -> Result<(), PostError> {
        if self.interface().names_regions()
            && let Some(mut renamed) = self.renamed_for(session.endpoint, message)
        {
            if session.terms.checksums {
                renamed[CHECKSUM].fill(0);
                seal(&mut renamed, &[]);
            }
            return self.post(session.endpoint, &[Gather::Bytes(&renamed)]);
        }
        self.post(session.endpoint, &[Gather::Bytes(message)])
    }

    /// Returns a copy of the request with the STags that the endpoint's peer knows; `None` if the
    /// request names no memory.
    #[cold]
    fn renamed_for(&mut self, endpoint: EndpointId, message: &[u8]) -> Option<Renamed> {
        if !procedure_of(message)?.request_fields().iter().any(names_memory) {
            return None;
        }
        let mut renamed = Renamed::from_slice(message);
        let interface = self.interface_mut();
        rename_memory(&mut renamed, |stag| interface.name_for(endpoint, stag));
        Some(renamed)
    }
}

/// Replaces each STag in an encoded request with the STag that `rename` returns.
fn rename_memory(message: &mut [u8], mut rename: impl FnMut(Stag) -> Stag) {
    let Some(procedure) = procedure_of(message) else { return };
    for field in procedure.request_fields().iter().filter(|field| names_memory(field)) {
        let at = HEADER_BYTES + field.offset;
        if field.name == ONE {
            rename_at(message, at, &mut rename);
            continue;
        }
        // The word at `at` is the array's offset after the header; a count precedes the elements.
        let Some(array) = word_at(message, at).map(|at| HEADER_BYTES + at) else { continue };
        let count = word_at(message, array).unwrap_or(0).min(DIRECT_BUFFERS_MAX);
        for number in 0..count {
            rename_at(message, array + COUNT_BYTES + number * ELEMENT_BYTES, &mut rename);
        }
    }
}

fn rename_at(message: &mut [u8], at: usize, rename: impl FnOnce(Stag) -> Stag) {
    let at = at + CONTEXT_AT;
    if let Some(place) = message.get_mut(at..at + 4)
        && let Ok(bytes) = <[u8; 4]>::try_from(&*place)
    {
        place.copy_from_slice(&rename(Stag(u32::from_ne_bytes(bytes))).0.to_ne_bytes());
    }
}

fn names_memory(field: &FieldLayout) -> bool {
    field.name == ONE && field.size == ELEMENT_BYTES || field.name == MANY && field.size == 4
}

/// The name that message layouts use for a field with one direct buffer.
const ONE: &str = "buffer";
/// The name that message layouts use for a field with an array of direct buffers.
const MANY: &str = "buffers";
/// The size in bytes of an encoded direct buffer (draft 6.1.7).
const ELEMENT_BYTES: usize = 16;
/// The offset of the STag in an encoded direct buffer.
const CONTEXT_AT: usize = 12;
/// The size in bytes of the count before the first element of an array.
const COUNT_BYTES: usize = 8;
/// The range of bytes of a request header that contains the checksum.
const CHECKSUM: std::ops::Range<usize> = 24..28;

#[cfg(test)]
mod tests {
    use dafs_types::{CacheHint, FileHandle, RmrContext, RmrTarget, Stability, StateId};
    use dafs_wire::messages::{AppendDirect, ReadDirect, WriteDirect};
    use dafs_wire::{Checksum, DirectBuffer, DirectBuffers, Procedure, Request};

    use super::*;
    use crate::opens::tests::encode;

    const FILE: FileHandle = FileHandle([7; 64]);
    const STATE: StateId = StateId(u64::MAX);

    fn buffers(count: u32, more: u32) -> Vec<DirectBuffer> {
        let buffer = |number| DirectBuffer {
            target: RmrTarget(u64::MAX - u64::from(number)),
            length: u32::MAX - number,
            context: RmrContext(number + more),
        };
        (0..count).map(buffer).collect()
    }

    fn read(buffers: &[DirectBuffer]) -> Vec<u8> {
        let (offset, length, hint) = (u64::MAX, u32::MAX, CacheHint::default());
        let buffers = DirectBuffers::from(buffers);
        encode(&Request::ReadDirect(ReadDirect {
            file: FILE,
            state: STATE,
            offset,
            length,
            hint,
            buffers,
        }))
    }

    fn write(buffers: &[DirectBuffer]) -> Vec<u8> {
        encode(&Request::WriteDirect(WriteDirect {
            file: FILE,
            state: STATE,
            offset: u64::MAX,
            length: u32::MAX,
            stability: Stability::Unstable,
            hint: CacheHint::default(),
            checksum: Checksum::NONE,
            buffers: DirectBuffers::from(buffers),
        }))
    }

    fn append(buffer: DirectBuffer) -> Vec<u8> {
        encode(&Request::AppendDirect(AppendDirect {
            file: FILE,
            state: STATE,
            stability: Stability::DataSync,
            length: u32::MAX,
            hint: CacheHint::default(),
            checksum: Checksum::NONE,
            buffer,
        }))
    }

    #[test]
    fn memory_is_renamed_wherever_a_request_names_it_and_nothing_else_is() {
        let renamed = |mut message: Vec<u8>| {
            rename_memory(&mut message, |stag| Stag(stag.0 + 1000));
            message
        };
        for count in [0, 1, 2, DIRECT_BUFFERS_MAX as u32] {
            assert_eq!(renamed(read(&buffers(count, 0))), read(&buffers(count, 1000)));
            assert_eq!(renamed(write(&buffers(count, 0))), write(&buffers(count, 1000)));
        }
        let (one, other) = (buffers(1, 0)[0], buffers(1, 1000)[0]);
        assert_eq!(renamed(append(one)), append(other));
        let nothing = encode(&Request::Null(dafs_wire::messages::Empty));
        assert_eq!(renamed(nothing.clone()), nothing);
    }

    #[test]
    fn every_procedure_that_names_memory_is_known() {
        let procedures = (0..=u32::from(u16::MAX)).filter_map(Procedure::from_number);
        let naming: Vec<_> = procedures
            .filter(|procedure| procedure.name().ends_with("_DIRECT"))
            .filter(|procedure| !procedure.request_fields().iter().any(names_memory))
            .map(Procedure::name)
            .collect();
        assert!(naming.is_empty(), "{naming:?}");
    }

    #[test]
    fn hostile_lengths_do_no_harm() {
        let message = write(&buffers(2, 0));
        for at in HEADER_BYTES..message.len() {
            for byte in [0, 0x7f, 0xff] {
                let mut altered = message.clone();
                altered[at] = byte;
                rename_memory(&mut altered, |stag| stag);
                rename_memory(&mut altered[..at], |stag| stag);
            }
        }
    }
}
