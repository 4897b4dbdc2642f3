//! The bodies of the fuzz targets, so that plain tests can run them too. Not part of the public
//! interface.
//!
//! Invariant: no input causes a panic, and a message that decodes can be encoded, and decoded again
//! to the same value.

use crate::attributes::{FileAttributeBlock, FsAttributeBlock};
use crate::checksum::{Checksum, DirectChecksum, is_intact, seal};
use crate::connect_data::ConnectData;
use crate::header::{REQUEST_MAGIC, RESPONSE_MAGIC};
use crate::limits::ATTRIBUTE_BYTES_MAX;
use crate::message::{
    decode_request, decode_response, encode_request, encode_response, parse_link_text,
};
use crate::order::ByteOrder;
use crate::procedure::Procedure;
use crate::readdir::DirectoryEntries;

/// The size of the buffer for encoding a decoded message again. A message that needs more is
/// skipped; this can happen because lists that overlap in the input are separate in the output.
const BUFFER_BYTES: usize = 1 << 17;

/// Copies a message and corrects the length field in its header, so that the decoder accepts the
/// header of a mutated message.
fn with_length(message: &[u8], magic: u32, at: usize) -> (ByteOrder, Vec<u8>) {
    let order = ByteOrder::detect(message, magic).unwrap_or(ByteOrder::NATIVE);
    let mut copy = message.to_vec();
    let length = u32::try_from(copy.len()).unwrap_or(u32::MAX);
    if let Some(field) = copy.get_mut(at..at + 4) {
        field.copy_from_slice(&match order {
            ByteOrder::Little => length.to_le_bytes(),
            ByteOrder::Big => length.to_be_bytes(),
        });
    }
    (order, copy)
}

/// Decodes arbitrary bytes as a request.
pub fn request(data: &[u8]) {
    let _ = decode_request(ByteOrder::Little, data);
    let _ = decode_request(ByteOrder::Big, data);
    let (order, mut message) = with_length(data, REQUEST_MAGIC, 36);
    let Ok((header, request)) = decode_request(order, &message) else { return };
    let mut buffer = vec![0xa5; BUFFER_BYTES];
    if let Ok(length) = encode_request(order, &header, &request, &mut buffer) {
        let again = decode_request(order, &buffer[..length]).expect("what was encoded decodes");
        assert_eq!(request, again.1, "a request changed");
    }
    seal(&mut message, &[]);
    assert!(is_intact(&message), "a sealed message is intact");
}

/// Decodes arbitrary bytes as a reply. The first byte selects the procedure.
pub fn response(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else { return };
    let procedure = Procedure::ALL[choice as usize % Procedure::ALL.len()];
    let _ = decode_response(ByteOrder::Little, procedure, data);
    let _ = decode_response(ByteOrder::Big, procedure, data);
    let (order, message) = with_length(data, RESPONSE_MAGIC, 32);
    let Ok((header, response)) = decode_response(order, procedure, &message) else { return };
    let mut buffer = vec![0xa5; BUFFER_BYTES];
    if let Ok(length) = encode_response(order, &header, &response, &mut buffer) {
        let again = decode_response(order, procedure, &buffer[..length]);
        assert_eq!(response, again.expect("what was encoded decodes").1, "a response changed");
    }
}

/// Decodes arbitrary bytes as attributes, directory entries and link targets.
pub fn attributes(data: &[u8]) {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let mut buffer = [0xa5; ATTRIBUTE_BYTES_MAX];
        if let Ok(block) = FileAttributeBlock::parse(order, data) {
            let (wanted, values) = (block.included(), block.file());
            let again = FileAttributeBlock::encode_file(order, wanted, &values, &mut buffer);
            assert_eq!(again.expect("attributes fit").file(), values, "attributes changed");
            if let Ok(values) = block.set() {
                let again = FileAttributeBlock::encode_set(order, &values, &mut buffer);
                assert_eq!(again.expect("they fit").set(), Ok(values), "settings changed");
            }
        }
        if let Ok(block) = FsAttributeBlock::parse(order, data) {
            let (wanted, values) = (block.included(), block.file_system());
            let again = FsAttributeBlock::encode_fs(order, wanted, &values, &mut buffer);
            assert_eq!(again.expect("attributes fit").file_system(), values);
        }
        if let Ok(entries) = DirectoryEntries::parse(order, data) {
            assert_eq!(entries.iter().count(), entries.len());
        }
        let _ = parse_link_text(order, data);
    }
    let (front, back) = data.split_at(data.len() / 2);
    let mut pieces = DirectChecksum::new();
    pieces.update(front);
    pieces.update(back);
    assert_eq!(pieces.finish(), Checksum::of(data), "a checksum depends on its pieces");
}

/// Decodes arbitrary bytes as connect data.
pub fn connect_data(data: &[u8]) {
    if let Ok((order, decoded)) = ConnectData::decode(data) {
        assert_eq!(decoded.encode(order)[..], data[..16], "connect data changed");
    }
}
