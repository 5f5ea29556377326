/*
 * Asks verbs how long queue pairs wait before they give a silent peer up.
 *
 *   retry_times TIMEOUT:RETRY_CNT...
 *
 * For each pair a queue pair is connected to a number that nobody has, writes to it, and waits. One
 * line each on standard output: qp_num timeout retry_cnt status vendor_err nanoseconds.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <infiniband/verbs.h>

enum { GID_INDEX = 1, NOBODY = 0xfe0042 };

struct probe {
	struct ibv_qp *qp;
	unsigned timeout, retry_cnt;
	uint64_t posted_ns;
};

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void check(int good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "retry_times: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void verb(int error, const char *what)
{
	errno = error;
	check(!error, what);
}

static void connect_to_nobody(struct probe *probe, const union ibv_gid *gid)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = NOBODY,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = *gid, .sgid_index = GID_INDEX, .hop_limit = 64 } },
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .timeout = probe->timeout, .retry_cnt = probe->retry_cnt,
		.rnr_retry = 7, .max_rd_atomic = 1,
	};
	verb(ibv_modify_qp(probe->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			   IBV_QP_ACCESS_FLAGS), "INIT");
	verb(ibv_modify_qp(probe->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			   IBV_QP_MIN_RNR_TIMER), "RTR");
	verb(ibv_modify_qp(probe->qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

int main(int argc, char **argv)
{
	int count = argc - 1, left = count;
	struct ibv_device **devices = ibv_get_device_list(NULL);
	check(devices && devices[0], "no device");
	struct ibv_context *context = ibv_open_device(devices[0]);
	check(!!context, "open");
	struct ibv_pd *pd = ibv_alloc_pd(context);
	check(!!pd, "protection domain");
	static char memory[64];
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
	check(!!mr, "memory region");
	struct ibv_cq *cq = ibv_create_cq(context, count + 1, NULL, NULL, 0);
	check(!!cq, "completion queue");
	union ibv_gid gid;
	check(!ibv_query_gid(context, 1, GID_INDEX, &gid), "GID");

	struct probe *probes = calloc(count + 1, sizeof *probes);
	check(!!probes, "memory");
	for (int i = 0; i < count; i++) {
		struct probe *probe = &probes[i];
		if (sscanf(argv[i + 1], "%u:%u", &probe->timeout, &probe->retry_cnt) != 2) {
			fprintf(stderr, "retry_times: %s is not TIMEOUT:RETRY_CNT\n", argv[i + 1]);
			return 2;
		}
		struct ibv_qp_init_attr attr = {
			.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
			.cap = { .max_send_wr = 1, .max_send_sge = 1 },
		};
		probe->qp = ibv_create_qp(pd, &attr);
		check(!!probe->qp, "queue pair");
		connect_to_nobody(probe, &gid);
	}
	for (int i = 0; i < count; i++) {
		struct ibv_sge sge = { (uintptr_t)memory, sizeof memory, mr->lkey };
		struct ibv_send_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1,
					  .opcode = IBV_WR_RDMA_WRITE }, *bad;
		probes[i].posted_ns = now_ns();
		verb(ibv_post_send(probes[i].qp, &wr, &bad), "post");
	}
	while (left) {
		struct ibv_wc wc;
		int polled = ibv_poll_cq(cq, 1, &wc);
		check(polled >= 0, "poll");
		if (!polled) {
			struct timespec nap = { 0, 20000 };
			nanosleep(&nap, NULL);
			continue;
		}
		struct probe *probe = &probes[wc.wr_id];
		printf("%u %u %u %d %u %llu\n", probe->qp->qp_num, probe->timeout, probe->retry_cnt,
		       wc.status, wc.vendor_err, (unsigned long long)(now_ns() - probe->posted_ns));
		fflush(stdout);
		left--;
	}
	return 0;
}
