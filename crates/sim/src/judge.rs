//! The judge: a small model of the file system, against which every reply is checked.
//!
//! Invariant: an operation begins once and ends once: by its reply, by its refusal or, after its
//! connection broke, by being settled. A settled operation cannot be executed any more, and the
//! next read shows whether it was executed.

use std::collections::{BTreeMap, HashMap};

use dafs_types::FileHandle;

use crate::content::{Content, Seen};
use crate::names::Names;
use crate::operation::{
    Answer, DataOperation, FileNumber, Name, NameOperation, Operation, OperationNumber, Outcome,
};
use crate::records::Records;

/// The model of the file system.
#[derive(Debug)]
pub(crate) struct Judge {
    names: Names,
    contents: BTreeMap<FileNumber, Content>,
    records: Records,
    handles: Vec<FileHandle>,
    numbers: HashMap<FileHandle, FileNumber>,
    begun: BTreeMap<OperationNumber, Begun>,
    /// The number of operations whose connection broke and that may still be executed.
    limbo: usize,
    last_number: u64,
    now: u64,
    /// True if bytes may be damaged in transit without the transport detecting it.
    bytes_flip: bool,
}

#[derive(Debug)]
struct Begun {
    operation: Operation,
    at: u64,
    /// The number of bytes of records that were acknowledged when the operation began.
    reached: u64,
}

impl Judge {
    /// Creates a model whose directories are empty. `bytes_flip` is true if a write without a reply
    /// may have left bytes that differ from the bytes that were sent.
    pub(crate) fn new(bytes_flip: bool) -> Self {
        Self {
            names: Names::new(),
            contents: BTreeMap::new(),
            records: Records::default(),
            handles: Vec::new(),
            numbers: HashMap::new(),
            begun: BTreeMap::new(),
            limbo: 0,
            last_number: 0,
            now: 0,
            bytes_flip,
        }
    }

    // ---- files ----------------------------------------------------------------------

    /// Returns the number of the file with this handle. A new handle gets a new number.
    pub(crate) fn number_of(&mut self, handle: FileHandle) -> FileNumber {
        if let Some(number) = self.numbers.get(&handle) {
            return *number;
        }
        let number = FileNumber(u32::try_from(self.handles.len()).unwrap_or(u32::MAX));
        self.handles.push(handle);
        self.numbers.insert(handle, number);
        self.contents.insert(number, Content::default());
        number
    }

    /// Returns the handle of a file.
    pub(crate) fn handle_of(&self, file: FileNumber) -> FileHandle {
        self.handles[file.0 as usize]
    }

    /// Returns the size of a file in bytes. `None` while the size is unknown.
    pub(crate) fn size_of(&self, file: FileNumber) -> Option<usize> {
        self.contents.get(&file)?.size()
    }

    /// Returns true if no operation on the content of a file is in flight.
    pub(crate) fn is_quiet(&self, file: FileNumber) -> bool {
        self.contents.get(&file).is_none_or(Content::is_quiet)
    }

    /// Returns true if every byte of a file is known.
    pub(crate) fn is_certain(&self, file: FileNumber) -> bool {
        self.contents.get(&file).is_some_and(|content| content.certain().is_some())
    }

    /// Returns all names, if only one state of the name space is possible. Otherwise returns
    /// `None`.
    pub(crate) fn names(&self) -> Option<Vec<(Name, Option<FileNumber>)>> {
        self.names.certain()
    }

    /// Returns the offset at which the acknowledged records end.
    pub(crate) fn records_reached(&self) -> u64 {
        self.records.reached()
    }

    /// Returns the number of operations in flight that may change names.
    pub(crate) fn name_changes_under_way(&self) -> usize {
        self.names.changes_under_way()
    }

    /// Returns the number of operations whose connection broke and that may still be executed.
    pub(crate) fn limbo(&self) -> usize {
        self.limbo
    }

    // ---- operations -----------------------------------------------------------------

    /// Returns the number of the next operation.
    pub(crate) fn next_number(&self) -> OperationNumber {
        OperationNumber(self.last_number + 1)
    }

    /// Begins an operation.
    pub(crate) fn begin(&mut self, operation: Operation) -> OperationNumber {
        let number = self.next_number();
        self.last_number = number.0;
        self.now += 1;
        let at = self.now;
        match &operation {
            Operation::Name(operation) => self.names.begin(number, operation.clone()),
            Operation::Data(file, operation) => {
                let content = self.contents.entry(*file).or_default();
                match operation {
                    DataOperation::Write { offset, data, .. } => {
                        content.begin_write(at, number, *offset, data);
                    }
                    DataOperation::Append { data, .. } => content.begin_append(at, number, data),
                    DataOperation::SetSize { size } => content.begin_size(number, *size),
                    DataOperation::Read { .. } | DataOperation::Commit | DataOperation::Size => {
                        content.begin_other();
                    }
                }
            }
            Operation::Record { length, .. } => self.records.begin(number, *length),
            Operation::Records { .. } | Operation::Close(_) => {}
        }
        let reached = self.records.reached();
        self.begun.insert(number, Begun { operation, at, reached });
        number
    }

