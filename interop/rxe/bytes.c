/*
 * bytes rc|uc|ud MTU all|some PORT [HOST]: every operation, with messages of 0 to 4097 bytes, from
 * either end; every byte is compared, and those beside a message, too. rc:16 has 16 READs and atomics
 * outstanding, not one.
 *
 * Messages go in batches, each in a slot of its own. "some" leaves out lengths that are neither short
 * nor near a multiple of 256.
 */
#include "verbs.h"

#define LENGTH_MAX 4097
#define SLOT 8192
#define BATCH 16
#define GRH 40
#define UNTOUCHED 0xee
#define ARRIVAL_MS 2000
#define LENGTHS_MAX (LENGTH_MAX + 1)

static const struct op {
	const char *name;
	enum ibv_wr_opcode code;
	int receives;	/* it takes a receive of the peer's */
	int has_imm;
	const char *types;
} ops[] = {
	{ "SEND", IBV_WR_SEND, 1, 0, "rc uc ud" },
	{ "SEND_IMM", IBV_WR_SEND_WITH_IMM, 1, 1, "rc uc ud" },
	{ "WRITE", IBV_WR_RDMA_WRITE, 0, 0, "rc uc" },
	{ "WRITE_IMM", IBV_WR_RDMA_WRITE_WITH_IMM, 1, 1, "rc uc" },
	{ "READ", IBV_WR_RDMA_READ, 0, 0, "rc" },
};

static uint32_t lengths[LENGTHS_MAX];
static unsigned lengths_count;

/* The byte at `offset` of a message; neighbours, operations and lengths differ. */
static uint8_t byte(unsigned op, uint32_t length, uint32_t offset)
{
	uint32_t mixed = (offset + 1) * 2654435761u ^ (length * 40503u + op * 97u);

	return (mixed >> 13) ^ (mixed >> 24);
}

static void fill(uint8_t *slot, unsigned op, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		slot[i] = byte(op, length, i);
}

static void compare(const volatile uint8_t *slot, unsigned op, uint32_t length)
{
	/* Nothing says when a WRITE of an unreliable queue pair has arrived. */
	uint64_t limit = now_ms() + ARRIVAL_MS;

	for (uint32_t i = 0; i < SLOT; i++) {
		uint8_t wanted = i < length ? byte(op, length, i) : UNTOUCHED;

		while (slot[i] != wanted && now_ms() < limit)
			usleep(1000);
		if (slot[i] != wanted)
			die("%s of %u bytes: byte %u is %02x, not %02x", ops[op].name, length, i,
			    slot[i], wanted);
	}
}

static void request(struct end *end, unsigned op, const uint32_t *batch, unsigned count)
{
	char *slots = end->buf;
	struct ibv_wc wc;

	for (unsigned i = 0; i < count; i++) {
		struct ibv_send_wr wr = { .wr_id = i, .opcode = ops[op].code,
					  .imm_data = htonl(0xabc00000 | batch[i]) };

		memset(slots + i * SLOT, UNTOUCHED, SLOT);
		if (ops[op].code != IBV_WR_RDMA_READ)
			fill((uint8_t *)slots + i * SLOT, op, batch[i]);
		post_send(end, wr, slots + i * SLOT, batch[i], i * SLOT);
	}
	for (unsigned i = 0; i < count; i++) {
		wc = completion(end);
		if (wc.status != IBV_WC_SUCCESS)
			die("%s of %u bytes: %s", ops[op].name, batch[wc.wr_id],
			    ibv_wc_status_str(wc.status));
	}
	if (ops[op].code == IBV_WR_RDMA_READ)
		for (unsigned i = 0; i < count; i++)
			compare((uint8_t *)slots + i * SLOT, op, batch[i]);
}

static void respond(struct end *end, unsigned op, const uint32_t *batch, unsigned count, int ud)
{
	uint8_t *slots = (uint8_t *)end->buf;
	struct ibv_wc wc;

	for (unsigned i = 0; ops[op].receives && i < count; i++) {
		wc = completion(end);
		if (wc.status != IBV_WC_SUCCESS)
			die("receive %u: %s", i, ibv_wc_status_str(wc.status));
		if (wc.wr_id != i || wc.byte_len != batch[i] + (ud ? GRH : 0))
			die("%s of %u bytes came as %u bytes to receive %lu", ops[op].name,
			    batch[i], wc.byte_len, (unsigned long)wc.wr_id);
		if (ops[op].has_imm &&
		    (!(wc.wc_flags & IBV_WC_WITH_IMM) ||
		     ntohl(wc.imm_data) != (0xabc00000 | batch[i])))
			die("%s: immediate data %x", ops[op].name, ntohl(wc.imm_data));
		if (ud && (!(wc.wc_flags & IBV_WC_GRH) || wc.src_qp != end->peer.qpn))
			die("from QP %u, flags %x", wc.src_qp, wc.wc_flags);
		if (ud) {	/* the peer's address in the IPv4 header */
			check(memcmp(slots + i * SLOT + 32, end->peer.gid.raw + 12, 4) == 0);
			memmove(slots + i * SLOT, slots + i * SLOT + GRH, SLOT - GRH);
			memset(slots + i * SLOT + SLOT - GRH, UNTOUCHED, GRH);
		}
	}
	/* What a reliable WRITE brings is here when the requester says so. */
	meet(end);
	for (unsigned i = 0; i < count; i++)
		compare(slots + i * SLOT, op, batch[i]);
}

