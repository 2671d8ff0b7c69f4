//! The slider of a page with [`Moment`]s: its list of them, its panel, and its script.
//!
//! The list is complete without the script, which copies words from there into the panel. So text
//! of a program is only ever text of the page, and the script is a constant.

use std::fmt::Write;

use super::contents::Moment;
use super::text::escape;
use crate::world::seconds::Seconds;

/// Maximum number of moments on a page, the latest ones.
const MAX_MOMENTS: usize = 500;

/// Maximum number of characters of a moment.
const MAX_CHARS: usize = 10_000;

/// The style of a page with moments. In dark mode it is dark.
pub(crate) const STYLE: &str = "\
svg{cursor:crosshair}.now{stroke:#e60;stroke-width:2;pointer-events:none}
.slides{padding-bottom:42vh}#panel label{display:flex;gap:8px}#slider{flex:1}
#panel:not([hidden]){position:fixed;left:0;right:0;bottom:0;height:38vh;padding:8px 16px;\
display:flex;flex-direction:column;background:#fff;border-top:1px solid #999}
#hosts{flex:1;overflow:auto;margin:8px 0 0;white-space:pre-wrap}
@media(prefers-color-scheme:dark){:root{color-scheme:dark}body{background:#181818;color:#ddd}
pre{background:#282828}svg,#panel:not([hidden]){background:#1e1e1e;border-color:#555}
text{fill:#ccc}.lane{stroke:#666}.m{stroke:#6ae}.poll{fill:#6ae}.mark{fill:#aaa}
.lost,.fail{stroke:#f66}.failtext{fill:#f66}.cut,.hold,.slow{opacity:.2}}
";

const SCRIPT: &str = include_str!("slider.js");

/// Returns the end of a page with these moments: nothing, if there are none.
pub(crate) fn draw(moments: &[Moment]) -> String {
    let mut end = String::new();
    if moments.is_empty() {
        return end;
    }
    end += "<h2>The hosts at some moments</h2>\n";
    for moment in &moments[moments.len().saturating_sub(MAX_MOMENTS)..] {
        let words: String = moment.words.chars().take(MAX_CHARS).collect();
        let (at, seconds, words) = (moment.at, Seconds(moment.at), escape(&words));
        // A page drops a newline at the beginning of the text.
        let _ = writeln!(
            end,
            "<details data-at=\"{at}\"><summary>{seconds}</summary><pre>\n{words}</pre></details>"
        );
    }
    let _ = write!(
        end,
        "<div id=\"panel\" hidden=\"\"><label>Time, by slider, arrow keys or a click in a diagram: \
         <input id=\"slider\" type=\"range\"/><output id=\"time\"></output></label>\n\
         <pre id=\"hosts\" tabindex=\"0\"></pre></div>\n<script>\n{SCRIPT}</script>\n"
    );
    end
}
