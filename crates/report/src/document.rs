//! The page before it is HTML or Markdown: headings, facts, tables, figures.

/// A page.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// Its title.
    pub title: String,
    /// From top to bottom.
    pub blocks: Vec<Block>,
}

/// A part of a page.
#[derive(Clone, Debug)]
pub enum Block {
    /// A heading; 2 is the highest below the title.
    Heading(u8, String),
    /// A paragraph.
    Text(String),
    /// A list.
    List(Vec<String>),
    /// Names and what they are.
    Facts(Vec<(String, String)>),
    /// A table.
    Table(Table),
    /// A drawing.
    Figure(Figure),
}

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// A cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

/// A column.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its name, with the unit where all of it has one.
    pub name: String,
    /// Whether it holds numbers.
    pub is_numeric: bool,
}

/// A cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// What it says; its mark is in it as well, for those who see no colours.
    pub text: String,
    /// Its mark.
    pub mark: Option<Mark>,
}

/// What a reader must not overlook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A bound, or a value with a footnote.
    Doubtful,
    /// No value.
    Missing,
    /// Worse than before, or than what is asked for.
    Worse,
    /// Better than before, or as asked for.
    Better,
    /// Somebody else's.
    Published,
}

/// A drawing.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What it shows; also for those who do not see it.
    pub title: String,
    /// The drawing (SVG).
    pub svg: String,
}

impl Document {
    pub(crate) fn heading(&mut self, level: u8, text: impl Into<String>) {
        self.blocks.push(Block::Heading(level, text.into()));
    }

    pub(crate) fn text(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Text(text.into()));
    }

    pub(crate) fn list(&mut self, items: Vec<String>) {
        if !items.is_empty() {
            self.blocks.push(Block::List(items));
        }
    }

    pub(crate) fn facts(&mut self, facts: Vec<(String, String)>) {
        self.blocks.push(Block::Facts(facts));
    }

    pub(crate) fn table(&mut self, table: Table) {
        if !table.rows.is_empty() {
            self.blocks.push(Block::Table(table));
        }
    }

    pub(crate) fn figure(&mut self, title: impl Into<String>, svg: String) {
        self.blocks.push(Block::Figure(Figure { title: title.into(), svg }));
    }
}

impl Table {
    /// A table without rows; columns whose name begins with `#` hold numbers.
    pub(crate) fn new(caption: impl Into<String>, columns: &[&str]) -> Table {
        let column = |name: &&str| match name.strip_prefix('#') {
            Some(name) => Column { name: name.to_owned(), is_numeric: true },
            None => Column { name: (*name).to_owned(), is_numeric: false },
        };
        Table { caption: caption.into(), columns: columns.iter().map(column).collect(), rows: Vec::new() }
    }
}

impl Cell {
    /// A cell with a mark.
    pub(crate) fn marked(text: impl Into<String>, mark: Option<Mark>) -> Cell {
        Cell { text: text.into(), mark }
    }

    /// No value.
    pub(crate) fn missing() -> Cell {
        Cell::marked("\u{2013}", Some(Mark::Missing))
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell { text: text.into(), mark: None }
    }
}
