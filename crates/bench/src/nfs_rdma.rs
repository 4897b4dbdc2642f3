//! Compares a READ of NFS over RDMA with a direct read of DAFS. Clients of this project read over
//! software iWARP on the loopback interface.
//!
//! Both read the same cached file, one block at a time, and the server writes the data to the
//! memory of the client. Rounds alternate, so that other load on the machine affects both alike.
//!
//! Invariant: the reply to each READ is checked, and no client copies the data.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use dafs_client::{Buffer, Client, ClientConfig, File, OpenOptions, Session, SessionOptions};
use dafs_dat::Address;
use dafs_rpcrdma_client::{Connection, Received};
use rustix::process::{getegid, geteuid};
use serde::Serialize;

use crate::measure;

/// The server to measure, and the number and length of the rounds.
#[derive(Clone, Debug)]
pub struct NfsRdmaOptions {
    /// The directory that the server exports as `/`.
    pub directory: PathBuf,
    /// The address at which the server serves NFS clients over RDMA.
    pub rdma: Address,
    /// The address at which it serves DAFS clients.
    pub dafs: Address,
    /// The options of the DAFS session.
    pub session: SessionOptions,
    /// The number of rounds for each median.
    pub rounds: u64,
    /// The length of a round.
    pub round: Duration,
}

/// The medians for one block size.
#[derive(Debug, Serialize)]
pub struct NfsRdmaRow {
    /// The size of a block in bytes.
    pub block: usize,
    /// The time per READ of NFS in microseconds.
    pub nfs_micros: f64,
    /// The time per direct read of DAFS in microseconds.
    pub dafs_micros: f64,
    /// The median of the ratio of NFS to DAFS in each round.
    pub ratio: f64,
}

/// Measures both, and writes a table to `out`. Returns its rows.
///
/// # Errors
/// If the server refuses something.
pub fn compare_nfs_rdma(out: &mut dyn Write, options: &NfsRdmaOptions) -> Result<Vec<NfsRdmaRow>> {
    let path = options.directory.join(FILE);
    std::fs::write(&path, vec![1; FILE_BYTES as usize])
        .with_context(|| format!("writing {}", path.display()))?;
    let mut nfs = NfsReader::open(&options.rdma)?;
    let mut dafs = DafsReader::open(options)?;
    nfs.read_all()?;
    let names = ["", "NFS, us", "DAFS, us", "ratio"];
    writeln!(out, "{:16} {:>10} {:>10} {:>8}", names[0], names[1], names[2], names[3])?;
    let mut rows = Vec::new();
    for block in BLOCKS {
        // Both have registered their memory then.
        nfs.round(block, options.round)?;
        dafs.round(block, options.round)?;
        let (mut of_nfs, mut of_dafs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            let (own, other) =
                (nfs.round(block, options.round)?, dafs.round(block, options.round)?);
            of_nfs.push(own);
            of_dafs.push(other);
            ratios.push(own / other);
        }
        let median = |values: &mut Vec<f64>| measure::median(values).unwrap_or(f64::NAN);
        let row = NfsRdmaRow {
            block,
            nfs_micros: median(&mut of_nfs),
            dafs_micros: median(&mut of_dafs),
            ratio: median(&mut ratios),
        };
        let name = format!("read {} KiB", block >> 10);
        let NfsRdmaRow { nfs_micros, dafs_micros, ratio, .. } = row;
        writeln!(out, "{name:16} {nfs_micros:10.2} {dafs_micros:10.2} {ratio:8.2}")?;
        rows.push(row);
    }
    Ok(rows)
}

/// Offsets in the file, in an order that looks random.
struct Offsets(u64);

impl Offsets {
    fn next(&mut self, block: usize) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % (FILE_BYTES / block as u64) * block as u64
    }
}

/// A DAFS client with the open file.
struct DafsReader {
    file: File,
    buffer: Buffer,
    offsets: Offsets,
    _session: Session,
    _client: Client,
}

impl DafsReader {
    fn open(options: &NfsRdmaOptions) -> Result<Self> {
        let client = Client::new(ClientConfig::default())?;
        let session = client.connect_to(&options.dafs, &options.session)?;
        let file = session.open(format!("/{FILE}"), &OpenOptions::read())?;
        let buffer = client.allocate(1 << 20)?;
        let offsets = Offsets(SEED);
        Ok(Self { file, buffer, offsets, _session: session, _client: client })
    }

    /// Reads for this time. Returns the time per read in microseconds.
    fn round(&mut self, block: usize, length: Duration) -> Result<f64> {
        repeat(length, || {
            let slice = self.buffer.slice(0, block)?;
            let moved = self.file.read_into(self.offsets.next(block), slice)?;
            ensure!(moved.length as usize == block, "DAFS returned {} bytes", moved.length);
            Ok(())
        })
    }
}

