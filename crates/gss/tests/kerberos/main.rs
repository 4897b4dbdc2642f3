//! The crate against MIT's key distribution centre. Without the centre's programs the tests
//! say so and pass, unless `DAFS_REQUIRE_KDC=1`.

mod establish;
mod hostile;
mod parties;
mod protect;
mod realm;
mod refuse;
