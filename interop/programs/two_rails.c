/*
 * Moves data over two rails that fail over and back.
 *
 *   two_rails BYTES FLAPS FROM0 TO0 FROM1 TO1
 *
 * A rail is a queue pair of device FROM that is connected with one of device TO. Chunks are written by
 * whichever rail is up; when one goes down, as its devices' events say or its completions, what it had
 * not finished goes to the other one, and when its ports are up again it is connected anew. Every chunk
 * is compared when it has arrived. Ends when at least BYTES have arrived and ports went down FLAPS
 * times, all ports are up, and each rail has carried another chunk. Prints one line: bytes, chunks,
 * times a port went down, and for each rail its chunks and how often it failed over and back.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <infiniband/verbs.h>

enum { RAILS = 2, SLOTS = 8, CHUNK = 1 << 18, WORDS = CHUNK / 8, GID_INDEX = 1, PATIENCE_S = 60 };

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	union ibv_gid gid;
	int up;
};

struct rail {
	struct end from, to;
	int connected;
	unsigned posted;
	long chunks, overs, backs;
};

struct slot {
	uint64_t number;
	int rail; /* that has it, or -1 */
};

static struct rail rails[RAILS];
static struct slot slots[SLOTS];
static uint64_t source[SLOTS][WORDS], sink[SLOTS][WORDS];
static long downs;

static void check(int good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "two_rails: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void verb(int error, const char *what)
{
	errno = error;
	check(!error, what);
}

static uint64_t word(uint64_t number, uint64_t at)
{
	return (number << 20 | at) * 0x9e3779b97f4a7c15;
}

static void open_end(struct end *end, const char *name, void *memory)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	check(list != NULL, "ibv_get_device_list");
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			end->context = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	check(end->context != NULL, name);
	check((end->pd = ibv_alloc_pd(end->context)) != NULL, "ibv_alloc_pd");
	check((end->cq = ibv_create_cq(end->context, 64, NULL, NULL, 0)) != NULL, "ibv_create_cq");
	end->mr = ibv_reg_mr(end->pd, memory, sizeof(source),
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	check(end->mr != NULL, "ibv_reg_mr");
	check(!ibv_query_gid(end->context, 1, GID_INDEX, &end->gid), "ibv_query_gid");
	struct ibv_qp_init_attr init = { .send_cq = end->cq, .recv_cq = end->cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 32, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	check((end->qp = ibv_create_qp(end->pd, &init)) != NULL, "ibv_create_qp");
	int fd = end->context->async_fd;
	check(!fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), "fcntl");
	struct ibv_port_attr port;
	verb(ibv_query_port(end->context, 1, &port), "ibv_query_port");
	end->up = port.state == IBV_PORT_ACTIVE;
}

static void move_to(struct end *end, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	verb(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE), "ibv_modify_qp");
}

