// Programs that mishandle what rarely goes wrong, one for each argument. Each sends three messages to
// itself, unless its mistake needs less, and says what it takes for true and what is.
#include "bad_work.h"

#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

enum { MESSAGES = 3 };

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static int send_one(uint64_t wr_id)
{
	struct ibv_sge sge = local(8);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge);
	wr.wr_id = wr_id;
	return post(qp, &wr);
}

// Asks nothing of the peer's program.
static int write_one(void)
{
	struct ibv_sge sge = local(8);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	return post(qp, &wr);
}

static void offer_receives(void)
{
	for (uint64_t id = 1; id <= MESSAGES; id++) {
		struct ibv_sge sge = { (uintptr_t)there.buffer, 8, there.mr->lkey };
		CHECK(!receive(peer, id, &sge));
	}
}

static void send_all(void)
{
	offer_receives();
	for (uint64_t id = 1; id <= MESSAGES; id++)
		CHECK(!send_one(id));
}

// How many completions of a queue come within a while.
static int completions(struct ibv_cq *cq, double seconds)
{
	struct ibv_wc wc;
	int count = 0;
	for (double end = now() + seconds; now() < end;) {
		int got = ibv_poll_cq(cq, 1, &wc);
		count += got > 0 && wc.status == IBV_WC_SUCCESS;
	}
	return count;
}

// Does not look at what ibv_post_send returns.
static void post_unchecked(void)
{
	offer_receives();
	for (uint64_t id = 1; id <= MESSAGES; id++)
		send_one(id);
	printf("sent %d messages; %d arrived\n", MESSAGES, completions(there.cq, 0.3));
}

// Uses what ibv_reg_mr returns.
static void region_unchecked(void)
{
	struct ibv_mr *mr = ibv_reg_mr(here.pd, here.buffer, 64, 0);
	puts("registered");
	fflush(stdout);
	printf("lkey %u\n", mr->lkey);
}

// Uses what ibv_create_qp returns.
static void queue_pair_unchecked(void)
{
	struct ibv_qp_init_attr init = qp_init(&here, IBV_QPT_RC);
	struct ibv_qp *made = ibv_create_qp(here.pd, &init);
	puts("created");
	fflush(stdout);
	printf("number %u\n", made->qp_num);
}

// Does not look at what ibv_modify_qp returns, and posts.
static void state_unchecked(void)
{
	struct ibv_qp *made = make_qp(&here, IBV_QPT_RC);
	struct ibv_qp_attr init = good(made, IBV_QPS_INIT, made->qp_num);
	ibv_modify_qp(made, &init, RC_TO_INIT);
	struct ibv_qp_attr rtr = good(made, IBV_QPS_RTR, made->qp_num);
	ibv_modify_qp(made, &rtr, RC_TO_RTR);
	struct ibv_qp_attr attr;
	CHECK(!ibv_query_qp(made, &attr, IBV_QP_STATE, &(struct ibv_qp_init_attr){ 0 }));
	printf("takes it for ready to receive; it is %s\n",
	       attr.qp_state == IBV_QPS_INIT ? "in INIT" : "ready");
}

// Adds up what ibv_poll_cq returns.
static void negative_counted(void)
{
	send_all();
	int done = 0;
	struct ibv_wc wc;
	for (double end = now() + 0.3; done < MESSAGES && now() < end;)
		done += ibv_poll_cq(here.cq, 1, &wc);
	printf("counts %d of %d\n", done, MESSAGES);
}

// Counts completions in place of requests.
static void completions_counted(void)
{
	send_all();
	uint64_t seen = 0;
	for (int done = 0; done < MESSAGES; done++)
		seen |= UINT64_C(1) << completion(here.cq).wr_id;
	printf("takes %d requests for done; %d are\n", MESSAGES, __builtin_popcountll(seen));
}

// Waits for a completion without a limit of time.
static void waits_forever(void)
{
	send_all();
	int done = completions(here.cq, 0.3);
	printf("waits for %d more\n", MESSAGES - done);
}

