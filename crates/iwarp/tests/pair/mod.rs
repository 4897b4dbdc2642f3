//! Two complete sides in memory: the reference driver.
//!
//! Each side has tagged buffers and a log of its events. The test chooses the pieces in which bytes
//! travel, and each side processes whole frames or pieces. None of this may affect memory or log.

use std::collections::BTreeMap;

use dafs_iwarp::{
    Established, Event, HEADER_BYTES_MAX, Outbound, Placement, READ_REQUEST_FPDU_BYTES,
    ReadRequest, Receiver, Role, Stag, Step, TRAILER_BYTES_MAX, TaggedOffset, Target, Transmitter,
    Violation,
};

/// How a side processes bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Intake {
    /// It collects whole frames.
    Whole,
    /// It processes header, payload and trailer as they arrive.
    Piecemeal,
}

/// An event of a side, as its user sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Happening {
    Written,
    Received { payload: Vec<u8>, solicited: bool, invalidate: Option<Stag> },
    ReadRequested(ReadRequest),
    ReadCompleted(ReadRequest),
    Terminated,
}

/// One end of a stream.
pub(crate) struct Side {
    pub transmitter: Transmitter,
    pub receiver: Receiver,
    pub memory: BTreeMap<u32, Vec<u8>>,
    pub log: Vec<Happening>,
    pub placements: Vec<Placement>,
    /// The bytes that are framed but not received by the other side.
    pub outgoing: Vec<u8>,
    pub violation: Option<Violation>,
    intake: Intake,
    staged: Vec<u8>,
    /// The Send that is arriving.
    incoming: Vec<u8>,
    /// The placement of the frame that is arriving in pieces.
    current: Option<(Placement, u32)>,
}

impl Side {
    pub(crate) fn new(established: &Established, mulpdu: u16, intake: Intake) -> Self {
        Self {
            transmitter: Transmitter::new(established, mulpdu),
            receiver: Receiver::new(established),
            memory: BTreeMap::new(),
            log: Vec::new(),
            placements: Vec::new(),
            outgoing: Vec::new(),
            violation: None,
            intake,
            staged: Vec::new(),
            incoming: Vec::new(),
            current: None,
        }
    }

    /// Frames a message with its payload.
    pub(crate) fn post(&mut self, message: Outbound, payload: &[u8]) {
        let mut segments = self.transmitter.begin(message, payload.len() as u32).unwrap();
        let mut header = [0; HEADER_BYTES_MAX];
        while let Some(segment) = segments.next_segment(&mut header) {
            let body = &payload[segment.offset as usize..][..segment.length as usize];
            let mut trailer = [0; TRAILER_BYTES_MAX];
            if self.transmitter.crc_in_use() {
                let mut checksum = segment.checksum(&header);
                checksum.update(body);
                segment.finish(checksum, &mut trailer);
            }
            self.outgoing.extend_from_slice(&header[..segment.header_length]);
            self.outgoing.extend_from_slice(body);
            self.outgoing.extend_from_slice(&trailer[..segment.trailer_length]);
        }
    }

    /// Frames a Read Request.
    pub(crate) fn post_read(&mut self, request: ReadRequest) {
        let read = self.receiver.open_read(request).unwrap();
        let mut bytes = [0; READ_REQUEST_FPDU_BYTES];
        let length = self.transmitter.read_request(&read, &mut bytes).unwrap();
        self.outgoing.extend_from_slice(&bytes[..length]);
    }

    /// Processes bytes of the other side, as far as possible.
    pub(crate) fn take_in(&mut self, bytes: &[u8]) {
        if self.violation.is_some() {
            return;
        }
        self.staged.extend_from_slice(bytes);
        let result = match self.intake {
            Intake::Whole => self.take_whole_frames(),
            Intake::Piecemeal => self.take_pieces(),
        };
        if let Err(violation) = result {
            self.violation = Some(violation);
        }
    }

    fn take_whole_frames(&mut self) -> Result<(), Violation> {
        let staged = std::mem::take(&mut self.staged);
        let mut used = 0;
        while self.receiver.next_step() != Step::Closed {
            let Some(fpdu) = self.receiver.on_fpdu(&staged[used..])? else { break };
            used += fpdu.total_length;
            self.placements.push(fpdu.placement);
            self.place(&fpdu.placement.target, 0, fpdu.payload);
            self.on_event(fpdu.event);
        }
        self.staged = staged[used..].to_vec();
        Ok(())
    }

