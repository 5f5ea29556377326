// Handles that name nothing, or something else; objects that others need; descriptors that the
// program has closed.
#include "bad.h"

#include <fcntl.h>
#include <sys/resource.h>

static void destroyed_pd(const struct objects *on)
{
	struct ibv_pd *pd = ibv_alloc_pd(on->context);
	struct ibv_qp_init_attr init = qp_init(on, IBV_QPT_RC);
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_ah_attr ah = to_itself(on->context);
	CHECK(!ibv_dealloc_pd(pd));
	STATUS("dealloc_pd of a destroyed PD", ibv_dealloc_pd(pd));
	POINTER("reg_mr in a destroyed PD", ibv_reg_mr(pd, on->buffer, SIZE, 0));
	POINTER("create_qp in a destroyed PD", ibv_create_qp(pd, &init));
	POINTER("create_srq in a destroyed PD", ibv_create_srq(pd, &srq));
	POINTER("create_ah in a destroyed PD", ibv_create_ah(pd, &ah));
	POINTER("alloc_mw in a destroyed PD", ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	NUMBER("rereg_mr into a destroyed PD",
	       ibv_rereg_mr(on->mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0));
	STATUS("dealloc_pd of null", ibv_dealloc_pd(NULL));
}

static void destroyed_mr(const struct objects *on)
{
	struct ibv_mr *mr = ibv_reg_mr(on->pd, on->buffer, SIZE, EVERYTHING);
	CHECK(mr && !ibv_dereg_mr(mr));
	STATUS("dereg_mr of a destroyed MR", ibv_dereg_mr(mr));
	NUMBER("rereg_mr of a destroyed MR",
	       ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0));
	STATUS("dereg_mr of a PD", ibv_dereg_mr((struct ibv_mr *)on->pd));
}

static void destroyed_cq(const struct objects *on)
{
	struct ibv_cq *cq = ibv_create_cq(on->context, 4, NULL, NULL, 0);
	struct ibv_wc wc;
	CHECK(cq && !ibv_destroy_cq(cq));
	STATUS("destroy_cq of a destroyed CQ", ibv_destroy_cq(cq));
	NUMBER("poll_cq of a destroyed CQ", ibv_poll_cq(cq, 1, &wc));
	STATUS("req_notify_cq of a destroyed CQ", ibv_req_notify_cq(cq, 0));
	STATUS("resize_cq of a destroyed CQ", ibv_resize_cq(cq, 8));
	begin("ack_cq_events of a destroyed CQ");
	ibv_ack_cq_events(cq, 1);
	end_number(errno);
	struct ibv_qp_init_attr init = qp_init(on, IBV_QPT_RC);
	init.send_cq = cq;
	POINTER("create_qp with a destroyed send CQ", ibv_create_qp(on->pd, &init));
	init = qp_init(on, IBV_QPT_RC);
	init.recv_cq = cq;
	POINTER("create_qp with a destroyed receive CQ", ibv_create_qp(on->pd, &init));
	init.recv_cq = NULL;
	POINTER("create_qp without a receive CQ", ibv_create_qp(on->pd, &init));
}

