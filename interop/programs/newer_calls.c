// Calls that rdma-core has had since release 45, by the versions of their names: what works, and what a
// device without the feature answers. The headers of the machine may be older than the calls.
#include "bad_work.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <rdma/rdma_cma.h>

enum { WITH_IOVA = 1, WITH_ADDR = 2, WITH_FD = 4, WITH_FD_OFFSET = 8, WITH_DMAH = 16, WITH_BUF = 32 };

struct init_attr {
	size_t length;
	int access;
	uint64_t comp_mask, iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah, *buf;
};

enum { FLUSH_GLOBAL = 1 << 8, FLUSH_PERSISTENT = 1 << 9 };

static struct ibv_mr *(*reg_mr_ex)(struct ibv_pd *, struct init_attr *);
static struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int);
static struct ibv_mr *(*reg_buf_mr)(struct ibv_pd *, void *, void *, size_t, int);
static void *(*alloc_buf)(struct ibv_pd *, size_t, void **);
static int (*query_port_speed)(struct ibv_context *, uint32_t, uint64_t *);

static void *call(const char *name, const char *version)
{
	void *found = dlvsym(RTLD_DEFAULT, name, version);
	if (!found)
		fprintf(stderr, "%s@%s is missing\n", name, version);
	CHECK(found);
	return found;
}

// A call without the feature: an error number, or null or -1 with one in errno.
static void refused(const char *name, const char *version)
{
	intptr_t (*it)(void *, void *, void *) = call(name, version);
	uint64_t room[8] = { 0 };
	errno = 0;
	intptr_t answer = it(here.context, room, room);
	int number = !answer || (int)answer == -1 ? errno : (int)answer;
	printf("%s: %s\n", name, strerrorname_np(number) ?: "?");
}

// Writes into the region at its address and says what became of it.
static const char *written(struct ibv_mr *mr, uint64_t address, const char *into)
{
	strcpy(here.buffer, "by the device");
	struct ibv_sge sge = local(16);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.remote_addr = address;
	wr.wr.rdma.rkey = mr->rkey;
	CHECK(!post(qp, &wr));
	struct ibv_wc wc = completion(here.cq);
	if (wc.wr_id != 1 || wc.status != IBV_WC_SUCCESS)
		return name_of(wc.status);
	return strcmp(into, here.buffer) ? "other bytes" : "written";
}

