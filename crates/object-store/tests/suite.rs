//! `object_store`'s own tests of stores.

use object_store::integration;

use crate::server::{Served, TRANSPORTS};

/// Runs each function on a store of its own, over each transport.
macro_rules! suite {
    ($($name:ident: |$store:ident| $run:expr;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let served = Served::start();
            for transport in TRANSPORTS {
                let $store = &served.store(transport, &format!("/{transport:?}/store"));
                $run;
                assert!(served.temporary_files().is_empty(), "{:?}", served.temporary_files());
            }
        }
    )*};
}

suite! {
    objects_are_put_got_deleted_and_listed: |store| integration::put_get_delete_list(store).await;
    attributes_are_refused: |store| integration::put_get_attributes(store).await;
    gets_have_conditions: |store| integration::get_opts(store).await;
    puts_have_conditions: |store| integration::put_opts(store, true).await;
    objects_are_uploaded_in_parts_and_streamed: |store| integration::stream_get(store).await;
    directories_are_no_objects: |store| integration::list_uses_directories_correctly(store).await;
    listings_stop_at_delimiters: |store| integration::list_with_delimiter(store).await;
    what_is_not_there_is_not_found: |store| {
        integration::get_nonexistent_object(store, None).await.unwrap_err()
    };
    objects_are_renamed_and_copied: |store| integration::rename_and_copy(store).await;
    copies_can_be_exclusive: |store| integration::copy_if_not_exists(store).await;
    what_is_not_there_is_not_copied: |store| {
        integration::copy_rename_nonexistent_object(store).await
    };
    the_last_of_two_uploads_wins: |store| {
        integration::multipart_race_condition(store, true).await
    };
    parts_come_in_any_order: |store| integration::multipart_out_of_order(store).await;
    listings_begin_behind_their_offset: |store| {
        integration::list_with_offset_exclusivity(store).await
    };
}

/// Where the server's file system makes no files without names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn puts_into_temporary_files_with_names_are_the_same() {
    let served = Served::start();
    for transport in TRANSPORTS {
        let root = format!("/{transport:?}");
        let store = served.builder(transport, &root).with_named_temporaries(true).build().unwrap();
        integration::put_opts(&store, true).await;
        integration::rename_and_copy(&store).await;
        integration::put_get_delete_list(&store).await;
        assert!(served.temporary_files().is_empty(), "{:?}", served.temporary_files());
    }
}
