// Threads that are cancelled, signals in the middle of calls. The argument names the case.
#include "process.h"

static struct end end;
static atomic_int ready;
static struct ibv_mr *mr[2];
static char memory[2][PAGE];

static void begin(void)
{
	end = open_end();
	for (int i = 0; i < 2; i++)
		mr[i] = share(&end, memory[i], PAGE);
}

// Cancels a thread and waits until it is gone.
static void cancel(pthread_t thread, void *result)
{
	void *returned;
	CHECK(!pthread_cancel(thread) && !pthread_join(thread, &returned));
	CHECK(returned == result);
}

static void *sends_and_polls(void *argument)
{
	(void)argument;
	for (;;) {
		ready = 1;
		CHECK(!post(&end, IBV_WR_RDMA_WRITE, mr[0], PAGE, (uintptr_t)memory[1], mr[1]->rkey));
		CHECK(outcome(&end) == IBV_WC_SUCCESS);
		pthread_testcancel();
	}
}

static void *polls(void *argument)
{
	struct ibv_wc wc;
	for (;;) {
		ready = 1;
		CHECK(ibv_poll_cq(end.cq, 1, &wc) >= 0);
		if (argument)
			CHECK(!ibv_req_notify_cq(end.cq, 0));
		pthread_testcancel();
	}
}

static void *registers(void *argument)
{
	(void)argument;
	static char bytes[PAGE];
	for (;;) {
		ready = 1;
		struct ibv_mr *own = share(&end, bytes, PAGE);
		CHECK(!ibv_dereg_mr(own));
		struct ibv_device **list = ibv_get_device_list(NULL);
		CHECK(list);
		ibv_free_device_list(list);
		pthread_testcancel();
	}
}

// Threads that are in a call most of the time, and one that only its own calls would let live.
static void cancel_busy(void)
{
	begin();
	static void *(*const BUSY[])(void *) = { sends_and_polls, polls, registers, polls };
	for (int round = 0; round < 24; round++) {
		connect_to_itself(&end);
		pthread_t thread;
		ready = 0;
		CHECK(!pthread_create(&thread, NULL, BUSY[round % 4], round % 4 == 3 ? &end : NULL));
		while (!ready)
			sched_yield();
		milliseconds(round % 5);
		cancel(thread, PTHREAD_CANCELED);
		struct ibv_wc wc;
		while (ibv_poll_cq(end.cq, 1, &wc) > 0)
			;
		CHECK(!ibv_destroy_qp(end.qp));
		prove_alive(&end);
	}
}

static void note(void *argument)
{
	++*(atomic_int *)argument;
}

static atomic_int cleaned;
static int asynchronous;

static void *waits(void *argument)
{
	struct ibv_cq *cq;
	void *context;
	struct ibv_async_event event;
	pthread_cleanup_push(note, &cleaned);
	ready = 1;
	if (asynchronous)
		CHECK(!ibv_get_async_event(end.context, &event));
	else
		CHECK(!ibv_get_cq_event(end.channel, &cq, &context));
	pthread_cleanup_pop(0);
	return argument;
}

