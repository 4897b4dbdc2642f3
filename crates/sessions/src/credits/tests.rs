//! Tests of a single session.

use super::*;

/// Creates a window with this many credits that may grow to 64 credits.
fn window(credits: u16, budget: &mut Budget) -> Window {
    let mut window = Window::new();
    budget.channel_opened();
    window.begin(credits, 0, budget);
    window.on_request(StreamId(0), 0).unwrap();
    window.on_reply(StreamId(0), budget);
    window.may_grow_to(64);
    window
}

#[test]
fn the_first_response_brings_the_first_credits() {
    let mut budget = Budget::new(100, 1);
    let mut window = Window::new();
    budget.channel_opened();
    assert_eq!(window.begin(8, 0, &mut budget), 8);
    assert_eq!(window.on_request(StreamId(0), 0), Ok(1));
    assert_eq!(window.on_request(StreamId(1), 0), Err(BreakReason::StreamOutOfRange));
    let grant = window.on_reply(StreamId(0), &mut budget);
    assert_eq!(grant, Grant { target_credits: 8, receives_to_post: 8 });
    assert_eq!(budget.charged(), 8);
    assert_eq!(window.on_request(StreamId(7), 0), Ok(1));
}

#[test]
fn violations_are_distinguished() {
    let mut budget = Budget::new(100, 1);
    let mut window = window(2, &mut budget);
    window.may_grow_to(2);
    assert_eq!(window.on_request(StreamId(2), 0), Err(BreakReason::StreamOutOfRange));
    assert_eq!(window.on_request(StreamId(u16::MAX), 0), Err(BreakReason::StreamOutOfRange));
    window.on_request(StreamId(1), 0).unwrap();
    assert_eq!(window.on_request(StreamId(1), 0), Err(BreakReason::StreamBusy));
    // The session shrinks while stream 1 is busy: stream 0 alone is one too many.
    window.may_grow_to(1);
    window.on_request(StreamId(0), 0).unwrap();
    assert_eq!(window.on_reply(StreamId(0), &mut budget).receives_to_post, 0);
    assert_eq!(window.on_request(StreamId(0), 0), Err(BreakReason::CreditsExceeded));
}

#[test]
fn a_saturated_session_doubles_up_to_its_limit() {
    let mut budget = Budget::new(40, 1);
    let mut window = window(4, &mut budget);
    window.may_grow_to(16);
    let mut targets = vec![];
    for _ in 0..3 {
        let credits = window.nreq;
        for stream in 0..credits {
            window.on_request(StreamId(stream), 0).unwrap();
        }
        targets.push(window.on_reply(StreamId(0), &mut budget).target_credits);
        for stream in 1..credits {
            window.on_reply(StreamId(stream), &mut budget);
        }
    }
    assert_eq!(targets, [8, 16, 16]);
    assert_eq!(budget.charged(), 16);
}

#[test]
fn desire_caps_growth_and_speeds_it_up_while_credits_are_plentiful() {
    let mut budget = Budget::new(1000, 1);
    let mut window = window(1, &mut budget);
    window.on_request(StreamId(0), 40).unwrap();
    let grant = window.on_reply(StreamId(0), &mut budget);
    assert_eq!(grant, Grant { target_credits: 40, receives_to_post: 40 });
    window.on_request(StreamId(0), 3).unwrap();
    let grant = window.on_reply(StreamId(0), &mut budget);
    assert_eq!(grant, Grant { target_credits: 3, receives_to_post: 0 });
    assert_eq!((window.nreq, budget.charged()), (39, 39));
}

#[test]
fn idle_sessions_give_back_one_credit_per_response() {
    let mut budget = Budget::new(100, 1);
    let mut window = window(32, &mut budget);
    window.shrink_if_idle(4, &mut budget);
    window.shrink_if_idle(4, &mut budget);
    assert_eq!((window.target, window.nreq, budget.charged()), (4, 32, 32));
    for left in (4..32).rev() {
        window.on_request(StreamId(0), 0).unwrap();
        assert_eq!(window.on_reply(StreamId(0), &mut budget).receives_to_post, 0);
        assert_eq!(budget.charged(), left);
    }
    window.on_request(StreamId(0), 0).unwrap();
    assert_eq!(window.on_reply(StreamId(0), &mut budget).receives_to_post, 1);
}

#[test]
fn a_stream_goes_out_of_range_once_the_client_must_know() {
    let mut budget = Budget::new(100, 1);
    let mut window = window(4, &mut budget);
    window.set_target(3, &mut budget);
    window.on_request(StreamId(0), 0).unwrap();
    window.on_request(StreamId(1), 0).unwrap();
    window.on_reply(StreamId(0), &mut budget);
    // The reply on stream 0 may still be on its way: stream 3 is legal.
    window.on_request(StreamId(3), 0).unwrap();
    window.on_reply(StreamId(3), &mut budget);
    // A request on stream 0 again: its reply has been read, so the client knows.
    window.on_request(StreamId(0), 0).unwrap();
    assert_eq!(window.on_request(StreamId(3), 0), Err(BreakReason::StreamOutOfRange));
}

#[test]
fn growth_leaves_a_credit_for_every_channel_to_come() {
    let mut budget = Budget::new(20, 5);
    let mut window = window(64, &mut budget);
    assert_eq!(window.nreq, 16);
    for stream in 0..16 {
        window.on_request(StreamId(stream), 64).unwrap();
    }
    assert_eq!(window.on_reply(StreamId(3), &mut budget).target_credits, 16);
    assert_eq!(budget.charged() + budget.reserved, 20);
    budget.channel_closed(&window);
    assert_eq!((budget.charged(), budget.reserved), (0, 5));
}
