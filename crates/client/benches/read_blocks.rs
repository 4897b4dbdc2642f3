//! Reads blocks of 1 MiB over shared memory on command and prints the time: the Rust client's part
//! of `crates/python/bench/figures.py`.
//!
//! `read_blocks SOCKET PATH` reads lines `HOW COUNT` from its standard input and answers each with
//! seconds. HOW is `slice` (a plain slice), `lent` (the program's own memory, registered), or
//! `buffer` (the client's memory).

use std::io::BufRead;
use std::path::PathBuf;
use std::time::Instant;

use dafs_client::{Client, ClientConfig, OpenOptions, SessionOptions};
use dafs_dat::Address;

const BLOCK: usize = 1 << 20;
const BLOCKS: u64 = 16;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(socket), Some(path)) = (arguments.next(), arguments.next()) else {
        return Err("read_blocks SOCKET PATH".into());
    };
    let client = Client::new(ClientConfig::default())?;
    let address = Address::Shm(PathBuf::from(socket));
    let session = client.connect_to(&address, &SessionOptions::default())?;
    let file = session.open(&path, &OpenOptions::read())?;
    let mut plain = vec![0; BLOCK];
    let lent = client.register(vec![0; BLOCK].into_boxed_slice())?;
    let ours = client.allocate(BLOCK)?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (how, count) = line.split_once(' ').ok_or("HOW COUNT")?;
        let count: u64 = count.parse()?;
        let begun = Instant::now();
        for index in 0..count {
            let offset = index % BLOCKS * BLOCK as u64;
            let read = match how {
                "slice" => file.read_at(&mut plain, offset)?,
                "lent" => file.read_into(offset, lent.slice(0, BLOCK)?)?.length as usize,
                "buffer" => file.read_into(offset, ours.slice(0, BLOCK)?)?.length as usize,
                other => return Err(format!("{other} is not slice, lent or buffer").into()),
            };
            assert_eq!(read, BLOCK, "the file has {BLOCKS} blocks");
        }
        println!("{}", begun.elapsed().as_secs_f64());
    }
    Ok(())
}
