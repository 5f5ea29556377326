// ibv_modify_qp and its like with attributes that are missing, not allowed, or out of range: the
// answer is EINVAL, and ibv_query_qp shows that nothing has changed.
#include "bad.h"

#include <arpa/inet.h>

static const struct {
	int bit;
	const char *name;
} ATTRIBUTES[] = {
	{ IBV_QP_CUR_STATE, "CUR_STATE" },
	{ IBV_QP_EN_SQD_ASYNC_NOTIFY, "EN_SQD_ASYNC_NOTIFY" },
	{ IBV_QP_ACCESS_FLAGS, "ACCESS_FLAGS" },
	{ IBV_QP_PKEY_INDEX, "PKEY_INDEX" },
	{ IBV_QP_PORT, "PORT" },
	{ IBV_QP_QKEY, "QKEY" },
	{ IBV_QP_AV, "AV" },
	{ IBV_QP_PATH_MTU, "PATH_MTU" },
	{ IBV_QP_TIMEOUT, "TIMEOUT" },
	{ IBV_QP_RETRY_CNT, "RETRY_CNT" },
	{ IBV_QP_RNR_RETRY, "RNR_RETRY" },
	{ IBV_QP_RQ_PSN, "RQ_PSN" },
	{ IBV_QP_MAX_QP_RD_ATOMIC, "MAX_QP_RD_ATOMIC" },
	{ IBV_QP_ALT_PATH, "ALT_PATH" },
	{ IBV_QP_MIN_RNR_TIMER, "MIN_RNR_TIMER" },
	{ IBV_QP_SQ_PSN, "SQ_PSN" },
	{ IBV_QP_MAX_DEST_RD_ATOMIC, "MAX_DEST_RD_ATOMIC" },
	{ IBV_QP_PATH_MIG_STATE, "PATH_MIG_STATE" },
	{ IBV_QP_CAP, "CAP" },
	{ IBV_QP_DEST_QPN, "DEST_QPN" },
	{ IBV_QP_RATE_LIMIT, "RATE_LIMIT" },
};

static const char *const STATES[] = { "RESET", "INIT", "RTR", "RTS", "SQD" };

enum { TEXT = 256 };

// All that ibv_query_qp knows.
static void write_down(struct ibv_qp *qp, char *text)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	const struct ibv_ah_attr *ah = &attr.ah_attr;
	snprintf(text, TEXT, "%d %d %d %x %x %x %x %x %d %d %d %d %d %d %d %d %d %d %d %llx %d %d %d",
		 attr.qp_state, attr.path_mtu, attr.path_mig_state, attr.qkey, attr.rq_psn,
		 attr.sq_psn, attr.dest_qp_num, attr.qp_access_flags, attr.pkey_index,
		 attr.en_sqd_async_notify, attr.max_rd_atomic, attr.max_dest_rd_atomic,
		 attr.min_rnr_timer, attr.port_num, attr.timeout, attr.retry_cnt, attr.rnr_retry,
		 ah->port_num, ah->is_global,
		 (unsigned long long)ah->grh.dgid.global.interface_id, ah->grh.sgid_index,
		 ah->grh.hop_limit, ah->grh.traffic_class);
}

// The answer of ibv_modify_qp, and -1 if it refuses and changes something all the same.
static int try_modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	char before[TEXT], after[TEXT];
	write_down(qp, before);
	int answer = ibv_modify_qp(qp, attr, mask);
	write_down(qp, after);
	return answer && strcmp(before, after) ? -1 : answer;
}

static void end_modify(int answer)
{
	if (answer < 0)
		puts("refused and changed");
	else
		end_number(answer);
}

// Brings a queue pair into a state from wherever it is.
static void bring(struct ibv_qp *qp, enum ibv_qp_state state)
{
	for (enum ibv_qp_state next = IBV_QPS_RESET; next <= state; next++)
		step(qp, next, qp->qp_num);
}

