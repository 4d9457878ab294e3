"""What each statement, function and setting of DuckDB may reach.

Whatever is not named here is refused under `allow` and `read_only`; a test compares the names
with those that the installed DuckDB has, and so shows what a new one brings.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Capability(Enum):
    """What something of DuckDB's can do."""

    HARMLESS = "only computes, or shows what the connection holds"
    READS = "reads files, of which DuckDB opens none but those that `allow` names"
    WRITES = "changes the database, files or the connection"
    REACHES = "goes past what `allow` can name: logs, the network, extensions, memory, other SQL"
    RELIED = "changes how Covey and DuckDB read a text and its names"


def _by_name(names: Mapping[Capability, str]) -> dict[str, Capability]:
    return {name: reach for reach, text in names.items() for name in text.split()}


# Kinds of `duckdb.StatementType`. SET, PRAGMA and CALL are judged by what they name besides.
STATEMENTS = _by_name(
    {
        Capability.HARMLESS: """
        CALL EXPLAIN MULTI PRAGMA SELECT TRANSACTION
    """,
        Capability.WRITES: """
        ALTER ANALYZE ATTACH COPY COPY_DATABASE CREATE CREATE_FUNC DELETE DETACH DROP
        EXECUTE EXPORT INSERT MERGE_INTO PREPARE SET UPDATE VACUUM VARIABLE_SET
    """,
        Capability.REACHES: """
        EXTENSION INVALID LOAD LOGICAL_PLAN RELATION
    """,
    }
)

# Names of `duckdb_settings()`, and old spellings that it still takes.
SETTINGS = _by_name(
    {
        Capability.HARMLESS: """
        allocator_background_threads allocator_bulk_deallocation_flush_threshold
        allocator_flush_threshold approximate_join_order_threshold arrow_large_buffer_size
        arrow_lossless_conversion arrow_output_list_view arrow_output_version
        asof_loop_join_threshold async_threads auto_checkpoint_skip_wal_threshold
        binary_as_string block_allocator_memory cache_local_files calendar
        catalog_error_max_schemas checkpoint_on_detach checkpoint_threshold
        current_transaction_invalidation_policy default_block_size default_collation
        default_null_order default_order default_transaction_invalidation_policy
        disable_parquet_prefetching disable_timestamptz_casts disabled_compression_methods
        disabled_optimizers dynamic_or_filter_threshold enable_external_file_cache
        enable_fsst_vectors enable_geoparquet_conversion enable_http_metadata_cache
        enable_macro_dependencies enable_optimistic_write enable_optimizer
        enable_progress_bar enable_progress_bar_print enable_view_dependencies
        explain_output external_file_cache_local_max_block_size
        external_file_cache_remote_max_block_size external_file_cache_remote_min_block_size
        external_file_cache_request_sizing external_threads force_compression fsync_mode
        geometry_minimum_shredding_size ieee_floating_point_ops ignore_unknown_crs
        immediate_transaction_mode index_scan_max_count index_scan_percentage
        initial_column_segment_size integer_division json_geometry_format
        late_materialization_max_rows lock_configuration max_execution_time max_memory
        max_streaming_buffer_size max_temp_directory_size max_vacuum_tasks memory_limit
        merge_join_threshold nested_loop_join_threshold null_order operator_memory_limit
        order_by_non_integer_literal ordered_aggregate_threshold pandas_analyze_sample
        parquet_can_have_nan parquet_metadata_cache parquet_prefetch_column_gap
        parquet_use_page_index partitioned_write_flush_threshold
        partitioned_write_max_open_files perfect_ht_threshold pin_threads
        pivot_filter_threshold pivot_limit prefer_range_joins prefetch_all_parquet_files
        preserve_identifier_case preserve_insertion_order profiling_coverage
        profiling_renderer_settings progress_bar_time read_ahead_depth
        scalar_subquery_error_on_multiple_rows scheduler_process_partial schema search_path
        show_behavior standard_vector_size storage_block_prefetch
        storage_compatibility_version streaming_buffer_size temp_file_encryption threads
        timezone tracked_metrics validate_external_file_cache
        variant_minimum_shredding_size wal_autocheckpoint wal_autocheckpoint_entries
        warnings_as_errors worker_threads write_buffer_row_group_count
        write_buffer_row_group_memory_limit zstd_min_string_length
    """,
        Capability.REACHES: """
        access_mode allow_community_extensions allow_extension_repositories
        allow_extensions_metadata_mismatch allow_persistent_secrets
        allow_unredacted_secrets allow_unsigned_extensions allowed_configs
        allowed_directories allowed_paths autoinstall_extension_repository
        autoinstall_known_extensions autoload_known_extensions custom_extension_repository
        custom_user_agent debug_checkpoint_scan_sleep_ms default_secret_storage
        disable_database_invalidation disabled_filesystems disabled_log_types duckdb_api
        enable_external_access enable_logging enable_profiling enabled_log_types
        errors_as_json extension_directories extension_directory
        extension_repository_directory external_file_cache_spill file_search_path
        home_directory http_client_pool_capacity http_proxy http_proxy_password
        http_proxy_username http_retry_quota_throttled http_retry_throttled_wait_ms
        log_query_path logging_level logging_mode logging_sink max_expression_depth
        password profile_output profiling_output redact_http_logs secret_directory
        temp_directory user username
    """,
        Capability.RELIED: """
        active_grammar_extensions allow_parser_override_extension current_dialect
        dialect_compatibility_mode python_enable_replacements python_scan_all_frames
    """,
    }
)

