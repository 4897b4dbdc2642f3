//! Tests the crate with MIT's key distribution center. Without the center's programs the tests say
//! so and pass, unless `DAFS_REQUIRE_KDC=1`.

mod establish;
mod hostile;
mod parties;
mod protect;
mod realm;
mod refuse;
