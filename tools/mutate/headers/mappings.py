"""Mutants of shared mappings."""

from tools.mutate.headers.mutant import mutants_of

mapping = mutants_of("msgq/impl/base/mapping.h", "mappings")

MUTANTS = [
    mapping(
        "a mapping without users is found",
        "return mapping->users && mapping->inode",
        "return mapping->inode",
        "child_that_was_forked_under_the_lock_of_the_table_can_map_files",
    ),
    mapping(
        "a truncated mapping is found",
        "guarded == (mapping->guard != NULL) && !mq_mapping_was_truncated(mapping->not_truncated);",
        "guarded == (mapping->guard != NULL);",
        "truncated_mapping_is_not_shared",
    ),
    mapping(
        "a read-only mapping is found for a writer",
        "mapping->writable == writable &&",
        "",
        "read_only_and_partly_writable_mappings_are_not_the_writable_one",
    ),
    mapping(
        "a mapping of more blocks is found",
        "mapping->blocks <= found->st_blocks &&",
        "",
        "new_handle_gets_no_mapping_of_another_file_size_setting_or_of_fewer_blocks",
    ),
    mapping(
        "an unguarded mapping is found",
        "guarded == (mapping->guard != NULL) &&",
        "",
        "new_handle_gets_no_mapping_of_another_file_size_setting_or_of_fewer_blocks",
    ),
    mapping(
        "a new user is no holder",
        "mapping->holders++;\n        mq_fence_compiler();",
        "mq_fence_compiler();",
        "handles_share_the_mapping_of_a_whole_file_until_the_last_releases_it",
    ),
    mapping(
        "the last user leaves the file to a holder",
        "if (is_last && is_needed)",
        "if (false && is_last && is_needed)",
        "last_user_leaves_private_memory_with_the_kept_bytes_to_a_holder",
        "private_memory_of_a_mapping_without_kept_bytes_is_zeros",
    ),
    mapping(
        "each user takes the file from the others",
        "if (is_last && is_needed)",
        "if (is_needed)",
        "mapping_with_other_users_keeps_its_file",
    ),
    mapping(
        "the last kept bytes are lost",
        "page < kept &&",
        "page + MQ_KEPT_STEP_BYTES <= kept &&",
        "last_user_leaves_private_memory_with_the_kept_bytes_to_a_holder",
    ),
    mapping(
        "the partner is not held",
        "partner->holders++;",
        "",
        "partner_stays_mapped_until_the_end_of_the_first_mapping",
    ),
    mapping(
        "the previous partner is forgotten",
        "mq_mapping_pair_locked(partner, former);",
        "(void)0;",
        "truncation_of_the_first_mapping_reaches_previous_and_new_partners",
    ),
    mapping(
        "the previous partner keeps its holder",
        "former->holders--;",
        "",
        "truncation_of_the_first_mapping_reaches_previous_and_new_partners",
    ),
    mapping(
        "a child waits for a thread of its parent",
        "reset_in_child(mq_mapping_table *table) { mq_mapping_table_unlock(table); }",
        "reset_in_child(mq_mapping_table *table) { (void)table; }",
        "child_that_was_forked_under_the_lock_of_the_table_can_map_files",
    ),
]
