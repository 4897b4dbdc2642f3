//! One valid example of each operation, for cases that call all operations.

use crate::nfs4::ops::{self, Claim, How, Locker, Op, lock_type, share};
use crate::nfs4::{Set, StateId};
use crate::xdr::Put;

/// The number of the layout type for files.
const FILES: u32 = 1;

/// Returns an operation with valid arguments, which refer to no existing object or state.
pub(super) fn sample(number: u32) -> Op {
    let state = StateId::ANONYMOUS;
    let set = Set::new().mode(0o644);
    match number {
        ops::ACCESS => ops::access(0x3f),
        ops::CLOSE => ops::close(state),
        ops::COMMIT => ops::commit(0, 0),
        ops::CREATE => ops::mkdir("x"),
        ops::DELEGPURGE => ops::delegpurge(0),
        ops::DELEGRETURN => ops::delegreturn(state),
        ops::GETATTR => ops::getattr(&[1]),
        ops::LINK => ops::link("x"),
        ops::LOCK => ops::lock(lock_type::READ, false, 0, 1, &Locker::New(state, b"o".to_vec())),
        ops::LOCKT => ops::lockt(lock_type::READ, 0, 1, b"o"),
        ops::LOCKU => ops::locku(lock_type::READ, state, 0, 1),
        ops::LOOKUP => ops::lookup("x"),
        ops::NVERIFY => ops::nverify(&set),
        ops::VERIFY => ops::verify(&set),
        ops::OPEN => ops::open(b"o", share::READ, 0, &How::Open, &Claim::Name(b"x".to_vec())),
        ops::OPENATTR => ops::openattr(false),
        ops::OPEN_CONFIRM => ops::op(number, state.put(Put::new()).u32(0)),
        ops::OPEN_DOWNGRADE => ops::downgrade(state, share::READ, 0),
        ops::PUTFH => ops::putfh(b"no handle"),
        ops::READ => ops::read(state, 0, 10),
        ops::READDIR => ops::readdir(0, [0; 8], (4096, 4096), &[1]),
        ops::REMOVE => ops::remove("x"),
        ops::RENAME => ops::rename("x", "y"),
        ops::RENEW => ops::op(number, Put::new().u64(0)),
        ops::SECINFO => ops::secinfo("x"),
        ops::SETATTR => ops::setattr(state, &set),
        ops::SETCLIENTID => {
            let callback = Put::new().u64(0).opaque("id").u32(1).opaque("tcp").opaque("0.0");
            ops::op(number, callback.u32(0))
        }
        ops::SETCLIENTID_CONFIRM => ops::op(number, Put::new().u64(0).u64(0)),
        ops::WRITE => ops::write(state, 0, 2, b"data"),
        ops::RELEASE_LOCKOWNER => ops::op(number, Put::new().u64(0).opaque("owner")),
        ops::BACKCHANNEL_CTL => ops::backchannel_ctl(crate::nfs4::callback::PROGRAM),
        ops::BIND_CONN_TO_SESSION => ops::bind_conn([7; 16], 1),
        ops::EXCHANGE_ID => ops::exchange_id([1; 8], b"somebody", 0),
        ops::CREATE_SESSION => ops::create_session(1, 1, 0, ops::Channel::FORE, ops::Channel::BACK),
        ops::DESTROY_SESSION => ops::destroy_session([7; 16]),
        ops::FREE_STATEID => ops::free_stateid(state),
        ops::GET_DIR_DELEGATION => ops::get_dir_delegation(),
        ops::GETDEVICEINFO => ops::getdeviceinfo(FILES),
        ops::GETDEVICELIST => ops::getdevicelist(FILES),
        ops::LAYOUTCOMMIT => ops::layoutcommit(FILES, state),
        ops::LAYOUTGET => ops::layoutget(FILES, state),
        ops::LAYOUTRETURN => ops::layoutreturn(FILES, state),
        ops::SECINFO_NO_NAME => ops::secinfo_no_name(0),
        ops::SEQUENCE => ops::sequence([7; 16], 1, 0, 0, false),
        ops::SET_SSV => ops::set_ssv(),
        ops::TEST_STATEID => ops::test_stateid(&[state]),
        ops::WANT_DELEGATION => ops::want_delegation(share::WANT_READ),
        ops::DESTROY_CLIENTID => ops::destroy_clientid(1),
        ops::RECLAIM_COMPLETE => ops::reclaim_complete(false),
        ops::ALLOCATE => ops::allocate(state, 0, 10),
        ops::COPY => ops::copy(state, state, (0, 0), 10, true),
        ops::COPY_NOTIFY => ops::copy_notify(state),
        ops::DEALLOCATE => ops::deallocate(state, 0, 10),
        ops::IO_ADVISE => ops::io_advise(state, 0, 10, &[0]),
        ops::OFFLOAD_CANCEL => ops::offload_cancel(state),
        ops::OFFLOAD_STATUS => ops::offload_status(state),
        ops::READ_PLUS => ops::read_plus(state, 0, 10),
        ops::SEEK => ops::seek(state, 0, 0),
        ops::WRITE_SAME => ops::write_same(state),
        ops::CLONE => ops::clone(state, state, (0, 0), 0),
        ops::GETXATTR => ops::getxattr("x"),
        ops::SETXATTR => ops::setxattr(0, "x", b"value"),
        ops::LISTXATTRS => ops::listxattrs(0, 4096),
        ops::REMOVEXATTR => ops::removexattr("x"),
        _ => ops::bare(number),
    }
}
