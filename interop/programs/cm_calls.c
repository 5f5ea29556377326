// What the calls of rdma_cm refuse, and with which error number.
//
//   cm_calls GROUP ADDRESS
//
// Each group of calls is a function below. The families group also wants a device at ::1.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                    \
	do {                                                                           \
		if (!(what)) {                                                         \
			fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, strerror(errno)); \
			exit(1);                                                       \
		}                                                                      \
	} while (0)

#define FAILS(call, error)                                                             \
	do {                                                                           \
		errno = 0;                                                             \
		int result = (call);                                                   \
		if (result != -1 || errno != (error)) {                                \
			fprintf(stderr, "line %d: %s: %d, %s instead of %s\n", __LINE__, #call, \
				result, strerrorname_np(errno), strerrorname_np(error)); \
			exit(1);                                                       \
		}                                                                      \
	} while (0)

enum { PORT = 7471 };

static const char *address;

/* The device's address; a program needs several in one expression. */
static struct sockaddr *at(uint16_t port)
{
	static struct sockaddr_in rooms[4];
	static unsigned used;
	struct sockaddr_in *room = &rooms[used++ % 4];
	*room = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port) };
	CHECK(inet_pton(AF_INET, address, &room->sin_addr) == 1);
	return (struct sockaddr *)room;
}

static struct rdma_event_channel *channel(void)
{
	struct rdma_event_channel *made = rdma_create_event_channel();
	CHECK(made);
	return made;
}

static struct rdma_cm_id *create(struct rdma_event_channel *on, enum rdma_port_space ps)
{
	struct rdma_cm_id *id;
	CHECK(!rdma_create_id(on, &id, NULL, ps));
	return id;
}

/* The next event, which is of this kind. */
static struct rdma_cm_event *next(struct rdma_event_channel *on, enum rdma_cm_event_type kind)
{
	struct rdma_cm_event *event;
	CHECK(!rdma_get_cm_event(on, &event));
	if (event->event != kind) {
		fprintf(stderr, "%s instead of %s\n", rdma_event_str(event->event),
			rdma_event_str(kind));
		exit(1);
	}
	return event;
}

static void pass(struct rdma_event_channel *on, enum rdma_cm_event_type kind)
{
	CHECK(!rdma_ack_cm_event(next(on, kind)));
}

static void nothing_on(struct rdma_event_channel *on)
{
	struct rdma_cm_event *event;
	CHECK(!fcntl(on->fd, F_SETFL, O_NONBLOCK));
	FAILS(rdma_get_cm_event(on, &event), EAGAIN);
	CHECK(!fcntl(on->fd, F_SETFL, 0));
}

static struct rdma_cm_id *listener(struct rdma_event_channel *on)
{
	struct rdma_cm_id *id = create(on, RDMA_PS_TCP);
	CHECK(!rdma_bind_addr(id, at(PORT)));
	CHECK(!rdma_listen(id, 0));
	return id;
}

static const struct ibv_qp_init_attr queues = {
	.qp_type = IBV_QPT_RC,
	.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
};

/* An id with a route to a port and a queue pair. */
static struct rdma_cm_id *routed(struct rdma_event_channel *on, uint16_t port)
{
	struct rdma_cm_id *id = create(on, RDMA_PS_TCP);
	struct ibv_qp_init_attr init = queues;
	CHECK(!rdma_resolve_addr(id, NULL, at(port), 2000));
	pass(on, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_resolve_route(id, 2000));
	pass(on, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(!rdma_create_qp(id, NULL, &init));
	return id;
}

static void end(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	CHECK(!rdma_destroy_id(id));
}

static void options(void)
{
	struct rdma_event_channel *on = channel();
	struct rdma_cm_id *id = create(on, RDMA_PS_TCP), *datagrams = create(on, RDMA_PS_UDP);
	const struct {
		int name;
		size_t length;
	} known[] = {
		{ RDMA_OPTION_ID_TOS, 1 },
		{ RDMA_OPTION_ID_REUSEADDR, sizeof(int) },
		{ RDMA_OPTION_ID_AFONLY, sizeof(int) },
		{ RDMA_OPTION_ID_ACK_TIMEOUT, 1 },
	};
	char value[8] = { 1 };
	int yes = 1, no = 0;
	uint8_t most = 31, more = 32;

	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		for (size_t length = 0; length <= sizeof value; length++) {
			if (length == known[i].length)
				CHECK(!rdma_set_option(id, RDMA_OPTION_ID, known[i].name, value, length));
			else
				FAILS(rdma_set_option(id, RDMA_OPTION_ID, known[i].name, value, length),
				      EINVAL);
		}
		FAILS(rdma_set_option(id, RDMA_OPTION_ID, known[i].name, NULL, known[i].length),
		      EFAULT);
	}
	FAILS(rdma_set_option(id, RDMA_OPTION_ID, 77, value, 1), ENOSYS);
	FAILS(rdma_set_option(id, RDMA_OPTION_IB, 77, value, 1), ENOSYS);
	FAILS(rdma_set_option(id, 7, RDMA_OPTION_ID_TOS, value, 1), ENOSYS);
	FAILS(rdma_set_option(id, -1, -1, value, 1), ENOSYS);
	FAILS(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, value, 1), EOPNOTSUPP);

	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &most, 1));
	FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &more, 1), EINVAL);
	FAILS(rdma_set_option(datagrams, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &most, 1),
	      EINVAL);

	/* A bound id may still begin to share its port; one that listens may not. */
	CHECK(!rdma_bind_addr(id, at(PORT)));
	FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &no, sizeof no), EINVAL);
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes));
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes, sizeof yes));
	CHECK(!rdma_listen(id, 0));
	FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes),
	      EINVAL);
	FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes, sizeof yes), EINVAL);
	end(id);
	end(datagrams);
	rdma_destroy_event_channel(on);
}