// Which attributes a step needs, and which ones it takes beyond these: each is left out or added.
static void attributes_of(struct ibv_qp *qp, const char *type, enum ibv_qp_state from,
			  enum ibv_qp_state to, int needed)
{
	char name[64], answer[640] = "needs";
	int parts[] = { needed, ~needed };
	snprintf(name, sizeof name, "%s %s to %s", type, STATES[from], STATES[to]);
	begin(name);
	for (int part = 0; part < 2; part++) {
		if (part)
			strcat(answer, "; takes");
		for (size_t i = 0; i < sizeof ATTRIBUTES / sizeof *ATTRIBUTES; i++) {
			int bit = ATTRIBUTES[i].bit;
			if (!(parts[part] & bit))
				continue;
			bring(qp, from);
			struct ibv_qp_attr attr = good(qp, to, qp->qp_num);
			attr.cur_qp_state = from;
			int status = try_modify(qp, &attr, IBV_QP_STATE | (needed ^ bit));
			if (status != 0 && status != EINVAL)
				strcat(answer, " wrongly");
			if ((status != 0) == (part == 0))
				strcat(strcat(answer, " "), ATTRIBUTES[i].name);
		}
	}
	puts(answer);
}

static void steps(const struct objects *on, enum ibv_qp_type type, const char *name)
{
	struct ibv_qp *qp = make_qp(on, type);
	int is_ud = type == IBV_QPT_UD, is_uc = type == IBV_QPT_UC;
	int init = is_ud ? UD_TO_INIT : RC_TO_INIT;
	int rtr = is_ud ? IBV_QP_STATE : is_uc ? UC_TO_RTR : RC_TO_RTR;
	int rts = is_ud || is_uc ? UC_TO_RTS : RC_TO_RTS;
	attributes_of(qp, name, IBV_QPS_RESET, IBV_QPS_INIT, init & ~IBV_QP_STATE);
	attributes_of(qp, name, IBV_QPS_INIT, IBV_QPS_INIT, 0);
	attributes_of(qp, name, IBV_QPS_INIT, IBV_QPS_RTR, rtr & ~IBV_QP_STATE);
	attributes_of(qp, name, IBV_QPS_RTR, IBV_QPS_RTS, rts & ~IBV_QP_STATE);
	attributes_of(qp, name, IBV_QPS_RTS, IBV_QPS_RTS, 0);
	attributes_of(qp, name, IBV_QPS_RTS, IBV_QPS_SQD, 0);
	attributes_of(qp, name, IBV_QPS_SQD, IBV_QPS_SQD, 0);
	attributes_of(qp, name, IBV_QPS_SQD, IBV_QPS_RTS, 0);
	CHECK(!ibv_destroy_qp(qp));
}

