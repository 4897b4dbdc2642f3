//! The appearance of charts: colors, dashes and markers that distinguish lines, and text that fits.
//!
//! Invariant: no two lines differ only in color. The colors are those of Okabe and Ito, which are
//! distinguishable with every kind of color blindness. Each color has its own marker, and lines of
//! one color have different dashes.

use plotters::prelude::*;

/// The color and marker of each kind of competitor. The first entry that is a prefix of the
/// competitor's name applies.
const FAMILIES: [(&str, RGBColor, Shape); 10] = [
    ("tcp echo", ORANGE, &DIAMOND),
    ("tcp stream", PURPLE, &PENTAGON),
    ("tcp bare", SKY, &HOURGLASS),
    ("tcp", VERMILION, &SQUARE),
    ("shm", BLUE, &OCTAGON),
    ("libnfs", GREEN, &UP),
    ("nfs", GREEN, &UP),
    ("pread", BLACK, &DOWN),
    ("local", BLACK, &DOWN),
    ("memcpy", GRAY, &DIAMOND),
];

/// The color of DAFS in charts with two groups.
pub(crate) const BLUE: RGBColor = RGBColor(0, 114, 178);
/// The color of other systems in charts with two groups.
pub(crate) const ORANGE: RGBColor = RGBColor(230, 159, 0);
const VERMILION: RGBColor = RGBColor(213, 94, 0);
const GREEN: RGBColor = RGBColor(0, 158, 115);
const SKY: RGBColor = RGBColor(86, 180, 233);
const PURPLE: RGBColor = RGBColor(204, 121, 167);
const GRAY: RGBColor = RGBColor(120, 120, 120);

/// The color of the grid behind the data.
pub(crate) const GRID: RGBColor = RGBColor(205, 205, 205);
/// The color of the finer grid lines.
pub(crate) const FINE_GRID: RGBColor = RGBColor(238, 238, 238);

/// The inside of a marker and its border, in pixels.
pub(crate) type Marker = (Polygon<(i32, i32)>, PathElement<(i32, i32)>);

/// The corners of a marker, in hundredths of its radius.
type Shape = &'static [(i32, i32)];

const OCTAGON: [(i32, i32); 8] =
    [(38, -92), (92, -38), (92, 38), (38, 92), (-38, 92), (-92, 38), (-92, -38), (-38, -92)];
const SQUARE: [(i32, i32); 4] = [(-85, -85), (85, -85), (85, 85), (-85, 85)];
const UP: [(i32, i32); 3] = [(0, -115), (105, 75), (-105, 75)];
const DOWN: [(i32, i32); 3] = [(0, 115), (105, -75), (-105, -75)];
const DIAMOND: [(i32, i32); 4] = [(0, -125), (105, 0), (0, 125), (-105, 0)];
const PENTAGON: [(i32, i32); 5] = [(0, -110), (105, -34), (65, 89), (-65, 89), (-105, -34)];
const HOURGLASS: [(i32, i32); 4] = [(-90, -105), (90, -105), (-90, 105), (90, 105)];

/// The pixels of a dash and of the gap after it: for the first line of a color, then for each
/// further line of that color. `None` is a solid line.
const DASHES: [Option<(u32, u32)>; 4] = [None, Some((7, 4)), Some((2, 3)), Some((14, 4))];

/// The appearance of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    /// The color of the line and its marker.
    pub color: RGBColor,
    shape: Shape,
    /// The number of earlier lines with the same color.
    variant: usize,
}

/// Returns the appearance of each line of a chart, chosen by the names of the lines.
pub(crate) fn styles(labels: &[&str]) -> Vec<Style> {
    let family = |label: &str| FAMILIES.iter().position(|(name, ..)| label.starts_with(name));
    let mut styles = Vec::with_capacity(labels.len());
    for (index, label) in labels.iter().enumerate() {
        let own = family(label);
        let variant = labels[..index].iter().filter(|other| family(other) == own).count();
        let (_, color, shape) = own.map_or(("", PURPLE, &UP as Shape), |own| FAMILIES[own]);
        styles.push(Style { color, shape, variant });
    }
    styles
}

