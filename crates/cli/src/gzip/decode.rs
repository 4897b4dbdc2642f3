//! Decompresses gzip files made by any program.
//!
//! Invariant: the checksum and length of every member are verified. Errors name the position in the
//! compressed file.

use std::io::{self, BufRead, BufReader, Read, Write};

use anyhow::{Context, Result, anyhow, bail};
use flate2::bufread::GzDecoder;

use super::Lengths;

/// The result of decompressing a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decoded {
    pub lengths: Lengths,
    /// The offset of trailing data that is not a gzip member; `None` if there is none.
    pub garbage_at: Option<u64>,
}

/// Decompresses all members of a file. If `passes` is set, a file that is not a gzip file is copied
/// unchanged.
pub(super) fn decompress(
    reader: &mut dyn Read,
    writer: &mut dyn Write,
    passes: bool,
) -> Result<Decoded> {
    let buffered = BufReader::with_capacity(CHUNK_BYTES, reader);
    let mut input = Counted { inner: buffered, held: Vec::new(), count: 0 };
    let (mut chunk, mut length, mut garbage_at) = (vec![0; CHUNK_BYTES], 0, None);
    let mut members = 0_u64;
    loop {
        let begin = input.count;
        match next_part(&mut input, members == 0)? {
            Part::Member => length += member(&mut input, writer, &mut chunk)?,
            Part::End => break,
            Part::Other if members > 0 => {
                garbage_at = Some(begin);
                break;
            }
            Part::Other if passes => {
                length = io::copy(&mut input, writer)?;
                break;
            }
            Part::Other if input.peek()?.is_empty() => {
                bail!("byte 0: the file is empty, so it is not a gzip file")
            }
            Part::Other => bail!("byte 0: this is not a gzip file"),
        }
        members += 1;
    }
    let lengths = Lengths { input: input.count, output: length };
    Ok(Decoded { lengths, garbage_at })
}

/// The kind of data that follows in a file.
enum Part {
    Member,
    /// Data that is not a gzip member.
    Other,
    End,
}

/// Determines the kind of data that follows. A member with an unknown compression method is an
/// error, not trailing garbage that could be ignored.
fn next_part<R: BufRead>(input: &mut Counted<R>, is_first: bool) -> Result<Part> {
    let begin = input.count;
    match *input.peek()? {
        [] if !is_first => Ok(Part::End),
        // Tapes pad their last block with zeros. There are no zeros between members.
        [0, ..] if !is_first => Ok(if ends_with_zeros(input)? { Part::End } else { Part::Other }),
        [0x1f, 0x8b, method, ..] if method != DEFLATE => {
            bail!(
                "byte {begin}: a member with the compression method {method}, which is not \
            supported"
            )
        }
        [0x1f, 0x8b, _, flags] if flags & RESERVED_FLAGS != 0 => {
            bail!("byte {begin}: a member with flags {flags:#x}, which are not supported")
        }
        [0x1f, 0x8b, ..] => Ok(Part::Member),
        // The file ends within the two magic bytes.
        [0x1f] => Ok(Part::Member),
        _ => Ok(Part::Other),
    }
}

/// Consumes zeros. Returns true if only zeros remained.
fn ends_with_zeros<R: BufRead>(input: &mut Counted<R>) -> Result<bool> {
    loop {
        let offset = input.count;
        let there = input.fill_buf().with_context(|| format!("reading at byte {offset}"))?;
        if there.is_empty() {
            return Ok(true);
        }
        if there.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        let zeros = there.len();
        input.consume(zeros);
    }
}

/// The error for a member with an invalid header.
#[derive(Debug, thiserror::Error)]
#[error("byte {begin}: the header of the gzip member is invalid")]
struct NoMember {
    begin: u64,
}

/// Decompresses a member and returns its length.
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

/// Returns an error that names the cause and the byte range of the failed member.
fn trouble(error: io::Error, has_header: bool, begin: u64, end: u64) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            anyhow!("byte {end}: the file is cut off within the member that begins at byte {begin}")
        }
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData if !has_header => {
            NoMember { begin }.into()
        }
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => anyhow::Error::new(error)
            .context(format!(
                "byte {end} or before, in the member that begins at byte {begin}: corrupt"
            )),
        _ => anyhow::Error::new(error).context(format!("reading at byte {end}")),
    }
}

