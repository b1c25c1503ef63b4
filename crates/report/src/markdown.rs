//! The page as Markdown; drawings are files beside it.

use std::fmt::Write as _;

use crate::document::{Block, Document, Table};

/// The text, and the drawings by the names that it calls them: `stem-1.svg`, ...
#[must_use]
pub fn page(document: &Document, stem: &str) -> (String, Vec<(String, String)>) {
    let mut text = format!("# {}\n", line(&document.title));
    let mut figures = Vec::new();
    for block in &document.blocks {
        text.push('\n');
        match block {
            Block::Heading(level, heading) => {
                let _ = writeln!(text, "{} {}", "#".repeat(usize::from(*level)), line(heading));
            }
            Block::Text(paragraph) => {
                let _ = writeln!(text, "{}", line(paragraph));
            }
            Block::List(items) => items.iter().for_each(|item| {
                let _ = writeln!(text, "- {}", line(item));
            }),
            Block::Facts(facts) => {
                text += "| | |\n|---|---|\n";
                for (name, what) in facts {
                    let _ = writeln!(text, "| {} | {} |", line(name), line(what));
                }
            }
            Block::Table(table) => text += &in_rows(table),
            Block::Figure(figure) => {
                let name = format!("{stem}-{}.svg", figures.len() + 1);
                let _ = writeln!(text, "![{}]({name})", line(&figure.title));
                figures.push((name, figure.svg.clone()));
            }
        }
    }
    (text, figures)
}

fn in_rows(table: &Table) -> String {
    let mut text = String::new();
    if !table.caption.is_empty() {
        let _ = writeln!(text, "{}\n", line(&table.caption));
    }
    let cells = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    text += &cells(table.columns.iter().map(|column| line(&column.name)).collect());
    let rule = |is_numeric: bool| if is_numeric { "---:" } else { "---" }.to_owned();
    text += &cells(table.columns.iter().map(|column| rule(column.is_numeric)).collect());
    for row in &table.rows {
        text += &cells(row.iter().map(|cell| line(&cell.text)).collect());
    }
    text
}

/// One line that opens neither a cell nor a tag.
fn line(text: &str) -> String {
    text.replace(['\n', '\r'], " ").replace('|', "\\|").replace('<', "&lt;").replace('*', "\\*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_stays_in_its_column_and_figures_are_files() {
        let mut document = Document { title: "results".to_owned(), ..Document::default() };
        let mut table = Table::new("rates", &["who", "#rate"]);
        table.rows.push(vec!["a|b".into(), "1 *".into()]);
        document.table(table);
        document.figure("a plot", "<svg/>".to_owned());
        let (text, figures) = page(&document, "report");
        assert!(text.contains("| who | rate |\n| --- | ---: |\n| a\\|b | 1 \\* |\n"), "{text}");
        assert!(text.contains("![a plot](report-1.svg)"));
        assert_eq!(figures, [("report-1.svg".to_owned(), "<svg/>".to_owned())]);
    }
}