    /// Ends an operation and checks its outcome.
    pub(crate) fn end(&mut self, number: OperationNumber, outcome: &Outcome) -> Result<(), String> {
        match outcome {
            Outcome::Known(answer) => {
                let Some(begun) = self.begun.remove(&number) else {
                    return Err(format!("{number:?} has ended twice"));
                };
                self.now += 1;
                self.judge(number, &begun, answer)
            }
            Outcome::Damaged => self.settle_one(number),
            Outcome::Lost => {
                self.limbo += 1;
                Ok(())
            }
        }
    }

    /// Records that an operation whose connection broke can no longer be executed.
    pub(crate) fn settle(&mut self, number: OperationNumber) -> Result<(), String> {
        self.limbo -= 1;
        self.settle_one(number)
    }

    fn settle_one(&mut self, number: OperationNumber) -> Result<(), String> {
        let Some(begun) = self.begun.remove(&number) else { return Ok(()) };
        self.now += 1;
        match begun.operation {
            Operation::Name(_) => return self.names.settle(number),
            Operation::Data(file, operation) => {
                let content = self.contents.entry(file).or_default();
                match operation {
                    DataOperation::Write { .. } | DataOperation::Append { .. } => {
                        content.lose_write(self.now, number, self.bytes_flip);
                    }
                    DataOperation::SetSize { .. } => content.lose_size(number),
                    DataOperation::Read { .. } | DataOperation::Commit | DataOperation::Size => {
                        content.end_other();
                    }
                }
            }
            Operation::Record { .. } => self.records.settle(number),
            Operation::Records { .. } | Operation::Close(_) => {}
        }
        Ok(())
    }

    fn judge(
        &mut self,
        number: OperationNumber,
        begun: &Begun,
        answer: &Answer,
    ) -> Result<(), String> {
        let judged = match &begun.operation {
            Operation::Name(_) => self.names.end(number, answer),
            Operation::Data(file, operation) => {
                self.judge_data(number, begun.at, *file, operation, answer)
            }
            Operation::Record { .. } => match answer {
                Answer::Offset(offset) => {
                    self.records.end(number, *offset);
                    Ok(())
                }
                _ => Err("an append of a record failed".into()),
            },
            Operation::Records { length } => match answer {
                Answer::Bytes(bytes, _) => self.records.see(bytes, *length, begun.reached),
                _ => Err("a read of records failed".into()),
            },
            Operation::Close(_) => match answer {
                Answer::Done => Ok(()),
                _ => Err("a close failed".into()),
            },
        };
        judged.map_err(|what| format!("{}: {what}", brief(&begun.operation, Some(answer))))
    }

    fn judge_data(
        &mut self,
        number: OperationNumber,
        begin: u64,
        file: FileNumber,
        operation: &DataOperation,
        answer: &Answer,
    ) -> Result<(), String> {
        let now = self.now;
        let content = self.contents.entry(file).or_default();
        match (operation, answer) {
            (DataOperation::Read { offset, length, .. }, Answer::Bytes(bytes, is_end)) => {
                let (offset, wanted, is_end) = (*offset, *length, *is_end);
                let seen = Seen { number, begin, end: now, offset, wanted, bytes, is_end };
                let judged = content.see(&seen);
                content.end_other();
                judged
            }
            (DataOperation::Write { data, .. }, Answer::Written(length))
                if *length > 0 && *length as usize <= data.len() =>
            {
                content.end_write(now, number, *length as usize);
                Ok(())
            }
            (DataOperation::Append { data, .. }, Answer::Offset(offset)) => {
                let expected = content.end_before(number);
                content.end_write(now, number, data.len());
                match expected == Some(*offset) {
                    true => Ok(()),
                    false => Err(format!("the offset must be {expected:?}")),
                }
            }
            (DataOperation::SetSize { .. }, Answer::Done) => {
                content.end_size(number);
                Ok(())
            }
            (DataOperation::Commit, Answer::Done) => {
                content.end_other();
                Ok(())
            }
            (DataOperation::Size, Answer::Size(size)) => {
                let judged = content.see_size(*size);
                content.end_other();
                judged
            }
            _ => Err("an impossible reply to an operation on an open file".into()),
        }
    }
}

/// Returns a description of an operation and its reply without their data.
pub(crate) fn brief(operation: &Operation, answer: Option<&Answer>) -> String {
    let operation = match operation {
        Operation::Data(file, DataOperation::Write { offset, data, stability }) => {
            format!("write {file:?} {offset}+{} {stability:?}", data.len())
        }
        Operation::Data(file, DataOperation::Append { data, way }) => {
            format!("append {file:?} {} {way:?}", data.len())
        }
        other => format!("{other:?}"),
    };
    match answer {
        None => operation,
        Some(Answer::Bytes(bytes, is_end)) => {
            format!("{operation} -> {} bytes, end: {is_end}", bytes.len())
        }
        Some(answer) => format!("{operation} -> {answer:?}"),
    }
}

/// Converts an operation on names to an operation of the model.
impl From<NameOperation> for Operation {
    fn from(operation: NameOperation) -> Self {
        Operation::Name(operation)
    }
}