static void bring_up(struct end *end, const struct end *peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	verb(ibv_modify_qp(end->qp, &attr,
			   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp->qp_num, .min_rnr_timer = 12, .max_dest_rd_atomic = 1,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = peer->gid, .sgid_index = GID_INDEX, .hop_limit = 64 } } };
	verb(ibv_modify_qp(end->qp, &attr,
			   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 12, .retry_cnt = 7,
		.rnr_retry = 7, .max_rd_atomic = 1 };
	verb(ibv_modify_qp(end->qp, &attr,
			   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			   IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

static void post(int number, int at)
{
	struct rail *rail = &rails[number];
	struct ibv_sge sge = { .addr = (uintptr_t)source[at], .length = CHUNK,
		.lkey = rail->from.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = at, .sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)sink[at], .rkey = rail->to.mr->rkey } }, *bad;
	verb(ibv_post_send(rail->from.qp, &wr, &bad), "ibv_post_send");
	slots[at].rail = number;
	rail->posted++;
}

static void compare(int at)
{
	for (uint64_t i = 0; i < WORDS; i++)
		if (sink[at][i] != word(slots[at].number, i)) {
			fprintf(stderr, "two_rails: chunk %llu is wrong at word %llu\n",
				(unsigned long long)slots[at].number, (unsigned long long)i);
			exit(1);
		}
}

/* Puts the next chunk into a slot. Number 0 stands for none. */
static void refill(int at)
{
	static uint64_t next = 1;
	slots[at] = (struct slot){ .number = next++, .rail = -1 };
	for (uint64_t i = 0; i < WORDS; i++)
		source[at][i] = word(slots[at].number, i);
	memset(sink[at], 0, CHUNK);
}

/* Takes completions; returns whether the rail has failed. */
static int drain(int number, uint64_t *moved)
{
	struct rail *rail = &rails[number];
	struct ibv_wc wc;
	int failed = 0, got;
	while ((got = ibv_poll_cq(rail->from.cq, 1, &wc)) > 0) {
		rail->posted--;
		slots[wc.wr_id].rail = -1;
		if (wc.status != IBV_WC_SUCCESS) {
			check(wc.status == IBV_WC_RETRY_EXC_ERR || wc.status == IBV_WC_WR_FLUSH_ERR,
			      ibv_wc_status_str(wc.status));
			failed = 1;
			continue;
		}
		compare(wc.wr_id);
		*moved += CHUNK;
		rail->chunks++;
		refill(wc.wr_id);
	}
	check(got == 0, "ibv_poll_cq");
	return failed;
}

/* What the rail has not finished is the other one's. Its receiver takes no late packets any more when the
 * chunks are written anew. */
static void give_up(int number, uint64_t *moved)
{
	struct rail *rail = &rails[number];
	move_to(&rail->to, IBV_QPS_RESET);
	move_to(&rail->from, IBV_QPS_ERR);
	while (rail->posted)
		drain(number, moved);
	move_to(&rail->from, IBV_QPS_RESET);
	rail->connected = 0;
	rail->overs++;
}

static void take_events(struct end *end)
{
	struct ibv_async_event event;
	while (!ibv_get_async_event(end->context, &event)) {
		if (event.event_type == IBV_EVENT_PORT_ERR) {
			check(end->up, "PORT_ERR of a port that is down");
			end->up = 0;
			downs++;
		} else if (event.event_type == IBV_EVENT_PORT_ACTIVE) {
			check(!end->up, "PORT_ACTIVE of a port that is up");
			end->up = 1;
		}
		ibv_ack_async_event(&event);
	}
	check(errno == EAGAIN, "ibv_get_async_event");
}

int main(int argc, char **argv)
{
	if (argc != 7) {
		fprintf(stderr, "usage: two_rails BYTES FLAPS FROM0 TO0 FROM1 TO1\n");
		return 2;
	}
	uint64_t bytes = strtoull(argv[1], NULL, 10), moved = 0, seen = 0;
	long flaps = strtol(argv[2], NULL, 10), last[RAILS] = { -1, -1 };
	for (int i = 0; i < RAILS; i++) {
		open_end(&rails[i].from, argv[3 + 2 * i], source);
		open_end(&rails[i].to, argv[4 + 2 * i], sink);
	}
	for (int at = 0; at < SLOTS; at++)
		refill(at);
	time_t progress = time(NULL);
	for (;;) {
		int all_up = 1;
		for (int i = 0; i < RAILS; i++) {
			struct rail *rail = &rails[i];
			take_events(&rail->from);
			take_events(&rail->to);
			int up = rail->from.up && rail->to.up;
			all_up &= up;
			int failed = drain(i, &moved);
			if (rail->connected && (failed || !up))
				give_up(i, &moved);
			if (!rail->connected && up) {
				bring_up(&rail->to, &rail->from);
				bring_up(&rail->from, &rail->to);
				rail->connected = 1;
				rail->backs++;
			}
		}
		/* Each rail gets half of the slots, and all if the other one is down. */
		for (int at = 0, turn = 0; at < SLOTS; at++) {
			if (slots[at].rail >= 0)
				continue;
			for (int tries = 0; tries < RAILS; tries++, turn++) {
				struct rail *rail = &rails[turn % RAILS];
				struct rail *other = &rails[(turn + 1) % RAILS];
				unsigned share = other->connected ? SLOTS / RAILS : SLOTS;
				if (rail->connected && rail->posted < share) {
					post(turn % RAILS, at);
					break;
				}
			}
		}
		if (moved != seen) {
			seen = moved;
			progress = time(NULL);
		}
		check(time(NULL) - progress < PATIENCE_S, "nothing moves");
		if (moved < bytes || downs < flaps || !all_up) {
			last[0] = last[1] = -1;
			continue;
		}
		/* Neither rail is stuck: each carries something more. */
		int carried = 0;
		for (int i = 0; i < RAILS; i++) {
			if (last[i] < 0)
				last[i] = rails[i].chunks;
			carried += rails[i].chunks > last[i];
		}
		if (carried == RAILS)
			break;
	}
	printf("%llu bytes, %ld downs", (unsigned long long)moved, downs);
	for (int i = 0; i < RAILS; i++)
		printf("; rail %d: %ld chunks, %ld failovers, %ld failbacks", i, rails[i].chunks,
		       rails[i].overs, rails[i].backs - 1);
	putchar('\n');
	return 0;
}
