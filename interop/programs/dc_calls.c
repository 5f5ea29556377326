// The dynamically connected transport, as programs reach it on a card: by libmlx5.
//
//   dc_calls        what works and what is refused, on one device in one process
//   dc_calls COUNT  two processes; COUNT initiators in each do all operations on the one target of the
//                   other
#include "bad_work.h"

#include <infiniband/mlx5dv.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { KEY = 0x1234, RECEIVES = 4096 };
enum { OPERATIONS = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
		    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP };
enum {
	DCT_TO_INIT = TO_INIT | IBV_QP_ACCESS_FLAGS,
	DCT_TO_RTR = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER,
	DCI_TO_RTR = IBV_QP_STATE | IBV_QP_PATH_MTU,
};

static struct ibv_srq *make_srq(const struct objects *on, unsigned receives)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = receives, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(on->pd, &init);
	CHECK(srq);
	return srq;
}

static struct ibv_qp_init_attr_ex dc_init(const struct objects *on, struct ibv_srq *srq)
{
	return (struct ibv_qp_init_attr_ex){
		.send_cq = on->cq,
		.recv_cq = on->cq,
		.srq = srq,
		.cap = { DEPTH, 0, 1, 0, 0 },
		.qp_type = IBV_QPT_DRIVER,
		.sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = on->pd,
		.send_ops_flags = OPERATIONS,
	};
}

static struct mlx5dv_qp_init_attr end(enum mlx5dv_dc_type type)
{
	struct mlx5dv_qp_init_attr attr = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC };
	attr.dc_init_attr.dc_type = type;
	if (type == MLX5DV_DCTYPE_DCT)
		attr.dc_init_attr.dct_access_key = KEY;
	return attr;
}

static struct ibv_qp *make_end(const struct objects *on, struct ibv_srq *srq, enum mlx5dv_dc_type type)
{
	struct ibv_qp_init_attr_ex init = dc_init(on, srq);
	struct mlx5dv_qp_init_attr attr = end(type);
	return mlx5dv_create_qp(on->context, &init, &attr);
}

static void modify(struct ibv_qp *of, enum ibv_qp_state state, int mask, int rnr_retry)
{
	struct ibv_qp_attr attr = good(of, state, 0);
	attr.rnr_retry = rnr_retry;
	CHECK(!ibv_modify_qp(of, &attr, mask));
}

static struct ibv_qp *make_target(const struct objects *on, struct ibv_srq *srq)
{
	struct ibv_qp *dct = make_end(on, srq, MLX5DV_DCTYPE_DCT);
	CHECK(dct);
	modify(dct, IBV_QPS_INIT, DCT_TO_INIT, 7);
	modify(dct, IBV_QPS_RTR, DCT_TO_RTR, 7);
	return dct;
}

static void ready_to_send(struct ibv_qp *dci, int rnr_retry)
{
	modify(dci, IBV_QPS_RESET, IBV_QP_STATE, rnr_retry);
	modify(dci, IBV_QPS_INIT, TO_INIT, rnr_retry);
	modify(dci, IBV_QPS_RTR, DCI_TO_RTR, rnr_retry);
	modify(dci, IBV_QPS_RTS, RC_TO_RTS, rnr_retry);
}

static struct ibv_qp *make_initiator(const struct objects *on)
{
	struct ibv_qp *dci = make_end(on, NULL, MLX5DV_DCTYPE_DCI);
	CHECK(dci);
	ready_to_send(dci, 7);
	return dci;
}

// Where requests go, and the memory there.
struct target {
	struct ibv_ah *ah;
	uint32_t number, rkey;
	uint64_t key, address;
};

enum operation { SEND, WRITE, READ, ADD, SWAP };

// Posts one request; for atomics, `operand` is added, or replaces itself.
static int start(struct ibv_qp *dci, enum operation operation, const struct target *to, struct ibv_sge sge,
		 uint64_t operand)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(dci);
	struct mlx5dv_qp_ex *direct = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
	ibv_wr_start(ex);
	ex->wr_id = 1 + operation;
	ex->wr_flags = IBV_SEND_SIGNALED;
	switch (operation) {
	case SEND: ibv_wr_send(ex); break;
	case WRITE: ibv_wr_rdma_write(ex, to->rkey, to->address); break;
	case READ: ibv_wr_rdma_read(ex, to->rkey, to->address); break;
	case ADD: ibv_wr_atomic_fetch_add(ex, to->rkey, to->address, operand); break;
	case SWAP: ibv_wr_atomic_cmp_swp(ex, to->rkey, to->address, operand, operand); break;
	}
	if (to->number && operation == WRITE)
		// The number of a stream says nothing to a DCI without streams.
		mlx5dv_wr_set_dc_addr_stream(direct, to->ah, to->number, to->key, 3);
	else if (to->number)
		mlx5dv_wr_set_dc_addr(direct, to->ah, to->number, to->key);
	ibv_wr_set_sge(ex, sge.lkey, sge.addr, sge.length);
	return ibv_wr_complete(ex);
}

