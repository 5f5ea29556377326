// Memory that goes away while it is registered, and handlers of the program for what it does to
// itself. The argument names the case.
#include "process.h"

static const enum ibv_wr_opcode OPCODES[] = {
	IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
};

// Every way to memory that is gone, from outside and from here. Nothing ends the process.
static void expect_refusals(struct end *end, struct ibv_mr *gone)
{
	static char memory[2 * PAGE];
	struct ibv_mr *own = share(end, memory, sizeof memory);
	for (int i = 0; i < 3; i++) {
		uint32_t length = OPCODES[i] == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : 2 * PAGE;
		connect_to_itself(end);
		CHECK(!post(end, OPCODES[i], own, length, (uintptr_t)gone->addr, gone->rkey));
		CHECK(outcome(end) == IBV_WC_REM_ACCESS_ERR);
		connect_to_itself(end);
		CHECK(!post(end, OPCODES[i], gone, length, (uintptr_t)own->addr, own->rkey));
		CHECK(outcome(end) == IBV_WC_LOC_PROT_ERR);
	}
	struct end other = connect_to_itself(end);
	CHECK(!post_receive(&other, gone, PAGE));
	CHECK(!post(end, IBV_WR_SEND, own, 100, 0, 0));
	int seen[2] = { outcome(end), outcome(end) };
	CHECK(seen[0] == IBV_WC_LOC_PROT_ERR || seen[1] == IBV_WC_LOC_PROT_ERR);
	CHECK(seen[0] == IBV_WC_REM_OP_ERR || seen[1] == IBV_WC_REM_OP_ERR);
	prove_alive(end);
}

static void heap(void)
{
	struct end end = open_end();
	// So large that the allocator maps it by itself.
	void *memory = malloc(64 << 20);
	struct ibv_mr *mr = share(&end, memory, 64 << 20);
	free(memory);
	expect_refusals(&end, mr);
	CHECK(!ibv_dereg_mr(mr));
}

static void unmapped(void)
{
	struct end end = open_end();
	void *memory = map(2 * PAGE);
	struct ibv_mr *mr = share(&end, memory, 2 * PAGE);
	CHECK(!munmap(memory, 2 * PAGE));
	expect_refusals(&end, mr);
	// Without deregistration: the device and the process end.
}

static void truncated(void)
{
	struct end end = open_end();
	FILE *file = tmpfile();
	CHECK(file && !ftruncate(fileno(file), 2 * PAGE));
	void *memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
	CHECK(memory != MAP_FAILED);
	struct ibv_mr *mr = share(&end, memory, 2 * PAGE);
	CHECK(!ftruncate(fileno(file), 0));
	expect_refusals(&end, mr);
}

// A page of the region is there, the other one is not.
static void half(void)
{
	struct end end = open_end();
	static char source[2 * PAGE];
	struct ibv_mr *from = share(&end, source, sizeof source);
	char *memory = map(2 * PAGE);
	struct ibv_mr *mr = share(&end, memory, 2 * PAGE);
	CHECK(!munmap(memory + PAGE, PAGE));
	connect_to_itself(&end);
	CHECK(!post(&end, IBV_WR_RDMA_WRITE, from, PAGE, (uintptr_t)memory, mr->rkey));
	CHECK(outcome(&end) == IBV_WC_SUCCESS);
	CHECK(!post(&end, IBV_WR_RDMA_WRITE, from, PAGE, (uintptr_t)memory + 1, mr->rkey));
	CHECK(outcome(&end) == IBV_WC_REM_ACCESS_ERR);
}

// A peer that writes until it is told that it may not, or that nobody is there.
static void writer(int fd)
{
	static char memory[PAGE];
	struct end end = open_end();
	struct ibv_mr *own = share(&end, memory, PAGE);
	struct name peer;
	connect_to_peer(&end, fd, NULL, &peer);
	for (;;) {
		memory[0]++;
		CHECK(!post(&end, IBV_WR_RDMA_WRITE, own, PAGE, peer.addr, peer.rkey));
		enum ibv_wc_status status = outcome(&end);
		if (status != IBV_WC_SUCCESS) {
			CHECK(status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_RETRY_EXC_ERR);
			return;
		}
	}
}

static int is_static;
static void *shared;

static void takes_it_away(int fd)
{
	struct end end = open_end();
	shared = map(PAGE);
	struct ibv_mr *mr = share(&end, shared, PAGE);
	struct name peer;
	connect_to_peer(&end, fd, mr, &peer);
	milliseconds(20);
	CHECK(!munmap(shared, PAGE));
	if (is_static)
		milliseconds(20);
}

// The peer writes while the memory goes and the process ends.
static void at_exit(void)
{
	for (int round = 0; round < 6; round++) {
		is_static = round % 2;
		int fds[2];
		pid_t victim = beside(takes_it_away, &fds[0]);
		pid_t peer = beside(writer, &fds[1]);
		// Each hears what the other says.
		struct pollfd ends[2] = { { fds[0], POLLIN, 0 }, { fds[1], POLLIN, 0 } };
		for (int open = 2; open;) {
			CHECK(poll(ends, 2, -1) > 0);
			for (int i = 0; i < 2; i++) {
				char text[256];
				if (!ends[i].revents)
					continue;
				ssize_t got = read(fds[i], text, sizeof text);
				if (got > 0) {
					(void)!write(fds[!i], text, got);
				} else {
					ends[i].fd = -1;
					open--;
				}
			}
		}
		succeeds(victim);
		succeeds(peer);
		close(fds[0]);
		close(fds[1]);
	}
}

