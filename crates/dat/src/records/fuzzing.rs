//! Fuzzes the parser of records with streams that a hostile peer may send.

use super::inbox::Inbox;
use super::input::{Input, Sink};

/// Checks that the records in a stream do not depend on the pieces in which it arrives, and that no
/// record is too long. The first byte is the size of the pieces.
pub(crate) fn stream(data: &[u8]) {
    let Some((&step, stream)) = data.split_first() else { return };
    let whole = parse(stream, stream.len().max(1), None);
    let pieces = parse(stream, usize::from(step).max(1), None);
    assert_eq!(whole, pieces, "the records depend on how the stream is cut");
    let direct = parse(stream, usize::from(step).max(1), Some(DIRECT_BYTES_MIN));
    assert_eq!(whole, direct, "the records depend on how the stream is read");
}

/// The result of parsing a stream.
#[derive(Debug, PartialEq, Eq)]
struct Parsed {
    records: Vec<Vec<u8>>,
    /// True if the stream ends in the middle of a record.
    is_incomplete: bool,
    fault: Option<&'static str>,
}

/// Parses a stream that arrives in pieces of `step` bytes. If `direct` is given, fragments of which
/// at least this many bytes are missing are read directly into their record.
fn parse(stream: &[u8], step: usize, direct: Option<usize>) -> Parsed {
    let (mut inbox, mut buffers) = (Inbox::default(), Vec::new());
    let mut input = Input::default();
    input.keep(BYTES_MAX);
    let mut fault = None;
    for mut piece in stream.chunks(step) {
        let mut sink = Sink { inbox: &mut inbox, buffers: &mut buffers, bytes_max: BYTES_MAX };
        if let Some((record, room)) = direct.and_then(|least| input.direct(least)) {
            let count = piece.len().min(room);
            record.extend_from_slice(&piece[..count]);
            piece = &piece[count..];
            input.took(count, &mut sink);
        }
        fault = input.take(piece, &mut sink).err();
        if fault.is_some() {
            break;
        }
    }
    let records: Vec<Vec<u8>> = std::iter::from_fn(|| inbox.pop()).collect();
    assert!(records.iter().all(|record| record.len() <= BYTES_MAX), "a record is too long");
    Parsed { records, is_incomplete: fault.is_none() && input.is_incomplete(), fault }
}

/// The length of the longest record that the parser accepts, in bytes.
const BYTES_MAX: usize = 1 << 12;
/// The number of missing bytes from which on a fragment is read directly into its record.
const DIRECT_BYTES_MIN: usize = 4;
