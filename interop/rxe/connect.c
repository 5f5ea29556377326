/*
 * connect CASE ADDRESS PORT [client]: the connection manager, and what either end sees of the other.
 *
 *   data      connect, a message each way, and the client disconnects
 *   bye       connect, a message each way, and the server disconnects
 *   leave     connect, a message each way, and the server ends without a word
 *   reject    the server rejects
 *   nobody    nobody listens (the client alone)
 *   killed    connect, a message each way, and both wait until one is killed
 *   orphan    connect, a message each way, and both write until one is killed: what the other sees
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "die.h"

#define SIZE 3000
#define RESOLVE_MS 10000
#define WRITE_US 20000
/* Each a value of its own, so that two that are swapped show. */
#define CLIENT_RESOURCES 5
#define CLIENT_DEPTH 3
#define SERVER_RESOURCES 2
#define SERVER_DEPTH 4

static const char hello[] = "a client's greeting", welcome[] = "a server's answer",
	no[] = "a server's refusal";

static struct rdma_event_channel *channel;
static struct ibv_mr *mr;
static char *buffer;

/* The next event; the caller acknowledges it. */
static struct rdma_cm_event *event(enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event;

	check(rdma_get_cm_event(channel, &event) == 0);
	if (event->event != wanted)
		die("%s (status %d), not %s", rdma_event_str(event->event), event->status,
		    rdma_event_str(wanted));
	printf("%s %d\n", rdma_event_str(event->event), event->status);
	return event;
}

static void expect(enum rdma_cm_event_type wanted)
{
	rdma_ack_cm_event(event(wanted));
}

static void private_data(const struct rdma_cm_event *event, const char *wanted)
{
	const struct rdma_conn_param *conn = &event->param.conn;

	if (conn->private_data_len < strlen(wanted) + 1 ||
	    strcmp(conn->private_data, wanted))
		die("%u bytes of private data, not \"%s\"", conn->private_data_len, wanted);
}

static void resources(const struct rdma_cm_event *event, int responder, int initiator)
{
	const struct rdma_conn_param *conn = &event->param.conn;

	if (conn->responder_resources != responder || conn->initiator_depth != initiator)
		die("responder resources %u, initiator depth %u; not %d and %d",
		    conn->responder_resources, conn->initiator_depth, responder, initiator);
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = { 4, 4, 1, 1, 0 },
	};

	check(rdma_create_qp(id, NULL, &init) == 0);
	buffer = calloc(2, SIZE);
	mr = ibv_reg_mr(id->pd, buffer, 2 * SIZE, IBV_ACCESS_LOCAL_WRITE);
	check(buffer && mr);
	struct ibv_sge sge = { (uintptr_t)buffer, SIZE, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	check(ibv_post_recv(id->qp, &wr, &bad) == 0);
}

static void complete(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int polled;

	while ((polled = ibv_poll_cq(cq, 1, &wc)) == 0)
		usleep(1000);
	check(polled == 1);
	if (wc.status != IBV_WC_SUCCESS)
		die("%s", ibv_wc_status_str(wc.status));
}

/* A message each way; the first one is the client's. */
static void talk(struct rdma_cm_id *id, int is_client)
{
	struct ibv_sge sge = { (uintptr_t)buffer + SIZE, SIZE, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	memset(buffer + SIZE, is_client ? 'c' : 's', SIZE);
	if (!is_client)
		complete(id->recv_cq);
	check(ibv_post_send(id->qp, &wr, &bad) == 0);
	complete(id->send_cq);
	if (is_client)
		complete(id->recv_cq);
	for (int i = 0; i < SIZE; i++)
		check(buffer[i] == (is_client ? 's' : 'c'));
	printf("talked\n");
}

/* Writes nothing, again and again, until the peer is gone; nobody but the queue pair learns of that. */
static void write_until_alone(struct rdma_cm_id *id)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE }, *bad;
	struct rdma_cm_event *event;
	struct ibv_wc wc;

	do {
		usleep(WRITE_US);
		check(ibv_post_send(id->qp, &wr, &bad) == 0);
		while (ibv_poll_cq(id->send_cq, 1, &wc) == 0)
			usleep(1000);
	} while (wc.status == IBV_WC_SUCCESS);
	printf("status %d\n", wc.status);
	check(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	check(rdma_get_cm_event(channel, &event) == -1 && errno == EAGAIN);
	printf("no event\n");
}

