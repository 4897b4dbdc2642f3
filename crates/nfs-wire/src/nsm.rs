//! The network status monitor (NSM, "sm_inter"): it notifies hosts when another host has restarted,
//! so that locks can be released or reclaimed.

use crate::table::program;
use crate::xdr::{Opaque, xdr};

/// The maximum length of the name of a host, in bytes.
pub const NAME_BYTES_MAX: usize = 1024;

/// The name of a host.
pub type Name<'b> = Opaque<'b, NAME_BYTES_MAX>;

xdr! {
    /// The outcome of a request to a monitor.
    enum Success {
        /// The monitor has done what the request asks for.
        Yes = 0,
        /// The monitor could not do what the request asks for.
        No = 1,
    }

    /// A procedure that the monitor calls when a host restarts.
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

    /// A host to monitor, and the procedure to call when the host restarts.
    #[derive(Copy)]
    struct Monitored<'b> {
        /// The name of the host that is monitored.
        host: Name<'b>,
        /// The procedure to call when the host restarts.
        listener: Listener<'b>,
    }

    /// The arguments of MON.
    #[derive(Copy)]
    struct MonitorArgs<'b> {
        /// The host to monitor, and the procedure to call when the host restarts.
        monitored: Monitored<'b>,
        /// Bytes that the monitor passes to the procedure.
        private: [u8; 16],
    }

    /// The results of STAT and MON.
    #[derive(Copy)]
    struct MonitorResult {
        /// The answer to the question whether the host can be monitored.
        success: Success,
        /// The state number of the host on which the monitor runs.
        state: u32,
    }

    /// The arguments of NOTIFY, which reports that a host has restarted.
    #[derive(Copy)]
    struct NotifyArgs<'b> {
        /// The name of the host that has restarted.
        host: Name<'b>,
        /// The new state number of that host. It is odd while the host is up.
        state: u32,
    }

    /// The arguments of the procedure that the monitor calls when a host restarts.
    #[derive(Copy)]
    struct RestartedArgs<'b> {
        /// The name of the host that has restarted.
        host: Name<'b>,
        /// The new state number of that host.
        state: u32,
        /// The bytes that the listener has passed to MON.
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
