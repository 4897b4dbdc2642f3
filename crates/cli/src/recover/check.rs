//! Checks the final state of the files.
//!
//! Invariant: every byte and every name of the served directory is checked.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use dafs_client::{Client, ClientConfig, OpenOptions};

use super::expect;
use super::killer::Victim;
use super::load::{COUNTER, LEDGER, LOG, Outcome, STRIPE_BYTES, STRIPES, UNDONE, UNDONE_BYTES};
use super::model::{RECORD_BYTES, parse_record};
use super::nfs::Reader;

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

/// Checks the files through an NFS client.
pub(super) fn through_nfs(reader: Reader, outcomes: &[Outcome]) -> Result<()> {
    let reader = RefCell::new(reader);
    all(outcomes, |path| reader.borrow_mut().read(path), |path| reader.borrow_mut().list(path))
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
    let mut directories: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for outcome in outcomes {
        let home = outcome.model.path("");
        let (directory, start) = home.rsplit_once('/').context("a path without a directory")?;
        let names = directories.entry(directory.to_owned()).or_default();
        names.extend(outcome.model.files.keys().map(|name| format!("{start}{name}")));
        for (name, content) in &outcome.model.files {
            let path = outcome.model.path(name);
            let found = read(&path)?;
            expect(found == *content, || differs(&path, &found, content))?;
        }
    }
    for (directory, names) in directories {
        let found = list(&directory)?;
        expect(found == names, || {
            format!("{directory} contains {found:?}, but must contain {names:?}")
        })?;
    }
    check_log(LOG, &read(LOG)?, outcomes, |outcome| outcome.records)?;
    check_log(LEDGER, &read(LEDGER)?, outcomes, |outcome| outcome.entries)?;
    let mut stripes = read(STRIPES)?;
    stripes.resize(outcomes.len() * STRIPE_BYTES, 0);
    let expected: Vec<u8> = outcomes.iter().flat_map(|outcome| outcome.stripe.clone()).collect();
    expect(stripes == expected, || differs(STRIPES, &stripes, &expected))?;
    let counted: u64 = outcomes.iter().map(|outcome| outcome.counted).sum();
    let counter = read(COUNTER)?;
    expect(counter == counted.to_le_bytes(), || {
        format!("{COUNTER} contains {counter:?}; it was incremented {counted} times")
    })?;
    let undone = read(UNDONE)?;
    expect(undone == vec![0; UNDONE_BYTES], || differs(UNDONE, &undone, &[0; UNDONE_BYTES]))
}

/// Checks that a log contains the records of each client exactly once, and in the order in which
/// the client appended them. `of` returns how many records a client appended.
fn check_log(path: &str, log: &[u8], outcomes: &[Outcome], of: fn(&Outcome) -> u64) -> Result<()> {
    let mut next: BTreeMap<u32, u64> = BTreeMap::new();
    for (index, bytes) in log.chunks(RECORD_BYTES).enumerate() {
        let Some((client, number)) = parse_record(bytes) else {
            return expect(false, || format!("{path}: record {index} is torn: {bytes:?}"));
        };
        let expected = next.entry(client).or_default();
        expect(number == *expected, || {
            format!("{path}: client {client}'s record {number} is where record {expected} must be")
        })?;
        *expected += 1;
    }
    for outcome in outcomes {
        let found = next.remove(&outcome.number).unwrap_or(0);
        expect(found == of(outcome), || {
            format!(
                "{path}: client {} appended {} records, but {found} are there",
                outcome.number,
                of(outcome)
            )
        })?;
    }
    Ok(())
}

pub(super) fn differs(path: &str, found: &[u8], expected: &[u8]) -> String {
    let at = found.iter().zip(expected).take_while(|(a, b)| a == b).count();
    format!(
        "{path} has {} bytes, must have {}, and differs from byte {at} on",
        found.len(),
        expected.len()
    )
}