// A step from `from` to `to` with one attribute, `field`, that has the value `value`.
#define VALUE(from, to, mask, field, value)                                            \
	do {                                                                           \
		bring(qp, from);                                                       \
		struct ibv_qp_attr attr = good(qp, to, qp->qp_num);                    \
		attr.field = value;                                                    \
		begin(#field " " #value);                                              \
		end_modify(try_modify(qp, &attr, mask));                               \
	} while (0)

// A connected queue pair's peer is one host.
static void peers(struct ibv_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	static const char *const ADDRESSES[] = {
		"::", "::ffff:0.0.0.0", "::ffff:255.255.255.255", "::ffff:239.1.2.3", "ff0e::1",
		"ff0e::ffff:239.1.2.3",
	};
	for (size_t i = 0; i < sizeof ADDRESSES / sizeof *ADDRESSES; i++) {
		char name[64];
		bring(qp, from);
		struct ibv_qp_attr attr = good(qp, to, qp->qp_num);
		CHECK(inet_pton(AF_INET6, ADDRESSES[i], attr.ah_attr.grh.dgid.raw) == 1);
		snprintf(name, sizeof name, "type %d to %s", qp->qp_type, ADDRESSES[i]);
		begin(name);
		end_modify(try_modify(qp, &attr, mask));
	}
}

static void values(const struct objects *on)
{
	struct ibv_qp *qp = make_qp(on, IBV_QPT_RC);
	VALUE(IBV_QPS_RESET, IBV_QPS_INIT, RC_TO_INIT, port_num, 0);
	VALUE(IBV_QPS_RESET, IBV_QPS_INIT, RC_TO_INIT, port_num, 2);
	VALUE(IBV_QPS_RESET, IBV_QPS_INIT, RC_TO_INIT, pkey_index, 1);
	VALUE(IBV_QPS_RESET, IBV_QPS_INIT, RC_TO_INIT, pkey_index, 65535);
	VALUE(IBV_QPS_RESET, IBV_QPS_INIT, RC_TO_INIT, qp_access_flags, 1 << 12);
	VALUE(IBV_QPS_RESET, IBV_QPS_INIT, RC_TO_INIT, qp_state, 8);
	VALUE(IBV_QPS_RESET, IBV_QPS_INIT, RC_TO_INIT, qp_state, -1);
	VALUE(IBV_QPS_INIT, IBV_QPS_RTR, RC_TO_RTR, path_mtu, 0);
	VALUE(IBV_QPS_INIT, IBV_QPS_RTR, RC_TO_RTR, path_mtu, 6);
	VALUE(IBV_QPS_INIT, IBV_QPS_RTR, RC_TO_RTR, dest_qp_num, 1 << 24);
	VALUE(IBV_QPS_INIT, IBV_QPS_RTR, RC_TO_RTR, max_dest_rd_atomic, 16);
	VALUE(IBV_QPS_INIT, IBV_QPS_RTR, RC_TO_RTR, max_dest_rd_atomic, 17);
	VALUE(IBV_QPS_INIT, IBV_QPS_RTR, RC_TO_RTR, min_rnr_timer, 31);
	VALUE(IBV_QPS_INIT, IBV_QPS_RTR, RC_TO_RTR, min_rnr_timer, 32);
	VALUE(IBV_QPS_INIT, IBV_QPS_RTR, RC_TO_RTR, ah_attr.port_num, 2);
	VALUE(IBV_QPS_INIT, IBV_QPS_RTR, RC_TO_RTR, ah_attr.is_global, 0);
	VALUE(IBV_QPS_INIT, IBV_QPS_RTR, RC_TO_RTR, ah_attr.grh.sgid_index, 2);
	VALUE(IBV_QPS_INIT, IBV_QPS_RTR, RC_TO_RTR, ah_attr.grh.sgid_index, 255);
	peers(qp, IBV_QPS_INIT, IBV_QPS_RTR, RC_TO_RTR);
	VALUE(IBV_QPS_RTR, IBV_QPS_RTS, RC_TO_RTS, timeout, 31);
	VALUE(IBV_QPS_RTR, IBV_QPS_RTS, RC_TO_RTS, timeout, 32);
	VALUE(IBV_QPS_RTR, IBV_QPS_RTS, RC_TO_RTS, retry_cnt, 8);
	VALUE(IBV_QPS_RTR, IBV_QPS_RTS, RC_TO_RTS, rnr_retry, 8);
	VALUE(IBV_QPS_RTR, IBV_QPS_RTS, RC_TO_RTS, max_rd_atomic, 16);
	VALUE(IBV_QPS_RTR, IBV_QPS_RTS, RC_TO_RTS, max_rd_atomic, 17);
	int with_current = RC_TO_RTS | IBV_QP_CUR_STATE;
	VALUE(IBV_QPS_RTR, IBV_QPS_RTS, with_current, cur_qp_state, IBV_QPS_RTS);
	VALUE(IBV_QPS_RTR, IBV_QPS_RTS, with_current, cur_qp_state, IBV_QPS_RTR);
	int with_migration = RC_TO_RTS | IBV_QP_PATH_MIG_STATE;
	VALUE(IBV_QPS_RTR, IBV_QPS_RTS, with_migration, path_mig_state, IBV_MIG_REARM);
	VALUE(IBV_QPS_RTR, IBV_QPS_RTS, RC_TO_RTS | 1 << 30, timeout, 14);
	VALUE(IBV_QPS_RTS, IBV_QPS_RTS, IBV_QP_MIN_RNR_TIMER, min_rnr_timer, 33);
	VALUE(IBV_QPS_SQD, IBV_QPS_SQD, IBV_QP_TIMEOUT, timeout, 33);
	CHECK(!ibv_destroy_qp(qp));
	qp = make_qp(on, IBV_QPT_UC);
	peers(qp, IBV_QPS_INIT, IBV_QPS_RTR, UC_TO_RTR);
	CHECK(!ibv_destroy_qp(qp));
}

static void transitions(const struct objects *on)
{
	static const enum ibv_qp_state WRONG[][2] = {
		{ IBV_QPS_RESET, IBV_QPS_RTR }, { IBV_QPS_RESET, IBV_QPS_RTS },
		{ IBV_QPS_RESET, IBV_QPS_SQD }, { IBV_QPS_RESET, IBV_QPS_ERR },
		{ IBV_QPS_INIT, IBV_QPS_RTS },  { IBV_QPS_INIT, IBV_QPS_SQD },
		{ IBV_QPS_RTR, IBV_QPS_INIT },  { IBV_QPS_RTR, IBV_QPS_RTR },
		{ IBV_QPS_RTR, IBV_QPS_SQD },   { IBV_QPS_RTS, IBV_QPS_INIT },
		{ IBV_QPS_RTS, IBV_QPS_RTR },   { IBV_QPS_SQD, IBV_QPS_RTR },
	};
	struct ibv_qp *qp = make_qp(on, IBV_QPT_RC);
	for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
		enum ibv_qp_state from = WRONG[i][0], to = WRONG[i][1];
		char name[64];
		snprintf(name, sizeof name, "RC from %s to %s", STATES[from],
			 to == IBV_QPS_ERR ? "ERR" : STATES[to]);
		bring(qp, from);
		struct ibv_qp_attr attr = good(qp, to, qp->qp_num);
		begin(name);
		end_modify(try_modify(qp, &attr, IBV_QP_STATE));
	}
	bring(qp, IBV_QPS_RTS);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	STATUS("RC from RTS to ERR", ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	begin("RC from ERR to RTS");
	end_modify(try_modify(qp, &attr, IBV_QP_STATE));
	CHECK(!ibv_destroy_qp(qp));
}

static void what_was_set(const struct objects *on)
{
	struct ibv_qp *qp = make_qp(on, IBV_QPT_RC);
	struct ibv_qp_attr set = good(qp, IBV_QPS_INIT, 0x123456), got;
	struct ibv_qp_init_attr init;
	set.path_mtu = IBV_MTU_2048;
	set.rq_psn = 0xabcdef;
	set.sq_psn = 0xfedcba;
	set.max_rd_atomic = 3;
	set.max_dest_rd_atomic = 5;
	set.min_rnr_timer = 17;
	set.timeout = 13;
	set.retry_cnt = 5;
	set.rnr_retry = 6;
	set.qp_access_flags = IBV_ACCESS_REMOTE_READ;
	set.ah_attr.grh.traffic_class = 0x68;
	set.ah_attr.grh.flow_label = 0x54321;
	set.ah_attr.grh.hop_limit = 9;
	set.ah_attr.sl = 3;
	CHECK(!ibv_modify_qp(qp, &set, RC_TO_INIT));
	set.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &set, RC_TO_RTR));
	set.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &set, RC_TO_RTS));
	CHECK(!ibv_query_qp(qp, &got, IBV_QP_STATE, &init));
