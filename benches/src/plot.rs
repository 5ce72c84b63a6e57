//! A bar chart as SVG: one bar a figure, and the line of what a copy reaches.

use std::fmt::Write;

/// A bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// What it is.
    pub label: String,
    /// Its length, in the unit of the chart.
    pub value: f64,
}

const LEFT: f64 = 330.0;
const WIDTH: f64 = 560.0;
const ROW: f64 = 20.0;

/// Bars under a title, with a line at `limit`. Same input, same bytes.
pub fn bars(title: &str, unit: &str, limit: (&str, f64), bars: &[Bar]) -> String {
    let largest = bars.iter().map(|bar| bar.value).fold(limit.1, f64::max).max(f64::MIN_POSITIVE);
    let x = |value: f64| LEFT + value / largest * WIDTH;
    let height = 70.0 + ROW * bars.len() as f64;
    let mut svg = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0}\" height=\"{height:.0}\" font-family=\"sans-serif\" font-size=\"12\">",
        LEFT + WIDTH + 110.0
    );
    let _ = writeln!(svg, "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>");
    let _ = writeln!(
        svg,
        "<text x=\"10\" y=\"20\" font-size=\"14\" font-weight=\"bold\">{}</text>",
        escape(title)
    );
    for (index, bar) in bars.iter().enumerate() {
        let y = 40.0 + ROW * index as f64;
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{}</text><rect x=\"{LEFT:.0}\" y=\"{y:.0}\" width=\"{:.1}\" height=\"14\" fill=\"#4878a8\"/><text x=\"{:.1}\" y=\"{:.0}\">{:.0}</text>",
            LEFT - 8.0,
            y + 11.0,
            escape(&bar.label),
            x(bar.value) - LEFT,
            x(bar.value) + 4.0,
            y + 11.0,
            bar.value
        );
    }
    let at = x(limit.1);
    let _ = writeln!(
        svg,
        "<line x1=\"{at:.1}\" y1=\"32\" x2=\"{at:.1}\" y2=\"{:.0}\" stroke=\"#c0392b\" stroke-dasharray=\"4 3\"/>",
        height - 24.0
    );
    let _ = writeln!(
        svg,
        "<text x=\"{at:.1}\" y=\"{:.0}\" text-anchor=\"middle\" fill=\"#c0392b\">{} {:.0} {}</text>",
        height - 8.0,
        escape(limit.0),
        limit.1,
        escape(unit)
    );
    svg.push_str("</svg>\n");
    svg
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_fills_the_width_and_the_limit_stands_where_it_belongs() {
        let bar = |label: &str, value| Bar { label: label.to_owned(), value };
        let svg =
            bars("casts <H200>", "GB/s", ("copy", 50.0), &[bar("row", 100.0), bar("col", 25.0)]);
        assert!(svg.contains("width=\"560.0\""), "{svg}");
        assert!(svg.contains("width=\"140.0\""), "{svg}");
        assert!(svg.contains("x1=\"610.0\""), "{svg}");
        assert!(svg.contains("casts &lt;H200&gt;"), "{svg}");
    }
}