static int descriptors(void)
{
	int count = 0;
	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

// Calls that wait are where a thread is cancelled, as in any libibverbs: the thread ends, its cleanup
// handlers run, and the next one gets the event.
static void cancel_waiting(void)
{
	begin();
	int open = descriptors();
	for (int round = 0; round < 20; round++) {
		pthread_t thread;
		asynchronous = round % 2;
		ready = 0;
		CHECK(!pthread_create(&thread, NULL, waits, NULL));
		while (!ready)
			sched_yield();
		milliseconds(round % 3 * 5);
		cancel(thread, PTHREAD_CANCELED);
		CHECK(cleaned == round + 1);
	}
	CHECK(descriptors() == open);
	pthread_t thread;
	asynchronous = 0;
	struct end other = connect_to_itself(&end);
	(void)other;
	CHECK(!ibv_req_notify_cq(end.cq, 0));
	CHECK(!pthread_create(&thread, NULL, waits, &end));
	CHECK(!post(&end, IBV_WR_RDMA_WRITE, mr[0], PAGE, (uintptr_t)memory[1], mr[1]->rkey));
	void *returned;
	CHECK(!pthread_join(thread, &returned) && returned == &end);
	ibv_ack_cq_events(end.cq, 1);
	CHECK(outcome(&end) == IBV_WC_SUCCESS);
}

#include <rdma/rdma_cma.h>

static struct rdma_event_channel *cm_channel;

static void *waits_for_connections(void *argument)
{
	struct rdma_cm_event *event;
	ready = 1;
	CHECK(!rdma_get_cm_event(cm_channel, &event));
	return argument;
}

static void cancel_cm(void)
{
	begin();
	cm_channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	CHECK(cm_channel && !rdma_create_id(cm_channel, &id, NULL, RDMA_PS_TCP));
	for (int round = 0; round < 10; round++) {
		pthread_t thread;
		ready = 0;
		CHECK(!pthread_create(&thread, NULL, waits_for_connections, NULL));
		while (!ready)
			sched_yield();
		milliseconds(round % 3 * 5);
		cancel(thread, PTHREAD_CANCELED);
	}
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(cm_channel);
	prove_alive(&end);
}

// Calls of the C library that the preloaded library passes on.
static void *blocks(void *fd)
{
	static char bytes[1 << 17];
	ready = 1;
	CHECK(write((intptr_t)fd, bytes, sizeof bytes) == sizeof bytes);
	return NULL;
}

static void cancel_write(void)
{
	for (int round = 0; round < 5; round++) {
		int fds[2];
		pthread_t thread;
		ready = 0;
		CHECK(!pipe(fds));
		CHECK(!pthread_create(&thread, NULL, blocks, (void *)(intptr_t)fds[1]));
		while (!ready)
			sched_yield();
		milliseconds(5);
		cancel(thread, PTHREAD_CANCELED);
		close(fds[0]);
		close(fds[1]);
	}
}

static volatile sig_atomic_t ticks;

static void tick(int number)
{
	(void)number;
	ticks++;
}

// A profiler's timer, which interrupts calls, and events whose wait it does not end.
static void handlers(void)
{
	struct sigaction action = { .sa_handler = tick, .sa_flags = SA_RESTART };
	struct itimerval often = { { 0, 500 }, { 0, 500 } };
	CHECK(!sigaction(SIGALRM, &action, NULL));
	begin();
	connect_to_itself(&end);
	CHECK(!setitimer(ITIMER_REAL, &often, NULL));
	for (int i = 0; i < 300 || ticks < 50; i++) {
		CHECK(!ibv_req_notify_cq(end.cq, 0));
		CHECK(!post(&end, IBV_WR_RDMA_WRITE, mr[0], PAGE, (uintptr_t)memory[1], mr[1]->rkey));
		struct ibv_cq *cq;
		void *context;
		CHECK(!ibv_get_cq_event(end.channel, &cq, &context));
		ibv_ack_cq_events(cq, 1);
		CHECK(outcome(&end) == IBV_WC_SUCCESS);
	}
	// Without SA_RESTART the wait ends.
	action.sa_flags = 0;
	CHECK(!sigaction(SIGALRM, &action, NULL));
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;
	while (ibv_poll_cq(end.cq, 1, &wc) > 0)
		;
	CHECK(ibv_get_cq_event(end.channel, &cq, &context) == -1 && errno == EINTR);
	struct itimerval never = { 0 };
	CHECK(!setitimer(ITIMER_REAL, &never, NULL));
	prove_alive(&end);
}

static const struct test_case CASES[] = {
	{ "cancel_busy", cancel_busy },
	{ "cancel_waiting", cancel_waiting },
	{ "cancel_cm", cancel_cm },
	{ "cancel_write", cancel_write },
	{ "handlers", handlers },
};

MAIN(CASES)
