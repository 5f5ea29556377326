/*
 * Hears of both ports of a device while they flap.
 *
 *   two_ports DEVICE FLAPS
 *
 * Two threads open the device and take its asynchronous events, each by itself. Ends when each has heard
 * that each port went down and up again FLAPS times, in turns; any other event, or one that comes twice,
 * is an error. Prints a line when both listen, and what each has heard.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>

enum { THREADS = 2, PORTS = 2 };

struct listener {
	struct ibv_context *context;
	long downs[PORTS + 1], ups[PORTS + 1];
};

static long flaps;

static void check(int good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "two_ports: %s: %s\n", what, strerror(errno));
	exit(1);
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	check(list != NULL, "ibv_get_device_list");
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	check(context != NULL, name);
	ibv_free_device_list(list);
	return context;
}

static int is_done(const struct listener *own)
{
	return own->ups[1] == flaps && own->ups[2] == flaps;
}

static void *listen(void *argument)
{
	struct listener *own = argument;

	while (!is_done(own)) {
		struct ibv_async_event event;
		int port;

		check(!ibv_get_async_event(own->context, &event), "ibv_get_async_event");
		port = event.element.port_num;
		if (port < 1 || port > PORTS) {
			fprintf(stderr, "two_ports: event %d of port %d\n", event.event_type, port);
			exit(1);
		}
		if (event.event_type == IBV_EVENT_PORT_ERR && own->downs[port] == own->ups[port]) {
			own->downs[port]++;
		} else if (event.event_type == IBV_EVENT_PORT_ACTIVE &&
			   own->downs[port] == own->ups[port] + 1) {
			own->ups[port]++;
		} else {
			fprintf(stderr, "two_ports: event %d of port %d after %ld downs and %ld ups\n",
				event.event_type, port, own->downs[port], own->ups[port]);
			exit(1);
		}
		ibv_ack_async_event(&event);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct listener listeners[THREADS] = { 0 };
	pthread_t threads[THREADS];
	struct ibv_device_attr attr;

	if (argc != 3) {
		fprintf(stderr, "two_ports DEVICE FLAPS\n");
		return 2;
	}
	flaps = atol(argv[2]);
	for (int i = 0; i < THREADS; i++)
		listeners[i].context = open_device(argv[1]);
	check(!ibv_query_device(listeners[0].context, &attr), "ibv_query_device");
	check(attr.phys_port_cnt == PORTS, "phys_port_cnt");
	printf("both listen\n");
	fflush(stdout);
	for (int i = 0; i < THREADS; i++)
		check(!pthread_create(&threads[i], NULL, listen, &listeners[i]), "pthread_create");
	for (int i = 0; i < THREADS; i++) {
		check(!pthread_join(threads[i], NULL), "pthread_join");
		for (int port = 1; port <= PORTS; port++)
			printf("thread %d: port %d down %ld up %ld\n", i, port,
			       listeners[i].downs[port], listeners[i].ups[port]);
		check(!ibv_close_device(listeners[i].context), "ibv_close_device");
	}
	return 0;
}