static void batch(struct end *end, unsigned op, const uint32_t *batch, unsigned count,
		  int requests, int ud)
{
	if (!requests)
		for (unsigned i = 0; i < count; i++) {
			char *slot = end->buf + i * SLOT;

			memset(slot, UNTOUCHED, SLOT);
			if (ops[op].code == IBV_WR_RDMA_READ)
				fill((uint8_t *)slot, op, batch[i]);
			if (ops[op].receives)
				post_recv(end, i, slot, SLOT);
		}
	meet(end);
	if (requests) {
		request(end, op, batch, count);
		meet(end);
	} else {
		respond(end, op, batch, count, ud);
	}
	meet(end);
}

/* Counts up the peer's first word, then exchanges it: a guess that is right, and one that is not. */
static void atomics(struct end *end, int requests)
{
	uint64_t *word = (uint64_t *)end->buf, total = BATCH * 0x100000001ull;
	struct ibv_wc wc;

	word[0] = 0;
	meet(end);
	for (unsigned i = 0; requests && i < BATCH + 2; i++) {
		struct ibv_send_wr wr = { .wr_id = i, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD };

		wr.wr.atomic.compare_add = 0x100000001ull;
		if (i >= BATCH) {
			wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
			wr.wr.atomic.compare_add = total;
			wr.wr.atomic.swap = 0x1122334455667788ull + i;
		}
		post_send(end, wr, word + 8 + i, 8, 0);
	}
	for (unsigned i = 0; requests && i < BATCH + 2; i++) {
		uint64_t was = i <= BATCH ? i * 0x100000001ull : 0x1122334455667788ull + BATCH;

		wc = completion(end);
		check(wc.status == IBV_WC_SUCCESS && wc.wr_id == i);
		if (word[8 + i] != was)
			die("atomic %u found %016lx, not %016lx", i, word[8 + i], was);
	}
	meet(end);
	if (!requests && word[0] != 0x1122334455667788ull + BATCH)
		die("atomics left %016lx", word[0]);
	meet(end);
}

int main(int argc, char **argv)
{
	struct retry patient = { .timeout = 17, .retry_cnt = 7, .rnr_retry = 7,
				 .min_rnr_timer = 12 };
	struct end end = { 0 };
	enum ibv_qp_type type;
	unsigned longest, messages = 0;
	char *outstanding;
	int ud, all;

	if (argc < 5)
		die("bytes rc|rc:N|uc|ud MTU all|some PORT [HOST]");
	if (strtok(argv[1], ":") && (outstanding = strtok(NULL, "")))
		end.rd_atomic = atoi(outstanding);
	ud = !strcmp(argv[1], "ud");
	type = ud ? IBV_QPT_UD : !strcmp(argv[1], "uc") ? IBV_QPT_UC : IBV_QPT_RC;
	end.mtu = mtu_of(argv[2]);
	all = !strcmp(argv[3], "all");
	longest = ud ? 4096 : LENGTH_MAX;
	for (uint32_t i = 0; i <= longest; i++)
		if (all || i <= 9 || (i + 2) % 256 <= 3)
			lengths[lengths_count++] = i;

	srand48(getpid());
	open_end(&end, BATCH * SLOT, argv[4], argv[5]);
	make_qp(&end, type, patient);
	for (unsigned turn = 0; turn < 2; turn++) {
		int requests = end.is_client == (turn == 0);

		for (unsigned op = 0; op < sizeof(ops) / sizeof(ops[0]); op++) {
			if (!strstr(ops[op].types, argv[1]))
				continue;
			for (unsigned i = 0; i < lengths_count; i += BATCH) {
				unsigned left = lengths_count - i;

				batch(&end, op, lengths + i, left < BATCH ? left : BATCH, requests,
				      ud);
			}
			messages += lengths_count;
		}
		if (type == IBV_QPT_RC)
			atomics(&end, requests);
	}
	drop_qp(&end);
	printf("%u messages of %u lengths\n", messages, lengths_count);
	return 0;
}