#define SAME(field) ANSWER("query_qp " #field, got.field == set.field ? "as set" : "differs")
	SAME(qp_state);
	SAME(port_num);
	SAME(pkey_index);
	SAME(qp_access_flags);
	SAME(path_mtu);
	SAME(dest_qp_num);
	SAME(rq_psn);
	SAME(sq_psn);
	SAME(max_rd_atomic);
	SAME(max_dest_rd_atomic);
	SAME(min_rnr_timer);
	SAME(timeout);
	SAME(retry_cnt);
	SAME(rnr_retry);
	SAME(ah_attr.grh.traffic_class);
	SAME(ah_attr.grh.flow_label);
	SAME(ah_attr.grh.hop_limit);
	SAME(ah_attr.grh.sgid_index);
	SAME(ah_attr.sl);
	SAME(ah_attr.is_global);
	int same_gid = !memcmp(&got.ah_attr.grh.dgid, &set.ah_attr.grh.dgid, 16);
	ANSWER("query_qp ah_attr.grh.dgid", same_gid ? "as set" : "differs");
	int same_init = init.send_cq == on->cq && init.recv_cq == on->cq && !init.srq &&
			init.qp_type == IBV_QPT_RC && init.sq_sig_all == 1 &&
			init.cap.max_send_wr >= DEPTH && init.cap.max_recv_sge >= SGES;
	ANSWER("query_qp init_attr", same_init ? "as set" : "differs");
	CHECK(!ibv_destroy_qp(qp));
}

int main(void)
{
	alarm(60);
	struct objects on = make_objects(open_device(0));
	steps(&on, IBV_QPT_RC, "RC");
	steps(&on, IBV_QPT_UC, "UC");
	steps(&on, IBV_QPT_UD, "UD");
	values(&on);
	transitions(&on);
	what_was_set(&on);
	return 0;
}
