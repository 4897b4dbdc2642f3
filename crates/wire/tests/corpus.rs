//! Runs the bodies of the fuzz targets over their committed seeds and many mutations of them. Set
//! `DAFS_WRITE_CORPUS=1` to write the seeds again.

use std::fs;
use std::path::PathBuf;

use crate::material::{Scratch, material, prepare};
use dafs_types::{
    Ace, AceFlags, AceKind, AceRights, Random, SequenceNumber, SetAttributes, Status, StreamId,
};
use dafs_wire::*;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// The number of mutations tried per target.
const MUTATIONS: usize = 20_000;

fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

fn mutate(seed: &[u8], other: &[u8], numbers: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(bytes.len());
        match numbers.below(6) {
            0 => bytes.truncate(at),
            1 if !bytes.is_empty() => bytes[at] ^= 1 << numbers.below(8),
            2 if !bytes.is_empty() => bytes[at] = [0, 1, 8, 0x7f, 0x80, 0xff][numbers.below(6)],
            3 => bytes.insert(at, numbers.below(256) as u8),
            4 => bytes.extend_from_slice(&other[numbers.below(other.len())..]),
            _ => {
                let aligned = at / 4 * 4;
                if let Some(word) = bytes.get_mut(aligned..aligned + 4) {
                    word.copy_from_slice(&(numbers.below(300) as u32 * 8).to_le_bytes());
                }
            }
        }
    }
    bytes
}

fn run(target: &str, body: fn(&[u8])) {
    let mut files: Vec<_> = fs::read_dir(folder(target))
        .unwrap_or_else(|error| panic!("corpus of {target}: {error}"))
        .map(|entry| entry.expect("a readable folder").path())
        .collect();
    files.sort();
    let seeds: Vec<_> = files.iter().map(|file| fs::read(file).expect("a readable seed")).collect();
    assert!(!seeds.is_empty(), "no seeds for {target}");
    seeds.iter().for_each(|seed| body(seed));
    let mut numbers = Random::new(1);
    for _ in 0..MUTATIONS {
        let (seed, other) = (numbers.below(seeds.len()), numbers.below(seeds.len()));
        body(&mutate(&seeds[seed], &seeds[other], &mut numbers));
    }
}

#[test]
fn requests_do_not_panic() {
    run("wire_request", fuzzing::request);
}

#[test]
fn responses_do_not_panic() {
    run("wire_response", fuzzing::response);
}

#[test]
fn attributes_do_not_panic() {
    run("wire_attributes", fuzzing::attributes);
}

#[test]
fn connect_data_does_not_panic() {
    run("wire_connect_data", fuzzing::connect_data);
}

/// Writes one seed for every procedure and union arm if asked to.
#[test]
fn seeds_can_be_written() {
    if std::env::var_os("DAFS_WRITE_CORPUS").is_none() {
        return;
    }
    let mut runner = TestRunner::deterministic();
    let material = material().new_tree(&mut runner).expect("material").current();
    let order = ByteOrder::Little;
    let mut scratch = Scratch::default();
    let prepared = prepare(&material, order, &mut scratch);
    let header = RequestHeader::new(StreamId(1), SequenceNumber(2));
    let mut buffer = vec![0; 16_384];
    let write = |target: &str, name: &str, bytes: &[u8]| {
        fs::create_dir_all(folder(target)).expect("a folder");
        fs::write(folder(target).join(name), bytes).expect("a seed");
    };
    let mut last = None;
    for request in prepared.requests() {
        if last.replace(request.procedure()) == Some(request.procedure()) {
            continue;
        }
        let length = encode_request(order, &header, &request, &mut buffer).expect("it fits");
        write("wire_request", request.procedure().name(), &buffer[..length]);
    }
    for (status, procedure, response) in prepared.responses() {
        if response == Response::Failed && procedure != Procedure::Null {
            continue;
        }
        let header = ResponseHeader::answering(&header, status, 4);
        let length = encode_response(order, &header, &response, &mut buffer[1..]).expect("room");
        buffer[0] = procedure.index() as u8;
        let failed = if status == Status::Ok { "" } else { "-failed" };
        let name = format!("{}{failed}", procedure.name());
        write("wire_response", &name, &buffer[..=length]);
        let (body, kind) = (&buffer[1 + HEADER_BYTES..=length], procedure.name());
        match response {
            Response::GetAttrInline(_) | Response::GetFsAttr(_) => {
                write("wire_attributes", kind, &body[8..]);
            }
            Response::ReadDirInline(_) => write("wire_attributes", kind, &body[16..]),
            Response::ReadLinkInline(_) => write("wire_attributes", kind, &body[8..]),
            _ => {}
        }
    }
    let entry = |kind, who: &str| Ace {
        kind,
        flags: AceFlags::INHERITED,
        rights: AceRights::ALL,
        who: who.to_owned(),
    };
    let list = SetAttributes {
        acl: Some(vec![entry(AceKind::Deny, "1000"), entry(AceKind::Allow, "EVERYONE@")]),
        mime_type: Some("text/plain".to_owned()),
        ..SetAttributes::default()
    };
    let block = FileAttributeBlock::encode_set(order, &list, &mut buffer).expect("room");
    write("wire_attributes", "ACL", block.bytes());
    for channel in [ChannelType::Operation, ChannelType::BackControl, ChannelType::RdmaRead] {
        let data = ConnectData { client_instance: 1, client_session: 2, channel };
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let name = format!("{channel:?}-{order:?}");
            write("wire_connect_data", &name, &data.encode(order));
        }
    }
}
