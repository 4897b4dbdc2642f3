//! Formats attributes for display.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use dafs_client::{Metadata, ObjectType, shown_path};
use serde_json::json;

pub(super) fn letter(kind: ObjectType) -> char {
    match kind {
        ObjectType::Regular | ObjectType::NamedAttribute => '-',
        ObjectType::Directory | ObjectType::AttributeDirectory => 'd',
        ObjectType::BlockDevice => 'b',
        ObjectType::CharacterDevice => 'c',
        ObjectType::SymbolicLink => 'l',
        ObjectType::Socket => 's',
        ObjectType::Fifo => 'p',
    }
}

/// Returns the mode as `ls` shows it.
pub(super) fn permissions(mode: u32) -> String {
    let mut text: Vec<char> = (0..9)
        .map(|bit| if mode & (0o400 >> bit) != 0 { ['r', 'w', 'x'][bit % 3] } else { '-' })
        .collect();
    for (bit, at, letter) in [(0o4000, 2, 's'), (0o2000, 5, 's'), (0o1000, 8, 't')] {
        if mode & bit != 0 {
            text[at] = if text[at] == 'x' { letter } else { letter.to_ascii_uppercase() };
        }
    }
    text.into_iter().collect()
}

/// Adds a name or the text of a link to a JSON object. JSON strings cannot hold arbitrary bytes: if
/// the name is not UTF-8, `KEY` contains a readable form and `KEY_hex` its bytes.
pub(super) fn put_name(value: &mut serde_json::Value, key: &str, name: &[u8]) {
    value[key] = json!(shown_path(OsStr::from_bytes(name)));
    if std::str::from_utf8(name).is_err() {
        let hex: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        value[format!("{key}_hex")] = json!(hex);
    }
}

/// Formats seconds since 1970 as a date and time in UTC.
pub(super) fn time(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Count days from 1 March 0000 in eras of 400 years, so that the leap day is the last day of a
    // year.
    let since = days + 719_468;
    let (era, day) = (since.div_euclid(146_097), since.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, (month + 2) % 12 + 1);
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", rest / 3600, rest / 60 % 60)
}

pub(super) fn to_json(m: &Metadata) -> serde_json::Value {
    json!({
        "type": format!("{:?}", m.kind), "mode": format!("{:o}", m.mode), "size": m.size,
        "links": m.link_count, "owner": m.owner, "group": m.owner_group,
        "file_id": m.file_id, "space_used": m.space_used, "change": m.change,
        "modified": m.time_modify.seconds, "accessed": m.time_access.seconds,
        "metadata_changed": m.time_metadata.seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates() {
        assert_eq!(time(0), "1970-01-01 00:00");
        assert_eq!(time(951_782_400 + 86_399), "2000-02-29 23:59");
        assert_eq!(time(-1), "1969-12-31 23:59");
        assert_eq!(time(4_102_444_800), "2100-01-01 00:00");
    }

    #[test]
    fn special_bits_show() {
        assert_eq!(permissions(0o755), "rwxr-xr-x");
        assert_eq!(permissions(0o7644), "rwSr-Sr-T");
        assert_eq!(permissions(0o1777), "rwxrwxrwt");
    }
}
