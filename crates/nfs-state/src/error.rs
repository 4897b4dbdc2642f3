//! The errors of NFSv4.1 that this crate returns.
//!
//! Invariant: the list is closed, and each number is the one that RFC 8881 section 15.1 assigns.

macro_rules! errors {
    ($($(#[$about:meta])* $name:ident = $number:literal $text:literal;)*) => {
        /// The reason why an operation of NFSv4.1 is refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Nfs4Error {
            $($(#[$about])* $name,)*
        }

        impl Nfs4Error {
            /// All errors of this crate, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the error's number in a reply.
            #[must_use]
            pub const fn number(self) -> u32 {
                match self {
                    $(Self::$name => $number,)*
                }
            }

            /// Returns a short explanation for people.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

errors! {
    /// NFS4ERR_PERM: another principal tries to update a client.
    Perm = 1 "operation not permitted";
    /// NFS4ERR_NOENT: the request updates a client that does not exist.
    NoEnt = 2 "no such client";
    /// NFS4ERR_INVAL: an argument has a value that the protocol forbids.
    Inval = 22 "invalid argument";
    /// NFS4ERR_NOSPC: a table of the server is full.
    NoSpc = 28 "a table of the server is full";
    /// NFS4ERR_TOOSMALL: a limit that the client wants is too small for any message.
    TooSmall = 10005 "limit too small for any message";
    /// NFS4ERR_DELAY: the client must send the request again later.
    Delay = 10008 "try again later";
    /// NFS4ERR_EXPIRED: the state was released after the lease had expired.
    Expired = 10011 "state released after the lease expired";
    /// NFS4ERR_GRACE: the client must complete its reclaims first.
    Grace = 10013 "reclaims are not complete";
    /// NFS4ERR_CLID_INUSE: another principal owns the client's name.
    ClidInUse = 10017 "client name belongs to another principal";
    /// NFS4ERR_STALE_CLIENTID: the server does not know the client id.
    StaleClientId = 10022 "client id unknown";
    /// NFS4ERR_STALE_STATEID: the state id is from before a restart of the server.
    StaleStateId = 10023 "state id from before the server's restart";
    /// NFS4ERR_OLD_STATEID: the state id has been replaced by a newer one.
    OldStateId = 10024 "state id was replaced by a newer one";
    /// NFS4ERR_BAD_STATEID: the state id names no state of this client.
    BadStateId = 10025 "state id unknown";
    /// NFS4ERR_NOT_SAME: the verifier differs from that of the client that is to be updated.
    NotSame = 10027 "verifier differs";
    /// NFS4ERR_NO_GRACE: the client has completed its reclaims.
    NoGrace = 10033 "reclaims are complete";
    /// NFS4ERR_LOCKS_HELD: the state still holds locks.
    LocksHeld = 10037 "locks are held";
    /// NFS4ERR_ADMIN_REVOKED: an administrator revoked the state.
    AdminRevoked = 10047 "state revoked by an administrator";
    /// NFS4ERR_BADSESSION: the server does not know the session.
    BadSession = 10052 "session unknown";
    /// NFS4ERR_BADSLOT: the session has no such slot.
    BadSlot = 10053 "slot beyond the session's table";
    /// NFS4ERR_COMPLETE_ALREADY: the client has already completed its reclaims.
    CompleteAlready = 10054 "reclaims were completed before";
    /// NFS4ERR_CONN_NOT_BOUND_TO_SESSION: the connection is not bound to the session.
    ConnNotBound = 10055 "connection not bound to the session";
    /// NFS4ERR_SEQ_MISORDERED: the sequence number is neither the last nor the next.
    SeqMisordered = 10063 "sequence number out of order";
    /// NFS4ERR_REQ_TOO_BIG: the request exceeds the session's limit.
    ReqTooBig = 10065 "request too big for the session";
    /// NFS4ERR_REP_TOO_BIG_TO_CACHE: the reply is too big to be kept for a repeat.
    RepTooBigToCache = 10067 "reply too big for the reply cache";
    /// NFS4ERR_TOO_MANY_OPS: the request has more operations than the session allows.
    TooManyOps = 10070 "too many operations for the session";
    /// NFS4ERR_CLIENTID_BUSY: the client still has sessions or state.
    ClientIdBusy = 10074 "client has sessions or state";
    /// NFS4ERR_SEQ_FALSE_RETRY: a repeated request differs from the first one.
    SeqFalseRetry = 10076 "repeated request differs from the first";
    /// NFS4ERR_BAD_HIGH_SLOT: the highest slot in use is beyond the session's table.
    BadHighSlot = 10077 "highest slot beyond the session's table";
    /// NFS4ERR_ENCR_ALG_UNSUPP: none of the algorithms for state protection is supported.
    EncrAlgUnsupp = 10079 "no supported algorithm for state protection";
    /// NFS4ERR_WRONG_CRED: the operation needs the client's machine credential.
    WrongCred = 10082 "the client's machine credential is required";
    /// NFS4ERR_DELEG_REVOKED: the delegation was revoked.
    DelegRevoked = 10087 "delegation was revoked";
}

impl std::fmt::Display for Nfs4Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Nfs4Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_errors_have_the_same_number() {
        let mut numbers: Vec<u32> = Nfs4Error::ALL.iter().map(|error| error.number()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), Nfs4Error::ALL.len());
    }
}
