// Makes each fault that a ConnectX was measured with between two devices, and prints a line for each:
// the case, what the card did, what this device did, and whether that agrees.
#include "bad.h"

#include <fcntl.h>
#include <stdarg.h>

enum { REQUESTS = 64, PACKET = 1024 };

// One end: a device, and a queue pair that is connected anew for each fault.
struct side {
	const char *device;
	struct objects on;
	struct ibv_qp *qp;
	struct ibv_qp_attr attr;
};

static struct side here, there;

static void row(const char *name, const char *card, const char *format, ...)
{
	char ours[128];
	va_list rest;
	va_start(rest, format);
	vsnprintf(ours, sizeof ours, format, rest);
	va_end(rest);
	printf("%s | %s | %s | %s\n", name, card, ours, strcmp(card, ours) ? "no" : "yes");
	fflush(stdout);
}

// Of a figure that differs from run to run; `slack` is what a busy machine may add.
static void between(const char *name, const char *unit, long low, long high, long slack, long ours)
{
	printf("%s | %ld to %ld%s | %ld%s | %s\n", name, low, high, unit, ours, unit,
	       low <= ours && ours <= high + slack ? "yes" : "no");
	fflush(stdout);
}

static struct side make_side(int index)
{
	struct side side = { .on = make_objects(open_device(index)) };
	struct ibv_qp_init_attr init = qp_init(&side.on, IBV_QPT_RC);
	CHECK(!ibv_resize_cq(side.on.cq, 4 * REQUESTS));
	init.cap.max_send_wr = init.cap.max_recv_wr = REQUESTS;
	init.sq_sig_all = 0;
	side.qp = ibv_create_qp(side.on.pd, &init);
	CHECK(side.qp);
	side.device = ibv_get_device_name(side.on.context->device);
	int flags = fcntl(side.on.context->async_fd, F_GETFL);
	CHECK(!fcntl(side.on.context->async_fd, F_SETFL, flags | O_NONBLOCK));
	return side;
}

// The attributes that the card was measured with.
static void usual(struct side *own, const struct side *peer)
{
	own->attr = good(own->qp, IBV_QPS_RESET, peer->qp->qp_num);
	own->attr.rnr_retry = 6;
	own->attr.min_rnr_timer = 12;
	CHECK(!ibv_query_gid(peer->on.context, 1, 1, &own->attr.ah_attr.grh.dgid));
}

static void move(struct side *side, enum ibv_qp_state state)
{
	static const int MASKS[] = {
		[IBV_QPS_RESET] = IBV_QP_STATE,	  [IBV_QPS_INIT] = RC_TO_INIT,
		[IBV_QPS_RTR] = RC_TO_RTR,	  [IBV_QPS_RTS] = RC_TO_RTS,
		[IBV_QPS_ERR] = IBV_QP_STATE,
	};
	side->attr.qp_state = state;
	CHECK(!ibv_modify_qp(side->qp, &side->attr, MASKS[state]));
}

static const char *events(struct side *side);

// Brings one end up, as far as that.
static void bring(struct side *side, enum ibv_qp_state to)
{
	static const enum ibv_qp_state STEPS[] = { IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS };
	move(side, IBV_QPS_RESET);
	for (int i = 0; i < 3 && STEPS[i] <= to; i++)
		move(side, STEPS[i]);
}

// Both ends anew, as they were measured, before a test changes something of it.
static void anew(void)
{
	struct ibv_wc wc;
	first_psn += 1 << 12;
	usual(&here, &there);
	usual(&there, &here);
	move(&here, IBV_QPS_RESET);
	move(&there, IBV_QPS_RESET);
	while (ibv_poll_cq(here.on.cq, 1, &wc) || ibv_poll_cq(there.on.cq, 1, &wc))
		;
	events(&here);
	events(&there);
}

static void both(void)
{
	bring(&there, IBV_QPS_RTS);
	bring(&here, IBV_QPS_RTS);
}

