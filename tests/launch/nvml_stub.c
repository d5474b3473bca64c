/* A driver library for tests. The file named by NVML_STUB holds what is wrong: empty for nothing, else some of the
   words "notloaded", "half" (half of the readings are not supported), "old" (a driver that knows only the old name of
   the clock event reasons), "lost" (the second card has fallen off the bus), "gone" (the driver was unloaded). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, UNINITIALIZED = 1, NOT_SUPPORTED = 3, DRIVER_NOT_LOADED = 9, FUNCTION_NOT_FOUND = 13, GPU_IS_LOST = 15 };

typedef struct { int index; } Device;
static Device devices[2] = {{0}, {1}};

static int told(const char *word) {
    char text[256] = {0};
    FILE *file = fopen(getenv("NVML_STUB"), "r");
    if (!file) return 0;
    fread(text, 1, sizeof text - 1, file);
    fclose(file);
    return strstr(text, word) != NULL;
}

static int state(Device *device) {
    if (told("gone")) return UNINITIALIZED;
    return device->index == 1 && told("lost") ? GPU_IS_LOST : OK;
}

#define UNLESS_HALF if (told("half")) return NOT_SUPPORTED

int nvmlInit_v2(void) { return told("notloaded") ? DRIVER_NOT_LOADED : OK; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) { *device = &devices[index]; return OK; }
int nvmlDeviceGetUUID(Device *d, char *text, unsigned size) { snprintf(text, size, "GPU-%d", d->index); return OK; }
int nvmlDeviceGetName(Device *d, char *text, unsigned size) { (void)d; snprintf(text, size, "Stub\x1b[31m H1"); return OK; }
int nvmlDeviceGetUtilizationRates(Device *d, unsigned *rates) { rates[0] = 87; rates[1] = 40; return state(d); }
int nvmlDeviceGetMemoryInfo(Device *d, unsigned long long *m) { m[0] = 80000; m[1] = 50000; m[2] = 30000; return state(d); }
int nvmlDeviceGetTemperature(Device *d, int sensor, unsigned *t) { UNLESS_HALF; (void)sensor; *t = 71; return state(d); }
int nvmlDeviceGetPowerUsage(Device *d, unsigned *mw) { UNLESS_HALF; *mw = 312500; return state(d); }
int nvmlDeviceGetEnforcedPowerLimit(Device *d, unsigned *mw) { UNLESS_HALF; *mw = 700000; return state(d); }
int nvmlDeviceGetPowerManagementLimit(Device *d, unsigned *mw) { UNLESS_HALF; *mw = 650000; return state(d); }
int nvmlDeviceGetClockInfo(Device *d, int type, unsigned *mhz) { *mhz = type == 1 ? 1980 : 2619; return state(d); }
int nvmlDeviceGetMaxClockInfo(Device *d, int type, unsigned *mhz) { UNLESS_HALF; (void)type; *mhz = 2100; return state(d); }
int nvmlDeviceGetCurrentClocksEventReasons(Device *d, unsigned long long *mask) {
    UNLESS_HALF;
    if (told("old")) return FUNCTION_NOT_FOUND;
    *mask = 0x4;
    return state(d);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Device *d, unsigned long long *mask) { *mask = 0x20; return state(d); }
