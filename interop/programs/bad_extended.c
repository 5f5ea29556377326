// What is wrong with work requests put together call by call (ibv_wr_start), completions read field
// by field (ibv_start_poll), and the rarer objects: XRC domains, device memory, parent domains.
#include "bad.h"

#include <fcntl.h>

static struct objects on;

static struct ibv_qp_ex *make_qp_ex(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = on.cq,
		.recv_cq = on.cq,
		.cap = { DEPTH, DEPTH, SGES, SGES, INLINE },
		.qp_type = type,
		.sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = on.pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	if (type == IBV_QPT_RC)
		init.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_BIND_MW;
	struct ibv_qp *qp = ibv_create_qp_ex(on.context, &init);
	CHECK(qp && ibv_qp_to_qp_ex(qp));
	return ibv_qp_to_qp_ex(qp);
}

// A WRITE of what the statement sets, on a queue pair in RTS.
#define WRITE(name, statement)                                                         \
	do {                                                                           \
		ibv_wr_start(qp);                                                      \
		ibv_wr_rdma_write(qp, on.mr->rkey, (uintptr_t)on.buffer);              \
		statement;                                                             \
		STATUS(name, ibv_wr_complete(qp));                                     \
	} while (0)

static void requests(struct ibv_context *other)
{
	static char bytes[INLINE + 1];
	struct ibv_qp_ex *qp = make_qp_ex(IBV_QPT_RC);
	struct ibv_sge sges[SGES + 1] = { 0 };
	struct ibv_data_buf parts[2] = { { bytes, INLINE }, { bytes, 1 } };
	WRITE("ibv_wr_* in RESET", (void)0);
	connect_qp(&qp->qp_base, qp->qp_base.qp_num);
	WRITE("ibv_wr_* with too many sges", ibv_wr_set_sge_list(qp, SGES + 1, sges));
	WRITE("ibv_wr_* with SIZE_MAX sges", ibv_wr_set_sge_list(qp, SIZE_MAX, sges));
	WRITE("ibv_wr_* inline too long", ibv_wr_set_inline_data(qp, bytes, INLINE + 1));
	WRITE("ibv_wr_* inline SIZE_MAX", ibv_wr_set_inline_data(qp, bytes, SIZE_MAX));
	WRITE("ibv_wr_* inline parts too long", ibv_wr_set_inline_data_list(qp, 2, parts));
	ibv_wr_start(qp);
	for (int i = 0; i <= DEPTH; i++)
		ibv_wr_rdma_write(qp, on.mr->rkey, (uintptr_t)on.buffer);
	STATUS("ibv_wr_* more than the queue takes", ibv_wr_complete(qp));

	struct objects foreign = make_objects(other);
	struct ibv_mw *mw = ibv_alloc_mw(on.pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind_info bind = { .mr = foreign.mr, .addr = (uintptr_t)foreign.buffer,
					 .length = 8, .mw_access_flags = IBV_ACCESS_REMOTE_READ };
	CHECK(mw);
	ibv_wr_start(qp);
	ibv_wr_bind_mw(qp, mw, ibv_inc_rkey(mw->rkey), &bind);
	STATUS("ibv_wr_bind_mw to an MR of another device", ibv_wr_complete(qp));
	bind.mr = on.mr;
	CHECK(!ibv_dealloc_mw(mw));
	ibv_wr_start(qp);
	ibv_wr_bind_mw(qp, mw, mw->rkey, &bind);
	STATUS("ibv_wr_bind_mw of a destroyed MW", ibv_wr_complete(qp));

	struct ibv_wc wc;
	ANSWER("what was refused", ibv_poll_cq(on.cq, 1, &wc) ? "completed" : "was not posted");
	WRITE("ibv_wr_* as it should be", ibv_wr_set_inline_data(qp, bytes, INLINE));
	ANSWER("its completion", completion(on.cq).status ? "another one" : "success");
	CHECK(!ibv_destroy_qp(&qp->qp_base));
	WRITE("ibv_wr_* of a destroyed QP", (void)0);

	struct ibv_qp_ex *ud = make_qp_ex(IBV_QPT_UD);
	struct ibv_ah_attr attr = to_itself(on.context);
	struct ibv_ah *ah = ibv_create_ah(on.pd, &attr);
	connect_qp(&ud->qp_base, 0);
	CHECK(ah);
	ibv_wr_start(ud);
	ibv_wr_send(ud);
	STATUS("ibv_wr_send of a datagram without an AH", ibv_wr_complete(ud));
	ibv_wr_start(ud);
	ibv_wr_send(ud);
	ibv_wr_set_ud_addr(ud, ah, 1 << 24, 0);
	STATUS("ibv_wr_set_ud_addr to the QPN 1 << 24", ibv_wr_complete(ud));
	struct ibv_pd *pd = ibv_alloc_pd(on.context);
	struct ibv_ah *of_other = ibv_create_ah(pd, &attr);
	CHECK(pd && of_other);
	ibv_wr_start(ud);
	ibv_wr_send(ud);
	ibv_wr_set_ud_addr(ud, of_other, 1, 0);
	STATUS("ibv_wr_set_ud_addr by an AH of another PD", ibv_wr_complete(ud));
	CHECK(!ibv_destroy_ah(of_other) && !ibv_dealloc_pd(pd) && !ibv_destroy_ah(ah));
	ibv_wr_start(ud);
	ibv_wr_send(ud);
	ibv_wr_set_ud_addr(ud, ah, 1, 0);
	STATUS("ibv_wr_set_ud_addr by a destroyed AH", ibv_wr_complete(ud));
	CHECK(!ibv_destroy_qp(&ud->qp_base));
	struct ibv_qp *plain = make_qp(&on, IBV_QPT_RC);
	ANSWER("qp_to_qp_ex of a plain QP", ibv_qp_to_qp_ex(plain) ? "a pointer" : "null");
	CHECK(!ibv_destroy_qp(plain));
}

static void completions(void)
{
	struct ibv_cq_init_attr_ex init = { .cqe = 4 };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(on.context, &init);
	struct ibv_poll_cq_attr none = { 0 }, unknown = { .comp_mask = 1 };
	CHECK(cq);
	// Not an error, so nothing is said about it.
	CHECK(ibv_start_poll(cq, &none) == ENOENT);
	STATUS("start_poll with an unknown attribute", ibv_start_poll(cq, &unknown));
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	STATUS("start_poll of a destroyed CQ", ibv_start_poll(cq, &none));
	init.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
	init.parent_domain = on.pd;
	POINTER("create_cq_ex in a PD that is no parent", ibv_create_cq_ex(on.context, &init));
}

static void xrc_domains(void)
{
	struct ibv_xrcd_init_attr own = { .comp_mask = 3, .fd = -1, .oflags = O_CREAT };
	struct ibv_xrcd *xrcd = ibv_open_xrcd(on.context, &own);
	struct ibv_qp_init_attr_ex target = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = xrcd,
	};
	struct ibv_qp *qp = xrcd ? ibv_create_qp_ex(on.context, &target) : NULL;
	CHECK(qp);
	STATUS("close_xrcd with a QP", ibv_close_xrcd(xrcd));
	struct ibv_recv_wr recv = { 0 }, *bad;
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad_send;
	connect_qp(qp, 1);
	STATUS("post_recv to an XRC target", ibv_post_recv(qp, &recv, &bad));
	STATUS("post_send to an XRC target", ibv_post_send(qp, &send, &bad_send));
	struct ibv_qp_open_attr open = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = qp->qp_num ^ 1,
		.xrcd = xrcd,
		.qp_type = IBV_QPT_XRC_RECV,
	};
	POINTER("open_qp of an unknown number", ibv_open_qp(on.context, &open));
	open.qp_num = 1 << 24;
	POINTER("open_qp of the number 1 << 24", ibv_open_qp(on.context, &open));
	CHECK(!ibv_destroy_qp(qp) && !ibv_close_xrcd(xrcd));
	STATUS("close_xrcd of a closed one", ibv_close_xrcd(xrcd));
	POINTER("create_qp_ex in a closed XRC domain", ibv_create_qp_ex(on.context, &target));
	target.comp_mask = IBV_QP_INIT_ATTR_PD;
	target.pd = on.pd;
	POINTER("create_qp_ex XRC_RECV in a PD", ibv_create_qp_ex(on.context, &target));
}

