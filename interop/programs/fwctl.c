/* What a tool for cards does to a node of /dev/fwctl, with good and with bad requests.
 *
 * The structures and numbers are those of the kernel's include/uapi/fwctl/fwctl.h, spelt out here
 * because the headers of many systems are older. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define FWCTL_INFO _IO(0x9A, 0)
#define FWCTL_RPC _IO(0x9A, 1)

struct info {
    uint32_t size, flags, out_device_type, device_data_len;
    uint64_t out_device_data;
};

struct rpc {
    uint32_t size, scope, in_len, out_len;
    uint64_t in, out;
};

enum { WRITE, READ };

static int node;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno);              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define FAILS(error, call)                                                                         \
    do {                                                                                           \
        errno = 0;                                                                                 \
        CHECK((call) == -1 && errno == (error));                                                   \
    } while (0)

/* ACCESS_REG, with `len` bytes of data behind the header of 16. */
static void command(uint8_t *in, unsigned id, unsigned method, const void *data, size_t len) {
    memset(in, 0, 16);
    in[0] = 0x08, in[1] = 0x05, in[7] = method;
    in[10] = id >> 8, in[11] = id & 0xff;
    if (len)
        memcpy(in + 16, data, len);
}

static int call(struct rpc *rpc, const void *in, size_t in_len, void *out, size_t out_len) {
    rpc->size = sizeof *rpc;
    rpc->in = (uintptr_t)in, rpc->in_len = in_len;
    rpc->out = (uintptr_t)out, rpc->out_len = out_len;
    return ioctl(node, FWCTL_RPC, rpc);
}

/* Returns the firmware's status; what was read replaces `data`. */
static int access_register(unsigned id, unsigned method, void *data, size_t len) {
    uint8_t in[16 + 0x80], out[16 + 0x80];
    struct rpc rpc = {.scope = method == WRITE ? 0 : 1};
    command(in, id, method, data, len);
    memset(out, 0xee, sizeof out);
    CHECK(call(&rpc, in, 16 + len, out, 16 + len) == 0 && rpc.out_len == 16 + len);
    if (out[0] == 0 && method == READ)
        memcpy(data, out + 16, len);
    return out[0];
}

static void good(void) {
    uint32_t told[3] = {7, 7, 7};
    struct info info = {.size = sizeof info, .device_data_len = sizeof told,
                        .out_device_data = (uintptr_t)told};
    CHECK(ioctl(node, FWCTL_INFO, &info) == 0);
    CHECK(info.out_device_type == 1 && info.device_data_len == 8);
    CHECK(told[0] != 7 && told[1] == 4 && told[2] == 0);

    /* A histogram of five bins that double, in milliseconds, and the same back. */
    uint8_t config[0x80] = {0x8d, 0, 0, 0, 5, 0, 0, 0, 0, 0x32, 0, 0x64}, back[0x80] = {0};
    CHECK(access_register(0xc01d, WRITE, config, sizeof config) == 0);
    CHECK(access_register(0xc01d, READ, back, sizeof back) == 0);
    CHECK(back[0] == 0x8d && back[4] == 5 && memcmp(back + 8, config + 8, 4) == 0);
    uint8_t histogram[16 + 5 * 8] = {0};
    CHECK(access_register(0xc01e, READ, histogram, sizeof histogram) == 0 && histogram[0] == 5);

    uint8_t accl[0x80] = {0};
    CHECK(access_register(0x402c, READ, accl, sizeof accl) == 0);
    CHECK((accl[0] & 0x10) && (accl[3] & 1) && accl[8] == 0x41);
    uint8_t off[8] = {0, 0, 0, 1, 0, 0, 0, 0};
    CHECK(access_register(0x402c, WRITE, off, sizeof off) == 0);
    CHECK(access_register(0x402c, READ, accl, sizeof accl) == 0 && (accl[7] & 1) == 0);
}

/* The firmware refuses: no error of the call, but a status. */
static void refused(void) {
    uint8_t data[0x80] = {0};
    CHECK(access_register(0x5006, READ, data, 16) == 0x04);
    CHECK(access_register(0x402c, READ, data, 0) == 0x50);
    CHECK(access_register(0x402c, READ, data, 7) == 0x50);
    CHECK(access_register(0x9020, WRITE, data, 0x80) == 0x02);
    data[4] = 0x50; /* profile 5 */
    CHECK(access_register(0x402c, READ, data, 0x80) == 0x0a);
    uint8_t bins[12] = {0, 0, 0, 0, 200, 0, 0, 0, 0, 1, 0, 1};
    CHECK(access_register(0xc01d, WRITE, bins, sizeof bins) == 0x03);
    CHECK(access_register(0x402c, 2, data, 0x80) == 0x02);
}

