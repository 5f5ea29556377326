// Capacities, lengths, flags and numbers that make no sense.
#include "bad.h"

static void queue_pairs(const struct objects *on, const struct ibv_device_attr *device)
{
	struct ibv_qp_init_attr init;
#define CAPACITY(field, value)                                                         \
	do {                                                                           \
		init = qp_init(on, IBV_QPT_RC);                                        \
		init.cap.field = value;                                                \
		POINTER("create_qp " #field " " #value, ibv_create_qp(on->pd, &init)); \
	} while (0)
	CAPACITY(max_send_wr, device->max_qp_wr + 1);
	CAPACITY(max_send_wr, UINT32_MAX);
	CAPACITY(max_recv_wr, device->max_qp_wr + 1);
	CAPACITY(max_send_sge, device->max_sge + 1);
	CAPACITY(max_recv_sge, device->max_sge + 1);
	CAPACITY(max_recv_sge, UINT32_MAX);
	CAPACITY(max_inline_data, 1025);
	CAPACITY(max_inline_data, UINT32_MAX);
	init = qp_init(on, IBV_QPT_RAW_PACKET);
	POINTER("create_qp of type RAW_PACKET", ibv_create_qp(on->pd, &init));
	init = qp_init(on, 99);
	POINTER("create_qp of type 99", ibv_create_qp(on->pd, &init));
	struct ibv_qp_init_attr_ex ex = { .comp_mask = IBV_QP_INIT_ATTR_PD | 1 << 30 };
	POINTER("create_qp_ex with an unknown attribute", ibv_create_qp_ex(on->context, &ex));
	ex = (struct ibv_qp_init_attr_ex){
		.send_cq = on->cq,
		.recv_cq = on->cq,
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = on->pd,
		.send_ops_flags = 1ull << 60,
	};
	POINTER("create_qp_ex with an unknown operation", ibv_create_qp_ex(on->context, &ex));
}

static void completion_queues(const struct objects *on, const struct ibv_device_attr *device)
{
	struct ibv_context *context = on->context;
	POINTER("create_cq cqe 0", ibv_create_cq(context, 0, NULL, NULL, 0));
	POINTER("create_cq cqe -1", ibv_create_cq(context, -1, NULL, NULL, 0));
	POINTER("create_cq cqe max_cqe + 1",
		ibv_create_cq(context, device->max_cqe + 1, NULL, NULL, 0));
	POINTER("create_cq comp_vector -1", ibv_create_cq(context, 4, NULL, NULL, -1));
	POINTER("create_cq comp_vector num_comp_vectors",
		ibv_create_cq(context, 4, NULL, NULL, context->num_comp_vectors));
	struct ibv_cq_init_attr_ex ex = { .cqe = 4, .wc_flags = 1ull << 40 };
	POINTER("create_cq_ex with an unknown field", ibv_create_cq_ex(context, &ex));
	STATUS("resize_cq to 0", ibv_resize_cq(on->cq, 0));
	STATUS("resize_cq to -1", ibv_resize_cq(on->cq, -1));
	STATUS("resize_cq to max_cqe + 1", ibv_resize_cq(on->cq, device->max_cqe + 1));
	ANSWER("cqe after that", on->cq->cqe == 4 * DEPTH ? "as before" : "changed");
}

static void shared_receive_queues(const struct objects *on, const struct ibv_device_attr *device)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = device->max_srq_wr + 1,
						    .max_sge = 1 } };
	POINTER("create_srq max_wr max_srq_wr + 1", ibv_create_srq(on->pd, &init));
	init.attr = (struct ibv_srq_attr){ .max_wr = 4, .max_sge = device->max_srq_sge + 1 };
	POINTER("create_srq max_sge max_srq_sge + 1", ibv_create_srq(on->pd, &init));
	init.attr = (struct ibv_srq_attr){ .max_wr = 4, .max_sge = 1 };
	struct ibv_srq *srq = ibv_create_srq(on->pd, &init);
	CHECK(srq);
	struct ibv_srq_attr attr = { .max_wr = UINT32_MAX, .srq_limit = 2 };
	STATUS("modify_srq max_wr UINT32_MAX",
	       ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT));
	attr = (struct ibv_srq_attr){ .srq_limit = 5 };
	STATUS("modify_srq limit max_wr + 1", ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	STATUS("modify_srq with an unknown attribute", ibv_modify_srq(srq, &attr, 1 << 5));
	CHECK(!ibv_query_srq(srq, &attr));
	ANSWER("SRQ after that", attr.max_wr == 4 && !attr.srq_limit ? "as before" : "changed");
	CHECK(!ibv_destroy_srq(srq));
}