static void descriptors(void)
{
	enum { PAGES = 4 * 4096, AT = 0x10000 };
	int fd = memfd_create("shared", 0);
	CHECK(fd >= 0 && !ftruncate(fd, PAGES));
	char *mine = mmap(NULL, PAGES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(mine != MAP_FAILED);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_mr *mr = reg_dmabuf_mr(there.pd, 4096, 8192, AT, fd, access);
	CHECK(mr && mr->addr == (void *)4096 && mr->length == 8192);
	ANSWER("WRITE into a memfd", written(mr, AT + 64, mine + 4096 + 64));
	ANSWER("WRITE into a memfd behind its region", written(mr, AT + 8192, mine));
	connect_both();
	CHECK(!ibv_dereg_mr(mr));
	POINTER("memfd with permission to read", mr = reg_dmabuf_mr(there.pd, 0, 4096, 0, fd, 0));
	CHECK(!ibv_dereg_mr(mr));
	POINTER("memfd beyond its end", reg_dmabuf_mr(there.pd, 4096, PAGES, 0, fd, access));
	POINTER("memfd at the last offset", reg_dmabuf_mr(there.pd, -4096ull, 4097, 0, fd, access));
	POINTER("memfd of no length", reg_dmabuf_mr(there.pd, 0, 0, 0, fd, access));
	POINTER("memfd at an iova of another place in its page",
		reg_dmabuf_mr(there.pd, 0, 4096, 8, fd, access));
	POINTER("memfd paged on demand",
		reg_dmabuf_mr(there.pd, 0, 4096, 0, fd, access | IBV_ACCESS_ON_DEMAND));
	POINTER("memfd with windows",
		reg_dmabuf_mr(there.pd, 0, 4096, 0, fd, access | IBV_ACCESS_MW_BIND));
	POINTER("closed descriptor", reg_dmabuf_mr(there.pd, 0, 4096, 0, 999, access));
	int file = open("/proc/self/exe", O_RDONLY);
	POINTER("descriptor of a file", reg_dmabuf_mr(there.pd, 0, 4096, 0, file, access));
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int reader = open(path, O_RDONLY);
	CHECK(reader >= 0);
	POINTER("memfd that cannot be mapped", reg_dmabuf_mr(there.pd, 0, 4096, 0, reader, access));

	struct init_attr attr = { .length = 4096, .access = access, .fd = fd, .iova = AT };
	attr.comp_mask = WITH_FD | WITH_FD_OFFSET | WITH_IOVA;
	CHECK(mr = reg_mr_ex(there.pd, &attr));
	ANSWER("reg_mr_ex of a memfd", written(mr, AT, mine));
	CHECK(!ibv_dereg_mr(mr));
	attr.comp_mask = WITH_FD | WITH_IOVA;
	POINTER("reg_mr_ex of a memfd without an offset", reg_mr_ex(there.pd, &attr));

	// Truncated while it is registered, and gone by itself.
	CHECK(mr = reg_dmabuf_mr(there.pd, 0, 8192, AT, fd, access));
	CHECK(!ftruncate(fd, 4096));
	ANSWER("WRITE behind the end of a memfd that was cut", written(mr, AT + 4096, mine));
	connect_both();
	CHECK(!close(fd) && !munmap(mine, PAGES));
	ANSWER("WRITE into a closed memfd", written(mr, AT, "by the device"));
	CHECK(!ibv_dereg_mr(mr));
}

static void buffers(void)
{
	void *buf = NULL;
	char *memory = alloc_buf(there.pd, 10000, &buf);
	CHECK(memory && buf && !((uintptr_t)memory % 4096));
	struct ibv_mr *mr = reg_buf_mr(there.pd, buf, memory + 8, 9992, EVERYTHING);
	CHECK(mr && mr->addr == memory + 8);
	ANSWER("WRITE into a buffer", written(mr, (uintptr_t)memory + 8, memory + 8));
	CHECK(!ibv_dereg_mr(mr));
	POINTER("reg_buf_mr beyond the end", reg_buf_mr(there.pd, buf, memory + 8, 9993, EVERYTHING));
	POINTER("reg_buf_mr before the beginning", reg_buf_mr(there.pd, buf, memory - 1, 1, EVERYTHING));
	POINTER("reg_buf_mr of another domain", reg_buf_mr(here.pd, buf, memory, 1, EVERYTHING));
	struct init_attr attr = { .length = 64, .access = EVERYTHING, .addr = memory, .buf = buf };
	attr.comp_mask = WITH_ADDR | WITH_BUF;
	POINTER("reg_mr_ex of a buffer", mr = reg_mr_ex(there.pd, &attr));
	CHECK(!ibv_dereg_mr(mr));
	NUMBER("export_buf_dmabuf_fd",
	       ((int (*)(void *))call("ibv_export_buf_dmabuf_fd", "IBVERBS_1.18"))(buf));
	((void (*)(void *))call("ibv_free_buf", "IBVERBS_1.17"))(buf);
	POINTER("reg_buf_mr of a freed buffer", reg_buf_mr(there.pd, buf, memory, 1, EVERYTHING));
}

static void addresses(void)
{
	struct init_attr attr = { .length = 64, .access = EVERYTHING, .addr = there.buffer };
	attr.comp_mask = WITH_ADDR;
	struct ibv_mr *mr = reg_mr_ex(there.pd, &attr);
	CHECK(mr && mr->addr == there.buffer && mr->length == 64);
	ANSWER("reg_mr_ex", written(mr, (uintptr_t)there.buffer, there.buffer));
	CHECK(!ibv_dereg_mr(mr));
	attr.comp_mask = WITH_ADDR | WITH_IOVA;
	CHECK(mr = reg_mr_ex(there.pd, &attr));
	ANSWER("reg_mr_ex with an iova of 0", written(mr, 0, there.buffer));
	CHECK(!ibv_dereg_mr(mr));
	attr.comp_mask = 0;
	POINTER("reg_mr_ex of nothing", reg_mr_ex(there.pd, &attr));
	attr.comp_mask = WITH_ADDR | WITH_DMAH;
	POINTER("reg_mr_ex with a DMA handle", reg_mr_ex(there.pd, &attr));
	attr.comp_mask = WITH_ADDR | 1ull << 63;
	POINTER("reg_mr_ex with a field nobody knows", reg_mr_ex(there.pd, &attr));
}

// Names resolved by an event, and events of one's own.
static void connection_manager(void)
{
	enum { RESOLVED = 16, OWN = 18, UNREAD_MAX = 1024, SA = 16, DNS = 32 };
	int (*resolve)(struct rdma_cm_id *, const char *, const char *, struct rdma_addrinfo *) =
		call("rdma_resolve_addrinfo", "RDMACM_1.4");
	int (*query)(struct rdma_cm_id *, struct rdma_addrinfo **) =
		call("rdma_query_addrinfo", "RDMACM_1.4");
	int (*write_event)(struct rdma_cm_id *, int, int, uint64_t) =
		call("rdma_write_cm_event", "RDMACM_1.4");
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	struct rdma_cm_event *event;
	struct rdma_addrinfo *info, hints = { .ai_flags = SA };
	CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	NUMBER("query_addrinfo of nothing", query(id, &info));
	CHECK(!resolve(id, "127.0.0.9", "7471", NULL));
	NUMBER("resolve_addrinfo before the answer is read", resolve(id, "127.0.0.9", "7471", NULL));
	CHECK(!rdma_get_cm_event(channel, &event) && event->id == id && event->event == RESOLVED);
	ANSWER("event", rdma_event_str(event->event));
	CHECK(!rdma_ack_cm_event(event) && !query(id, &info));
	uint8_t address[] = { 127, 0, 0, 9 };
	CHECK(!memcmp(info->ai_dst_addr->sa_data + 2, address, 4) && !info->ai_next);
	rdma_freeaddrinfo(info);
	NUMBER("query_addrinfo again", query(id, &info));
	NUMBER("resolve_addrinfo of no name", resolve(id, "127.0.0.9", "no-such-service", NULL));
	NUMBER("resolve_addrinfo in a subnet", resolve(id, NULL, "1", &hints));
	hints.ai_flags = SA | DNS;
	NUMBER("resolve_addrinfo in two ways", resolve(id, NULL, "1", &hints));

	NUMBER("write_cm_event of another kind", write_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0));
	for (int each = 0; each < UNREAD_MAX; each++)
		CHECK(!write_event(id, OWN, each, 1ull << 40));
	NUMBER("write_cm_event that nobody reads", write_event(id, OWN, 0, 0));
	for (int each = 0; each < UNREAD_MAX; each++) {
		CHECK(!rdma_get_cm_event(channel, &event) && event->event == OWN);
		uint64_t arg;
		memcpy(&arg, &event->param, sizeof arg);
		CHECK(event->status == each && arg == 1ull << 40);
		CHECK(!rdma_ack_cm_event(event));
	}
	NUMBER("write_cm_event of one that is read", write_event(id, OWN, 7, 0));
	// Both go with the identifier.
	CHECK(!resolve(id, "127.0.0.9", "7471", NULL) && !rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
	NUMBER("repoll_create", ((int (*)(int))call("repoll_create", "RDMACM_1.5"))(0));
}

int main(void)
{
	alarm(60);
	make_both();
	connect_both();
	reg_mr_ex = call("ibv_reg_mr_ex", "IBVERBS_1.15");
	reg_dmabuf_mr = call("ibv_reg_dmabuf_mr", "IBVERBS_1.12");
	reg_buf_mr = call("ibv_reg_buf_mr", "IBVERBS_1.17");
	alloc_buf = call("ibv_alloc_buf", "IBVERBS_1.17");
	query_port_speed = call("ibv_query_port_speed", "IBVERBS_1.16");
	addresses();
	descriptors();
	buffers();
	connection_manager();
	uint64_t speed = 0;
	CHECK(!query_port_speed(here.context, 1, &speed));
	printf("port speed: %llu\n", (unsigned long long)speed);
	STATUS("speed of port 2", query_port_speed(here.context, 2, &speed));

	struct ibv_qp *fresh = make_qp(&here, IBV_QPT_RC);
	struct ibv_qp_attr init = good(fresh, IBV_QPS_INIT, 0);
	init.qp_access_flags |= FLUSH_GLOBAL | FLUSH_PERSISTENT;
	STATUS("permission to FLUSH of a queue pair", ibv_modify_qp(fresh, &init, RC_TO_INIT));
	POINTER("permission to FLUSH of a region",
		ibv_reg_mr(here.pd, here.buffer, SIZE, IBV_ACCESS_LOCAL_WRITE | FLUSH_GLOBAL));

	// What perftest asks every device of NVIDIA's.
	struct {
		uint8_t version;
		uint64_t flags, comp_mask, optional[64];
	} direct = { 1, ~0ull, ~0ull };
	int (*query_direct)(struct ibv_context *, void *) = call("mlx5dv_query_device", "MLX5_1.0");
	CHECK(!query_direct(here.context, &direct));
	printf("direct verbs: %d %llx %llx\n", direct.version, (unsigned long long)direct.flags,
	       (unsigned long long)direct.comp_mask);

	refused("ibv_alloc_dmah", "IBVERBS_1.15");
	refused("ibv_dealloc_dmah", "IBVERBS_1.15");
	refused("ibv_dm_export_dmabuf_fd", "IBVERBS_1.16");
	static const char *const COUNTERS[] = {
		"_ibv_query_comp_cntr_caps", "ibv_create_comp_cntr", "ibv_destroy_comp_cntr",
		"ibv_inc_comp_cntr", "ibv_inc_err_comp_cntr", "ibv_qp_attach_comp_cntr",
		"ibv_read_comp_cntr", "ibv_read_err_comp_cntr", "ibv_set_comp_cntr",
		"ibv_set_err_comp_cntr",
	};
	for (size_t each = 0; each < sizeof COUNTERS / sizeof *COUNTERS; each++)
		refused(COUNTERS[each], "IBVERBS_1.18");
	return 0;
}
