// What the cases of a process have in common: ends of connections, within a process and between two.
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what)                                                                       \
	do {                                                                              \
		if (!(what)) {                                                            \
			fprintf(stderr, "%d: line %d: %s (errno %d)\n", (int)getpid(),    \
				__LINE__, #what, errno);                                  \
			_exit(1);                                                         \
		}                                                                         \
	} while (0)

// A program's cases; its argument names one.
struct test_case {
	const char *name;
	void (*run)(void);
};

static inline int run_case(const struct test_case *cases, size_t count, int argc, char **argv)
{
	for (size_t i = 0; i < count; i++)
		if (argc == 2 && !strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			return 0;
		}
	return 2;
}

#define MAIN(cases)                                                                       \
	int main(int argc, char **argv)                                                   \
	{                                                                                 \
		return run_case(cases, sizeof(cases) / sizeof *(cases), argc, argv);      \
	}

enum { PAGE = 4096, ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	union ibv_gid gid;
};

// How to reach an end, and memory of it.
struct name {
	uint32_t qpn;
	union ibv_gid gid;
	uint64_t addr;
	uint32_t rkey;
};

static inline struct end open_end(void)
{
	struct end end;
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	end.context = ibv_open_device(list[0]);
	CHECK(end.context);
	ibv_free_device_list(list);
	end.pd = ibv_alloc_pd(end.context);
	end.channel = ibv_create_comp_channel(end.context);
	CHECK(end.pd && end.channel);
	end.cq = ibv_create_cq(end.context, 64, NULL, end.channel, 0);
	CHECK(end.cq && !ibv_query_gid(end.context, 1, 1, &end.gid));
	return end;
}

static inline void new_qp(struct end *end)
{
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.cap = { 16, 16, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	end->qp = ibv_create_qp(end->pd, &init);
	CHECK(end->qp);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				    .qp_access_flags = ALL };
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						     IBV_QP_ACCESS_FLAGS));
}

// `timeout` and 3 retries: 14 is 67 ms.
static inline void connect_end(struct end *end, const struct name *peer, int timeout)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = peer->qpn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = peer->gid, .sgid_index = 1, .hop_limit = 64 } },
	};
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
						     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						     IBV_QP_MAX_DEST_RD_ATOMIC |
						     IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = timeout, .retry_cnt = 3, .rnr_retry = 7,
		.max_rd_atomic = 4,
	};
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
						     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
						     IBV_QP_MAX_QP_RD_ATOMIC));
}

static inline struct ibv_mr *share(struct end *end, void *memory, size_t size)
{
	struct ibv_mr *mr = ibv_reg_mr(end->pd, memory, size, ALL);
	CHECK(mr);
	return mr;
}

// A second queue pair of the process, connected with the first.
static inline struct end connect_to_itself(struct end *end)
{
	struct end other = *end;
	new_qp(end);
	new_qp(&other);
	struct name first = { .qpn = end->qp->qp_num, .gid = end->gid };
	struct name second = { .qpn = other.qp->qp_num, .gid = end->gid };
	connect_end(end, &second, 14);
	connect_end(&other, &first, 14);
	return other;
}

static inline void connect_to_peer(struct end *end, int fd, struct ibv_mr *mr, struct name *peer)
{
	new_qp(end);
	struct name own = { .qpn = end->qp->qp_num, .gid = end->gid };
	if (mr) {
		own.addr = (uintptr_t)mr->addr;
		own.rkey = mr->rkey;
	}
	CHECK(write(fd, &own, sizeof own) == sizeof own);
	CHECK(read(fd, peer, sizeof *peer) == sizeof *peer);
	connect_end(end, peer, 14);
	char ready;
	CHECK(write(fd, "x", 1) == 1 && read(fd, &ready, 1) == 1);
}

static inline int post(struct end *end, enum ibv_wr_opcode opcode, struct ibv_mr *own,
		       uint32_t length, uint64_t addr, uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)own->addr, length, own->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = addr;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = rkey;
	}
	return ibv_post_send(end->qp, &wr, &bad);
}

static inline int post_receive(struct end *end, struct ibv_mr *own, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)own->addr, length, own->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	return ibv_post_recv(end->qp, &wr, &bad);
}

// The status of the next completion.
static inline enum ibv_wc_status outcome(struct end *end)
{
	struct ibv_wc wc;
	int got;
	while (!(got = ibv_poll_cq(end->cq, 1, &wc)))
		;
	CHECK(got == 1);
	return wc.status;
}

static inline void milliseconds(long time)
{
	struct timespec left = { time / 1000, time % 1000 * 1000000 };
	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

// A WRITE from one queue pair of the process to the other arrives.
static inline void prove_alive(struct end *end)
{
	static char memory[2][PAGE];
	struct end other = connect_to_itself(end);
	struct ibv_mr *from = share(end, memory[0], PAGE), *to = share(end, memory[1], PAGE);
	memory[0][PAGE - 1]++;
	CHECK(!post(end, IBV_WR_RDMA_WRITE, from, PAGE, (uintptr_t)memory[1], to->rkey));
	CHECK(outcome(end) == IBV_WC_SUCCESS);
	CHECK(memory[1][PAGE - 1] == memory[0][PAGE - 1]);
	CHECK(!ibv_destroy_qp(end->qp) && !ibv_destroy_qp(other.qp));
	CHECK(!ibv_dereg_mr(from) && !ibv_dereg_mr(to));
}

static inline void *map(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	return memory;
}

// Runs `child` in a process of its own, with one end of a connection, and returns the other.
static inline pid_t beside(void (*child)(int fd), int *fd)
{
	int fds[2];
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		close(fds[0]);
		child(fds[1]);
		exit(0);
	}
	close(fds[1]);
	*fd = fds[0];
	return pid;
}

static inline void succeeds(pid_t pid)
{
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	if (status)
		fprintf(stderr, "process %d ended with status %#x\n", (int)pid, status);
	CHECK(!status);
}