// ibv_rereg_mr says who has refused: libibverbs by itself, or the kernel.
static void rereg(const char *name, struct ibv_mr *mr, int what, struct ibv_pd *pd, void *addr,
		  size_t length, int access)
{
	begin(name);
	errno = 0;
	int code = ibv_rereg_mr(mr, what, pd, addr, length, access);
	if (code)
		printf("%s ", code == IBV_REREG_MR_ERR_INPUT ? "ERR_INPUT" :
			      code == IBV_REREG_MR_ERR_CMD   ? "ERR_CMD" :
							       "?");
	end_number(code ? errno : 0);
}

// What is refused changes nothing.
static void reregister(const struct objects *on)
{
	struct ibv_mr *mr = ibv_reg_mr(on->pd, on->buffer, SIZE, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mr *null = ibv_alloc_null_mr(on->pd), before = *mr;
	struct ibv_alloc_dm_attr size = { .length = 4096 };
	struct ibv_dm *dm = ibv_alloc_dm(on->context, &size);
	struct ibv_mr *device = ibv_reg_dm_mr(on->pd, dm, 0, 4096, IBV_ACCESS_ZERO_BASED);
	CHECK(mr && null && dm && device);
	const int move = IBV_REREG_MR_CHANGE_TRANSLATION, access = IBV_REREG_MR_CHANGE_ACCESS;
	const int domain = IBV_REREG_MR_CHANGE_PD, local = IBV_ACCESS_LOCAL_WRITE;
	rereg("rereg_mr to no bytes", mr, move, NULL, on->buffer, 0, 0);
	rereg("rereg_mr to null", mr, move, NULL, NULL, SIZE, 0);
	rereg("rereg_mr to null with access", mr, move | access, NULL, NULL, SIZE, local);
	rereg("rereg_mr to another address with access nobody changes", mr, move, NULL,
	      on->buffer, SIZE / 2, local);
	rereg("rereg_mr into a PD with access nobody changes", mr, domain, on->pd, NULL, 0, local);
	struct ibv_pd *other = ibv_alloc_pd(on->context);
	CHECK(other);
	struct ibv_pd gone = *other;
	CHECK(!ibv_dealloc_pd(other));
	rereg("rereg_mr into a destroyed PD", mr, domain, &gone, NULL, 0, 0);
	rereg("rereg_mr to REMOTE_WRITE alone", mr, access, NULL, NULL, 0,
	      IBV_ACCESS_REMOTE_WRITE);
	rereg("rereg_mr to REMOTE_ATOMIC alone", mr, access, NULL, NULL, 0,
	      IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ);
	rereg("rereg_mr with an unknown flag", mr, access, NULL, NULL, 0, 1 << 12);
	rereg("rereg_mr to memory that is not there", mr, move, NULL, (void *)4096, SIZE, 0);
	rereg("rereg_mr to memory and access that is refused", mr, move | access, NULL, on->buffer,
	      SIZE / 2, IBV_ACCESS_REMOTE_WRITE);
	rereg("rereg_mr of a null MR", null, access, NULL, NULL, 0, local);
	rereg("rereg_mr of device memory", device, access, NULL, NULL, 0, local);
	ANSWER("rereg_mr after that", memcmp(mr, &before, sizeof before) ? "changed" : "as before");
	rereg("rereg_mr to other permissions", mr, access, NULL, NULL, 0, 0);
	rereg("rereg_mr to fewer bytes", mr, move, NULL, on->buffer, SIZE / 2, 0);
	ANSWER("rereg_mr after those", mr->length == SIZE / 2 ? "changed" : "as before");
	CHECK(!ibv_dereg_mr(mr) && !ibv_dereg_mr(null) && !ibv_dereg_mr(device) && !ibv_free_dm(dm));
}

static void memory(const struct objects *on)
{
	struct ibv_pd *pd = on->pd;
	char *end = (char *)on->buffer;
	size_t to_the_end = SIZE_MAX - (uintptr_t)on->buffer;
	POINTER("reg_mr SIZE_MAX bytes", ibv_reg_mr(pd, on->buffer, SIZE_MAX, 0));
	POINTER("reg_mr SIZE_MAX - 1 bytes", ibv_reg_mr(pd, on->buffer, SIZE_MAX - 1, 0));
	POINTER("reg_mr to the end of all addresses", ibv_reg_mr(pd, end, to_the_end, 0));
	POINTER("reg_mr a quarter of all addresses", ibv_reg_mr(pd, on->buffer, 1ul << 62, 0));
	POINTER("reg_mr of null", ibv_reg_mr(pd, NULL, 4096, 0));
	POINTER("reg_mr_iova to the end of all addresses",
		ibv_reg_mr_iova(pd, on->buffer, SIZE, UINT64_MAX - 100, 0));
	char *hole = mmap(NULL, 3 * SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(hole != MAP_FAILED && !munmap(hole + SIZE, SIZE));
	POINTER("reg_mr with a hole", ibv_reg_mr(pd, hole, 3 * SIZE, 0));
	POINTER("reg_mr to write what may be read",
		ibv_reg_mr(pd, hole, SIZE, IBV_ACCESS_LOCAL_WRITE));
	CHECK(!mprotect(hole, SIZE, PROT_NONE));
	POINTER("reg_mr of what may not be read", ibv_reg_mr(pd, hole, SIZE, 0));
	POINTER("reg_mr REMOTE_WRITE alone",
		ibv_reg_mr(pd, on->buffer, SIZE, IBV_ACCESS_REMOTE_WRITE));
	POINTER("reg_mr REMOTE_ATOMIC alone",
		ibv_reg_mr(pd, on->buffer, SIZE, IBV_ACCESS_REMOTE_ATOMIC));
	volatile int unknown = 1 << 12, negative = -1;
	POINTER("reg_mr with an unknown flag", ibv_reg_mr(pd, on->buffer, SIZE, unknown));
	POINTER("reg_mr with all flags", ibv_reg_mr(pd, on->buffer, SIZE, negative));
	rereg("rereg_mr of nothing", on->mr, 0, NULL, NULL, 0, 0);
	rereg("rereg_mr of what there is not", on->mr, 8, NULL, NULL, 0, 0);
	rereg("rereg_mr to the end of all addresses", on->mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
	      end, to_the_end, 0);
	reregister(on);
	POINTER("alloc_mw of type 0", ibv_alloc_mw(pd, 0));
	POINTER("alloc_mw of type 3", ibv_alloc_mw(pd, 3));
	struct ibv_alloc_dm_attr dm = { .length = 1ull << 40 };
	POINTER("alloc_dm of 2^40 bytes", ibv_alloc_dm(on->context, &dm));
	struct ibv_device_attr_ex device;
	CHECK(!ibv_query_device_ex(on->context, NULL, &device));
	dm.length = device.max_dm_size;
	struct ibv_dm *all = ibv_alloc_dm(on->context, &dm);
	CHECK(all);
	dm.length = 4;
	POINTER("alloc_dm beyond max_dm_size", ibv_alloc_dm(on->context, &dm));
	CHECK(!ibv_free_dm(all) && (all = ibv_alloc_dm(on->context, &dm)) && !ibv_free_dm(all));
}

static void address_handles(const struct objects *on, const struct ibv_device_attr *device)
{
	struct ibv_ah_attr attr = to_itself(on->context);
	struct ibv_ah **all = calloc(device->max_ah, sizeof *all);
	CHECK(all);
	for (int i = 0; i < device->max_ah; i++)
		CHECK(all[i] = ibv_create_ah(on->pd, &attr));
	POINTER("create_ah beyond max_ah", ibv_create_ah(on->pd, &attr));
	CHECK(!ibv_destroy_ah(all[0]) && (all[0] = ibv_create_ah(on->pd, &attr)));
	for (int i = 0; i < device->max_ah; i++)
		CHECK(!ibv_destroy_ah(all[i]));
	free(all);
}

static void addresses(const struct objects *on)
{
	struct ibv_ah_attr attr;
#define ADDRESS(field, value)                                                          \
	do {                                                                           \
		attr = to_itself(on->context);                                         \
		attr.field = value;                                                    \
		POINTER("create_ah " #field " " #value, ibv_create_ah(on->pd, &attr)); \
	} while (0)
	ADDRESS(port_num, 0);
	ADDRESS(port_num, 2);
	ADDRESS(is_global, 0);
	ADDRESS(grh.sgid_index, 2);
	struct ibv_port_attr port;
	union ibv_gid gid = { 0 };
	__be16 pkey;
	STATUS("query_port 0", ibv_query_port(on->context, 0, &port));
	STATUS("query_port 2", ibv_query_port(on->context, 2, &port));
	NUMBER("query_gid of port 2", ibv_query_gid(on->context, 2, 0, &gid));
	NUMBER("query_gid -1", ibv_query_gid(on->context, 1, -1, &gid));
	NUMBER("query_gid 256", ibv_query_gid(on->context, 1, 256, &gid));
	NUMBER("query_pkey 1", ibv_query_pkey(on->context, 1, 1, &pkey));
	NUMBER("get_pkey_index of an unknown key", ibv_get_pkey_index(on->context, 1, 0x3412));
	struct ibv_qp *ud = make_qp(on, IBV_QPT_UD), *rc = make_qp(on, IBV_QPT_RC);
	memset(&gid, 0, sizeof gid);
	STATUS("attach_mcast of no group", ibv_attach_mcast(ud, &gid, 0));
	STATUS("attach_mcast of null", ibv_attach_mcast(ud, NULL, 0));
	gid = (union ibv_gid){ .raw = { 0xff, 0x0e, [10] = 0xff, 0xff, 239, 61, 1, 2 } };
	STATUS("attach_mcast of RC", ibv_attach_mcast(rc, &gid, 0));
	STATUS("detach_mcast of one that is not in", ibv_detach_mcast(ud, &gid, 0));
	CHECK(!ibv_destroy_qp(ud) && !ibv_destroy_qp(rc));
	struct ibv_xrcd_init_attr xrcd = { .comp_mask = 3, .fd = 1000 };
	POINTER("open_xrcd by a closed descriptor", ibv_open_xrcd(on->context, &xrcd));
	xrcd.comp_mask = 4;
	POINTER("open_xrcd with an unknown attribute", ibv_open_xrcd(on->context, &xrcd));
}

int main(void)
{
	alarm(60);
	struct objects on = make_objects(open_device(0));
	struct ibv_device_attr device;
	CHECK(!ibv_query_device(on.context, &device));
	queue_pairs(&on, &device);
	completion_queues(&on, &device);
	shared_receive_queues(&on, &device);
	memory(&on);
	addresses(&on);
	address_handles(&on, &device);
	return 0;
}
