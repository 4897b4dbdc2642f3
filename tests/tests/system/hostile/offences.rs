//! Complete but invalid frames, each with the error that the peer must receive.

use super::tcp::{fpdu, tagged, untagged};

/// One frame.
pub(super) struct Offence {
    pub what: &'static str,
    segment: Vec<u8>,
    /// True if its checksum is wrong.
    damaged: bool,
    /// The layer, type and code of the expected Terminate.
    pub terminate: (u8, u8, u8),
}

impl Offence {
    /// Returns the bytes to send.
    pub(super) fn frame(&self, crc: bool) -> Vec<u8> {
        let mut frame = fpdu(&self.segment, crc);
        if self.damaged
            && let Some(last) = frame.last_mut()
        {
            *last ^= 1;
        }
        frame
    }

    /// True if the frame is an offence on a stream with or without CRC.
    pub(super) fn is_one(&self, crc: bool) -> bool {
        crc || !self.damaged
    }
}

/// Returns all offences, for a stream whose next message has number `next`.
pub(super) fn offences(next: u32) -> Vec<Offence> {
    let read = |stag: u32, length: u32| {
        let mut body = [0; 28];
        body[12..16].copy_from_slice(&length.to_be_bytes());
        body[16..20].copy_from_slice(&stag.to_be_bytes());
        body
    };
    let mut takes_back = untagged(0x41, 0x44, 0, next, 0, b"x");
    takes_back[2..6].copy_from_slice(&0xdead_u32.to_be_bytes());
    let again = next.wrapping_sub(1);
    let cases = [
        ("write to no region", tagged(0xc1, 0x40, 0xdead, 0, b"x"), (1, 1, 0)),
        ("write to stag 0", tagged(0xc1, 0x40, 0, 0, b"x"), (1, 1, 0)),
        ("write around the end", tagged(0xc1, 0x40, 0x101, u64::MAX, b"xy"), (1, 1, 3)),
        ("answer to no read", tagged(0xc1, 0x42, 0x101, 0, b"x"), (0, 2, 6)),
        ("queue 3", untagged(0x41, 0x43, 3, 1, 0, b"x"), (1, 2, 1)),
        ("queue of all ones", untagged(0x41, 0x43, u32::MAX, 1, 0, b"x"), (1, 2, 1)),
        ("message out of turn", untagged(0x41, 0x43, 0, next + 1, 0, b"x"), (1, 2, 3)),
        ("message again", untagged(0x41, 0x43, 0, again, 0, b"x"), (1, 2, 3)),
        ("offset out of nowhere", untagged(0x41, 0x43, 0, next, 77, b"x"), (1, 2, 4)),
        ("longer than any receive", untagged(0x41, 0x43, 0, next, 0, &[1; 9000]), (1, 2, 5)),
        ("DDP version 2", untagged(0x42, 0x43, 0, next, 0, b"x"), (1, 2, 6)),
        ("tagged DDP version 0", tagged(0xc0, 0x40, 0x101, 0, b"x"), (1, 1, 4)),
        ("RDMAP version 3", untagged(0x41, 0xc3, 0, next, 0, b"x"), (0, 2, 5)),
        ("opcode 15", untagged(0x41, 0x4f, 0, next, 0, b"x"), (0, 2, 6)),
        ("read of no region", untagged(0x41, 0x41, 1, 1, 0, &read(0xdead, 8)), (0, 1, 0)),
        ("read out of turn", untagged(0x41, 0x41, 1, 2, 0, &read(0xdead, 8)), (1, 2, 3)),
        ("read of no size", untagged(0x41, 0x41, 1, 1, 0, b"x"), (0, 2, 7)),
        ("takes back no region", takes_back, (0, 1, 9)),
    ];
    let damaged = untagged(0x41, 0x43, 0, next, 0, b"x");
    let damaged =
        Offence { what: "checksum", segment: damaged, damaged: true, terminate: (2, 0, 2) };
    let whole = cases.map(|(what, segment, terminate)| Offence {
        what,
        segment,
        damaged: false,
        terminate,
    });
    whole.into_iter().chain([damaged]).collect()
}