static struct ibv_sge local(uint32_t length)
{
	return (struct ibv_sge){ (uintptr_t)here.on.buffer, length, here.on.mr->lkey };
}

static struct ibv_send_wr request(enum ibv_wr_opcode opcode, struct ibv_sge *sge)
{
	return (struct ibv_send_wr){
		.wr_id = 1,
		.opcode = opcode,
		.sg_list = sge,
		.num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)there.on.buffer, there.on.mr->rkey },
	};
}

static void post(struct ibv_send_wr wr)
{
	struct ibv_send_wr *bad;
	CHECK(!ibv_post_send(here.qp, &wr, &bad));
}

static void receive(struct side *side, uint64_t wr_id, struct ibv_sge *sge)
{
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = sge, .num_sge = sge ? 1 : 0 }, *bad;
	CHECK(!ibv_post_recv(side->qp, &wr, &bad));
}

// So many WRITEs that nobody answers, unsignalled.
static void post_silent(int count)
{
	struct ibv_sge sge = local(64);
	for (int i = 0; i < count; i++) {
		struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
		wr.wr_id = i + 1;
		wr.send_flags = 0;
		post(wr);
	}
}

static void told(const char *name, const char *card, struct ibv_wc wc)
{
	row(name, card, "%d / %#x", wc.status, wc.vendor_err);
}

// The completions that are there or come within some milliseconds, in their order.
static const char *all_told(struct side *side)
{
	static char text[512];
	struct ibv_wc wc;
	int length = 0, got;
	text[0] = 0;
	for (int idle = 0; idle < 100;) {
		CHECK((got = ibv_poll_cq(side->on.cq, 1, &wc)) >= 0);
		if (!got) {
			idle++;
			usleep(1000);
		} else if (length < (int)sizeof text - 32) {
			length += sprintf(text + length, "%s%d: %d / %#x", length ? ", " : "",
					  (int)wc.wr_id, wc.status, wc.vendor_err);
		}
	}
	return length ? text : "nothing";
}

static long counter(const struct side *side, const char *name)
{
	char path[256], text[32] = "";
	snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/hw_counters/%s",
		 side->device, name);
	int fd = open(path, O_RDONLY);
	CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
	close(fd);
	return atol(text);
}

// What has happened on a device since the last look.
static const char *events(struct side *side)
{
	static char text[256];
	struct ibv_async_event event;
	int length = 0;
	text[0] = 0;
	for (int idle = 0; idle < 20;) {
		if (ibv_get_async_event(side->on.context, &event)) {
			idle++;
			usleep(1000);
			continue;
		}
		if (length < (int)sizeof text - 64)
			length += sprintf(text + length, "%s%s", length ? ", " : "",
					  ibv_event_type_str(event.event_type));
		ibv_ack_async_event(&event);
	}
	return length ? text : "nothing";
}

static struct ibv_qp_attr query(struct side *side)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(!ibv_query_qp(side->qp, &attr, IBV_QP_RQ_PSN | IBV_QP_SQ_PSN, &init));
	return attr;
}

static long now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

// A WRITE that succeeds.
static void write_well(uint64_t wr_id, uint32_t length)
{
	struct ibv_sge sge = local(length);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	wr.wr_id = wr_id;
	post(wr);
	struct ibv_wc wc = completion(here.on.cq);
	CHECK(wc.wr_id == wr_id && wc.status == IBV_WC_SUCCESS);
}

static struct ibv_send_wr refused(struct ibv_sge *sge)
{
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, sge);
	wr.wr.rdma.rkey ^= 0x100;
	return wr;
}

