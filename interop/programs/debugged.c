// A program for debuggers and sanitizers. The argument names the case.
#include "process.h"

// Opens, works and closes everything: a leak checker finds nothing, nor does anything else.
static void whole(void)
{
	struct end end = open_end();
	prove_alive(&end);
	CHECK(!ibv_destroy_cq(end.cq) && !ibv_destroy_comp_channel(end.channel));
	CHECK(!ibv_dealloc_pd(end.pd) && !ibv_close_device(end.context));
}

// Leaves all of it open: what the library keeps is no leak.
static void open_at_end(void)
{
	struct end end = open_end();
	prove_alive(&end);
}

// The device writes to memory that is not there any more: into the middle of the hole, which other
// mappings do not fill.
static void gone(void)
{
	enum { SIZE = 64 << 20 };
	struct end end = open_end();
	static char source[PAGE];
	struct ibv_mr *from = share(&end, source, sizeof source);
	char *memory = map(SIZE);
	struct ibv_mr *mr = share(&end, memory, SIZE);
	CHECK(!munmap(memory, SIZE));
	connect_to_itself(&end);
	CHECK(!post(&end, IBV_WR_RDMA_WRITE, from, PAGE, (uintptr_t)memory + SIZE / 2, mr->rkey));
	CHECK(outcome(&end) == IBV_WC_REM_ACCESS_ERR);
}

// Errors of the program that a checker must find.
static void overflow(void)
{
	struct end end = open_end();
	char *volatile memory = malloc(PAGE);
	CHECK(share(&end, memory, PAGE));
	memory[PAGE] = 1;
}

// The memory comes before the device: a place that the device has used and freed may still be named in
// memory that it uses, which a leak checker takes for a pointer.
static void leak(void)
{
	char *volatile memory = malloc(1234);
	memory[0] = 1;
	memory = NULL;
	struct end end = open_end();
	prove_alive(&end);
}

static int counter;

static void *counts(void *unused)
{
	for (int i = 0; i < 1000; i++)
		counter++;
	return unused;
}

static void race(void)
{
	struct end end = open_end();
	prove_alive(&end);
	pthread_t thread;
	CHECK(!pthread_create(&thread, NULL, counts, NULL));
	counts(NULL);
	CHECK(!pthread_join(thread, NULL));
}

// Threads that share a device, and have nothing to be told about.
static void *works(void *unused)
{
	struct end end = open_end();
	char memory[2][PAGE];
	struct ibv_mr *from = share(&end, memory[0], PAGE), *to = share(&end, memory[1], PAGE);
	connect_to_itself(&end);
	for (int i = 0; i < 100; i++) {
		memset(memory[0], i, PAGE);
		CHECK(!post(&end, IBV_WR_RDMA_WRITE, from, PAGE, (uintptr_t)memory[1], to->rkey));
		CHECK(outcome(&end) == IBV_WC_SUCCESS);
		CHECK(!memcmp(memory[0], memory[1], PAGE));
	}
	return unused;
}

static void threads(void)
{
	pthread_t all[4];
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_create(&all[i], NULL, works, NULL));
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_join(all[i], NULL));
}

static void *ends_at_once(void *unused)
{
	return unused;
}

// A device's threads start after threads of the program have left their stacks to the C library.
static void opened_after_threads(void)
{
	pthread_t all[4];
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_create(&all[i], NULL, ends_at_once, NULL));
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_join(all[i], NULL));
	open_at_end();
}

static void set_timeout(struct end *end, int timeout)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE));
	attr.timeout = timeout;
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_TIMEOUT));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE));
}

static int peer_timeout = 14;

// A peer writes to a process that a debugger has stopped at `here`, and says what it is told.
static void peer(int fd)
{
	static char memory[PAGE];
	struct end end = open_end();
	struct ibv_mr *mr = share(&end, memory, PAGE);
	struct name name;
	connect_to_peer(&end, fd, NULL, &name);
	set_timeout(&end, peer_timeout);
	milliseconds(1000);
	CHECK(!post(&end, IBV_WR_RDMA_WRITE, mr, PAGE, name.addr, name.rkey));
	dprintf(STDOUT_FILENO, "peer: %s\n", ibv_wc_status_str(outcome(&end)));
}

__attribute__((noinline)) void here(void)
{
	__asm__ volatile("");
}

static void stopped(void)
{
	static char memory[PAGE];
	int fd;
	pid_t pid = beside(peer, &fd);
	struct end end = open_end();
	struct name name;
	connect_to_peer(&end, fd, share(&end, memory, PAGE), &name);
	here();
	succeeds(pid);
}

static void stopped_for_a_patient_peer(void)
{
	peer_timeout = 0;
	stopped();
}

#define CASE(name) { #name, name }
static const struct test_case CASES[] = {
	CASE(whole), CASE(open_at_end), CASE(gone), CASE(overflow), CASE(leak),
	CASE(race), CASE(threads), CASE(opened_after_threads), CASE(stopped),
	CASE(stopped_for_a_patient_peer),
};

MAIN(CASES)
