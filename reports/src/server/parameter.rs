//! What a question may say: the parameters of an endpoint, for reading them and for the document.

use utoipa::PartialSchema;
use utoipa::openapi::path::{ParameterBuilder, ParameterIn, ParameterStyle};
use utoipa::openapi::schema::{ArrayBuilder, KnownFormat, ObjectBuilder, OneOfBuilder, Schema, SchemaFormat, Type};
use utoipa::openapi::{RefOr, Required};

use super::content_choice;

/// The most characters of a value.
pub(super) const LONGEST_VALUE: usize = 200;
/// The most values of a parameter that is a list.
pub(super) const MOST_VALUES: usize = 50;

/// A parameter of an endpoint.
#[derive(Clone)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    about: &'static str,
    is_in_path: bool,
    /// Whether it may be there several times.
    pub(super) is_list: bool,
    schema: RefOr<Schema>,
}

/// A number with its bounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounded {
    pub(super) name: &'static str,
    pub(super) least: u64,
    pub(super) most: u64,
    pub(super) default: u64,
}

/// How many rows a page has.
pub(super) const LIMIT: Bounded = Bounded { name: "limit", least: 1, most: 1000, default: 100 };
/// How many rows the pages before had.
pub(super) const CURSOR: Bounded = Bounded { name: "cursor", least: 0, most: 1_000_000_000, default: 0 };
/// How many attempts with everything that is known of them an answer has.
pub(super) const DETAILS: Bounded = Bounded { name: "limit", least: 1, most: 100, default: 20 };
/// How many complete runs tell whether a case flakes.
pub(super) const WINDOW: Bounded = Bounded { name: "window", least: 1, most: 365, default: crate::query::WINDOW as u64 };
/// The last event that is known.
pub(super) const AFTER: Bounded = Bounded { name: "after", least: 0, most: i64::MAX as u64, default: 0 };

impl Parameter {
    fn query(name: &'static str, about: &'static str, schema: impl Into<RefOr<Schema>>) -> Self {
        Self { name, about, is_in_path: false, is_list: false, schema: schema.into() }
    }

    /// A text.
    pub(super) fn text(name: &'static str, about: &'static str) -> Self {
        Self::query(name, about, text().build())
    }

    /// One of some words, or another text with a schema.
    pub(super) fn of<T: PartialSchema>(name: &'static str, about: &'static str) -> Self {
        Self::query(name, about, T::schema())
    }

    /// A number.
    pub(super) fn number(bounded: Bounded, about: &'static str) -> Self {
        let schema = ObjectBuilder::new()
            .schema_type(Type::Integer)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
            .minimum(Some(bounded.least as f64))
            .default(Some(bounded.default.into()));
        // The largest of all would lose its last digits as a floating-point number.
        let schema = if bounded.most < 1 << 53 { schema.maximum(Some(bounded.most as f64)) } else { schema };
        Self::query(bounded.name, about, schema.build())
    }

    /// `true` or `false`.
    pub(super) fn truth(name: &'static str, about: &'static str) -> Self {
        let schema = ObjectBuilder::new().schema_type(Type::Boolean).default(Some(false.into()));
        Self::query(name, about, schema.build())
    }

    /// A run.
    pub(super) fn run(about: &'static str) -> Self {
        Self::query("run", about, text().pattern(Some("^(latest(~[0-9]{1,6})?|[0-9a-f-]{1,36})$")).build())
    }

    /// A date or a duration before now.
    pub(super) fn since(about: &'static str) -> Self {
        Self::query("since", about, Schema::from(OneOfBuilder::new().item(date().build()).item(duration().build()).build()))
    }

    /// A run, a date, or a duration before the newer run.
    pub(super) fn since_run(about: &'static str) -> Self {
        let run = text().pattern(Some("^latest(~[0-9]{1,6})?$"));
        let schema = OneOfBuilder::new().item(run.build()).item(date().build()).item(duration().build());
        Self::query("since", about, Schema::from(schema.build()))
    }

    /// A duration.
    pub(super) fn duration(name: &'static str, about: &'static str, default: &'static str) -> Self {
        let some = duration().pattern(Some("^[1-9][0-9]{0,4}[mhdw]$"));
        Self::query(name, about, some.default(Some(default.into())).build())
    }

    /// How rows are written.
    pub(super) fn format() -> Self {
        let schema = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(content_choice::WORDS));
        Self::query("format", "How rows are written; else the header Accept says it, else JSON", schema.build())
    }

    /// Where a page goes on, as a number of rows.
    pub(super) fn cursor() -> Self {
        Self::number(CURSOR, "Where the page goes on: as the `Link` header of the page before has it")
    }

    /// Where a page goes on, as the last attempt of the page before.
    pub(super) fn attempt_cursor() -> Self {
        let place =
            text().pattern(Some("^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\\.[0-9a-f]{16}\\.[0-9]{1,9}$"));
        Self::query(CURSOR.name, "Where the page goes on: as the `Link` header of the page before has it", place.build())
    }

    /// It may be there several times: any of its values.
    pub(super) fn list(self) -> Self {
        let schema = ArrayBuilder::new().items(self.schema).max_items(Some(MOST_VALUES));
        Self { is_list: true, schema: schema.build().into(), ..self }
    }

    /// It stands in the path.
    pub(super) fn in_path(self) -> Self {
        Self { is_in_path: true, ..self }
    }

    /// Whether it stands in the query.
    pub(super) fn is_in_query(&self) -> bool {
        !self.is_in_path
    }

    /// As the document has it.
    pub(super) fn documented(&self) -> ParameterBuilder {
        let builder = ParameterBuilder::new().name(self.name).description(Some(self.about)).schema(Some(self.schema.clone()));
        match self.is_in_path {
            true => builder.parameter_in(ParameterIn::Path).required(Required::True),
            false if self.is_list => {
                let builder = builder.style(Some(ParameterStyle::Form)).explode(Some(true));
                builder.parameter_in(ParameterIn::Query).required(Required::False)
            }
            false => builder.parameter_in(ParameterIn::Query).required(Required::False),
        }
    }
}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).max_length(Some(LONGEST_VALUE))
}

fn date() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).format(Some(SchemaFormat::KnownFormat(KnownFormat::Date)))
}

fn duration() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).pattern(Some("^[0-9]{1,5}[mhdw]$"))
}
