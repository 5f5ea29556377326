//! Reports as self-contained HTML files: text, tables, and plots as SVG.

pub(crate) mod plot;

use ferroce_picture::escape;

const STYLE: &str = "
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #222b36; max-width: 940px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; margin-bottom: .2em; } h2 { font-size: 1.1em; margin: 2em 0 .3em; }
p { margin: .4em 0; } .facts, .legend, figcaption { color: #5b6672; font-size: .9em; }
table { border-collapse: collapse; } th, td { padding: .25em .9em .25em 0; text-align: left; }
th { font-weight: 600; border-bottom: 1px solid #d9dee4; } td.n, th.n { text-align: right; }
td.n, th.n, td:first-child, .whole { white-space: nowrap; }
.finished { color: #00714f; font-weight: 600; } .aborted { color: #b23c00; font-weight: 600; }
.unfinished { color: #8a6100; font-weight: 600; }
svg { width: 100%; height: auto; display: block; } svg text { font: 12px system-ui, sans-serif; fill: #222b36; }
svg .grid { stroke: #e6e9ed; } svg .axis { stroke: #222b36; } svg .label { fill: #5b6672; }
.legend span { margin-right: 1.2em; white-space: nowrap; }
.legend i { display: inline-block; width: 14px; height: 4px; margin-right: 5px; vertical-align: middle; }
";

/// A page with a title as its heading, and a body of HTML.
pub(crate) fn document(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{body}</body>\n</html>\n"
    )
}

/// A section with a picture, and a caption below it.
pub(crate) fn figure(title: &str, picture: &str, caption: &str) -> String {
    format!(
        "<h2>{title}</h2>\n<figure style=\"margin:0\">\n{picture}<figcaption>{caption}</figcaption>\n</figure>\n"
    )
}
