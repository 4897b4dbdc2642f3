//! Whether several requests wait for the reactor at one time.
//!
//! Then its time is what all wait for, and a client's processor, or another, has some left: what a
//! thread of the pool can do is given to it, though waking one costs more than a short job takes.
//! With one request at a time the answer would only come later.
//!
//! Invariant: nothing depends on what is said here but time.

/// Requests of the last turn and of this one: a chain is one, and plain reads and writes, which
/// are quick, are none.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    requests: u32,
    was_there: bool,
}

impl Crowd {
    #[inline]
    pub fn begin_turn(&mut self) {
        self.was_there = self.requests > 1;
        self.requests = 0;
    }

    #[inline]
    pub fn on_request(&mut self) {
        self.requests += 1;
    }

    /// Whether one has come while another was being answered.
    #[inline]
    pub fn is_there(&self) -> bool {
        self.was_there | (self.requests > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_in_each_turn_is_no_crowd() {
        let mut crowd = Crowd::default();
        for _ in 0..3 {
            crowd.begin_turn();
            crowd.on_request();
            assert!(!crowd.is_there());
        }
    }

    #[test]
    fn two_requests_in_a_turn_are_one_until_a_turn_has_fewer() {
        let mut crowd = Crowd::default();
        crowd.begin_turn();
        crowd.on_request();
        crowd.on_request();
        assert!(crowd.is_there());
        crowd.begin_turn();
        crowd.on_request();
        assert!(crowd.is_there(), "they may come again together");
        crowd.begin_turn();
        assert!(!crowd.is_there());
    }
}
