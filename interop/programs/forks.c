// Forks while threads are busy with the device. The child looks at what it has inherited, opens the
// device itself, and plays ping-pong with its parent.
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                    \
	do {                                                                           \
		if (!(what)) {                                                         \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", role, __LINE__, #what, errno); \
			_exit(1);                                                      \
		}                                                                      \
	} while (0)

enum { FORKS = 10, ROUNDS = 200, SIZE = 4096 };

static const char *role = "parent";
static atomic_int stop;

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	char *buffer;
};

struct name {
	uint32_t qpn;
	union ibv_gid gid;
};

static struct end open_end(void)
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
	end.cq = ibv_create_cq(end.context, 16, NULL, end.channel, 0);
	end.buffer = calloc(1, SIZE);
	end.mr = ibv_reg_mr(end.pd, end.buffer, SIZE, IBV_ACCESS_LOCAL_WRITE);
	CHECK(end.cq && end.mr);
	struct ibv_qp_init_attr init = {
		.send_cq = end.cq,
		.recv_cq = end.cq,
		.cap = { 4, 4, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	end.qp = ibv_create_qp(end.pd, &init);
	CHECK(end.qp);
	return end;
}

static void receive(struct end *end)
{
	struct ibv_sge sge = { (uintptr_t)end->buffer, SIZE, end->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(!ibv_post_recv(end->qp, &wr, &bad));
}

static int post(struct end *end)
{
	struct ibv_sge sge = { (uintptr_t)end->buffer, SIZE, end->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	return ibv_post_send(end->qp, &wr, &bad);
}

static void await(struct end *end, int completions)
{
	struct ibv_wc wc;
	while (completions) {
		int got = ibv_poll_cq(end->cq, 1, &wc);
		CHECK(got >= 0);
		if (got) {
			CHECK(wc.status == IBV_WC_SUCCESS);
			completions--;
		}
	}
}

static void connect_to_peer(struct end *end, int fd)
{
	struct name mine = { .qpn = end->qp->qp_num }, theirs;
	CHECK(!ibv_query_gid(end->context, 1, 1, &mine.gid));
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					     IBV_QP_ACCESS_FLAGS));
	receive(end);
	CHECK(write(fd, &mine, sizeof mine) == sizeof mine);
	CHECK(read(fd, &theirs, sizeof theirs) == sizeof theirs);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = theirs.qpn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = theirs.gid, .sgid_index = 1, .hop_limit = 64 } },
	};
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					     IBV_QP_MAX_QP_RD_ATOMIC));
	// Neither sends before the other is ready.
	CHECK(write(fd, "x", 1) == 1 && read(fd, &mine, 1) == 1);
}

static void ping_pong(struct end *end, int fd, int begins)
{
	connect_to_peer(end, fd);
	for (int round = 0; round < ROUNDS; round++) {
		if (begins) {
			memset(end->buffer, round, SIZE);
			CHECK(!post(end));
			await(end, 2);
		} else {
			await(end, 1);
		}
		CHECK(end->buffer[SIZE - 1] == (char)round);
		receive(end);
		if (!begins) {
			CHECK(!post(end));
			await(end, 1);
		}
	}
}

static void destroy(struct end *end)
{
	CHECK(!ibv_destroy_qp(end->qp));
	CHECK(!ibv_destroy_cq(end->cq));
	CHECK(!ibv_destroy_comp_channel(end->channel));
	CHECK(!ibv_dereg_mr(end->mr));
	CHECK(!ibv_dealloc_pd(end->pd));
	CHECK(!ibv_close_device(end->context));
	free(end->buffer);
}

static void child(struct end *inherited, int fd)
{
	role = "child";
	alarm(30);
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	CHECK(!ibv_query_device(inherited->context, &device));
	CHECK(!ibv_query_port(inherited->context, 1, &port) && port.state == IBV_PORT_ACTIVE);
	struct ibv_wc wc;
	void *context;
	CHECK(post(inherited) == ENODEV);
	CHECK(ibv_poll_cq(inherited->cq, 1, &wc) < 0 && errno == ENODEV);
	CHECK(ibv_req_notify_cq(inherited->cq, 0) == ENODEV);
	CHECK(ibv_get_cq_event(inherited->channel, &inherited->cq, &context) < 0);
	CHECK(!ibv_alloc_pd(inherited->context) && errno == ENODEV);
	destroy(inherited);

	struct end own = open_end();
	ping_pong(&own, fd, 1);
	destroy(&own);
	exit(0);
}

static void *poll_for_ever(void *argument)
{
	struct end *end = argument;
	struct ibv_wc wc;
	while (!stop)
		CHECK(ibv_poll_cq(end->cq, 1, &wc) >= 0);
	return NULL;
}

static void *make_and_destroy(void *argument)
{
	(void)argument;
	while (!stop) {
		struct end end = open_end();
		destroy(&end);
	}
	return NULL;
}

int main(void)
{
	struct end busy = open_end();
	pthread_t threads[2];
	pthread_create(&threads[0], NULL, poll_for_ever, &busy);
	pthread_create(&threads[1], NULL, make_and_destroy, NULL);
	for (int fork_number = 0; fork_number < FORKS; fork_number++) {
		int pair[2], status;
		CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
		struct end end = open_end();
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (pid == 0)
			child(&end, pair[1]);
		close(pair[1]);
		ping_pong(&end, pair[0], 0);
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
		destroy(&end);
		close(pair[0]);
	}
	stop = 1;
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	destroy(&busy);
	printf("%d forks\n", FORKS);
	return 0;
}
