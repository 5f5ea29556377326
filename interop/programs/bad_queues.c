// Queues that are flushed, full, or overrun: in which order requests complete, and what is refused.
#include "bad_work.h"

// The next `count` completions: numbers, and statuses where `with_status`.
static void order(struct ibv_cq *cq, int count, int with_status)
{
	for (int i = 0; i < count; i++) {
		struct ibv_wc wc = completion(cq);
		printf("%s%d", i ? " " : "", (int)wc.wr_id);
		if (with_status || wc.status != IBV_WC_WR_FLUSH_ERR)
			printf(" %s", name_of(wc.status));
	}
	puts("");
}

static enum ibv_qp_state qp_state(struct ibv_qp *of)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(!ibv_query_qp(of, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

static void flushed(void)
{
	struct ibv_sge sge = local(8);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	connect_both();
	step(qp, IBV_QPS_SQD, 0);
	for (int i = 1; i <= 3; i++) {
		wr.wr_id = i;
		CHECK(!post(qp, &wr) && !receive(qp, 10 + i, NULL));
	}
	begin("flushed in ERR");
	step(qp, IBV_QPS_ERR, 0);
	order(here.cq, 6, 0);
	begin("posted in ERR");
	wr.wr_id = 4;
	CHECK(!post(qp, &wr) && !receive(qp, 14, NULL));
	order(here.cq, 2, 0);
	connect_both();
	begin("flushed after an error");
	struct ibv_send_wr three[3] = { wr, wr, wr };
	for (int i = 0; i < 3; i++) {
		three[i].wr_id = i + 1;
		three[i].next = i < 2 ? &three[i + 1] : NULL;
	}
	three[1].wr.rdma.rkey = 0x12345678;
	CHECK(!post(qp, three));
	order(here.cq, 3, 1);
	ANSWER("the QP then", qp_state(qp) == IBV_QPS_ERR ? "in ERR" : "in another state");
}

// Requests keep their places until their completions are polled: a CQ as large as the queues does
// not overrun.
static void unpolled(void)
{
	struct objects exact = here;
	exact.cq = ibv_create_cq(here.context, 2 * DEPTH, NULL, NULL, 0);
	CHECK(exact.cq);
	struct ibv_qp *own = make_qp(&exact, IBV_QPT_RC);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, NULL);
	connect_qp(own, own->qp_num);
	for (int i = 0; i < DEPTH; i++)
		CHECK(!post(own, &wr) && !receive(own, 2, NULL));
	step(own, IBV_QPS_ERR, 0);
	STATUS("send queue of unpolled completions", post(own, &wr));
	STATUS("receive queue of unpolled completions", receive(own, 2, NULL));
	for (int i = 0; i < 2 * DEPTH; i++)
		CHECK(completion(exact.cq).wr_id);
	STATUS("send queue after polling", post(own, &wr));
	STATUS("receive queue after polling", receive(own, 2, NULL));
	step(own, IBV_QPS_RESET, 0);
	connect_qp(own, own->qp_num);
	for (int i = 0; i < DEPTH; i++)
		CHECK(!post(own, &wr) && !receive(own, 2, NULL));
	STATUS("send queue after RESET", post(own, &wr));
	STATUS("receive queue after RESET", receive(own, 2, NULL));
	CHECK(!ibv_destroy_qp(own) && !ibv_destroy_cq(exact.cq));
}

static void overrun(void)
{
	struct objects small = here;
	small.cq = ibv_create_cq(here.context, 1, NULL, NULL, 0);
	CHECK(small.cq);
	struct ibv_qp *full = make_qp(&small, IBV_QPT_RC);
	struct ibv_async_event event;
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, NULL);
	connect_qp(full, full->qp_num);
	CHECK(!post(full, &wr) && !post(full, &wr));
	// Nobody has taken the events of earlier cases.
	do {
		CHECK(!ibv_get_async_event(here.context, &event));
		ibv_ack_async_event(&event);
	} while (event.event_type != IBV_EVENT_CQ_ERR);
	ANSWER("CQ overrun", event.element.cq == small.cq ? "CQ_ERR" : "CQ_ERR of another CQ");
	CHECK(!ibv_get_async_event(here.context, &event));
	int fatal = event.event_type == IBV_EVENT_QP_FATAL && event.element.qp == full;
	ibv_ack_async_event(&event);
	begin("ack_async_event twice");
	errno = 0;
	ibv_ack_async_event(&event);
	end_number(errno);
	ANSWER("the state of that QP", qp_state(full) == IBV_QPS_ERR ? "in ERR" : "another one");
	ANSWER("the QP of the CQ", fatal ? "QP_FATAL" : ibv_event_type_str(event.event_type));
	STATUS("send after an overrun", post(full, &wr));
	wr.next = &wr;
	STATUS("a chain that is a circle, in ERR", post(full, &wr));
	CHECK(!ibv_destroy_qp(full) && !ibv_destroy_cq(small.cq));
}

int main(void)
{
	alarm(80);
	make_both();
	flushed();
	unpolled();
	overrun();
	return 0;
}
