//! The status monitor (NSM, "sm_inter"): who wants to hear of restarts, and notices of them.

use crate::table::program;
use crate::xdr::{Opaque, xdr};

/// The maximum length of the name of a host, in bytes.
pub const NAME_BYTES_MAX: usize = 1024;

/// The name of a host.
pub type Name<'b> = Opaque<'b, NAME_BYTES_MAX>;

xdr! {
    /// Whether a monitor did what it was asked for.
    enum Success {
        /// The monitor did so.
        Yes = 0,
        /// The monitor could not do so.
        No = 1,
    }

    /// Who is to be called when a host restarts.
    #[derive(Copy)]
    struct Listener<'b> {
        /// The name of the listener's host.
        host: Name<'b>,
        /// The number of the listener's program.
        program: u32,
        /// The version of the listener's program.
        version: u32,
        /// The procedure to call.
        procedure: u32,
    }

    /// A host that is monitored, and for whom.
    #[derive(Copy)]
    struct Monitored<'b> {
        /// The name of the host that is monitored.
        host: Name<'b>,
        /// Who is to be called when it restarts.
        listener: Listener<'b>,
    }

    /// The arguments of MON.
    #[derive(Copy)]
    struct MonitorArgs<'b> {
        /// The host that is monitored, and for whom.
        monitored: Monitored<'b>,
        /// Bytes that the listener gets back in the call.
        private: [u8; 16],
    }

    /// The results of STAT and MON.
    #[derive(Copy)]
    struct MonitorResult {
        /// Whether the host can be monitored.
        success: Success,
        /// The state number of the monitor's own host.
        state: u32,
    }

    /// The arguments of NOTIFY: a host has restarted.
    #[derive(Copy)]
    struct NotifyArgs<'b> {
        /// The name of the host that has restarted.
        host: Name<'b>,
        /// The state number of that host, which is odd while it is up.
        state: u32,
    }

    /// The arguments of the call that a listener gets.
    #[derive(Copy)]
    struct RestartedArgs<'b> {
        /// The name of the host that has restarted.
        host: Name<'b>,
        /// The state number of that host.
        state: u32,
        /// The bytes that the listener gave to MON.
        private: [u8; 16],
    }
}

program! {
    /// The table of NSM version 1.
    NSM1 = "NSM version 1", 100024 version 1;
    Procedure, Arguments<'b>, Results;
    Null = 0 "NULL" (()) -> (()) Reads;
    Stat = 1 "STAT" (Name<'b>) -> (MonitorResult) Reads;
    Monitor = 2 "MON" (MonitorArgs<'b>) -> (MonitorResult) Repeats;
    Unmonitor = 3 "UNMON" (Monitored<'b>) -> (u32) Repeats;
    UnmonitorAll = 4 "UNMON_ALL" (Listener<'b>) -> (u32) Repeats;
    SimulateCrash = 5 "SIMU_CRASH" (()) -> (()) Once;
    Notify = 6 "NOTIFY" (NotifyArgs<'b>) -> (()) Repeats;
}
