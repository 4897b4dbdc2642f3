//! A hint that tells whether several requests wait for the reactor at the same time.
//!
//! If several wait, the reactor's time is the bottleneck while other processors are idle. Work that
//! the pool can do is then given to the pool, although waking a thread costs more than a short job.
//! With one request at a time, the pool would only delay the reply.
//!
//! Invariant: correctness never depends on this hint.

/// Counts the requests of the last turn and of the current turn. A chain counts as one request.
/// Plain reads and writes are not counted, because they are quick.
#[derive(Debug, Default)]
pub(crate) struct LoadHint {
    requests: u32,
    was_there: bool,
}

impl LoadHint {
    #[inline]
    pub(crate) fn begin_turn(&mut self) {
        self.was_there = self.requests > 1;
        self.requests = 0;
    }

    #[inline]
    pub(crate) fn on_request(&mut self) {
        self.requests += 1;
    }

    /// Returns true if a request arrived while the reactor was serving another request.
    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        self.was_there | (self.requests > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_in_each_turn_is_no_crowd() {
        let mut load_hint = LoadHint::default();
        for _ in 0..3 {
            load_hint.begin_turn();
            load_hint.on_request();
            assert!(!load_hint.is_there());
        }
    }

    #[test]
    fn two_requests_in_a_turn_are_one_until_a_turn_has_fewer() {
        let mut load_hint = LoadHint::default();
        load_hint.begin_turn();
        load_hint.on_request();
        load_hint.on_request();
        assert!(load_hint.is_there());
        load_hint.begin_turn();
        load_hint.on_request();
        assert!(load_hint.is_there(), "they may come again together");
        load_hint.begin_turn();
        assert!(!load_hint.is_there());
    }
}