/// An NFS client over RDMA with the handle of the file.
struct NfsReader {
    connection: Connection,
    file: Vec<u8>,
    /// The user and the group that the calls name.
    user: (u32, u32),
    offsets: Offsets,
    xid: u32,
}

impl NfsReader {
    fn open(address: &Address) -> Result<Self> {
        let connection = Connection::open(address, PATIENCE)?;
        let (file, offsets) = (Vec::new(), Offsets(SEED));
        let user = (geteuid().as_raw(), getegid().as_raw());
        let mut reader = Self { connection, file, user, offsets, xid: 0 };
        let mounted = reader.results((MOUNT, 1), &opaque(b"/"))?;
        let root = handle(&mounted).context("MNT returned no handle")?;
        let found = reader.results((NFS, 3), &[opaque(root), opaque(FILE.as_bytes())].concat())?;
        reader.file = handle(&found).context("LOOKUP returned no handle")?.to_vec();
        Ok(reader)
    }

    /// Reads the whole file, so that the server's cache has it. A READ of data that is not in the
    /// cache may return only some of the bytes.
    fn read_all(&mut self) -> Result<()> {
        let mut offset = 0;
        while offset < FILE_BYTES {
            let length = self.read(offset, 1 << 20)?;
            ensure!(length > 0, "READ returned no bytes at {offset}");
            offset += u64::from(length);
        }
        Ok(())
    }

    fn round(&mut self, block: usize, length: Duration) -> Result<f64> {
        let count = u32::try_from(block)?;
        repeat(length, || {
            let offset = self.offsets.next(block);
            let found = self.read(offset, count)?;
            ensure!(found == count, "READ returned {found} bytes of {block} at {offset}");
            Ok(())
        })
    }

    /// Reads at this offset, and returns the number of bytes.
    fn read(&mut self, offset: u64, count: u32) -> Result<u32> {
        let file = opaque(&self.file);
        let arguments = [&file[..], &offset.to_be_bytes(), &count.to_be_bytes()].concat();
        let results = self.results((NFS, 6), &arguments)?;
        // The count is after the status and the attributes.
        let found = results.get(4 + 4 + 84..).and_then(|rest| rest.first_chunk());
        found.map(|count| u32::from_be_bytes(*count)).context("READ returned no attributes")
    }

    /// Calls a procedure of a program, and returns its results without the data of a READ.
    fn results(&mut self, (program, procedure): (u32, u32), arguments: &[u8]) -> Result<Vec<u8>> {
        self.xid += 1;
        let (user, group) = self.user;
        // A call of version 2 of RPC with AUTH_SYS, without a host name and without groups.
        let words = [self.xid, 0, 2, program, 3, procedure, 1, 20, 0, 0, user, group, 0, 0, 0];
        let header: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_be_bytes()).collect();
        self.connection.call(&[&header[..], arguments].concat())?;
        match self.connection.receive_without_data(PATIENCE) {
            Some(Received::Reply(reply)) => {
                // Identifier, direction, status, verifier, outcome, and the status of the results.
                let is_success = reply.get(8..28) == Some(&[0; 20][..]);
                ensure!(is_success, "procedure {procedure} of program {program} failed");
                Ok(reply[24..].to_vec())
            }
            other => bail!("procedure {procedure} of program {program} got {other:?}"),
        }
    }
}

/// Does something again and again. Returns the time that it takes, in microseconds.
fn repeat(length: Duration, mut act: impl FnMut() -> Result<()>) -> Result<f64> {
    let (begin, mut done) = (Instant::now(), 0_u64);
    while begin.elapsed() < length {
        act()?;
        done += 1;
    }
    Ok(begin.elapsed().as_secs_f64() * 1e6 / done as f64)
}

/// Encodes bytes of variable length.
fn opaque(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut encoded = [&length.to_be_bytes()[..], bytes].concat();
    encoded.resize(encoded.len().next_multiple_of(4), 0);
    encoded
}

/// Returns the handle that follows the status of results.
fn handle(results: &[u8]) -> Option<&[u8]> {
    let length = u32::from_be_bytes(*results.get(4..)?.first_chunk()?);
    results.get(8..8 + length as usize)
}

/// The numbers of the programs NFS and MOUNT.
const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
/// The name of the file to read, and its size in bytes.
const FILE: &str = "blocks";
const FILE_BYTES: u64 = 64 << 20;
/// The sizes of blocks in bytes.
const BLOCKS: [usize; 2] = [4096, 1 << 20];
/// The first offset of both clients.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// The time after which a server that does not reply has failed.
const PATIENCE: Duration = Duration::from_secs(20);
