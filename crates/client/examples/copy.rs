//! Copies a file to or from a server.
//!
//! ```text
//! cargo run --release -p dafs-client --example copy -- dafs://HOST/PATH LOCAL_FILE
//! cargo run --release -p dafs-client --example copy -- LOCAL_FILE dafs://HOST/PATH
//! ```
//!
//! A [`ReadStream`] and a [`WriteStream`] keep several blocks in flight, so that neither the network
//! nor the disk waits for the other.

use std::error::Error;
use std::fs;
use std::io::{self, Write};

use dafs_client::{
    Client, ClientConfig, Location, OpenOptions, ReadStream, SessionOptions, WriteStream,
};

/// The number of blocks in flight, and the bytes of each.
const DEPTH: usize = 8;
const BLOCK_BYTES: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [source, target] = arguments.as_slice() else {
        return Err("give a source and a target; one of them is a URL".into());
    };
    let bytes = match (Location::is_url(source), Location::is_url(target)) {
        (true, false) => fetch(&source.parse()?, target)?,
        (false, true) => store(source, &target.parse()?)?,
        _ => return Err("one of source and target is a URL, the other a local path".into()),
    };
    println!("{bytes} bytes");
    Ok(())
}

/// Copies a file of a server into a local file. Returns the number of bytes.
pub(crate) fn fetch(source: &Location, target: &str) -> Result<u64, Box<dyn Error>> {
    let client = Client::new(ClientConfig::default())?;
    let session = client.connect(source, &SessionOptions::default())?;
    let file = session.open(&source.path, &OpenOptions::read())?;
    let mut bytes = ReadStream::new(&file, DEPTH, BLOCK_BYTES)?;
    let copied = io::copy(&mut bytes, &mut fs::File::create(target)?)?;
    drop(bytes);
    file.close()?;
    session.disconnect()?;
    Ok(copied)
}

/// Copies a local file to a server, and waits until it is on stable storage. Returns the number of
/// bytes.
pub(crate) fn store(source: &str, target: &Location) -> Result<u64, Box<dyn Error>> {
    let client = Client::new(ClientConfig::default())?;
    let session = client.connect(target, &SessionOptions::default())?;
    let file = session.open(&target.path, &OpenOptions::write().truncate(true))?;
    let mut bytes = WriteStream::new(&file, DEPTH, BLOCK_BYTES)?;
    let copied = io::copy(&mut fs::File::open(source)?, &mut bytes)?;
    bytes.flush()?;
    // Commits: the server reports an error of its disk here, not later.
    bytes.finish()?;
    file.close()?;
    session.disconnect()?;
    Ok(copied)
}
