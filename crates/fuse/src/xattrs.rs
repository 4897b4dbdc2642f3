//! Extended attributes: `user.*`, as the named attributes of DAFS.
//!
//! Invariant: no other kind is there: the server keeps none, and what decides over permission is
//! not to be had by this way.

use std::rc::Rc;

use crate::engine::{Answer, Answered, Engine};

impl Engine {
    pub async fn setxattr(
        self: Rc<Self>,
        _node: u64,
        _name: &[u8],
        _value: Vec<u8>,
        _flags: u32,
    ) -> Answered<Answer> {
        Err(EOPNOTSUPP)
    }

    pub async fn getxattr(
        self: Rc<Self>,
        _node: u64,
        _name: &[u8],
        _size: u32,
    ) -> Answered<Answer> {
        Err(ENODATA)
    }

    pub async fn listxattr(self: Rc<Self>, _node: u64, size: u32) -> Answered<Answer> {
        let mut message = crate::abi::Message::default();
        if size == 0 {
            message.u32(0).u32(0);
        }
        Ok(Answer::Body(message.0))
    }

    pub async fn removexattr(self: Rc<Self>, _node: u64, _name: &[u8]) -> Answered<Answer> {
        Err(ENODATA)
    }
}

const ENODATA: i32 = 61;
const EOPNOTSUPP: i32 = 95;