static atomic_int faults;
static volatile int mends = 1;

static void barrier(int number, siginfo_t *info, void *registers)
{
	(void)number;
	(void)registers;
	uintptr_t page = (uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1);
	faults++;
	if (!mends)
		_exit(7);
	CHECK(!mprotect((void *)page, PAGE, PROT_READ | PROT_WRITE));
}

static void handle(void (*handler)(int, siginfo_t *, void *))
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
	CHECK(!sigaction(SIGSEGV, &action, NULL));
}

// A write barrier, as garbage collectors and distributed shared memory have it: the handler makes the
// page writable. It hears of the device's writes as of the program's, whoever drives the device.
static void write_barrier(void)
{
	static char source[PAGE];
	struct end end = open_end();
	struct ibv_mr *from = share(&end, source, PAGE);
	char *memory = map(2 * PAGE);
	for (int late = 0; late < 2; late++) {
		// Before memory is registered or after it.
		if (!late)
			handle(barrier);
		CHECK(!mprotect(memory, 2 * PAGE, PROT_READ | PROT_WRITE));
		struct ibv_mr *mr = share(&end, memory, 2 * PAGE);
		if (late)
			handle(barrier);
		connect_to_itself(&end);
		for (int by_helper = 0; by_helper < 2; by_helper++) {
			faults = 0;
			source[5]++;
			CHECK(!mprotect(memory, 2 * PAGE, PROT_READ));
			CHECK(!post(&end, IBV_WR_RDMA_WRITE, from, PAGE, (uintptr_t)memory + 100,
				    mr->rkey));
			if (by_helper)
				for (int i = 0; i < 10000 && faults < 2; i++)
					milliseconds(1);
			CHECK(outcome(&end) == IBV_WC_SUCCESS);
			CHECK(faults == 2);
			CHECK(memory[105] == source[5]);
			CHECK(!mprotect(memory, 2 * PAGE, PROT_NONE));
			CHECK(!post(&end, IBV_WR_RDMA_READ, from, PAGE, (uintptr_t)memory,
				    mr->rkey));
			CHECK(outcome(&end) == IBV_WC_SUCCESS);
			CHECK(faults == 3);
		}
		CHECK(!ibv_dereg_mr(mr));
	}
}

// A handler that prints a stack and ends the process does not hear of memory that is gone, but of
// the program's own faults.
static void crash_reporter(void)
{
	mends = 0;
	handle(barrier);
	struct end end = open_end();
	void *memory = map(2 * PAGE);
	struct ibv_mr *mr = share(&end, memory, 2 * PAGE);
	CHECK(!munmap(memory, 2 * PAGE));
	expect_refusals(&end, mr);
	CHECK(faults == 0);
	pid_t pid = fork();
	if (!pid)
		*(volatile char *)memory = 1;
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

// Without a handler the program's own faults end it as ever.
static void own_fault(void)
{
	struct rlimit none = { 0, 0 };
	setrlimit(RLIMIT_CORE, &none);
	struct end end = open_end();
	prove_alive(&end);
	int status;
	pid_t pid = fork();
	if (!pid)
		*(volatile char *)8 = 1;
	CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	pid = fork();
	if (!pid) {
		raise(SIGBUS);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
	signal(SIGSEGV, SIG_IGN);
	struct ibv_mr *mr = share(&end, map(PAGE), PAGE);
	raise(SIGSEGV);
	CHECK(!ibv_dereg_mr(mr));
}

static sigjmp_buf before_probe;

static void jump_back(int number)
{
	siglongjmp(before_probe, number);
}

// A program that finds out what is mapped by trying.
static void probe(void)
{
	struct end end = open_end();
	prove_alive(&end);
	struct sigaction action = { .sa_handler = jump_back }, before;
	CHECK(!sigaction(SIGSEGV, &action, &before));
	prove_alive(&end);
	for (int i = 0; i < 3; i++)
		if (!sigsetjmp(before_probe, 1)) {
			*(volatile char *)8 = 1;
			CHECK(!"nothing is there");
		}
	CHECK(!sigaction(SIGSEGV, &before, NULL));
	void *memory = map(2 * PAGE);
	struct ibv_mr *mr = share(&end, memory, 2 * PAGE);
	CHECK(!munmap(memory, 2 * PAGE));
	expect_refusals(&end, mr);
}

static void block_faults(void)
{
	sigset_t faults;
	CHECK(!sigemptyset(&faults) && !sigaddset(&faults, SIGSEGV) && !sigaddset(&faults, SIGBUS));
	CHECK(!pthread_sigmask(SIG_BLOCK, &faults, NULL));
}

// Whether the device reaches memory by system calls: where it is told to, and on processors for which
// it has nothing else.
static int is_checked(void)
{
#ifdef __x86_64__
	return getenv("FERROCE_CHECKED") != NULL;
#else
	return 1;
#endif
}

// Otherwise the kernel ends a process that faults in a thread that blocks the signal.
static void blocked(void)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		struct rlimit no_core = { 0, 0 };
		CHECK(!setrlimit(RLIMIT_CORE, &no_core));
		block_faults();
		unmapped();
		exit(0);
	}
	if (is_checked()) {
		succeeds(child);
		return;
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static const struct test_case CASES[] = {
	{ "heap", heap },
	{ "unmapped", unmapped },
	{ "blocked", blocked },
	{ "truncated", truncated },
	{ "half", half },
	{ "at_exit", at_exit },
	{ "write_barrier", write_barrier },
	{ "crash_reporter", crash_reporter },
	{ "own_fault", own_fault },
	{ "probe", probe },
};

MAIN(CASES)
