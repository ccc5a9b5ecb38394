/* What the scripts read of nvidia-smi, asked of the stand-in of NVML as the real one asks the real one. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { NO_LIBRARY = 12, NO_DRIVER = 9, USAGE = 6 };

int main(int count, char **arguments) {
    const char *asked = count > 1 ? arguments[1] : "";
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!nvml) {
        puts("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the "
             "NVIDIA Display Driver is properly installed and present in your system.");
        return NO_LIBRARY;
    }
    int (*init)(void) = (int (*)(void))dlsym(nvml, "nvmlInit_v2");
    int (*gpus)(unsigned *) = (int (*)(unsigned *))dlsym(nvml, "nvmlDeviceGetCount_v2");
    int (*handle)(unsigned, void **) = (int (*)(unsigned, void **))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
    int (*uuid)(void *, char *, unsigned) = (int (*)(void *, char *, unsigned))dlsym(nvml, "nvmlDeviceGetUUID");
    int (*name)(void *, char *, unsigned) = (int (*)(void *, char *, unsigned))dlsym(nvml, "nvmlDeviceGetName");
    unsigned found = 0;
    if (!init || !gpus || !handle || !uuid || !name || init() || gpus(&found)) {
        puts("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.");
        return NO_DRIVER;
    }
    for (unsigned index = 0; index < found; index++) {
        void *gpu;
        char id[96], model[96];
        if (handle(index, &gpu) || uuid(gpu, id, sizeof id) || name(gpu, model, sizeof model)) return NO_DRIVER;
        if (!strcmp(asked, "-L")) printf("GPU %u: %s (UUID: %s)\n", index, model, id);
        else if (!strcmp(asked, "--query-gpu=uuid")) puts(id);
        else {
            fprintf(stderr, "the stand-in of nvidia-smi knows -L and --query-gpu=uuid, not %s\n", asked);
            return USAGE;
        }
    }
    return 0;
}
