//! Compounds: sequences of operations in calls, replies, callbacks and their replies (RFC 8881
//! sections 16.2 and 20.1).
//!
//! Invariant: a reader decodes one operation at a time, and allocates nothing for the other
//! operations. A reader refuses a compound whose header counts more operations than there is room
//! for in the message.

use std::marker::PhantomData;

use crate::table::program;
use crate::xdr::{List, Mark, Opaque, Reader, Slot, Writer, Xdr, XdrError, xdr};

use super::attributes::Attributes;
use super::bitmap::Bitmap;
use super::callbacks::{Callback, CallbackAnswer};
use super::limits::{OPERATIONS_MAX, TAG_BYTES_MAX, WHOLE_OPERATIONS_MAX};
use super::operation::{Answer, Operation};
use super::status::Status;
use super::table::{CallbackKind, OperationKind};
use super::types::{Name, Verifier};

/// A text for people, which the reply repeats.
pub type Tag<'b> = Opaque<'b, TAG_BYTES_MAX>;

xdr! {
    /// The arguments of COMPOUND, decoded as a whole. They take much more memory than the message,
    /// so servers use [`CallReader`] instead.
    struct Compound<'b> {
        /// A text for people, which the reply repeats.
        tag: Tag<'b>,
        /// The minor version of the compound.
        minor_version: u32,
        /// The operations, one after the other.
        operations: List<Operation<'b>, WHOLE_OPERATIONS_MAX>,
    }
    /// The results of COMPOUND, decoded as a whole.
    struct CompoundReply<'b> {
        /// The status of the last operation that was executed.
        status: Status,
        /// The tag of the call.
        tag: Tag<'b>,
        /// The results of the operations.
        answers: List<Answer<'b>, WHOLE_OPERATIONS_MAX>,
    }
    /// The arguments of CB_COMPOUND, decoded as a whole.
    struct CallbackCompound<'b> {
        /// A text for people, which the reply repeats.
        tag: Tag<'b>,
        /// The minor version of the compound.
        minor_version: u32,
        /// A number from SETCLIENTID of minor version 0; later minor versions do not use it.
        ident: u32,
        /// The callbacks, one after the other.
        callbacks: List<Callback<'b>, WHOLE_OPERATIONS_MAX>,
    }
    /// The results of CB_COMPOUND, decoded as a whole.
    struct CallbackReply<'b> {
        /// The status of the last callback that was executed.
        status: Status,
        /// The tag of the call.
        tag: Tag<'b>,
        /// The results of the callbacks.
        answers: List<CallbackAnswer<'b>, WHOLE_OPERATIONS_MAX>,
    }
}

program! {
    /// The table of NFS version 4.
    NFS4 = "NFS version 4", 100003 version 4;
    Procedure, Arguments<'b>, Results<'b>;
    Null = 0 "NULL" (()) -> (()) Reads;
    Compound = 1 "COMPOUND" (Compound<'b>) -> (CompoundReply<'b>) Once;
}

/// The size in bytes of the smallest operation, which consists only of its number.
const OPERATION_BYTES_MIN: usize = 4;

/// A member of a compound: [`Operation`] or [`Callback`].
pub trait Call<'b>: Xdr<'b> {
    /// The type of the results of such operations.
    type Answer: Xdr<'b>;
    /// True if the header contains the number `ident`, as in CB_COMPOUND.
    const HAS_IDENT: bool;

    /// Returns true if an operation of the minor version has this number.
    fn exists(number: u32, minor_version: u32) -> bool;

    /// Returns the value that stands for a number which no operation has.
    fn illegal(number: u32) -> Self;

    /// Returns true if this value stands for a number which no operation has.
    fn is_illegal(&self) -> bool;
}

impl<'b> Call<'b> for Operation<'b> {
    type Answer = Answer<'b>;
    const HAS_IDENT: bool = false;

    fn exists(number: u32, minor_version: u32) -> bool {
        OperationKind::from_number(number)
            .is_some_and(|kind| kind.row().minor_version <= minor_version)
    }

    fn illegal(number: u32) -> Self {
        Self::Illegal(number)
    }

    fn is_illegal(&self) -> bool {
        matches!(self, Self::Illegal(_))
    }
}

impl<'b> Call<'b> for Callback<'b> {
    type Answer = CallbackAnswer<'b>;
    const HAS_IDENT: bool = true;

    fn exists(number: u32, minor_version: u32) -> bool {
        CallbackKind::from_number(number).is_some_and(|kind| kind.minor_version() <= minor_version)
    }

    fn illegal(number: u32) -> Self {
        Self::Illegal(number)
    }

    fn is_illegal(&self) -> bool {
        matches!(self, Self::Illegal(_))
    }
}

/// Reads the arguments of COMPOUND or CB_COMPOUND.
#[derive(Clone, Debug)]
pub struct CallReader<'b, C> {
    reader: Reader<'b>,
    tag: Tag<'b>,
    minor_version: u32,
    ident: u32,
    count: u32,
    left: u32,
    calls: PhantomData<C>,
}

