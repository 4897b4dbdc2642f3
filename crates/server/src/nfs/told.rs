//! The attributes that an NFS client is shown of a file whose delegation for writing another client
//! holds.

use dafs_files::delegations::Told;
use dafs_store::{Attributes, change_of_now};
use dafs_types::limits;

/// Replaces attributes with those that the holder of the delegation has reported.
///
/// The number that a holder reports as its change attribute only tells whether the holder has
/// changed the file. The client is shown a number of this server (RFC 8881 section 10.4.3): the
/// current time, which is greater than all numbers shown before and differs each time, and which is
/// less than the number after the holder has written its data. So a holder that lies cannot make
/// the number fall later.
pub(super) fn overlay(told: Told, found: &mut Attributes) {
    let Told::Facts { size, change } = told else { return };
    let size = size.filter(|size| *size <= limits::FILE_OFFSET_MAX).unwrap_or(found.size);
    if size == found.size && change.is_none_or(|change| change <= found.change) {
        return;
    }
    let (change, time) = change_of_now();
    found.size = size;
    found.change = change.max(found.change.saturating_add(1));
    found.time_modify = found.time_modify.max(time);
    found.time_metadata = found.time_metadata.max(time);
}

#[cfg(test)]
mod tests {
    use dafs_types::{DeviceNumber, ObjectType, Timestamp};

    use super::*;

    /// Returns the attributes of a file.
    fn file(size: u64, change: u64) -> Attributes {
        Attributes {
            kind: ObjectType::Regular,
            mode: 0o644,
            uid: 1,
            gid: 1,
            link_count: 1,
            change,
            size,
            file_id: 1,
            space_used: size,
            time_access: Timestamp::default(),
            time_create: None,
            time_metadata: Timestamp::default(),
            time_modify: Timestamp::default(),
            device: DeviceNumber::default(),
        }
    }

    #[test]
    fn a_holder_that_lies_does_not_choose_the_change_attribute() {
        let before = file(10, 100);
        let mut found = before;
        overlay(Told::Nothing, &mut found);
        overlay(Told::Facts { size: None, change: None }, &mut found);
        overlay(Told::Facts { size: Some(10), change: Some(100) }, &mut found);
        overlay(Told::Facts { size: Some(u64::MAX), change: None }, &mut found);
        assert_eq!(found, before);
        overlay(Told::Facts { size: Some(11), change: Some(u64::MAX) }, &mut found);
        let (now, time) = change_of_now();
        assert!(found.size == 11 && found.change > 100 && found.change <= now, "{found:?}");
        assert!(found.time_modify > before.time_modify && found.time_modify <= time);
        let shown = found.change;
        overlay(Told::Facts { size: Some(12), change: None }, &mut found);
        assert!(found.change > shown);
    }
}
