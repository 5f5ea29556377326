// Contexts of one device that several threads open. The argument names the case.
#include "process.h"

enum { THREADS = 6, MESSAGES = 2000, LARGE = 1 << 20 };

static pthread_barrier_t together;

// A device's process by the numbers of its queue pairs.
static unsigned slot_of(const struct end *end)
{
	return end->qp->qp_num >> 16;
}

static unsigned most(void)
{
	const char *cores = getenv("CORES");
	CHECK(cores);
	unsigned count = strtoul(cores, NULL, 10);
	return count < 16 ? count : 16;
}

static unsigned distinct(const unsigned *slots, unsigned count)
{
	unsigned found = 0;
	for (unsigned i = 0; i < count; i++) {
		unsigned j = 0;
		while (slots[j] != slots[i])
			j++;
		found += i == j;
	}
	return found;
}

static void close_end(struct end *end)
{
	CHECK(!ibv_destroy_cq(end->cq) && !ibv_destroy_comp_channel(end->channel));
	CHECK(!ibv_dealloc_pd(end->pd) && !ibv_close_device(end->context));
}

// Small messages, each of which overwrites the one before, and a large one.
static void traffic(struct end *end)
{
	char *memory = map(2 * LARGE), *target = memory + LARGE;
	struct ibv_mr *mr = share(end, memory, 2 * LARGE);
	for (unsigned long i = 1; i <= MESSAGES; i++) {
		memcpy(memory, &i, sizeof i);
		CHECK(!post(end, IBV_WR_RDMA_WRITE, mr, sizeof i, (uintptr_t)target, mr->rkey));
		CHECK(outcome(end) == IBV_WC_SUCCESS);
		CHECK(!memcmp(memory, target, sizeof i));
	}
	memset(memory, 'x', LARGE);
	CHECK(!post(end, IBV_WR_RDMA_WRITE, mr, LARGE, (uintptr_t)target, mr->rkey));
	CHECK(outcome(end) == IBV_WC_SUCCESS);
	CHECK(!memcmp(memory, target, LARGE));
	CHECK(!ibv_dereg_mr(mr) && !munmap(memory, 2 * LARGE));
}

static void *opens(void *slot)
{
	struct end end = open_end(), other = connect_to_itself(&end);
	*(unsigned *)slot = slot_of(&end);
	pthread_barrier_wait(&together); // all are open
	traffic(&end);
	pthread_barrier_wait(&together); // none is closed before
	CHECK(!ibv_destroy_qp(end.qp) && !ibv_destroy_qp(other.qp));
	close_end(&end);
	return NULL;
}

// Each thread is to the device what a process is, up to a number.
static void of_threads(void)
{
	pthread_t threads[THREADS];
	unsigned slots[THREADS];
	CHECK(!pthread_barrier_init(&together, NULL, THREADS));
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, opens, &slots[i]));
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(threads[i], NULL));
	CHECK(distinct(slots, THREADS) == (most() < THREADS ? most() : THREADS));
}

// All contexts of a thread share one.
static void of_one_thread(void)
{
	struct end first = open_end(), second = open_end();
	connect_to_itself(&first);
	connect_to_itself(&second);
	CHECK(slot_of(&first) == slot_of(&second));
	traffic(&first);
	traffic(&second);
}

static void *opens_one(void *end)
{
	*(struct end *)end = open_end();
	return NULL;
}

static struct end of_another_thread(void)
{
	struct end end;
	pthread_t thread;
	CHECK(!pthread_create(&thread, NULL, opens_one, &end) && !pthread_join(thread, NULL));
	return end;
}

// Queue pairs of two contexts are peers, of which only one is polled.
static void between(void)
{
	static char memory[2][PAGE];
	struct end own = open_end(), peer = of_another_thread();
	new_qp(&own);
	new_qp(&peer);
	CHECK((slot_of(&own) != slot_of(&peer)) == (most() > 1));
	struct name names[] = { { .qpn = own.qp->qp_num, .gid = own.gid },
				{ .qpn = peer.qp->qp_num, .gid = peer.gid } };
	connect_end(&own, &names[1], 14);
	connect_end(&peer, &names[0], 14);
	struct ibv_mr *from = share(&own, memory[0], PAGE), *to = share(&peer, memory[1], PAGE);
	for (int i = 0; i < MESSAGES; i++) {
		memory[0][i % PAGE]++;
		CHECK(!post(&own, IBV_WR_RDMA_WRITE, from, PAGE, (uintptr_t)memory[1], to->rkey));
		CHECK(outcome(&own) == IBV_WC_SUCCESS);
		CHECK(!memcmp(memory[0], memory[1], PAGE));
	}
}

// A thread that imports a context has its objects.
static void *imports(void *argument)
{
	struct end *end = argument;
	struct ibv_context *context = ibv_import_device(dup(end->context->cmd_fd));
	CHECK(context);
	struct ibv_pd *pd = ibv_import_pd(context, end->pd->handle);
	CHECK(pd);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(cq);
	struct end imported = { .context = context, .pd = pd, .cq = cq, .gid = end->gid };
	struct end other = connect_to_itself(&imported);
	CHECK(slot_of(&imported) == slot_of(end));
	traffic(&imported);
	CHECK(!ibv_destroy_qp(imported.qp) && !ibv_destroy_qp(other.qp) && !ibv_destroy_cq(cq));
	ibv_unimport_pd(pd);
	CHECK(!ibv_close_device(context));
	return NULL;
}

static void imported(void)
{
	struct end end = open_end();
	connect_to_itself(&end);
	pthread_t thread;
	CHECK(!pthread_create(&thread, NULL, imports, &end) && !pthread_join(thread, NULL));
	traffic(&end);
}

static void *comes_and_goes(void *unused)
{
	for (int i = 0; i < 20; i++) {
		struct end end = open_end(), other = connect_to_itself(&end);
		traffic(&end);
		CHECK(!ibv_destroy_qp(end.qp) && !ibv_destroy_qp(other.qp));
		close_end(&end);
	}
	return unused;
}

static void come_and_go(void)
{
	struct end end = open_end();
	connect_to_itself(&end);
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, comes_and_goes, NULL));
	traffic(&end);
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(threads[i], NULL));
	traffic(&end);
}

// The domain of a file is there for the contexts that share a lock, and no other one takes its place.
static void xrc_file(void)
{
	char path[] = "/tmp/ferroce-xrcd-XXXXXX";
	int fd = mkstemp(path);
	CHECK(fd >= 0 && !unlink(path));
	struct ibv_xrcd_init_attr init = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = fd,
		.oflags = O_CREAT,
	};
	struct end first = open_end(), second = open_end(), third = of_another_thread();
	struct ibv_xrcd *domain = ibv_open_xrcd(first.context, &init);
	CHECK(domain);
	struct ibv_xrcd *same = ibv_open_xrcd(second.context, &init);
	CHECK(same && !ibv_close_xrcd(same));
	struct ibv_xrcd *other = ibv_open_xrcd(third.context, &init);
	int refusal = errno;
	new_qp(&first);
	new_qp(&third);
	if (slot_of(&first) == slot_of(&third))
		CHECK(other);
	else
		CHECK(!other && refusal == EINVAL);
	CHECK(!ibv_close_xrcd(domain));
}

static const struct test_case CASES[] = {
	{ "of_threads", of_threads },	{ "of_one_thread", of_one_thread },
	{ "between", between },		{ "imported", imported },
	{ "come_and_go", come_and_go }, { "xrc_file", xrc_file },
};
MAIN(CASES)