impl<'b, C: Call<'b>> CallReader<'b, C> {
    /// Decodes the header of the compound.
    ///
    /// # Errors
    /// If the header cannot be decoded, or if the rest of the message is too short for its count.
    pub fn new(mut reader: Reader<'b>) -> Result<Self, XdrError> {
        let tag = Tag::decode(&mut reader)?;
        let minor_version = reader.u32()?;
        let ident = if C::HAS_IDENT { reader.u32()? } else { 0 };
        let count = reader.count(OPERATIONS_MAX, OPERATION_BYTES_MIN)? as u32;
        let calls = PhantomData;
        Ok(Self { reader, tag, minor_version, ident, count, left: count, calls })
    }

    /// Returns the tag, which the reply repeats.
    #[must_use]
    pub const fn tag(&self) -> Tag<'b> {
        self.tag
    }

    /// Returns the minor version of the compound.
    #[must_use]
    pub const fn minor_version(&self) -> u32 {
        self.minor_version
    }

    /// Returns the number `ident` in the header of a CB_COMPOUND; 0 for COMPOUND.
    #[must_use]
    pub const fn ident(&self) -> u32 {
        self.ident
    }

    /// Returns the number of operations in the compound.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Returns the number of operations that [`CallReader::next_call`] has not decoded yet.
    #[must_use]
    pub const fn left(&self) -> u32 {
        self.left
    }

    /// Returns the reader, whose position is the start of the next operation.
    #[must_use]
    pub const fn reader(&self) -> &Reader<'b> {
        &self.reader
    }

    /// Decodes the next operation; `None` after the last operation. After an error or an illegal
    /// operation, the rest of the compound cannot be decoded.
    ///
    /// # Errors
    /// If the arguments cannot be decoded. The operation's status is then `BADXDR`.
    #[inline]
    pub fn next_call(&mut self) -> Option<Result<C, XdrError>> {
        self.left = self.left.checked_sub(1)?;
        let number = match self.reader.clone().u32() {
            Ok(number) => number,
            Err(error) => return Some(Err(error)),
        };
        if !C::exists(number, self.minor_version) {
            self.left = 0;
            return Some(Ok(C::illegal(number)));
        }
        let call = C::decode(&mut self.reader);
        if call.is_err() {
            self.left = 0;
        }
        Some(call)
    }

    /// Checks that all operations were decoded and that nothing follows them.
    ///
    /// # Errors
    /// If there are more bytes or operations.
    pub const fn finish(&self) -> Result<(), XdrError> {
        self.reader.finish()
    }

    /// Returns the number of the next operation, without decoding the operation.
    #[must_use]
    pub fn peek(&self) -> Option<u32> {
        if self.left == 0 { None } else { self.reader.clone().u32().ok() }
    }
}

/// Writes the arguments of COMPOUND or CB_COMPOUND.
#[derive(Debug)]
pub struct CallWriter<C> {
    count_slot: Slot,
    count: u32,
    calls: PhantomData<C>,
}

impl<'b, C: Call<'b>> CallWriter<C> {
    /// Encodes the header. `ident` is the number in the header of a CB_COMPOUND; COMPOUND has none.
    pub fn new(writer: &mut Writer, tag: Tag<'_>, minor_version: u32, ident: u32) -> Self {
        tag.encode(writer);
        writer.u32(minor_version);
        if C::HAS_IDENT {
            writer.u32(ident);
        }
        Self { count_slot: writer.reserve(), count: 0, calls: PhantomData }
    }

    /// Encodes the next operation.
    pub fn push(&mut self, writer: &mut Writer, call: &C) {
        call.encode(writer);
        self.count += 1;
        writer.patch(self.count_slot, self.count);
    }
}

/// Reads the results of COMPOUND or CB_COMPOUND.
#[derive(Clone, Debug)]
pub struct ReplyReader<'b, C> {
    reader: Reader<'b>,
    status: Status,
    tag: Tag<'b>,
    left: u32,
    calls: PhantomData<C>,
}

impl<'b, C: Call<'b>> ReplyReader<'b, C> {
    /// Decodes the header of the reply.
    ///
    /// # Errors
    /// If the header cannot be decoded, or if the rest of the message is too short for its count.
    pub fn new(mut reader: Reader<'b>) -> Result<Self, XdrError> {
        let status = Status::decode(&mut reader)?;
        let tag = Tag::decode(&mut reader)?;
        let left = reader.count(OPERATIONS_MAX, 2 * OPERATION_BYTES_MIN)? as u32;
        Ok(Self { reader, status, tag, left, calls: PhantomData })
    }

    /// Returns the status of the last operation, which is also the status of the compound.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.status
    }

    /// Returns the tag, which is that of the call.
    #[must_use]
    pub const fn tag(&self) -> Tag<'b> {
        self.tag
    }

    /// Returns the number of results that [`ReplyReader::next_answer`] has not decoded yet.
    #[must_use]
    pub const fn left(&self) -> u32 {
        self.left
    }

    /// Returns the reader, whose position is the start of the next result.
    #[must_use]
    pub const fn reader(&self) -> &Reader<'b> {
        &self.reader
    }

    /// Decodes the next result; `None` after the last result.
    ///
    /// # Errors
    /// If the result cannot be decoded.
    pub fn next_answer(&mut self) -> Option<Result<C::Answer, XdrError>> {
        self.left = self.left.checked_sub(1)?;
        let answer = C::Answer::decode(&mut self.reader);
        if answer.is_err() {
            self.left = 0;
        }
        Some(answer)
    }

    /// Checks that all results were decoded and that no bytes follow them.
    ///
    /// # Errors
    /// If there are more bytes or results.
    pub const fn finish(&self) -> Result<(), XdrError> {
        self.reader.finish()
    }
}

