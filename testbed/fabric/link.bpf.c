// SPDX-License-Identifier: GPL-2.0
/*
 * One program for the egress of every port (clsact, direct action).
 *
 * The filter's class id carries the row of this link direction (1:<row>), so that all ports share one program and one map. The map is
 * memory of the testbed's process too (BPF_F_MMAPABLE): parameters are written and counters are read there without a system call.
 * `struct link_row` is mirrored in testbed/fabric/bpf.py.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#define MAX_ROWS 8192

struct link_row {
	/* counters, written here */
	__u64 tx_packets; /* handed on to the queue */
	__u64 tx_bytes;
	__u64 dropped_packets; /* by a fault */
	__u64 dropped_bytes;
	__u64 first_drop_ns; /* CLOCK_MONOTONIC; 0 = none since user space cleared it */
	__u64 last_drop_ns;
	__u64 spare_counters[10];
	/* parameters, written by user space */
	__u32 drop_all; /* silent failure: not 0 = everything is lost */
	__u32 spare_parameters[31];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_ROWS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct link_row);
} testbed_links SEC(".maps");

static __always_inline int drop(struct link_row *row, __u32 length)
{
	__u64 now = bpf_ktime_get_ns();

	if (!row->first_drop_ns)
		row->first_drop_ns = now;
	row->last_drop_ns = now;
	__sync_fetch_and_add(&row->dropped_packets, 1);
	__sync_fetch_and_add(&row->dropped_bytes, length);
	return TC_ACT_STOLEN; /* TC_ACT_SHOT would tell a sending socket of this host: the failure would not be silent */
}

SEC("tc")
int link_egress(struct __sk_buff *skb)
{
	__u32 key = skb->tc_classid & 0xffff;
	struct link_row *row = bpf_map_lookup_elem(&testbed_links, &key);

	if (!row)
		return TC_ACT_OK;
	if (row->drop_all)
		return drop(row, skb->len);
	__sync_fetch_and_add(&row->tx_packets, 1);
	__sync_fetch_and_add(&row->tx_bytes, skb->len);
	return TC_ACT_OK;
}

char LICENSE[] SEC("license") = "GPL";
