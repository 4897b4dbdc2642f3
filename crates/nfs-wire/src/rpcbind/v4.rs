//! Version 4, in which a client can also ask for exactly one version of a program.

use super::{REGISTRATIONS_MAX, Registration, Text};
use crate::table::program;
use crate::xdr::Chain;

program! {
    /// The table of rpcbind version 4.
    RPCBIND4 = "rpcbind version 4", 100000 version 4;
    Procedure, Arguments<'b>, Results<'b>;
    Null = 0 "NULL" (()) -> (()) Reads;
    Set = 1 "SET" (Registration<'b>) -> (bool) Once;
    Unset = 2 "UNSET" (Registration<'b>) -> (bool) Once;
    GetAddr = 3 "GETADDR" (Registration<'b>) -> (Text<'b>) Reads;
    Dump = 4 "DUMP" (()) -> (Chain<Registration<'b>, REGISTRATIONS_MAX>) Reads;
    GetTime = 6 "GETTIME" (()) -> (u32) Reads;
    GetVersAddr = 9 "GETVERSADDR" (Registration<'b>) -> (Text<'b>) Reads;
}
