/*
 * Many processes with many queue pairs on one device, again and again.
 *
 *   crowd PAIRS QPS SECONDS
 *
 * Starts twice PAIRS processes. The two of a pair connect QPS queue pairs with each other, send a
 * message each way over each of them, compare what arrives, destroy everything and begin anew until
 * SECONDS have passed, at least once. Prints one line on standard output: rounds, messages, and how
 * many file descriptors and kilobytes of memory the processes gained between the second and the last
 * round at most.
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <infiniband/verbs.h>

enum { GID_INDEX = 1, BYTES = 64 };

struct totals { long rounds, messages, fds, kilobytes; };
struct end { uint32_t qpn, psn; };

static void check(int good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "crowd %d: %s: %s\n", getpid(), what, strerror(errno));
	exit(1);
}

static void verb(int error, const char *what)
{
	errno = error;
	check(!error, what);
}

static void exchange(int peer, const void *mine, void *theirs, size_t length)
{
	size_t sent = 0, got = 0;
	while (sent < length || got < length) {
		/* In pieces that fit the socket's buffer, or both ends would wait in write. */
		size_t piece = length - sent < 4096 ? length - sent : 4096;
		if (piece) {
			check(write(peer, (const char *)mine + sent, piece) == (ssize_t)piece, "write");
			sent += piece;
		}
		while (got < sent) {
			ssize_t n = read(peer, (char *)theirs + got, sent - got);
			check(n > 0, "the other end is gone");
			got += n;
		}
	}
}

static long count_fds(void)
{
	long count = 0;
	DIR *directory = opendir("/proc/self/fd");
	check(!!directory, "/proc/self/fd");
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

static long resident_kilobytes(void)
{
	long total = 0, resident = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	check(file && fscanf(file, "%ld %ld", &total, &resident) == 2, "/proc/self/statm");
	fclose(file);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void connect_qp(struct ibv_qp *qp, const union ibv_gid *gid, struct end mine, struct end peer)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer.qpn,
		.rq_psn = peer.psn, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = *gid, .sgid_index = GID_INDEX, .hop_limit = 64 } },
	};
	struct ibv_qp_attr rts = {
		/* A peer among so many may be without a processor for seconds. */
		.qp_state = IBV_QPS_RTS, .timeout = 20, .retry_cnt = 7, .rnr_retry = 7,
		.sq_psn = mine.psn, .max_rd_atomic = 1,
	};
	verb(ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			   IBV_QP_ACCESS_FLAGS), "INIT");
	verb(ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	verb(ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

/* One life of everything: made, connected, used, destroyed. */
static long live(struct ibv_context *context, int peer, int qps, unsigned round)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	check(!!pd, "protection domain");
	unsigned char *memory = calloc(2 * qps, BYTES);
	check(!!memory, "memory");
	unsigned char *received = memory + (size_t)qps * BYTES;
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, 2ul * qps * BYTES, IBV_ACCESS_LOCAL_WRITE);
	check(!!mr, "memory region");
	struct ibv_cq *cq = ibv_create_cq(context, 2 * qps, NULL, NULL, 0);
	check(!!cq, "completion queue");
	union ibv_gid gid;
	check(!ibv_query_gid(context, 1, GID_INDEX, &gid), "GID");

	struct ibv_qp **qp = calloc(qps, sizeof *qp);
	struct end *mine = calloc(qps, sizeof *mine), *theirs = calloc(qps, sizeof *theirs);
	check(qp && mine && theirs, "memory");
	for (int i = 0; i < qps; i++) {
		struct ibv_qp_init_attr attr = {
			.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
			.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		};
		qp[i] = ibv_create_qp(pd, &attr);
		check(!!qp[i], "queue pair");
		mine[i] = (struct end){ qp[i]->qp_num, (round * 7919u + i) & 0xffffff };
		memset(memory + i * BYTES, (qp[i]->qp_num ^ round) & 0xff, BYTES);
	}
	exchange(peer, mine, theirs, qps * sizeof *mine);
	for (int i = 0; i < qps; i++) {
		connect_qp(qp[i], &gid, mine[i], theirs[i]);
		struct ibv_sge sge = { (uintptr_t)(received + i * BYTES), BYTES, mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;
		verb(ibv_post_recv(qp[i], &wr, &bad), "receive");
	}
	char ready = 0;
	exchange(peer, &ready, &ready, 1);
	for (int i = 0; i < qps; i++) {
		struct ibv_sge sge = { (uintptr_t)(memory + i * BYTES), BYTES, mr->lkey };
		struct ibv_send_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1,
					  .opcode = IBV_WR_SEND }, *bad;
		verb(ibv_post_send(qp[i], &wr, &bad), "send");
	}
	for (int left = 2 * qps; left;) {
		struct ibv_wc wc[16];
		int polled = ibv_poll_cq(cq, 16, wc);
		check(polled >= 0, "poll");
		if (!polled)
			sched_yield();
		for (int i = 0; i < polled; i++) {
			if (wc[i].status == IBV_WC_SUCCESS)
				continue;
			fprintf(stderr, "crowd %d: %s\n", getpid(), ibv_wc_status_str(wc[i].status));
			exit(1);
		}
		left -= polled;
	}
	for (int i = 0; i < qps; i++)
		for (int b = 0; b < BYTES; b++)
			if (received[i * BYTES + b] != ((theirs[i].qpn ^ round) & 0xff)) {
				fprintf(stderr, "crowd %d: queue pair %d byte %d is wrong\n", getpid(), i, b);
				exit(1);
			}
	/* The last acknowledgements are on their way before anything goes. */
	exchange(peer, &ready, &ready, 1);
	for (int i = 0; i < qps; i++)
		verb(ibv_destroy_qp(qp[i]), "destroy");
	verb(ibv_destroy_cq(cq), "destroy");
	verb(ibv_dereg_mr(mr), "deregister");
	verb(ibv_dealloc_pd(pd), "deallocate");
	free(memory);
	free(qp);
	free(mine);
	free(theirs);
	return 2 * qps;
}

