//! A peer, spoken by hand, whose frames change their size from one answer to the next.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use dafs_dat::{
    Address, Domain, EndpointConfig, Event, Interface, InterfaceConfig, Operation, Rights,
};
use dafs_memory::{Memory, Pages};

fn fpdu(segment: &[u8]) -> Vec<u8> {
    let mut frame = (segment.len() as u16).to_be_bytes().to_vec();
    frame.extend_from_slice(segment);
    frame.resize(frame.len().next_multiple_of(4) + 4, 0);
    frame
}

fn write(stag: u32, address: u64, payload: &[u8], last: bool) -> Vec<u8> {
    let mut segment = vec![if last { 0xc1 } else { 0x81 }, 0x40];
    segment.extend_from_slice(&stag.to_be_bytes());
    segment.extend_from_slice(&address.to_be_bytes());
    segment.extend_from_slice(payload);
    fpdu(&segment)
}

fn send(sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut segment = vec![0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0];
    segment.extend_from_slice(&sequence.to_be_bytes());
    segment.extend_from_slice(&[0; 4]);
    segment.extend_from_slice(payload);
    fpdu(&segment)
}

fn next(interface: &mut Interface) -> Event {
    loop {
        if let Some(event) = interface.next_event() {
            return event;
        }
        assert!(interface.wait(1, Some(HANG)) > 0, "nothing happens any more");
    }
}

#[test]
fn frames_of_any_size_after_any_other_are_put_where_they_belong() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut interface = Interface::new(InterfaceConfig::default()).unwrap();
    let memory = Memory::anonymous(ANSWERS * ANSWER_BYTES, Pages::Small).unwrap();
    let region = interface.register(&memory, Domain(0), Rights::REMOTE).unwrap();
    let inbox = Memory::anonymous(4096, Pages::Small).unwrap();
    let inbox_region = interface.register(&inbox, Domain(0), Rights::LOCAL).unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    let config = EndpointConfig::default();
    let endpoint = interface.connect(&address, Domain(0), &config, b"").unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    // Request, reply: peer-to-peer, ready by a Write, 4 reads each way.
    interface.poll();
    socket.read_exact(&mut [0; 24]).unwrap();
    let agreed = [0x10, 2, 0, 4, 0x80, 4, 0x80, 4];
    socket.write_all(&[&b"MPA ID Rep Frame"[..], &agreed].concat()).unwrap();
    assert!(matches!(next(&mut interface), Event::Established { .. }));

    let sizes = [100, 1000, 60, 61, 4000, 20, 3000, 1, 700, 90];
    let mut image = vec![0; ANSWERS * ANSWER_BYTES];
    for (answer, size) in sizes.into_iter().enumerate() {
        let offset = answer * ANSWER_BYTES;
        let length = ANSWER_BYTES as u32;
        interface.expect(endpoint, &[region.remote(offset as u64, length)], 3);
        let segment = inbox_region.local(0, 4096);
        interface.post_receive(endpoint, answer as u64, &[segment]).unwrap();
        let bytes: Vec<u8> = (0..ANSWER_BYTES).map(|at| (at * 7 + answer) as u8).collect();
        image[offset..offset + ANSWER_BYTES].copy_from_slice(&bytes);
        let mut stream = Vec::new();
        for (index, payload) in bytes.chunks(size).enumerate() {
            let at = index * size;
            let address = region.address + (offset + at) as u64;
            stream.extend(write(region.stag.0, address, payload, at + size >= ANSWER_BYTES));
        }
        stream.extend(send(answer as u32 + 1, b"ok!"));
        // The whole answer is there before any of it is looked at.
        socket.write_all(&stream).unwrap();
        let event = next(&mut interface);
        let received = matches!(&event, Event::Completion(done)
            if done.operation == Operation::Receive && done.length == 3);
        assert!(received, "frames of {size}: {event:?}");
        let is = memory.to_vec(0, image.len());
        let wrong = is.iter().zip(&image).position(|(is, must)| is != must);
        assert_eq!(wrong, None, "frames of {size}");
    }
}

const ANSWERS: usize = 10;
const ANSWER_BYTES: usize = 4096;
/// A guard against hanging; no test expects anything of time.
const HANG: Duration = Duration::from_secs(30);
