/*
 * faults PORT [HOST]: what either end sees when something goes wrong. The client is the requester
 * first, then the server; a line for each case says what both saw.
 *
 * faults stream PORT [HOST]: the client sends until that fails, and says how.
 */
#include "verbs.h"

#define SIZE 65536

static const struct retry patient = { 17, 7, 7, 12 }, brief = { 10, 2, 7, 12 };

/* What a side sees when it sees nothing. */
#define NOTHING 1000

static int failures;

static const char *status_name(int status)
{
	return status == NOTHING ? "nothing" : ibv_wc_status_str(status);
}

/*
 * One case: `wr` from the requester, to a responder that has posted `receive` bytes, or nothing if
 * that is negative. `requester` and `responder` are the statuses they must see.
 */
struct fault {
	const char *name;
	struct retry retry;
	enum ibv_wr_opcode opcode;
	uint32_t length;
	uint64_t remote;	/* offset in the peer's buffer */
	uint32_t rkey_off;	/* added to the peer's key */
	int receive;
	int requester, responder;
	/* What a kernel shows instead as the responder, and what its requester learns of it. */
	int rxe_requester, rxe_responder;
	int rxe_refuses;	/* a kernel does not take the request from its program */
	int responder_gone;	/* its queue pair is destroyed first */
	int receive_late;	/* the receive is posted after a while */
};

static const struct fault faults[] = {
	{ .name = "send without a receive, rnr_retry 2", .opcode = IBV_WR_SEND, .length = 100,
	  .retry = { 17, 7, 2, 12 }, .receive = -1,
	  .requester = IBV_WC_RNR_RETRY_EXC_ERR, .responder = NOTHING },
	{ .name = "send before its receive, rnr_retry 7", .opcode = IBV_WR_SEND, .length = 3000,
	  .retry = { 17, 7, 7, 12 }, .receive = 3000, .receive_late = 1,
	  .requester = IBV_WC_SUCCESS, .responder = IBV_WC_SUCCESS },
	{ .name = "write with immediate data before its receive, rnr_retry 7",
	  .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .length = 3000,
	  .retry = { 17, 7, 7, 12 }, .receive = 0, .receive_late = 1,
	  .requester = IBV_WC_SUCCESS, .responder = IBV_WC_SUCCESS },
	{ .name = "send to a queue pair that is gone", .opcode = IBV_WR_SEND, .length = 100,
	  .retry = brief, .receive = -1, .responder_gone = 1,
	  .requester = IBV_WC_RETRY_EXC_ERR, .responder = NOTHING },
	{ .name = "send longer than its receive", .opcode = IBV_WR_SEND, .length = 3000,
	  .retry = patient, .receive = 2999,
	  .requester = IBV_WC_REM_INV_REQ_ERR, .responder = IBV_WC_LOC_LEN_ERR,
	  .rxe_requester = IBV_WC_REM_OP_ERR, .rxe_responder = IBV_WC_LOC_QP_OP_ERR },
	{ .name = "send that invalidates a wrong key", .opcode = IBV_WR_SEND_WITH_INV,
	  .length = 100, .retry = brief, .receive = 100, .rkey_off = 0x5500,
	  .requester = IBV_WC_RETRY_EXC_ERR, .responder = IBV_WC_LOC_ACCESS_ERR,
	  .rxe_requester = IBV_WC_SUCCESS, .rxe_responder = IBV_WC_REM_INV_REQ_ERR },
	{ .name = "write by a wrong key", .opcode = IBV_WR_RDMA_WRITE, .length = 100,
	  .retry = patient, .receive = -1, .rkey_off = 0x5500,
	  .requester = IBV_WC_REM_ACCESS_ERR, .responder = NOTHING },
	{ .name = "write past the end", .opcode = IBV_WR_RDMA_WRITE, .length = 100,
	  .retry = patient, .receive = -1, .remote = SIZE - 99,
	  .requester = IBV_WC_REM_ACCESS_ERR, .responder = NOTHING },
	{ .name = "read past the end", .opcode = IBV_WR_RDMA_READ, .length = 100,
	  .retry = patient, .receive = -1, .remote = SIZE - 99,
	  .requester = IBV_WC_REM_ACCESS_ERR, .responder = NOTHING },
	{ .name = "atomic across words", .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .length = 8,
	  .rxe_refuses = 1,
	  .retry = patient, .receive = -1, .remote = 4,
	  .requester = IBV_WC_REM_INV_REQ_ERR, .responder = NOTHING },
	{ .name = "atomic past the end", .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .length = 8,
	  .retry = patient, .receive = -1, .remote = SIZE,
	  .requester = IBV_WC_REM_ACCESS_ERR, .responder = NOTHING },
};

