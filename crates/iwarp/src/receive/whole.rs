//! The fast path for a message that consists of a single frame, all of which has arrived.
//!
//! Invariant: the general path would accept every message that this path accepts, with the same
//! result. A message that this path cannot handle changes nothing here; the caller passes that
//! message to the general path.

use super::{Phase, Receiver};
use crate::fpdu::{
    TAGGED_DDP_BYTES, TAGGED_HEADER_BYTES, UNTAGGED_DDP_BYTES, UNTAGGED_HEADER_BYTES, fpdu_length,
};
use crate::header::{Form, Header, Opcode};
use crate::ids::{Stag, TaggedOffset};

/// The length field and header of a Write of one frame.
pub type WriteHeader = [u8; TAGGED_HEADER_BYTES];

/// Returns the header of a Write of `length` bytes in one frame, or `None` if the Write does not
/// fit in one frame.
#[inline]
#[must_use]
pub fn write_header(stag: Stag, offset: TaggedOffset, length: u32) -> Option<WriteHeader> {
    let ulpdu_length = u16::try_from(length.checked_add(TAGGED_DDP_BYTES as u32)?).ok()?;
    offset.checked_add(length)?;
    let mut bytes = [0; UNTAGGED_HEADER_BYTES];
    let form = Form::Tagged { stag, offset };
    Header { opcode: Opcode::Write, last: true, ulpdu_length, form }.encode(&mut bytes);
    bytes.first_chunk().copied()
}

impl Receiver {
    /// Returns the payload of the Send at the start of `bytes`, if the Send is plain, consists of
    /// one complete frame, and has the next sequence number. After placing the payload, the caller
    /// must call [`Receiver::on_whole_send`] with the same bytes.
    #[inline]
    #[must_use]
    pub fn whole_send<'o>(&self, bytes: &'o [u8]) -> Option<&'o [u8]> {
        let header: &[u8; UNTAGGED_HEADER_BYTES] = bytes.first_chunk()?;
        let [l0, l1, PLAIN_SEND_DDP, PLAIN_SEND_RDMAP, _, _, _, _, 0, 0, 0, 0, rest @ ..] = header
        else {
            return None;
        };
        let [s0, s1, s2, s3, 0, 0, 0, 0] = rest else { return None };
        let sequence = u32::from_be_bytes([*s0, *s1, *s2, *s3]);
        let ulpdu_length = u16::from_be_bytes([*l0, *l1]);
        let payload_length = usize::from(ulpdu_length).checked_sub(UNTAGGED_DDP_BYTES)?;
        let is_next = self.takes_whole() && self.sends.is_next(sequence);
        if !is_next || bytes.len() < fpdu_length(ulpdu_length) {
            return None;
        }
        bytes.get(UNTAGGED_HEADER_BYTES..UNTAGGED_HEADER_BYTES + payload_length)
    }

    /// Records that the Send found by [`Receiver::whole_send`] was placed. Returns the length of
    /// the frame in bytes.
    #[inline]
    pub fn on_whole_send(&mut self, bytes: &[u8]) -> usize {
        self.sends.on_whole();
        self.on_whole(bytes);
        let [high, low] = [bytes[0], bytes[1]];
        fpdu_length(u16::from_be_bytes([high, low]))
    }

    /// Records that a complete frame with exactly this header was placed at the range that the
    /// header names. Returns false, and changes nothing, if a Write of one frame is not allowed
    /// now.
    #[inline]
    pub fn on_whole_write(&mut self, header: &WriteHeader) -> bool {
        if !self.takes_whole() || self.writes.is_open() {
            return false;
        }
        self.on_whole(header);
        true
    }

    #[inline]
    fn on_whole(&mut self, header: &[u8]) {
        self.keep_header(header);
        self.control.length = 0;
        self.heard = true;
    }

    /// Returns true between two frames of a stream without CRC.
    #[inline]
    fn takes_whole(&self) -> bool {
        self.phase == Phase::Header && !self.crc
    }
}