impl Style {
    /// Returns the pixels of a dash and of a gap; `None` for a solid line.
    pub(crate) fn dashes(&self) -> Option<(u32, u32)> {
        DASHES[self.variant % DASHES.len()]
    }

    /// Returns the marker around a position in pixels.
    pub(crate) fn marker(&self, (x, y): (i32, i32)) -> Marker {
        let corner = |&(right, down): &(i32, i32)| {
            (x + right * MARKER_PIXELS / 100, y + down * MARKER_PIXELS / 100)
        };
        let corners: Vec<_> = self.shape.iter().map(corner).collect();
        let around: Vec<_> = corners.iter().chain(corners.first()).copied().collect();
        // The filling distinguishes lines of one color if their dashes are too short to be seen.
        let within = if self.variant == 0 { self.color } else { WHITE };
        let border = self.color.stroke_width(LINE_PIXELS);
        (Polygon::new(corners, within.filled()), PathElement::new(around, border))
    }
}

/// Returns the largest font size, at most `most`, with which a text fits into the pixels.
pub(crate) fn fitting(text: &str, most: u32, pixels: u32) -> u32 {
    let fits = f64::from(pixels) / (text.chars().count().max(1) as f64 * CHARACTER);
    most.min(fits as u32)
}

/// Estimates the width in pixels of the widest text. The estimate is rather too large.
pub(crate) fn widest<'a>(texts: impl IntoIterator<Item = &'a str>, font: u32) -> u32 {
    let most = texts.into_iter().map(|text| text.chars().count()).max().unwrap_or(0);
    (most as f64 * CHARACTER * f64::from(font)).ceil() as u32
}

/// Formats a number at an axis, without a fraction if that is zero.
pub(crate) fn number(value: f64) -> String {
    let text = if value.abs() < 10.0 { format!("{value:.2}") } else { format!("{value:.0}") };
    let text = match text.split_once('.') {
        Some(_) => text.trim_end_matches('0').trim_end_matches('.'),
        None => &text,
    };
    let (sign, digits) = text.split_at(usize::from(text.starts_with('-')));
    let whole = digits.split('.').next().unwrap_or(digits).len();
    let mut written = sign.to_owned();
    for (index, digit) in digits.char_indices() {
        if index > 0 && index < whole && (whole - index).is_multiple_of(3) {
            written.push(',');
        }
        written.push(digit);
    }
    written
}

/// The width of a line in pixels.
pub(crate) const LINE_PIXELS: u32 = 2;
const MARKER_PIXELS: i32 = 5;
/// The width of a character relative to the font size, for wide fonts.
const CHARACTER: f64 = 0.53;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas_and_no_empty_fractions() {
        for (value, written) in [
            (10_000.0, "10,000"),
            (1_234_567.0, "1,234,567"),
            (-1_000.0, "-1,000"),
            (999.6, "1,000"),
            (100.0, "100"),
            (0.5, "0.5"),
            (0.0, "0"),
            (9.25, "9.25"),
        ] {
            assert_eq!(number(value), written);
        }
    }

    #[test]
    fn no_two_lines_of_a_plot_look_alike() {
        let labels = ["pread", "memcpy", "memcpy, sleeping", "tcp echo", "tcp read x1", "shm read"];
        let more = ["tcp read x1, sleeping", "shm read, sleeping", "libnfs read x1", "tcp stream"];
        let styles = styles(&[&labels[..], &more].concat());
        for (index, look) in styles.iter().enumerate() {
            let same = |other: &&Style| {
                (other.color, other.shape, other.dashes())
                    == (look.color, look.shape, look.dashes())
            };
            assert_eq!(styles.iter().filter(same).count(), 1, "{index}: {look:?}");
        }
    }

    #[test]
    fn a_long_title_gets_a_smaller_font() {
        assert_eq!(fitting("short", 22, 900), 22);
        let long = "a title that goes on and on ".repeat(6);
        let font = fitting(&long, 22, 900);
        assert!((5..22).contains(&font) && widest([long.as_str()], font) <= 900, "{font}");
    }
}
