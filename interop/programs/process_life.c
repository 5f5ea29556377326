// What programs do to their own process: daemons, closed descriptors, limits, children without fork(3).
// The argument names the case.
#include "process.h"

// 64 files that the program opens after it has closed all there were: none of them is the library's.
static void fill(int fds[64], const char *directory)
{
	for (int i = 0; i < 64; i++) {
		char path[256];
		snprintf(path, sizeof path, "%s/process-XXXXXX", directory);
		fds[i] = mkstemp(path);
		CHECK(fds[i] >= 0 && !unlink(path));
		CHECK(pwrite(fds[i], "mine", 4, 0) == 4);
	}
}

static void are_untouched(const int fds[64])
{
	for (int i = 0; i < 64; i++) {
		char text[16];
		CHECK(pread(fds[i], text, sizeof text, 0) == 4 && !memcmp(text, "mine", 4));
		CHECK(lseek(fds[i], 0, SEEK_CUR) == 0);
	}
}

// The calls of a program that does not know that its device is gone. They may fail, but they end.
static void use_all(struct end *end, struct ibv_mr *mr)
{
	struct ibv_wc wc;
	for (int i = 0; i < 50; i++) {
		(void)post(end, IBV_WR_RDMA_WRITE, mr, 8, (uintptr_t)mr->addr, mr->rkey);
		for (int polls = 0; polls < 20; polls++)
			(void)ibv_poll_cq(end->cq, 1, &wc);
		(void)ibv_req_notify_cq(end->cq, 0);
		milliseconds(1);
	}
}

static void end_all(struct end *end, struct end *other, struct ibv_mr *mr)
{
	CHECK(!ibv_destroy_qp(end->qp) && !ibv_destroy_qp(other->qp));
	CHECK(!ibv_destroy_cq(end->cq));
	CHECK(!ibv_dereg_mr(mr));
	CHECK(!ibv_dealloc_pd(end->pd));
}

// close_range(2) of everything, as daemons and launchers do it.
static void closefrom_all(void)
{
	static char memory[PAGE];
	int fds[64];
	char directory[256];
	CHECK(getcwd(directory, sizeof directory));
	struct end end = open_end();
	prove_alive(&end);
	struct end other = connect_to_itself(&end);
	struct ibv_mr *mr = share(&end, memory, PAGE);
	CHECK(!syscall(SYS_close_range, 3, ~0U, 0));
	fill(fds, directory);
	use_all(&end, mr);
	end_all(&end, &other, mr);
	are_untouched(fds);
}

// The same by numbers, as it is done by daemons that are older: the device's are out of their way.
static void close_low(void)
{
	struct end end = open_end();
	prove_alive(&end);
	for (int fd = 3; fd < 256; fd++)
		close(fd);
	prove_alive(&end);
}

static void report_to(int fd)
{
	struct end own = open_end();
	prove_alive(&own);
	CHECK(write(fd, "ok", 2) == 2);
	exit(0);
}

// The program becomes a daemon while its device is open. The daemon's is closed, and it opens its own.
static void becomes_daemon(void)
{
	int fds[2];
	char answer[2];
	CHECK(!pipe(fds));
	pid_t pid = fork();
	if (!pid) {
		struct end end = open_end();
		prove_alive(&end);
		CHECK(!daemon(1, 1));
		struct ibv_wc wc;
		CHECK(ibv_poll_cq(end.cq, 1, &wc) < 0 && errno == ENODEV);
		report_to(fds[1]);
	}
	succeeds(pid);
	close(fds[1]);
	CHECK(read(fds[0], answer, 2) == 2);
}

static void double_fork(void)
{
	int fds[2];
	char answer[2];
	CHECK(!pipe(fds));
	struct end end = open_end();
	pid_t pid = fork();
	if (!pid) {
		CHECK(setsid() > 0);
		pid = fork();
		if (!pid)
			report_to(fds[1]);
		_exit(pid < 0);
	}
	succeeds(pid);
	CHECK(read(fds[0], answer, 2) == 2);
	prove_alive(&end);
}

// A program started by vfork has none of the device's descriptors, and the device goes on.
static void vfork_exec(void)
{
	struct end end = open_end();
	prove_alive(&end);
	for (int i = 0; i < 50; i++) {
		pid_t pid = vfork();
		if (!pid) {
			execl("/bin/sh", "sh", "-c",
			      "for fd in /proc/$$/fd/*; do "
			      "case $(readlink $fd) in socket:*|anon_inode:*) exit 1;; esac; done",
			      NULL);
			_exit(9);
		}
		CHECK(pid > 0);
		succeeds(pid);
		prove_alive(&end);
	}
}

// clone(2) without the C library, of which no library is told. The child finds that the device is not
// its own, ends like any program, and takes nothing from its parent.
static void raw_clone(void)
{
	struct end end = open_end();
	prove_alive(&end);
	for (int i = 0; i < 10; i++) {
		// No thread may be in the allocator: nobody tells it.
		milliseconds(5);
		pid_t pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
		CHECK(pid >= 0);
		if (!pid) {
			struct ibv_wc wc;
			CHECK(ibv_poll_cq(end.cq, 1, &wc) < 0 && errno == ENODEV);
			CHECK(!ibv_alloc_pd(end.context) && errno == ENODEV);
			if (i % 2) {
				struct end own = open_end();
				prove_alive(&own);
			}
			exit(0);
		}
		for (int j = 0; j < 20; j++)
			prove_alive(&end);
		succeeds(pid);
	}
}

static rlim_t lower(int resource, rlim_t to)
{
	struct rlimit limit;
	CHECK(!getrlimit(resource, &limit));
	rlim_t before = limit.rlim_cur;
	limit.rlim_cur = to;
	CHECK(!setrlimit(resource, &limit));
	return before;
}

