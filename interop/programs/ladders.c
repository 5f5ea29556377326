/*
 * Many queue pairs that send without a break, to be watched while their link goes dark.
 *
 *   ladders PROCESSES QPS TIMEOUT RETRY_CNT END
 *
 * Starts PROCESSES processes, an even number. Each two of them connect QPS queue pairs with each
 * other; over each of them either end sends one message at a time, a new one every 20 ms, and
 * compares what it receives. All end well when the file END appears and nothing is under way.
 *
 * Prints two kinds of lines on standard output, times in nanoseconds since 1970:
 *   qp QPN PEER_QPN MESSAGES              for each queue pair, with the messages it has sent
 *   slow QPN POSTED COMPLETED             for each message that took longer than 100 ms
 */
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <infiniband/verbs.h>

enum {
	GID_INDEX = 1,
	BYTES = 1000,		/* up to four packets */
	RECEIVES = 64,		/* enough for a process that gets no core for a second */
	SLOW_MAX = 256,
	PAUSE_NS = 20000000,
	SLOW_NS = 100000000,
};

struct end { uint32_t qpn, psn; };
struct slow { uint64_t posted_ns, completed_ns; };

struct flow {
	struct ibv_qp *qp;
	struct end mine, peer;
	unsigned char *out, *in;	/* BYTES, and RECEIVES times BYTES */
	uint64_t sent, received, posted_ns, next_ns;
	int busy, slows;
	struct slow slow[SLOW_MAX];
};

static struct ibv_mr *mr;

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void check(int good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "ladders %d: %s: %s\n", getpid(), what, strerror(errno));
	exit(1);
}

static void verb(int error, const char *what)
{
	errno = error;
	check(!error, what);
}

/* Sends and receives as much; small enough for the socket's buffer. */
static void exchange(int peer, const void *mine, void *theirs, size_t length)
{
	check(write(peer, mine, length) == (ssize_t)length, "write");
	check(recv(peer, theirs, length, MSG_WAITALL) == (ssize_t)length, "the other end is gone");
}

/* What message `number` of queue pair `qpn` is like. */
static uint32_t length_of(uint32_t qpn, uint64_t number)
{
	return 1 + (qpn * 31 + number * 397) % BYTES;
}

static unsigned char byte_of(uint32_t qpn, uint64_t number, uint32_t at)
{
	return (qpn + number * 7 + at * 13) & 0xff;
}

