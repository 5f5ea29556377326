// What a post and a poll cost a program: nanoseconds of each, beside what a lock and a look at the
// clock cost. Prints lines of a name, a tabulator and a figure.
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BYTES = 8, RUN = 32, DEPTH = 256, RUNS = 4000, POLLS = 100000, LOOPS = 5, MESSAGES = 100000 };

#define CHECK(what)                                                                                \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "%s failed\n", #what);                                     \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

// A queue pair with its completion queue, and its peer on the same device.
struct end {
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp, *peer;
	int outstanding;
};

static char memory[4096];
// Two of one context, and one of a context that another thread has opened.
static struct end ends[2], apart;

static double now_ns(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;
	return (left > right) - (left < right);
}

static double median(double *values, int count)
{
	qsort(values, count, sizeof *values, ascending);
	return values[count / 2];
}

static void connect_one(struct ibv_qp *own, struct ibv_qp *peer, union ibv_gid gid)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	CHECK(!ibv_modify_qp(own, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 64 } },
	};
	CHECK(!ibv_modify_qp(own, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = 16,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	CHECK(!ibv_modify_qp(own, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static struct ibv_context *open_device(void)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list && count > 0);
	struct ibv_context *context = ibv_open_device(list[0]);
	CHECK(context);
	return context;
}

static void make(struct end *end, struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);
	end->mr = ibv_reg_mr(pd, memory, sizeof memory,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(end->mr);
	CHECK((end->cq = ibv_create_cq(context, 2 * DEPTH, NULL, NULL, 0)));
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = DEPTH,
			 .max_recv_wr = 1,
			 .max_send_sge = 1,
			 .max_recv_sge = 1,
			 .max_inline_data = BYTES },
	};
	CHECK((end->qp = ibv_create_qp(pd, &init)));
	CHECK((end->peer = ibv_create_qp(pd, &init)));
	union ibv_gid gid;
	CHECK(!ibv_query_gid(context, 1, 0, &gid));
	connect_one(end->qp, end->peer, gid);
	connect_one(end->peer, end->qp, gid);
}

static void *make_apart(void *unused)
{
	make(&apart, open_device());
	return unused;
}

static void begin(void)
{
	struct ibv_context *context = open_device();
	make(&ends[0], context);
	make(&ends[1], context);
	pthread_t other;
	CHECK(!pthread_create(&other, NULL, make_apart, NULL));
	CHECK(!pthread_join(other, NULL));
}

// Polls until no more than so many requests wait for their answers.
static void drain(struct end *end, int most)
{
	struct ibv_wc done[RUN];
	while (end->outstanding > most) {
		int count = ibv_poll_cq(end->cq, RUN, done);
		CHECK(count >= 0);
		for (int i = 0; i < count; i++)
			CHECK(done[i].status == IBV_WC_SUCCESS);
		end->outstanding -= count;
	}
}

static struct ibv_send_wr request(struct end *end, struct ibv_sge *sge, int send_flags)
{
	return (struct ibv_send_wr){
		.sg_list = sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = send_flags,
		.wr.rdma = { .remote_addr = (uintptr_t)memory + 64, .rkey = end->mr->rkey },
	};
}

// The median of a post behind others: `chained` to a list at a time, its bytes inline or not. The first
// finds the queue empty and leaves at once; those that are timed wait for more, and fill no batch: they
// leave in `drain`.
static double posts(int chained, int send_flags)
{
	static double took[RUNS];
	struct end *end = &ends[0];
	struct ibv_sge sge = { (uintptr_t)memory, BYTES, end->mr->lkey };
	struct ibv_send_wr first = request(end, &sge, send_flags), list[RUN], *bad;
	for (int i = 0; i < RUN; i++) {
		list[i] = first;
		list[i].next = (i + 1) % chained ? &list[i + 1] : NULL;
	}
	for (int run = 0; run < RUNS; run++) {
		drain(end, 0);
		CHECK(!ibv_post_send(end->qp, &first, &bad));
		double began = now_ns();
		for (int i = 0; i < RUN; i += chained)
			CHECK(!ibv_post_send(end->qp, &list[i], &bad));
		took[run] = (now_ns() - began) / RUN;
		end->outstanding += 1 + RUN;
	}
	drain(end, 0);
	return median(took, RUNS);
}

// The mean over many polls of an empty queue, so that what only some of them do counts; the median of
// some such means.
static double polls(void)
{
	double took[LOOPS];
	struct ibv_wc done;
	for (int loop = 0; loop < LOOPS; loop++) {
		// Nothing has been under way for some time.
		for (double began = now_ns(); now_ns() - began < 2e6;)
			CHECK(ibv_poll_cq(ends[0].cq, 1, &done) == 0);
		double began = now_ns();
		for (int i = 0; i < POLLS; i++)
			CHECK(ibv_poll_cq(ends[0].cq, 1, &done) == 0);
		took[loop] = (now_ns() - began) / POLLS;
	}
	return median(took, LOOPS);
}

// A thread's part of MESSAGES messages, with DEPTH of them under way.
static void *streams(void *argument)
{
	struct end *end = argument;
	struct ibv_sge sge = { (uintptr_t)memory, BYTES, end->mr->lkey };
	struct ibv_send_wr wr = request(end, &sge, IBV_SEND_INLINE), *bad;
	for (int sent = 0; sent < MESSAGES; sent++) {
		drain(end, DEPTH - 1);
		CHECK(!ibv_post_send(end->qp, &wr, &bad));
		end->outstanding++;
	}
	drain(end, 0);
	return NULL;
}

// What a message takes where a thread sends, and another one on a queue pair of its own, if there is one.
static double messages(struct end *second)
{
	double took[LOOPS];
	for (int loop = 0; loop < LOOPS; loop++) {
		pthread_t other;
		double began = now_ns();
		if (second)
			CHECK(!pthread_create(&other, NULL, streams, second));
		streams(&ends[0]);
		if (second)
			CHECK(!pthread_join(other, NULL));
		took[loop] = (now_ns() - began) / MESSAGES / (second ? 2 : 1);
	}
	return median(took, LOOPS);
}

static double bare(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	double took[LOOPS];
	for (int loop = 0; loop < LOOPS; loop++) {
		double began = now_ns();
		for (int i = 0; i < POLLS; i++) {
			struct timespec time;
			pthread_mutex_lock(&lock);
			clock_gettime(CLOCK_MONOTONIC, &time);
			pthread_mutex_unlock(&lock);
		}
		took[loop] = (now_ns() - began) / POLLS;
	}
	return median(took, LOOPS);
}

int main(void)
{
	begin();
	posts(1, IBV_SEND_INLINE); // the caches are warm, and the helper keeps watch
	printf("lock and clock\t%.1f\n", bare());
	printf("post, inline\t%.1f\n", posts(1, IBV_SEND_INLINE));
	printf("post, by key\t%.1f\n", posts(1, 0));
	printf("post in lists of 32, inline\t%.1f\n", posts(RUN, IBV_SEND_INLINE));
	printf("poll of an empty queue\t%.1f\n", polls());
	printf("message, 1 thread\t%.1f\n", messages(NULL));
	printf("message, 2 threads\t%.1f\n", messages(&ends[1]));
	printf("message, 2 threads with a context each\t%.1f\n", messages(&apart));
	// Nothing is tidied up: the process ends, and the device with it.
	fflush(stdout);
	return 0;
}