static void steps(void)
{
	struct rdma_event_channel *on = channel();
	struct rdma_cm_id *id = create(on, RDMA_PS_TCP), *other = create(on, RDMA_PS_TCP);
	struct sockaddr unknown = { .sa_family = AF_UNIX };
	struct sockaddr_in nobody = { .sin_family = AF_INET };
	struct rdma_conn_param param = { 0 };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	char data[57] = { 0 };

	/* Nothing but a beginning. */
	FAILS(rdma_resolve_route(id, 2000), EINVAL);
	FAILS(rdma_connect(id, &param), EINVAL);
	FAILS(rdma_accept(id, &param), EINVAL);
	FAILS(rdma_reject(id, NULL, 0), EINVAL);
	FAILS(rdma_disconnect(id), EINVAL);
	FAILS(rdma_notify(id, IBV_EVENT_COMM_EST), EINVAL);
	FAILS(rdma_establish(id), EINVAL);
	FAILS(rdma_create_qp(id, NULL, &init), EINVAL);
	FAILS(rdma_join_multicast(id, at(0), NULL), EINVAL);
	FAILS(rdma_bind_addr(id, NULL), EINVAL);
	FAILS(rdma_bind_addr(id, &unknown), EINVAL);
	CHECK(inet_pton(AF_INET, "192.0.2.77", &nobody.sin_addr) == 1);
	FAILS(rdma_bind_addr(id, (struct sockaddr *)&nobody), ENODEV);
	FAILS(rdma_resolve_addr(id, (struct sockaddr *)&nobody, at(PORT), 2000), ENODEV);
	FAILS(rdma_resolve_addr(id, NULL, NULL, 2000), EINVAL);
	FAILS(rdma_resolve_addr(id, NULL, &unknown, 2000), EINVAL);
	FAILS(rdma_resolve_addr(id, &unknown, at(PORT), 2000), EINVAL);

	/* Bound, once. */
	CHECK(!rdma_bind_addr(id, at(0)));
	FAILS(rdma_bind_addr(id, at(0)), EINVAL);
	FAILS(rdma_connect(id, &param), EINVAL);

	/* The address is known. */
	CHECK(!rdma_resolve_addr(id, NULL, at(PORT), 2000));
	pass(on, RDMA_CM_EVENT_ADDR_RESOLVED);
	FAILS(rdma_resolve_addr(id, NULL, at(PORT), 2000), EINVAL);
	FAILS(rdma_bind_addr(id, at(0)), EINVAL);
	FAILS(rdma_listen(id, 0), EINVAL);
	FAILS(rdma_connect(id, &param), EINVAL);
	FAILS(rdma_create_qp(id, NULL, NULL), EINVAL);

	/* The way is known, and what was refused has done no harm. */
	CHECK(!rdma_resolve_route(id, 2000));
	pass(on, RDMA_CM_EVENT_ROUTE_RESOLVED);
	FAILS(rdma_resolve_route(id, 2000), EINVAL);
	FAILS(rdma_connect(id, NULL), EINVAL);
	init.cap = (struct ibv_qp_cap){ 1, 1, 1, 1, 0 };
	CHECK(!rdma_create_qp(id, NULL, &init));
	FAILS(rdma_create_qp(id, NULL, &init), EINVAL);
	param = (struct rdma_conn_param){ .private_data = data, .private_data_len = 57 };
	FAILS(rdma_connect(id, &param), EINVAL);
	param = (struct rdma_conn_param){ .responder_resources = 254 };
	FAILS(rdma_connect(id, &param), EINVAL);
	param = (struct rdma_conn_param){ .initiator_depth = 254 };
	FAILS(rdma_connect(id, &param), EINVAL);
	CHECK(!rdma_bind_addr(other, at(PORT)));
	CHECK(!rdma_listen(other, 0));
	FAILS(rdma_listen(other, 0), EINVAL);
	FAILS(rdma_resolve_addr(other, NULL, at(PORT), 2000), EINVAL);
	param = (struct rdma_conn_param){ .private_data = data, .private_data_len = 56 };
	CHECK(!rdma_connect(id, &param));
	FAILS(rdma_connect(id, &param), EINVAL);
	FAILS(rdma_accept(id, &param), EINVAL);
	FAILS(rdma_establish(id), EINVAL);
	FAILS(rdma_notify(id, IBV_EVENT_SQ_DRAINED), EINVAL);

	/* A request that is refused is over. */
	struct rdma_cm_event *request = next(on, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *asked = request->id;
	FAILS(rdma_connect(asked, &param), EINVAL);
	FAILS(rdma_accept(other, &param), EINVAL);
	CHECK(!rdma_reject(asked, "no", 2));
	FAILS(rdma_accept(asked, &param), EINVAL);
	FAILS(rdma_reject(asked, NULL, 0), EINVAL);
	CHECK(!rdma_ack_cm_event(request));
	struct rdma_cm_event *refused = next(on, RDMA_CM_EVENT_REJECTED);
	CHECK(refused->status == 28 && !memcmp(refused->param.conn.private_data, "no", 2));
	CHECK(!rdma_ack_cm_event(refused));
	FAILS(rdma_connect(id, &param), EINVAL);
	end(asked);
	end(other);
	end(id);
	rdma_destroy_event_channel(on);
}

static void timeouts(void)
{
	const int all[] = { 0, 1, -1, INT_MIN, INT_MAX };
	struct rdma_event_channel *on = channel();

	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		struct rdma_cm_id *id = create(on, RDMA_PS_TCP);
		CHECK(!rdma_resolve_addr(id, NULL, at(PORT), all[i]));
		pass(on, RDMA_CM_EVENT_ADDR_RESOLVED);
		CHECK(!rdma_resolve_route(id, all[i]));
		pass(on, RDMA_CM_EVENT_ROUTE_RESOLVED);
		end(id);
	}
	rdma_destroy_event_channel(on);
}