static void connect_qp(struct flow *flow, const union ibv_gid *gid, int timeout, int retry_cnt)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_256, .dest_qp_num = flow->peer.qpn,
		.rq_psn = flow->peer.psn, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = *gid, .sgid_index = GID_INDEX, .hop_limit = 64 } },
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .timeout = timeout, .retry_cnt = retry_cnt,
		.rnr_retry = 7, .sq_psn = flow->mine.psn, .max_rd_atomic = 1,
	};
	verb(ibv_modify_qp(flow->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			   IBV_QP_ACCESS_FLAGS), "INIT");
	verb(ibv_modify_qp(flow->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			   IBV_QP_MIN_RNR_TIMER), "RTR");
	verb(ibv_modify_qp(flow->qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

static void receive(struct flow *flow, int place)
{
	struct ibv_sge sge = { (uintptr_t)(flow->in + place * BYTES), BYTES, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = place, .sg_list = &sge, .num_sge = 1 }, *bad;
	verb(ibv_post_recv(flow->qp, &wr, &bad), "receive");
}

static void send_next(struct flow *flow)
{
	uint32_t length = length_of(flow->mine.qpn, flow->sent);
	for (uint32_t at = 0; at < length; at++)
		flow->out[at] = byte_of(flow->mine.qpn, flow->sent, at);
	struct ibv_sge sge = { (uintptr_t)flow->out, length, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	flow->busy = 1;
	flow->sent++;
	flow->posted_ns = now_ns();
	flow->next_ns = flow->posted_ns + PAUSE_NS;
	verb(ibv_post_send(flow->qp, &wr, &bad), "send");
}

static void sent(struct flow *flow)
{
	struct slow slow = { flow->posted_ns, now_ns() };
	flow->busy = 0;
	if (slow.completed_ns - slow.posted_ns < SLOW_NS)
		return;
	check(flow->slows < SLOW_MAX, "too many slow messages");
	flow->slow[flow->slows++] = slow;
}

static void received(struct flow *flow, const struct ibv_wc *wc)
{
	uint32_t length = length_of(flow->peer.qpn, flow->received);
	int good = wc->byte_len == length;
	for (uint32_t at = 0; good && at < length; at++)
		good = flow->in[wc->wr_id * BYTES + at] == byte_of(flow->peer.qpn, flow->received, at);
	if (!good) {
		fprintf(stderr, "ladders %d: message %llu of queue pair %u is wrong\n", getpid(),
			(unsigned long long)flow->received, flow->peer.qpn);
		exit(1);
	}
	flow->received++;
	receive(flow, wc->wr_id);
}

static void complete(struct ibv_cq *cq, struct flow *flows, int qps)
{
	struct ibv_wc wc[32];
	int polled;
	while ((polled = ibv_poll_cq(cq, 32, wc)) > 0)
		for (int i = 0; i < polled; i++) {
			int q = 0;
			while (q < qps && flows[q].mine.qpn != wc[i].qp_num)
				q++;
			check(q < qps, "a completion of no queue pair");
			if (wc[i].status != IBV_WC_SUCCESS) {
				fprintf(stderr, "ladders %d: %s\n", getpid(), ibv_wc_status_str(wc[i].status));
				exit(1);
			}
			if (wc[i].opcode & IBV_WC_RECV)
				received(&flows[q], &wc[i]);
			else
				sent(&flows[q]);
		}
	check(!polled, "poll");
}

/* Sends until the file is there and everything has arrived. */
static void run(struct ibv_cq *cq, struct flow *flows, int qps, const char *end)
{
	for (int busy = 1, ending = 0; busy;) {
		uint64_t now = now_ns(), wake = now + PAUSE_NS;
		ending = ending || !access(end, F_OK);
		busy = !ending;
		for (int i = 0; i < qps; i++) {
			if (!ending && !flows[i].busy && now >= flows[i].next_ns)
				send_next(&flows[i]);
			if (!flows[i].busy && flows[i].next_ns < wake)
				wake = flows[i].next_ns;
			busy |= flows[i].busy;
		}
		struct pollfd events = { .fd = cq->channel->fd, .events = POLLIN };
		int ready = poll(&events, 1, wake > now ? 1 + (wake - now) / 1000000 : 1);
		check(ready >= 0, "poll");
		if (ready) {
			struct ibv_cq *which;
			void *context;
			check(!ibv_get_cq_event(cq->channel, &which, &context), "event");
			ibv_ack_cq_events(which, 1);
			verb(ibv_req_notify_cq(cq, 0), "notify");
		}
		complete(cq, flows, qps);
	}
}

static int member(int peer, int qps, int timeout, int retry_cnt, const char *end)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	check(devices && devices[0], "no device");
	struct ibv_context *context = ibv_open_device(devices[0]);
	check(!!context, "open");
	struct ibv_pd *pd = ibv_alloc_pd(context);
	check(!!pd, "protection domain");
	size_t each = (1 + RECEIVES) * BYTES;
	unsigned char *memory = calloc(qps, each);
	struct flow *flows = calloc(qps, sizeof *flows);
	check(memory && flows, "memory");
	mr = ibv_reg_mr(pd, memory, qps * each, IBV_ACCESS_LOCAL_WRITE);
	check(!!mr, "memory region");
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	check(!!channel, "channel");
	struct ibv_cq *cq = ibv_create_cq(context, qps * (1 + RECEIVES), NULL, channel, 0);
	check(!!cq, "completion queue");
	verb(ibv_req_notify_cq(cq, 0), "notify");
	union ibv_gid gid;
	check(!ibv_query_gid(context, 1, GID_INDEX, &gid), "GID");

	for (int i = 0; i < qps; i++) {
		struct flow *flow = &flows[i];
		struct ibv_qp_init_attr attr = {
			.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
			.cap = { .max_send_wr = 1, .max_recv_wr = RECEIVES, .max_send_sge = 1,
				 .max_recv_sge = 1 },
		};
		flow->qp = ibv_create_qp(pd, &attr);
		check(!!flow->qp, "queue pair");
		flow->mine = (struct end){ flow->qp->qp_num, (flow->qp->qp_num * 7919u) & 0xffffff };
		flow->out = memory + i * each;
		flow->in = flow->out + BYTES;
		flow->next_ns = now_ns() + i * (PAUSE_NS / qps);
		exchange(peer, &flow->mine, &flow->peer, sizeof flow->mine);
		connect_qp(flow, &gid, timeout, retry_cnt);
		for (int place = 0; place < RECEIVES; place++)
			receive(flow, place);
	}
	char ready = 0;
	exchange(peer, &ready, &ready, 1);
	run(cq, flows, qps, end);
	/* When both ends are here, each has received what the other has sent. */
	exchange(peer, &ready, &ready, 1);
	complete(cq, flows, qps);
	for (int i = 0; i < qps; i++) {
		struct flow *flow = &flows[i];
		uint64_t theirs;
		exchange(peer, &flow->sent, &theirs, sizeof theirs);
		check(flow->received == theirs, "messages are missing");
		printf("qp %u %u %llu\n", flow->mine.qpn, flow->peer.qpn,
		       (unsigned long long)flow->sent);
		for (int s = 0; s < flow->slows; s++)
			printf("slow %u %llu %llu\n", flow->mine.qpn,
			       (unsigned long long)flow->slow[s].posted_ns,
			       (unsigned long long)flow->slow[s].completed_ns);
	}
	/* The last acknowledgements are on their way before anything goes. */
	exchange(peer, &ready, &ready, 1);
	verb(ibv_close_device(context), "close");
	return 0;
}

int main(int argc, char **argv)
{
	/* A line at a time, or those of several processes would mix. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 7 && !strcmp(argv[1], "member"))
		return member(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]), atoi(argv[5]), argv[6]);
	if (argc != 6 || atoi(argv[1]) % 2) {
		fprintf(stderr, "usage: ladders PROCESSES QPS TIMEOUT RETRY_CNT END\n");
		return 2;
	}
	int processes = atoi(argv[1]), ends[2], failed = 0;
	for (int i = 0; i < processes; i++) {
		int side = i % 2;
		check(side || !socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
		pid_t child = fork();
		check(child >= 0, "fork");
		if (!child) {
			char peer[16];
			snprintf(peer, sizeof peer, "%d", ends[side]);
			close(ends[!side]);
			execl("/proc/self/exe", "ladders", "member", peer, argv[2], argv[3], argv[4],
			      argv[5], NULL);
			_exit(127);
		}
		/* The second child needs the second end only. */
		close(ends[side]);
	}
	for (int i = 0, status; i < processes; i++)
		failed |= wait(&status) < 0 || status;
	return failed;
}
