//! Compresses a file into one gzip member (RFC 1952).
//!
//! Invariant: with any number of workers, the result is one member that every gunzip accepts. A
//! single worker makes one stream without cuts between blocks.

use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use anyhow::Result;
use dafs_bench::thread_cpu;
use flate2::{Compression, GzBuilder};

use super::Lengths;
use super::parallel::in_blocks;
use super::source::Source;

/// The metadata of a file in the header of its member.
#[derive(Clone, Debug, Default)]
pub(super) struct Header {
    pub name: Option<Vec<u8>>,
    /// The modification time in seconds since 1970, or 0 if it is not stored.
    pub modified: u32,
}

impl Header {
    pub(super) fn of(source: &Source, is_nameless: bool) -> Self {
        if is_nameless {
            return Self::default();
        }
        let modified = source.attributes.modified.map_or(0, |time| time.seconds);
        Self {
            // A NUL byte would end the name.
            name: source
                .name
                .as_ref()
                .map(|name| name.as_bytes().to_vec())
                .filter(|name| !name.contains(&0)),
            modified: u32::try_from(modified).unwrap_or(0),
        }
    }

    fn builder(&self) -> GzBuilder {
        let builder = GzBuilder::new().mtime(self.modified).operating_system(UNIX);
        match &self.name {
            Some(name) => builder.filename(name.clone()),
            None => builder,
        }
    }

    /// Returns the encoded header.
    pub(super) fn bytes(&self, level: u32) -> Vec<u8> {
        let hint = match level {
            9 => 2,
            1 => 4,
            _ => 0,
        };
        let flags = if self.name.is_some() { HAS_NAME } else { 0 };
        let mut bytes = vec![0x1f, 0x8b, 8, flags];
        bytes.extend(self.modified.to_le_bytes());
        bytes.extend([hint, UNIX]);
        if let Some(name) = &self.name {
            bytes.extend(name);
            bytes.push(0);
        }
        bytes
    }
}

/// The result of compressing a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Encoded {
    pub lengths: Lengths,
    /// The processor time of the compressor in all threads, without reading and writing.
    pub compressing: Duration,
}

/// Compresses all data of `reader` into one member.
pub(super) fn compress(
    reader: &mut dyn Read,
    writer: &mut dyn Write,
    header: &Header,
    level: u32,
    workers: usize,
) -> Result<Encoded> {
    let mut counted = Counted { writer, count: 0, spent: Duration::ZERO };
    let (input, compressing) = if workers > 1 {
        in_blocks(reader, &mut counted, header, level, workers)?
    } else {
        in_one(reader, &mut counted, header, level)?
    };
    Ok(Encoded { lengths: Lengths { input, output: counted.count }, compressing })
}

fn in_one(
    reader: &mut dyn Read,
    writer: &mut Counted<'_>,
    header: &Header,
    level: u32,
) -> Result<(u64, Duration)> {
    let mut encoder = header.builder().write(writer, Compression::new(level));
    let (mut chunk, mut length) = (vec![0; CHUNK_BYTES], 0);
    let mut spent = Duration::ZERO;
    loop {
        let count = match reader.read(&mut chunk) {
            Ok(0) => break,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            count => count?,
        };
        let begun = thread_cpu();
        encoder.write_all(&chunk[..count])?;
        spent += thread_cpu() - begun;
        length += count as u64;
    }
    let begun = thread_cpu();
    let writer = encoder.finish()?;
    spent += thread_cpu() - begun;
    Ok((length, spent.saturating_sub(writer.spent)))
}

/// A writer that counts the bytes written, and the processor time that the thread spends writing.
struct Counted<'w> {
    writer: &'w mut dyn Write,
    count: u64,
    spent: Duration,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let begun = thread_cpu();
        let count = self.writer.write(bytes)?;
        self.spent += thread_cpu() - begun;
        self.count += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.writer.flush()
    }
}

/// The number of bytes read in one call, few enough to stay in the processor's cache until they are
/// compressed.
const CHUNK_BYTES: usize = 128 << 10;
/// The flag for a member that contains a file name (RFC 1952, section 2.3.1).
const HAS_NAME: u8 = 8;
/// The code of the operating system Unix (RFC 1952, section 2.3.1).
const UNIX: u8 = 3;

#[cfg(test)]
mod tests {
    use super::super::decode::decompress;
    use super::*;

    fn text(length: usize) -> Vec<u8> {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 24
        };
        let words: [&[u8]; 4] = [b"direct ", b"access ", b"file ", b"system\n"];
        let mut text = Vec::new();
        while text.len() < length {
            match next() {
                number @ 0..240 => text.extend(words[number as usize % 4]),
                number => text.push(number as u8),
            }
        }
        text.truncate(length);
        text
    }

    #[test]
    fn what_is_compressed_comes_back_with_any_number_of_workers() {
        for length in [0, 1, 1000, 131_072, 131_073, 700_001] {
            let plain = text(length);
            for workers in [1, 2, 5] {
                for level in [1, 6, 9] {
                    let header = Header { name: Some(b"name".to_vec()), modified: 7 };
                    let mut packed = Vec::new();
                    let Encoded { lengths, .. } =
                        compress(&mut &plain[..], &mut packed, &header, level, workers).unwrap();
                    assert_eq!(lengths.input, length as u64);
                    assert_eq!(lengths.output, packed.len() as u64);
                    assert!(packed.len() <= length / 2 + 64, "{length} became {}", packed.len());
                    let mut back = Vec::new();
                    let decoded = decompress(&mut &packed[..], &mut back, false).unwrap();
                    assert!(back == plain, "{length} bytes, {workers} workers, level {level}");
                    assert_eq!(decoded.garbage_at, None);
                }
            }
        }
    }
}
