// Work requests that cannot be posted, or fail.
#include "bad_work.h"

// A request on connected queue pairs: how it completes.
static void work(const char *name, struct ibv_send_wr wr)
{
	connect_both();
	begin(name);
	CHECK(!post(qp, &wr));
	struct ibv_wc wc = completion(here.cq);
	puts(wc.wr_id == 1 ? name_of(wc.status) : "nothing");
}

// A SEND of 64 bytes into a receive: how both complete.
static void message(const char *name, struct ibv_sge into)
{
	struct ibv_sge sge = local(64);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge);
	connect_both();
	CHECK(!receive(peer, 2, &into));
	begin(name);
	CHECK(!post(qp, &wr));
	struct ibv_wc sent = completion(here.cq), received = completion(there.cq);
	printf("%s, %s\n", sent.wr_id == 1 ? name_of(sent.status) : "nothing",
	       received.wr_id == 2 ? name_of(received.status) : "nothing");
}

// A READ or atomic of 8 bytes: how it completes, what the card would say of that, and whether the
// peer has executed it.
static void fetch(const char *name, struct ibv_send_wr wr)
{
	uint64_t *word = (uint64_t *)there.buffer, before = *word;
	if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)word;
		wr.wr.atomic.rkey = there.mr->rkey;
		wr.wr.atomic.compare_add = 1;
	}
	connect_both();
	begin(name);
	CHECK(!post(qp, &wr));
	struct ibv_wc wc = completion(here.cq);
	printf("%s %#x", name_of(wc.status), wc.vendor_err);
	puts(wr.opcode == IBV_WR_RDMA_READ ? "" : *word == before ? ", not executed" : ", executed");
}

// A WRITE with immediate data, while receives 2 and 3 are posted: how it and they complete.
static void immediate(const char *name, uint32_t length, uint32_t rkey)
{
	struct ibv_sge sge = local(length);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE_WITH_IMM, &sge);
	wr.wr.rdma.rkey = rkey;
	connect_both();
	CHECK(!receive(peer, 2, NULL) && !receive(peer, 3, NULL));
	begin(name);
	CHECK(!post(qp, &wr));
	struct ibv_wc sent = completion(here.cq);
	printf("%s", name_of(sent.status));
	struct ibv_wc received = completion(there.cq);
	printf(", %s", received.wr_id == 2 ? name_of(received.status) : "?");
	if (sent.status != IBV_WC_SUCCESS) {
		received = completion(there.cq);
		printf(", %s", received.wr_id == 3 ? name_of(received.status) : "?");
	}
	puts("");
}

static void local_keys(void)
{
	struct ibv_sge sge = local(64);
	struct ibv_mr *gone = ibv_reg_mr(here.pd, here.buffer, SIZE, EVERYTHING);
	struct ibv_mr *read_only = ibv_reg_mr(here.pd, here.buffer, SIZE, 0);
	CHECK(gone && read_only);
	uint32_t stale = gone->lkey;
	CHECK(!ibv_dereg_mr(gone));
#define WRITE_FROM(name, address, key)                                                 \
	do {                                                                           \
		sge = (struct ibv_sge){ address, 64, key };                            \
		work(name, request(IBV_WR_RDMA_WRITE, &sge));                          \
	} while (0)
	uintptr_t start = (uintptr_t)here.buffer;
	WRITE_FROM("sge inside its MR", start + SIZE - 64, here.mr->lkey);
	WRITE_FROM("sge one byte past its MR", start + SIZE - 63, here.mr->lkey);
	WRITE_FROM("sge one byte before its MR", start - 1, here.mr->lkey);
	WRITE_FROM("sge around the end of all addresses", UINTPTR_MAX - 31, here.mr->lkey);
	WRITE_FROM("sge with an unknown lkey", start, 0x12345678);
	WRITE_FROM("sge with lkey 0", start, 0);
	WRITE_FROM("sge with a stale lkey", start, stale);
	WRITE_FROM("sge with the lkey of another PD", (uintptr_t)there.buffer, there.mr->lkey);
	// The request goes out, and fails when there is something to put there.
#define FETCH_INTO(name, key)                                                          \
	do {                                                                           \
		sge = (struct ibv_sge){ start, 8, key };                               \
		fetch("READ into " name, request(IBV_WR_RDMA_READ, &sge));             \
		fetch("atomic into " name, request(IBV_WR_ATOMIC_FETCH_AND_ADD, &sge)); \
	} while (0)
	FETCH_INTO("its MR", here.mr->lkey);
	FETCH_INTO("an MR without LOCAL_WRITE", read_only->lkey);
	FETCH_INTO("an unknown lkey", 0x12345678);
	FETCH_INTO("a stale lkey", stale);
	FETCH_INTO("the lkey of another PD", there.mr->lkey);
	CHECK(!ibv_dereg_mr(read_only));

	read_only = ibv_reg_mr(there.pd, there.buffer, SIZE, 0);
	uintptr_t target = (uintptr_t)there.buffer;
	message("receive", (struct ibv_sge){ target, 64, there.mr->lkey });
	message("receive too short", (struct ibv_sge){ target, 63, there.mr->lkey });
	message("receive past its MR", (struct ibv_sge){ target + SIZE - 8, 64, there.mr->lkey });
	message("receive with an unknown lkey", (struct ibv_sge){ target, 64, 0x12345678 });
	message("receive with the lkey of another PD", local(64));
	message("receive without LOCAL_WRITE", (struct ibv_sge){ target, 64, read_only->lkey });
	CHECK(!ibv_dereg_mr(read_only));
}

