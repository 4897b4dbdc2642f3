//! Clients that break the rules: each gets its error or loses its connection, and a
//! neighbour's session notices nothing.

use std::time::Duration;

use dafs_client::OpenOptions;
use dafs_dat::{
    Address, Completion, CompletionStatus, Domain, EndpointConfig, EndpointId, Event, Gather,
    Interface, InterfaceConfig, LocalSegment, Operation, Rights, SendOptions,
};
use dafs_memory::{Memory, Pages};
use dafs_types::{FileHandle, SequenceNumber, Status, StreamId, Verifier};
use dafs_wire::messages::{
    AuthRequest, ClientConnectAuth, Empty, GetAttributes, SessionOptions as WireOptions,
};
use dafs_wire::{
    AttributeBitmap, ByteOrder, ChannelType, ConnectData, Request, RequestHeader, ResponseHeader,
    encode_request,
};

use crate::fixture::{Fixture, Transport, over_each};

/// A client that says whatever a test wants.
struct Rogue {
    interface: Interface,
    endpoint: EndpointId,
    inbox: Memory,
    region: dafs_dat::Region,
    is_broken: bool,
}

impl Rogue {
    fn connect(address: &Address) -> Self {
        let mut interface = Interface::new(InterfaceConfig::default()).unwrap();
        let inbox = Memory::anonymous(64 * 4608, Pages::Small).unwrap();
        let region = interface.register(&inbox, Domain(0), Rights::LOCAL).unwrap();
        let data =
            ConnectData { client_instance: 1, client_session: 2, channel: ChannelType::Operation };
        let config = EndpointConfig::default();
        let data = data.encode(ByteOrder::NATIVE);
        let endpoint = interface.connect(address, Domain(0), &config, &data).unwrap();
        let mut rogue = Self { interface, endpoint, inbox, region, is_broken: false };
        for slot in 0..64 {
            rogue.post(slot);
        }
        assert!(matches!(rogue.event(), Event::Established { .. }));
        rogue
    }

    fn post(&mut self, slot: u64) {
        let segment: LocalSegment = self.region.local(slot * 4608, 4608);
        let _ = self.interface.post_receive(self.endpoint, slot, &[segment]);
    }

    fn event(&mut self) -> Event {
        loop {
            if let Some(event) = self.interface.next_event() {
                self.is_broken |= matches!(event, Event::Broken { .. });
                return event;
            }
            let count = self.interface.wait(1, Some(Duration::from_secs(30)));
            assert!(count > 0, "nothing happens any more");
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        let gather = [Gather::Bytes(bytes)];
        let _ = self.interface.post_send(self.endpoint, 99, &gather, SendOptions::default());
        self.interface.flush();
    }

    fn request(&mut self, stream: u16, sequence: u16, request: &Request<'_>) {
        let mut buffer = [0; 4096];
        let header = RequestHeader::new(StreamId(stream), SequenceNumber(sequence));
        let length = encode_request(ByteOrder::NATIVE, &header, request, &mut buffer).unwrap();
        self.send(&buffer[..length]);
    }

    /// The status of the next answer; `None` if the connection ended instead.
    fn answer(&mut self) -> Option<Status> {
        loop {
            match self.event() {
                Event::Completion(Completion {
                    operation: Operation::Receive,
                    status: CompletionStatus::Success,
                    context,
                    length,
                    ..
                }) => {
                    let bytes = self.inbox.to_vec(context as usize * 4608, length as usize);
                    self.post(context);
                    return Some(ResponseHeader::decode(ByteOrder::NATIVE, &bytes).unwrap().status);
                }
                Event::Broken { .. } => return None,
                _ => {}
            }
        }
    }

    fn log_in(&mut self) {
        let request = Request::ClientConnectAuth(ClientConnectAuth {
            options: WireOptions::default(),
            fence_id: "",
            client_string: b"rogue",
            verifier: Verifier([7; 8]),
            authentication: AuthRequest::None,
        });
        self.request(0, 0, &request);
        assert_eq!(self.answer(), Some(Status::Ok));
    }

    fn ends(&mut self) -> bool {
        while self.answer().is_some() {}
        self.is_broken
    }
}

/// Runs a rogue beside an honest session that must go on.
fn beside_a_neighbour(case: impl Fn(&mut Rogue)) {
    over_each(|fixture: &Fixture, transport: Transport| {
        std::fs::write(fixture.local("file"), b"honest").unwrap();
        let (_, honest) = fixture.connect(transport);
        let file = honest.open("/file", &OpenOptions::read()).unwrap();
        for _ in 0..3 {
            let mut rogue = Rogue::connect(&fixture.address(transport));
            case(&mut rogue);
            let mut bytes = [0; 6];
            assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 6);
            assert_eq!(&bytes, b"honest");
        }
    });
}

