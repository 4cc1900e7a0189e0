/* A plug-in of NCCL whose sums cost a copy and no network: the ceiling of every time with CollNet.
 *
 *     cc -O2 -shared -fPIC -o libnccl-net-null.so scripts/nccl_null.c
 *     THALWEG_NCCL_LIBRARY=/path/of/libnccl-net-thalweg.so NCCL_NET_PLUGIN=$PWD/libnccl-net-null.so …
 *
 * Messages are those of the library that the variable names. An all-reduce multiplies the values of this rank by the number of
 * ranks, which is the sum where all ranks have the same values. Interfaces of version 11 (NCCL 2.28 and 2.29), float32 only.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, SYSTEM_ERROR = 2, FLOAT32 = 7, SUM = 0, NET_SLOTS = 22, COLL_SLOTS = 19 };

typedef struct {
    int ranks;
} comm_t;

/* Tables of version 11: a name and pointers to functions. */
void *ncclNetPlugin_v11[NET_SLOTS];
void *ncclCollNetPlugin_v11[COLL_SLOTS];

static int listen_null(void *context, int device, void *handle, void **listening) {
    (void)context, (void)device, (void)handle;
    *listening = malloc(1);
    return SUCCESS;
}

static int connect_null(void *handles[], int ranks, int rank, void *listening, void **comm) {
    (void)handles, (void)rank, (void)listening;
    comm_t *made = malloc(sizeof *made);
    made->ranks = ranks;
    *comm = made;
    return SUCCESS;
}

static int reduce_support_null(int type, int operation, int *is_supported) {
    *is_supported = type == FLOAT32 && operation == SUM;
    return SUCCESS;
}

static int register_null(void *comm, void *data, size_t size, int type, void **registered) {
    (void)comm, (void)size, (void)type;
    *registered = data;
    return SUCCESS;
}

static int deregister_null(void *comm, void *registered) {
    (void)comm, (void)registered;
    return SUCCESS;
}

static int all_reduce_null(void *comm, void *from, void *to, size_t count, int type, int operation, void *from_registered,
                           void *to_registered, void **request) {
    (void)type, (void)operation, (void)from_registered, (void)to_registered;
    const float *values = from;
    float *sums = to;
    float ranks = (float)((comm_t *)comm)->ranks;
    for (size_t at = 0; at < count; at++) {
        sums[at] = values[at] * ranks;
    }
    *request = (void *)(uintptr_t)(count * sizeof(float));
    return SUCCESS;
}

static int flush_null(void *comm, void *data, int size, void *registered, void **request) {
    (void)comm, (void)data, (void)size, (void)registered;
    *request = NULL;
    return SUCCESS;
}

static int test_null(void *request, int *is_done, int *size) {
    *is_done = 1;
    if (size) {
        *size = (int)(uintptr_t)request;
    }
    return SUCCESS;
}

static int close_null(void *closed) {
    free(closed);
    return SUCCESS;
}

__attribute__((constructor)) static void fill(void) {
    const char *path = getenv("THALWEG_NCCL_LIBRARY");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *net = library ? dlsym(library, "ncclNetPlugin_v11") : NULL;
    void *coll = library ? dlsym(library, "ncclCollNetPlugin_v11") : NULL;
    if (!net || !coll) {
        fprintf(stderr, "THALWEG_NCCL_LIBRARY does not name the plug-in: %s\n", path ? dlerror() : "it is not set");
        return;
    }
    memcpy(ncclNetPlugin_v11, net, sizeof ncclNetPlugin_v11);
    memcpy(ncclCollNetPlugin_v11, coll, sizeof ncclCollNetPlugin_v11);
    /* Name, init, devices and properties stay those of the library. */
    void *own[] = {listen_null,     connect_null, reduce_support_null, register_null, NULL, deregister_null,
                   all_reduce_null, NULL,         NULL,                flush_null,    test_null, close_null, close_null};
    memcpy(ncclCollNetPlugin_v11 + 4, own, sizeof own);
}
