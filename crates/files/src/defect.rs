//! Defects on purpose, by which tests show that they would notice one.

/// A defect on purpose.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// A change of a fencing list is answered before what it waits for has ended.
    AnswerFencesEarly,
    /// Requests are carried out without a record of what is about to be done.
    SkipIntent,
    /// A stream's last result is taken for that of the request after it, which was not
    /// carried out.
    ReuseStreamReply,
    /// Of all that is to be saved before it is changed, the first piece is not.
    ForgetUndoBlock,
    /// Undo data shares a file's blocks before what the cache has of them is written there.
    CloneUnwritten,
    /// A reactor is not woken for what another has left to it.
    WakeNobody,
    /// A reactor steps parked requests of connections that other reactors have.
    StepOthersTasks,
    /// Messages for connections of other reactors are lost.
    LoseOthersMessages,
    /// What a reactor moves while others have their turns is not under way for them.
    HideMoves,
    /// A write is answered before its bytes are there.
    AnswerBeforeMove,
    /// What is read is not held in the cache while it is moved.
    UnpinBeforeMove,
}
