/*
 * unreliable uc|ud MTU PORT [HOST]: messages of 4 to 4097 bytes over a link that may be bad, from the
 * client, then from the server. What arrives must be what was sent, whole, and most must arrive.
 *
 * Most, but to a kernel's UC: when the end of a message is lost there, whatever begins after that is
 * taken for the missing end and dropped, for good.
 */
#include "verbs.h"

#define SLOT 8192
#define BATCH 16
#define BATCHES 12
/* A message may arrive a batch late, so there is room for two. */
#define SLOTS (2 * BATCH)
#define MESSAGES (BATCH * BATCHES)
#define GRH 40
#define QUIET_MS 60	/* what takes longer does not come any more */

/* What a receiver has seen. */
struct arrivals {
	unsigned times[MESSAGES];
	unsigned messages, repeated, late, newest;
};

static enum ibv_wr_opcode opcode_of(unsigned number, int ud)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM,
	};

	return opcodes[number % (ud ? 2 : 3)];
}

/* From a packet to as many as the MTU makes of the longest. */
static uint32_t length_of(unsigned number, int ud)
{
	return 4 + number * 2654435761u % (ud ? 4096 - 3 : 4097 - 3);
}

/* It begins with its number. */
static uint8_t byte(unsigned number, uint32_t offset)
{
	uint32_t mixed = (offset + 1) * 2654435761u ^ number * 40503u;

	return offset < 4 ? number >> (8 * offset) : mixed >> 13;
}

static void send_batch(struct end *end, unsigned first, int ud)
{
	for (unsigned number = first; number < first + BATCH; number++) {
		struct ibv_send_wr wr = { .opcode = opcode_of(number, ud),
					  .imm_data = htonl(number) };
		unsigned slot = number % SLOTS;
		uint8_t *at = (uint8_t *)end->buf + slot * SLOT;

		for (uint32_t i = 0; i < length_of(number, ud); i++)
			at[i] = byte(number, i);
		/* WRITEs go behind the slots for receives. */
		post_send(end, wr, at, length_of(number, ud), (SLOTS + slot) * SLOT);
	}
	for (unsigned i = 0; i < BATCH; i++)
		check(completion(end).status == IBV_WC_SUCCESS);
}

static void take(struct end *end, const struct ibv_wc *wc, struct arrivals *seen, unsigned sent, int ud)
{
	const uint8_t *at = (uint8_t *)end->buf + wc->wr_id * SLOT + (ud ? GRH : 0);
	uint32_t number, length = wc->byte_len - (ud ? GRH : 0);
	int has_imm = wc->wc_flags & IBV_WC_WITH_IMM;

	if (wc->status != IBV_WC_SUCCESS)
		die("receive: %s", ibv_wc_status_str(wc->status));
	number = has_imm ? ntohl(wc->imm_data) : at[0] | at[1] << 8 | (uint32_t)at[2] << 16;
	if (number >= sent)
		die("message %u of %u", number, sent);
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM)
		at = (uint8_t *)end->buf + (SLOTS + number % SLOTS) * SLOT;
	check(has_imm == (opcode_of(number, ud) != IBV_WR_SEND ? IBV_WC_WITH_IMM : 0));
	if (length != length_of(number, ud))
		die("message %u came with %u bytes, not %u", number, length, length_of(number, ud));
	for (uint32_t i = 0; i < length; i++)
		if (at[i] != byte(number, i))
			die("message %u: byte %u is %02x, not %02x", number, i, at[i],
			    byte(number, i));
	seen->messages += !seen->times[number];
	seen->repeated += seen->times[number]++ > 0;
	seen->late += number < seen->newest;
	if (number > seen->newest)
		seen->newest = number;
	post_recv(end, wc->wr_id, end->buf + wc->wr_id * SLOT, SLOT);
}

static void receive_batch(struct end *end, unsigned first, struct arrivals *seen, int ud)
{
	uint64_t until = now_ms() + QUIET_MS;
	unsigned all = seen->messages + BATCH;
	struct ibv_wc wc;

	while (now_ms() < until && seen->messages < all) {
		int polled = ibv_poll_cq(end->cq, 1, &wc);

		check(polled >= 0);
		if (polled) {
			take(end, &wc, seen, first + BATCH, ud);
			until = now_ms() + QUIET_MS;
		}
	}
}

int main(int argc, char **argv)
{
	struct end end = { 0 };
	struct arrivals seen = { 0 };
	int ud;

	if (argc < 4)
		die("unreliable uc|ud MTU PORT [HOST]");
	ud = !strcmp(argv[1], "ud");
	end.mtu = mtu_of(argv[2]);
	srand48(getpid());
	open_end(&end, 2 * SLOTS * SLOT, argv[3], argv[4]);
	make_qp(&end, ud ? IBV_QPT_UD : IBV_QPT_UC, (struct retry){ 0 });
	for (int turn = 0; turn < 2; turn++) {
		int sends = end.is_client == (turn == 0);

		for (unsigned i = 0; !sends && i < SLOTS; i++)
			post_recv(&end, i, end.buf + i * SLOT, SLOT);
		for (unsigned first = 0; first < MESSAGES; first += BATCH) {
			meet(&end);
			if (sends)
				send_batch(&end, first, ud);
			meet(&end);
			if (!sends)
				receive_batch(&end, first, &seen, ud);
		}
		meet(&end);
	}
	printf("%u of %u messages came, %u times one once more, %u after a later one\n", seen.messages,
	       MESSAGES, seen.repeated, seen.late);
	drop_qp(&end);
	check(seen.messages && ((is_rxe(&end) && !ud) || 2 * seen.messages > MESSAGES));
	return 0;
}
