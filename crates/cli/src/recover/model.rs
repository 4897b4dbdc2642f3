//! The expected contents of one client's files.
//!
//! Invariant: the model changes only when the reply to an operation has arrived, and as the reply
//! says.

use std::collections::BTreeMap;

use dafs_types::Random;

/// The files of one client. No other client touches them.
#[derive(Debug)]
pub(super) struct Model {
    pub files: BTreeMap<String, Vec<u8>>,
    /// What precedes the names of the files in their paths: a directory of the client's own, or a
    /// directory that all clients share and the start of this client's names.
    home: String,
    last: u64,
}

impl Model {
    pub(super) fn new(home: String) -> Self {
        Self { files: BTreeMap::new(), home, last: 0 }
    }

    pub(super) fn path(&self, name: &str) -> String {
        format!("{}{name}", self.home)
    }

    /// Returns a name that was never used.
    pub(super) fn new_name(&mut self) -> String {
        self.last += 1;
        format!("f{}", self.last)
    }

    /// Returns the name of a random file.
    pub(super) fn pick(&self, random: &mut Random) -> Option<String> {
        let index = random.below(self.files.len().max(1));
        self.files.keys().nth(index).cloned()
    }

    pub(super) fn write(&mut self, name: &str, offset: usize, bytes: &[u8]) {
        let Some(content) = self.files.get_mut(name) else { return };
        if content.len() < offset + bytes.len() {
            content.resize(offset + bytes.len(), 0);
        }
        content[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

/// Returns a record of the shared log, with the client's number and the record's number.
pub(super) fn record(client: u32, number: u64) -> [u8; RECORD_BYTES] {
    let text = format!("{client:<7} {number:<23}\n");
    let mut record = [b' '; RECORD_BYTES];
    record.copy_from_slice(&text.as_bytes()[..RECORD_BYTES]);
    record
}

/// Parses a record. Returns `None` if no client has appended it.
pub(super) fn parse_record(bytes: &[u8]) -> Option<(u32, u64)> {
    let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
    let mut words = text.split_whitespace();
    let parsed = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    words.next().is_none().then_some(parsed)
}

pub(super) const RECORD_BYTES: usize = 32;
