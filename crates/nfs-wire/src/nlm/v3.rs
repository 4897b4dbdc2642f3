//! Version 3, with offsets and lengths of 32 bits, for clients of NFS version 2. Version 1 has the
//! same messages for the procedures below [`FIRST_OF_VERSION_3`](super::FIRST_OF_VERSION_3).

super::lock_manager!(NLM3 = "NLM version 3", version 3, numbers u32);
