//! Clients that break rules in large numbers, while another client works.
