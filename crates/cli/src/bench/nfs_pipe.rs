//! Copies a file of an NFS server to standard output, or standard input to a file of the server,
//! with libnfs. The benchmark thus shows what programs without NFS support get from a user-space
//! NFS client.
//!
//! Invariant: several blocks are in flight, and they are written in the order of the file.

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dafs_bench::{Completion, Entrance, Nfs, Reply, Request, Ticket, flag};

use super::host::{cost, ended_well};
use crate::gzip::{format_compression_time, print_error_line};

/// Runs `nfs-read` or `nfs-write`.
pub(super) fn run(work: &str, process: &str, path: &str) -> Result<()> {
    let mut nfs = Entrance::of(process.parse().context("the number of a process")?).mount()?;
    match work {
        "nfs-read" => read(&mut nfs, path, &mut std::io::stdout().lock()),
        "nfs-write" => write(&mut nfs, path, &mut std::io::stdin().lock()),
        other => bail!("{other:?} is no NFS measurement; use nfs-read or nfs-write"),
    }
}

/// Compresses files on the server with GNU gzip in a pipe, one after the other, and prints the user
/// time of gzip.
pub(super) fn gzip(process: &str, level: &str, paths: &[String]) -> Result<()> {
    let program = std::env::current_exe().context("finding this program")?;
    let end = |work: &str, path: &str| {
        let mut command = Command::new(&program);
        command.args(["bench-peer", work, process, path]);
        command
    };
    let mut compressing = Duration::ZERO;
    for path in paths {
        let mut reader = end("nfs-read", path).stdout(Stdio::piped()).spawn()?;
        let input = reader.stdout.take().context("a reader without output")?;
        let mut gzip = Command::new("gzip");
        gzip.arg(level).stdin(input).stdout(Stdio::piped());
        let mut gzip = gzip.spawn().context("starting gzip")?;
        let output = gzip.stdout.take().context("gzip without output")?;
        let mut writer = end("nfs-write", &format!("{path}.gz")).stdin(output).spawn()?;
        // The processor time of a child counts only after it is waited for.
        compressing += cost(|| ended_well("gzip", gzip.wait()?))?.user;
        ended_well("nfs-read", reader.wait()?)?;
        ended_well("nfs-write", writer.wait()?)?;
    }
    print_error_line(&format!("gzip{}\n", format_compression_time(compressing)));
    Ok(())
}

fn read(nfs: &mut Nfs, path: &str, out: &mut dyn Write) -> Result<()> {
    let file = nfs.open(path, flag::READ, 0)?;
    let (mut offset, mut under_way) = (0, VecDeque::new());
    let mut there: HashMap<Ticket, (usize, Vec<u8>)> = HashMap::new();
    let mut ask = |nfs: &mut Nfs, buffer: Vec<u8>| {
        let request = Request::Read { file, offset, buffer };
        offset += BLOCK_BYTES as u64;
        nfs.submit(request)
    };
    for _ in 0..BLOCKS {
        under_way.push_back(ask(nfs, vec![0; BLOCK_BYTES])?);
    }
    while let Some(first) = under_way.pop_front() {
        while !there.contains_key(&first) {
            let (ticket, count, buffer) = moved(nfs.wait()?)?;
            there.insert(ticket, (count, buffer));
        }
        let Some((count, buffer)) = there.remove(&first) else { continue };
        out.write_all(&buffer[..count])?;
        if count < BLOCK_BYTES {
            break;
        }
        under_way.push_back(ask(nfs, buffer)?);
    }
    Ok(out.flush()?)
}

fn write(nfs: &mut Nfs, path: &str, input: &mut dyn Read) -> Result<()> {
    let file = nfs.open(path, flag::WRITE | flag::CREATE | flag::TRUNCATE, 0o644)?;
    let mut offset = 0;
    loop {
        let mut buffer = if nfs.under_way() < BLOCKS {
            Vec::with_capacity(BLOCK_BYTES)
        } else {
            moved(nfs.wait()?)?.2
        };
        buffer.clear();
        input.take(BLOCK_BYTES as u64).read_to_end(&mut buffer)?;
        if buffer.is_empty() {
            break;
        }
        let count = buffer.len() as u64;
        nfs.submit(Request::Write { file, offset, buffer })?;
        offset += count;
    }
    while nfs.under_way() > 0 {
        moved(nfs.wait()?)?;
    }
    Ok(nfs.close(file)?)
}

fn moved(completion: Completion) -> Result<(Ticket, usize, Vec<u8>)> {
    match completion.result? {
        Reply::Moved { count, buffer } => Ok((completion.ticket, count, buffer)),
        other => bail!("unexpected reply of the NFS library: {other:?}"),
    }
}

/// The number of blocks in flight.
const BLOCKS: usize = 4;
/// The size of a block in bytes.
const BLOCK_BYTES: usize = 256 << 10;