static void remote_keys(void)
{
	struct ibv_sge sge = local(64), eight = local(8), four = local(4);
	struct ibv_mr *gone = ibv_reg_mr(there.pd, there.buffer, SIZE, EVERYTHING);
	struct ibv_mr *closed = ibv_reg_mr(there.pd, there.buffer, SIZE, IBV_ACCESS_LOCAL_WRITE);
	CHECK(gone && closed);
	uint32_t stale = gone->rkey;
	CHECK(!ibv_dereg_mr(gone));
	uintptr_t start = (uintptr_t)there.buffer;
#define REMOTE(name, op, list, address, key)                                           \
	do {                                                                           \
		struct ibv_send_wr wr = request(op, list);                             \
		wr.wr.atomic.remote_addr = address;                                    \
		if (op == IBV_WR_ATOMIC_FETCH_AND_ADD)                                 \
			wr.wr.atomic.rkey = key;                                       \
		else                                                                   \
			wr.wr.rdma.rkey = key;                                         \
		work(name, wr);                                                        \
	} while (0)
	REMOTE("WRITE", IBV_WR_RDMA_WRITE, &sge, start, there.mr->rkey);
	REMOTE("WRITE with an unknown rkey", IBV_WR_RDMA_WRITE, &sge, start, 0x12345678);
	REMOTE("READ with an unknown rkey", IBV_WR_RDMA_READ, &sge, start, 0x12345678);
	REMOTE("WRITE with a stale rkey", IBV_WR_RDMA_WRITE, &sge, start, stale);
	REMOTE("READ with a stale rkey", IBV_WR_RDMA_READ, &sge, start, stale);
	REMOTE("WRITE past the MR", IBV_WR_RDMA_WRITE, &sge, start + SIZE - 63, there.mr->rkey);
	REMOTE("READ before the MR", IBV_WR_RDMA_READ, &sge, start - 1, there.mr->rkey);
	REMOTE("WRITE around the end of all addresses", IBV_WR_RDMA_WRITE, &sge, UINT64_MAX - 31,
	       there.mr->rkey);
	REMOTE("WRITE without REMOTE_WRITE", IBV_WR_RDMA_WRITE, &sge, start, closed->rkey);
	REMOTE("READ without REMOTE_READ", IBV_WR_RDMA_READ, &sge, start, closed->rkey);
	REMOTE("WRITE to an MR of another PD", IBV_WR_RDMA_WRITE, &sge, (uintptr_t)here.buffer,
	       here.mr->rkey);
	enum ibv_wr_opcode add = IBV_WR_ATOMIC_FETCH_AND_ADD;
	REMOTE("atomic", add, &eight, start, there.mr->rkey);
	REMOTE("atomic without REMOTE_ATOMIC", add, &eight, start, closed->rkey);
	REMOTE("atomic at an odd address", add, &eight, start + 1, there.mr->rkey);
	REMOTE("atomic of four bytes", add, &four, start, there.mr->rkey);
	immediate("WRITE with immediate data", 64, there.mr->rkey);
	immediate("WRITE with immediate data and an unknown rkey", 64, 0x12345678);
	immediate("WRITE with immediate data and a stale rkey", 64, stale);
	immediate("WRITE with immediate data without REMOTE_WRITE", 64, closed->rkey);
	// Its first packet is refused; only the last one would have taken a receive.
	immediate("long WRITE with immediate data and an unknown rkey", 4096, 0x12345678);
	immediate("WRITE of nothing with immediate data and an unknown rkey", 0, 0x12345678);
	CHECK(!ibv_dereg_mr(closed));
}

