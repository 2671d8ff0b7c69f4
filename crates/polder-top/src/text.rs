//! Untrusted text, made harmless; and numbers in a readable form.

use std::fmt;

use serde::Deserialize;

/// The maximum number of characters of a text.
const MAX_TEXT: usize = 500;

/// Text from the socket. Unprintable characters are escaped (control characters, which a terminal
/// would obey; those that change the direction of writing), and long text is truncated.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug, Deserialize)]
#[serde(from = "String")]
pub struct Text(String);

impl From<String> for Text {
    fn from(raw: String) -> Text {
        let mut text = String::new();
        for (count, character) in raw.chars().enumerate() {
            if count == MAX_TEXT {
                text.push('…');
                break;
            }
            match character {
                '"' | '\'' | '\\' => text.push(character),
                _ => text.extend(character.escape_debug()),
            }
        }
        Text(text)
    }
}

impl From<&str> for Text {
    fn from(raw: &str) -> Text {
        Text::from(String::from(raw))
    }
}

impl Text {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Formats `12,345`. Below ten, if not whole: `3.4`.
pub fn number(value: f64) -> String {
    if value < 10.0 && value.fract() > 0.05 {
        return format!("{value:.1}");
    }
    let digits = format!("{:.0}", value.max(0.0));
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number of seconds in its most significant unit.
pub fn duration(seconds: f64) -> String {
    match seconds {
        ..0.000_000_5 => "0".into(),
        ..0.001 => format!("{:.0} µs", seconds * 1e6),
        ..1.0 => format!("{:.0} ms", seconds * 1e3),
        ..120.0 => format!("{seconds:.1} s"),
        ..7_200.0 => format!("{:.0} min", (seconds / 60.0).floor()),
        ..172_800.0 => format!("{:.0} h", (seconds / 3_600.0).floor()),
        _ => format!("{} days", number((seconds / 86_400.0).floor())),
    }
}

/// Formats a number of things.
pub fn count(value: u64, what: &str) -> String {
    let plural = if value == 1 { "" } else { "s" };
    format!("{} {what}{plural}", number(value as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        for (raw, clean) in [
            ("\x1b[2Jgone", "\\u{1b}[2Jgone"),
            ("a\r\nb\t\u{7}", "a\\r\\nb\\t\\u{7}"),
            ("\u{202e}txt.exe", "\\u{202e}txt.exe"),
            ("\u{9b}31m\u{7f}", "\\u{9b}31m\\u{7f}"),
            ("it's \"quoted\" \\ é 長", "it's \"quoted\" \\ é 長"),
        ] {
            assert_eq!(Text::from(raw).as_str(), clean);
        }
    }

    #[test]
    fn what_is_too_long_is_cut() {
        let text = Text::from("x".repeat(100_000));
        assert_eq!(text.as_str().chars().count(), MAX_TEXT + 1);
        assert!(text.as_str().ends_with("x…"));
    }

    #[test]
    fn numbers_and_durations_are_short() {
        let numbers = [0.0, 3.44, 9.0, 999.6, 1234.0, 1_234_567.0, -5.0].map(number);
        assert_eq!(
            numbers,
            ["0", "3.4", "9", "1,000", "1,234", "1,234,567", "0"]
        );
        let durations = [-1.0, 0.0, 2e-6, 0.25, 1.5, 200.0, 8_000.0, 1e7].map(duration);
        assert_eq!(
            durations,
            [
                "0", "0", "2 µs", "250 ms", "1.5 s", "3 min", "2 h", "115 days"
            ]
        );
        assert_eq!(
            duration(f64::MAX).len(),
            number(f64::MAX / 86_400.0).len() + 5
        );
    }
}
