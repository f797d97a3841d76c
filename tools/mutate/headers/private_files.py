"""Mutants of private files, the files of a bus."""

from tools.mutate.headers.mutant import mutants_of

private_file = mutants_of("msgq/impl/base/private_file.h", "private_files")
mapping = mutants_of("msgq/impl/base/mapping.h", "private_files")
file = mutants_of("msgq/impl/base/file.h", "private_files")

MUTANTS = [
    private_file(
        "a file without a name is found",
        "while (file && !(file->is_named && strcmp(file->path, path) == 0))",
        "while (file && strcmp(file->path, path) != 0)",
        "new_file_is_found_by_its_path_once_it_has_its_name",
    ),
    private_file(
        "a name is given twice",
        "bool is_free = file && !mq_private_find_path(files, file->path);",
        "bool is_free = file != NULL;",
        "name_that_another_file_has_is_refused_and_both_files_stay",
    ),
    private_file(
        "a removed file ends under a mapping",
        "if (file->users || file->locked_rows",
        "if (file->locked_rows",
        "removed_file_stays_until_its_last_mapping_ends",
    ),
    private_file(
        "a removed file ends under the lock of a row",
        "if (file->users || file->locked_rows",
        "if (file->users",
        "locked_row_keeps_a_removed_file",
    ),
    private_file(
        "the last lock of a row does not end the file",
        "*link = lock->next; mq_private_file_collect(lock->file);",
        "*link = lock->next;",
        "locked_row_keeps_a_removed_file",
    ),
    private_file(
        "a bus ends others whose number begins with its own",
        "if (strncmp(file->path, bus, length) == 0 && file->path[length] == '/')",
        "if (strncmp(file->path, bus, length) == 0)",
        "end_of_a_bus_removes_its_files_alone",
    ),
    private_file(
        "the end of a bus leaves pinned files",
        "file->is_named = file->is_pinned = false, file->was_named = true;",
        "file->is_named = false, file->was_named = true;",
        "pinned_file_stays_until_its_bus_ends",
    ),
    private_file(
        "a pinned file ends with its last mapping",
        "file->locked_rows || file->is_pinned",
        "file->locked_rows",
        "pinned_file_stays_until_its_bus_ends",
    ),
    private_file(
        "the end of a bus leaves files without a name",
        "file->is_named = file->is_pinned = false, file->was_named = true;",
        "file->is_named = file->is_pinned = false;",
        "end_of_a_bus_removes_its_files_alone",
    ),
    private_file(
        "a file grows beyond its address space",
        "if (bytes > file->room) return ENOSPC;",
        "",
        "file_grows_where_it_is_and_keeps_its_bytes",
    ),
    private_file(
        "a locked row is locked again",
        "bool is_held = !shared && mq_private_is_locked(file, row);",
        "bool is_held = false;",
        "row_is_locked_exclusively_or_shared",
    ),
    private_file(
        "a shared row is exclusive",
        "bool is_held = !shared && mq_private_is_locked(file, row);",
        "bool is_held = mq_private_is_locked(file, row);",
        "row_is_locked_exclusively_or_shared",
    ),
    private_file(
        "a child keeps its parent's files",
        "files->first = NULL; memset",
        "memset",
        "forked_child_has_no_files_and_may_end_the_mappings_of_its_parent",
    ),
    private_file(
        "a child inherits the lock of the list",
        "memset(files->rooms, 0, sizeof files->rooms); mq_private_files_unlock(files);",
        "memset(files->rooms, 0, sizeof files->rooms);",
        "forked_child_has_no_files_and_may_end_the_mappings_of_its_parent",
    ),
    mapping(
        "the end of a use replaces the memory of a private file",
        "(keeps || mapping->holders > 1) && !mapping->private_file",
        "(keeps || mapping->holders > 1)",
        "closed_handle_that_keeps_its_mapping_still_sees_its_file",
    ),
    mapping(
        "a mapping unmaps its private file",
        "if (mapping->private_file) mq_private_file_release(mapping->private_file); else munmap",
        "munmap",
        "removed_file_stays_until_its_last_mapping_ends",
    ),
    file(
        "a removed private file counts as linked",
        "if (mq_is_private_fd(fd)) return here.st_nlink != 0;",
        "if (mq_is_private_fd(fd)) return true;",
        "removed_file_stays_until_its_last_mapping_ends",
    ),
]