/// A reader that counts its bytes and can look ahead.
struct Counted<R> {
    inner: R,
    /// Bytes that were read ahead and are not consumed yet.
    held: Vec<u8>,
    count: u64,
}

impl<R: BufRead> Counted<R> {
    /// Returns the next [`HEAD_BYTES`] bytes without consuming them. Returns fewer bytes only at
    /// the end of the file.
    fn peek(&mut self) -> Result<&[u8]> {
        while self.held.len() < HEAD_BYTES {
            let offset = self.count + self.held.len() as u64;
            let there = self.inner.fill_buf();
            let there = match there {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                there => there.with_context(|| format!("reading at byte {offset}"))?,
            };
            let taken = there.len().min(HEAD_BYTES - self.held.len());
            if taken == 0 {
                break;
            }
            self.held.extend_from_slice(&there[..taken]);
            self.inner.consume(taken);
        }
        Ok(&self.held)
    }
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let there = self.fill_buf()?;
        let count = there.len().min(bytes.len());
        bytes[..count].copy_from_slice(&there[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.held.is_empty() { self.inner.fill_buf() } else { Ok(&self.held) }
    }

    fn consume(&mut self, count: usize) {
        self.count += count as u64;
        let held = count.min(self.held.len());
        self.held.drain(..held);
        self.inner.consume(count - held);
    }
}

/// The number of the only compression method (RFC 1952, section 2.3.1).
const DEFLATE: u8 = 8;
/// The flags to which RFC 1952, section 2.3.1 assigns no meaning.
const RESERVED_FLAGS: u8 = 0xe0;
/// The number of bytes that identify a member: two magic bytes, the method and the flags.
const HEAD_BYTES: usize = 4;
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
        let decoded = decompress(&mut &*packed, &mut plain, false)?;
        Ok((plain, decoded.garbage_at))
    }

    #[test]
    fn members_follow_one_another_with_zeros_or_garbage_behind() {
        let [one, two] = [packed(b"one "), packed(b"two")];
        let both = [&*one, &two].concat();
        assert_eq!(unpacked(&both).unwrap(), (b"one two".to_vec(), None));
        let with_zeros = [&*both, &[0; 300_000]].concat();
        assert_eq!(unpacked(&with_zeros).unwrap(), (b"one two".to_vec(), None));
        let parted = [&*one, &[0; 300], &two].concat();
        for garbage in [&b"garbage"[..], b"\x1fgarbage", &parted[one.len()..]] {
            let with_garbage = [&*one, garbage].concat();
            let expected = (b"one ".to_vec(), Some(one.len() as u64));
            assert_eq!(unpacked(&with_garbage).unwrap(), expected);
        }
        for unknown in [&b"\x1f\x8b\x07\0 method"[..], b"\x1f\x8b\x08\x40 flags"] {
            assert!(unpacked(&[&*one, unknown].concat()).is_err());
        }
    }

    #[test]
    fn what_is_no_gzip_file_is_handed_through_when_that_is_wanted() {
        for plain in [&b""[..], b"x", b"hello, world"] {
            assert!(unpacked(plain).is_err());
            let mut out = Vec::new();
            decompress(&mut &*plain, &mut out, true).unwrap();
            assert_eq!(out, plain);
        }
    }

    #[test]
    fn every_cut_and_every_turned_bit_is_told_with_its_place() {
        let plain: Vec<u8> = (0..2000_u32).map(|index| (index * index / 7) as u8).collect();
        let whole = packed(&plain);
        for end in 0..whole.len() {
            let error = unpacked(&whole[..end]).unwrap_err().to_string();
            assert!(error.starts_with("byte "), "cut at {end}: {error}");
        }
        // The header's time, speed flags and operating system do not affect the content.
        let silent = 4..10;
        for index in (0..whole.len()).filter(|index| !silent.contains(index)) {
            let mut turned = whole.clone();
            turned[index] ^= 0x10;
            match unpacked(&turned) {
                Err(error) => {
                    assert!(format!("{error:#}").contains("byte "), "byte {index}: {error:#}");
                }
                Ok((back, _)) => assert_eq!(back, plain, "byte {index} was turned unseen"),
            }
        }
    }
}
