//! Defects that tests inject into the server, to show that a test would notice a real defect.

/// A defect to inject into the server.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// The reply to a change of a fencing list is sent before the operations that it waits for have
    /// ended.
    AnswerFencesEarly,
    /// Requests are executed without an intent in the journal.
    SkipIntent,
    /// The last result of a stream is returned for the next request, which is not executed.
    ReuseStreamReply,
    /// The first piece of undo data is not saved.
    ForgetUndoBlock,
    /// Undo data shares blocks with a file before the cache's dirty data is written to the file.
    CloneUnwritten,
    /// A reactor is not woken for work that another reactor has put into its mailbox.
    WakeNobody,
    /// A reactor steps parked requests of connections that belong to other reactors.
    StepOthersTasks,
    /// Messages for connections of other reactors are lost.
    LoseOthersMessages,
    /// Transfers that run while other reactors take turns are hidden from those reactors.
    HideMoves,
    /// The reply to a write is sent before its bytes have arrived.
    AnswerBeforeMove,
    /// The blocks of a read are not pinned while they are moved.
    UnpinBeforeMove,
}
