//! The drawings of a page as files of their own, for other pages: named for their section and title.

use std::collections::BTreeMap;

use crate::document::{Block, Document};
use crate::plot;

/// Names without an ending, and drawings that stand alone.
#[must_use]
pub fn files(page: &Document) -> Vec<(String, String)> {
    let (mut section, mut known) = (String::new(), BTreeMap::<String, u32>::new());
    let mut files = Vec::new();
    for block in &page.blocks {
        match block {
            Block::Heading(2, text) => section = slug(text.split(':').next().unwrap_or_default()),
            Block::Figure(figure) => {
                let title = figure.title.split(" (").next().unwrap_or_default();
                let name = format!("{section}-{}", slug(title));
                let count = known.entry(name.clone()).and_modify(|count| *count += 1).or_insert(1);
                let name = if *count == 1 { name } else { format!("{name}-{count}") };
                files.push((name, plot::standalone(&figure.svg)));
            }
            _ => {}
        }
    }
    files
}

/// Letters and digits, with hyphens for what is between them.
fn slug(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawings_are_named_for_their_section_and_title() {
        let mut page = Document::default();
        page.heading(2, "draft-figure-4: stateful NAT44");
        for _ in 0..2 {
            page.figure("throughput against connections (more is better)", "<svg><g/></svg>".to_owned());
        }
        let names: Vec<String> = files(&page).into_iter().map(|(name, _)| name).collect();
        let name = "draft-figure-4-throughput-against-connections";
        assert_eq!(names, [name.to_owned(), format!("{name}-2")]);
        assert!(files(&page)[0].1.contains("prefers-color-scheme"), "light and dark");
    }
}