/// Writes the results of COMPOUND or CB_COMPOUND.
#[derive(Debug)]
pub struct ReplyWriter {
    status_slot: Slot,
    count_slot: Slot,
    count: u32,
}

/// A state of a reply to which [`ReplyWriter::rewind`] can return.
#[derive(Clone, Copy, Debug)]
pub struct ReplyMark {
    mark: Mark,
    count: u32,
}

impl ReplyWriter {
    /// Encodes the header. Its status and its count are filled in later by [`ReplyWriter::finish`].
    pub fn new(writer: &mut Writer, tag: Tag<'_>) -> Self {
        let status_slot = writer.reserve();
        tag.encode(writer);
        Self { status_slot, count_slot: writer.reserve(), count: 0 }
    }

    /// Returns the number of results that were encoded so far.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Encodes the next result: an [`Answer`] or a [`CallbackAnswer`].
    pub fn push<'b>(&mut self, writer: &mut Writer, answer: &impl Xdr<'b>) {
        answer.encode(writer);
        self.count += 1;
    }

    /// Appends results that are already encoded, such as those of a kept reply.
    pub fn push_encoded(&mut self, writer: &mut Writer, answers: &[u8], count: u32) {
        writer.raw(answers);
        self.count += count;
    }

    /// Encodes the number and the status of the next result. The caller encodes the rest of the
    /// result.
    pub fn begin(&mut self, writer: &mut Writer, kind: OperationKind, status: Status) {
        writer.u32(kind.number());
        status.encode(writer);
        self.count += 1;
    }

    /// Encodes the result of GETATTR: the attributes that are in `wanted` and have a value.
    pub fn attributes(
        &mut self,
        writer: &mut Writer,
        attributes: &Attributes<'_>,
        wanted: &Bitmap,
    ) {
        self.begin(writer, OperationKind::GetAttr, Status::Ok);
        attributes.encode(wanted, writer);
    }

    /// Returns the current state, to which the caller can return if the next result does not fit.
    #[must_use]
    pub const fn mark(&self, writer: &Writer) -> ReplyMark {
        ReplyMark { mark: writer.mark(), count: self.count }
    }

    /// Removes the results that were encoded after the mark.
    pub fn rewind(&mut self, writer: &mut Writer, mark: ReplyMark) {
        writer.rewind(mark.mark);
        self.count = mark.count;
    }

    /// Completes the reply with the status of the last operation and the number of results.
    pub fn finish(self, writer: &mut Writer, status: Status) {
        writer.patch(self.status_slot, status.number());
        writer.patch(self.count_slot, self.count);
    }
}

/// The number of bytes after the entries of a listing: the end of the list, and the flag that marks
/// the listing as complete.
const LISTING_END_BYTES: usize = 8;

/// Writes the results of READDIR entry by entry, up to the client's limit.
#[derive(Debug)]
pub struct ListingWriter {
    start: usize,
    bytes_max: usize,
}

impl ListingWriter {
    /// Encodes the start of the results. The caller must have called [`ReplyWriter::begin`].
    /// `bytes_max` is the client's limit for all results of READDIR.
    pub fn new(writer: &mut Writer, verifier: Verifier, bytes_max: usize) -> Self {
        let start = writer.length();
        verifier.encode(writer);
        Self { start, bytes_max }
    }

    /// Encodes an entry with the attributes that are in `wanted` and have a value. Returns false,
    /// and encodes nothing, if the entry does not fit.
    #[must_use]
    pub fn push(
        &mut self,
        writer: &mut Writer,
        cookie: u64,
        name: Name<'_>,
        attributes: &Attributes<'_>,
        wanted: &Bitmap,
    ) -> bool {
        let mark = writer.mark();
        true.encode(writer);
        writer.u64(cookie);
        name.encode(writer);
        attributes.encode(wanted, writer);
        let length = writer.length() - self.start + LISTING_END_BYTES;
        let fits = length <= self.bytes_max
            && writer.fault().is_none()
            && writer.room() >= LISTING_END_BYTES;
        if !fits {
            writer.rewind(mark);
        }
        fits
    }

    /// Completes the listing. `is_end` is true if it contains the last entry of the directory.
    pub fn finish(self, writer: &mut Writer, is_end: bool) {
        false.encode(writer);
        is_end.encode(writer);
    }
}