# Names of `duckdb_functions()`, in lower case: functions, table functions, macros and pragmas.
FUNCTIONS = _by_name(
    {
        Capability.READS: """
        glob parquet_bloom_probe parquet_file_metadata parquet_full_metadata
        parquet_kv_metadata parquet_metadata parquet_page_index parquet_scan parquet_schema
        read_blob read_csv read_csv_auto read_duckdb read_json read_json_auto
        read_json_objects read_json_objects_auto read_ndjson read_ndjson_auto
        read_ndjson_objects read_parquet read_single_csv_file read_single_json_file
        read_single_parquet_file read_text sniff_csv
    """,
        Capability.WRITES: """
        add_parquet_key checkpoint copy_database disable_checkpoint_on_shutdown
        disable_logging disable_object_cache disable_optimizer disable_print_progress_bar
        disable_profile disable_profiling disable_progress_bar disable_verification
        disable_verify_parallelism enable_checkpoint_on_shutdown enable_object_cache
        enable_optimizer enable_print_progress_bar enable_progress_bar enable_verification
        force_checkpoint nextval setval truncate_duckdb_logs verify_parallelism write_log
    """,
        Capability.REACHES: """
        add_grammar_extension arrow_scan arrow_scan_dumb create_external_resource
        deregister_external_resource destroy_external_resource
        duckdb_extension_repositories duckdb_extensions duckdb_external_resources
        duckdb_secrets enable_logging enable_profile enable_profiling extension_versions
        import_database json_execute_serialized_sql pandas_scan python_arrow_scan
        python_map_function query query_table register_external_resource
        register_external_resource_type remove_grammar_extension seq_scan which_secret
    """,
        Capability.HARMLESS: """
        != !__postfix !~~ !~~* % & && * ** + - ->> / // < <-> << <= <=> <@ = > >= >> @
        @> ^ ^@ __between __cast __internal_barrier __internal_compress_geometry_point
        __internal_compress_integral_ubigint __internal_compress_integral_uinteger
        __internal_compress_integral_usmallint __internal_compress_integral_utinyint
        __internal_compress_string_hugeint __internal_compress_string_ubigint
        __internal_compress_string_uhugeint __internal_compress_string_uinteger
        __internal_compress_string_usmallint __internal_compress_string_utinyint
        __internal_compressed_materialization_cast __internal_decompress_geometry_point
        __internal_decompress_integral_bigint __internal_decompress_integral_hugeint
        __internal_decompress_integral_integer __internal_decompress_integral_smallint
        __internal_decompress_integral_ubigint __internal_decompress_integral_uhugeint
        __internal_decompress_integral_uinteger __internal_decompress_integral_usmallint
        __internal_decompress_string __internal_json_copy_to_geojson
        __internal_json_copy_to_json __internal_tablefilter_bloom_filter
        __internal_tablefilter_dynamic __internal_tablefilter_optional
        __internal_tablefilter_prefix_range __internal_tablefilter_selectivity_optional
        abs acos acosh add age aggregate ago alias any_value apply approx_count_distinct
        approx_quantile approx_top_k arbitrary arg_max arg_max_null arg_max_nulls_last
        arg_min arg_min_null arg_min_nulls_last argmax argmin array_agg array_aggr
        array_aggregate array_append array_apply array_cat array_concat array_contains
        array_cosine_distance array_cosine_similarity array_cross_product array_distance
        array_distinct array_dot_product array_extract array_filter array_grade_up
        array_has array_has_all array_has_any array_indexof array_inner_product
        array_intersect array_length array_negative_dot_product
        array_negative_inner_product array_pop_back array_pop_front array_position
        array_prepend array_push_back array_push_front array_reduce array_resize
        array_reverse array_reverse_sort array_select array_slice array_sort
        array_to_json array_to_string array_to_string_comma_default array_transform
        array_unique array_value array_where array_zip ascii asin asinh assert_true atan
        atan2 atanh avg bar base64 bin binom bit_and bit_count bit_length bit_or
        bit_position bit_xor bitstring bitstring_agg bitstring_byte_comparable bool_and
        bool_or can_cast_implicitly cardinality cast_to_type cbrt ceil ceiling century
        char_length character_length chr col_description collations combine combine_aggr
        concat concat_ws constant_or_null contains corr cos cosh cot count count_if
        count_star countif covar_pop covar_samp create_sort_key cume_dist
        current_catalog current_connection_id current_database current_date
        current_localtime current_localtimestamp current_query current_query_id
        current_role current_schema current_schemas current_setting
        current_transaction_id current_user currval damerau_levenshtein database_list
        database_size date_add date_diff date_part date_sub date_trunc datediff datepart
        datesub datetrunc day dayname dayofmonth dayofweek dayofyear days_in_month
        decade decimal_average decimal_division decode degrees dense_rank divide
        duckdb_approx_database_count duckdb_available_metrics duckdb_columns
        duckdb_connection_count duckdb_constraints duckdb_coordinate_systems
        duckdb_databases duckdb_dependencies duckdb_dialects duckdb_eviction_queues
        duckdb_external_file_cache duckdb_external_resource_types duckdb_functions
        duckdb_grammar_extensions duckdb_indexes duckdb_keywords
        duckdb_live_query_metrics duckdb_log_contexts duckdb_logs duckdb_logs_parsed
        duckdb_memory duckdb_optimizers duckdb_prepared_statements
        duckdb_profiling_settings duckdb_schemas duckdb_secret_type_parameters
        duckdb_secret_types duckdb_sequences duckdb_settings duckdb_table_sample
        duckdb_tables duckdb_temporary_files duckdb_triggers duckdb_types
        duckdb_variables duckdb_views editdist3 element_at encode ends_with entropy
        enum_code enum_first enum_last enum_range enum_range_boundary epoch epoch_ms
        epoch_ns epoch_us equi_width_bins era error even exp factorial favg fdiv fill
        filter finalize first first_value flatten floor fmod format format_bytes
        format_pg_type format_type formatreadabledecimalsize formatreadablesize
        from_base64 from_binary from_hex from_json from_json_strict fsum functions gamma
        gcd gen_random_uuid generate_series generate_subscripts geomean geometric_mean
        get_bit get_block_size get_current_time get_current_timestamp get_type
        getvariable grade_up greatest greatest_common_divisor group_concat hamming
        has_any_column_privilege has_column_privilege has_database_privilege
        has_foreign_data_wrapper_privilege has_function_privilege has_language_privilege
        has_schema_privilege has_sequence_privilege has_server_privilege
        has_table_privilege has_tablespace_privilege hash hex histogram histogram_exact
        histogram_values hive_partition_component hour icu_calendar_names icu_sort_key
        if ilike_escape in_search_path index_key inet_client_addr inet_client_port
        inet_server_addr inet_server_port instr invoke is_histogram_other_bin isfinite
        isinf isnan isodow isoyear jaccard jaro_similarity jaro_winkler_similarity json
        json_array json_array_length json_contains json_copy_strftime_if_date
        json_copy_strftime_if_timestamp json_deep_merge json_deserialize_sql json_each
        json_exists json_extract json_extract_path json_extract_path_text
        json_extract_string json_group_array json_group_object json_group_structure
        json_insert json_keys json_merge_patch json_merge_patch_diff json_normalize
        json_object json_pretty json_quote json_remove json_replace json_serialize_plan
        json_serialize_sql json_set json_strip_nulls json_structure json_transform
        json_transform_strict json_tree json_type json_valid json_value julian kahan_sum
        kurtosis kurtosis_pop lag last last_day last_value lcase lcm lead least
        least_common_multiple left left_grapheme len length length_grapheme levenshtein
        lgamma like_escape list list_aggr list_aggregate list_any_value list_append
        list_apply list_approx_count_distinct list_avg list_bit_and list_bit_or
        list_bit_xor list_bool_and list_bool_or list_cat list_concat list_contains
        list_cosine_distance list_cosine_similarity list_count list_distance
        list_distinct list_dot_product list_element list_entropy list_extract
        list_filter list_first list_grade_up list_has list_has_all list_has_any
        list_histogram list_indexof list_inner_product list_intersect list_kurtosis
        list_kurtosis_pop list_last list_mad list_max list_median list_min list_mode
        list_negative_dot_product list_negative_inner_product list_pack list_position
        list_prepend list_product list_reduce list_resize list_reverse list_reverse_sort
        list_select list_sem list_skewness list_slice list_sort list_stddev_pop
        list_stddev_samp list_string_agg list_sum list_transform list_unique list_value
        list_var_pop list_var_samp list_where list_zip listagg ln log log10 log2 lower
        lpad ltrim lttb mad make_date make_time make_timestamp make_timestamp_ms
        make_timestamp_ns make_timestamptz make_type map map_concat map_contains
        map_contains_entry map_contains_value map_entries map_extract map_extract_value
        map_from_entries map_keys map_to_pg_oid map_type_id_to_pg_oid map_values max
        max_by md5 md5_number md5_number_lower md5_number_upper mean median
        metadata_info microsecond millennium millisecond min min_by minute mismatches
        mod mode month monthname multiply nanosecond nextafter nfc_normalize
        normalized_interval not_ilike_escape not_like_escape now nth_value ntile nullif
        obj_description octet_length ord overlay parse_dirname parse_dirpath
        parse_duckdb_log_message parse_filename parse_formatted_bytes parse_path
        path_join percent_rank pg_collation_is_visible pg_conf_load_time
        pg_conversion_is_visible pg_function_is_visible pg_get_constraintdef pg_get_expr
        pg_get_viewdef pg_has_role pg_is_other_temp_schema pg_my_temp_schema
        pg_opclass_is_visible pg_operator_is_visible pg_opfamily_is_visible
        pg_postmaster_start_time pg_size_pretty pg_sleep pg_table_is_visible
        pg_timezone_names pg_ts_config_is_visible pg_ts_dict_is_visible
        pg_ts_parser_is_visible pg_ts_template_is_visible pg_type_is_visible pg_typeof
        pi platform position pow power pragma_collations pragma_database_size
        pragma_metadata_info pragma_platform pragma_show pragma_storage_info
        pragma_table_info pragma_user_agent pragma_version prefix printf product
        quantile quantile_cont quantile_disc quarter radians random range rank
        rank_dense reduce regexp_escape regexp_extract regexp_extract_all
        regexp_full_match regexp_matches regexp_replace regexp_split_to_array
        regexp_split_to_table regr_avgx regr_avgy regr_count regr_intercept regr_r2
        regr_slope regr_sxx regr_sxy regr_syy remap_struct repeat repeat_row replace
        replace_type reservoir_quantile reverse right right_grapheme round round_even
        roundbankers row row_number row_to_json rpad rtrim second sem session_user
        set_bit setseed sha1 sha256 shobj_description show show_databases show_tables
        show_tables_expanded sign signbit sin sinh skewness sleep_ms split split_part
        sqrt st_asbinary st_asgeojson st_astext st_aswkb st_aswkt st_crs
        st_geomfromgeojson st_geomfromwkb st_intersects_extent st_setcrs starts_with
        stats stddev stddev_pop stddev_samp storage_info str_split str_split_regex
        strftime string_agg string_split string_split_regex string_to_array
        strip_accents strlen strpos strptime struct_concat struct_contains
        struct_extract struct_extract_at struct_has struct_indexof struct_insert
        struct_keys struct_pack struct_position struct_update struct_values substr
        substring substring_grapheme subtract suffix sum sum_no_overflow sumkahan
        summary switch table_info tan tanh test_all_types test_vector_types time_bucket
        timetz_byte_comparable timezone timezone_hour timezone_minute to_aggregate_state
        to_base to_base64 to_binary to_centuries to_days to_decades to_hex to_hours
        to_json to_microseconds to_millennia to_milliseconds to_minutes to_months
        to_quarters to_seconds to_timestamp to_weeks to_years today
        transaction_timestamp translate trim trunc try_strptime txid_current typeof
        ucase unbin unhex unicode union_extract union_tag union_value unnest
        unpivot_list upper url_decode url_encode user user_agent uuid
        uuid_extract_timestamp uuid_extract_version uuidv4 uuidv7 var_pop var_samp
        variance variant_array_length variant_bytes_to_variant variant_comparator
        variant_contains variant_exists variant_extract variant_extract_string
        variant_group_array variant_group_object variant_keys variant_normalize
        variant_to_parquet_variant variant_type variant_typeof vector_type version
        vertex_extract wavg week weekday weekofyear weighted_avg xor year yearweek | ||
        ~ ~~ ~~* ~~~
    """,
    }
)

# Languages and countries whose order of texts DuckDB knows, each by two functions.
_COLLATIONS = """
    aa af am ar ar_sa as az bal be bg blo bn bo br bs ca ceb chr cs cu cy da de de_at
    dsb dz ee el en en_us eo es et fa fa_af ff fi fil fo fr fr_ca fy ga gl gu ha haw he
    he_il hi hr hsb hu hy id id_id ig is it ja ka kk kl km kn ko kok ku ky lb lij lkt ln
    lo lt lv mk ml mn mr ms mt my nb nb_no ne nl nn no noaccent nso om or pa pa_in pl ps
    pt ro ru sa se sgs si sk sl smn sq sr sr_ba sr_me sr_rs ssy st sv sw ta te th tk tn
    to tr ug uk ur uz vi vo wae wo xh yi yo zh zh_cn zh_hk zh_mo zh_sg zh_tw zu
"""
FUNCTIONS |= {
    f"{kind}_{name}": Capability.HARMLESS
    for name in _COLLATIONS.split()
    for kind in ("collate", "icu_collate")
}
