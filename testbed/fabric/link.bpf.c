// SPDX-License-Identifier: GPL-2.0
/*
 * One program for the egress of every port (clsact, direct action): faults, then a virtual queue of the link that marks and trims.
 *
 * The filter's class id carries the row of this link direction (1:<row>), so that all ports share one program and one map. The map is
 * memory of the testbed's process too (BPF_F_MMAPABLE): parameters are written and counters are read there without a system call.
 * `struct link_row` is mirrored in testbed/fabric/bpf.py; what each parameter means is told in docs/links.md.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_ROWS 8192
#define MAX_EVS 8

/* DSCP values of MRC's roles (one implementer's; the roles are the specification's), and CS6 of BGP and BFD */
#define DSCP_TRIMMABLE 4
#define DSCP_TRIMMABLE_RETX 8
#define DSCP_TRIMMED 12
#define DSCP_TRIMMED_LASTHOP 16
#define DSCP_CONTROL 46
#define DSCP_ROUTING 48

#define NEXT_UDP 17
#define NEXT_IPV6 41
#define NEXT_ICMPV6 58
#define UDP_PORT 4791
#define UDP_PORT_OTHER 4971 /* one table of the MRC specification prints it */

#define IPV6_BYTES 40
#define UDP_BYTES 8
#define BTH_BYTES 12
#define METH_BYTES 4
#define TSETH_BYTES 4
#define RETH_BYTES 16
#define IMMDT_BYTES 4
#define MAX_TRIMMED_UDP_BYTES 48 /* UDP, BTH, METH, TSETH, RETH, ImmDt */

#define CONTROL_CLASS 0x00010010 /* HTB takes skb->priority as a class id before it asks its filters */
#define ECT_MASK_CE 3
#define CERTAIN 0xffffffffU /* as a probability: always */
#define SECOND_NS 1000000000ULL
#define LONGEST_WAIT_NS (64 * SECOND_NS)

struct link_row {
	/* counters, written here */
	__u64 tx_packets; /* handed on to the queues of the link, trimmed ones among them */
	__u64 tx_bytes;
	__u64 dropped_packets; /* by a fault that takes everything (drop_all, drop_data) */
	__u64 dropped_bytes;
	__u64 first_drop_ns; /* by any fault; CLOCK_MONOTONIC; 0 = none since user space cleared it */
	__u64 last_drop_ns;
	__u64 lost_packets; /* by chance */
	__u64 lost_bytes;
	__u64 ev_dropped_packets; /* by the rule for some EVs */
	__u64 ev_dropped_bytes;
	__u64 queue_dropped_packets; /* could not be trimmed and found the virtual queue full */
	__u64 queue_dropped_bytes;
	__u64 marked_packets; /* CE set */
	__u64 marked_bytes;
	__u64 trimmed_packets;
	__u64 trimmed_bytes; /* what was cut off */
	__u64 other_packets; /* neither MRC nor RoCEv2: passed on */
	__u64 other_bytes;
	/* state, written here, set by user space when it sets the parameters */
	__u64 free_at_ns; /* when the link will have sent all that it was given; CLOCK_MONOTONIC */
	__u64 loss_state; /* of the generators of chance */
	__u64 ev_state;
	__u64 mark_state;
	__u64 spare_counters[2];
	/* parameters, written by user space */
	__u32 drop_all; /* silent failure: not 0 = everything is lost */
	__u32 drop_data; /* a switch that hangs: not 0 = all is lost but routing and neighbour discovery */
	__u32 loss_probability; /* in 2^-32 */
	__u32 ev_probability; /* in 2^-32 */
	__u32 ev_count;
	__u32 evs[MAX_EVS];
	__u32 rate_bytes_per_s; /* 0 = no virtual queue, so neither marks, trims nor queue drops */
	__u32 room_bytes; /* of the real queue: what exceeds it is dropped there and takes no time of the link */
	__u32 ecn_min_bytes;
	__u32 ecn_max_bytes; /* 0 = no marks */
	__u32 trim_bytes; /* 0 = no trimming */
	__u32 limit_bytes; /* for what cannot be trimmed; 0 = left to the real queue */
	__u32 last_hop; /* not 0 = towards the receiver: no marks, TRIMMED_LASTHOP */
	__u32 spare_parameters[12];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_ROWS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct link_row);
} testbed_links SEC(".maps");

struct ip6_start { /* the first 8 bytes of an IPv6 header */
	__be32 version_class_label;
	__be16 payload_length;
	__u8 next_header;
	__u8 hop_limit;
};

struct udp_bth {
	__be16 source_port;
	__be16 destination_port;
	__be16 length;
	__be16 checksum;
	__u8 opcode;
	__u8 flags;
	__be16 pkey;
	__be32 destination_qp;
	__be32 flags_psn;
};