static void destroyed_qp(const struct objects *on)
{
	struct ibv_qp *qp = make_qp(on, IBV_QPT_RC);
	struct ibv_qp_attr attr = good(qp, IBV_QPS_INIT, 1);
	struct ibv_qp_init_attr init;
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad_send = NULL;
	struct ibv_recv_wr recv = { 0 }, *bad_recv = NULL;
	union ibv_gid group = { .raw = { 0xff, 0x0e, [10] = 0xff, 0xff, 239, 1, 1, 1 } };
	CHECK(!ibv_destroy_qp(qp));
	STATUS("destroy_qp of a destroyed QP", ibv_destroy_qp(qp));
	STATUS("modify_qp of a destroyed QP", ibv_modify_qp(qp, &attr, RC_TO_INIT));
	STATUS("query_qp of a destroyed QP", ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	STATUS("post_send to a destroyed QP", ibv_post_send(qp, &send, &bad_send));
	ANSWER("post_send to a destroyed QP names the request", bad_send == &send ? "yes" : "no");
	STATUS("post_recv to a destroyed QP", ibv_post_recv(qp, &recv, &bad_recv));
	STATUS("attach_mcast of a destroyed QP", ibv_attach_mcast(qp, &group, 0));
	STATUS("detach_mcast of a destroyed QP", ibv_detach_mcast(qp, &group, 0));
	ANSWER("qp_to_qp_ex of a destroyed QP", ibv_qp_to_qp_ex(qp) ? "a pointer" : "null");
	STATUS("destroy_qp of a CQ", ibv_destroy_qp((struct ibv_qp *)on->cq));
}

static void destroyed_srq(const struct objects *on)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(on->pd, &init);
	struct ibv_srq_attr attr = { .max_wr = 4 };
	struct ibv_recv_wr recv = { 0 }, *bad;
	uint32_t number;
	CHECK(srq && !ibv_destroy_srq(srq));
	STATUS("destroy_srq of a destroyed SRQ", ibv_destroy_srq(srq));
	STATUS("modify_srq of a destroyed SRQ", ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR));
	STATUS("query_srq of a destroyed SRQ", ibv_query_srq(srq, &attr));
	STATUS("post_srq_recv to a destroyed SRQ", ibv_post_srq_recv(srq, &recv, &bad));
	STATUS("get_srq_num of a destroyed SRQ", ibv_get_srq_num(srq, &number));
	struct ibv_qp_init_attr qp = qp_init(on, IBV_QPT_RC);
	qp.srq = srq;
	POINTER("create_qp with a destroyed SRQ", ibv_create_qp(on->pd, &qp));
}

static void destroyed_others(const struct objects *on)
{
	struct ibv_qp *ud = make_qp(on, IBV_QPT_UD);
	step(ud, IBV_QPS_INIT, 0);
	step(ud, IBV_QPS_RTR, 0);
	step(ud, IBV_QPS_RTS, 0);
	struct ibv_ah_attr attr = to_itself(on->context);
	struct ibv_ah *ah = ibv_create_ah(on->pd, &attr);
	CHECK(ah && !ibv_destroy_ah(ah));
	struct ibv_send_wr send = {
		.opcode = IBV_WR_SEND,
		.wr.ud = { .ah = ah, .remote_qpn = ud->qp_num, .remote_qkey = 0x11111111 },
	}, *bad;
	STATUS("destroy_ah of a destroyed AH", ibv_destroy_ah(ah));
	STATUS("post_send by a destroyed AH", ibv_post_send(ud, &send, &bad));
	send.wr.ud.ah = NULL;
	STATUS("post_send of a datagram without an AH", ibv_post_send(ud, &send, &bad));
	CHECK(!ibv_destroy_qp(ud));

	struct ibv_mw *mw = ibv_alloc_mw(on->pd, IBV_MW_TYPE_1);
	CHECK(mw && !ibv_dealloc_mw(mw));
	struct ibv_qp *qp = make_qp(on, IBV_QPT_RC);
	connect_qp(qp, qp->qp_num);
	struct ibv_mw_bind bind = { .bind_info = { .mr = on->mr, .length = 8,
						   .addr = (uintptr_t)on->buffer } };
	STATUS("dealloc_mw of a destroyed MW", ibv_dealloc_mw(mw));
	STATUS("bind_mw of a destroyed MW", ibv_bind_mw(qp, mw, &bind));
	CHECK(!ibv_destroy_qp(qp));

	struct ibv_comp_channel *channel = ibv_create_comp_channel(on->context);
	struct ibv_cq *cq;
	void *user;
	CHECK(channel && !ibv_destroy_comp_channel(channel));
	STATUS("destroy_comp_channel of a destroyed one", ibv_destroy_comp_channel(channel));
	NUMBER("get_cq_event of a destroyed channel", ibv_get_cq_event(channel, &cq, &user));
	POINTER("create_cq with a destroyed channel",
		ibv_create_cq(on->context, 4, NULL, channel, 0));
}