static void server(const char *what, struct sockaddr_in *at)
{
	struct rdma_conn_param answer = {
		.private_data = welcome, .private_data_len = sizeof(welcome),
		.responder_resources = SERVER_RESOURCES, .initiator_depth = SERVER_DEPTH,
		.rnr_retry_count = 7,
	};
	struct rdma_cm_id *listener, *id;
	struct rdma_cm_event *request;

	check(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
	check(rdma_bind_addr(listener, (struct sockaddr *)at) == 0);
	check(rdma_listen(listener, 4) == 0);
	request = event(RDMA_CM_EVENT_CONNECT_REQUEST);
	id = request->id;
	private_data(request, hello);
	/* An event shows the other's values as this end would set them. */
	resources(request, CLIENT_DEPTH, CLIENT_RESOURCES);
	rdma_ack_cm_event(request);
	if (!strcmp(what, "reject")) {
		check(rdma_reject(id, no, sizeof(no)) == 0);
		return;
	}
	make_qp(id);
	check(rdma_accept(id, &answer) == 0);
	expect(RDMA_CM_EVENT_ESTABLISHED);
	talk(id, 0);
	if (!strcmp(what, "leave"))
		return;
	if (!strcmp(what, "orphan")) {
		write_until_alone(id);
		return;
	}
	if (!strcmp(what, "bye"))
		check(rdma_disconnect(id) == 0);
	expect(RDMA_CM_EVENT_DISCONNECTED);
	if (!strcmp(what, "data"))
		check(rdma_disconnect(id) == 0);
	rdma_destroy_qp(id);
	check(rdma_destroy_id(id) == 0);
}

static void client(const char *what, struct sockaddr_in *at)
{
	struct rdma_conn_param ask = {
		.private_data = hello, .private_data_len = sizeof(hello),
		.responder_resources = CLIENT_RESOURCES, .initiator_depth = CLIENT_DEPTH,
		.retry_count = !strcmp(what, "orphan") ? 1 : 7, .rnr_retry_count = 7,
	};
	struct rdma_cm_event *answer;
	struct rdma_cm_id *id;

	check(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	check(rdma_resolve_addr(id, NULL, (struct sockaddr *)at, RESOLVE_MS) == 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED);
	check(rdma_resolve_route(id, RESOLVE_MS) == 0);
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp(id);
	check(rdma_connect(id, &ask) == 0);
	if (!strcmp(what, "reject") || !strcmp(what, "nobody")) {
		answer = event(RDMA_CM_EVENT_REJECTED);
		/* Of the consumer, or of an unknown service (IBA 12.6.7.2). */
		check(answer->status == (!strcmp(what, "reject") ? 28 : 8));
		if (!strcmp(what, "reject"))
			private_data(answer, no);
		rdma_ack_cm_event(answer);
		return;
	}
	answer = event(RDMA_CM_EVENT_ESTABLISHED);
	private_data(answer, welcome);
	resources(answer, SERVER_DEPTH, SERVER_RESOURCES);
	rdma_ack_cm_event(answer);
	talk(id, 1);
	if (!strcmp(what, "orphan")) {
		write_until_alone(id);
		return;
	}
	if (!strcmp(what, "data"))
		check(rdma_disconnect(id) == 0);
	expect(RDMA_CM_EVENT_DISCONNECTED);
	if (!strcmp(what, "bye"))
		check(rdma_disconnect(id) == 0);
	rdma_destroy_qp(id);
	check(rdma_destroy_id(id) == 0);
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET };

	if (argc < 4)
		die("connect data|bye|leave|reject|nobody|killed|orphan ADDRESS PORT [client]");
	setlinebuf(stdout);
	check(inet_pton(AF_INET, argv[2], &at.sin_addr) == 1);
	at.sin_port = htons(atoi(argv[3]));
	channel = rdma_create_event_channel();
	check(channel);
	if (argc > 4)
		client(argv[1], &at);
	else
		server(argv[1], &at);
	return 0;
}
