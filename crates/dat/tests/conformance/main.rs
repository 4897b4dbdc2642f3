//! One suite for every provider: what a transport must do for the layers above.
//!
//! Invariant: a test knows nothing of the provider it runs on. Behaviour that may differ between
//! providers is not asserted. Both interfaces live in one thread and are polled in turn. Time
//! limits only detect hanging.

mod access;
mod breaking;
#[path = "../certificates/mod.rs"]
mod certificates;
mod connecting;
mod dmabufs;
mod fixture;
mod handing;
mod inboxes;
mod limits;
mod messages;
mod owners;
mod pair;
mod ports;
mod proxy;
mod random;
mod reads;
mod sharing;
mod simulated;
mod waiting;
mod writes;

macro_rules! provider {
    ($name:ident, $fixture:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use crate::fixture::*;

            provider! {@cases $fixture,
                connecting:
                    private_data_travels_both_ways
                    private_data_beyond_the_limit_is_refused
                    a_rejection_carries_data
                    accepting_a_vanished_peer_breaks
                    connecting_to_nobody_ends
                    receives_may_be_posted_before_a_connection_stands
                    nothing_else_is_posted_before_a_connection_stands
                    a_connection_outlives_its_listener
                    the_limit_of_endpoints_holds
                    an_acceptor_at_its_limit_turns_peers_away
                    a_released_name_is_refused
                    several_connections_stand_side_by_side
                    a_region_serves_all_connections_of_its_domain;
                messages:
                    messages_arrive_in_order_each_in_the_oldest_receive
                    both_sides_send_at_once
                    an_empty_message_is_a_message
                    a_message_may_fill_its_receive
                    a_message_larger_than_its_receive_breaks
                    a_message_without_a_receive_breaks
                    messages_gather_and_scatter_odd_pieces
                    plain_bytes_are_free_after_the_post
                    contexts_and_lengths_come_back
                    unsignalled_success_is_silent
                    unsignalled_failure_is_reported
                    a_send_invalidates_a_region
                    an_invalidated_region_is_out_of_reach
                    an_invalidated_region_is_out_of_reach_on_every_connection
                    invalidating_an_unknown_region_breaks;
                inboxes:
                    messages_are_read_where_they_arrive
                    a_message_in_hand_is_nobody_elses
                    a_slot_goes_back_to_its_own_inbox
                    what_is_an_inboxes_is_nobody_elses_to_post
                    an_inbox_posts_by_its_own_interface
                    an_inbox_may_be_gone_before_its_messages;
                handing:
                    a_descriptor_is_there_before_the_message_that_names_it;
                writes:
                    a_write_is_placed_before_the_next_message
                    a_write_consumes_no_receive
                    a_write_gathers_odd_pieces
                    a_write_touches_nothing_else
                    every_kind_of_memory_can_be_written
                    many_writes_precede_one_message
                    a_write_now_is_done_in_its_turn_or_not_at_all
                    both_sides_write_at_once;
                reads:
                    a_read_of_any_size
                    a_read_scatters_odd_pieces
                    a_read_now_is_done_in_its_turn_or_not_at_all
                    more_reads_than_the_read_depth
                    unequal_read_depths
                    every_kind_of_memory_can_be_read
                    a_read_sees_what_was_written_and_acknowledged
                    both_sides_read_at_once
                    reads_writes_and_messages_mix;
                access:
                    a_refused_write_breaks_and_moves_nothing
                    a_refused_read_breaks_and_moves_nothing
                    a_deregistered_region_is_out_of_reach_at_once
                    a_region_to_its_edges
                    a_reused_slot_does_not_honour_the_old_name
                    local_segments_are_checked_at_the_post
                    deregistering_in_flight_harms_nobody_else;
                breaking:
                    disconnecting_flushes_everything_once
                    disconnecting_amid_transfers
                    disconnecting_twice_breaks_once
                    a_broken_endpoint_takes_no_work
                    releasing_is_silent_here_and_breaks_there
                    dropping_an_interface_breaks_its_peers
                    one_break_leaves_other_connections_alone
                    messages_before_a_close_may_arrive_but_not_after;
                limits:
                    receives_have_a_limit
                    work_has_a_limit_and_recovers
                    messages_have_a_limit
                    a_flood_of_work_completes;
                waiting:
                    a_wait_ends_when_enough_has_arrived
                    a_wait_ends_with_its_time
                    a_wait_ends_at_any_other_event
                    a_waker_ends_a_wait
                    the_descriptor_shows_what_arrives
                    a_conversation_by_waiting_alone
                    a_quiet_connection_is_heard_beside_a_busy_one;
                owners:
                    an_endpoint_of_another_owner_is_refused;
                sharing:
                    connections_to_one_address_are_shared_evenly
                    a_member_that_never_looks_keeps_nobody_waiting
                    a_member_that_is_dropped_takes_its_connections_along
                    a_connection_that_is_discounted_takes_nobodys_place;
                random:
                    any_sequence_agrees_with_the_model;
            }
        }
    };
    (@cases $fixture:expr, $($module:ident: $($case:ident)*;)*) => {
        $($(
            #[test]
            fn $case() {
                let (provider, case) = (module_path!(), stringify!($case));
                match $crate::fixture::excuse(provider, case) {
                    Some(why) => dafs_tests::skip(why),
                    None => $crate::$module::$case(&$fixture),
                }
            }
        )*)*
    };
}

provider!(sim, Sim { early_success_ppm: 300_000, in_flight_max: 64 });
provider!(sim_like_a_socket, Sim { early_success_ppm: 1_000_000, in_flight_max: 1000 });
provider!(sim_like_a_fabric, Sim { early_success_ppm: 0, in_flight_max: 10 });
// The providers under test:
provider!(shm, Shm);
provider!(tcp, Tcp { crc: false });
provider!(tcp_crc, Tcp { crc: true });
provider!(tcp_dribbled, Dribbled { crc: false });
provider!(tcp_dribbled_crc, Dribbled { crc: true });
provider!(tls, Tls { dribbles: false });
provider!(tls_dribbled, Tls { dribbles: true });
// Runs only if there is a device.
provider!(verbs, Verbs);
