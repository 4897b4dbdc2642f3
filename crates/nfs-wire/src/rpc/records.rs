//! Record marking (RFC 5531 section 11): writes records into a stream of bytes.

use crate::xdr::{Slot, Writer, XdrError};

/// The maximum length of a fragment, and so of a record that this module writes, in bytes.
const RECORD_BYTES_MAX: usize = 0x7fff_ffff;
/// The bit of a mark that is set if the fragment is the last of its record.
const LAST: u32 = 0x8000_0000;

/// Begins a record of one fragment. [`end_record`] fills in its mark.
pub fn begin_record(writer: &mut Writer) -> Slot {
    writer.reserve()
}

/// Fills in the mark of a record that ends at the current position. Its length includes payloads.
pub fn end_record(writer: &mut Writer, begun: Slot) {
    let length = writer.length_after(begun);
    match u32::try_from(length) {
        Ok(number) if length <= RECORD_BYTES_MAX => writer.patch(begun, LAST | number),
        _ => writer.fail(XdrError::Limit(RECORD_BYTES_MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::Piece;

    #[test]
    fn a_written_record_counts_its_payload() {
        let mut writer = Writer::new();
        writer.u32(9);
        let begun = begin_record(&mut writer);
        writer.payload(5);
        end_record(&mut writer, begun);
        let pieces: Vec<_> = writer.pieces().collect();
        let head = [0, 0, 0, 9, 0x80, 0, 0, 12, 0, 0, 0, 5];
        assert_eq!(pieces, [Piece::Bytes(&head), Piece::Payload(5), Piece::Bytes(&[0; 3])]);
    }
}
