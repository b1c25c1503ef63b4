//! The page as one HTML file: style and drawings are in it, nothing is loaded and nothing runs.

use std::fmt::Write as _;

use crate::document::{Block, Cell, Document, Figure, Mark, Table};

const STYLE: &str = include_str!("report.css");

/// The page.
#[must_use]
pub fn page(document: &Document) -> String {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{0}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{0}</h1>\n",
        escaped(&document.title)
    );
    html += &contents(document);
    let mut number = 0;
    for block in &document.blocks {
        html += &match block {
            Block::Heading(level, text) => {
                number += 1;
                format!("<h{level} id=\"s{number}\">{}</h{level}>\n", escaped(text))
            }
            Block::Text(text) => format!("<p>{}</p>\n", escaped(text)),
            Block::List(items) => list(items),
            Block::Facts(facts) => definitions(facts),
            Block::Table(table) => in_rows(table),
            Block::Figure(figure) => drawn(figure),
        };
    }
    html + "</main>\n</body>\n</html>\n"
}

/// Links to the sections, where there are several.
fn contents(document: &Document) -> String {
    let headings = document.blocks.iter().filter_map(|block| match block {
        Block::Heading(level, text) => Some((*level, text)),
        _ => None,
    });
    let sections: Vec<String> = (1..)
        .zip(headings)
        .filter(|(_, (level, _))| *level == 2)
        .map(|(number, (_, text))| format!("<li><a href=\"#s{number}\">{}</a></li>", escaped(text)))
        .collect();
    if sections.len() < 3 {
        return String::new();
    }
    format!("<nav aria-label=\"Contents\"><ol>{}</ol></nav>\n", sections.concat())
}

fn list(items: &[String]) -> String {
    let items: String = items.iter().map(|item| format!("<li>{}</li>\n", escaped(item))).collect();
    format!("<ul>\n{items}</ul>\n")
}

fn definitions(facts: &[(String, String)]) -> String {
    let rows: String =
        facts.iter().map(|(name, what)| format!("<dt>{}</dt><dd>{}</dd>\n", escaped(name), escaped(what))).collect();
    format!("<dl>\n{rows}</dl>\n")
}

fn in_rows(table: &Table) -> String {
    let mut html = String::from("<div class=\"wide\"><table>\n");
    if !table.caption.is_empty() {
        let _ = writeln!(html, "<caption>{}</caption>", escaped(&table.caption));
    }
    let class = |is_numeric: bool| if is_numeric { " class=\"n\"" } else { "" };
    let head: String = table
        .columns
        .iter()
        .map(|column| format!("<th scope=\"col\"{}>{}</th>", class(column.is_numeric), escaped(&column.name)))
        .collect();
    let _ = writeln!(html, "<thead><tr>{head}</tr></thead>\n<tbody>");
    for row in &table.rows {
        let cells: String =
            row.iter().zip(&table.columns).map(|(cell, column)| cell_of(cell, column.is_numeric)).collect();
        let _ = writeln!(html, "<tr>{cells}</tr>");
    }
    html + "</tbody>\n</table></div>\n"
}

fn cell_of(cell: &Cell, is_numeric: bool) -> String {
    let mark = match cell.mark {
        None => "",
        Some(Mark::Doubtful) => "doubtful",
        Some(Mark::Missing) => "missing",
        Some(Mark::Worse) => "worse",
        Some(Mark::Better) => "better",
        Some(Mark::Published) => "published",
    };
    let classes =
        [if is_numeric { "n" } else { "" }, mark].iter().filter(|c| !c.is_empty()).copied().collect::<Vec<_>>();
    let class = if classes.is_empty() { String::new() } else { format!(" class=\"{}\"", classes.join(" ")) };
    format!("<td{class}>{}</td>", escaped(&cell.text))
}

fn drawn(figure: &Figure) -> String {
    format!(
        "<figure role=\"img\" aria-label=\"{0}\">\n<figcaption>{0}</figcaption>\n{1}\n</figure>\n",
        escaped(&figure.title),
        figure.svg
    )
}

/// Text that stays text.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_result_file_says_stays_text() {
        let mut document = Document { title: "<script>".to_owned(), ..Document::default() };
        document.heading(2, "a & b");
        let mut table = Table::new("", &["who", "#how much"]);
        table.rows.push(vec!["<img src=x>".into(), Cell::marked("\u{2265} 7 *", Some(Mark::Doubtful))]);
        document.table(table);
        let html = page(&document);
        assert!(html.contains("<title>&lt;script&gt;</title>") && html.contains("a &amp; b"));
        assert!(html.contains("<td>&lt;img src=x&gt;</td><td class=\"n doubtful\">\u{2265} 7 *</td>"));
        assert!(!html.contains("<script") && !html.contains("http"));
    }
}
