// The times of day that completions tell: those of one queue come in order, each is the same
// whenever it is read, and both clocks of a completion go on alike.
#include "bad_work.h"

enum { READS = 1000000 };

static struct ibv_cq_ex *make_queue(struct ibv_context *context)
{
	struct ibv_cq_init_attr_ex init = {
		.cqe = 4 * DEPTH,
		.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &init);
	CHECK(cq);
	return cq;
}

static uint64_t today(void)
{
	struct timespec now;
	CHECK(!clock_gettime(CLOCK_REALTIME, &now));
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

int main(void)
{
	alarm(60);
	here = make_objects(open_device(0));
	there = make_objects(here.context);
	struct ibv_cq_ex *queue = make_queue(here.context), *second = make_queue(here.context);
	struct ibv_qp_init_attr init = qp_init(&here, IBV_QPT_RC);
	init.send_cq = ibv_cq_ex_to_cq(queue);
	CHECK(qp = ibv_create_qp(here.pd, &init));
	init = qp_init(&there, IBV_QPT_RC);
	init.send_cq = ibv_cq_ex_to_cq(second);
	CHECK(peer = ibv_create_qp(there.pd, &init));
	connect_both();
	struct ibv_sge sge = local(8);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	struct ibv_send_wr back = wr;
	back.sg_list = NULL;
	back.num_sge = 0;
	struct ibv_poll_cq_attr attr = { 0 };
	uint64_t begun = today(), last = 0, apart = 0, reads = 0, backwards = 0, changed = 0;
	for (int round = 0; reads < READS; round++) {
		// By turns, so that the times of two queues of the device can be compared, too.
		struct ibv_cq_ex *cq = round % 2 ? second : queue;
		CHECK(!post(round % 2 ? peer : qp, round % 2 ? &back : &wr));
		while (ibv_start_poll(cq, &attr))
			;
		CHECK(cq->status == IBV_WC_SUCCESS);
		uint64_t made = ibv_wc_read_completion_ts(cq);
		uint64_t first = ibv_wc_read_completion_wallclock_ns(cq);
		backwards += first < last;
		last = first;
		if (!apart)
			apart = first - made;
		changed += first - made != apart;
		for (int again = 0; again < 500; again++, reads++)
			changed += ibv_wc_read_completion_wallclock_ns(cq) != first;
		ibv_end_poll(cq);
	}
	// The system's time may be set while this runs, but not by an hour.
	const uint64_t hour = 3600ull * 1000000000;
	CHECK(last + hour > begun && last < today() + hour);
	printf("%llu backwards, %llu changed\n", (unsigned long long)backwards,
	       (unsigned long long)changed);
	return 0;
}
