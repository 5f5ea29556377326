// What connections by rdma_cm make of options and parameters.
//
//   cm_options ADDRESS CASE...
//
// Connects to itself once for each case, a list of KEY=VALUE with commas:
//
//   ack, peer_ack    RDMA_OPTION_ID_ACK_TIMEOUT of the client and the server
//   late_ack         the same of the client, set after its route is resolved
//   tos              RDMA_OPTION_ID_TOS of the client
//   retry, rnr       retry_count and rnr_retry_count of rdma_connect
//   peer_retry, peer_rnr   the same of rdma_accept
//
// Without a count of a side its connection parameters are a null pointer. Prints a line for each
// case: timeout, retry_cnt, rnr_retry, min_rnr_timer and traffic class of the client's queue pair,
// and then of the server's.
#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                    \
	do {                                                                           \
		if (!(what)) {                                                         \
			fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, strerror(errno)); \
			exit(1);                                                       \
		}                                                                      \
	} while (0)

enum { UNSET = -1 };

struct settings {
	int ack, peer_ack, late_ack, tos, retry, rnr, peer_retry, peer_rnr;
};

static struct rdma_event_channel *channel;

static struct settings parse(const char *text)
{
	struct settings set = { UNSET, UNSET, UNSET, UNSET, UNSET, UNSET, UNSET, UNSET };
	const struct {
		const char *key;
		int *value;
	} known[] = {
		{ "ack", &set.ack },	     { "peer_ack", &set.peer_ack },
		{ "late_ack", &set.late_ack }, { "tos", &set.tos },
		{ "retry", &set.retry },     { "rnr", &set.rnr },
		{ "peer_retry", &set.peer_retry }, { "peer_rnr", &set.peer_rnr },
	};
	char *copy = strdup(text), *rest = copy, *part;
	while ((part = strsep(&rest, ",")) && *part) {
		char *value = strchr(part, '=');
		CHECK(value);
		*value++ = '\0';
		size_t i = 0;
		while (i < sizeof known / sizeof *known && strcmp(known[i].key, part))
			i++;
		CHECK(i < sizeof known / sizeof *known);
		*known[i].value = atoi(value);
	}
	free(copy);
	return set;
}

/* The next event, which is of this kind. */
static struct rdma_cm_event *next(enum rdma_cm_event_type kind)
{
	struct rdma_cm_event *event;
	CHECK(!rdma_get_cm_event(channel, &event));
	if (event->event != kind || event->status) {
		fprintf(stderr, "%s, status %d, instead of %s\n", rdma_event_str(event->event),
			event->status, rdma_event_str(kind));
		exit(1);
	}
	return event;
}

static void set(struct rdma_cm_id *id, int name, int value)
{
	uint8_t byte = value;
	if (value != UNSET)
		CHECK(!rdma_set_option(id, RDMA_OPTION_ID, name, &byte, sizeof byte));
}

static void create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	CHECK(!rdma_create_qp(id, NULL, &init));
}

/* The parameters of a side, if one of its counts is given; the other one is then 0. */
static struct rdma_conn_param *param(struct rdma_conn_param *room, int retry, int rnr)
{
	if (retry == UNSET && rnr == UNSET)
		return NULL;
	memset(room, 0, sizeof *room);
	room->retry_count = retry == UNSET ? 0 : retry;
	room->rnr_retry_count = rnr == UNSET ? 0 : rnr;
	return room;
}

static void show(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	int mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		   IBV_QP_MIN_RNR_TIMER | IBV_QP_AV;
	CHECK(!ibv_query_qp(id->qp, &attr, mask, &init));
	CHECK(attr.qp_state == IBV_QPS_RTS);
	printf(" %d %d %d %d %d", attr.timeout, attr.retry_cnt, attr.rnr_retry,
	       attr.min_rnr_timer, attr.ah_attr.grh.traffic_class);
}

static void end(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	CHECK(!rdma_destroy_id(id));
}

static void run(const char *text, struct sockaddr *to)
{
	struct settings with = parse(text);
	struct rdma_conn_param room;
	struct rdma_cm_id *client;

	CHECK(!rdma_create_id(channel, &client, NULL, RDMA_PS_TCP));
	set(client, RDMA_OPTION_ID_ACK_TIMEOUT, with.ack);
	set(client, RDMA_OPTION_ID_TOS, with.tos);
	CHECK(!rdma_resolve_addr(client, NULL, to, 2000));
	rdma_ack_cm_event(next(RDMA_CM_EVENT_ADDR_RESOLVED));
	CHECK(!rdma_resolve_route(client, 2000));
	rdma_ack_cm_event(next(RDMA_CM_EVENT_ROUTE_RESOLVED));
	set(client, RDMA_OPTION_ID_ACK_TIMEOUT, with.late_ack);
	create_qp(client);
	CHECK(!rdma_connect(client, param(&room, with.retry, with.rnr)));

	struct rdma_cm_event *request = next(RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *server = request->id;
	set(server, RDMA_OPTION_ID_ACK_TIMEOUT, with.peer_ack);
	create_qp(server);
	CHECK(!rdma_accept(server, param(&room, with.peer_retry, with.peer_rnr)));
	rdma_ack_cm_event(request);
	/* One for each side. */
	rdma_ack_cm_event(next(RDMA_CM_EVENT_ESTABLISHED));
	rdma_ack_cm_event(next(RDMA_CM_EVENT_ESTABLISHED));

	printf("%s:", text);
	show(client);
	printf(",");
	show(server);
	printf("\n");
	end(client);
	end(server);
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	struct rdma_cm_id *listener;

	CHECK(argc > 2 && inet_pton(AF_INET, argv[1], &to.sin_addr) == 1);
	CHECK((channel = rdma_create_event_channel()));
	CHECK(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&to));
	CHECK(!rdma_listen(listener, 0));
	to.sin_port = rdma_get_src_port(listener);
	for (int i = 2; i < argc; i++)
		run(argv[i], (struct sockaddr *)&to);
	CHECK(!rdma_destroy_id(listener));
	rdma_destroy_event_channel(channel);
	return 0;
}
