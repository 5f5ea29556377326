// Options of connections that rdma_cm carries (rdma_set_local_ece(3)).
//
//   cm_ece ADDRESS
//
// Connects to itself: with queue pairs of the identifiers, whose options the library sets, and with those of
// the program, which sets them itself. Prints what each side then has, and what is refused.
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

static struct rdma_event_channel *channel;

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

static void pass(enum rdma_cm_event_type kind)
{
	rdma_ack_cm_event(next(kind));
}

static struct rdma_cm_id *routed(struct sockaddr *to)
{
	struct rdma_cm_id *id;
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, to, 2000));
	pass(RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_resolve_route(id, 2000));
	pass(RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}

static void create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	CHECK(!rdma_create_qp(id, NULL, &init));
}

static void show(const char *what, struct ibv_ece ece)
{
	printf("%s: %#x of vendor %#x\n", what, ece.options, ece.vendor_id);
}

static void show_qp(const char *what, struct rdma_cm_id *id)
{
	struct ibv_ece ece;
	CHECK(!ibv_query_ece(id->qp, &ece));
	show(what, ece);
}

static void show_remote(const char *what, struct rdma_cm_id *id)
{
	struct ibv_ece ece = { .comp_mask = ~0 };
	CHECK(!rdma_get_remote_ece(id, &ece) && !ece.comp_mask);
	show(what, ece);
}

static void refused(const char *what, struct rdma_cm_id *id, struct ibv_ece *ece)
{
	errno = 0;
	CHECK(rdma_set_local_ece(id, ece) == -1 && errno == EINVAL);
	printf("%s: EINVAL\n", what);
}

static void of_identifiers(struct sockaddr *to)
{
	struct rdma_cm_id *client = routed(to);
	create_qp(client);
	show_qp("client offers", client);
	CHECK(!rdma_connect(client, NULL));
	struct rdma_cm_event *request = next(RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *server = request->id;
	show_remote("server sees", server);
	create_qp(server);
	CHECK(!rdma_accept(server, NULL));
	rdma_ack_cm_event(request);
	pass(RDMA_CM_EVENT_ESTABLISHED);
	pass(RDMA_CM_EVENT_ESTABLISHED);
	show_qp("client has", client);
	show_qp("server has", server);

	struct ibv_ece ece = { .vendor_id = 0x15b3 };
	refused("with a queue pair", client, &ece);
	errno = 0;
	CHECK(rdma_get_remote_ece(client, &ece) == -1 && errno == EINVAL);
	rdma_destroy_qp(client);
	rdma_destroy_qp(server);
	CHECK(!rdma_destroy_id(client) && !rdma_destroy_id(server));
}

static void of_the_program(struct sockaddr *to)
{
	struct rdma_cm_id *client = routed(to);
	struct rdma_conn_param param = { .qp_num = 77 };
	struct ibv_ece offered = { .vendor_id = 0x123456, .options = 0xfedcba98 };
	struct ibv_ece chosen = { .vendor_id = 0x654321, .options = 0x98 };
	refused("vendor 0", client, &(struct ibv_ece){ .options = 1 });
	refused("another field", client, &(struct ibv_ece){ 1, 1, 1 });
	show_remote("before", client);
	CHECK(!rdma_set_local_ece(client, &offered));
	CHECK(!rdma_connect(client, &param));
	struct rdma_cm_event *request = next(RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *server = request->id;
	show_remote("server sees", server);
	CHECK(!rdma_set_local_ece(server, &chosen));
	param.qp_num++;
	CHECK(!rdma_accept(server, &param));
	rdma_ack_cm_event(request);
	pass(RDMA_CM_EVENT_CONNECT_RESPONSE);
	// A reply names the vendor of its request.
	show_remote("client sees", client);
	CHECK(!rdma_establish(client));
	pass(RDMA_CM_EVENT_ESTABLISHED);
	CHECK(!rdma_destroy_id(client) && !rdma_destroy_id(server));
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	struct rdma_cm_id *listener;

	CHECK(argc == 2 && inet_pton(AF_INET, argv[1], &to.sin_addr) == 1);
	CHECK((channel = rdma_create_event_channel()));
	CHECK(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&to));
	CHECK(!rdma_listen(listener, 0));
	to.sin_port = rdma_get_src_port(listener);
	of_identifiers((struct sockaddr *)&to);
	of_the_program((struct sockaddr *)&to);
	CHECK(!rdma_destroy_id(listener));
	rdma_destroy_event_channel(channel);
	return 0;
}
