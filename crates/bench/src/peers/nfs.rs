//! A competitor that reads blocks from nfs-ganesha through libnfs: NFS without the kernel's client.
//!
//! Invariant: there is one connection, used by one thread. Each block in flight has its own buffer,
//! which is passed with the request and returned with the reply.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dafs_peers::{FileId, Ganesha, Nfs, Reply, Request, Ticket, flag};

use super::{BLOCK_BYTES_MAX, DEPTH_MAX, Kind, Label, NFS, Offsets, Peer, Tally, Times, nanos};

/// A server, a connection to it, and an open file.
pub(crate) struct Export {
    // Declared before the server, so that it is dropped before the server.
    nfs: RefCell<Nfs>,
    file: FileId,
    process: u32,
    _ganesha: Ganesha,
}

impl Export {
    /// Exports a directory with a file of `file_bytes`, and reads the file once so that it is
    /// cached. Returns `None` and writes the reason to `out` if the machine has no nfs-ganesha or
    /// libnfs.
    ///
    /// # Errors
    /// If the server is there but fails.
    pub(crate) fn new(
        out: &mut dyn Write,
        directory: &Path,
        file_bytes: u64,
    ) -> Result<Option<Rc<Self>>> {
        let ganesha = match Ganesha::start(directory) {
            Ok(server) => server,
            Err(error) if error.is_missing() => {
                writeln!(out, "nfs-ganesha is left out: {error}")?;
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        fill(&directory.join(FILE), file_bytes)?;
        let mut nfs = ganesha.mount()?;
        let file = nfs.open(&format!("/{FILE}"), flag::READ, 0)?;
        let mut buffer = vec![0; BLOCK_BYTES_MAX];
        for offset in (0..file_bytes).step_by(BLOCK_BYTES_MAX) {
            (_, buffer) = nfs.pread(file, offset, buffer)?;
        }
        let process = ganesha.server_process()?;
        Ok(Some(Rc::new(Self { nfs: RefCell::new(nfs), file, process, _ganesha: ganesha })))
    }
}

fn fill(path: &Path, file_bytes: u64) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = std::fs::File::create(path)?;
        let ones = vec![1; BLOCK_BYTES_MAX];
        for offset in (0..file_bytes).step_by(BLOCK_BYTES_MAX) {
            let length = (file_bytes - offset).min(BLOCK_BYTES_MAX as u64);
            file.write_all(&ones[..length as usize])?;
        }
        // Sync the file, because data on its way to the disk would disturb the measurement.
        file.sync_all()
    };
    write().with_context(|| format!("writing {}", path.display()))
}

/// A competitor that reads from an export, with several reads in flight.
pub(crate) struct OverNfs {
    export: Rc<Export>,
    depth: usize,
    offsets: Offsets,
    free: Vec<Vec<u8>>,
    under_way: HashMap<Ticket, Instant>,
}

impl OverNfs {
    /// Makes a competitor that reads the open file of `file_bytes` on the export.
    #[must_use]
    pub(crate) fn new(export: &Rc<Export>, depth: usize, file_bytes: u64) -> Self {
        Self {
            export: export.clone(),
            depth: depth.min(DEPTH_MAX),
            offsets: Offsets::new(file_bytes),
            free: vec![Vec::new(); depth.min(DEPTH_MAX)],
            under_way: HashMap::new(),
        }
    }

    fn submit(&mut self, block: usize, mut buffer: Vec<u8>, is_timed: bool) -> Result<()> {
        buffer.resize(block, 0);
        let (file, offset) = (self.export.file, self.offsets.next(block));
        let begin = is_timed.then(Instant::now);
        let ticket = self.export.nfs.borrow_mut().submit(Request::Read { file, offset, buffer })?;
        if let Some(begin) = begin {
            self.under_way.insert(ticket, begin);
        }
        Ok(())
    }

    fn collect(
        &mut self,
        block: usize,
        tally: &mut Tally,
        times: &mut Option<&mut Times>,
    ) -> Result<()> {
        let completion = self.export.nfs.borrow_mut().wait()?;
        let Reply::Moved { count, buffer } = completion.result? else {
            bail!("the NFS server sent an unexpected reply to a read");
        };
        anyhow::ensure!(count == block, "the NFS server returned {count} of {block} bytes");
        if let (Some(times), Some(begin)) = (times, self.under_way.remove(&completion.ticket)) {
            times.saturating_record(nanos(begin.elapsed()));
        }
        tally.count += 1;
        tally.sum = tally.sum.wrapping_add(count as u64);
        self.free.push(buffer);
        Ok(())
    }
}

impl Peer for OverNfs {
    fn label(&self) -> Label {
        Label { depth: self.depth, ..Label::plain(NFS, Kind::Read) }
    }

    fn server(&self) -> Option<u32> {
        Some(self.export.process)
    }

    fn run(
        &mut self,
        block: usize,
        span: Duration,
        mut times: Option<&mut Times>,
    ) -> Result<Tally> {
        let (start, mut tally) = (Instant::now(), Tally::default());
        while start.elapsed() < span {
            while let Some(buffer) = self.free.pop() {
                self.submit(block, buffer, times.is_some())?;
            }
            self.collect(block, &mut tally, &mut times)?;
        }
        while self.free.len() < self.depth {
            self.collect(block, &mut tally, &mut times)?;
        }
        Ok(tally)
    }
}

/// The name of the file in the export.
const FILE: &str = "blocks";
