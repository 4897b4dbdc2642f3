//! The sorted input files of a merge.
//!
//! Invariant: the files are the same for all competitors. They are removed when the value is
//! dropped.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Sorted files of records. Each record begins with a big-endian key of 8 bytes.
pub(super) struct Inputs {
    directory: PathBuf,
    pub names: Vec<String>,
    pub record_bytes: usize,
    pub total_bytes: u64,
}

impl Inputs {
    /// The name of the output file.
    pub(super) const OUTPUT: &str = "dafs-bench-merged";

    /// Makes `order` files with about `total_bytes` in total. Each file consists of whole records.
    pub(super) fn make(
        directory: &Path,
        order: usize,
        record_bytes: usize,
        total_bytes: u64,
    ) -> Result<Self> {
        ensure!(record_bytes >= KEY_BYTES, "a record must have at least {KEY_BYTES} bytes");
        let count = total_bytes / (order * record_bytes) as u64;
        let mut inputs = Self {
            directory: directory.to_owned(),
            names: Vec::new(),
            record_bytes,
            total_bytes: count * (order * record_bytes) as u64,
        };
        for index in 0..order {
            // Each file has its own name, so that a server cannot confuse it with an earlier file.
            let name = format!("dafs-bench-merge-{order}-{record_bytes}-{index}");
            inputs.names.push(name.clone());
            let path = directory.join(&name);
            let making = || format!("making {}", path.display());
            let mut file =
                BufWriter::with_capacity(1 << 20, File::create(&path).with_context(making)?);
            let mut record = vec![index as u8; record_bytes];
            let (mut key, mut state) =
                (0_u64, (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            for _ in 0..count {
                // The keys of all files rise at the same rate, each in its own steps, so that the
                // merge switches between files as often as with random keys.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                key += state >> 40;
                record[..KEY_BYTES].copy_from_slice(&key.to_be_bytes());
                file.write_all(&record).with_context(making)?;
            }
            file.flush().with_context(making)?;
        }
        Ok(inputs)
    }

    fn output(&self) -> PathBuf {
        self.directory.join(Self::OUTPUT)
    }

    /// Checks that the output contains all records, sorted by key.
    pub(super) fn check(&self) -> Result<()> {
        let mut file = File::open(self.output()).context("opening the output")?;
        let size = file.metadata()?.len();
        ensure!(
            size == self.total_bytes,
            "the output has {size} bytes instead of {}",
            self.total_bytes
        );
        let (mut record, mut last) = (vec![0; self.record_bytes], [0; KEY_BYTES]);
        let mut counts = vec![0; self.names.len()];
        let mut reader = std::io::BufReader::with_capacity(1 << 20, &mut file);
        for _ in 0..size / self.record_bytes as u64 {
            reader.read_exact(&mut record)?;
            let (key, rest) = record.split_at(KEY_BYTES);
            ensure!(*key >= last[..], "the output is not sorted");
            last.copy_from_slice(key);
            let whose = rest.first().copied().unwrap_or(0);
            ensure!(rest.iter().all(|byte| *byte == whose), "a record was changed");
            *counts.get_mut(usize::from(whose)).context("a record belongs to no input file")? += 1;
        }
        let is_even = self.record_bytes == KEY_BYTES || counts.iter().all(|n| *n == counts[0]);
        ensure!(is_even, "the output has different numbers of records of the input files");
        Ok(())
    }
}

impl Drop for Inputs {
    fn drop(&mut self) {
        for name in &self.names {
            // The caller that made the directory removes what is left in it.
            let _ = std::fs::remove_file(self.directory.join(name));
        }
    }
}

const KEY_BYTES: usize = 8;
