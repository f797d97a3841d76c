"""The five kinds in a run: a file each with the interface of `workload`, and the `worker` that uses all of them."""
