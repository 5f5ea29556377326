/*
 * What the programs of this directory share: two ends that exchange their addresses over TCP, a
 * queue pair at each, and steps that both make together. Whatever goes wrong ends the program with
 * a line that says what.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "die.h"

#define GID_INDEX 1	/* the IPv4 address, on both devices */
#define QKEY 0x11111111
#define DEPTH 64
#define PATIENCE_S 30	/* for one completion; an emulated peer is slow */

/* What one end tells the other of itself. */
struct card {
	union ibv_gid gid;
	uint64_t addr;
	uint32_t qpn, psn, rkey;
};

struct end {
	int socket;
	int is_client;
	enum ibv_mtu mtu;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_ah *ah;
	char *buf;
	size_t size;
	struct card own, peer;
	uint8_t rd_atomic;	/* READs and atomics outstanding; 0 means 1 */
};

/* How a reliable queue pair retries. */
struct retry {
	uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer;
};

static inline uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000ull + t.tv_nsec / 1000000;
}

static inline void swap(struct end *end, const void *own, void *peer, size_t size)
{
	check(send(end->socket, own, size, MSG_NOSIGNAL) == (ssize_t)size);
	check(recv(end->socket, peer, size, MSG_WAITALL) == (ssize_t)size);
}

/* Returns when both ends are here. */
static inline void meet(struct end *end)
{
	char own = 'm', peer = 0;

	swap(end, &own, &peer, 1);
}

/* Connects to `host`, or waits for somebody to connect. */
static inline int tcp(const char *port, const char *host)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM,
				  .ai_flags = host ? 0 : AI_PASSIVE };
	struct addrinfo *at;
	int one = 1, fd, listener;

	check(getaddrinfo(host, port, &hints, &at) == 0);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (host) {
		check(connect(fd, at->ai_addr, at->ai_addrlen) == 0);
	} else {
		listener = fd;
		setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		check(bind(listener, at->ai_addr, at->ai_addrlen) == 0);
		check(listen(listener, 1) == 0);
		fd = accept(listener, NULL, NULL);
		check(fd >= 0);
		close(listener);
	}
	freeaddrinfo(at);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

/* Opens the only device and registers `size` bytes that the peer may use. */
static inline void open_end(struct end *end, size_t size, const char *port, const char *host)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;

	check(list && list[0]);
	end->ctx = ibv_open_device(list[0]);
	check(end->ctx);
	end->pd = ibv_alloc_pd(end->ctx);
	end->cq = ibv_create_cq(end->ctx, 4 * DEPTH, NULL, NULL, 0);
	check(end->pd && end->cq);
	end->size = size;
	check(posix_memalign((void **)&end->buf, 4096, size) == 0);
	memset(end->buf, 0, size);
	end->mr = ibv_reg_mr(end->pd, end->buf, size, all);
	check(end->mr);
	end->is_client = host != NULL;
	end->socket = tcp(port, host);
}

/* Whether this end is the kernel's. */
static inline int is_rxe(struct end *end)
{
	return !strncmp(ibv_get_device_name(end->ctx->device), "rxe", 3);
}

/* A queue pair that is connected to the peer's; an unreliable one takes no `retry`. */
static inline void make_qp(struct end *end, enum ibv_qp_type type, struct retry retry)
{
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq, .recv_cq = end->cq, .qp_type = type, .sq_sig_all = 1,
		.cap = { DEPTH, DEPTH, 1, 1, 0 },
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
			(type == IBV_QPT_RC ?
			 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC : 0),
	};
	int ud = type == IBV_QPT_UD, rc = type == IBV_QPT_RC;
	uint8_t rd_atomic = end->rd_atomic ? end->rd_atomic : 1;

	end->qp = ibv_create_qp(end->pd, &init);
	check(end->qp);
	errno = ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			      (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
	check(!errno);

	end->own = (struct card){ .addr = (uintptr_t)end->buf, .qpn = end->qp->qp_num,
				  .psn = lrand48() & 0xffffff, .rkey = end->mr->rkey };
	check(ibv_query_gid(end->ctx, 1, GID_INDEX, &end->own.gid) == 0);
	swap(end, &end->own, &end->peer, sizeof(end->own));

	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = end->mtu, .dest_qp_num = end->peer.qpn,
		.rq_psn = end->peer.psn, .max_dest_rd_atomic = rd_atomic,
		.min_rnr_timer = retry.min_rnr_timer,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = end->peer.gid, .sgid_index = GID_INDEX,
				      .hop_limit = 64 } },
	};
	if (ud)
		end->ah = ibv_create_ah(end->pd, &attr.ah_attr);
	check(!ud || end->ah);
	errno = ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | (ud ? 0 : IBV_QP_AV |
			      IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) |
			      (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
	check(!errno);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .sq_psn = end->own.psn, .max_rd_atomic = rd_atomic,
		.timeout = retry.timeout, .retry_cnt = retry.retry_cnt,
		.rnr_retry = retry.rnr_retry,
	};
	errno = ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN |
			      (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			       IBV_QP_MAX_QP_RD_ATOMIC : 0));
	check(!errno);
	meet(end);
}

static inline void drop_qp(struct end *end)
{
	check(ibv_destroy_qp(end->qp) == 0);
	end->qp = NULL;
}

static inline void post_recv(struct end *end, uint64_t id, void *at, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)at, length, end->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	errno = ibv_post_recv(end->qp, &wr, &bad);
	check(!errno);
}

/* Posts `wr` for `length` bytes at `at`, and for RDMA of `remote` in the peer's buffer. */
static inline void post_send(struct end *end, struct ibv_send_wr wr, void *at, uint32_t length,
			     uint64_t remote)
{
	struct ibv_sge sge = { (uintptr_t)at, length, end->mr->lkey };
	struct ibv_send_wr *bad;

	wr.sg_list = &sge;
	wr.num_sge = 1;
	if (end->qp->qp_type == IBV_QPT_UD) {
		wr.wr.ud.ah = end->ah;
		wr.wr.ud.remote_qpn = end->peer.qpn;
		wr.wr.ud.remote_qkey = QKEY;
	} else if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		   wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = end->peer.addr + remote;
		wr.wr.atomic.rkey = wr.wr.atomic.rkey ? wr.wr.atomic.rkey : end->peer.rkey;
	} else {
		wr.wr.rdma.remote_addr = end->peer.addr + remote;
		wr.wr.rdma.rkey = wr.wr.rdma.rkey ? wr.wr.rdma.rkey : end->peer.rkey;
	}
	errno = ibv_post_send(end->qp, &wr, &bad);
	check(!errno);
}

/* The next completion; there is one within `seconds`. */
static inline struct ibv_wc completion_within(struct end *end, unsigned seconds)
{
	uint64_t limit = now_ms() + seconds * 1000;
	struct ibv_wc wc;
	int polled;

	while ((polled = ibv_poll_cq(end->cq, 1, &wc)) == 0)
		if (now_ms() > limit)
			die("no completion within %u s", seconds);
	check(polled == 1);
	return wc;
}

static inline struct ibv_wc completion(struct end *end)
{
	return completion_within(end, PATIENCE_S);
}

static inline enum ibv_mtu mtu_of(const char *text)
{
	for (int mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; mtu++)
		if (128 << mtu == atoi(text))
			return mtu;
	die("%s is not an MTU: 256, 512, 1024, 2048 or 4096", text);
}
