// When the arming of a completion queue is announced: for what comes, and for what waits to be polled.
#include "bad_work.h"

#include <fcntl.h>
#include <poll.h>

static struct ibv_comp_channel *channel;

// Takes what is announced of a queue; other queues must not be.
static int announced_of(struct ibv_cq *expected)
{
	struct ibv_cq *cq;
	void *context;
	int count = 0;
	for (; !ibv_get_cq_event(channel, &cq, &context); count++) {
		CHECK(cq == expected && context == expected->cq_context);
		ibv_ack_cq_events(cq, 1);
	}
	CHECK(errno == EAGAIN);
	return count;
}

static void announced(const char *name, struct ibv_cq *cq)
{
	static const char *const TIMES[] = { "no", "once", "twice" };
	int count = announced_of(cq);
	ANSWER(name, count < 3 ? TIMES[count] : "?");
}

static void arm(struct ibv_cq *cq, int solicited_only)
{
	CHECK(!ibv_req_notify_cq(cq, solicited_only));
}

// Has messages arrive, and waits until all of them wait in the peer's queue: none is polled.
static void deliver(int messages, unsigned flags)
{
	struct ibv_send_wr wr = request(IBV_WR_SEND, NULL);
	wr.send_flags = flags;
	while (messages--) {
		CHECK(!receive(peer, 2, NULL) && !post(qp, &wr));
		CHECK(completion(here.cq).status == IBV_WC_SUCCESS);
	}
}

static void drain(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	while (ibv_poll_cq(cq, 1, &wc) > 0)
		;
}

static void what_waits(void)
{
	connect_both();
	arm(there.cq, 0);
	announced("armed while empty", there.cq);
	deliver(1, 0);
	announced("then a message", there.cq);
	deliver(1, 0);
	announced("another one, not armed again", there.cq);
	arm(there.cq, 0);
	announced("armed while two wait", there.cq);
	announced("the same, not armed again", there.cq);
	for (int i = 0; i < 3; i++)
		arm(there.cq, 0);
	announced("armed three times while they wait", there.cq);
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(there.cq, 1, &wc) == 1);
	arm(there.cq, 0);
	announced("armed after one was polled", there.cq);
	CHECK(ibv_poll_cq(there.cq, 1, &wc) == 1);
	arm(there.cq, 0);
	announced("armed after both were polled", there.cq);
	deliver(1, 0);
	drain(there.cq);
	for (int i = 0; i < 3; i++) {
		arm(there.cq, 0);
		deliver(1, 0);
		drain(there.cq);
	}
	announced("four messages, armed and polled for each, no event taken", there.cq);
	// As perftest does, which takes each announcement for another completion.
	deliver(1, 0);
	arm(there.cq, 0);
	drain(there.cq);
	struct pollfd waits = { .fd = channel->fd, .events = POLLIN };
	ANSWER("armed while one waits, which is then polled", poll(&waits, 1, 0) ? "readable" : "silent");
	announced("the same", there.cq);
	deliver(1, 0);
	announced("then a message", there.cq);
	drain(there.cq);
}

static void what_was_solicited(void)
{
	connect_both();
	drain(there.cq);
	deliver(1, 0);
	arm(there.cq, 1);
	announced("armed for solicited ones while another waits", there.cq);
	deliver(1, IBV_SEND_SOLICITED);
	announced("then one", there.cq);
	arm(there.cq, 1);
	announced("armed for solicited ones while one waits", there.cq);
	drain(there.cq);
	deliver(1, 0);
	CHECK(!receive(peer, 2, NULL));
	step(peer, IBV_QPS_ERR, 0);
	arm(there.cq, 1);
	announced("armed for solicited ones while an error waits", there.cq);
	drain(there.cq);
}

// A program that reads field by field and stops before the last completion.
static void field_by_field(void)
{
	struct ibv_cq_init_attr_ex init = { .cqe = 16, .channel = channel };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(there.context, &init);
	struct ibv_cq *usual = there.cq;
	struct ibv_qp *plain = peer;
	struct ibv_poll_cq_attr from = { 0 };
	CHECK(cq);
	there.cq = ibv_cq_ex_to_cq(cq);
	peer = make_qp(&there, IBV_QPT_RC);
	connect_both();
	deliver(2, 0);
	CHECK(!ibv_start_poll(cq, &from));
	ibv_end_poll(cq);
	arm(there.cq, 0);
	announced("armed after ibv_start_poll read one of two", there.cq);
	CHECK(!ibv_start_poll(cq, &from) && ibv_next_poll(cq) == ENOENT);
	ibv_end_poll(cq);
	arm(there.cq, 0);
	announced("armed after ibv_next_poll found no more", there.cq);
	CHECK(!ibv_destroy_qp(peer) && !ibv_destroy_cq(there.cq));
	there.cq = usual;
	peer = plain;
}

// Each of the queues of a channel is announced.
static void two_queues(void)
{
	struct ibv_cq *usual = here.cq, *cqs[] = { there.cq, NULL }, *cq;
	int mine = 0, others = 0;
	void *context;
	here.cq = cqs[1] = ibv_create_cq(here.context, 16, NULL, channel, 0);
	CHECK(here.cq);
	struct ibv_qp *plain = qp;
	qp = make_qp(&here, IBV_QPT_RC);
	connect_both();
	struct ibv_send_wr wr = request(IBV_WR_SEND, NULL);
	CHECK(!receive(peer, 2, NULL) && !post(qp, &wr));
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr created;
	do
		CHECK(!ibv_query_qp(qp, &attr, IBV_QP_SQ_PSN, &created));
	while (attr.sq_psn == first_psn);
	usleep(100000);
	for (int i = 0; i < 4; i++)
		arm(cqs[i % 2], 0);
	for (; !ibv_get_cq_event(channel, &cq, &context); ibv_ack_cq_events(cq, 1)) {
		mine += cq == cqs[0];
		others += cq == cqs[1];
	}
	ANSWER("two queues with a channel, both armed twice",
	       mine == 1 && others == 1 ? "each once" : "?");
	arm(here.cq, 0);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(here.cq));
	announced("armed and destroyed", there.cq);
	here.cq = usual;
	qp = plain;
}

int main(void)
{
	alarm(60);
	make_both();
	channel = ibv_create_comp_channel(there.context);
	CHECK(channel && !fcntl(channel->fd, F_SETFL, O_NONBLOCK));
	CHECK(!ibv_destroy_qp(peer) && !ibv_destroy_cq(there.cq));
	there.cq = ibv_create_cq(there.context, 64, &there, channel, 0);
	CHECK(there.cq);
	peer = make_qp(&there, IBV_QPT_RC);
	what_waits();
	what_was_solicited();
	field_by_field();
	two_queues();
	return 0;
}
