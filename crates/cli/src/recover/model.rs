//! What one client's files must hold.
//!
//! Invariant: it changes only by operations that were answered, as their answers say.

use std::collections::BTreeMap;

use dafs_types::Random;

/// The files of one client, which no other touches.
#[derive(Debug, Default)]
pub struct Model {
    pub files: BTreeMap<String, Vec<u8>>,
    last: u64,
}

impl Model {
    /// A name that was never used.
    pub fn new_name(&mut self) -> String {
        self.last += 1;
        format!("f{}", self.last)
    }

    /// One of the files.
    pub fn pick(&self, random: &mut Random) -> Option<String> {
        let index = random.below(self.files.len().max(1));
        self.files.keys().nth(index).cloned()
    }

    pub fn write(&mut self, name: &str, offset: usize, bytes: &[u8]) {
        let Some(content) = self.files.get_mut(name) else { return };
        if content.len() < offset + bytes.len() {
            content.resize(offset + bytes.len(), 0);
        }
        content[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

/// A record in the file to which all append: whose, and which one of theirs.
pub fn record(client: u32, number: u64) -> [u8; RECORD_BYTES] {
    let text = format!("{client:<7} {number:<23}\n");
    let mut record = [b' '; RECORD_BYTES];
    record.copy_from_slice(&text.as_bytes()[..RECORD_BYTES]);
    record
}

/// Whose a record is, and which one; `None` for what no client has appended.
pub fn parse_record(bytes: &[u8]) -> Option<(u32, u64)> {
    let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
    let mut words = text.split_whitespace();
    let parsed = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    words.next().is_none().then_some(parsed)
}

pub const RECORD_BYTES: usize = 32;