static int request(struct end *end, const struct fault *fault)
{
	struct ibv_send_wr wr = { .opcode = fault->opcode };

	wr.wr.rdma.rkey = 0;
	if (fault->opcode == IBV_WR_SEND_WITH_INV)
		wr.invalidate_rkey = end->peer.rkey + fault->rkey_off;
	else if (fault->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		wr.wr.atomic.rkey = end->peer.rkey + fault->rkey_off;
	else
		wr.wr.rdma.rkey = end->peer.rkey + fault->rkey_off;
	post_send(end, wr, end->buf, fault->length, fault->remote);
	return completion(end).status;
}

static int respond(struct end *end, const struct fault *fault)
{
	struct ibv_wc wc;

	if (fault->receive_late) {
		usleep(300000);
		post_recv(end, 0, end->buf, fault->receive);
	}
	if (fault->responder != NOTHING)
		return completion(end).status;
	meet(end);
	return ibv_poll_cq(end->cq, 1, &wc) ? (int)wc.status : NOTHING;
}

static void play(struct end *end, const struct fault *fault, int requests)
{
	int saw, wanted = requests ? fault->requester : fault->responder;
	int standard = wanted;
	struct ibv_wc wc;

	if (fault->rxe_refuses && is_rxe(end) == requests)
		return;
	if (fault->rxe_responder && is_rxe(end) != requests)
		wanted = requests ? fault->rxe_requester : fault->rxe_responder;

	make_qp(end, IBV_QPT_RC, fault->retry);
	if (!requests && fault->receive >= 0 && !fault->receive_late)
		post_recv(end, 0, end->buf, fault->receive);
	if (!requests && fault->responder_gone)
		drop_qp(end);
	meet(end);
	if (requests) {
		saw = request(end, fault);
		if (fault->responder == NOTHING)
			meet(end);
	} else {
		saw = respond(end, fault);
	}
	printf("%s: %s as %s", saw == wanted ? "ok" : "DIFFERS", fault->name,
	       requests ? "requester" : "responder");
	printf(" saw %s", status_name(saw));
	if (saw != wanted)
		printf(", not %s", status_name(wanted));
	else if (wanted != standard)
		printf(", where the standard has %s", status_name(standard));
	printf("\n");
	failures += saw != wanted;
	if (end->qp)
		drop_qp(end);
	while (ibv_poll_cq(end->cq, 1, &wc))
		;
	meet(end);
}

/* A window of the peer's, by which it is written until it is invalidated by a send. */
static void window(struct end *end, int requests)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE }, *bad;
	struct ibv_mw *mw = NULL;
	struct ibv_wc wc;
	uint32_t key = 0, peer_key;

	make_qp(end, IBV_QPT_RC, patient);
	if (!requests) {
		mw = ibv_alloc_mw(end->pd, IBV_MW_TYPE_2);
		check(mw);
		key = ibv_inc_rkey(mw->rkey);
		struct ibv_send_wr bind = { .opcode = IBV_WR_BIND_MW, .bind_mw = {
			.mw = mw, .rkey = key,
			.bind_info = { end->mr, end->own.addr + 4096, 4096,
				       IBV_ACCESS_REMOTE_WRITE } } };
		errno = ibv_post_send(end->qp, &bind, &bad);
		check(!errno);
		check(completion(end).status == IBV_WC_SUCCESS);
		post_recv(end, 0, end->buf, 100);
	}
	swap(end, &key, &peer_key, sizeof(key));
	if (requests) {
		memset(end->buf, 0x77, 2000);
		wr.wr.rdma.rkey = peer_key;
		post_send(end, wr, end->buf, 2000, 4096 + 1000);
		check(completion(end).status == IBV_WC_SUCCESS);
		wr.opcode = IBV_WR_SEND_WITH_INV;
		wr.invalidate_rkey = peer_key;
		struct ibv_sge sge = { (uintptr_t)end->buf, 10, end->mr->lkey };
		wr.sg_list = &sge;
		wr.num_sge = 1;
		errno = ibv_post_send(end->qp, &wr, &bad);
		check(!errno);
		check(completion(end).status == IBV_WC_SUCCESS);
		wr = (struct ibv_send_wr){ .opcode = IBV_WR_RDMA_WRITE };
		wr.wr.rdma.rkey = peer_key;
		post_send(end, wr, end->buf, 2000, 4096);
		check(completion(end).status == IBV_WC_REM_ACCESS_ERR);
		meet(end);
	} else {
		wc = completion(end);
		check(wc.status == IBV_WC_SUCCESS);
		/* The kernel's own flag for it has another value, and rxe shows that to programs. */
		printf("ok: the receive has flags %x\n", wc.wc_flags);
		check(wc.wc_flags & (is_rxe(end) ? IBV_WC_IP_CSUM_OK : IBV_WC_WITH_INV));
		check(wc.invalidated_rkey == key);
		meet(end);
		for (unsigned i = 4096; i < 3 * 4096; i++)
			check(end->buf[i] == (i >= 5096 && i < 7096 ? 0x77 : 0));
		check(ibv_dealloc_mw(mw) == 0);
	}
	printf("ok: memory window as %s\n", requests ? "requester" : "responder");
	drop_qp(end);
	meet(end);
}

static void stream(struct end *end)
{
	struct ibv_wc wc;
	unsigned sent = 0;

	make_qp(end, IBV_QPT_RC, brief);
	for (unsigned i = 0; !end->is_client && i < DEPTH; i++)
		post_recv(end, i, end->buf, SIZE);
	meet(end);
	printf("streaming\n");
	fflush(stdout);
	for (;;) {
		if (end->is_client)
			post_send(end, (struct ibv_send_wr){ .opcode = IBV_WR_SEND }, end->buf,
				  2000, 0);
		wc = completion(end);
		if (wc.status != IBV_WC_SUCCESS)
			break;
		sent++;
		if (end->is_client)
			usleep(1000);
		else
			post_recv(end, 0, end->buf, SIZE);
	}
	printf("after %u messages status %d\n", sent, wc.status);
}

int main(int argc, char **argv)
{
	struct end end = { .mtu = IBV_MTU_1024 };
	int streams = argc > 1 && !strcmp(argv[1], "stream");

	argv += streams;
	argc -= streams;
	if (argc < 2)
		die("faults [stream] PORT [HOST]");
	srand48(getpid());
	setlinebuf(stdout);
	open_end(&end, SIZE, argv[1], argv[2]);
	if (streams) {
		stream(&end);
		return 0;
	}
	for (int turn = 0; turn < 2; turn++) {
		int requests = end.is_client == (turn == 0);

		for (unsigned i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
			play(&end, &faults[i], requests);
		memset(end.buf, 0, SIZE);
		window(&end, requests);
	}
	return failures != 0;
}
