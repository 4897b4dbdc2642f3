//! A hint: do several requests wait for the reactor at the same time?
//!
//! If they do, all of them wait for the reactor's time, while other processors have time left. Then
//! work that the pool can do is given to it, although waking a thread costs more than a short job.
//! With one request at a time, its reply would only be later.
//!
//! Invariant: correctness never depends on this hint.

/// Counts the requests of the last turn and of this one. A chain counts as one request; plain reads
/// and writes are quick and do not count.
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

    /// Returns true if a request came while another was being served.
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