static void pointers(void)
{
	struct rdma_event_channel *on = channel(), forged = { .fd = on->fd };
	struct rdma_cm_id *id, copy;
	struct rdma_cm_event *event;
	struct rdma_conn_param param = { 0 };
	struct rdma_addrinfo hints = { 0 }, *info;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int value = 0, mask;

	FAILS(rdma_create_id(on, NULL, NULL, RDMA_PS_TCP), EINVAL);
	FAILS(rdma_create_id(on, &id, NULL, 0x7777), EINVAL);
	FAILS(rdma_create_id(&forged, &id, NULL, RDMA_PS_TCP), EINVAL);
	FAILS(rdma_get_cm_event(NULL, &event), EINVAL);
	FAILS(rdma_get_cm_event(&forged, &event), EINVAL);
	FAILS(rdma_get_cm_event(on, NULL), EINVAL);
	FAILS(rdma_ack_cm_event(NULL), EINVAL);
	FAILS(rdma_create_ep(&id, NULL, NULL, NULL), EINVAL);
	FAILS(rdma_create_ep(NULL, &hints, NULL, NULL), EINVAL);
	FAILS(rdma_getaddrinfo(NULL, NULL, NULL, &info), EINVAL);
	FAILS(rdma_getaddrinfo("127.0.0.1", NULL, NULL, NULL), EINVAL);
	rdma_destroy_event_channel(NULL);
	rdma_destroy_event_channel(&forged);

	id = create(on, RDMA_PS_TCP);
	FAILS(rdma_get_request(id, &id), EINVAL);
	CHECK(!rdma_resolve_addr(id, NULL, at(PORT), 2000));
	event = next(on, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_ack_cm_event(event));
	FAILS(rdma_ack_cm_event(event), EINVAL);
	FAILS(rdma_init_qp_attr(id, NULL, &mask), EINVAL);
	FAILS(rdma_init_qp_attr(id, &attr, NULL), EINVAL);
	attr.qp_state = IBV_QPS_SQD;
	FAILS(rdma_init_qp_attr(id, &attr, &mask), EINVAL);
	copy = *id;
	end(id);

	/* An id that was destroyed, one that never was, and none. */
	struct rdma_cm_id *none[] = { id, &copy, NULL };
	for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
		FAILS(rdma_destroy_id(none[i]), EINVAL);
		FAILS(rdma_bind_addr(none[i], at(0)), EINVAL);
		FAILS(rdma_resolve_addr(none[i], NULL, at(PORT), 0), EINVAL);
		FAILS(rdma_resolve_route(none[i], 0), EINVAL);
		FAILS(rdma_listen(none[i], 0), EINVAL);
		FAILS(rdma_connect(none[i], &param), EINVAL);
		FAILS(rdma_accept(none[i], &param), EINVAL);
		FAILS(rdma_reject(none[i], NULL, 0), EINVAL);
		FAILS(rdma_establish(none[i]), EINVAL);
		FAILS(rdma_notify(none[i], IBV_EVENT_COMM_EST), EINVAL);
		FAILS(rdma_disconnect(none[i]), EINVAL);
		FAILS(rdma_migrate_id(none[i], on), EINVAL);
		FAILS(rdma_get_request(none[i], &id), EINVAL);
		FAILS(rdma_join_multicast(none[i], at(0), NULL), EINVAL);
		FAILS(rdma_leave_multicast(none[i], at(0)), EINVAL);
		FAILS(rdma_set_option(none[i], RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &value,
				      sizeof value),
		      EINVAL);
		rdma_destroy_qp(none[i]);
		rdma_destroy_ep(none[i]);
	}
	nothing_on(on);
	rdma_destroy_event_channel(on);
	FAILS(rdma_create_id(on, &id, NULL, RDMA_PS_TCP), EINVAL);
	FAILS(rdma_get_cm_event(on, &event), EINVAL);
}

static atomic_bool destroyed;

static void *destroy(void *id)
{
	CHECK(!rdma_destroy_id(id));
	destroyed = true;
	return NULL;
}