static void nothing_at_all(void)
{
	struct ibv_sge empty = { 0x1000, 0, 0x12345678 };
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, NULL);
	work("WRITE of nothing", wr);
	wr.wr.rdma.rkey = 0x12345678;
	work("WRITE of nothing with an unknown rkey", wr);
	wr.opcode = IBV_WR_RDMA_READ;
	work("READ of nothing with an unknown rkey", wr);
	work("WRITE of an empty sge with an unknown lkey", request(IBV_WR_RDMA_WRITE, &empty));
	connect_both();
	wr = request(IBV_WR_SEND, NULL);
	CHECK(!receive(peer, 2, NULL) && !post(qp, &wr));
	struct ibv_wc sent = completion(here.cq), received = completion(there.cq);
	ANSWER("SEND of nothing", name_of(sent.status));
	ANSWER("receive of nothing",
	       received.wr_id == 2 && !received.byte_len ? name_of(received.status) : "?");
}

static void refused(void)
{
	struct ibv_sge many[40], sge = local(64), long_one = local(UINT32_MAX);
	struct ibv_send_wr wr, *bad;
	struct ibv_recv_wr recv = { .sg_list = many, .num_sge = SGES + 1 }, *bad_recv;
	for (int i = 0; i < 40; i++)
		many[i] = local(1);
	connect_both();
#define REFUSED(name, op, list, statement)                                             \
	do {                                                                           \
		wr = request(op, list);                                                \
		statement;                                                             \
		STATUS(name, post(qp, &wr));                                           \
	} while (0)
	REFUSED("too many sges", IBV_WR_SEND, many, wr.num_sge = SGES + 1);
	REFUSED("more sges than the device takes", IBV_WR_SEND, many, wr.num_sge = 31);
	REFUSED("-1 sges", IBV_WR_SEND, many, wr.num_sge = -1);
	REFUSED("sges at null", IBV_WR_SEND, NULL, wr.num_sge = 1);
	STATUS("too many sges to receive", ibv_post_recv(qp, &recv, &bad_recv));
	recv.num_sge = -1;
	STATUS("-1 sges to receive", ibv_post_recv(qp, &recv, &bad_recv));
	sge.length = INLINE + 1;
	REFUSED("inline too long", IBV_WR_SEND, &sge, wr.send_flags = IBV_SEND_INLINE);
	sge.length = SIZE;
	REFUSED("inline far too long", IBV_WR_SEND, &sge, wr.send_flags = IBV_SEND_INLINE);
	sge.length = 8;
	REFUSED("inline READ", IBV_WR_RDMA_READ, &sge, wr.send_flags = IBV_SEND_INLINE);
	REFUSED("more than 2 GiB", IBV_WR_RDMA_WRITE, &long_one, (void)0);
	REFUSED("opcode 99", 99, &sge, (void)0);
	REFUSED("opcode -1", -1, &sge, (void)0);
	REFUSED("opcode TSO", IBV_WR_TSO, &sge, (void)0);
	REFUSED("opcode BIND_MW without a window", IBV_WR_BIND_MW, NULL, (void)0);
	STATUS("no requests at all", ibv_post_send(qp, NULL, &bad));

	struct ibv_send_wr chain[3] = { request(IBV_WR_RDMA_WRITE, &sge), request(99, &sge),
					request(IBV_WR_RDMA_WRITE, &sge) };
	chain[0].next = &chain[1];
	chain[1].next = &chain[2];
	STATUS("the second of three", ibv_post_send(qp, chain, &bad));
	ANSWER("bad_wr", bad == &chain[1] ? "the second" : "another one");
	ANSWER("the first of three", name_of(completion(here.cq).status));
	struct ibv_wc wc;
	usleep(1000);
	ANSWER("the third of three", ibv_poll_cq(here.cq, 1, &wc) ? "completed" : "not posted");

	for (int i = 0; i < DEPTH; i++)
		CHECK(!receive(qp, 2, NULL));
	STATUS("receive queue full", receive(qp, 2, NULL));
	step(qp, IBV_QPS_SQD, 0);
	wr = request(IBV_WR_RDMA_WRITE, &sge);
	for (int i = 0; i < DEPTH; i++)
		CHECK(!post(qp, &wr));
	STATUS("send queue full", post(qp, &wr));

	wr.next = &wr;
	STATUS("a chain that is a circle", ibv_post_send(qp, &wr, &bad));
	wr.next = NULL;

	step(qp, IBV_QPS_RESET, 0);
	STATUS("send in RESET", post(qp, &wr));
	STATUS("receive in RESET", receive(qp, 2, NULL));
	step(qp, IBV_QPS_INIT, 0);
	STATUS("send in INIT", post(qp, &wr));
	STATUS("receive in INIT", receive(qp, 2, NULL));
	step(qp, IBV_QPS_RTR, peer->qp_num);
	STATUS("send in RTR", post(qp, &wr));
}

