//! Bad messages: valid calls of all programs, changed at random places.
//!
//! Invariant: a generator makes the same messages again from the same seed.

use crate::nfs3::{self, Sattr, at};
use crate::nfs4::{self, Op, ops};
use crate::rpc::{Auth, Call};
use crate::xdr::Put;
use crate::{mount, nfs4::StateId};

/// The length of the longest message in bytes.
const BYTES_MAX: usize = 64 << 10;
/// One message of so many is not changed at all.
const VALID_ONE_OF: u64 = 16;

/// Numbers that look random and follow from a seed (xorshift64*).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns the numbers that follow from a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below a limit, which must not be 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    /// Returns a number that programs are likely to treat wrongly, or any other.
    pub fn odd(&mut self) -> u32 {
        const ODD: [u32; 12] = [
            0,
            1,
            2,
            3,
            4,
            63,
            65,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_ffff,
            0xffff_fffe,
            0x0001_0000,
        ];
        match self.below(4) {
            0 => self.number() as u32,
            _ => ODD[self.below(ODD.len() as u64) as usize],
        }
    }
}

/// Makes bad messages from a seed.
#[derive(Clone, Debug)]
pub struct Generator {
    random: Random,
    file: Vec<u8>,
    dir: Vec<u8>,
}

impl Generator {
    /// Returns a generator whose messages name this file and this directory.
    #[must_use]
    pub fn new(seed: u64, file: &[u8], dir: &[u8]) -> Self {
        Self { random: Random::new(seed), file: file.to_vec(), dir: dir.to_vec() }
    }

    /// Returns the next message, without the mark of the record.
    pub fn message(&mut self) -> Vec<u8> {
        let mut bytes = self.valid();
        if self.random.below(VALID_ONE_OF) != 0 {
            for _ in 0..=self.random.below(3) {
                self.spoil(&mut bytes);
            }
        }
        bytes.truncate(BYTES_MAX);
        bytes
    }

    /// Returns a valid call of one of the programs.
    fn valid(&mut self) -> Vec<u8> {
        let auth = match self.random.below(8) {
            0 => Auth::None,
            1 => Auth::Raw(self.random.odd(), vec![7; self.random.below(40) as usize]),
            _ => Auth::user(self.random.below(3) as u32),
        };
        let (program, version, procedure, arguments) = match self.random.below(8) {
            0 => (mount::PROGRAM, 3, self.random.below(6) as u32, Put::new().opaque("/export").0),
            1..=4 => {
                let procedure = self.random.below(22) as u32;
                (nfs3::PROGRAM, 3, procedure, self.arguments(procedure).0)
            }
            5..=6 => (nfs4::PROGRAM, 4, 1, self.compound()),
            _ => (self.random.odd(), self.random.odd(), self.random.odd(), vec![7; 40]),
        };
        let xid = self.random.number() as u32;
        Call::new(program, version, procedure, &auth, arguments).encode(xid)
    }

    /// Returns arguments of a procedure of version 3, nothing of which removes the large file.
    fn arguments(&mut self, procedure: u32) -> Put {
        let (file, dir) = (&self.file, &self.dir);
        let name = format!("name-{}", self.random.below(50));
        match procedure {
            1 | 5 | 18..=20 => Put::new().opaque(file),
            2 => Sattr::mode(0o666).put(Put::new().opaque(file)).u32(0),
            3 | 12 | 13 => at(dir, name),
            4 => Put::new().opaque(file).u32(0x3f),
            6 => Put::new().opaque(file).u64(self.random.below(1 << 22)).u32(4096),
            7 => Put::new().opaque(file).u64(0).u32(4).u32(0).opaque("data"),
            8 => Sattr::mode(0o666).put(at(dir, name).u32(0)),
            9 => Sattr::mode(0o777).put(at(dir, name)),
            10 => Sattr::default().put(at(dir, name)).opaque("target"),
            11 => Sattr::mode(0o666).put(at(dir, name).u32(nfs3::kind::FIFO)),
            14 => at(dir, &name).opaque(dir).opaque("name-0"),
            15 => Put::new().opaque(file).opaque(dir).opaque(name),
            16 => Put::new().opaque(dir).u64(0).u64(0).u32(4096),
            17 => Put::new().opaque(dir).u64(0).u64(0).u32(4096).u32(8192),
            21 => Put::new().opaque(file).u64(0).u32(0),
            _ => Put::new(),
        }
    }

    /// Returns the arguments of a compound with operations that seldom fit together.
    fn compound(&mut self) -> Vec<u8> {
        let count = 1 + self.random.below(12);
        let all: Vec<Op> = (0..count).map(|_| self.operation()).collect();
        let minor = 1 + self.random.below(2) as u32;
        nfs4::compound(b"tag", minor, &all)
    }

    fn operation(&mut self) -> Op {
        let number = match self.random.below(16) {
            0 => self.random.odd(),
            _ => ops::ALL[self.random.below(ops::ALL.len() as u64) as usize],
        };
        let words = self.random.below(12);
        match self.random.below(6) {
            0 => ops::putrootfh(),
            1 => ops::putfh(&self.dir),
            2 => ops::exchange_id([3; 8], &self.random.number().to_be_bytes(), 0),
            3 => ops::read(StateId::ANONYMOUS, self.random.number(), self.random.odd()),
            _ => ops::op(number, (0..words).fold(Put::new(), |put, _| put.u32(self.random.odd()))),
        }
    }

    /// Changes a message at one place.
    fn spoil(&mut self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let length = bytes.len() as u64;
        let place = self.random.below(length) as usize;
        let word = (place / 4 * 4).min(bytes.len().saturating_sub(4));
        match self.random.below(7) {
            0 => bytes[place] ^= 1 << self.random.below(8),
            1 => bytes[place] = self.random.number() as u8,
            2 => bytes.truncate(place),
            3 | 4 if bytes.len() >= 4 => {
                bytes[word..word + 4].copy_from_slice(&self.random.odd().to_be_bytes());
            }
            5 => bytes.extend(vec![self.random.number() as u8; self.random.below(200) as usize]),
            _ => drop(bytes.drain(place..(place + 4).min(bytes.len()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_messages_again() {
        let messages = |seed| {
            let mut generator = Generator::new(seed, b"file", b"directory");
            (0..1000).map(|_| generator.message()).collect::<Vec<_>>()
        };
        assert_eq!(messages(7), messages(7));
        assert_ne!(messages(7), messages(8));
    }
}