static void closed_context(void)
{
	struct ibv_context *context = open_device(0);
	struct objects left = make_objects(context);
	struct ibv_qp *qp = make_qp(&left, IBV_QPT_RC);
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	union ibv_gid gid;
	struct ibv_async_event event;
	struct ibv_wc wc;
	CHECK(!ibv_close_device(context));
	STATUS("close_device of a closed context", ibv_close_device(context));
	POINTER("alloc_pd of a closed context", ibv_alloc_pd(context));
	POINTER("create_cq of a closed context", ibv_create_cq(context, 4, NULL, NULL, 0));
	POINTER("create_comp_channel of a closed context", ibv_create_comp_channel(context));
	STATUS("query_device of a closed context", ibv_query_device(context, &device));
	STATUS("query_port of a closed context", ibv_query_port(context, 1, &port));
	NUMBER("query_gid of a closed context", ibv_query_gid(context, 1, 0, &gid));
	NUMBER("get_async_event of a closed context", ibv_get_async_event(context, &event));
	NUMBER("poll_cq of a CQ whose context is closed", ibv_poll_cq(left.cq, 1, &wc));
	STATUS("destroy_qp of a QP whose context is closed", ibv_destroy_qp(qp));
	STATUS("dereg_mr of an MR whose context is closed", ibv_dereg_mr(left.mr));
	POINTER("open_device of what is no device",
		ibv_open_device((struct ibv_device *)left.buffer));
}

// Another context of the same device, or of another device: `whose` says which.
static void foreign(const struct objects *on, const struct objects *other, const char *whose)
{
	char name[80];
#define NAMED(what) (snprintf(name, sizeof name, what " of %s", whose), name)
	struct ibv_qp_init_attr init = qp_init(on, IBV_QPT_RC);
	init.send_cq = other->cq;
	POINTER(NAMED("create_qp with a send CQ"), ibv_create_qp(on->pd, &init));
	init = qp_init(on, IBV_QPT_RC);
	init.recv_cq = other->cq;
	POINTER(NAMED("create_qp with a receive CQ"), ibv_create_qp(on->pd, &init));

	struct ibv_srq_init_attr basic = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(other->pd, &basic);
	CHECK(srq);
	init = qp_init(on, IBV_QPT_RC);
	init.srq = srq;
	POINTER(NAMED("create_qp with an SRQ"), ibv_create_qp(on->pd, &init));
	CHECK(!ibv_destroy_srq(srq));

	struct ibv_comp_channel *channel = ibv_create_comp_channel(other->context);
	CHECK(channel);
	POINTER(NAMED("create_cq with a channel"),
		ibv_create_cq(on->context, 4, NULL, channel, 0));
	CHECK(!ibv_destroy_comp_channel(channel));
	NUMBER(NAMED("rereg_mr into a PD"),
	       ibv_rereg_mr(on->mr, IBV_REREG_MR_CHANGE_PD, other->pd, NULL, 0, 0));

	struct ibv_xrcd_init_attr own = { .comp_mask = 3, .fd = -1, .oflags = O_CREAT };
	struct ibv_xrcd *xrcd = ibv_open_xrcd(on->context, &own);
	struct ibv_xrcd *xrcd_of_other = ibv_open_xrcd(other->context, &own);
	CHECK(xrcd && xrcd_of_other);
	struct ibv_srq_init_attr_ex xrc = {
		.attr = { .max_wr = 4, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = on->pd,
		.xrcd = xrcd,
		.cq = other->cq,
	};
	POINTER(NAMED("create_srq_ex with a CQ"), ibv_create_srq_ex(on->context, &xrc));
	xrc.cq = on->cq;
	xrc.xrcd = xrcd_of_other;
	POINTER(NAMED("create_srq_ex with an XRC domain"), ibv_create_srq_ex(on->context, &xrc));
	struct ibv_qp_init_attr_ex target = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = xrcd_of_other,
	};
	POINTER(NAMED("create_qp_ex with an XRC domain"), ibv_create_qp_ex(on->context, &target));
	CHECK(!ibv_close_xrcd(xrcd) && !ibv_close_xrcd(xrcd_of_other));

	struct ibv_qp *qp = make_qp(on, IBV_QPT_RC);
	connect_qp(qp, qp->qp_num);
	struct ibv_mw *mw = ibv_alloc_mw(on->pd, IBV_MW_TYPE_1);
	struct ibv_mw *mw_of_other = ibv_alloc_mw(other->pd, IBV_MW_TYPE_1);
	CHECK(mw && mw_of_other);
	struct ibv_mw_bind bind = { .bind_info = { .mr = other->mr, .length = 8,
						   .addr = (uintptr_t)other->buffer } };
	STATUS(NAMED("bind_mw to an MR"), ibv_bind_mw(qp, mw, &bind));
	bind.bind_info = (struct ibv_mw_bind_info){ .mr = on->mr, .length = 8,
						    .addr = (uintptr_t)on->buffer };
	STATUS(NAMED("bind_mw of an MW"), ibv_bind_mw(qp, mw_of_other, &bind));
	CHECK(!ibv_dealloc_mw(mw) && !ibv_dealloc_mw(mw_of_other) && !ibv_destroy_qp(qp));

	struct ibv_qp *ud = make_qp(on, IBV_QPT_UD);
	connect_qp(ud, 0);
	struct ibv_ah_attr to = to_itself(other->context);
	struct ibv_ah *ah = ibv_create_ah(other->pd, &to);
	CHECK(ah);
	struct ibv_send_wr send = {
		.opcode = IBV_WR_SEND,
		.wr.ud = { .ah = ah, .remote_qpn = ud->qp_num, .remote_qkey = 0x11111111 },
	}, *bad;
	STATUS(NAMED("post_send by an AH"), ibv_post_send(ud, &send, &bad));
	CHECK(!ibv_destroy_ah(ah) && !ibv_destroy_qp(ud));
}

