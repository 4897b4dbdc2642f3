//! Version 2, also called the port mapper.

use super::REGISTRATIONS_MAX;
use crate::table::program;
use crate::xdr::{Chain, xdr};

/// The protocol number of TCP.
pub const PROTOCOL_TCP: u32 = 6;
/// The protocol number of UDP.
pub const PROTOCOL_UDP: u32 = 17;

xdr! {
    /// The port of a program.
    #[derive(Copy)]
    struct Mapping {
        /// The number of the program.
        program: u32,
        /// The version of the program.
        version: u32,
        /// The protocol number of the transport.
        protocol: u32,
        /// The port of the program; 0 in queries, and in a reply if the program is not registered.
        port: u32,
    }
}

program! {
    /// The table of rpcbind version 2.
    RPCBIND2 = "rpcbind version 2", 100000 version 2;
    Procedure, Arguments, Results;
    Null = 0 "NULL" (()) -> (()) Reads;
    Set = 1 "SET" (Mapping) -> (bool) Once;
    Unset = 2 "UNSET" (Mapping) -> (bool) Once;
    GetPort = 3 "GETPORT" (Mapping) -> (u32) Reads;
    Dump = 4 "DUMP" (()) -> (Chain<Mapping, REGISTRATIONS_MAX>) Reads;
}