// Section 1: status and vendor_err by cause.
static void completions(void)
{
	struct ibv_sge sge = local(64);
	anew(), both();
	post(refused(&sge));
	told("remote: bad rkey", "10 / 0x88", completion(here.on.cq));

	anew(), both();
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.remote_addr += SIZE;
	post(wr);
	told("remote: bad bounds", "10 / 0x88", completion(here.on.cq));

	anew();
	there.attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE;
	both();
	post(request(IBV_WR_RDMA_WRITE, &sge));
	told("remote: invalid request", "9 / 0x8a", completion(here.on.cq));

	anew(), both();
	post(request(IBV_WR_SEND, &sge));
	told("RNR retries exceeded", "13 / 0x87", completion(here.on.cq));

	anew(), both();
	struct ibv_sge closed = { (uintptr_t)there.on.buffer, 64, there.on.mr->lkey ^ 0x100 };
	receive(&there, 2, &closed);
	post(request(IBV_WR_SEND, &sge));
	told("remote operational error", "11 / 0x89", completion(here.on.cq));
	told("receive-side protection", "4 / 0x32", completion(there.on.cq));

	anew(), both();
	struct ibv_sge long_one = local(SIZE + 1);
	post(request(IBV_WR_RDMA_WRITE, &long_one));
	told("local protection: length beyond the MR", "4 / 0x53", completion(here.on.cq));

	anew(), both();
	struct ibv_sge unknown = { (uintptr_t)here.on.buffer, 64, here.on.mr->lkey ^ 0x100 };
	post(request(IBV_WR_RDMA_WRITE, &unknown));
	told("local protection: unknown lkey", "4 / 0x52", completion(here.on.cq));

	anew(), both();
	struct ibv_mr *read_only = ibv_reg_mr(here.on.pd, here.on.buffer, SIZE, 0);
	CHECK(read_only);
	long before = counter(&there, "rx_read_requests");
	struct ibv_sge into = { (uintptr_t)here.on.buffer, 64, read_only->lkey };
	post(request(IBV_WR_RDMA_READ, &into));
	told("READ into an MR without LOCAL_WRITE", "4 / 0x33", completion(here.on.cq));
	usleep(300000);
	row("rx_read_requests of its peer", "+1", "%+ld",
	    counter(&there, "rx_read_requests") - before);
	CHECK(!ibv_dereg_mr(read_only));

	anew();
	here.attr.max_rd_atomic = 0;
	both();
	post(request(IBV_WR_RDMA_READ, &sge));
	told("local QP operation error", "2 / 0x61", completion(here.on.cq));

	anew();
	bring(&here, IBV_QPS_RTS);
	post_silent(3);
	move(&here, IBV_QPS_ERR);
	post_silent(1);
	row("QP moved to ERR, then another post",
	    "1: 5 / 0xf5, 2: 5 / 0xf9, 3: 5 / 0xf9, 1: 5 / 0xf9", "%s", all_told(&here));

	anew();
	bring(&here, IBV_QPS_RTS);
	post_silent(2);
	usleep(200000);
	move(&here, IBV_QPS_ERR);
	row("QP moved to ERR in the middle of retries", "1: 5 / 0xf5, 2: 5 / 0xf9", "%s",
	    all_told(&here));

	anew(), both();
	move(&here, IBV_QPS_ERR);
	row("QP moved to ERR with nothing outstanding", "nothing", "%s", all_told(&here));

	anew(), both();
	wr = refused(&sge);
	wr.send_flags = 0;
	post(wr);
	wr.wr_id = 2;
	post(wr);
	wr.wr_id = 3;
	post(wr);
	row("flush order, nothing signalled", "1: 10 / 0x88, 2: 5 / 0xf9, 3: 5 / 0xf9", "%s",
	    all_told(&here));
}

// Two counters of one side before something, and then how much they have risen.
struct pair {
	struct side *side;
	const char *first, *second;
	long values[2];
};

static struct pair look(struct side *side, const char *first, const char *second)
{
	return (struct pair){ side, first, second, { counter(side, first), counter(side, second) } };
}