static void in_use(struct ibv_context *context)
{
	struct objects on = make_objects(context);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, channel, 0);
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(on.pd, &attr);
	struct ibv_qp_init_attr init = qp_init(&on, IBV_QPT_UD);
	union ibv_gid group = { .raw = { 0xff, 0x0e, [10] = 0xff, 0xff, 239, 61, 1, 1 } };
	init.recv_cq = cq;
	init.srq = srq;
	CHECK(channel && cq && srq);
	struct ibv_qp *qp = ibv_create_qp(on.pd, &init);
	CHECK(qp && !ibv_attach_mcast(qp, &group, 0));
	STATUS("destroy_qp in a group", ibv_destroy_qp(qp));
	STATUS("destroy_cq of a QP's receives", ibv_destroy_cq(cq));
	STATUS("destroy_cq of a QP's sends", ibv_destroy_cq(on.cq));
	STATUS("destroy_srq of a QP", ibv_destroy_srq(srq));
	STATUS("destroy_comp_channel of a CQ", ibv_destroy_comp_channel(channel));
	STATUS("dealloc_pd with QP, SRQ and MR", ibv_dealloc_pd(on.pd));
	CHECK(!ibv_detach_mcast(qp, &group, 0));
	STATUS("detach_mcast twice", ibv_detach_mcast(qp, &group, 0));
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_destroy_srq(srq));
	STATUS("destroy_comp_channel of no CQ", ibv_destroy_comp_channel(channel));

	STATUS("dealloc_pd with an MR", ibv_dealloc_pd(on.pd));
	qp = make_qp(&on, IBV_QPT_RC);
	connect_qp(qp, qp->qp_num);
	struct ibv_mw *mw = ibv_alloc_mw(on.pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = { .wr_id = 1,
				    .send_flags = IBV_SEND_SIGNALED,
				    .bind_info = { .mr = on.mr, .length = 8,
						   .addr = (uintptr_t)on.buffer,
						   .mw_access_flags = IBV_ACCESS_REMOTE_READ } };
	CHECK(mw && !ibv_bind_mw(qp, mw, &bind));
	CHECK(completion(on.cq).status == IBV_WC_SUCCESS);
	STATUS("dereg_mr with a bound MW", ibv_dereg_mr(on.mr));
	CHECK(!ibv_dealloc_mw(mw));
	STATUS("dereg_mr without", ibv_dereg_mr(on.mr));
	CHECK(!ibv_destroy_qp(qp));
	struct ibv_ah_attr to = to_itself(context);
	struct ibv_ah *ah = ibv_create_ah(on.pd, &to);
	STATUS("dealloc_pd with an AH", ibv_dealloc_pd(on.pd));
	CHECK(ah && !ibv_destroy_ah(ah));
	STATUS("dealloc_pd of an empty PD", ibv_dealloc_pd(on.pd));
	CHECK(!ibv_destroy_cq(on.cq));
}

