// What verbs answer to work that goes well, and what the completions of work that fails say beyond
// their status.
#include "bad_work.h"

#include <poll.h>

static struct ibv_qp_attr queried;
static struct ibv_qp_init_attr created;

static void query(struct ibv_qp *which)
{
	memset(&queried, 0xff, sizeof queried);
	CHECK(!ibv_query_qp(which, &queried, IBV_QP_STATE | IBV_QP_CAP, &created));
	CHECK(queried.cur_qp_state == queried.qp_state);
	CHECK(queried.qp_state == which->state);
}

// ibv_query_qp tells what ibv_modify_qp has set so far.
static void attributes(void)
{
	struct ibv_qp_attr set = good(qp, IBV_QPS_INIT, peer->qp_num);
	step(qp, IBV_QPS_RESET, 0);
	query(qp);
	ANSWER("query_qp in RESET", queried.qp_state == IBV_QPS_RESET && !queried.rq_psn &&
						    !queried.sq_psn && !queried.dest_qp_num &&
						    !queried.qp_access_flags && !queried.timeout
					    ? "nothing set"
					    : "?");
	ANSWER("capacities", queried.cap.max_send_wr >= DEPTH && queried.cap.max_recv_wr >= DEPTH &&
					     queried.cap.max_send_sge >= SGES &&
					     queried.cap.max_inline_data >= INLINE
				     ? "no less than asked for"
				     : "?");
	ANSWER("creation", created.send_cq == here.cq && created.recv_cq == here.cq &&
					   !created.srq && created.qp_type == IBV_QPT_RC &&
					   created.sq_sig_all == 1 &&
					   !memcmp(&created.cap, &queried.cap, sizeof created.cap)
				   ? "as it was"
				   : "?");
	step(qp, IBV_QPS_INIT, 0);
	query(qp);
	ANSWER("query_qp in INIT", queried.port_num == 1 && !queried.pkey_index && !queried.rq_psn &&
						   queried.qp_access_flags == set.qp_access_flags
					   ? "as set"
					   : "?");
	step(qp, IBV_QPS_RTR, peer->qp_num);
	query(qp);
	ANSWER("query_qp in RTR",
	       queried.dest_qp_num == peer->qp_num && queried.rq_psn == first_psn &&
			       !queried.sq_psn && queried.path_mtu == set.path_mtu &&
			       queried.max_dest_rd_atomic == set.max_dest_rd_atomic &&
			       queried.min_rnr_timer == set.min_rnr_timer &&
			       !memcmp(&queried.ah_attr.grh.dgid, &set.ah_attr.grh.dgid, 16) &&
			       queried.ah_attr.grh.sgid_index == 1 && queried.ah_attr.is_global
		       ? "as set"
		       : "?");
	step(qp, IBV_QPS_RTS, peer->qp_num);
	query(qp);
	ANSWER("query_qp in RTS", queried.sq_psn == first_psn && queried.timeout == set.timeout &&
						  queried.retry_cnt == set.retry_cnt &&
						  queried.rnr_retry == set.rnr_retry &&
						  queried.max_rd_atomic == set.max_rd_atomic &&
						  !queried.sq_draining
					  ? "as set"
					  : "?");
}

// The PSNs are those that come next, whatever has become of the queue pair.
static void sequence_numbers(void)
{
	struct ibv_sge sge = local(4096);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	connect_both();
	CHECK(!post(qp, &wr) && completion(here.cq).status == IBV_WC_SUCCESS);
	query(qp);
	ANSWER("sq_psn after four packets", queried.sq_psn == first_psn + 4 ? "+4" : "?");
	query(peer);
	ANSWER("rq_psn of the peer", queried.rq_psn == first_psn + 4 ? "+4" : "?");
	wr.wr.rdma.rkey = 0x12345678;
	CHECK(!post(qp, &wr) && completion(here.cq).status == IBV_WC_REM_ACCESS_ERR);
	query(qp);
	ANSWER("sq_psn after a refusal",
	       queried.qp_state == IBV_QPS_ERR && queried.sq_psn == first_psn + 4 ? "+4" : "?");

	// In SQD what has begun is still to be finished.
	connect_both();
	step(peer, IBV_QPS_RESET, 0);
	wr = request(IBV_WR_RDMA_WRITE, &sge);
	CHECK(!post(qp, &wr));
	step(qp, IBV_QPS_SQD, 0);
	query(qp);
	ANSWER("query_qp in SQD, unanswered", queried.sq_draining ? "draining" : "drained");
	step(qp, IBV_QPS_ERR, 0);
	struct ibv_wc wc = completion(here.cq);
	ANSWER("what the program stopped", wc.status == IBV_WC_WR_FLUSH_ERR && wc.vendor_err == 0xf5
						   ? "flushed with 0xf5"
						   : "?");
	connect_both();
	step(qp, IBV_QPS_SQD, 0);
	query(qp);
	ANSWER("query_qp in SQD, idle", queried.sq_draining ? "draining" : "drained");
}