// Files of counters follow within some milliseconds.
static void rose(const char *name, const char *card, struct pair before)
{
	usleep(300000);
	row(name, card, "%+ld / %+ld", counter(before.side, before.first) - before.values[0],
	    counter(before.side, before.second) - before.values[1]);
}

// Section 2: counters.
static void counters(void)
{
	struct ibv_sge sge = local(64);
	static const struct {
		int requests;
		const char *name, *card;
	} FLUSHED[] = {
		{ 32, "req_cqe_error, _flush_error: 32 WQEs to ERR", "+32 / +31" },
		{ 1, "req_cqe_error, _flush_error: one WQE to ERR", "+1 / +0" },
	};
	for (int i = 0; i < 2; i++) {
		anew();
		bring(&here, IBV_QPS_RTS);
		post_silent(FLUSHED[i].requests);
		struct pair before = look(&here, "req_cqe_error", "req_cqe_flush_error");
		move(&here, IBV_QPS_ERR);
		rose(FLUSHED[i].name, FLUSHED[i].card, before);
	}
	anew(), both();
	struct pair before = look(&here, "req_cqe_error", "req_cqe_flush_error");
	post(refused(&sge));
	post(request(IBV_WR_RDMA_WRITE, &sge));
	all_told(&here);
	rose("req_cqe_error, _flush_error: a NAK and a flush", "+2 / +1", before);

	anew(), both();
	before = look(&there, "resp_cqe_error", "resp_cqe_flush_error");
	for (int i = 0; i < 3; i++)
		receive(&there, i, NULL);
	move(&there, IBV_QPS_ERR);
	rose("resp_cqe_error, _flush_error: three receives", "+3 / +3", before);

	for (int rnr_retry = 6; rnr_retry >= 0; rnr_retry -= 6) {
		anew();
		here.attr.rnr_retry = rnr_retry;
		both();
		long naks = counter(&here, "rnr_nak_retry_err");
		long none = counter(&there, "out_of_buffer");
		post(request(IBV_WR_SEND, &sge));
		completion(here.on.cq);
		usleep(300000);
		row(rnr_retry ? "rnr_nak_retry_err, out_of_buffer at rnr_retry 6"
			      : "rnr_nak_retry_err, out_of_buffer at rnr_retry 0",
		    rnr_retry ? "+7 / +7" : "+1 / +1", "%+ld / %+ld",
		    counter(&here, "rnr_nak_retry_err") - naks,
		    counter(&there, "out_of_buffer") - none);
	}

	anew(), both();
	before = look(&there, "resp_remote_access_errors", "rx_write_requests");
	post(refused(&sge));
	completion(here.on.cq);
	rose("resp_remote_access_errors, rx_write_requests: bad rkey", "+0 / +1", before);

	anew(), both();
	before = look(&there, "resp_remote_access_errors", "rx_write_requests");
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.remote_addr += SIZE;
	post(wr);
	completion(here.on.cq);
	rose("resp_remote_access_errors, rx_write_requests: bad bounds", "+0 / +1", before);

	anew();
	there.attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE;
	both();
	before = look(&there, "resp_remote_access_errors", "rx_write_requests");
	post(request(IBV_WR_RDMA_WRITE, &sge));
	completion(here.on.cq);
	rose("resp_remote_access_errors, rx_write_requests: invalid request", "+0 / +0", before);
}

