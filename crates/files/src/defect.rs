//! Defects that tests inject into the server, to show that the tests detect real defects.

/// A defect that a test injects into the server.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// The reply to a change of a fencing list is sent before the operations for which it must wait
    /// have ended.
    AnswerFencesEarly,
    /// Requests are executed without an intent in the journal.
    SkipIntent,
    /// The process ends when the first intent of a guest's call is durable.
    DieAfterIntent,
    /// The process ends when it has executed the first journaled call of a guest.
    DieBeforeOutcome,
    /// A call that is sent again is executed again.
    ExecuteRepeats,
    /// A request of an NFSv4 session gets the kept reply of its slot, whatever its number is.
    CompareNoSequence,
    /// The reply to a call of a guest is sent before its changes and its outcome are durable.
    TellGuestsEarly,
    /// A request is not executed, and gets the stored result of the previous request on its stream.
    ReuseStreamReply,
    /// The first piece of undo data is not saved.
    ForgetUndoBlock,
    /// Undo data shares blocks with a file before the cache's dirty data is written to the file.
    CloneUnwritten,
    /// A reactor is not woken when another reactor has put work into its mailbox.
    WakeNobody,
    /// A reactor executes steps of parked requests of connections that belong to other reactors.
    StepOthersTasks,
    /// Messages for connections of other reactors are lost.
    LoseOthersMessages,
    /// Transfers that run while other reactors take turns are hidden from those reactors.
    HideMoves,
    /// The reply to a write is sent before its bytes have arrived.
    AnswerBeforeMove,
    /// The cache blocks of a read are not pinned while their bytes are moved.
    UnpinBeforeMove,
}
