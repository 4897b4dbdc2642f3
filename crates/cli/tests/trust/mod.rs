//! What other users of the machine try, and what becomes of it. Each test does what an attacker
//! did, as that user; it needs root to be several users.

mod exports;
mod loopback;
mod neighbours;
mod people;
mod printed;
mod secrets;
mod sockets;
