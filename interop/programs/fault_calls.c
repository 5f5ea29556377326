// Makes and uses objects round after round, survives each failure, and prints how many calls have failed
// with EPROTO, with which no call of the library fails by itself.
#include "bad.h"

enum { ROUNDS = 20, MESSAGES = 10 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static char buffer[SIZE];
static int post_send, post_recv, poll_cq, reg_mr, modify_qp, create_qp;

static void count(int *failures, int error)
{
	*failures += error == EPROTO;
}

static int poll_one(struct ibv_wc *wc)
{
	errno = 0;
	int got = ibv_poll_cq(cq, 1, wc);
	if (got < 0)
		count(&poll_cq, errno);
	return got;
}

// Polls until a number of completions have come, or none for a while.
static void await(int completions)
{
	struct ibv_wc wc;
	for (int idle = 0; completions > 0 && idle < 2000; idle++) {
		if (poll_one(&wc) > 0) {
			completions--;
			idle = 0;
		}
	}
}

static int to_rts(struct ibv_qp *qp, uint32_t peer)
{
	static const enum ibv_qp_state STATES[] = { IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS };
	static const int MASKS[] = { RC_TO_INIT, RC_TO_RTR, RC_TO_RTS };
	for (int i = 0; i < 3; i++) {
		struct ibv_qp_attr attr = good(qp, STATES[i], peer);
		int error = ibv_modify_qp(qp, &attr, MASKS[i]);
		count(&modify_qp, error);
		if (error)
			return error;
	}
	return 0;
}

static void exchange(struct ibv_qp *qp, struct ibv_qp *peer, struct ibv_mr *mr)
{
	struct ibv_sge sge = { (uintptr_t)buffer, 64, mr->lkey };
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1 }, *bad_send;
	struct ibv_recv_wr receive = { .sg_list = &sge, .num_sge = 1 }, *bad_receive;
	for (int i = 0; i < MESSAGES; i++) {
		int error = ibv_post_recv(peer, &receive, &bad_receive);
		count(&post_recv, error);
		if (error)
			continue;
		error = ibv_post_send(qp, &send, &bad_send);
		count(&post_send, error);
		await(error ? 0 : 2);
	}
}

static void play_round(void)
{
	struct ibv_qp_init_attr init = { .send_cq = cq,
					 .recv_cq = cq,
					 .cap = { MESSAGES, MESSAGES, 1, 1, 0 },
					 .qp_type = IBV_QPT_RC,
					 .sq_sig_all = 1 };
	struct ibv_qp *qps[2] = { NULL, NULL };
	errno = 0;
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, SIZE, EVERYTHING & ~IBV_ACCESS_MW_BIND);
	if (!mr)
		count(&reg_mr, errno);
	for (int i = 0; i < 2; i++) {
		errno = 0;
		qps[i] = ibv_create_qp(pd, &init);
		if (!qps[i])
			count(&create_qp, errno);
	}
	first_psn += 1 << 12;
	if (mr && qps[0] && qps[1] && !to_rts(qps[0], qps[1]->qp_num) &&
	    !to_rts(qps[1], qps[0]->qp_num))
		exchange(qps[0], qps[1], mr);
	for (int i = 0; i < 2; i++)
		if (qps[i])
			ibv_destroy_qp(qps[i]);
	if (mr)
		ibv_dereg_mr(mr);
	await(1);
}

int main(void)
{
	context = open_device(0);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	CHECK(pd && cq);
	for (int i = 0; i < ROUNDS; i++)
		play_round();
	printf("post_send %d\npost_recv %d\npoll_cq %d\nreg_mr %d\nmodify_qp %d\ncreate_qp %d\n",
	       post_send, post_recv, poll_cq, reg_mr, modify_qp, create_qp);
	ibv_destroy_cq(cq);
	ibv_dealloc_pd(pd);
	ibv_close_device(context);
	return 0;
}