static void closed_descriptors(void)
{
	struct ibv_context *context = open_device(0);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, channel, 0), *ready;
	struct ibv_async_event event;
	void *user;
	CHECK(cq && !fcntl(channel->fd, F_SETFL, O_NONBLOCK) &&
	      !fcntl(context->async_fd, F_SETFL, O_NONBLOCK));
	NUMBER("get_cq_event without an event", ibv_get_cq_event(channel, &ready, &user));
	NUMBER("get_async_event without an event", ibv_get_async_event(context, &event));
	begin("ack_cq_events of more than there were");
	errno = 0;
	ibv_ack_cq_events(cq, 1);
	end_number(errno);
	CHECK(!close(channel->fd) && !close(context->async_fd));
	NUMBER("get_cq_event after close(fd)", ibv_get_cq_event(channel, &ready, &user));
	NUMBER("get_async_event after close(async_fd)", ibv_get_async_event(context, &event));
	// The events that were acknowledged and never were do not keep it from ending.
	STATUS("destroy_cq after close(fd)", ibv_destroy_cq(cq));
	STATUS("destroy_comp_channel after close(fd)", ibv_destroy_comp_channel(channel));
	STATUS("close_device after close(async_fd)", ibv_close_device(context));
	POINTER("import_device of a closed descriptor", ibv_import_device(1000));
	POINTER("import_device of another file", ibv_import_device(STDIN_FILENO));
}

// The program may have no more descriptors than it has.
static void no_descriptors(const struct objects *on)
{
	struct rlimit all, none = { 0 };
	CHECK(!getrlimit(RLIMIT_NOFILE, &all));
	none.rlim_max = all.rlim_max;
	CHECK(!setrlimit(RLIMIT_NOFILE, &none));
	POINTER("create_comp_channel without descriptors", ibv_create_comp_channel(on->context));
	POINTER("open_device without descriptors", ibv_open_device(on->context->device));
	POINTER("get_device_list without descriptors", ibv_get_device_list(NULL));
	POINTER("reg_mr without descriptors", ibv_reg_mr(on->pd, on->buffer, SIZE, 0));
	CHECK(!setrlimit(RLIMIT_NOFILE, &all));
	struct ibv_context *again = ibv_open_device(on->context->device);
	CHECK(again);
	STATUS("close_device of one opened after that", ibv_close_device(again));
}

int main(void)
{
	alarm(60);
	struct objects on = make_objects(open_device(0));
	struct objects sibling = make_objects(open_device(0));
	struct objects stranger = make_objects(open_device(1));
	destroyed_pd(&on);
	destroyed_mr(&on);
	destroyed_cq(&on);
	destroyed_qp(&on);
	destroyed_srq(&on);
	destroyed_others(&on);
	closed_context();
	foreign(&on, &sibling, "another context");
	foreign(&on, &stranger, "another device");
	in_use(on.context);
	closed_descriptors();
	no_descriptors(&on);
	return 0;
}
