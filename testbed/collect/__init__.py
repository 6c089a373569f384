"""What is measured beside the job: netlink events, CPU, link counters; and the merging of all into one history."""