/// The DDP control byte of a Send in one frame: untagged, last segment, DDP version 1.
const PLAIN_SEND_DDP: u8 = 0x41;
/// The RDMAP control byte of a Send in one frame: RDMAP version 1, opcode Send.
const PLAIN_SEND_RDMAP: u8 = 0x43;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::{Established, Role};
    use crate::fpdu::HEADER_BYTES_MAX;
    use crate::receive::{Event, Step};
    use crate::transmit::{Outbound, Transmitter};

    const WRITE: Outbound = Outbound::Write { stag: Stag(7), offset: TaggedOffset(1 << 40) };
    const SEND: Outbound = Outbound::Send { solicited: false, invalidate: None };

    fn ends(crc: bool) -> (Transmitter, Receiver) {
        let here = Established::client_server(Role::Initiator, crc, 1, 1);
        let there = Established::client_server(Role::Responder, crc, 1, 1);
        (Transmitter::new(&here, 1440), Receiver::new(&there))
    }

    /// Returns the frames of a message whose `length` bytes are all zero.
    fn frames(transmitter: &mut Transmitter, message: Outbound, length: u32) -> Vec<Vec<u8>> {
        let mut segments = transmitter.begin(message, length).unwrap();
        let mut header = [0; HEADER_BYTES_MAX];
        let frame = |segment: crate::Segment, header: &[u8]| {
            let mut frame = header[..segment.header_length].to_vec();
            frame.resize(segment.total_length(), 0);
            frame
        };
        std::iter::from_fn(|| segments.next_segment(&mut header).map(|s| frame(s, &header)))
            .collect()
    }

    #[test]
    fn either_way_may_follow_the_other() {
        let (mut transmitter, mut receiver) = ends(false);
        for round in 0..4 {
            let send = frames(&mut transmitter, SEND, 56 + round).remove(0);
            let write = frames(&mut transmitter, WRITE, 1000 + round).remove(0);
            if round % 2 == 0 {
                let payload = receiver.whole_send(&send).expect("it is whole and the next");
                assert_eq!(payload.len() as u32, 56 + round);
                assert_eq!(receiver.on_whole_send(&send), send.len());
                let header = write_header(Stag(7), TaggedOffset(1 << 40), 1000 + round).unwrap();
                assert_eq!(header, write[..TAGGED_HEADER_BYTES]);
                assert!(receiver.on_whole_write(&header));
            } else {
                let sent = receiver.on_fpdu(&send).unwrap().unwrap().event;
                assert!(matches!(sent, Event::Received { length, .. } if length == 56 + round));
                assert_eq!(receiver.on_fpdu(&write).unwrap().unwrap().event, Event::Written);
            }
            assert!(receiver.has_heard());
            assert!(matches!(receiver.next_step(), Step::Header { .. }));
        }
    }

    #[test]
    fn what_is_not_plain_and_next_is_left_alone() {
        let (mut transmitter, mut receiver) = ends(false);
        let send = frames(&mut transmitter, SEND, 56).remove(0);
        for length in 0..send.len() {
            assert_eq!(receiver.whole_send(&send[..length]), None, "{length} bytes");
        }
        // A Send that is not the next, a Send of two frames, and another kind of message.
        let later = frames(&mut transmitter, SEND, 56).remove(0);
        assert_eq!(receiver.whole_send(&later), None);
        let (mut other, _) = ends(false);
        assert_eq!(receiver.whole_send(&frames(&mut other, SEND, 2000)[0]), None);
        for (solicited, invalidate) in [(true, None), (false, Some(Stag(1)))] {
            let (mut other, _) = ends(false);
            let message = Outbound::Send { solicited, invalidate };
            assert_eq!(receiver.whole_send(&frames(&mut other, message, 56)[0]), None);
        }
        assert!(receiver.whole_send(&send).is_some());
        // In the middle of a message, and in the middle of a frame.
        let parts = frames(&mut other, WRITE, 2000);
        receiver.on_fpdu(&parts[0]).unwrap();
        let header = write_header(Stag(7), TaggedOffset(0), 8).unwrap();
        assert!(!receiver.on_whole_write(&header));
        receiver.check_header(&parts[1]).unwrap();
        assert!(!receiver.on_whole_write(&header));
        assert_eq!(receiver.whole_send(&send), None);
    }

    #[test]
    fn a_checked_stream_has_no_short_way() {
        let (mut transmitter, mut receiver) = ends(true);
        let send = frames(&mut transmitter, SEND, 56).remove(0);
        assert_eq!(receiver.whole_send(&send), None);
        assert!(!receiver.on_whole_write(&[0; TAGGED_HEADER_BYTES]));
    }

    #[test]
    fn a_write_that_wraps_or_needs_two_frames_has_no_header() {
        assert_eq!(write_header(Stag(1), TaggedOffset(u64::MAX), 1), None);
        assert_eq!(write_header(Stag(1), TaggedOffset(0), 65_522), None);
        assert_eq!(write_header(Stag(1), TaggedOffset(0), u32::MAX), None);
    }
}
