//! Tests of the messages of NFS and the protocols beside it.
