// Two connected queue pairs of one device, and work requests between them.
#include "bad.h"

static struct objects here, there; // each with a protection domain of its own
static struct ibv_qp *qp, *peer;

static inline const char *name_of(int status)
{
	static const char *const NAMES[] = {
		[IBV_WC_SUCCESS] = "SUCCESS",
		[IBV_WC_LOC_LEN_ERR] = "LOC_LEN_ERR",
		[IBV_WC_LOC_QP_OP_ERR] = "LOC_QP_OP_ERR",
		[IBV_WC_LOC_PROT_ERR] = "LOC_PROT_ERR",
		[IBV_WC_WR_FLUSH_ERR] = "WR_FLUSH_ERR",
		[IBV_WC_MW_BIND_ERR] = "MW_BIND_ERR",
		[IBV_WC_LOC_ACCESS_ERR] = "LOC_ACCESS_ERR",
		[IBV_WC_RNR_RETRY_EXC_ERR] = "RNR_RETRY_EXC_ERR",
		[IBV_WC_REM_INV_REQ_ERR] = "REM_INV_REQ_ERR",
		[IBV_WC_REM_ACCESS_ERR] = "REM_ACCESS_ERR",
		[IBV_WC_REM_OP_ERR] = "REM_OP_ERR",
		[IBV_WC_GENERAL_ERR] = "GENERAL_ERR",
	};
	int known = status >= 0 && status < (int)(sizeof NAMES / sizeof *NAMES) && NAMES[status];
	return known ? NAMES[status] : "?";
}

static inline void connect_both(void)
{
	first_psn += 1 << 12;
	connect_qp(qp, peer->qp_num);
	connect_qp(peer, qp->qp_num);
}

static inline struct ibv_sge local(uint32_t length)
{
	return (struct ibv_sge){ (uintptr_t)here.buffer, length, here.mr->lkey };
}

static inline struct ibv_send_wr request(enum ibv_wr_opcode opcode, struct ibv_sge *sge)
{
	return (struct ibv_send_wr){
		.wr_id = 1,
		.opcode = opcode,
		.sg_list = sge,
		.num_sge = sge ? 1 : 0,
		.wr.rdma = { (uintptr_t)there.buffer, there.mr->rkey },
	};
}

static inline int post(struct ibv_qp *to, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;
	int status = ibv_post_send(to, wr, &bad);
	CHECK(!status || bad);
	return status;
}

static inline int receive(struct ibv_qp *to, uint64_t wr_id, struct ibv_sge *sge)
{
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = sge, .num_sge = sge ? 1 : 0 }, *bad;
	return ibv_post_recv(to, &wr, &bad);
}

static inline void make_both(void)
{
	here = make_objects(open_device(0));
	there = make_objects(here.context);
	qp = make_qp(&here, IBV_QPT_RC);
	peer = make_qp(&there, IBV_QPT_RC);
}
