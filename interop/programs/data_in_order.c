// Whether messages land in order (ibv_query_qp_data_in_order(3)), and queue pairs whose packets may come in
// any order (mlx5dv_create_qp(3), MLX5DV_QP_CREATE_OOO_DP).
#include "bad.h"

#include <infiniband/mlx5dv.h>

// Of releases after 44.
enum {
	RETURN_CAPS = 1 << 0,
	DEVICE_ONLY = 1 << 1,
	OOO_DP = 1 << 7,
	MASK_MAX_DC_RD_ATOM = 1 << 14,
	MASK_OOO_RECV_WRS = 1 << 16,
};

struct context {
	struct mlx5dv_context before;
	uint64_t max_dc_rd_atom, max_dc_init_rd_atom;
	struct mlx5dv_reg reg_c0;
	struct {
		uint32_t max_rc, max_xrc, max_dct, max_ud, max_uc;
	} ooo_recv_wrs;
	uint32_t end;
};

static struct ibv_qp *make(const struct objects *on, enum ibv_qp_type type, uint32_t flags)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = on->cq,
		.recv_cq = on->cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = on->pd,
	};
	struct mlx5dv_qp_init_attr direct = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
		.create_flags = flags,
	};
	return mlx5dv_create_qp(on->context, &init, &direct);
}

static void show(const char *what, struct ibv_qp *qp)
{
	if (!qp) {
		printf("%s: %s\n", what, strerrorname_np(errno));
		return;
	}
	int before = ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0);
	step(qp, IBV_QPS_INIT, qp->qp_num);
	step(qp, IBV_QPS_RTR, qp->qp_num);
	step(qp, IBV_QPS_RTS, qp->qp_num);
	printf("%s: %d before it is connected, then %d, in bits %d, device only %d, unknown flag %d\n", what, before,
	       ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0),
	       ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, RETURN_CAPS),
	       ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, DEVICE_ONLY),
	       ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 1 << 2));
}

static void ask(const char *what, struct ibv_context *device, uint64_t comp_mask)
{
	struct context context = { .before.comp_mask = comp_mask, .end = 7 };
	CHECK(!mlx5dv_query_device(device, &context.before) && context.end == 7);
	printf("%s: %#llx, at most %u, DC reads %llu\n", what, (unsigned long long)context.before.comp_mask,
	       context.ooo_recv_wrs.max_rc, (unsigned long long)context.max_dc_rd_atom);
}

int main(void)
{
	struct objects on = make_objects(open_device(0));
	ask("asked", on.context, MASK_MAX_DC_RD_ATOM | MASK_OOO_RECV_WRS);
	ask("not asked", on.context, 0);
	ask("garbage", on.context, ~0ull << 10);
	show("plain", make(&on, IBV_QPT_RC, 0));
	show("any order", make(&on, IBV_QPT_RC, OOO_DP));
	show("datagrams", make(&on, IBV_QPT_UD, OOO_DP));
	show("a flag of raw packets", make(&on, IBV_QPT_RC, OOO_DP | MLX5DV_QP_CREATE_TUNNEL_OFFLOADS));
	return 0;
}