struct packet {
	struct ip6_start outer;
	struct ip6_start inner; /* of a packet without a tunnel: the outer again */
	struct udp_bth transport;
	__u32 inner_offset;
	__u32 headers_end; /* where the payload starts; 0 = not a Write, so there is none to cut */
	__u32 dscp;
	__u32 ecn;
	__u8 is_ipv6;
	__u8 is_roce;
	__u8 is_control; /* goes into the control class */
	__u8 is_routing; /* BGP, BFD, neighbour discovery, what is not IPv6 */
};

#define COUNT(row, what, bytes)                                      \
	do {                                                         \
		__sync_fetch_and_add(&(row)->what##_packets, 1);     \
		__sync_fetch_and_add(&(row)->what##_bytes, (bytes)); \
	} while (0)

/* TC_ACT_SHOT would tell a sending socket of this host: a failure would not be silent, and no host is told of a full switch queue. */
#define LOSE(row, what, bytes)                \
	do {                                  \
		COUNT(row, what, bytes);      \
		return TC_ACT_STOLEN;         \
	} while (0)

static __always_inline void note_fault(struct link_row *row)
{
	__u64 now = bpf_ktime_get_ns();

	if (!row->first_drop_ns)
		row->first_drop_ns = now;
	row->last_drop_ns = now;
}

/* SplitMix64 (Steele, Lea, Flood 2014): its state is a counter, so that two CPUs never draw the same number, and a seed repeats a run. */
static __always_inline __u32 draw(__u64 *state)
{
	const __u64 step = 0x9e3779b97f4a7c15ULL;
	__u64 z = __sync_fetch_and_add(state, step) + step;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return (__u32)((z ^ (z >> 31)) >> 32);
}

static __always_inline int happens(__u32 probability, __u64 *state)
{
	__u32 number = draw(state); /* always drawn, so that the sequence belongs to the packets */

	return probability == CERTAIN || number < probability;
}

/* Where the payload of a Write starts, counted from the UDP header; 0 for anything else. IB volume 1, chapter 9, for RoCE's opcodes. */
static __always_inline __u32 write_headers(const struct udp_bth *transport)
{
	__u32 fixed = UDP_BYTES + BTH_BYTES;

	switch (transport->opcode) {
	case 0xc6: case 0xc7: case 0xc8: case 0xca: /* MRC: First, Middle, Last, Only */
	case 0xc9: case 0xcb: /* Last and Only with Immediate */
		fixed += METH_BYTES + RETH_BYTES;
		if (transport->flags_psn & bpf_htonl(1u << 28)) /* TS */
			fixed += TSETH_BYTES;
		if (transport->opcode == 0xc9 || transport->opcode == 0xcb)
			fixed += IMMDT_BYTES;
		return fixed;
	case 0x06: case 0x0a: /* RC: First, Only */
		return fixed + RETH_BYTES;
	case 0x07: case 0x08: /* Middle, Last */
		return fixed;
	case 0x09: /* Last with Immediate */
		return fixed + IMMDT_BYTES;
	case 0x0b: /* Only with Immediate */
		return fixed + RETH_BYTES + IMMDT_BYTES;
	}
	return 0;
}

static __always_inline void parse_transport(struct __sk_buff *skb, struct packet *p)
{
	__u32 offset = p->inner_offset + IPV6_BYTES;
	__u32 headers;

	if (p->inner.next_header != NEXT_UDP || bpf_skb_load_bytes(skb, offset, &p->transport, sizeof(p->transport)))
		return;
	if (p->transport.destination_port != bpf_htons(UDP_PORT) && p->transport.destination_port != bpf_htons(UDP_PORT_OTHER))
		return;
	p->is_roce = 1;
	headers = write_headers(&p->transport);
	p->headers_end = headers ? offset + headers : 0;
}

static __always_inline int is_discovery(struct __sk_buff *skb, const struct packet *p)
{
	__u8 type = 0;

	if (p->outer.next_header != NEXT_ICMPV6 || bpf_skb_load_bytes(skb, ETH_HLEN + IPV6_BYTES, &type, 1))
		return 0;
	return type >= 133 && type <= 137; /* RFC 4861 */
}

static __always_inline void parse(struct __sk_buff *skb, struct packet *p)
{
	__u32 word;

	if (skb->protocol != bpf_htons(ETH_P_IPV6) || bpf_skb_load_bytes(skb, ETH_HLEN, &p->outer, sizeof(p->outer))) {
		p->is_routing = 1;
		return;
	}
	p->is_ipv6 = 1;
	word = bpf_ntohl(p->outer.version_class_label);
	p->dscp = word >> 22 & 0x3f;
	p->ecn = word >> 20 & 3;
	p->is_routing = p->dscp == DSCP_ROUTING || is_discovery(skb, p);
	p->is_control = p->is_routing || p->dscp == DSCP_CONTROL || p->dscp == DSCP_TRIMMED || p->dscp == DSCP_TRIMMED_LASTHOP;
	p->inner = p->outer;
	p->inner_offset = ETH_HLEN;
	if (p->outer.next_header == NEXT_IPV6) {
		p->inner_offset += IPV6_BYTES;
		if (bpf_skb_load_bytes(skb, p->inner_offset, &p->inner, sizeof(p->inner)))
			return;
	}
	parse_transport(skb, p);
}

static __always_inline int is_listed(const struct link_row *row, const struct packet *p)
{
	__u32 label = bpf_ntohl(p->inner.version_class_label) & 0xffff;
	__u32 ev = label << 16 | bpf_ntohs(p->transport.source_port);
	int listed = 0;

#pragma unroll
	for (__u32 i = 0; i < MAX_EVS; i++)
		listed |= i < row->ev_count && row->evs[i] == ev;
	return listed;
}

/* Bytes that the link still has to send. Exact to 64 ns, so that 64 s at HTB's highest rate fit into 64 bits. */
static __always_inline __u64 backlog_bytes(const struct link_row *row, __u64 now)
{
	__u64 free_at = *(volatile const __u64 *)&row->free_at_ns;

	if (free_at <= now)
		return 0;
	free_at -= now;
	if (free_at > LONGEST_WAIT_NS)
		free_at = LONGEST_WAIT_NS;
	return (free_at >> 6) * row->rate_bytes_per_s / (SECOND_NS >> 6);
}

static __always_inline void occupy(struct link_row *row, __u64 now, __u32 bytes)
{
	__u32 rate = row->rate_bytes_per_s;
	__u64 before, start, cost;

	if (!rate)
		return;
	cost = bytes * SECOND_NS / rate;
	for (int attempt = 0; attempt < 8; attempt++) {
		before = *(volatile __u64 *)&row->free_at_ns;
		start = before > now ? before : now;
		if (__sync_val_compare_and_swap(&row->free_at_ns, before, start + cost) == before)
			return;
	}
	__sync_fetch_and_add(&row->free_at_ns, cost); /* other CPUs are as busy here, so the queue is not empty */
}

static __always_inline int is_marked(struct link_row *row, const struct packet *p, __u64 backlog)
{
	__u32 low = row->ecn_min_bytes, high = row->ecn_max_bytes;
	__u32 probability;

	if (!high || row->last_hop || p->ecn == 0 || p->ecn == ECT_MASK_CE || backlog <= low)
		return 0;
	if (backlog >= high || high <= low)
		probability = CERTAIN;
	else
		probability = ((backlog - low) << 32) / (high - low);
	return happens(probability, &row->mark_state);
}

/* The IPv6 checksum does not exist, and RoCE's ICRC leaves the traffic class out: nothing else changes with it. */
static __always_inline void mark(struct __sk_buff *skb, struct packet *p)
{
	__be32 congested = bpf_htonl(ECT_MASK_CE << 20);

	p->outer.version_class_label |= congested;
	bpf_skb_store_bytes(skb, ETH_HLEN, &p->outer, sizeof(p->outer), 0);
	if (p->inner_offset == ETH_HLEN)
		return;
	p->inner.version_class_label |= congested;
	bpf_skb_store_bytes(skb, p->inner_offset, &p->inner, sizeof(p->inner), 0);
}

static __always_inline void store_start(struct __sk_buff *skb, __u32 offset, struct ip6_start *start, __u32 dscp)
{
	start->version_class_label = (start->version_class_label & bpf_htonl(~(0x3fu << 22))) | bpf_htonl(dscp << 22);
	start->payload_length = bpf_htons(skb->len - offset - IPV6_BYTES);
	bpf_skb_store_bytes(skb, offset, start, sizeof(*start), 0);
}

/* RFC 8200, section 8.1. Only what was cut is gone, but subtracting it would mean to read it: the headers are shorter. */
static __always_inline __be16 udp_checksum(struct __sk_buff *skb, __u32 offset, __u32 length)
{
	__u8 bytes[MAX_TRIMMED_UDP_BYTES] = {};
	__be32 pseudo[10];
	__s64 sum;

	if (length < UDP_BYTES + BTH_BYTES || length > sizeof(bytes))
		return 0;
	if (bpf_skb_load_bytes(skb, offset - 32, pseudo, 32) || bpf_skb_load_bytes(skb, offset, bytes, length))
		return 0;
	bytes[6] = bytes[7] = 0;
	pseudo[8] = bpf_htonl(length);
	pseudo[9] = bpf_htonl(NEXT_UDP);
	sum = bpf_csum_diff(0, 0, pseudo, sizeof(pseudo), 0);
	sum = bpf_csum_diff(0, 0, (__be32 *)bytes, sizeof(bytes), sum); /* the zeros behind `length` add nothing */
	if (sum < 0)
		return 0;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (__u16)~sum;
	return sum ? sum : 0xffff;
}

/* Cuts the payload and the ICRC, which would not fit any more. 0 = done. */
static __always_inline int trim(struct __sk_buff *skb, struct packet *p, __u32 last_hop)
{
	__u32 dscp = last_hop ? DSCP_TRIMMED_LASTHOP : DSCP_TRIMMED;
	__u32 udp_offset = p->inner_offset + IPV6_BYTES;
	__u32 udp_length = p->headers_end - udp_offset;

	if (bpf_skb_change_tail(skb, p->headers_end, 0))
		return -1;
	store_start(skb, ETH_HLEN, &p->outer, dscp);
	if (p->inner_offset != ETH_HLEN)
		store_start(skb, p->inner_offset, &p->inner, dscp);
	p->transport.length = bpf_htons(udp_length);
	bpf_skb_store_bytes(skb, udp_offset, &p->transport, UDP_BYTES, 0);
	if (p->transport.checksum) { /* MRC sends 0 inside its tunnel (RFC 6935) */
		p->transport.checksum = udp_checksum(skb, udp_offset, udp_length);
		bpf_skb_store_bytes(skb, udp_offset, &p->transport, UDP_BYTES, 0);
	}
	skb->priority = CONTROL_CLASS;
	return 0;
}

static __always_inline int is_trimmable(const struct link_row *row, const struct packet *p, __u32 length)
{
	return row->trim_bytes && p->headers_end && length > p->headers_end &&
	       (p->dscp == DSCP_TRIMMABLE || p->dscp == DSCP_TRIMMABLE_RETX);
}

static __always_inline int pass_on(struct __sk_buff *skb, struct link_row *row)
{
	COUNT(row, tx, skb->len);
	return TC_ACT_OK;
}

/*
 * The link's queue for a data packet of MRC or RoCE.
 *
 * The kernel notes a packet's length for the qdiscs before this program runs, and not again after: HTB would charge a trimmed packet for
 * what was cut. So it is sent to the same port once more, and is measured anew on the way; link_egress knows it by its class.
 */
static __always_inline int queue_data(struct __sk_buff *skb, struct link_row *row, struct packet *p, __u64 now, __u64 backlog)
{
	__u32 length = skb->len;

	if (is_trimmable(row, p, length)) {
		if (backlog + length > row->trim_bytes) {
			if (trim(skb, p, row->last_hop))
				LOSE(row, queue_dropped, length);
			COUNT(row, trimmed, length - skb->len);
			return bpf_redirect(skb->ifindex, 0);
		}
	} else if (row->limit_bytes && backlog + length > row->limit_bytes) {
		LOSE(row, queue_dropped, length);
	}
	if (is_marked(row, p, backlog)) {
		mark(skb, p);
		COUNT(row, marked, length);
	}
	return TC_ACT_OK;
}

SEC("tc")
int link_egress(struct __sk_buff *skb)
{
	__u32 key = skb->tc_classid & 0xffff;
	struct link_row *row = bpf_map_lookup_elem(&testbed_links, &key);
	struct packet p = {};
	__u32 length = skb->len;

	if (!row)
		return TC_ACT_OK;
	if (row->drop_all) {
		note_fault(row);
		LOSE(row, dropped, length);
	}
	if (skb->priority == CONTROL_CLASS) { /* trimmed here a moment ago: a veth clears the priority of what it delivers */
		occupy(row, bpf_ktime_get_ns(), length);
		return pass_on(skb, row);
	}
	parse(skb, &p);
	if (row->drop_data && !p.is_routing) {
		note_fault(row);
		LOSE(row, dropped, length);
	}
	if (row->loss_probability && happens(row->loss_probability, &row->loss_state)) {
		note_fault(row);
		LOSE(row, lost, length);
	}
	if (p.is_roce && row->ev_count && is_listed(row, &p) && happens(row->ev_probability, &row->ev_state)) {
		note_fault(row);
		LOSE(row, ev_dropped, length);
	}
	if (row->rate_bytes_per_s) {
		__u64 now = bpf_ktime_get_ns();
		__u64 backlog = backlog_bytes(row, now);

		if (p.is_roce && !p.is_control) {
			int verdict = queue_data(skb, row, &p, now, backlog);

			if (verdict != TC_ACT_OK)
				return verdict;
		}
		if (p.is_control || !row->room_bytes || backlog + length <= row->room_bytes)
			occupy(row, now, length);
	}
	if (!p.is_roce)
		COUNT(row, other, length);
	return pass_on(skb, row);
}

char LICENSE[] SEC("license") = "GPL";