// Gives a request up after 100 ms, and its buffer to another.
static void buffer_reused(void)
{
	send_all();
	int done = completions(here.cq, 0.1);
	int late = completions(here.cq, 0.4);
	printf("gave up %d; %d completed all the same\n", MESSAGES - done, late);
}

// Does not look at the status.
static void status_unchecked(void)
{
	send_all();
	int failed = 0;
	for (int done = 0; done < MESSAGES; done++)
		failed += completion(here.cq).status != IBV_WC_SUCCESS;
	printf("takes %d for sent; %d failed\n", MESSAGES, failed);
}

// Repeats what was flushed, on the same queue pair.
static void flush_repeated(void)
{
	int flushed = 0;
	for (int attempt = 0; attempt < 100; attempt++) {
		CHECK(!write_one());
		flushed += completion(here.cq).status == IBV_WC_WR_FLUSH_ERR;
	}
	printf("100 attempts, %d flushed\n", flushed);
}

// Whether there is an asynchronous event within a while.
static int next_event(struct ibv_async_event *event, int ms)
{
	struct pollfd polled = { here.context->async_fd, POLLIN, 0 };
	if (poll(&polled, 1, ms) != 1)
		return 0;
	CHECK(!ibv_get_async_event(here.context, event));
	ibv_ack_async_event(event);
	return 1;
}

// Takes no asynchronous events, and goes on after each refusal.
static void fatal_overlooked(void)
{
	struct ibv_wc wc;
	int refused = 0;
	for (int attempt = 0; attempt < 100; attempt++) {
		if (write_one())
			refused++;
		else
			while (!ibv_poll_cq(here.cq, 1, &wc))
				;
	}
	struct ibv_async_event event;
	printf("100 attempts, %d refused; the event was %s\n", refused,
	       next_event(&event, 300) ? ibv_event_type_str(event.event_type) : "none");
}

// Waits for the queue to be drained before it goes on, without a limit of time.
static void drained_awaited(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
	struct ibv_async_event event;
	int count = 0;
	while (next_event(&event, 300))
		count += event.event_type == IBV_EVENT_SQ_DRAINED;
	printf("told %d times that the queue is drained\n", count);
}

// Does not look at the port of an event.
static void port_unchecked(void)
{
	puts("ready");
	fflush(stdout);
	struct ibv_async_event event;
	while (next_event(&event, 1000)) {
		if (event.event_type == IBV_EVENT_PORT_ERR) {
			printf("leaves port 1; it was port %d\n", event.element.port_num);
			return;
		}
	}
	puts("stays on port 1");
}

// Waits for the event of a call that has failed.
static void resolve_unchecked(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000);
	struct pollfd polled = { channel->fd, POLLIN, 0 };
	puts(poll(&polled, 1, 1000) == 1 ? "resolved" : "waits for an event that does not come");
}

static const struct {
	const char *name;
	void (*run)(void);
} CASES[] = {
	{ "post_unchecked", post_unchecked },
	{ "region_unchecked", region_unchecked },
	{ "queue_pair_unchecked", queue_pair_unchecked },
	{ "state_unchecked", state_unchecked },
	{ "negative_counted", negative_counted },
	{ "completions_counted", completions_counted },
	{ "waits_forever", waits_forever },
	{ "buffer_reused", buffer_reused },
	{ "status_unchecked", status_unchecked },
	{ "flush_repeated", flush_repeated },
	{ "fatal_overlooked", fatal_overlooked },
	{ "drained_awaited", drained_awaited },
	{ "port_unchecked", port_unchecked },
	{ "resolve_unchecked", resolve_unchecked },
};

int main(int argc, char **argv)
{
	make_both();
	connect_both();
	for (unsigned i = 0; i < sizeof CASES / sizeof *CASES; i++) {
		if (argc == 2 && !strcmp(argv[1], CASES[i].name)) {
			CASES[i].run();
			return 0;
		}
	}
	return 2;
}
