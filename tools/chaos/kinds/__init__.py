"""The five kinds in a run: a file each, with one interface (`part`), and the life that uses all of them (`worker`)."""
