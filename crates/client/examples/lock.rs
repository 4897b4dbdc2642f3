//! Counts in a file that several clients share, under an exclusive lock.
//!
//! ```text
//! cargo run --release -p dafs-client --example lock -- dafs://HOST/COUNTER
//! ```
//!
//! The lock has auto-recovery: if this program dies between the two writes, the server restores what
//! the file contained before the lock, so that no other client sees half a change. For that the
//! server needs a journal (`dafs serve` has one unless told otherwise).

use std::error::Error;
use std::time::Duration;

use dafs_client::{
    Client, ClientConfig, File, Location, LockKind, LockOptions, OpenOptions, SessionOptions,
};

/// The bytes of the counter: decimal digits and a line feed.
const COUNTER_BYTES: u64 = 21;

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("give the URL of a file")?;
    println!("{}", count(&url.parse()?)?);
    Ok(())
}

/// Adds one to the number in a file, which is made if it does not exist. Returns the number.
pub(crate) fn count(location: &Location) -> Result<u64, Box<dyn Error>> {
    let client = Client::new(ClientConfig::default())?;
    let session = client.connect(location, &SessionOptions::default())?;
    let file = session.open(&location.path, &OpenOptions::write())?;
    let patience = Some(Duration::from_secs(60));
    file.lock(LockKind::Exclusive, 0, COUNTER_BYTES, LockOptions::AUTO_RECOVERY, patience)?;
    let number = read(&file)? + 1;
    file.write_at(format!("{number:20}").as_bytes(), 0)?;
    file.write_at(b"\n", COUNTER_BYTES - 1)?;
    // The change is on stable storage before another client can see it.
    file.commit()?;
    file.unlock(0, COUNTER_BYTES)?;
    file.close()?;
    session.disconnect()?;
    Ok(number)
}

fn read(file: &File) -> Result<u64, Box<dyn Error>> {
    let mut text = vec![0; COUNTER_BYTES as usize];
    let length = file.read_at(&mut text, 0)?;
    let text = std::str::from_utf8(&text[..length])?.trim();
    Ok(if text.is_empty() { 0 } else { text.parse()? })
}