#[test]
fn garbage_ends_the_connection() {
    beside_a_neighbour(|rogue| {
        rogue.send(&[0xa5; 300]);
        assert!(rogue.ends());
    });
}

#[test]
fn garbage_after_an_honest_start_ends_the_connection_or_is_refused() {
    beside_a_neighbour(|rogue| {
        rogue.log_in();
        rogue.send(&[0; 8]);
        assert!(rogue.ends());
    });
}

#[test]
fn requests_before_authentication_are_refused() {
    beside_a_neighbour(|rogue| {
        rogue.request(0, 0, &Request::GetRootHandle(Empty));
        assert_eq!(rogue.answer(), Some(Status::NotAuthenticated));
    });
}

#[test]
fn more_requests_than_credits_end_the_connection() {
    beside_a_neighbour(|rogue| {
        rogue.log_in();
        for stream in 0..200 {
            rogue.request(stream, 1, &Request::Null(Empty));
        }
        assert!(rogue.ends());
    });
}

#[test]
fn a_stream_beyond_the_credits_ends_the_connection() {
    beside_a_neighbour(|rogue| {
        rogue.log_in();
        rogue.request(60_000, 0, &Request::Null(Empty));
        assert!(rogue.ends());
    });
}

#[test]
fn forged_handles_are_told_apart_from_good_ones() {
    beside_a_neighbour(|rogue| {
        rogue.log_in();
        for (sequence, file) in
            [FileHandle::NULL, FileHandle([0xff; 64]), FileHandle([0x41; 64])].iter().enumerate()
        {
            let wanted = AttributeBitmap::of(5);
            let request = Request::GetAttrInline(GetAttributes { file: *file, wanted });
            rogue.request(0, sequence as u16 + 1, &request);
            assert_eq!(rogue.answer(), Some(Status::BadHandle));
        }
    });
}

#[test]
fn memory_that_was_never_registered_ends_the_connection() {
    use dafs_types::{CacheHint, RmrContext, RmrTarget, StateId};
    use dafs_wire::messages::{Lookup, ReadDirect};
    use dafs_wire::{DirectBuffer, DirectBuffers, Path, Procedure, Response, decode_response};
    beside_a_neighbour(|rogue| {
        rogue.log_in();
        let reply = |rogue: &mut Rogue, request: &Request<'_>, sequence| {
            rogue.request(0, sequence, request);
            loop {
                if let Event::Completion(done) = rogue.event()
                    && done.operation == Operation::Receive
                {
                    let at = done.context as usize * 4608;
                    let bytes = rogue.inbox.to_vec(at, done.length as usize);
                    rogue.post(done.context);
                    return bytes;
                }
            }
        };
        let bytes = reply(rogue, &Request::GetRootHandle(Empty), 1);
        let procedure = Procedure::GetRootHandle;
        let (_, response) = decode_response(ByteOrder::NATIVE, procedure, &bytes).unwrap();
        let Response::GetRootHandle(root) = response else { panic!() };
        let names = ["file"];
        let lookup = Lookup { directory: root.file, path: Path::new(&names) };
        let bytes = reply(rogue, &Request::Lookup(lookup), 2);
        let (_, response) = decode_response(ByteOrder::NATIVE, Procedure::Lookup, &bytes).unwrap();
        let Response::Lookup(found) = response else { panic!() };
        let buffer = [DirectBuffer {
            target: RmrTarget(0x1000),
            length: 4096,
            context: RmrContext(0xdead_be00),
        }];
        let request = Request::ReadDirect(ReadDirect {
            file: found.file,
            state: StateId::ANONYMOUS,
            offset: 0,
            length: 6,
            hint: CacheHint::default(),
            buffers: DirectBuffers::from(&buffer[..]),
        });
        rogue.request(0, 3, &request);
        assert!(rogue.ends());
    });
}

#[test]
fn a_client_that_vanishes_half_way_leaves_nothing_behind() {
    over_each(|fixture, transport| {
        for round in 0..50 {
            let mut rogue = Rogue::connect(&fixture.address(transport));
            if round % 2 == 0 {
                rogue.log_in();
            }
            rogue.request(0, 1, &Request::GetRootHandle(Empty));
        }
        let (_, honest) = fixture.connect(transport);
        honest.ping().unwrap();
    });
}
