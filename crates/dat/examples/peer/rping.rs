//! `rping` of librdmacm's examples. The client announces a buffer and the server reads it. The
//! client announces another buffer and the server writes back what it has read. The server sends a
//! message without meaning when each is done.

use dafs_dat::{Region, RemoteSegment, Rights, Stag};

use super::link::Link;
use super::{Failure, Options};

/// The contents of a message: address, STag and length, big-endian.
type Info = [u8; 16];

fn info(region: &Region, length: u32) -> Info {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&region.address.to_be_bytes());
    bytes[8..12].copy_from_slice(&region.stag.0.to_be_bytes());
    bytes[12..].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// Returns the memory that a message announces.
pub(crate) fn told(bytes: &[u8]) -> Result<RemoteSegment, Failure> {
    let info: Info = bytes.try_into().map_err(|_| format!("{} bytes", bytes.len()))?;
    let [a, b, c, d, e, f, g, h, s0, s1, s2, s3, l0, l1, l2, l3] = info;
    Ok(RemoteSegment {
        stag: Stag(u32::from_be_bytes([s0, s1, s2, s3])),
        address: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        length: u32::from_be_bytes([l0, l1, l2, l3]),
    })
}

/// Runs the server: serves one client until it disconnects.
pub(crate) fn serve(options: &Options) -> Result<(), Failure> {
    let mut link = Link::accept(options)?;
    let mut rounds = 0;
    let buffer = link.buffer(BUFFER_BYTES, Rights::LOCAL)?;
    loop {
        let message = match link.receive() {
            Ok(message) => message,
            Err(_) if link.broken.is_some() && rounds == options.count => break,
            Err(failure) => return Err(format!("after {rounds} rounds: {failure}").into()),
        };
        let source = told(&message.bytes)?;
        link.read(&[(buffer.region.local(0, source.length), source)])?;
        link.send(&message.bytes, None)?;
        let sink = told(&link.receive()?.bytes)?;
        link.write(buffer.region.local(0, sink.length), sink)?;
        link.send(&message.bytes, None)?;
        rounds += 1;
    }
    println!("{rounds} rounds served");
    Ok(())
}

/// Runs the client.
pub(crate) fn ping(options: &Options) -> Result<(), Failure> {
    let mut link = Link::connect(options)?;
    let size = options.size as usize;
    let (start, sink) = (link.buffer(size, Rights::REMOTE)?, link.buffer(size, Rights::REMOTE)?);
    for round in 0..options.count {
        let mut text = format!("rdma-ping-{round}: ").into_bytes();
        text.extend((b'A'..=b'z').cycle().skip(round as usize).take(size));
        text.truncate(size - 1);
        text.push(0);
        start.memory.write(0, &text);
        for told in [&start, &sink] {
            link.send(&info(&told.region, options.size), None)?;
            link.receive()?;
        }
        let echoed = sink.memory.to_vec(0, size);
        // The kernel's server echoes a string up to its end.
        if echoed != text {
            return Err(format!("round {round} came back changed").into());
        }
    }
    println!("{} rounds", options.count);
    link.disconnect();
    Ok(())
}

const BUFFER_BYTES: usize = 1 << 20;