static int outcome(struct ibv_qp *dci, enum operation operation, const struct target *to)
{
	CHECK(!start(dci, operation, to, local(8), 5));
	struct ibv_wc wc = completion(here.cq);
	CHECK(wc.wr_id == 1 + operation && wc.qp_num == dci->qp_num);
	return wc.status;
}

static const char *became(int status)
{
	return status == IBV_WC_RETRY_EXC_ERR ? "RETRY_EXC_ERR" : name_of(status);
}

static const char *state_of(struct ibv_qp *of)
{
	static const char *const NAMES[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(!ibv_query_qp(of, &attr, IBV_QP_STATE, &init));
	CHECK(init.qp_type == IBV_QPT_DRIVER && of->qp_type == IBV_QPT_DRIVER);
	return NAMES[attr.qp_state];
}

static void creation(struct ibv_srq *srq)
{
	struct ibv_qp_init_attr_ex init = dc_init(&there, srq);
	struct mlx5dv_qp_init_attr attr = end(MLX5DV_DCTYPE_DCT);
	struct ibv_qp_init_attr plain = qp_init(&there, IBV_QPT_DRIVER);
	POINTER("ibv_create_qp of a driver's type", ibv_create_qp(there.pd, &plain));
	POINTER("a driver's type without DC", mlx5dv_create_qp(there.context, &init, NULL));
	attr.comp_mask = 0;
	POINTER("a driver's type without an end of DC", mlx5dv_create_qp(there.context, &init, &attr));
	attr = end(7);
	POINTER("an end of DC that does not exist", mlx5dv_create_qp(there.context, &init, &attr));
	attr = end(MLX5DV_DCTYPE_DCI);
	attr.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
	POINTER("DCI with streams", mlx5dv_create_qp(there.context, &init, &attr));
	attr = end(MLX5DV_DCTYPE_DCT);
	init.srq = NULL;
	POINTER("DCT without a shared receive queue", mlx5dv_create_qp(there.context, &init, &attr));
	init.qp_type = IBV_QPT_RC;
	POINTER("DCT that is RC", mlx5dv_create_qp(there.context, &init, &attr));
	attr.comp_mask = 0;
	struct ibv_qp *rc;
	POINTER("RC", rc = mlx5dv_create_qp(there.context, &init, &attr));
	CHECK(rc && !ibv_destroy_qp(rc));
	attr.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
	attr.send_ops_flags = MLX5DV_QP_EX_WITH_MEMCPY;
	POINTER("RC with copies of memory", mlx5dv_create_qp(there.context, &init, &attr));
}

static void devices(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	ANSWER("is_supported", mlx5dv_is_supported(list[0]) ? "yes" : "no");
	struct mlx5dv_context_attr attr = { .flags = MLX5DV_CONTEXT_FLAGS_DEVX };
	POINTER("open_device with DEVX", mlx5dv_open_device(list[0], &attr));
	attr.flags = 0;
	struct ibv_context *context;
	POINTER("open_device", context = mlx5dv_open_device(list[0], &attr));
	CHECK(context && !ibv_close_device(context));
	ibv_free_device_list(list);

	struct mlx5dv_context answer = {
		.comp_mask = MLX5DV_CONTEXT_MASK_DC_ODP_CAPS | MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS |
			     MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH | 1ull << 63,
		.max_wr_memcpy_length = 9,
	};
	STATUS("query_device", mlx5dv_query_device(here.context, &answer));
	CHECK(answer.comp_mask == (MLX5DV_CONTEXT_MASK_DC_ODP_CAPS | MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS));
	CHECK(answer.num_lag_ports == 1 && answer.dc_odp_caps && answer.max_wr_memcpy_length == 9);
	struct mlx5dv_port port = { 0 };
	STATUS("query_port", mlx5dv_query_port(here.context, 1, &port));
	STATUS("query_port of another port", mlx5dv_query_port(here.context, 2, &port));

	struct mlx5dv_obj object = { 0 };
	STATUS("init_obj", mlx5dv_init_obj(&object, MLX5DV_OBJ_QP));
	STATUS("devx_general_cmd", mlx5dv_devx_general_cmd(here.context, NULL, 0, NULL, 0));
	POINTER("create_event_channel", mlx5dv_devx_create_event_channel(here.context, 0));

	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 8 };
	struct mlx5dv_cq_init_attr cq_direct = { MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE, .cqe_size = 100 };
	struct ibv_cq_ex *cq;
	POINTER("entries of 100 bytes", mlx5dv_create_cq(here.context, &cq_attr, &cq_direct));
	cq_direct.cqe_size = 128;
	POINTER("entries of 128 bytes", cq = mlx5dv_create_cq(here.context, &cq_attr, &cq_direct));
	CHECK(cq && !ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	cq_direct.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE;
	POINTER("compressed entries", mlx5dv_create_cq(here.context, &cq_attr, &cq_direct));
}

static void receive_one(struct ibv_srq *srq, const struct objects *on, char *into)
{
	struct ibv_sge sge = { (uintptr_t)into, 8, on->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 77, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(!ibv_post_srq_recv(srq, &wr, &bad));
}

static void requests(struct ibv_srq *srq)
{
	struct ibv_qp *dct = make_target(&there, srq), *dci = make_initiator(&here);
	struct ibv_ah_attr path = to_itself(here.context);
	struct target to = { ibv_create_ah(here.pd, &path), dct->qp_num, there.mr->rkey, KEY,
			     (uintptr_t)there.buffer };
	struct ibv_ah *foreign = ibv_create_ah(there.pd, &path);
	CHECK(to.ah && foreign);
	uint64_t *mine = (uint64_t *)here.buffer, *theirs = (uint64_t *)there.buffer;
	ANSWER("DCT", state_of(dct));
	ANSWER("DCI", state_of(dci));

	*mine = 1;
	ANSWER("WRITE", became(outcome(dci, WRITE, &to)));
	CHECK(*theirs == 1);
	*theirs = 2;
	ANSWER("READ", became(outcome(dci, READ, &to)));
	CHECK(*mine == 2);
	ANSWER("FETCH_ADD", became(outcome(dci, ADD, &to)));
	CHECK(*mine == 2 && *theirs == 7);
	*theirs = 5;
	ANSWER("CMP_SWAP", became(outcome(dci, SWAP, &to)));
	CHECK(*mine == 5 && *theirs == 5);
	receive_one(srq, &there, there.buffer + 64);
	ANSWER("SEND", became(outcome(dci, SEND, &to)));
	struct ibv_wc wc = completion(there.cq);
	CHECK(wc.wr_id == 77 && wc.qp_num == dct->qp_num && wc.byte_len == 8 && theirs[8] == 5);

	struct target other = to;
	other.number = 0;
	STATUS("a request without a target", start(dci, WRITE, &other, local(8), 0));
	other = to;
	other.number = 1 << 24;
	STATUS("a number of 25 bits", start(dci, WRITE, &other, local(8), 0));
	other = to;
	other.ah = foreign;
	STATUS("an address handle of another domain", start(dci, WRITE, &other, local(8), 0));
	struct ibv_sge sge = local(8);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	STATUS("ibv_post_send to a DCI", post(dci, &wr));
	STATUS("ibv_post_recv to a DCT", receive(dct, 1, &sge));
	struct ibv_qp_attr attr = good(dct, IBV_QPS_RTS, 0);
	STATUS("DCT to RTS", ibv_modify_qp(dct, &attr, IBV_QP_STATE));

	other = to;
	other.key = KEY + 1;
	ANSWER("a wrong access key", became(outcome(dci, WRITE, &other)));
	ANSWER("DCI", state_of(dci));
	ready_to_send(dci, 7);
	other = to;
	other.rkey = here.mr->rkey;
	other.address = (uintptr_t)here.buffer;
	ANSWER("memory of another domain", became(outcome(dci, WRITE, &other)));
	ready_to_send(dci, 1);
	ANSWER("SEND without a receive", became(outcome(dci, SEND, &to)));
	ready_to_send(dci, 7);
	ANSWER("WRITE", became(outcome(dci, WRITE, &to)));
	STATUS("destroy the DCT", ibv_destroy_qp(dct));
	ANSWER("WRITE to a DCT that is gone", became(outcome(dci, WRITE, &to)));
	struct ibv_qp_ex *gone = ibv_qp_to_qp_ex(dci);
	struct mlx5dv_qp_ex *direct = mlx5dv_qp_ex_from_ibv_qp_ex(gone);
	STATUS("destroy the DCI", ibv_destroy_qp(dci));
	mlx5dv_wr_set_dc_addr(direct, to.ah, to.number, to.key);
	CHECK(!mlx5dv_qp_ex_from_ibv_qp_ex(gone));
	CHECK(!ibv_destroy_ah(to.ah) && !ibv_destroy_ah(foreign));
}

static void one_process(void)
{
	here = make_objects(open_device(0));
	there = make_objects(here.context);
	struct ibv_srq *srq = make_srq(&there, DEPTH);
	devices();
	creation(srq);
	requests(srq);
	CHECK(!ibv_destroy_srq(srq));
}

// What each initiator has of its own in the memory of both sides.
struct slot {
	uint64_t written, read, added, sent;
};

static void exchange(int peer, const void *mine, void *theirs, size_t length)
{
	CHECK(write(peer, mine, length) == (ssize_t)length);
	CHECK(read(peer, theirs, length) == (ssize_t)length);
}

static void await(struct ibv_cq *cq, int count)
{
	while (count--) {
		struct ibv_wc wc = completion(cq);
		CHECK(wc.wr_id && wc.status == IBV_WC_SUCCESS);
	}
}

// All initiators of a process, each with all operations, on the target of the other process.
static void side(int peer, int count)
{
	struct objects on = { .context = open_device(0) };
	CHECK(on.pd = ibv_alloc_pd(on.context));
	CHECK(on.cq = ibv_create_cq(on.context, 8 * count + RECEIVES, NULL, NULL, 0));
	struct ibv_cq *received = ibv_create_cq(on.context, count + 1, NULL, NULL, 0);
	size_t size = (2 * count + 1) * sizeof(struct slot);
	struct slot *exposed = calloc(1, size), *mine = exposed + count;
	uint64_t *counter = (uint64_t *)(exposed + 2 * count);
	CHECK(received && exposed);
	CHECK(on.mr = ibv_reg_mr(on.pd, exposed, size, EVERYTHING & ~IBV_ACCESS_MW_BIND));
	struct ibv_srq *srq = make_srq(&on, count);
	struct objects at_target = on;
	at_target.cq = received;
	struct ibv_qp *dct = make_target(&at_target, srq), **dci = calloc(count, sizeof *dci);
	for (int each = 0; each < count; each++) {
		exposed[each].read = ~each;
		receive_one(srq, &on, (char *)&exposed[each].sent);
		dci[each] = make_initiator(&on);
	}
	struct ibv_ah_attr path = to_itself(on.context);
	struct target offered = { NULL, dct->qp_num, on.mr->rkey, KEY, (uintptr_t)exposed }, to;
	exchange(peer, &offered, &to, sizeof to);
	CHECK(to.ah = ibv_create_ah(on.pd, &path));

	struct target base = to;
	for (int each = 0; each < count; each++) {
		mine[each].written = mine[each].sent = each;
		struct {
			enum operation operation;
			uint64_t *local, remote;
		} all[] = {
			{ WRITE, &mine[each].written, (uintptr_t)&((struct slot *)base.address)[each].written },
			{ READ, &mine[each].read, (uintptr_t)&((struct slot *)base.address)[each].read },
			{ ADD, &mine[each].added, base.address + ((char *)counter - (char *)exposed) },
			{ SEND, &mine[each].sent, 0 },
		};
		for (unsigned index = 0; index < sizeof all / sizeof *all; index++) {
			to.address = all[index].remote;
			struct ibv_sge sge = { (uintptr_t)all[index].local, 8, on.mr->lkey };
			CHECK(!start(dci[each], all[index].operation, &to, sge, 1));
		}
	}
	await(on.cq, 4 * count);
	await(received, count);
	char done = 0;
	exchange(peer, &done, &done, 1);
	uint64_t sent = 0, added = 0;
	for (int each = 0; each < count; each++) {
		CHECK(exposed[each].written == (uint64_t)each && mine[each].read == ~(uint64_t)each);
		sent += exposed[each].sent;
		added += mine[each].added;
	}
	// Every number from 0 on once.
	uint64_t sum = (uint64_t)count * (count - 1) / 2;
	CHECK(*counter == (uint64_t)count && sent == sum && added == sum);
	for (int each = 0; each < count; each++)
		CHECK(!ibv_destroy_qp(dci[each]));
	exchange(peer, &done, &done, 1);
	CHECK(!ibv_destroy_qp(dct) && !ibv_destroy_srq(srq) && !ibv_destroy_ah(to.ah));
	CHECK(!ibv_dereg_mr(on.mr) && !ibv_destroy_cq(on.cq) && !ibv_destroy_cq(received));
	CHECK(!ibv_dealloc_pd(on.pd) && !ibv_close_device(on.context));
}

int main(int argc, char **argv)
{
	if (argc == 1) {
		one_process();
		return 0;
	}
	int count = atoi(argv[1]), ends[2], status;
	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends));
	pid_t child = fork();
	CHECK(child >= 0);
	side(ends[!child], count);
	if (child) {
		CHECK(waitpid(child, &status, 0) == child && !status);
		printf("%d initiators each way: ok\n", count);
	}
	return 0;
}
