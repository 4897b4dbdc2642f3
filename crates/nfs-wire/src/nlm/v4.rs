//! Version 4, with offsets and lengths of 64 bits (RFC 1813 appendix II).

super::lock_manager!(NLM4 = "NLM version 4", version 4, numbers u64);