static void bad(void) {
    uint8_t in[0x90], out[0x90];
    struct rpc rpc = {.scope = 0};
    command(in, 0x402c, READ, NULL, 0);
    memset(in + 16, 0, sizeof in - 16);

    FAILS(EBADMSG, call(&rpc, in, sizeof in, out, sizeof out));
    rpc.scope = 1;
    CHECK(call(&rpc, in, sizeof in, out, sizeof out) == 0);
    FAILS(EMSGSIZE, call(&rpc, in, 15, out, sizeof out));
    FAILS(EMSGSIZE, call(&rpc, in, sizeof in, out, 15));
    FAILS(EMSGSIZE, call(&rpc, in, (2 << 20) + 1, out, sizeof out));
    FAILS(EMSGSIZE, call(&rpc, in, sizeof in, out, (2 << 20) + 1));
    FAILS(EFAULT, call(&rpc, NULL, sizeof in, out, sizeof out));
    FAILS(EFAULT, call(&rpc, in, sizeof in, (void *)8, sizeof out));
    rpc.scope = 4;
    FAILS(EOPNOTSUPP, call(&rpc, in, sizeof in, out, sizeof out));
    rpc.scope = 3;
    in[0] = 0x01, in[1] = 0x00; /* QUERY_HCA_CAP is not for registers */
    FAILS(EBADMSG, call(&rpc, in, sizeof in, out, sizeof out));

    FAILS(EFAULT, ioctl(node, FWCTL_RPC, NULL));
    FAILS(EFAULT, ioctl(node, FWCTL_INFO, (void *)8));
    FAILS(ENOTTY, ioctl(node, _IO(0x9A, 2), &rpc));
    FAILS(ENOTTY, ioctl(node, _IO(0x9A, 255), &rpc));
    struct info info = {.size = sizeof info - 1};
    FAILS(EINVAL, ioctl(node, FWCTL_INFO, &info));
    info.size = sizeof info, info.flags = 1;
    FAILS(EOPNOTSUPP, ioctl(node, FWCTL_INFO, &info));
    struct {
        struct info info;
        uint32_t more[2];
    } longer = {.info = {.size = sizeof longer}};
    CHECK(ioctl(node, FWCTL_INFO, &longer) == 0);
    longer.more[1] = 1;
    FAILS(E2BIG, ioctl(node, FWCTL_INFO, &longer));

    /* A structure whose end is not there. */
    long page = sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && munmap(pages + page, page) == 0);
    uint32_t size = sizeof info;
    memcpy(pages + page - sizeof size, &size, sizeof size);
    FAILS(EFAULT, ioctl(node, FWCTL_INFO, pages + page - sizeof size));

    /* Calls of others go where they would have gone. */
    int other = open("/dev/null", O_RDWR), pipes[2], waiting = -1;
    FAILS(ENOTTY, ioctl(other, FWCTL_INFO, &info));
    FAILS(EBADF, ioctl(-1, FWCTL_INFO, &info));
    CHECK(pipe(pipes) == 0 && write(pipes[1], "abc", 3) == 3);
    CHECK(ioctl(pipes[0], FIONREAD, &waiting) == 0 && waiting == 3);
}

static void *reads(void *unused) {
    for (int i = 0; i < 200; i++) {
        uint8_t data[0x80] = {0};
        CHECK(access_register(0x402c, READ, data, sizeof data) == 0);
    }
    return unused;
}

int main(void) {
    char path[4096];
    CHECK(realpath("/sys/class/fwctl/fwctl0/device", path));
    CHECK(strcmp(path, "/sys/devices/pci10fe:00/10fe:00:00.0") == 0);
    FAILS(ENOENT, open("/dev/fwctl/fwctl1", O_RDWR));
    node = open("/dev/fwctl/fwctl0", O_RDWR | O_SYNC);
    CHECK(node >= 0);
    good();
    refused();
    bad();

    /* By way of a duplicate, from threads, and in a child. */
    int first = node;
    node = dup(first);
    CHECK(close(first) == 0);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, reads, NULL) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    pid_t child = fork();
    if (child == 0) {
        reads(NULL);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(close(node) == 0);
    FAILS(EBADF, ioctl(node, FWCTL_INFO, path));
    puts("done");
    return 0;
}
