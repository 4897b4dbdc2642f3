//! Tests attacks by other users of the machine. Each test does what an attacker did, as that user.
//! It needs root to act as several users.

mod exports;
mod loopback;
mod neighbours;
mod people;
mod printed;
mod secrets;
mod sockets;
