//! Decompression of gzip files of any maker.
//!
//! Invariant: every member's checksum and length are checked; what is wrong is told with its
//! place in the compressed file.

use std::io::{self, BufRead, BufReader, Read, Write};

use anyhow::{Context, Result, anyhow, bail};
use flate2::bufread::GzDecoder;

use super::Lengths;

/// What a file has come to.
#[derive(Clone, Copy, Debug)]
pub struct Decoded {
    pub lengths: Lengths,
    /// Where something that is no member follows the last one.
    pub garbage_at: Option<u64>,
}

/// Decompresses all members of a file.
pub fn decompress(reader: &mut dyn Read, writer: &mut dyn Write) -> Result<Decoded> {
    let buffered = BufReader::with_capacity(CHUNK_BYTES, reader);
    let mut input = Counted { inner: buffered, count: 0 };
    let (mut chunk, mut length, mut garbage_at) = (vec![0; CHUNK_BYTES], 0, None);
    let mut members = 0_u64;
    loop {
        let begin = input.count;
        // Between members there may be zeros, which tapes leave (RFC 1952 says nothing of it,
        // gzip passes over them).
        match first_after_zeros(&mut input, members > 0)? {
            None if members == 0 => bail!("octet 0: the file is empty; a gzip file never is"),
            None => break,
            Some(MAGIC) => {}
            Some(_) if members == 0 => bail!("octet 0: this is no gzip file"),
            Some(_) => {
                garbage_at = Some(begin);
                break;
            }
        }
        match member(&mut input, writer, &mut chunk) {
            Ok(count) => length += count,
            // What only looked like one.
            Err(error) if members > 0 && error.is::<NoMember>() => {
                garbage_at = Some(begin);
                break;
            }
            Err(error) => return Err(error),
        }
        members += 1;
    }
    let lengths = Lengths { input: input.count, output: length };
    Ok(Decoded { lengths, garbage_at })
}

/// What begins like a member has no header.
#[derive(Debug, thiserror::Error)]
#[error("octet {begin}: the header of a gzip file is wrong")]
struct NoMember {
    begin: u64,
}

/// Decompresses a member; returns its length.
fn member<R: BufRead>(
    input: &mut Counted<R>,
    writer: &mut dyn Write,
    chunk: &mut [u8],
) -> Result<u64> {
    let begin = input.count;
    let (mut decoder, mut length) = (GzDecoder::new(&mut *input), 0);
    loop {
        match decoder.read(chunk) {
            Ok(0) => return Ok(length),
            Ok(count) => {
                length += count as u64;
                writer.write_all(&chunk[..count])?;
            }
            Err(error) => {
                let has_header = decoder.header().is_some();
                return Err(trouble(error, has_header, begin, input.count));
            }
        }
    }
}

/// Says what is wrong, and where.
fn trouble(error: io::Error, has_header: bool, begin: u64, end: u64) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => anyhow!(
            "octet {end}: the file is cut off within the member that begins at octet {begin}"
        ),
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData if !has_header => {
            NoMember { begin }.into()
        }
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => anyhow::Error::new(error)
            .context(format!(
                "octet {end} or before, in the member that begins at octet {begin}: corrupt"
            )),
        _ => anyhow::Error::new(error).context(format!("reading at octet {end}")),
    }
}

/// The next octet, not taken; `None` at the end. Takes zeros if it may.
fn first_after_zeros<R: BufRead>(input: &mut Counted<R>, skips: bool) -> Result<Option<u8>> {
    loop {
        let offset = input.count;
        let there = input.fill_buf().with_context(|| format!("reading at octet {offset}"))?;
        let Some(&first) = there.first() else { return Ok(None) };
        if first != 0 || !skips {
            return Ok(Some(first));
        }
        let zeros = there.iter().take_while(|octet| **octet == 0).count();
        input.consume(zeros);
    }
}

/// A reader that knows where it is.
struct Counted<R> {
    inner: R,
    count: u64,
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(bytes)?;
        self.count += count as u64;
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.count += count as u64;
        self.inner.consume(count);
    }
}

/// What a member begins with (RFC 1952 2.3.1).
const MAGIC: u8 = 0x1f;
const CHUNK_BYTES: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::super::encode::{Header, compress};
    use super::*;

    fn packed(plain: &[u8]) -> Vec<u8> {
        let mut packed = Vec::new();
        compress(&mut &*plain, &mut packed, &Header::default(), 6, 1).unwrap();
        packed
    }

    fn unpacked(packed: &[u8]) -> Result<(Vec<u8>, Option<u64>)> {
        let mut plain = Vec::new();
        let decoded = decompress(&mut &*packed, &mut plain)?;
        Ok((plain, decoded.garbage_at))
    }

    #[test]
    fn members_follow_one_another_with_zeros_or_garbage_behind() {
        let [one, two] = [packed(b"one "), packed(b"two")];
        let both = [&*one, &two].concat();
        assert_eq!(unpacked(&both).unwrap(), (b"one two".to_vec(), None));
        let with_zeros = [&*one, &[0; 300], &two, &[0; 9]].concat();
        assert_eq!(unpacked(&with_zeros).unwrap(), (b"one two".to_vec(), None));
        for garbage in [&b"garbage"[..], b"\x1f\x8bno header at all"] {
            let with_garbage = [&*one, garbage].concat();
            let expected = (b"one ".to_vec(), Some(one.len() as u64));
            assert_eq!(unpacked(&with_garbage).unwrap(), expected);
        }
    }

    #[test]
    fn every_cut_and_every_turned_bit_is_told_with_its_place() {
        let plain: Vec<u8> = (0..2000_u32).map(|index| (index * index / 7) as u8).collect();
        let whole = packed(&plain);
        for end in 0..whole.len() {
            let error = unpacked(&whole[..end]).unwrap_err().to_string();
            assert!(error.starts_with("octet "), "cut at {end}: {error}");
        }
        // The header's time, flags for speed and system say nothing of the content.
        let silent = 4..10;
        for index in (0..whole.len()).filter(|index| !silent.contains(index)) {
            let mut turned = whole.clone();
            turned[index] ^= 0x10;
            match unpacked(&turned) {
                Err(error) => {
                    assert!(format!("{error:#}").contains("octet "), "octet {index}: {error:#}");
                }
                Ok((back, _)) => assert_eq!(back, plain, "octet {index} was turned unseen"),
            }
        }
    }
}
