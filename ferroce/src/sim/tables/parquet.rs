//! Tables as Parquet: columns of numbers are INT64, those of shares DOUBLE, those of text UTF-8, and nothing is
//! compressed except by its encoding.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
pub(in crate::sim) use parquet::record::Field;
use parquet::schema::types::Type;

use super::{Column, Table};

/// Rows that are looked at together.
const GROUP_ROWS: usize = 1 << 20;
/// Values that are copied together.
const BATCH: usize = 1 << 13;

/// Writes a table.
pub(super) fn write(table: &Table<'_>, file: File) -> io::Result<()> {
    write_all(table, file).map_err(|error| match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    })
}

fn write_all(table: &Table<'_>, file: File) -> Result<(), ParquetError> {
    let columns = table.columns.iter();
    let fields = columns.map(|(name, column)| Ok(Arc::new(field(name, column)?)));
    let fields = fields.collect::<Result<_, ParquetError>>()?;
    let schema = Type::group_type_builder(table.name).with_fields(fields);
    let properties = WriterProperties::builder().set_created_by("ferroce".to_owned());
    let mut writer = SerializedFileWriter::new(
        file,
        Arc::new(schema.build()?),
        Arc::new(properties.build()),
    )?;
    for from in (0..table.rows()).step_by(GROUP_ROWS) {
        let rows = from..table.rows().min(from + GROUP_ROWS);
        let mut group = writer.next_row_group()?;
        for (_, column) in &table.columns {
            // One for each field.
            if let Some(mut to) = group.next_column()? {
                write_column(column, rows.clone(), &mut to)?;
                to.close()?;
            }
        }
        group.close()?;
    }
    writer.close()?;
    Ok(())
}

/// Reads these columns of a table, row by row.
pub(in crate::sim) fn read(file: File, columns: &[&str]) -> Result<Vec<Vec<Field>>, ParquetError> {
    let reader = SerializedFileReader::new(file)?;
    let fields = reader.metadata().file_metadata().schema().get_fields();
    let place = |name: &&str| {
        let place = fields.iter().position(|it| it.name() == *name);
        place.ok_or_else(|| ParquetError::General(format!("no column {name}")))
    };
    let places = columns.iter().map(place).collect::<Result<Vec<_>, _>>()?;
    let rows = reader.get_row_iter(None)?.map(|row| {
        let row: Vec<_> = row?.into_columns();
        Ok(places.iter().map(|at| row[*at].1.clone()).collect())
    });
    rows.collect()
}

fn field(name: &str, column: &Column<'_>) -> Result<Type, ParquetError> {
    let (physical, logical, repetition) = match column {
        Column::Number(_) => (Physical::INT64, None, Repetition::REQUIRED),
        Column::Perhaps(_) => (Physical::INT64, None, Repetition::OPTIONAL),
        Column::Share(_) => (Physical::DOUBLE, None, Repetition::OPTIONAL),
        Column::Flag(_) => (Physical::BOOLEAN, None, Repetition::REQUIRED),
        Column::Text(_) | Column::Name(..) => {
            let text = Some(LogicalType::String);
            (Physical::BYTE_ARRAY, text, Repetition::REQUIRED)
        }
    };
    Type::primitive_type_builder(name, physical)
        .with_logical_type(logical)
        .with_repetition(repetition)
        .build()
}

fn write_column(
    column: &Column<'_>,
    rows: Range<usize>,
    to: &mut SerializedColumnWriter<'_>,
) -> Result<(), ParquetError> {
    match column {
        Column::Number(values) => {
            for values in values[rows].chunks(BATCH) {
                let values: Vec<i64> = values.iter().map(|it| signed(*it)).collect();
                to.typed::<Int64Type>().write_batch(&values, None, None)?;
            }
        }
        Column::Perhaps(values) => {
            write_optional::<Int64Type, _>(&values[rows], signed, to)?;
        }
        Column::Share(values) => write_optional::<DoubleType, _>(&values[rows], |it| it, to)?,
        Column::Text(values) => {
            for values in values[rows].chunks(BATCH) {
                let values: Vec<_> = values
                    .iter()
                    .map(|it| ByteArray::from(it.as_str()))
                    .collect();
                to.typed::<ByteArrayType>()
                    .write_batch(&values, None, None)?;
            }
        }
        Column::Flag(values) => {
            to.typed::<BoolType>()
                .write_batch(&values[rows], None, None)?;
        }
        Column::Name(places, names) => {
            let names: Vec<_> = names
                .iter()
                .map(|it| ByteArray::from(it.as_str()))
                .collect();
            for places in places[rows].chunks(BATCH) {
                let values: Vec<_> = places
                    .iter()
                    .map(|it| names[*it as usize].clone())
                    .collect();
                to.typed::<ByteArrayType>()
                    .write_batch(&values, None, None)?;
            }
        }
    }
    Ok(())
}

/// Writes values that not every row has.
fn write_optional<D: DataType, T: Copy>(
    values: &[Option<T>],
    to_written: fn(T) -> D::T,
    to: &mut SerializedColumnWriter<'_>,
) -> Result<(), ParquetError> {
    for values in values.chunks(BATCH) {
        let is_there: Vec<i16> = values.iter().map(|it| it.is_some().into()).collect();
        let values: Vec<_> = values.iter().flatten().map(|it| to_written(*it)).collect();
        to.typed::<D>()
            .write_batch(&values, Some(&is_there), None)?;
    }
    Ok(())
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use parquet::record::RowAccessor as _;

    use super::*;

    #[test]
    fn written_files_are_read() {
        let names = ["leaf0-h1".to_owned(), "häuser".to_owned()];
        let count = GROUP_ROWS + 5;
        let table = Table {
            name: "it",
            columns: vec![
                ("number", Column::Number((0..count as u64).collect())),
                (
                    "perhaps",
                    Column::Perhaps((0..count).map(|it| (it % 3 == 0).then_some(7)).collect()),
                ),
                (
                    "flag",
                    Column::Flag((0..count).map(|it| it % 2 == 0).collect()),
                ),
                (
                    "share",
                    Column::Share((0..count).map(|it| (it % 5 == 0).then_some(0.25)).collect()),
                ),
                (
                    "text",
                    Column::Text((0..count).map(|it| format!("h{}", it % 7)).collect()),
                ),
                (
                    "name",
                    Column::Name((0..count as u32).map(|it| it % 2).collect(), &names),
                ),
            ],
        };
        let file = tempfile::tempfile().unwrap();
        write(&table, file.try_clone().unwrap()).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        assert_eq!(reader.metadata().num_row_groups(), 2);
        let mut rows = 0;
        for row in reader.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            assert_eq!(row.get_long(0).unwrap(), rows as i64);
            assert_eq!(row.get_long(1).ok(), (rows % 3 == 0).then_some(7));
            assert_eq!(row.get_bool(2).unwrap(), rows % 2 == 0);
            assert_eq!(row.get_double(3).ok(), (rows % 5 == 0).then_some(0.25));
            assert_eq!(row.get_string(4).unwrap(), &format!("h{}", rows % 7));
            assert_eq!(row.get_string(5).unwrap(), &names[rows % 2]);
            rows += 1;
        }
        assert_eq!(rows, count);
    }

    #[test]
    fn a_table_without_rows_is_one() {
        let table = Table {
            name: "it",
            columns: vec![("number", Column::Number(Vec::new()))],
        };
        let file = tempfile::tempfile().unwrap();
        write(&table, file.try_clone().unwrap()).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        assert_eq!(reader.get_row_iter(None).unwrap().count(), 0);
    }
}