static void events(void)
{
	struct rdma_event_channel *on = channel(), *other = channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	pthread_t thread;

	/* An id is destroyed when its last event is acknowledged. */
	id = create(on, RDMA_PS_TCP);
	CHECK(!rdma_resolve_addr(id, NULL, at(PORT), 2000));
	event = next(on, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!pthread_create(&thread, NULL, destroy, id));
	usleep(100000);
	CHECK(!destroyed && event->id == id);
	CHECK(!rdma_ack_cm_event(event));
	CHECK(!pthread_join(thread, NULL) && destroyed);

	/* Those that nobody has taken go with it. */
	id = create(on, RDMA_PS_TCP);
	CHECK(!rdma_resolve_addr(id, NULL, at(PORT), 2000));
	end(id);
	nothing_on(on);

	/* They move with it. */
	id = create(on, RDMA_PS_TCP);
	CHECK(!rdma_resolve_addr(id, NULL, at(PORT), 2000));
	CHECK(!rdma_migrate_id(id, other));
	nothing_on(on);
	pass(other, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(id->channel == other);

	/* Without a channel each call waits for its event and leaves it in the id. */
	CHECK(!rdma_migrate_id(id, NULL));
	CHECK(!rdma_resolve_route(id, 2000));
	CHECK(id->event && id->event->event == RDMA_CM_EVENT_ROUTE_RESOLVED);
	end(id);
	nothing_on(other);

	/* A channel whose descriptor is closed has nothing to wait for. */
	id = create(other, RDMA_PS_TCP);
	CHECK(!rdma_resolve_addr(id, NULL, at(PORT), 2000));
	CHECK(!close(other->fd));
	FAILS(rdma_get_cm_event(other, &event), EBADF);
	end(id);
	rdma_destroy_event_channel(other);

	/* One that goes first takes the events along, and no id with it. */
	other = channel();
	id = create(other, RDMA_PS_TCP);
	CHECK(!rdma_resolve_addr(id, NULL, at(PORT), 2000));
	rdma_destroy_event_channel(other);
	CHECK(!rdma_resolve_route(id, 2000));
	end(id);
	rdma_destroy_event_channel(on);
}

/* Waits until there is an event, and leaves it there. */
static void wait_on(struct rdma_event_channel *on)
{
	struct pollfd ready = { .fd = on->fd, .events = POLLIN };
	CHECK(poll(&ready, 1, 20000) == 1);
}

/* A connection to a port where nobody listens. What was sent before has arrived after it. */
static void refused_by_nobody(struct rdma_event_channel *on)
{
	struct rdma_cm_id *id = routed(on, PORT + 1);
	CHECK(!rdma_connect(id, NULL));
	struct rdma_cm_event *event = next(on, RDMA_CM_EVENT_REJECTED);
	CHECK(event->status == 8);
	CHECK(!rdma_ack_cm_event(event));
	FAILS(rdma_disconnect(id), EINVAL);
	end(id);
}

static void ends(void)
{
	struct rdma_event_channel *on = channel(), *of_server = channel();
	struct rdma_conn_param param = { 0 };
	struct rdma_cm_event *event;
	struct rdma_cm_id *client, *server, *asked;

	/* Whoever listens no more refuses those who wait. */
	server = listener(of_server);
	client = routed(on, PORT);
	CHECK(!rdma_connect(client, NULL));
	wait_on(of_server);
	end(server);
	event = next(on, RDMA_CM_EVENT_REJECTED);
	CHECK(event->status == 28);
	CHECK(!rdma_ack_cm_event(event));
	end(client);
	nothing_on(of_server);

	/* A client that gives up before it is accepted: only the answer fails. */
	server = listener(of_server);
	client = routed(on, PORT);
	CHECK(!rdma_connect(client, NULL));
	event = next(of_server, RDMA_CM_EVENT_CONNECT_REQUEST);
	asked = event->id;
	end(client);
	refused_by_nobody(on);
	nothing_on(of_server);
	FAILS(rdma_accept(asked, &param), EINVAL);
	CHECK(!rdma_ack_cm_event(event));
	end(asked);
	end(server);

	/* Nobody listens, without a channel. */
	client = routed(on, PORT);
	CHECK(!rdma_migrate_id(client, NULL));
	FAILS(rdma_connect(client, NULL), ECONNREFUSED);
	CHECK(client->event && client->event->event == RDMA_CM_EVENT_REJECTED);
	end(client);
	rdma_destroy_event_channel(on);
	rdma_destroy_event_channel(of_server);
}

static enum ibv_qp_state state_of(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(!ibv_query_qp(id->qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

/* What was never connected cannot end, and keeps its queue pair: it can still be connected. */
static void disconnects(void)
{
	struct rdma_event_channel *on = channel(), *of_server = channel();
	struct ibv_qp_init_attr init = queues;
	struct rdma_cm_id *server = listener(of_server), *client = routed(on, PORT), *asked;
	struct rdma_cm_id *datagrams = create(on, RDMA_PS_UDP);
	struct rdma_cm_event *event;

	FAILS(rdma_disconnect(server), EINVAL);
	FAILS(rdma_disconnect(client), EINVAL);
	CHECK(!rdma_bind_addr(datagrams, at(0)));
	FAILS(rdma_disconnect(datagrams), EINVAL);
	end(datagrams);
	CHECK(!rdma_connect(client, NULL));
	event = next(of_server, RDMA_CM_EVENT_CONNECT_REQUEST);
	asked = event->id;
	CHECK(!rdma_ack_cm_event(event));
	CHECK(!rdma_create_qp(asked, NULL, &init));
	FAILS(rdma_disconnect(client), EINVAL);
	FAILS(rdma_disconnect(asked), EINVAL);
	CHECK(state_of(client) == IBV_QPS_INIT && state_of(asked) == IBV_QPS_INIT);
	CHECK(!rdma_accept(asked, NULL));
	pass(on, RDMA_CM_EVENT_ESTABLISHED);
	pass(of_server, RDMA_CM_EVENT_ESTABLISHED);

	/* And what was may be asked to end again and again. */
	CHECK(!rdma_disconnect(client));
	pass(of_server, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_disconnect(asked) && !rdma_disconnect(asked));
	pass(on, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_disconnect(client));
	pass(on, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	pass(of_server, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	CHECK(!rdma_disconnect(client) && !rdma_disconnect(asked));
	FAILS(rdma_disconnect(server), EINVAL);
	end(client);
	end(asked);
	end(server);

	/* Without a channel there is nothing to wait for. */
	server = listener(of_server);
	client = routed(on, PORT);
	CHECK(!rdma_connect(client, NULL));
	event = next(of_server, RDMA_CM_EVENT_CONNECT_REQUEST);
	asked = event->id;
	CHECK(!rdma_ack_cm_event(event));
	CHECK(!rdma_migrate_id(asked, NULL));
	FAILS(rdma_disconnect(asked), EINVAL);
	end(client);
	end(asked);
	end(server);
	rdma_destroy_event_channel(on);
	rdma_destroy_event_channel(of_server);
}

/* Nothing comes after a rejection, whoever rejects: TIMEWAIT_EXIT follows DISCONNECTED. */
static void rejections(void)
{
	struct rdma_event_channel *on = channel(), *of_server = channel();
	struct rdma_conn_param param = { .qp_num = 1 };
	struct ibv_qp_init_attr init = queues;
	struct rdma_cm_id *server = listener(of_server), *client, *asked, *clients[2], *answered;
	struct rdma_cm_event *event;

	client = routed(on, PORT);
	CHECK(!rdma_connect(client, NULL));
	event = next(of_server, RDMA_CM_EVENT_CONNECT_REQUEST);
	asked = event->id;
	CHECK(!rdma_reject(asked, NULL, 0));
	CHECK(!rdma_ack_cm_event(event));
	pass(on, RDMA_CM_EVENT_REJECTED);
	clients[0] = client;

	/* The client rejects the reply: it has no queue pair, so that it is asked. */
	client = routed(on, PORT);
	rdma_destroy_qp(client);
	CHECK(!rdma_connect(client, &param));
	event = next(of_server, RDMA_CM_EVENT_CONNECT_REQUEST);
	answered = event->id;
	CHECK(!rdma_ack_cm_event(event));
	CHECK(!rdma_create_qp(answered, NULL, &init));
	CHECK(!rdma_accept(answered, NULL));
	pass(on, RDMA_CM_EVENT_CONNECT_RESPONSE);
	CHECK(!rdma_reject(client, NULL, 0));
	pass(of_server, RDMA_CM_EVENT_REJECTED);
	clients[1] = client;

	/* Longer than any of them is remembered: twice the wait for an answer. */
	sleep(14);
	nothing_on(on);
	nothing_on(of_server);
	end(clients[0]);
	end(clients[1]);
	end(asked);
	end(answered);
	end(server);
	rdma_destroy_event_channel(on);
	rdma_destroy_event_channel(of_server);
}

/* A backlog of two, and a server that takes five requests before it answers one. */
static void backlog(void)
{
	enum { CLIENTS = 5 };
	struct rdma_event_channel *on = channel(), *of_server = channel();
	struct rdma_cm_id *server = create(of_server, RDMA_PS_TCP);
	struct rdma_cm_id *clients[CLIENTS], *asked[CLIENTS + 1], *another;
	struct rdma_cm_event *event;

	CHECK(!rdma_bind_addr(server, at(PORT)));
	CHECK(!rdma_listen(server, 2));
	for (int i = 0; i < CLIENTS; i++) {
		clients[i] = routed(on, PORT);
		CHECK(!rdma_connect(clients[i], NULL));
	}
	for (int i = 0; i < CLIENTS; i++) {
		event = next(of_server, RDMA_CM_EVENT_CONNECT_REQUEST);
		asked[i] = event->id;
		CHECK(!rdma_ack_cm_event(event));
	}
	/* That it fails to accept some makes no difference. */
	for (int i = 0; i < CLIENTS; i++) {
		struct ibv_qp_init_attr init = queues;
		if (i == 0)
			FAILS(rdma_accept(asked[i], NULL), EINVAL);
		CHECK(!rdma_create_qp(asked[i], NULL, &init));
		CHECK(!rdma_accept(asked[i], NULL));
	}
	for (int i = 0; i < CLIENTS; i++) {
		pass(on, RDMA_CM_EVENT_ESTABLISHED);
		pass(of_server, RDMA_CM_EVENT_ESTABLISHED);
	}
	another = routed(on, PORT);
	CHECK(!rdma_connect(another, NULL));
	event = next(of_server, RDMA_CM_EVENT_CONNECT_REQUEST);
	asked[CLIENTS] = event->id;
	CHECK(!rdma_ack_cm_event(event));
	end(another);
	for (int i = 0; i < CLIENTS; i++) {
		end(clients[i]);
		end(asked[i]);
	}
	end(asked[CLIENTS]);
	end(server);
	rdma_destroy_event_channel(on);
	rdma_destroy_event_channel(of_server);
}

/* rdma_get_request takes a request as well. */
static void requests(void)
{
	enum { CLIENTS = 3 };
	struct rdma_event_channel *on = channel();
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info;
	struct ibv_qp_init_attr init = queues;
	struct rdma_cm_id *server, *clients[CLIENTS], *asked[CLIENTS];
	char port[8];

	snprintf(port, sizeof port, "%d", PORT);
	CHECK(!rdma_getaddrinfo(address, port, &hints, &info));
	CHECK(!rdma_create_ep(&server, info, NULL, &init));
	CHECK(!rdma_listen(server, 1));
	for (int i = 0; i < CLIENTS; i++) {
		clients[i] = routed(on, PORT);
		CHECK(!rdma_connect(clients[i], NULL));
	}
	for (int i = 0; i < CLIENTS; i++)
		CHECK(!rdma_get_request(server, &asked[i]));
	for (int i = 0; i < CLIENTS; i++) {
		end(clients[i]);
		rdma_destroy_ep(asked[i]);
	}
	rdma_destroy_ep(server);
	rdma_freeaddrinfo(info);
	rdma_destroy_event_channel(on);
}

/* Who is asked finds the path of the request, seen from this side; a datagram service has none. */
static void paths(void)
{
	struct rdma_event_channel *on = channel(), *of_server = channel();
	struct rdma_cm_id *server = create(of_server, RDMA_PS_TCP), *client = create(on, RDMA_PS_TCP);
	struct rdma_conn_param param = { .qp_num = 1 };
	struct rdma_cm_event *event;
	uint8_t tos = 104, timeout = 17;

	CHECK(!rdma_bind_addr(server, at(PORT)));
	CHECK(!rdma_listen(server, 0));
	CHECK(!rdma_set_option(client, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1));
	CHECK(!rdma_set_option(client, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1));
	CHECK(!rdma_resolve_addr(client, NULL, at(PORT), 2000));
	pass(on, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!client->route.num_paths && !client->route.path_rec);
	CHECK(!rdma_resolve_route(client, 2000));
	pass(on, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(!rdma_connect(client, &param));
	event = next(of_server, RDMA_CM_EVENT_CONNECT_REQUEST);
	const struct rdma_route *active = &client->route, *passive = &event->id->route;
	CHECK(active->num_paths == 1 && passive->num_paths == 1 && passive->path_rec);
	const struct ibv_sa_path_rec *there = active->path_rec, *here = passive->path_rec;
	CHECK(!memcmp(&here->sgid, &there->dgid, 16) && !memcmp(&here->dgid, &there->sgid, 16));
	CHECK(!memcmp(&here->dgid, &passive->addr.addr.ibaddr.dgid, 16));
	CHECK(here->mtu == there->mtu && here->mtu_selector == 2);
	CHECK(here->mtu >= IBV_MTU_256 && here->mtu <= IBV_MTU_4096);
	CHECK(here->traffic_class == 104 && here->hop_limit == there->hop_limit);
	CHECK(here->rate == there->rate && here->rate_selector == 2);
	CHECK(here->pkey == there->pkey && here->reversible && here->numb_path == 1);
	/* Half of the timeout in the request, which counts the client's own delay of 16 as well. */
	CHECK(there->packet_life_time == 16 && here->packet_life_time == 17);
	CHECK(!rdma_reject(event->id, NULL, 0));
	struct rdma_cm_id *asked = event->id;
	CHECK(!rdma_ack_cm_event(event));
	end(asked);
	end(client);
	end(server);
	rdma_destroy_event_channel(on);
	rdma_destroy_event_channel(of_server);
}

static void groups(void)
{
	struct rdma_event_channel *on = channel();
	struct rdma_cm_id *id = create(on, RDMA_PS_UDP), *connects = create(on, RDMA_PS_TCP);
	struct sockaddr unknown = { .sa_family = AF_UNIX };
	struct sockaddr_in group = { .sin_family = AF_INET }, other = group;
	struct sockaddr_in6 group6 = { .sin6_family = AF_INET6 };
	struct rdma_cm_join_mc_attr_ex attr = { .join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER };
	struct sockaddr *to = (struct sockaddr *)&group;
	const uint32_t both = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;

	CHECK(inet_pton(AF_INET, "239.62.1.1", &group.sin_addr) == 1);
	CHECK(inet_pton(AF_INET, "239.62.1.2", &other.sin_addr) == 1);
	CHECK(inet_pton(AF_INET6, "ff12::1", &group6.sin6_addr) == 1);
	FAILS(rdma_join_multicast(id, to, NULL), EINVAL);
	CHECK(!rdma_bind_addr(id, at(0)));
	CHECK(!rdma_bind_addr(connects, at(0)));
	FAILS(rdma_join_multicast(connects, to, NULL), EINVAL);
	FAILS(rdma_join_multicast(id, NULL, NULL), EINVAL);
	FAILS(rdma_join_multicast(id, &unknown, NULL), EINVAL);
	FAILS(rdma_join_multicast(id, at(0), NULL), EINVAL);
	FAILS(rdma_join_multicast(id, (struct sockaddr *)&group6, NULL), EINVAL);
	FAILS(rdma_leave_multicast(id, to), EADDRNOTAVAIL);

	attr.addr = to;
	FAILS(rdma_join_multicast_ex(id, NULL, NULL), EINVAL);
	for (attr.comp_mask = 0; attr.comp_mask < 8; attr.comp_mask++)
		if (attr.comp_mask != both)
			FAILS(rdma_join_multicast_ex(id, &attr, NULL), EINVAL);
	attr.comp_mask = both;
	attr.join_flags = RDMA_MC_JOIN_FLAG_RESERVED;
	FAILS(rdma_join_multicast_ex(id, &attr, NULL), EINVAL);

	/* A member, once, and until it leaves. */
	CHECK(!rdma_join_multicast(id, to, &group));
	struct rdma_cm_event *event = next(on, RDMA_CM_EVENT_MULTICAST_JOIN);
	CHECK(!event->status && event->param.ud.private_data == &group);
	CHECK(event->param.ud.qp_num == 0xffffff && event->param.ud.qkey == RDMA_UDP_QKEY);
	CHECK(!rdma_ack_cm_event(event));
	FAILS(rdma_join_multicast(id, to, NULL), EADDRINUSE);
	FAILS(rdma_leave_multicast(id, (struct sockaddr *)&other), EADDRNOTAVAIL);
	CHECK(!rdma_leave_multicast(id, to));
	FAILS(rdma_leave_multicast(id, to), EADDRNOTAVAIL);

	/* Of a group that it has left it hears nothing. */
	CHECK(!rdma_join_multicast(id, to, NULL));
	CHECK(!rdma_join_multicast(id, (struct sockaddr *)&other, &other));
	CHECK(!rdma_leave_multicast(id, to));
	event = next(on, RDMA_CM_EVENT_MULTICAST_JOIN);
	CHECK(event->param.ud.private_data == &other);
	CHECK(!rdma_ack_cm_event(event));
	nothing_on(on);
	end(id);
	end(connects);
	rdma_destroy_event_channel(on);
}

static void reuse(struct rdma_cm_id *id)
{
	int yes = 1;
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes));
}

static void ports(void)
{
	struct rdma_event_channel *on = channel();
	struct rdma_cm_id *one = create(on, RDMA_PS_TCP), *two = create(on, RDMA_PS_TCP);
	struct rdma_cm_id *datagrams = create(on, RDMA_PS_UDP);
	struct sockaddr_in anywhere = { .sin_family = AF_INET, .sin_port = htons(PORT) };

	CHECK(!rdma_bind_addr(one, at(PORT)));
	FAILS(rdma_bind_addr(two, at(PORT)), EADDRINUSE);
	/* As cma_check_port has it, where either wants all addresses. */
	FAILS(rdma_bind_addr(two, (struct sockaddr *)&anywhere), EADDRNOTAVAIL);
	/* Each port space has its own. */
	CHECK(!rdma_bind_addr(datagrams, at(PORT)));
	CHECK(ntohs(rdma_get_src_port(datagrams)) == PORT);
	end(datagrams);
	end(one);
	one = create(on, RDMA_PS_TCP);
	CHECK(!rdma_bind_addr(one, (struct sockaddr *)&anywhere));
	FAILS(rdma_bind_addr(two, at(PORT)), EADDRNOTAVAIL);
	FAILS(rdma_bind_addr(two, (struct sockaddr *)&anywhere), EADDRNOTAVAIL);
	end(one);

	/* Many may have a port, and one of them listens on it. */
	one = create(on, RDMA_PS_TCP);
	reuse(one);
	reuse(two);
	CHECK(!rdma_bind_addr(one, at(PORT)));
	CHECK(!rdma_bind_addr(two, at(PORT)));
	CHECK(ntohs(rdma_get_src_port(two)) == PORT);
	CHECK(!rdma_listen(one, 0));
	FAILS(rdma_listen(two, 0), EADDRINUSE);
	end(one);
	CHECK(!rdma_listen(two, 0));
	end(two);

	/* Of any port, each gets another one, which it keeps. */
	one = create(on, RDMA_PS_TCP);
	two = create(on, RDMA_PS_TCP);
	CHECK(!rdma_bind_addr(one, at(0)));
	CHECK(!rdma_bind_addr(two, at(0)));
	CHECK(rdma_get_src_port(one) && rdma_get_src_port(one) != rdma_get_src_port(two));
	CHECK(rdma_get_dst_port(one) == 0);
	end(one);
	end(two);
	rdma_destroy_event_channel(on);
}

/* Whether a listening id on this channel is asked by a client that goes there. */
static void reaches(struct rdma_event_channel *there, struct sockaddr *to)
{
	struct rdma_event_channel *on = channel();
	struct rdma_cm_id *id = create(on, RDMA_PS_TCP);
	struct rdma_conn_param param = { .qp_num = 1 };

	CHECK(!rdma_resolve_addr(id, NULL, to, 2000));
	pass(on, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_resolve_route(id, 2000));
	pass(on, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(!rdma_connect(id, &param));
	struct rdma_cm_event *request = next(there, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *asked = request->id;
	CHECK(rdma_get_peer_addr(asked)->sa_family == to->sa_family);
	CHECK(!rdma_reject(asked, NULL, 0));
	CHECK(!rdma_ack_cm_event(request));
	pass(on, RDMA_CM_EVENT_REJECTED);
	end(asked);
	end(id);
	rdma_destroy_event_channel(on);
}

/* Zero and loopback stand for any device, unless a device has the address. */
static void wildcards(void)
{
	struct rdma_event_channel *there = channel(), *on = channel();
	struct rdma_cm_id *server = create(there, RDMA_PS_TCP), *id, *bound;
	struct sockaddr_in home = { .sin_family = AF_INET, .sin_port = htons(PORT) }, zero = home;
	struct sockaddr_in6 home6 = { .sin6_family = AF_INET6, .sin6_port = htons(PORT) };
	struct sockaddr_in6 any6 = home6;
	int yes = 1;

	home.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	home6.sin6_addr = in6addr_loopback;

	/* A server on loopback is on no device and listens on all. */
	CHECK(!rdma_bind_addr(server, (struct sockaddr *)&home));
	CHECK(!server->verbs);
	CHECK(!rdma_listen(server, 0));
	reaches(there, at(PORT));
	reaches(there, (struct sockaddr *)&home);
	reaches(there, (struct sockaddr *)&zero);
	reaches(there, (struct sockaddr *)&home6);

	/* A client of loopback gets a device and is shown loopback; */
	id = create(on, RDMA_PS_TCP);
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&home, 2000));
	pass(on, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(id->verbs);
	CHECK(((struct sockaddr_in *)rdma_get_local_addr(id))->sin_addr.s_addr ==
	      htonl(INADDR_LOOPBACK));
	CHECK(!memcmp(&id->route.addr.addr.ibaddr.sgid, &id->route.addr.addr.ibaddr.dgid, 16));
	end(id);
	/* one on a device keeps that and its address. */
	bound = create(on, RDMA_PS_TCP);
	CHECK(!rdma_resolve_addr(bound, at(0), (struct sockaddr *)&home, 2000));
	pass(on, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(((struct sockaddr_in *)rdma_get_local_addr(bound))->sin_addr.s_addr ==
	      ((struct sockaddr_in *)at(0))->sin_addr.s_addr);
	end(bound);
	end(server);

	/* All devices of a family may be none. */
	id = create(on, RDMA_PS_TCP);
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes, sizeof yes));
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)&any6));
	CHECK(!rdma_listen(id, 0));
	server = create(there, RDMA_PS_TCP);
	CHECK(!rdma_bind_addr(server, (struct sockaddr *)&zero));
	CHECK(!rdma_listen(server, 0));
	reaches(there, at(PORT));
	end(server);
	end(id);
	any6.sin6_port = 0;
	id = create(on, RDMA_PS_TCP);
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes, sizeof yes));
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)&any6));
	CHECK(rdma_get_src_port(id));
	end(id);
	rdma_destroy_event_channel(there);
	rdma_destroy_event_channel(on);
}