static int member(int peer, int report, int qps, int seconds)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	check(devices && devices[0], "no device");
	struct ibv_context *context = ibv_open_device(devices[0]);
	check(!!context, "open");
	ibv_free_device_list(devices);
	struct totals totals = { 0 };
	long fds = 0, kilobytes = 0;
	time_t end = time(NULL) + seconds;
	char go_on = 1, both = 1;
	do {
		totals.messages += live(context, peer, qps, ++totals.rounds);
		if (totals.rounds == 2) {
			fds = count_fds();
			kilobytes = resident_kilobytes();
		}
		go_on = time(NULL) < end;
		exchange(peer, &go_on, &both, 1);
	} while (go_on && both);
	if (totals.rounds > 2) {
		totals.fds = count_fds() - fds;
		totals.kilobytes = resident_kilobytes() - kilobytes;
	}
	verb(ibv_close_device(context), "close");
	check(write(report, &totals, sizeof totals) == sizeof totals, "report");
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 6 && !strcmp(argv[1], "member"))
		return member(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]), atoi(argv[5]));
	if (argc != 4) {
		fprintf(stderr, "usage: crowd PAIRS QPS SECONDS\n");
		return 2;
	}
	int pairs = atoi(argv[1]), report[2], failed = 0;
	check(!pipe(report), "pipe");
	for (int i = 0; i < pairs; i++) {
		int ends[2];
		check(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
		for (int side = 0; side < 2; side++) {
			pid_t child = fork();
			check(child >= 0, "fork");
			if (child)
				continue;
			char peer[16], to[16];
			snprintf(peer, sizeof peer, "%d", ends[side]);
			snprintf(to, sizeof to, "%d", report[1]);
			close(ends[!side]);
			execl("/proc/self/exe", "crowd", "member", peer, to, argv[2], argv[3], NULL);
			_exit(127);
		}
		close(ends[0]);
		close(ends[1]);
	}
	close(report[1]);
	struct totals sum = { 0 }, one;
	while (read(report[0], &one, sizeof one) == sizeof one) {
		sum.rounds += one.rounds;
		sum.messages += one.messages;
		sum.fds = one.fds > sum.fds ? one.fds : sum.fds;
		sum.kilobytes = one.kilobytes > sum.kilobytes ? one.kilobytes : sum.kilobytes;
	}
	for (int i = 0, status; i < 2 * pairs; i++)
		failed |= wait(&status) < 0 || status;
	printf("%ld rounds %ld messages, at most %ld descriptors and %ld KiB gained\n", sum.rounds,
	       sum.messages, sum.fds, sum.kilobytes);
	return failed;
}
