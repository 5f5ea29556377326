// Options that two ends agree on before they connect (ibv_set_ece(3)).
//
//   ece calls          what is offered and what is refused, of one queue pair
//   ece agree          two processes agree on options; one writes to the other and reads all of it back
//   ece connect        the same without options
#include "bad.h"

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { MESSAGE = 64 << 10, MESSAGES = 64, TOTAL = MESSAGES * MESSAGE };

// What one end tells the other about itself.
struct name {
	struct ibv_ece ece;
	uint32_t qpn, rkey;
	uint64_t addr;
};

static void show(const char *what, struct ibv_qp *qp)
{
	struct ibv_ece ece = { .comp_mask = ~0 };
	CHECK(!ibv_query_ece(qp, &ece) && !ece.comp_mask);
	printf("%s: %#x of vendor %#x\n", what, ece.options, ece.vendor_id);
}

// What a queue pair has agreed on ends when it is reset.
static void connect_agreed(struct ibv_qp *qp, uint32_t peer)
{
	step(qp, IBV_QPS_INIT, peer);
	step(qp, IBV_QPS_RTR, peer);
	step(qp, IBV_QPS_RTS, peer);
}

static void calls(void)
{
	struct objects on = make_objects(open_device(0));
	struct ibv_qp *qp = make_qp(&on, IBV_QPT_RC), *datagrams = make_qp(&on, IBV_QPT_UD);
	struct ibv_ece ece, good;
	CHECK(!ibv_query_ece(qp, &good));
	show("offered", qp);
	show("offered by UD", datagrams);

	ece = good;
	ece.comp_mask = 1;
	STATUS("another field", ibv_set_ece(qp, &ece));
	ece = good;
	ece.vendor_id = 0x1dd8;
	STATUS("another vendor", ibv_set_ece(qp, &ece));
	show("still offered", qp);

	ece = (struct ibv_ece){ .vendor_id = good.vendor_id, .options = 0x7fffffff };
	STATUS("unknown options", ibv_set_ece(qp, &ece));
	printf("accepted: %#x of vendor %#x\n", ece.options, ece.vendor_id);
	show("set", qp);
	connect_agreed(qp, qp->qp_num);
	STATUS("after RTS", ibv_set_ece(qp, &good));
	show("connected", qp);
	step(qp, IBV_QPS_RESET, 0);
	show("reset", qp);
}

static void tell(int fd, const struct name *own)
{
	CHECK(write(fd, own, sizeof *own) == sizeof *own);
}

static struct name hear(int fd)
{
	struct name name;
	CHECK(read(fd, &name, sizeof name) == sizeof name);
	return name;
}

// Until all messages are done, each of `opcode` and between the same places of both ends.
static void transfer(const struct objects *on, struct ibv_qp *qp, enum ibv_wr_opcode opcode,
		     const struct ibv_mr *mr, const struct name *peer)
{
	int posted = 0, done = 0;
	while (done < MESSAGES) {
		for (; posted < MESSAGES && posted < done + DEPTH; posted++) {
			size_t offset = (size_t)posted * MESSAGE;
			struct ibv_sge sge = { (uintptr_t)mr->addr + offset, MESSAGE, mr->lkey };
			struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;
			wr.wr.rdma.remote_addr = peer->addr + offset;
			wr.wr.rdma.rkey = peer->rkey;
			CHECK(!ibv_post_send(qp, &wr, &bad));
		}
		struct ibv_wc wc;
		int got = ibv_poll_cq(on->cq, 1, &wc);
		CHECK(got >= 0 && (!got || wc.status == IBV_WC_SUCCESS));
		done += got;
	}
}

// The passive end takes what is offered and answers with what is left of it; the active one takes that.
static void end(int fd, bool is_active, bool agrees)
{
	struct objects on = make_objects(open_device(0));
	struct ibv_qp *qp = make_qp(&on, IBV_QPT_RC);
	uint32_t *memory = mmap(NULL, TOTAL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	struct ibv_mr *mr = ibv_reg_mr(on.pd, memory, TOTAL, EVERYTHING);
	CHECK(mr);
	struct name own = { .qpn = qp->qp_num, .rkey = mr->rkey, .addr = (uintptr_t)memory }, peer;
	if (is_active) {
		CHECK(!ibv_query_ece(qp, &own.ece));
		tell(fd, &own);
		peer = hear(fd);
		CHECK(!agrees || !ibv_set_ece(qp, &peer.ece));
		connect_agreed(qp, peer.qpn);
		show("active end", qp);
		for (uint32_t i = 0; i < TOTAL / sizeof *memory; i++)
			memory[i] = i * 2654435761U;
		transfer(&on, qp, IBV_WR_RDMA_WRITE, mr, &peer);
		memset(memory, 0, TOTAL);
		transfer(&on, qp, IBV_WR_RDMA_READ, mr, &peer);
		for (uint32_t i = 0; i < TOTAL / sizeof *memory; i++)
			CHECK(memory[i] == i * 2654435761U);
		puts("every byte is right");
		tell(fd, &own);
	} else {
		peer = hear(fd);
		CHECK(!agrees || !ibv_set_ece(qp, &peer.ece));
		connect_agreed(qp, peer.qpn);
		CHECK(!ibv_query_ece(qp, &own.ece));
		tell(fd, &own);
		hear(fd);
	}
}

static void two_ends(bool agree)
{
	int fds[2];
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		close(fds[1]);
		end(fds[0], false, agree);
		exit(0);
	}
	close(fds[0]);
	end(fds[1], true, agree);
	int status;
	CHECK(waitpid(child, &status, 0) == child && !status);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	if (!strcmp(argv[1], "calls"))
		calls();
	else
		two_ends(!strcmp(argv[1], "agree"));
	return 0;
}