    fn take_pieces(&mut self) -> Result<(), Violation> {
        loop {
            match self.receiver.next_step() {
                Step::Header { .. } => {
                    let Some(placement) = self.receiver.on_header(&self.staged)? else {
                        return Ok(());
                    };
                    self.staged.drain(..usize::from(placement.header_length));
                    self.placements.push(placement);
                    self.current = Some((placement, 0));
                }
                Step::Payload { bytes } => {
                    if self.staged.is_empty() {
                        return Ok(());
                    }
                    let length = self.staged.len().min(bytes as usize);
                    let piece: Vec<u8> = self.staged.drain(..length).collect();
                    self.take_payload(&piece);
                }
                Step::Trailer { bytes } => {
                    if self.staged.len() < bytes {
                        return Ok(());
                    }
                    let trailer: Vec<u8> = self.staged.drain(..bytes).collect();
                    let event = self.receiver.on_trailer(&trailer)?;
                    self.on_event(event);
                }
                Step::Closed => return Ok(()),
            }
        }
    }

    fn take_payload(&mut self, piece: &[u8]) {
        let (placement, done) = self.current.unwrap();
        self.place(&placement.target, done, piece);
        self.current = Some((placement, done + piece.len() as u32));
        if self.receiver.crc_in_use() || placement.target.is_control() {
            self.receiver.on_payload(piece).unwrap();
        } else {
            self.receiver.on_placed(piece.len() as u32).unwrap();
        }
    }

    fn place(&mut self, target: &Target, done: u32, payload: &[u8]) {
        match *target {
            Target::Write { stag, offset } | Target::ReadResponse { stag, offset, .. } => {
                if !payload.is_empty() {
                    let start = (offset.0 + u64::from(done)) as usize;
                    let buffer = self.memory.get_mut(&stag.0).expect("a known buffer");
                    buffer[start..start + payload.len()].copy_from_slice(payload);
                }
            }
            Target::Send { message_offset, .. } => {
                assert_eq!(self.incoming.len(), (message_offset + done) as usize);
                self.incoming.extend_from_slice(payload);
            }
            Target::ReadRequest { .. } | Target::Terminate => {}
        }
    }

    fn on_event(&mut self, event: Event) {
        if self.receiver.has_heard() {
            self.transmitter.on_peer_spoke();
        }
        match event {
            Event::Continued => {}
            Event::Written => self.log.push(Happening::Written),
            Event::Received { length, solicited, invalidate, .. } => {
                let payload = std::mem::take(&mut self.incoming);
                assert_eq!(payload.len(), length as usize);
                self.log.push(Happening::Received { payload, solicited, invalidate });
            }
            Event::ReadRequested { request, .. } => {
                self.log.push(Happening::ReadRequested(request));
                self.answer(&request);
            }
            Event::ReadCompleted { request } => self.log.push(Happening::ReadCompleted(request)),
            Event::Terminated => {
                self.transmitter.close();
                self.log.push(Happening::Terminated);
            }
            other => panic!("an event that this driver does not know: {other:?}"),
        }
    }

    fn answer(&mut self, request: &ReadRequest) {
        let start = request.source_offset.0 as usize;
        let payload = match request.length {
            0 => Vec::new(),
            length => self.memory[&request.source_stag.0][start..start + length as usize].to_vec(),
        };
        self.post(Outbound::answer_to(request), &payload);
        self.receiver.on_read_answered().unwrap();
    }
}

/// The two sides of a stream.
pub(crate) struct Pair {
    pub initiator: Side,
    pub responder: Side,
}

impl Pair {
    /// Creates a pair with `depth` reads in each direction. The responder may send at once.
    pub(crate) fn new(
        crc: bool,
        depth: u16,
        mulpdus: (u16, u16),
        intakes: (Intake, Intake),
    ) -> Self {
        let initiator = Established::client_server(Role::Initiator, crc, depth, depth);
        let responder = Established::client_server(Role::Responder, crc, depth, depth);
        let mut pair = Self {
            initiator: Side::new(&initiator, mulpdus.0, intakes.0),
            responder: Side::new(&responder, mulpdus.1, intakes.1),
        };
        pair.responder.transmitter.on_peer_spoke();
        pair
    }

    /// Carries bytes in both directions, in pieces of these lengths repeatedly, until both sides
    /// are quiet.
    pub(crate) fn carry(&mut self, piece_lengths: &[usize]) {
        let mut lengths = piece_lengths.iter().copied().cycle();
        while !(self.initiator.outgoing.is_empty() && self.responder.outgoing.is_empty()) {
            let length = lengths.next().unwrap_or(usize::MAX).max(1);
            carry_one(&mut self.initiator, &mut self.responder, length);
            carry_one(&mut self.responder, &mut self.initiator, length);
        }
    }
}

fn carry_one(from: &mut Side, to: &mut Side, length: usize) {
    let length = length.min(from.outgoing.len());
    let piece: Vec<u8> = from.outgoing.drain(..length).collect();
    to.take_in(&piece);
}

/// Returns bytes that identify their source and position.
pub(crate) fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length)
        .map(|index| (index as u8).wrapping_mul(31).wrapping_add(seed) ^ (index >> 8) as u8)
        .collect()
}

/// Returns an offset in a buffer.
pub(crate) fn at(offset: u64) -> TaggedOffset {
    TaggedOffset(offset)
}
