//! NFS clients of a server that is killed and restarted: calls are executed once, and state is
//! reclaimed.

mod calls;
mod persistent;
mod state;
