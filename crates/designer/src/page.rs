//! The files of the page.

/// Draws axes and lines.
pub const PLOT_JS: &str = include_str!("../page/plot.js");
/// The designer.
pub const DESIGNER_JS: &str = include_str!("../page/designer.js");
/// The designer's part of a page.
pub const DESIGNER_HTML: &str = include_str!("../page/designer.html");
/// What stands in a page where that part belongs.
pub const PLACE: &str = "<!-- designer -->";
/// How it looks.
pub const STYLE_CSS: &str = include_str!("../page/style.css");