// A dead peer: its completion, its time, and counters.
static void dead_peer(void)
{
	struct ibv_sge sge = local(64);
	anew();
	bring(&here, IBV_QPS_RTS);
	struct pair timeouts = look(&here, "local_ack_timeout_err", "roce_adp_retrans");
	struct pair cnps = look(&here, "rp_cnp_handled", "roce_slow_restart_cnps");
	long started = now_us();
	post(request(IBV_WR_RDMA_WRITE, &sge));
	struct ibv_wc wc = completion(here.on.cq);
	long took_ms = (now_us() - started) / 1000;
	told("retry exceeded", "12 / 0x81", wc);
	usleep(300000);
	// The card's timer ends the shortest ladder after 3,490 ms and the longest after 3,764.
	between("time of that at T=14, R=7", " ms", 3490, 3764, 400, took_ms);
	long plain = counter(&here, "local_ack_timeout_err") - timeouts.values[0];
	long adaptive = counter(&here, "roce_adp_retrans") - timeouts.values[1];
	row("local_ack_timeout_err", "+6", "%+ld", plain);
	between("roce_adp_retrans", "", 4, 8, 0, adaptive);
	long handled = counter(&here, "rp_cnp_handled") - cnps.values[0];
	long restarts = counter(&here, "roce_slow_restart_cnps") - cnps.values[1];
	row("rp_cnp_handled, roce_slow_restart_cnps beside all of these", "-1 / -1", "%+ld / %+ld",
	    handled - plain - adaptive, restarts - plain - adaptive);
}

// Section 4: what verbs show.
static void verbs(void)
{
	struct ibv_sge sge = local(64);
	anew(), both();
	uint32_t first = first_psn;
	write_well(1, 4 * PACKET);
	row("rq_psn of the peer after four packets", "+4", "%+d", query(&there).rq_psn - first);
	row("sq_psn", "+4", "%+d", query(&here).sq_psn - first);
	move(&there, IBV_QPS_ERR);
	row("rq_psn in ERR", "+4", "%+d", query(&there).rq_psn - first);
	struct ibv_sge long_one = local(4 * PACKET);
	post(request(IBV_WR_RDMA_WRITE, &long_one));
	usleep(50000);
	move(&here, IBV_QPS_ERR);
	row("sq_psn after silent loss and a local ERR", "+8", "%+d", query(&here).sq_psn - first);

	anew(), both();
	first = first_psn;
	write_well(1, 4 * PACKET);
	post(refused(&long_one));
	completion(here.on.cq);
	row("sq_psn after a NAK", "+4", "%+d", query(&here).sq_psn - first);

	anew(), both();
	write_well(1, 4 * PACKET);
	struct ibv_qp_attr live = query(&there);
	move(&here, IBV_QPS_ERR);
	here.attr.rq_psn = live.sq_psn;
	here.attr.sq_psn = live.rq_psn;
	bring(&here, IBV_QPS_RTS);
	post(request(IBV_WR_RDMA_WRITE, &sge));
	told("a side re-armed with the queried PSNs", "0 / 0", completion(here.on.cq));

	anew(), both();
	memset(here.on.buffer, 0x5a, 4 * PACKET);
	memset(there.on.buffer, 0, SIZE);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &long_one);
	wr.wr.rdma.remote_addr += SIZE - 2 * PACKET - 512;
	post(wr);
	told("WRITE across the end of an MR", "10 / 0x88", completion(here.on.cq));
	int landed = 0;
	for (int i = 0; i < SIZE; i++)
		landed += there.on.buffer[i] == 0x5a;
	row("bytes of that which land, of 4096", "2048", "%d", landed);

	anew(), both();
	post(refused(&sge));
	completion(here.on.cq);
	row("event at the responder of 0x88", "local access violation work queue error", "%s",
	    events(&there));
	row("event at its requester", "nothing", "%s", events(&here));

	anew();
	there.attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE;
	both();
	post(request(IBV_WR_RDMA_WRITE, &sge));
	completion(here.on.cq);
	row("event at the responder of 0x8a", "invalid request local work queue error", "%s",
	    events(&there));

	anew();
	bring(&there, IBV_QPS_RTR);
	bring(&here, IBV_QPS_RTS);
	write_well(1, 64);
	row("event of traffic in RTR", "communication established", "%s", events(&there));
}

int main(void)
{
	here = make_side(0);
	there = make_side(1);
	completions();
	counters();
	dead_peer();
	verbs();
	return 0;
}
