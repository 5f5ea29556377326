// What the programs that do what they may not have in common: a device's objects, and a line for
// each case with its name and the answer. The case's name also goes to standard error, so that the
// test knows which case a line there belongs to.
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what)                                                                    \
	do {                                                                           \
		if (!(what)) {                                                         \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__,  \
				#what, errno);                                         \
			exit(1);                                                       \
		}                                                                      \
	} while (0)

// A call that returns 0 or an error number.
#define STATUS(name, call) (begin(name), end_number(call))
// A call that returns -1 and sets errno.
#define NUMBER(name, call) (begin(name), errno = 0, end_number((call) < 0 ? errno : 0))
// A call that returns null and sets errno.
#define POINTER(name, call) (begin(name), errno = 0, end_number((call) ? 0 : errno))
// A case whose answer is a text.
#define ANSWER(name, text) (begin(name), (void)puts(text))

enum { SIZE = 8192, DEPTH = 8, SGES = 4, INLINE = 64 };
enum { EVERYTHING = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		    IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND };

static inline void begin(const char *name)
{
	// Should the case crash, the last line says where.
	printf("%s: ", name);
	fflush(stdout);
	fprintf(stderr, "== %s\n", name);
}

static inline void end_number(int error)
{
	puts(error ? strerrorname_np(error) ?: "?" : "ok");
}

static inline struct ibv_context *open_device(int index)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0] && (!index || list[1]));
	struct ibv_context *context = ibv_open_device(list[index]);
	CHECK(context);
	ibv_free_device_list(list);
	return context;
}

struct objects {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char *buffer;
};

static inline struct objects make_objects(struct ibv_context *context)
{
	struct objects on = { .context = context, .pd = ibv_alloc_pd(context) };
	on.cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
	on.buffer = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(on.pd && on.cq && on.buffer != MAP_FAILED);
	on.mr = ibv_reg_mr(on.pd, on.buffer, SIZE, EVERYTHING);
	CHECK(on.mr);
	return on;
}

static inline struct ibv_qp_init_attr qp_init(const struct objects *on, enum ibv_qp_type type)
{
	return (struct ibv_qp_init_attr){
		.send_cq = on->cq,
		.recv_cq = on->cq,
		.cap = { DEPTH, DEPTH, SGES, SGES, INLINE },
		.qp_type = type,
		.sq_sig_all = 1,
	};
}

static inline struct ibv_qp *make_qp(const struct objects *on, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = qp_init(on, type);
	struct ibv_qp *qp = ibv_create_qp(on->pd, &init);
	CHECK(qp);
	return qp;
}

static inline struct ibv_ah_attr to_itself(struct ibv_context *context)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .sgid_index = 1, .hop_limit = 64 },
	};
	CHECK(!ibv_query_gid(context, 1, 1, &attr.grh.dgid));
	return attr;
}

enum {
	TO_INIT = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT,
	RC_TO_INIT = TO_INIT | IBV_QP_ACCESS_FLAGS,
	UD_TO_INIT = TO_INIT | IBV_QP_QKEY,
	UC_TO_RTR = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
	RC_TO_RTR = UC_TO_RTR | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	UC_TO_RTS = IBV_QP_STATE | IBV_QP_SQ_PSN,
	RC_TO_RTS = UC_TO_RTS | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		    IBV_QP_MAX_QP_RD_ATOMIC,
};

// The first PSN of connections. A program that connects queue pairs again changes it, so that late
// packets of the last connection are not taken for those of the next.
static uint32_t first_psn = 7;

// Good attributes for every step, to the queue pair `peer` of the same device.
static inline struct ibv_qp_attr good(struct ibv_qp *qp, enum ibv_qp_state state, uint32_t peer)
{
	return (struct ibv_qp_attr){
		.qp_state = state,
		.port_num = 1,
		.qp_access_flags = EVERYTHING & ~IBV_ACCESS_MW_BIND,
		.qkey = 0x11111111,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.rq_psn = first_psn,
		.sq_psn = first_psn,
		.max_dest_rd_atomic = 4,
		.max_rd_atomic = 4,
		.min_rnr_timer = 1,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = to_itself(qp->context),
	};
}

static inline void step(struct ibv_qp *qp, enum ibv_qp_state state, uint32_t peer)
{
	int mask = IBV_QP_STATE;
	if (state == IBV_QPS_INIT)
		mask = qp->qp_type == IBV_QPT_UD ? UD_TO_INIT : RC_TO_INIT;
	else if (state == IBV_QPS_RTR && qp->qp_type != IBV_QPT_UD)
		mask = qp->qp_type == IBV_QPT_UC ? UC_TO_RTR : RC_TO_RTR;
	else if (state == IBV_QPS_RTS)
		mask = qp->qp_type == IBV_QPT_UC || qp->qp_type == IBV_QPT_UD ? UC_TO_RTS
									      : RC_TO_RTS;
	struct ibv_qp_attr attr = good(qp, state, peer);
	CHECK(!ibv_modify_qp(qp, &attr, mask));
}

static inline void connect_qp(struct ibv_qp *qp, uint32_t peer)
{
	step(qp, IBV_QPS_RESET, peer);
	step(qp, IBV_QPS_INIT, peer);
	step(qp, IBV_QPS_RTR, peer);
	step(qp, IBV_QPS_RTS, peer);
}

// The next completion, or one with the wr_id 0 after some seconds without any.
static inline struct ibv_wc completion(struct ibv_cq *cq)
{
	struct ibv_wc wc = { 0 };
	for (time_t end = time(NULL) + 10; time(NULL) < end;) {
		int got = ibv_poll_cq(cq, 1, &wc);
		CHECK(got >= 0);
		if (got)
			return wc;
	}
	return (struct ibv_wc){ 0 };
}