static void domains_and_memory(void)
{
	struct ibv_td_init_attr plain = { 0 };
	struct ibv_td *td = ibv_alloc_td(on.context, &plain);
	struct ibv_parent_domain_init_attr attr = { .pd = on.pd, .td = td };
	struct ibv_pd *parent = ibv_alloc_parent_domain(on.context, &attr);
	CHECK(td && parent);
	STATUS("dealloc_td with a parent domain", ibv_dealloc_td(td));
	STATUS("dealloc_pd with a parent domain", ibv_dealloc_pd(on.pd));
	attr.pd = parent;
	POINTER("alloc_parent_domain of one", ibv_alloc_parent_domain(on.context, &attr));
	CHECK(!ibv_dealloc_pd(parent) && !ibv_dealloc_td(td));
	STATUS("dealloc_td of a destroyed TD", ibv_dealloc_td(td));
	attr.pd = on.pd;
	POINTER("alloc_parent_domain by a destroyed TD",
		ibv_alloc_parent_domain(on.context, &attr));

	struct ibv_alloc_dm_attr size = { .length = 4096 };
	struct ibv_dm *dm = ibv_alloc_dm(on.context, &size);
	CHECK(dm);
	unsigned access = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE;
	struct ibv_mr *mr = ibv_reg_dm_mr(on.pd, dm, 0, 4096, access);
	char bytes[64] = { 0 };
	CHECK(mr);
	POINTER("reg_dm_mr past its end", ibv_reg_dm_mr(on.pd, dm, 4, 4096, access));
	POINTER("reg_dm_mr around all addresses",
		ibv_reg_dm_mr(on.pd, dm, UINT64_MAX - 3, 8, access));
	STATUS("memcpy_to_dm past its end", ibv_memcpy_to_dm(dm, 4096 - 60, bytes, 64));
	STATUS("memcpy_from_dm past its end", ibv_memcpy_from_dm(bytes, dm, 4096, 64));
	STATUS("free_dm with an MR", ibv_free_dm(dm));
	CHECK(!ibv_dereg_mr(mr) && !ibv_free_dm(dm));
	STATUS("free_dm of a destroyed DM", ibv_free_dm(dm));
	STATUS("memcpy_to_dm of a destroyed DM", ibv_memcpy_to_dm(dm, 0, bytes, 64));
	POINTER("reg_dm_mr of a destroyed DM", ibv_reg_dm_mr(on.pd, dm, 0, 64, access));
	struct ibv_sge sge = { (uintptr_t)on.buffer, SIZE + 1, on.mr->lkey };
	STATUS("advise_mr past its end",
	       ibv_advise_mr(on.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1));
	sge = (struct ibv_sge){ (uintptr_t)on.buffer, 8, 0x12345678 };
	STATUS("advise_mr of an unknown lkey",
	       ibv_advise_mr(on.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1));
	STATUS("advise_mr with an unknown advice", ibv_advise_mr(on.pd, 77, 0, &sge, 1));
}

int main(void)
{
	alarm(60);
	on = make_objects(open_device(0));
	requests(open_device(1));
	completions();
	xrc_domains();
	domains_and_memory();
	return 0;
}
