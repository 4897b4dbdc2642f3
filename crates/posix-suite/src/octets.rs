//! How tables write what is in files.
//!
//! `abc` is three octets, `x*70000` is 70,000 times x, `+` stands between parts, `~` is a zero,
//! and `-` alone is nothing.

/// The octets that a text stands for.
pub fn from_text(text: &str) -> Option<Vec<u8>> {
    let mut data = Vec::new();
    if text == "-" {
        return Some(data);
    }
    for part in text.split('+') {
        let octet = |octet: u8| if octet == b'~' { 0 } else { octet };
        match part.split_once('*') {
            Some((one, count)) => {
                let [one] = one.as_bytes() else { return None };
                data.extend(std::iter::repeat_n(octet(*one), count.parse().ok()?));
            }
            None => data.extend(part.bytes().map(octet)),
        }
    }
    Some(data)
}

/// The text that stands for octets: runs of eight and more are counted.
pub fn to_text(data: &[u8]) -> String {
    if data.is_empty() {
        return "-".into();
    }
    let mut parts: Vec<String> = Vec::new();
    let mut is_plain = false;
    for run in data.chunk_by(|one, other| one == other) {
        let octet = match run[0] {
            0 => '~',
            octet if octet.is_ascii_graphic() => char::from(octet),
            _ => '?',
        };
        if run.len() >= 8 {
            parts.push(format!("{octet}*{}", run.len()));
            is_plain = false;
            continue;
        }
        if !is_plain {
            parts.push(String::new());
        }
        is_plain = true;
        parts.last_mut().expect("just pushed").extend(std::iter::repeat_n(octet, run.len()));
    }
    parts.join("+")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for text in ["-", "abc", "x*70000", "~*4096+abc+y*8", "a~b"] {
            assert_eq!(to_text(&from_text(text).unwrap()), text);
        }
        assert!(from_text("xy*3").is_none());
    }
}
