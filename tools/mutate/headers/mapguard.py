"""Mutants of the handler of SIGBUS."""

from tools.mutate.headers.mutant import mutants_of

guard = mutants_of("msgq/impl/base/mapguard.h", "mapguard")

MUTANTS = [
    guard(
        "a fault is not noted",
        "mq_store_release_u64(&guard->not_truncated, 0);",
        "",
        "fault_replaces_the_whole_mapping_by_zeros_and_notes_it",
        "fault_replaces_the_partner_as_well",
        "partner_of_a_mapping_that_was_replaced_is_reported",
    ),
    guard(
        "the byte after a mapping is its own",
        "address - start < guard->bytes)",
        "address - start <= guard->bytes)",
        "guard_is_held_up_to_the_end_of_its_mapping",
    ),
    guard(
        "the partner of a mapping stays",
        "mq_sigbus_guard *partner = replaced ? mq_sigbus_guard_pin_partner(guard) : NULL;",
        "mq_sigbus_guard *partner = NULL;",
        "fault_replaces_the_partner_as_well",
    ),
    guard(
        "a partner stays held",
        "mq_fetch_add_u32(&guard->inside, (uint32_t)-1); guard = partner;",
        "if (partner) mq_fetch_add_u32(&guard->inside, (uint32_t)-1); guard = partner;",
        "fault_replaces_the_partner_as_well",
        "fault_replaces_the_partner_of_the_partner",
    ),
    guard(
        "the partner of a partner stays",
        "mq_fetch_add_u32(&guard->inside, (uint32_t)-1); guard = partner;",
        "mq_fetch_add_u32(&guard->inside, (uint32_t)-1); "
        "if (partner) mq_fetch_add_u32(&partner->inside, (uint32_t)-1); guard = NULL;",
        "fault_replaces_the_partner_of_the_partner",
    ),
    guard(
        "pairing does not report a mapping that was replaced",
        "mq_fence_seq_cst(); return mq_load_acquire_u64(&guard->not_truncated) == 1;",
        "mq_fence_seq_cst(); return true;",
        "partner_of_a_mapping_that_was_replaced_is_reported",
    ),
    guard(
        "a removed guard keeps its partner",
        "mq_store_release_u64(&guard->partner, 0); mq_store_release_u64(&guard->start, 0);",
        "mq_store_release_u64(&guard->start, 0);",
        "removed_guard_is_used_again_without_its_partner",
    ),
    # Equivalent: mq_sigbus_guard_pin_address without `start > 1`. No mapping is as large as the distance
    # from there to an address.
    guard(
        "signals of others are dropped",
        "if (!address || !mq_sigbus_guard_replace_mapping(address)) mq_sigbus_guard_forward_signal(number, "
        "info, context);",
        "if (address) mq_sigbus_guard_replace_mapping(address); else (void)number, (void)context;",
        "signal_without_a_guard_is_passed_on",
    ),
]
