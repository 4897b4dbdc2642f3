//! Messages laid out by hand from the draft, byte for byte, so that encoder and decoder cannot
//! agree on the same mistake.

use dafs_types::{
    CacheHint, CookieVerifier, FileAttributes, FileHandle, ReaddirCookie, RmrContext, RmrTarget,
    SequenceNumber, StateId, Status, StreamId, Timestamp,
};
use dafs_wire::attributes::file::bits;
use dafs_wire::messages::{Lookup, ReadDirect, ReadDirectResult, ReadDirectoryResult};
use dafs_wire::*;

/// Bytes appended one after the other, in a byte order.
struct Layout(ByteOrder, Vec<u8>);

impl Layout {
    fn short(mut self, value: u16) -> Self {
        self.1.extend(match self.0 {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        });
        self
    }
    fn word(mut self, value: u32) -> Self {
        self.1.extend(match self.0 {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        });
        self
    }
    fn long(mut self, value: u64) -> Self {
        self.1.extend(match self.0 {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        });
        self
    }
    fn raw(mut self, bytes: &[u8]) -> Self {
        self.1.extend(bytes);
        self
    }
    fn request(order: ByteOrder, procedure: u32, length: u32) -> Self {
        Self(order, Vec::new())
            .word(0x4441_4653)
            .word(1)
            .short(1)
            .short(0)
            .short(2)
            .short(3)
            .raw(b"analyzer")
            .word(0)
            .raw(&[7, 0, 0, 0])
            .word(procedure)
            .word(length)
    }
    fn response(order: ByteOrder, length: u32) -> Self {
        Self(order, Vec::new())
            .word(0x4441_4652)
            .word(1)
            .short(16)
            .short(0)
            .short(2)
            .short(3)
            .raw(b"analyzer")
            .word(0)
            .word(0)
            .word(length)
            .word(0)
    }
}

fn header() -> RequestHeader {
    let mut header = RequestHeader::new(StreamId(2), SequenceNumber(3));
    header.analyzer = u64::from_ne_bytes(*b"analyzer");
    header.credentials = dafs_types::CredHandle(7);
    header
}

fn check_request(order: ByteOrder, expected: &[u8], request: Request<'_>) {
    let mut buffer = [0xcc; 512];
    let length = encode_request(order, &header(), &request, &mut buffer).unwrap();
    assert_eq!(buffer[..length], *expected);
    assert_eq!(decode_request(order, expected).unwrap().1, request);
}

fn check_response(order: ByteOrder, expected: &[u8], response: Response<'_>) {
    let mut buffer = [0xcc; 512];
    let answer = ResponseHeader::answering(&header(), Status::Ok, 16);
    let length = encode_response(order, &answer, &response, &mut buffer).unwrap();
    assert_eq!(buffer[..length], *expected);
    let procedure = response.procedure().unwrap();
    assert_eq!(decode_response(order, procedure, expected).unwrap().1, response);
}

const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

#[test]
fn read_direct() {
    let file = FileHandle(std::array::from_fn(|index| index as u8));
    for order in ORDERS {
        let expected = Layout::request(order, 138, 160)
            .raw(&file.0)
            .raw(&[0xb, 0, 0, 0, 0, 0, 0, 0])
            .long(0x1_0000_2000)
            .word(4096)
            .word(0x0e)
            .word(96)
            .word(0)
            .word(1)
            .word(0)
            .long(0x7f00_1234_5000)
            .word(4096)
            .word(0xabcd);
        let buffer = DirectBuffer {
            target: RmrTarget(0x7f00_1234_5000),
            length: 4096,
            context: RmrContext(0xabcd),
        };
        check_request(
            order,
            &expected.1,
            Request::ReadDirect(ReadDirect {
                file,
                state: StateId(11),
                offset: 0x1_0000_2000,
                length: 4096,
                hint: CacheHint(0x0e),
                buffers: (&[buffer]).into(),
            }),
        );
        let expected = Layout::response(order, 56).word(1).word(512).raw(&[1, 2, 3, 4]).word(0);
        check_response(
            order,
            &expected.1,
            Response::ReadDirect(ReadDirectResult {
                end_of_file: true,
                length: 512,
                checksum: Checksum([1, 2, 3, 4]),
            }),
        );
    }
}

#[test]
fn lookup() {
    let directory = FileHandle([0x11; 64]);
    for order in ORDERS {
        let expected = Layout::request(order, 130, 139)
            .raw(&directory.0)
            .word(72)
            .word(0)
            .word(2)
            .word(0)
            .word(4)
            .raw(b"home")
            .word(7)
            .raw(b"letters");
        let path = Path::split("/home//letters/");
        check_request(order, &expected.1, Request::Lookup(Lookup { directory, path }));
    }
}

#[test]
fn directory_entries() {
    let time = Timestamp { seconds: -2, nanoseconds: 5 };
    let attributes = FileAttributes {
        named_attributes: Some(true),
        size: Some(9),
        time_modify: Some(time),
        owner: Some("us".to_owned()),
        ..FileAttributes::default()
    };
    // Number 16 is requested but unknown: it takes its space and is not valid.
    let wanted = bits::NAMED_ATTR
        .with(bits::OBJECT_SIZE)
        .with(bits::TIME_DELTA)
        .with(bits::TIME_MODIFY)
        .with(bits::OWNER);
    for order in ORDERS {
        let mut buffer = [0xcc; 300];
        let mut writer = ReaddirWriter::new(order, wanted, &mut buffer).unwrap();
        assert_eq!(writer.push(ReaddirCookie(7), "name", &attributes), Ok(true));
        let entries = writer.finish();
        let valid = wanted.without(bits::TIME_DELTA);
        let expected = Layout::response(order, 40 + 16 + 24 + 8 + 80)
            .raw(b"verifier")
            .word(1)
            .word(16)
            // The array: count, pad, cookie, attributes, name.
            .word(1)
            .word(0)
            .long(7)
            .word(32)
            .word(24)
            .word(4)
            .raw(b"name")
            // The attribute block: bitmaps, flag and gap, size, two times, owner.
            .long(wanted.0)
            .long(valid.0)
            .raw(&[1, 0, 0, 0, 0, 0, 0, 0])
            .long(9)
            .raw(&[0; 16])
            .long(u64::MAX - 1)
            .word(5)
            .word(0)
            .word(72)
            .word(0)
            .word(2)
            .raw(b"us\0\0");
        check_response(
            order,
            &expected.1,
            Response::ReadDirInline(ReadDirectoryResult {
                verifier: CookieVerifier(*b"verifier"),
                end_of_directory: true,
                entries,
            }),
        );
    }
}