static void other_types(void)
{
	struct ibv_sge sge = local(8), page = local(4097);
	struct ibv_qp *uc = make_qp(&here, IBV_QPT_UC), *ud = make_qp(&here, IBV_QPT_UD);
	struct ibv_ah_attr attr = to_itself(here.context);
	struct ibv_ah *ah = ibv_create_ah(here.pd, &attr);
	CHECK(ah);
	connect_qp(uc, uc->qp_num);
	connect_qp(ud, 0);
#define OF_TYPE(which, op)                                                             \
	do {                                                                           \
		struct ibv_send_wr wr = request(op, &sge);                             \
		STATUS(#op " of " #which, post(which, &wr));                           \
	} while (0)
	OF_TYPE(uc, IBV_WR_RDMA_READ);
	OF_TYPE(uc, IBV_WR_ATOMIC_CMP_AND_SWP);
	OF_TYPE(uc, IBV_WR_SEND_WITH_INV);
	OF_TYPE(ud, IBV_WR_RDMA_WRITE);
	OF_TYPE(ud, IBV_WR_RDMA_READ);
	OF_TYPE(ud, IBV_WR_ATOMIC_FETCH_AND_ADD);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = 1 << 24;
	STATUS("datagram to the QPN 1 << 24", post(ud, &wr));
	wr = request(IBV_WR_SEND, &page);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = ud->qp_num;
	begin("datagram longer than the MTU");
	CHECK(!post(ud, &wr));
	puts(name_of(completion(here.cq).status));
	CHECK(!ibv_destroy_qp(uc) && !ibv_destroy_qp(ud) && !ibv_destroy_ah(ah));

	struct ibv_srq_init_attr init = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(here.pd, &init);
	struct ibv_srq *foreign = ibv_create_srq(there.pd, &init);
	struct ibv_qp_init_attr with_srq = qp_init(&here, IBV_QPT_RC);
	struct ibv_qp *other;
	CHECK(srq && foreign);
	with_srq.srq = foreign;
	POINTER("create_qp with an SRQ of another PD", other = ibv_create_qp(here.pd, &with_srq));
	CHECK(!ibv_destroy_qp(other));
	with_srq.srq = srq;
	struct ibv_qp *shared = ibv_create_qp(here.pd, &with_srq);
	CHECK(shared);
	step(shared, IBV_QPS_INIT, 0);
	STATUS("receive on a QP with an SRQ", receive(shared, 2, NULL));
	struct ibv_recv_wr recv = { 0 }, *bad;
	CHECK(!ibv_post_srq_recv(srq, &recv, &bad));
	STATUS("SRQ full", ibv_post_srq_recv(srq, &recv, &bad));
	CHECK(!ibv_destroy_qp(shared) && !ibv_destroy_srq(srq) && !ibv_destroy_srq(foreign));
}

// A SEND, then a WRITE, to a queue pair whose shared receive queue has another PD: how the SEND,
// the receive and the WRITE complete.
static void domains(const char *name, struct ibv_mr *into, struct ibv_mr *target)
{
	struct ibv_pd *pd = ibv_alloc_pd(there.context);
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(there.pd, &init);
	struct ibv_qp_init_attr with_srq = qp_init(&there, IBV_QPT_RC);
	with_srq.srq = srq;
	struct ibv_qp *plain = peer;
	CHECK(pd && srq && (peer = ibv_create_qp(pd, &with_srq)));
	struct ibv_mr *in_qp = ibv_reg_mr(pd, there.buffer, SIZE, EVERYTHING);
	CHECK(in_qp);
	struct ibv_sge sge = local(64);
	struct ibv_sge to = { (uintptr_t)there.buffer, 64, into ? into->lkey : in_qp->lkey };
	struct ibv_recv_wr recv = { .wr_id = 2, .sg_list = &to, .num_sge = 1 }, *bad;
	struct ibv_send_wr send = request(IBV_WR_SEND, &sge), write = request(IBV_WR_RDMA_WRITE, &sge);
	write.wr.rdma.rkey = target ? target->rkey : in_qp->rkey;
	connect_both();
	CHECK(!ibv_post_srq_recv(srq, &recv, &bad));
	begin(name);
	CHECK(!post(qp, &send));
	printf("%s, ", name_of(completion(here.cq).status));
	printf("%s, ", name_of(completion(there.cq).status));
	connect_both();
	CHECK(!post(qp, &write));
	puts(name_of(completion(here.cq).status));
	CHECK(!ibv_destroy_qp(peer) && !ibv_destroy_srq(srq) && !ibv_dereg_mr(in_qp));
	CHECK(!ibv_dealloc_pd(pd));
	peer = plain;
}

static void two_domains(void)
{
	domains("receive and rkey each of its PD", there.mr, NULL);
	domains("receive of the QP's PD, rkey of the SRQ's", NULL, there.mr);
}

static void windows(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(here.pd, IBV_MW_TYPE_2);
	CHECK(mw);
	struct ibv_send_wr bind = request(IBV_WR_BIND_MW, NULL);
	bind.bind_mw.mw = mw;
	bind.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = here.mr, .addr = (uintptr_t)here.buffer, .length = SIZE + 1,
		.mw_access_flags = IBV_ACCESS_REMOTE_READ,
	};
	bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	work("bind past the MR", bind);
	bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	bind.bind_mw.bind_info.length = 8;
	bind.bind_mw.bind_info.mr = there.mr;
	work("bind to an MR of another PD", bind);
	struct ibv_send_wr invalidate = request(IBV_WR_LOCAL_INV, NULL);
	invalidate.invalidate_rkey = 0x12345678;
	work("LOCAL_INV of an unknown rkey", invalidate);
	CHECK(!ibv_dealloc_mw(mw));
}

