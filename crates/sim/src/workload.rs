//! Chooses the next operation of a client.
//!
//! Invariant: an operation begins only if the model can determine its possible results. While an
//! operation changes a file's size, no other operation uses the file, and only a few changes of
//! names are undecided at the same time.

use dafs_client::Stability;

use crate::actor::Actor;
use crate::judge::Judge;
use crate::operation::{DataOperation, FileNumber, Name, NameOperation, Operation, TransferMode};
use crate::plan::Plan;
use crate::records::HEAD_BYTES;
use dafs_types::Random;

/// An operation, and the open that it uses.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub operation: Operation,
    pub open: Option<u64>,
}

/// Returns the next operation of a connected client. `None` if the client may not start another
/// operation now.
pub(crate) fn choose(
    random: &mut Random,
    plan: &Plan,
    judge: &Judge,
    actor: &Actor,
) -> Option<Chosen> {
    if actor.under_way() >= plan.depth || judge.limbo() > LIMBO_MAX {
        return None;
    }
    let opens: Vec<_> = actor.opens().collect();
    match random.below(100) {
        _ if opens.is_empty() => choose_name(random, judge, &opens),
        0..28 => choose_name(random, judge, &opens),
        28..80 => {
            let (open, file, _) = opens[random.below(opens.len())];
            let operation = choose_data(random, plan, judge, file)?;
            Some(Chosen { operation: Operation::Data(file, operation), open: Some(open) })
        }
        80..90 => {
            let length = (HEAD_BYTES + random.below(9_000)) as u32;
            let way = if length < 4_000 { choose_mode(random) } else { TransferMode::Direct };
            Some(Chosen { operation: Operation::Record { length, way }, open: None })
        }
        90..93 => {
            let length = (judge.records_reached() as u32 + 4_096).min(1 << 20);
            Some(Chosen { operation: Operation::Records { length }, open: None })
        }
        _ => {
            let (open, file, is_idle) = opens[random.below(opens.len())];
            is_idle.then_some(Chosen { operation: Operation::Close(file), open: Some(open) })
        }
    }
}

fn choose_name(
    random: &mut Random,
    judge: &Judge,
    opens: &[(u64, FileNumber, bool)],
) -> Option<Chosen> {
    let may_change = judge.name_changes_under_way() < NAME_CHANGES_MAX;
    let may_open = opens.len() < OPENS_MAX;
    let name = any_name(random);
    let file = match opens.len() {
        0 => None,
        count => Some(opens[random.below(count)].1),
    };
    let operation = match random.below(100) {
        0..28 if may_change && may_open => {
            NameOperation::Create { name, guarded: random.percent(50) }
        }
        28..45 if may_open => NameOperation::Open { name },
        45..60 if may_change => NameOperation::Remove { name },
        60..72 if may_change => NameOperation::Rename { from: name, to: any_name(random) },
        72..80 if may_change => NameOperation::Link { file: file?, name },
        80..87 => NameOperation::List { directory: name.directory },
        87..93 => NameOperation::Links { file: file? },
        _ => NameOperation::Lookup { name },
    };
    Some(Chosen { operation: Operation::Name(operation), open: None })
}

fn choose_data(
    random: &mut Random,
    plan: &Plan,
    judge: &Judge,
    file: FileNumber,
) -> Option<DataOperation> {
    let is_quiet = judge.is_quiet(file);
    let Some(size) = judge.size_of(file) else {
        return is_quiet.then_some(DataOperation::Size);
    };
    let length_max = plan.file_bytes / 4;
    let bound = [64, 4_000, length_max][random.below(3)].min(length_max);
    let length = 1 + random.below(bound);
    let stability =
        [Stability::Unstable, Stability::DataSync, Stability::FileSync][random.below(3)];
    match random.below(100) {
        0..35 => Some(choose_read(random, size, length)),
        35..65 if size > 0 => {
            let offset = random.below(size);
            let data = random.bytes(length.min(size - offset));
            Some(DataOperation::Write { offset: offset as u64, data, stability })
        }
        35..80 if is_quiet && size < plan.file_bytes => {
            let offset = (size + random.below(300)).saturating_sub(random.below(600)) as u64;
            Some(DataOperation::Write { offset, data: random.bytes(length), stability })
        }
        80..86 if is_quiet && size < plan.file_bytes => {
            let way = if length < 4_000 { choose_mode(random) } else { TransferMode::Direct };
            Some(DataOperation::Append { data: random.bytes(length), way })
        }
        86..92 if is_quiet => {
            Some(DataOperation::SetSize { size: random.below(size + size / 4 + 2) as u64 })
        }
        92..97 => Some(DataOperation::Commit),
        _ => Some(DataOperation::Size),
    }
}

fn choose_read(random: &mut Random, size: usize, length: usize) -> DataOperation {
    let offset = random.below(size + 10) as u64;
    let way = choose_mode(random);
    let length = if way == TransferMode::Inline { length.min(4_000) } else { length * 2 };
    DataOperation::Read { offset, length: length as u32, way }
}

fn choose_mode(random: &mut Random) -> TransferMode {
    if random.percent(50) { TransferMode::Inline } else { TransferMode::Direct }
}

fn any_name(random: &mut Random) -> Name {
    let directory = random.below(DIRECTORIES) as u8;
    Name { directory, index: random.below(NAMES_PER_DIRECTORY) as u8 }
}

/// The directories that exist in every run.
pub(crate) const DIRECTORIES: usize = 2;
const NAMES_PER_DIRECTORY: usize = 6;
/// The maximum number of opens of one client.
const OPENS_MAX: usize = 8;
/// The maximum number of operations whose connection broke and that may still be executed. At this
/// number, no new operation begins.
const LIMBO_MAX: usize = 12;
/// The maximum number of changes of names in flight. It is small, because the model tries all their
/// orders.
const NAME_CHANGES_MAX: usize = 4;