static void families(void)
{
	struct rdma_event_channel *on4 = channel(), *on6 = channel();
	struct rdma_cm_id *id4 = create(on4, RDMA_PS_TCP), *id6 = create(on6, RDMA_PS_TCP);
	struct sockaddr_in any4 = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	struct sockaddr_in6 any6 = { .sin6_family = AF_INET6, .sin6_port = htons(PORT) };
	struct sockaddr_in6 to6 = any6;
	int yes = 1;

	to6.sin6_addr = in6addr_loopback;
	/* The wildcard of IPv6 is for both families, */
	CHECK(!rdma_bind_addr(id6, (struct sockaddr *)&any6));
	CHECK(!rdma_listen(id6, 0));
	FAILS(rdma_bind_addr(id4, (struct sockaddr *)&any4), EADDRNOTAVAIL);
	reaches(on6, at(PORT));
	reaches(on6, (struct sockaddr *)&to6);
	end(id6);

	/* unless it is to be for its own only. */
	id6 = create(on6, RDMA_PS_TCP);
	CHECK(!rdma_set_option(id6, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes, sizeof yes));
	CHECK(!rdma_bind_addr(id6, (struct sockaddr *)&any6));
	CHECK(!rdma_bind_addr(id4, (struct sockaddr *)&any4));
	CHECK(!rdma_listen(id6, 0));
	CHECK(!rdma_listen(id4, 0));
	reaches(on4, at(PORT));
	reaches(on6, (struct sockaddr *)&to6);
	end(id4);
	end(id6);
	rdma_destroy_event_channel(on4);
	rdma_destroy_event_channel(on6);
}