// Binds the peer's window with `key`, and writes through it with the tag of that key.
static void bind_any(const char *name, struct ibv_mw *mw, uint32_t key, struct ibv_qp_ex *ex)
{
	uint32_t before = mw->rkey, actual = (before & ~0xffu) | (key & 0xff);
	struct ibv_mw_bind_info info = {
		.mr = there.mr, .addr = (uintptr_t)there.buffer, .length = 64,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	struct ibv_send_wr bind = request(IBV_WR_BIND_MW, NULL);
	bind.bind_mw.mw = mw;
	bind.bind_mw.rkey = key;
	bind.bind_mw.bind_info = info;
	struct ibv_send_wr end = request(IBV_WR_LOCAL_INV, NULL);
	end.invalidate_rkey = actual;
	struct ibv_sge sge = local(64);
	struct ibv_send_wr write = request(IBV_WR_RDMA_WRITE, &sge);
	write.wr.rdma.rkey = actual;
	connect_both();
	begin(name);
	if (ex) {
		ibv_wr_start(ex);
		ex->wr_id = 1;
		ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_bind_mw(ex, mw, key, &info);
		CHECK(!ibv_wr_complete(ex));
	} else {
		CHECK(!post(peer, &bind));
	}
	struct ibv_wc bound = completion(there.cq);
	CHECK(bound.wr_id == 1 && bound.status == IBV_WC_SUCCESS);
	// The provider of a card leaves the field to the program, which knows the key it chose.
	CHECK(mw->rkey == before);
	CHECK(!post(qp, &write));
	struct ibv_wc written = completion(here.cq);
	CHECK(!post(peer, &end));
	struct ibv_wc ended = completion(there.cq);
	CHECK(written.wr_id == 1 && ended.wr_id == 1);
	printf("%s, %s\n", name_of(written.status), name_of(ended.status));
}

// The window is the one of the pointer. Of the key that a program chooses for one of type 2 the
// last 8 bits count, as with the providers of cards.
static void keys_of_windows(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(there.pd, IBV_MW_TYPE_2);
	struct ibv_mw *other = ibv_alloc_mw(there.pd, IBV_MW_TYPE_2);
	struct ibv_mw *first = ibv_alloc_mw(there.pd, IBV_MW_TYPE_1);
	CHECK(mw && other && first);
	bind_any("bind with the next key", mw, ibv_inc_rkey(mw->rkey), NULL);
	bind_any("bind with the present key", mw, mw->rkey, NULL);
	bind_any("bind with a tag alone", mw, 0x5a, NULL);
	bind_any("bind with key 0", mw, 0, NULL);
	bind_any("bind with all bits", mw, UINT32_MAX, NULL);
	bind_any("bind with a neighbour's key", mw, other->rkey, NULL);
	bind_any("bind with the key of an MR", mw, there.mr->rkey, NULL);

	struct ibv_qp *plain = peer;
	struct ibv_qp_init_attr_ex init = {
		.send_cq = there.cq,
		.recv_cq = there.cq,
		.cap = { DEPTH, DEPTH, SGES, SGES, INLINE },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = there.pd,
		.send_ops_flags = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV,
	};
	CHECK(peer = ibv_create_qp_ex(there.context, &init));
	bind_any("wr_bind_mw with a tag alone", mw, 0xa5, ibv_qp_to_qp_ex(peer));
	bind_any("wr_bind_mw with a neighbour's key", mw, other->rkey, ibv_qp_to_qp_ex(peer));
	CHECK(!ibv_destroy_qp(peer));
	peer = plain;

	struct ibv_send_wr bind = request(IBV_WR_BIND_MW, NULL);
	bind.bind_mw.mw = first;
	connect_both();
	STATUS("BIND_MW of type 1", post(peer, &bind));
	struct ibv_mw_bind verb = { .bind_info = { .mr = there.mr, .length = 8,
						   .addr = (uintptr_t)there.buffer } };
	struct ibv_mr *from_zero = ibv_reg_mr(there.pd, there.buffer, SIZE,
					      EVERYTHING | IBV_ACCESS_ZERO_BASED);
	struct ibv_mr *null = ibv_alloc_null_mr(there.pd);
	CHECK(from_zero && null);
	verb.bind_info.mr = from_zero;
	STATUS("bind_mw to a zero-based MR", ibv_bind_mw(peer, first, &verb));
	verb.bind_info.mr = null;
	STATUS("bind_mw to a null MR", ibv_bind_mw(peer, first, &verb));
	verb.bind_info.mr = there.mr;
	CHECK(!ibv_dereg_mr(from_zero) && !ibv_dereg_mr(null));
	uint32_t before = first->rkey;
	verb.wr_id = 5;
	CHECK(!ibv_bind_mw(peer, first, &verb) && completion(there.cq).wr_id == 5);
	ANSWER("rkey after bind_mw", first->rkey == ibv_inc_rkey(before) ? "the next" : "?");
	CHECK(!ibv_dealloc_mw(mw) && !ibv_dealloc_mw(other) && !ibv_dealloc_mw(first));
}

int main(void)
{
	alarm(80);
	make_both();
	local_keys();
	remote_keys();
	nothing_at_all();
	refused();
	other_types();
	two_domains();
	windows();
	keys_of_windows();
	return 0;
}
