//! Many clients that violate the protocol, while another client works normally.
