/* What NVIDIA's container toolkit, device plugin and GPU feature discovery ask of libnvidia-ml.so.1, answered without
 * a GPU: whole GPUs without MIG.
 *
 * GPU_UUIDS in the environment, else GPUS when it is compiled: UUIDs separated by commas; each is a GPU, its place is
 * its minor number. nvmlInit fails without any, as it does without a driver.
 * A GPU without a device node is not there, as in a container that was given others.
 * A function that is missing shows as "undefined symbol" when one of them comes to need it.
 * Layouts and numbers are those of NVIDIA's nvml.h, release 13.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef GPUS
#define GPUS ""
#endif

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9, TIMEOUT = 10 };

typedef struct {
    char legacy_bus_id[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} pci_info;

typedef struct gpu {
    unsigned int index, minor;
    char uuid[96];
} gpu;

static gpu gpus[16];
static unsigned int count;

int nvmlInit_v2(void) {
    const char *uuids = getenv("GPU_UUIDS");
    if (!uuids) uuids = GPUS;
    if (!*uuids) return DRIVER_NOT_LOADED;
    count = 0;
    for (unsigned int minor = 0; *uuids && count < 16; minor++) {
        size_t length = strcspn(uuids, ",");
        char node[32];
        snprintf(node, sizeof node, "/dev/nvidia%u", minor);
        if (!access(node, F_OK)) {
            gpus[count].index = count;
            gpus[count].minor = minor;
            snprintf(gpus[count++].uuid, sizeof gpus[0].uuid, "%.*s", (int)length, uuids);
        }
        uuids += length + (uuids[length] == ',');
    }
    return SUCCESS;
}
int nvmlInitWithFlags(unsigned int flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "error"; }

int nvmlSystemGetDriverVersion(char *text, unsigned int size) { snprintf(text, size, "580.178.04"); return SUCCESS; }
int nvmlSystemGetNVMLVersion(char *text, unsigned int size) { snprintf(text, size, "13.580.178.04"); return SUCCESS; }
int nvmlSystemGetCudaDriverVersion(int *version) { *version = 13000; return SUCCESS; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned int *found) { *found = count; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, gpu **device) {
    if (index >= count) return INVALID_ARGUMENT;
    *device = &gpus[index];
    return SUCCESS;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, gpu **device) {
    for (unsigned int n = 0; n < count; n++)
        if (!strcmp(gpus[n].uuid, uuid)) return nvmlDeviceGetHandleByIndex_v2(n, device);
    return NOT_FOUND;
}
int nvmlDeviceGetIndex(gpu *device, unsigned int *index) { *index = device->index; return SUCCESS; }
int nvmlDeviceGetMinorNumber(gpu *device, unsigned int *minor) { *minor = device->minor; return SUCCESS; }
int nvmlDeviceGetUUID(gpu *device, char *text, unsigned int size) { snprintf(text, size, "%s", device->uuid); return SUCCESS; }
int nvmlDeviceGetName(gpu *device, char *text, unsigned int size) {
    (void)device;
    snprintf(text, size, "Tesla V100-SXM2-16GB");
    return SUCCESS;
}
int nvmlDeviceGetBrand(gpu *device, int *brand) { (void)device; *brand = 2; return SUCCESS; }
int nvmlDeviceGetArchitecture(gpu *device, unsigned int *architecture) { (void)device; *architecture = 5; return SUCCESS; }
int nvmlDeviceGetCudaComputeCapability(gpu *device, int *major, int *minor) { (void)device; *major = 7; *minor = 0; return SUCCESS; }
int nvmlDeviceGetPciInfo_v3(gpu *device, pci_info *info) {
    memset(info, 0, sizeof *info);
    info->bus = device->minor + 4;
    info->device_id = 0x1db110de;
    snprintf(info->legacy_bus_id, sizeof info->legacy_bus_id, "0000:%02X:00.0", info->bus);
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
    return SUCCESS;
}
int nvmlDeviceGetPciInfo_v2(gpu *device, pci_info *info) { return nvmlDeviceGetPciInfo_v3(device, info); }
int nvmlDeviceGetMemoryInfo(gpu *device, unsigned long long bytes[3]) {
    (void)device;
    bytes[0] = bytes[1] = 16384ULL << 20; /* all, free, used */
    bytes[2] = 0;
    return SUCCESS;
}
/* How near two GPUs are, by which the plugin prefers some: all alike, without links. */
int nvmlDeviceGetTopologyCommonAncestor(gpu *one, gpu *other, int *level) { (void)one; (void)other; *level = 50; return SUCCESS; }
int nvmlDeviceGetNvLinkState(gpu *device, unsigned int link, int *active) { (void)device; (void)link; (void)active; return NOT_SUPPORTED; }
/* Nothing ever happens to a GPU. */
int nvmlEventSetCreate(void **set) { *set = gpus; return SUCCESS; }
int nvmlEventSetFree(void *set) { (void)set; return SUCCESS; }
int nvmlEventSetWait_v2(void *set, void *event, unsigned int milliseconds) {
    (void)set; (void)event;
    usleep(milliseconds * 1000);
    return TIMEOUT;
}
int nvmlDeviceGetSupportedEventTypes(gpu *device, unsigned long long *types) { (void)device; *types = 0x1f; return SUCCESS; }
int nvmlDeviceRegisterEvents(gpu *device, unsigned long long types, void *set) { (void)device; (void)types; (void)set; return SUCCESS; }
/* Volta has no MIG. */
int nvmlDeviceGetMigMode(gpu *device, unsigned int *now, unsigned int *next) { (void)device; (void)now; (void)next; return NOT_SUPPORTED; }
int nvmlDeviceGetMaxMigDeviceCount(gpu *device, unsigned int *most) { (void)device; *most = 0; return SUCCESS; }
int nvmlDeviceIsMigDeviceHandle(gpu *device, unsigned int *is) { (void)device; *is = 0; return SUCCESS; }
int nvmlDeviceGetMigDeviceHandleByIndex(gpu *device, unsigned int index, gpu **mig) { (void)device; (void)index; (void)mig; return NOT_FOUND; }