/* Connects to whoever listens, and leaves without a word. */
static void leave(int started)
{
	struct rdma_event_channel *on;
	char byte;

	CHECK(read(started, &byte, 1) == 1);
	on = channel();
	CHECK(!rdma_connect(routed(on, PORT), NULL));
	pass(on, RDMA_CM_EVENT_ESTABLISHED);
	exit(0);
}

static void exits(void)
{
	struct rdma_event_channel *on;
	struct rdma_cm_event *event;
	struct ibv_qp_init_attr init = queues;
	struct rdma_cm_id *server, *asked;
	int started[2], status;

	/* Before either has a device. */
	CHECK(!pipe(started));
	if (!fork())
		leave(started[0]);
	on = channel();
	server = listener(on);
	CHECK(write(started[1], "", 1) == 1);
	event = next(on, RDMA_CM_EVENT_CONNECT_REQUEST);
	asked = event->id;
	CHECK(!rdma_ack_cm_event(event));
	CHECK(!rdma_create_qp(asked, NULL, &init));
	CHECK(!rdma_accept(asked, NULL));
	pass(on, RDMA_CM_EVENT_ESTABLISHED);
	pass(on, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(wait(&status) > 0 && status == 0);
	end(asked);
	end(server);
	rdma_destroy_event_channel(on);
}

int main(int argc, char **argv)
{
	const struct {
		const char *name;
		void (*calls)(void);
	} all[] = {
		{ "options", options }, { "steps", steps },   { "timeouts", timeouts },
		{ "pointers", pointers }, { "events", events }, { "ends", ends },
		{ "ports", ports },	  { "families", families }, { "groups", groups },
		{ "exits", exits },	  { "wildcards", wildcards },
		{ "disconnects", disconnects }, { "rejections", rejections },
		{ "backlog", backlog },	  { "requests", requests }, { "paths", paths },
	};
	CHECK(argc == 3);
	address = argv[2];
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		if (!strcmp(argv[1], all[i].name)) {
			all[i].calls();
			puts("good");
			return 0;
		}
	}
	fprintf(stderr, "no group %s\n", argv[1]);
	return 1;
}
