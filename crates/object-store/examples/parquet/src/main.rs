//! Writes a table to a DAFS server as a Parquet object, in parts, and reads some of it back: one
//! column of some row groups, by ranges.
//!
//! `cargo run -- dafs://host/directory`
#![expect(deprecated, reason = "parquet 60 wants its traits implemented by the caller in future")]

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use dafs_object_store::DafsStoreBuilder;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::async_reader::ParquetObjectReader;
use parquet::arrow::async_writer::ParquetObjectWriter;
use parquet::arrow::{AsyncArrowWriter, ParquetRecordBatchStreamBuilder, ProjectionMask};
use parquet::file::properties::WriterProperties;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("usage: dafs-parquet-example URL")?;
    let store: Arc<dyn ObjectStore> = Arc::new(DafsStoreBuilder::from_url(&url)?.build()?);
    let path = Path::from("table/part-0.parquet");

    let batch = |first: i64| -> Result<RecordBatch, Box<dyn std::error::Error>> {
        let numbers = first..first + ROWS;
        let names = numbers.clone().map(|number| format!("row {number}"));
        Ok(RecordBatch::try_from_iter([
            ("number", Arc::new(Int64Array::from_iter_values(numbers)) as ArrayRef),
            ("name", Arc::new(StringArray::from_iter_values(names)) as ArrayRef),
        ])?)
    };
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(ROWS as usize));
    let writer = ParquetObjectWriter::new(store.clone(), path.clone());
    let schema = batch(0)?.schema();
    let mut writer = AsyncArrowWriter::try_new(writer, schema, Some(properties.build()))?;
    for group in 0..GROUPS {
        writer.write(&batch(group * ROWS)?).await?;
    }
    writer.close().await?;

    let meta = store.head(&path).await?;
    let reader = ParquetObjectReader::new(store.clone(), path.clone()).with_file_size(meta.size);
    let builder = ParquetRecordBatchStreamBuilder::new(reader).await?;
    let wanted = ProjectionMask::columns(builder.parquet_schema(), ["number"]);
    let stream = builder.with_projection(wanted).with_row_groups(vec![1, 3]).build()?;
    let batches: Vec<RecordBatch> = stream.try_collect().await?;
    let numbers = batches
        .iter()
        .flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().iter().copied());
    let expected = (ROWS..2 * ROWS).chain(3 * ROWS..4 * ROWS);
    assert!(numbers.eq(expected), "the rows differ");
    println!("{} bytes written, {} rows read back", meta.size, 2 * ROWS);
    Ok(())
}

/// Rows of a row group.
const ROWS: i64 = 200_000;
/// Row groups.
const GROUPS: i64 = 5;
