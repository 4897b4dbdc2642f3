//! Checks the final state of the files.
//!
//! Invariant: every byte and every name of the served directory is checked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use dafs_client::{Client, ClientConfig, OpenOptions};

use super::expect;
use super::killer::Victim;
use super::load::{COUNTER, LOG, Outcome, UNDONE, UNDONE_BYTES};
use super::model::{RECORD_BYTES, parse_record};

/// Checks the files through a session with the server.
pub(super) fn through_the_server(victim: &Victim, outcomes: &[Outcome]) -> Result<()> {
    let client = Client::new(ClientConfig::default())?;
    let session = client.connect_to(&victim.address(1), &victim.options())?;
    let read = |path: &str| -> Result<Vec<u8>> {
        let file = session.open(path, &OpenOptions::read())?;
        let size = file.metadata()?.size;
        let mut content = vec![0; usize::try_from(size).context("a file larger than memory")?];
        let got = file.read_at(&mut content, 0)?;
        expect(got == content.len(), || format!("{path} ends after {got} of {size} bytes"))?;
        file.close()?;
        Ok(content)
    };
    let list = |path: &str| -> Result<BTreeSet<String>> {
        let entries = session.read_dir(path)?;
        Ok(entries.into_iter().map(|entry| entry.name.to_string_lossy().into_owned()).collect())
    };
    all(outcomes, read, list)?;
    Ok(session.disconnect()?)
}

/// Checks the files on the disk.
pub(super) fn on_the_disk(export: &Path, outcomes: &[Outcome]) -> Result<()> {
    let at = |path: &str| export.join(path.trim_start_matches('/'));
    let read = |path: &str| std::fs::read(at(path)).with_context(|| path.to_owned());
    let list = |path: &str| -> Result<BTreeSet<String>> {
        let entries = std::fs::read_dir(at(path)).with_context(|| path.to_owned())?;
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    };
    all(outcomes, read, list)
}

fn all(
    outcomes: &[Outcome],
    read: impl Fn(&str) -> Result<Vec<u8>>,
    list: impl Fn(&str) -> Result<BTreeSet<String>>,
) -> Result<()> {
    for outcome in outcomes {
        let directory = format!("/c{}", outcome.number);
        let names: BTreeSet<String> = outcome.model.files.keys().cloned().collect();
        let found = list(&directory)?;
        expect(found == names, || {
            format!(
                "{directory} contains {found:?}, but must contain \
        {names:?}"
            )
        })?;
        for (name, content) in &outcome.model.files {
            let path = format!("{directory}/{name}");
            let found = read(&path)?;
            expect(found == *content, || differs(&path, &found, content))?;
        }
    }
    check_log(&read(LOG)?, outcomes)?;
    let counted: u64 = outcomes.iter().map(|outcome| outcome.counted).sum();
    let counter = read(COUNTER)?;
    expect(counter == counted.to_le_bytes(), || {
        format!("{COUNTER} contains {counter:?}; it was incremented {counted} times")
    })?;
    let undone = read(UNDONE)?;
    expect(undone == vec![0; UNDONE_BYTES], || differs(UNDONE, &undone, &[0; UNDONE_BYTES]))
}

/// Checks that the log contains the records of each client exactly once, and in the order in which
/// the client appended them.
fn check_log(log: &[u8], outcomes: &[Outcome]) -> Result<()> {
    let mut next: BTreeMap<u32, u64> = BTreeMap::new();
    for (index, bytes) in log.chunks(RECORD_BYTES).enumerate() {
        let Some((client, number)) = parse_record(bytes) else {
            return expect(false, || format!("{LOG}: record {index} is torn: {bytes:?}"));
        };
        let expected = next.entry(client).or_default();
        expect(number == *expected, || {
            format!("{LOG}: client {client}'s record {number} is where record {expected} must be")
        })?;
        *expected += 1;
    }
    for outcome in outcomes {
        let found = next.remove(&outcome.number).unwrap_or(0);
        expect(found == outcome.records, || {
            format!(
                "{LOG}: client {} appended {} records, but {found} are there",
                outcome.number, outcome.records
            )
        })?;
    }
    Ok(())
}

fn differs(path: &str, found: &[u8], expected: &[u8]) -> String {
    let at = found.iter().zip(expected).take_while(|(a, b)| a == b).count();
    format!(
        "{path} has {} bytes, must have {}, and differs from byte {at} on",
        found.len(),
        expected.len()
    )
}