static int descriptors(void)
{
	int count = 0;
	for (int fd = 0; fd < 4096; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

// Opens the device and makes what can be made; 1 if all of it could be.
static int open_as_far_as_possible(void)
{
	int done = 0;
	struct ibv_context *context = NULL;
	struct ibv_device **list = ibv_get_device_list(NULL);
	if (!list || !list[0])
		goto out;
	context = ibv_open_device(list[0]);
	if (!context)
		goto out;
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);
	struct ibv_cq *cq = ibv_create_cq(context, 10, NULL, channel, 0);
	CHECK(cq);
	done = channel != NULL;
	CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
	CHECK(!channel || !ibv_destroy_comp_channel(channel));
out:
	if (!done)
		CHECK(errno);
	if (context)
		CHECK(!ibv_close_device(context));
	if (list)
		ibv_free_device_list(list);
	return done;
}

// However few descriptors are left: an error, or a device; and nothing is lost of them.
static void few_descriptors(void)
{
	CHECK(open_as_far_as_possible());
	int open = descriptors(), failures = 0;
	for (int left = 0; left < 24; left++) {
		rlim_t before = lower(RLIMIT_NOFILE, open + left);
		failures += !open_as_far_as_possible();
		lower(RLIMIT_NOFILE, before);
		CHECK(descriptors() == open);
	}
	CHECK(failures > 2);
	struct end end = open_end();
	prove_alive(&end);
}

// No thread more: there is no device without its helper.
static void few_threads(void)
{
	if (!geteuid())
		return; // root has no such limit
	rlim_t before = lower(RLIMIT_NPROC, 0);
	CHECK(!open_as_far_as_possible());
	lower(RLIMIT_NPROC, before);
	struct end end = open_end();
	prove_alive(&end);
}

// Nothing is locked into memory.
static void no_locked_memory(void)
{
	lower(RLIMIT_MEMLOCK, 0);
	struct end end = open_end();
	prove_alive(&end);
	struct ibv_mr *mr = share(&end, map(64 << 20), 64 << 20);
	CHECK(!ibv_dereg_mr(mr));
}

static long pages_of_process(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long pages;
	CHECK(file && fscanf(file, "%ld", &pages) == 1);
	fclose(file);
	return pages;
}

// The address space is full but for some megabytes.
static void little_address_space(void)
{
	CHECK(open_as_far_as_possible());
	for (int megabytes = 1; megabytes < 40; megabytes += 3) {
		rlim_t before = lower(RLIMIT_AS, pages_of_process() * PAGE + ((rlim_t)megabytes << 20));
		(void)open_as_far_as_possible();
		lower(RLIMIT_AS, before);
	}
	struct end end = open_end();
	prove_alive(&end);
}

static struct end interrupted;
static sigjmp_buf outside;
static atomic_int nested, refused;

static void calls_from_handler(int number)
{
	struct ibv_wc wc;
	(void)number;
	nested++;
	if (ibv_poll_cq(interrupted.cq, 1, &wc) < 0 && errno == EDEADLK)
		refused++;
}

static void run_interrupted(void (*handler)(int))
{
	static char memory[2][PAGE];
	interrupted = open_end();
	connect_to_itself(&interrupted);
	struct ibv_mr *from = share(&interrupted, memory[0], PAGE);
	struct ibv_mr *to = share(&interrupted, memory[1], PAGE);
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
	struct itimerval often = { { 0, 300 }, { 0, 300 } };
	CHECK(!sigaction(SIGALRM, &action, NULL));
	CHECK(!setitimer(ITIMER_REAL, &often, NULL));
	struct ibv_wc wc;
	for (int i = 0; i < 2000000 && !refused; i++) {
		(void)post(&interrupted, IBV_WR_RDMA_WRITE, from, PAGE, (uintptr_t)memory[1],
			   to->rkey);
		(void)ibv_poll_cq(interrupted.cq, 1, &wc);
	}
}

static void stop_timer(void)
{
	struct itimerval never = { 0 };
	CHECK(!setitimer(ITIMER_REAL, &never, NULL));
}

// A handler that makes a call in the middle of another gets EDEADLK, and does not wait for itself.
static void call_in_handler(void)
{
	run_interrupted(calls_from_handler);
	stop_timer();
	CHECK(refused);
	struct end end = open_end();
	prove_alive(&end);
}

static void jumps(int number)
{
	siglongjmp(outside, number);
}

// A program that jumps out of a call has lost its device, whose lock nobody gives back. It hears so,
// and ends.
static void jump_out(void)
{
	struct ibv_wc wc;
	int lost = 0;
	for (volatile int round = 0; round < 2000 && !lost; round++) {
		if (!sigsetjmp(outside, 1))
			run_interrupted(jumps);
		stop_timer();
		lost = ibv_poll_cq(interrupted.cq, 1, &wc) < 0 && errno == EDEADLK;
	}
	CHECK(lost);
	CHECK(!ibv_alloc_pd(interrupted.context) && errno == EDEADLK);
}

static const struct test_case CASES[] = {
	{ "closefrom_all", closefrom_all },
	{ "close_low", close_low },
	{ "becomes_daemon", becomes_daemon },
	{ "double_fork", double_fork },
	{ "vfork_exec", vfork_exec },
	{ "raw_clone", raw_clone },
	{ "few_descriptors", few_descriptors },
	{ "few_threads", few_threads },
	{ "no_locked_memory", no_locked_memory },
	{ "little_address_space", little_address_space },
	{ "call_in_handler", call_in_handler },
	{ "jump_out", jump_out },
};

MAIN(CASES)