// Of a completion with an error these fields count.
static void failed(const char *name, struct ibv_send_wr wr, enum ibv_wc_status status,
		   uint32_t vendor_err)
{
	connect_both();
	wr.wr_id = 0x123456789abcdef0;
	begin(name);
	CHECK(!post(qp, &wr));
	struct ibv_wc wc = completion(here.cq);
	int same = wc.wr_id == wr.wr_id && wc.qp_num == qp->qp_num && wc.status == status &&
		   wc.vendor_err == vendor_err;
	puts(same ? "named" : "?");
}

static void errors(void)
{
	struct ibv_sge sge = local(64), long_one = { (uintptr_t)here.buffer, SIZE + 1, here.mr->lkey };
	struct ibv_sge unknown = { (uintptr_t)here.buffer, 64, 0x12345678 };
	failed("too long for its MR", request(IBV_WR_RDMA_WRITE, &long_one), IBV_WC_LOC_PROT_ERR, 0x53);
	failed("unknown lkey", request(IBV_WR_RDMA_WRITE, &unknown), IBV_WC_LOC_PROT_ERR, 0x52);
	failed("READ into an unknown lkey", request(IBV_WR_RDMA_READ, &unknown),
	       IBV_WC_LOC_PROT_ERR, 0x33);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.rkey = 0x12345678;
	failed("unknown rkey", wr, IBV_WC_REM_ACCESS_ERR, 0x88);
	wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, &sge);
	failed("atomic of 64 bytes", wr, IBV_WC_LOC_LEN_ERR, 0);
}

// A queue that gets another size keeps what is in it.
static void resize(void)
{
	struct ibv_sge sge = local(8);
	struct ibv_cq *cq = ibv_create_cq(here.context, 4, NULL, NULL, 0), *usual = here.cq;
	struct ibv_qp *plain = qp;
	CHECK(cq);
	here.cq = cq;
	qp = make_qp(&here, IBV_QPT_RC);
	connect_both();
	for (uint64_t i = 1; i <= 3; i++) {
		struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
		wr.wr_id = i;
		CHECK(!post(qp, &wr));
	}
	for (int drained = 0; !drained; query(qp), drained = queried.sq_psn == first_psn + 3)
		;
	usleep(200000);
	STATUS("resize_cq below what waits", ibv_resize_cq(cq, 2));
	STATUS("resize_cq to what waits", ibv_resize_cq(cq, 3));
	STATUS("resize_cq to more", ibv_resize_cq(cq, 100));
	int order = cq->cqe >= 100;
	for (uint64_t i = 1; i <= 3; i++)
		order &= completion(cq).wr_id == i;
	ANSWER("after that", order ? "all there, in order" : "?");
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
	qp = plain;
	here.cq = usual;
}

// The limit of a shared receive queue is told once, and is gone then.
static void limit(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(there.pd, &init);
	struct ibv_qp_init_attr with_srq = qp_init(&there, IBV_QPT_RC);
	struct ibv_qp *plain = peer;
	with_srq.srq = srq;
	CHECK(srq && (peer = ibv_create_qp(there.pd, &with_srq)));
	struct ibv_recv_wr recv = { .wr_id = 2 }, *bad;
	struct ibv_srq_attr attr = { .srq_limit = 3 };
	connect_both();
	for (int i = 0; i < 4; i++)
		CHECK(!ibv_post_srq_recv(srq, &recv, &bad));
	CHECK(!ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) && !ibv_query_srq(srq, &attr));
	ANSWER("query_srq", attr.srq_limit == 3 && attr.max_wr == 4 && attr.max_sge == 1 ? "as set" : "?");
	struct ibv_send_wr wr = request(IBV_WR_SEND, NULL);
	int events = 0, at = 0, fd = there.context->async_fd;
	for (int i = 1; i <= 4; i++) {
		CHECK(!post(qp, &wr) && completion(here.cq).status == IBV_WC_SUCCESS);
		CHECK(completion(there.cq).status == IBV_WC_SUCCESS);
		struct pollfd ready = { fd, POLLIN, 0 };
		struct ibv_async_event event;
		while (poll(&ready, 1, 100) > 0) {
			CHECK(!ibv_get_async_event(there.context, &event));
			if (event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq)
				events++, at = i;
			ibv_ack_async_event(&event);
		}
	}
	ANSWER("SRQ_LIMIT_REACHED", events == 1 && at == 2 ? "once, when two were left" : "?");
	CHECK(!ibv_query_srq(srq, &attr));
	ANSWER("srq_limit after that", attr.srq_limit ? "armed" : "not armed");
	CHECK(!ibv_destroy_qp(peer) && !ibv_destroy_srq(srq));
	peer = plain;
}

int main(void)
{
	alarm(60);
	make_both();
	attributes();
	sequence_numbers();
	errors();
	resize();
	limit();
	return 0;
}
