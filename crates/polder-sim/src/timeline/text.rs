//! Text of a page.

/// Escapes text for a page. Characters that a page must not contain are replaced.
pub(crate) fn escape(text: &str) -> String {
    let escape = |letter| match letter {
        '&' => "&amp;".into(),
        '<' => "&lt;".into(),
        '>' => "&gt;".into(),
        '"' => "&quot;".into(),
        '\'' => "&#39;".into(),
        '\n' | '\t' => String::from(letter),
        _ if letter.is_control() => "\u{fffd}".into(),
        _ => letter.into(),
    };
    text.chars().map(escape).collect()
}
